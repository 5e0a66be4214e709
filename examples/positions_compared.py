"""Positions compared: order, distance, and extrapolation beyond the trained length."""

import torch

from regard import RegardError, causal, everything, window
from regard.attention import Attention
from regard.attention.scores import ScaledDot
from regard.positions import POSITIONS, Position, position

HEADS, DIM, TRAINED = 2, 8, 16  # each is built for 16 positions
OPTIONS = {"learned": {"max_length": TRAINED}, "t5": {"max_distance": TRAINED, "buckets": 16}}
OPTIONS |= {name: {"max_distance": TRAINED} for name in ("distance", "shaw")}
EXPECTED = {  # depends on order, on distance alone; beyond the length
    "none": (False, True, "constant"),
    "sinusoidal": (True, False, "extrapolates"),
    "learned": (True, False, "raises"),
}
EXPECTED |= dict.fromkeys(("rotary", "alibi"), (True, True, "extrapolates"))
EXPECTED |= dict.fromkeys(("distance", "t5", "shaw"), (True, True, "constant"))


def attend(encoding: Position, tokens, mask=everything):
    """Minimal self-attention: a token is its own query, key and value."""
    places, bias = torch.arange(len(tokens)), encoding if encoding.place == "bias" else None
    tokens = tokens + encoding(places) if encoding.place == "additive" else tokens
    values = tokens.expand(1, HEADS, -1, -1)
    rotated = encoding.rotate(values, places) if encoding.place == "rotary" else values
    attention = Attention(ScaledDot(HEADS, DIM), bias=bias)
    return attention.intermediates(rotated, rotated, values, mask=mask)


def examine(encoding: Position) -> tuple[bool, bool, str]:
    tokens = torch.randn(TRAINED, DIM)
    swapped = torch.arange(TRAINED)
    swapped[[2, 7]] = torch.tensor([7, 2])
    straight, crossed = (attend(encoding, t).context[0] for t in (tokens, tokens[swapped]))
    order = not torch.allclose(straight[:, swapped], crossed, atol=1e-9)
    # The same five tokens at the start and at the end, attended to by the last of them.
    pair, mask = (tokens, tokens.roll(-5, 0)), causal & window(5)
    early, late = (attend(encoding, some, mask).context[0] for some in pair)
    distance = torch.allclose(early[:, 4], late[:, -1], atol=1e-9)
    try:
        far = attend(encoding, tokens[:1].expand(4 * TRAINED, -1)).biased[0, :, -1, : 2 * TRAINED]
    except RegardError:
        return order, distance, "raises"
    constant = torch.allclose(far, far[:, :1], atol=1e-9)
    return order, distance, "constant" if constant else "extrapolates"


torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
print("encoding     place     order  distance alone  beyond its length")
for name in POSITIONS:
    sizes = {"width": DIM, "heads": HEADS, "dim": DIM, "causal": False}
    encoding = position(name, **sizes, **OPTIONS.get(name, {}))
    for table in encoding.parameters():
        torch.nn.init.normal_(table)  # as if trained
    order, distance, beyond = examine(encoding)
    print(f"{name:12} {encoding.place:9} {order!s:6} {distance!s:15} {beyond}")
    assert (order, distance, beyond) == EXPECTED[name]
