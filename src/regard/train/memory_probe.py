"""Room: how many tokens a step may have in a GPU's memory, found by trying."""

from __future__ import annotations

from collections.abc import Callable

import torch

from regard.device import resolve_precision
from regard.models import build
from regard.text import Batch, Batches
from regard.train.auto_settings import Plan
from regard.train.distributed import World
from regard.train.objective import Objective
from regard.train.prepare import Prepared

ROOM = 0.4  # share of the memory that a step may take: a recorded one takes it again, and search needs some
LEAST = 512


def fitted(decided: Plan, data: Prepared, world: World) -> Plan:
    """The plan with as many tokens to a step as fit."""
    train = decided.train
    model = build(decided.model, len(data.exam.source), len(data.exam.target)).to(world.device)
    objective, half = (
        Objective(model, label_smoothing=train.label_smoothing, rdrop=train.rdrop or 0.0),
        resolve_precision(train.precision, world.device)[0] == "bfloat16",
    )

    def hungry(batch_tokens: int) -> int:
        torch.cuda.reset_peak_memory_stats(world.device)
        for batch in _hungriest(data.batches(train, batch_tokens)):
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                loss = objective(batch.to(world.device))
            loss.backward()
        return torch.cuda.max_memory_allocated(world.device)

    batch_tokens = roomy(decided.batch_tokens, hungry, torch.cuda.get_device_properties(world.device).total_memory)
    del model, objective
    torch.cuda.empty_cache()
    batch_tokens = int(world.agreed(batch_tokens))
    if batch_tokens == decided.batch_tokens:
        return decided
    why = f"steps of about {batch_tokens:,} tokens instead of {decided.batch_tokens:,}: more would not fit in the GPU's memory"
    return decided.filled(why, batch_tokens=batch_tokens)


def roomy(batch_tokens: int, hungry: Callable[[int], int], total: int) -> int:
    """The largest of budget, a half of it, a quarter … for which the bytes that `hungry` says leave enough of the
    memory."""
    while batch_tokens > LEAST:
        try:
            if hungry(batch_tokens) <= ROOM * total:
                break
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
        batch_tokens = max(LEAST, batch_tokens // 2)
    return batch_tokens


def _hungriest(batches: Batches) -> list[Batch]:
    """The step with the most pairs, and the one with the longest."""
    plan = batches.plan(0)
    firsts = [plan.batch(step)[-1] for step in range(len(plan))]
    longest = (batches.pairs.source_lengths + batches.pairs.target_lengths)[firsts]
    return [batches.at(0, int(step)) for step in {longest.argmin(), longest.argmax()}]
