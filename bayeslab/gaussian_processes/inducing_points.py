"""A process through its values at a few points: the fully independent training conditional.

Given the values at the points, all other values are independent (Quiñonero-Candela and Rasmussen 2005, section 6).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from bayeslab.gaussian_processes.cholesky import factor
from bayeslab.gaussian_processes.low_rank import LowRank, as_floats, min_remainder


@dataclass(frozen=True)
class InducingPoints:
    """The approximate solver by points through which all values depend on each other: time of n m^2.

    points: (m,) or (m, input), concrete numbers; more than rows are no gain. `inducing_points` chooses them.
    Variances are those of the kernel; covariances between rows go through the points only.
    """

    points: Any

    def __post_init__(self) -> None:
        points = np.asarray(self.points, float)
        if points.ndim not in (1, 2) or not points.size:
            raise ValueError(
                f"points has shape {points.shape}; expected (m,) or (m, input); inducing_points(x, m) chooses m of them"
            )
        if not np.isfinite(points).all():
            raise ValueError("points holds numbers that are not finite; leave those points out")
        rows = points[:, None] if points.ndim == 1 else points
        object.__setattr__(self, "points", tuple(map(tuple, rows.tolist())))

    def represent(self, kernel: Any, x: Array) -> LowRank:
        """The process at inputs x: (row,) or (row, input). There may be fewer rows than points.

        Raises ValueError for another number of columns than that of the points.
        """
        x, (count, inputs) = as_floats(x), np.shape(self.points)
        columns = 1 if x.ndim == 1 else x.shape[1]
        if inputs != columns:
            raise ValueError(f"points has {inputs} columns and x has {columns}; give points as many as x has")
        points = jnp.asarray(self.points, x.dtype).reshape(count, *x.shape[1:])
        covariance = kernel(points, points).astype(x.dtype)
        jitter = float(jnp.finfo(x.dtype).eps) ** (2 / 3) * jnp.diagonal(covariance).mean()
        functions = InducingFunctions(kernel, points, factor(covariance + jitter * jnp.eye(count, dtype=x.dtype)))
        return LowRank(*functions.at(x), functions)


class InducingFunctions(NamedTuple):
    """The functions of a process through its values at some points.

    points: (m,) or (m, input). factor: lower triangular (m, m), of their covariance matrix.
    The diagonal of that matrix has 3.7e-11 of its mean added (the power 2/3 of eps): with less, derivatives lose their
    digits. The factor is never inverted, only solved: the inverse, in a product, would lose those of the values.
    """

    kernel: Any
    points: Array
    factor: Array

    def at(self, x: Array) -> tuple[Array, Array]:
        """The functions at x, (row, m), and the variance that they leave out, (row,).

        The prior variance is that of the kernel, except that the remainder has a lower bound.
        """
        x = as_floats(x)
        cross_covariance, variance = self.kernel(self.points, x).astype(x.dtype), self.kernel(x).astype(x.dtype)
        basis = solve_triangular(self.factor, cross_covariance, lower=True).T
        return basis, jnp.maximum(variance - (basis**2).sum(1), min_remainder(variance))


def inducing_points(x: ArrayLike, num_points: int) -> InducingPoints:
    """The centres of num_points clusters of the rows of x, at most 100 rows a point (k-means, on columns of one scale).

    x: (row,) or (row, input), concrete numbers. Raises ValueError where it has fewer different rows than num_points.
    """
    from sklearn.cluster import KMeans

    inputs = np.asarray(x, float)
    rows = np.unique(inputs[:, None] if inputs.ndim == 1 else inputs, axis=0)
    if not 1 <= num_points <= len(rows):
        raise ValueError(f"num_points is {num_points}; expected 1 to {len(rows)}, the number of different rows of x")
    if num_points == len(rows):
        return InducingPoints(rows)
    scale = rows.std(0) + (np.ptp(rows, axis=0) == 0)
    sample = np.random.default_rng(0).permutation(len(rows))[: 100 * num_points]
    clusters = KMeans(num_points, n_init=1, random_state=0).fit(rows[sample] / scale)
    return InducingPoints(np.unique(clusters.cluster_centers_ * scale, axis=0))
