"""PackedLinear: x W + b with weights packed once for inference."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

Vectors = Float[Tensor, "row width"]
Matrix = Float[Tensor, "width out"]


class PackedLinear:
    """x W + b. On a CPU, products of several rows are faster with W in the other memory order than
    products of one row: `single` serves one row, `batched` several."""

    def __init__(self, single: Matrix, batched: Matrix, row: Float[Tensor, "1 out"] | None) -> None:
        self.single, self.batched, self.row = single, batched, row

    @property
    def bias(self) -> Float[Tensor, " out"] | None:
        """b. Stored as a row, which adds faster to a single row of the same shape."""
        return None if self.row is None else self.row.squeeze(0)

    @classmethod
    def of(cls, *layers: nn.Linear) -> PackedLinear:
        """Layers that read the same x, side by side."""
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        weight = torch.cat([layer.weight for layer in layers])
        return cls.packed(weight, torch.cat(biases).detach() if biases else None)

    @classmethod
    def packed(
        cls, weight: Float[Tensor, "out width"], bias: Float[Tensor, " out"] | None = None
    ) -> PackedLinear:
        """From a weight in the layout of nn.Linear."""
        single = weight.detach().t()
        batched = single.contiguous() if single.device.type == "cpu" else single
        return cls(single, batched, None if bias is None else bias[None])

    def __call__(self, x: Vectors) -> Float[Tensor, "row out"]:
        weight = self.single if x.size(0) == 1 else self.batched
        return x @ weight if self.row is None else torch.addmm(self.row, x, weight)

    def onto(self, x: Float[Tensor, "row out"], y: Vectors) -> Float[Tensor, "row out"]:
        """x + y W + b, written into x at the cost of the product alone."""
        x.addmm_(y, self.single if y.size(0) == 1 else self.batched)
        return x if self.row is None else x.add_(self.row)
