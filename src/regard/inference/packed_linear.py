"""Linear: products with weights laid out once, for models that only answer."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

Vectors = Float[Tensor, "row width"]
Matrix = Float[Tensor, "width out"]


class Linear:
    """x W + b. On a CPU several rows go faster through W laid out the other way than one row does: `turned`."""

    def __init__(self, single: Matrix, turned: Matrix, row: Float[Tensor, "1 out"] | None) -> None:
        self.single, self.turned, self.row = single, turned, row

    @property
    def bias(self) -> Float[Tensor, " out"] | None:
        """b, which is kept as a row: that is added faster to one row, being of its shape."""
        return None if self.row is None else self.row.squeeze(0)

    @classmethod
    def of(cls, *layers: nn.Linear) -> Linear:
        """Those of modules that read the same x, side by side."""
        biases: list[Tensor] = [layer.bias for layer in layers if layer.bias is not None]
        return cls.laid(torch.cat([layer.weight for layer in layers]), torch.cat(biases).detach() if biases else None)

    @classmethod
    def laid(cls, weight: Float[Tensor, "out width"], bias: Float[Tensor, " out"] | None = None) -> Linear:
        """From weights as modules keep them."""
        single = weight.detach().t()
        turned = single.contiguous() if single.device.type == "cpu" else single
        return cls(single, turned, None if bias is None else bias[None])

    def __call__(self, x: Vectors) -> Float[Tensor, "row out"]:
        weight = self.single if x.size(0) == 1 else self.turned
        return x @ weight if self.row is None else torch.addmm(self.row, x, weight)

    def onto(self, x: Float[Tensor, "row out"], y: Vectors) -> Float[Tensor, "row out"]:
        """x + y W + b in the place of x, for the price of the product."""
        x.addmm_(y, self.single if y.size(0) == 1 else self.turned)
        return x if self.row is None else x.add_(self.row)
