"""Positions compared: what each encoding knows of order and distance, and what it does past its length."""

import torch

from regard import RegardError, causal, everything, window
from regard.attention import Attention
from regard.attention.scores import ScaledDot
from regard.positions import POSITIONS, AdditivePosition, BiasPosition, Position, RotaryPosition, position

HEADS, DIM, TRAINED = 2, 8, 16  # each is made for 16 positions
OPTIONS = {"learned": {"max_length": TRAINED}, "t5": {"max_distance": TRAINED, "buckets": 16}}
OPTIONS |= {name: {"max_distance": TRAINED} for name in ("distance", "shaw")}
EXPECTED = {  # feels order, knows the distance alone, past the length
    "none": (False, True, "goes on, all alike"),
    "sinusoidal": (True, False, "goes on"),
    "learned": (True, False, "raises"),
    "rotary": (True, True, "goes on"),
    "alibi": (True, True, "goes on"),
    "distance": (True, True, "goes on, all alike"),
    "t5": (True, True, "goes on, all alike"),
    "shaw": (True, True, "goes on, all alike"),
}


def attend(encoding: Position, tokens, mask=everything):
    """Self-attention in its barest form: a token is its own query, key and value."""
    places = torch.arange(len(tokens))
    rows = (tokens + encoding(places) if isinstance(encoding, AdditivePosition) else tokens).expand(1, HEADS, -1, -1)
    turned = encoding.rotate(rows, places) if isinstance(encoding, RotaryPosition) else rows
    bias = encoding if isinstance(encoding, BiasPosition) else None
    return Attention(ScaledDot(HEADS, DIM), bias=bias).intermediates(turned, turned, rows, mask=mask)


def examine(encoding: Position) -> tuple[bool, bool, str]:
    tokens = torch.randn(TRAINED, DIM)
    swapped = torch.arange(TRAINED)
    swapped[[2, 7]] = swapped[[7, 2]]
    straight, crossed = (attend(encoding, t).context[0] for t in (tokens, tokens[swapped]))
    order = not torch.allclose(straight[:, swapped], crossed, atol=1e-9)

    # Five tokens at the start, and the same five at the end, each time seen by the last of them alone.
    early, late = (attend(encoding, t, causal & window(5)).context[0] for t in (tokens, tokens.roll(-5, 0)))
    distance = torch.allclose(early[:, 4], late[:, -1], atol=1e-9)
    try:
        far = attend(encoding, tokens[:1].expand(4 * TRAINED, -1)).biased[0, :, -1, : 2 * TRAINED]
    except RegardError:
        return order, distance, "raises"
    return order, distance, "goes on, all alike" if torch.allclose(far, far[:, :1], atol=1e-9) else "goes on"


torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
print("encoding     place     feels order   knows distance alone   past its length")
for name in POSITIONS:
    encoding = position(name, width=DIM, heads=HEADS, dim=DIM, causal=False, **OPTIONS.get(name, {}))
    for table in encoding.parameters():
        torch.nn.init.normal_(table)  # as if it had been trained
    order, distance, beyond = examine(encoding)
    print(f"{name:12} {encoding.place:9} {'yes' if order else 'no':13} {'yes' if distance else 'no':22} {beyond}")
    assert (order, distance, beyond) == EXPECTED[name]
