"""Geometry of vectors: cosine similarity and projection on the principal plane."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def unit(vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """Vectors scaled to length one: v / ‖v‖. A zero vector stays zero."""
    tiny = torch.finfo(vectors.dtype).tiny
    # Dividing by the largest entry first avoids overflow and underflow of the squares.
    vectors = vectors / vectors.abs().amax(-1, keepdim=True).clamp(min=tiny)
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp(min=tiny)


def cosine(
    a: Float[Tensor, "*#batch dim"], b: Float[Tensor, "*#batch dim"]
) -> Float[Tensor, "*batch"]:
    """a · b / (‖a‖ ‖b‖) along the last axis; the other axes broadcast.

    The cosine with a zero vector is undefined; here it is 0, as in scikit-learn.
    """
    return (unit(a) * unit(b)).sum(-1).clamp(-1, 1)


def similarities(
    a: Float[Tensor, "*batch row dim"], b: Float[Tensor, "*batch column dim"] | None = None
) -> Float[Tensor, "*batch row column"]:
    """The cosines of every row of `a` with every row of `b` (default: of `a` itself)."""
    rows = unit(a)
    columns = rows if b is None else unit(b)
    return torch.einsum("...rd,...cd->...rc", rows, columns).clamp(-1, 1)


def pca_plane(
    vectors: Float[Tensor, "vector dim"],
) -> tuple[Float[Tensor, "vector 2"], tuple[float, float]]:
    """The coordinates of vectors on their first two principal components (float64), and the share
    of the variance that each component explains.

    The largest entry of a component is positive, so that plots do not flip.
    """
    centred = vectors.double() - vectors.double().mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    signs = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
    shares = sizes.square() / sizes.square().sum().clamp_min(torch.finfo(torch.float64).tiny)
    points = centred @ (directions * signs)[:2].T
    missing = (0, 2 - points.shape[1])  # one vector, or one dimension, spans less than a plane
    first, second = torch.nn.functional.pad(shares[:2], missing).tolist()
    return torch.nn.functional.pad(points, missing), (first, second)
