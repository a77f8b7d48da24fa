"""Factors that turn, change sign or change places: every draw is brought nearest to the others by an orthogonal matrix.

The density of a factor model does not change when its factors and loadings are rotated together, that of independent
components not when sources change places or signs. Each draw is moved to be nearest to an anchor, one draw at first and
then the mean of all that were moved, until nothing changes: Procrustes for rotations (Schönemann 1966,
doi:10.1007/BF02289451), an assignment for signed permutations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.results.parameters import SAMPLE_DIMS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset

    Array = NDArray[Any]

MAX_ROUNDS = 200
"""The largest number of times that draws are moved to their mean."""
TOLERANCE = 1e-12
"""Share of all squares by which a round has to bring draws nearer."""


def orthogonal_matrices(posterior: Dataset, dims: Mapping[str, str], up_to: str, best: int) -> Array:
    """For every draw the matrix (draw, old factor, new factor) that brings its factors nearest to those of all others.

    dims: the dimension over factors of every site. Sites count alike, whatever their size and scale.
    up_to: a name in `NEAREST`. best: the number of the draw that is the first anchor.
    """
    features, nearest = _features(posterior, dims), NEAREST[up_to]
    ends = []
    for anchor in (features[best], features.mean(0)):
        matrices = nearest(features, anchor)
        distance = np.inf
        for _ in range(MAX_ROUNDS):
            moved = features @ matrices
            previous, distance = distance, float(((moved - moved.mean(0)) ** 2).sum())
            if not distance < previous - TOLERANCE * float((features**2).sum()):
                break
            matrices = nearest(features, moved.mean(0))
        ends.append((distance, matrices))
    return min(ends, key=lambda end: end[0])[1]


def matrix_to_reference(
    posterior: Dataset, reference: Dataset, dims: Mapping[str, str], up_to: str, matrices: Array
) -> Array:
    """The matrix (old factor, new factor) that brings the mean of moved draws nearest to the mean of a reference."""
    moved, target = _features(posterior, dims) @ matrices, _features(reference, dims)
    return NEAREST[up_to](moved.mean(0, keepdims=True), target.mean(0))[0]


def turned(values: DataArray, dim: str, matrices: Array) -> DataArray:
    """A site with its factors multiplied by the matrix of every draw (draw, old factor, new factor)."""
    ordered = values.transpose(*SAMPLE_DIMS, ..., dim)
    shape = ordered.shape
    rows = ordered.values.reshape(shape[0] * shape[1], -1, shape[-1])
    return ordered.copy(data=(rows @ matrices).reshape(shape)).transpose(*values.dims)


def _features(posterior: Dataset, dims: Mapping[str, str]) -> Array:
    """All sites as (draw, feature, factor), each with a mean square of one divided by the number of its features."""
    parts = []
    for site, dim in dims.items():
        ordered = posterior[site].transpose(*SAMPLE_DIMS, ..., dim)
        rows = ordered.values.reshape(ordered.shape[0] * ordered.shape[1], -1, ordered.shape[-1]).astype(float)
        size = np.sqrt((rows**2).mean() * rows.shape[1])
        parts.append(rows / size if size > 0 else rows)
    return np.concatenate(parts, axis=1)


def _nearest_rotations(features: Array, anchor: Array) -> Array:
    """Orthogonal matrices: the polar factors of the products of draws with the anchor."""
    left, _, right = np.linalg.svd(np.swapaxes(features, 1, 2) @ anchor)
    return left @ right


def _nearest_signed_permutations(features: Array, anchor: Array) -> Array:
    """Matrices with one entry in every row and column, 1 or -1."""
    from scipy.optimize import linear_sum_assignment

    products = np.swapaxes(features, 1, 2) @ anchor
    matrices = np.zeros_like(products)
    for matrix, product in zip(matrices, products, strict=True):
        old, new = linear_sum_assignment(np.abs(product), maximize=True)
        matrix[old, new] = np.where(product[old, new] < 0, -1.0, 1.0)
    return matrices


NEAREST: dict[str, Callable[[Array, Array], Array]] = {
    "rotations": _nearest_rotations,
    "signed permutations": _nearest_signed_permutations,
}
"""What draws may be moved by, and the matrices that bring them nearest to an anchor (feature, factor)."""
