"""The geometry of vectors: the cosine, how far two directions agree, and the plane on which many spread most."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def unit(vectors: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """The same directions with length one: v / ‖v‖. A zero vector has no direction and stays zero."""
    tiny = torch.finfo(vectors.dtype).tiny
    # Divided by its largest entry first, so that squaring neither overflows nor vanishes.
    vectors = vectors / vectors.abs().amax(-1, keepdim=True).clamp(min=tiny)
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp(min=tiny)


def cosine(a: Float[Tensor, "*#batch dim"], b: Float[Tensor, "*#batch dim"]) -> Float[Tensor, "*batch"]:
    """a · b / (‖a‖ ‖b‖) along the last axis; the other axes broadcast.

    The cosine with a zero vector is undefined; it is 0 here (similar to nothing), as in scikit-learn.
    """
    return (unit(a) * unit(b)).sum(-1).clamp(-1, 1)


def similarities(
    a: Float[Tensor, "*batch row dim"], b: Float[Tensor, "*batch column dim"] | None = None
) -> Float[Tensor, "*batch row column"]:
    """The table of cosines of every row of `a` with every row of `b` (of `a` itself when there is no `b`)."""
    rows = unit(a)
    columns = rows if b is None else unit(b)
    return torch.einsum("...rd,...cd->...rc", rows, columns).clamp(-1, 1)


def plane(vectors: Float[Tensor, "vector dim"]) -> tuple[Float[Tensor, "vector 2"], tuple[float, float]]:
    """Vectors on their two principal components, in float64, and the share of the variance that each explains.

    The greatest entry of a component is positive: its sign is a convention, and so pictures do not flip.
    """
    centred = vectors.double() - vectors.double().mean(0)
    _, sizes, directions = torch.linalg.svd(centred, full_matrices=False)
    signs = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
    shares = sizes.square() / sizes.square().sum().clamp_min(torch.finfo(torch.float64).tiny)
    places = centred @ (directions * signs)[:2].T
    missing = (0, 2 - places.shape[1])  # one vector, or vectors of one dimension, span less than a plane
    first, second = torch.nn.functional.pad(shares[:2], missing).tolist()
    return torch.nn.functional.pad(places, missing), (first, second)
