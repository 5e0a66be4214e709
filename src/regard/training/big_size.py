"""When `auto` trains a big model: enough text, a run that is long enough, and enough GPU memory.

A big model (1024 wide, 6 + 6 layers) has 227 M weights besides its embeddings, four times those of
a base model, and so takes four times the arithmetic per token. It pays off only if the run reads
about 20 tokens per weight (Hoffmann et al. 2022), 4.5 · 10⁹, where a run without a given length
reads 0.24 · 10⁹. The smallest dataset on which it was published to be better than base is WMT 2014
English–German: 4.5 M pairs, 0.26 · 10⁹ tokens (Vaswani et al. 2017).
"""

from __future__ import annotations

import torch
from torch import distributed

BIG_TEXT = 0.2e9  # training tokens of running text; single symbols need no larger model than base
BIG_RUN = 5e9  # tokens that a run must read
# An H200 trains a base model at 1.74 M tokens/s (docs/benchmarks.md), so a big one at about 0.44 M:
# 5 · 10⁹ tokens take 3.2 hours. Other GPUs have about half of that speed.
BIG_SPEED = 0.22e6  # tokens/s of one GPU
# Weights, gradients, two moments and an average in float32, and a copy in bfloat16, are 22 bytes
# per weight: 5.7 GB of 0.26 · 10⁹ weights. One step may take 40 % of the memory (see plan): 8 GB
# for the activations of a batch that uses the GPU fully.
BIG_MEMORY = 20e9  # bytes


def pays_off(tokens: int, run_tokens: float | None, minutes: float | None) -> bool:
    """Whether a big model pays off on so much text. A run reads `run_tokens`, or as many as it can
    in `minutes`; without either it is too short."""
    if minutes is not None:
        run_tokens = 60 * minutes * BIG_SPEED * gpu_count()
    if tokens < BIG_TEXT or run_tokens is None or run_tokens < BIG_RUN:
        return False
    return gpu_memory() >= BIG_MEMORY


def gpu_count() -> int:
    """The number of processes, each with a GPU."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def gpu_memory() -> int:
    """Bytes of memory of the smallest GPU of the run; 0 without one."""
    if not torch.cuda.is_available():
        return 0
    device = torch.device("cuda", torch.cuda.current_device())
    memory = torch.tensor(torch.cuda.get_device_properties(device).total_memory, device=device)
    if distributed.is_initialized():  # all processes must choose the same size
        distributed.all_reduce(memory, distributed.ReduceOp.MIN)
    return int(memory)
