"""Draws of any result, smoothed into a density that can be drawn from: a mixture of Student t around them.

The mixture of West (1993, Journal of the Royal Statistical Society B 55): kernels have the covariance of the draws
times the square of a bandwidth, and their centres are drawn to the mean, so that the mixture has the covariance of the
draws. The bandwidth is Silverman's or a share of it, the one under which draws are most probable given the others:
modes that are narrow and far apart need less. In many dimensions the mixture tends to one Student t around the mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from bayeslab.programs.program import Bound
from bayeslab.programs.unconstrained import unconstrain
from bayeslab.results.datatree import posterior_draws

if TYPE_CHECKING:
    from xarray import DataTree

MAX_CENTRES = 400
"""Draws that kernels are put around, at most, spread evenly over all."""
BANDWIDTH_SHARES = 1.0, 0.7, 0.5, 0.35, 0.25, 0.15
"""Of Silverman's bandwidth, from which one is chosen."""
DEGREES_OF_FREEDOM = 5.0
"""Of the kernels: tails have to be heavier than those of the posterior."""


@dataclass(frozen=True)
class FittedDraws:
    """Draws (draw, *site) of the sites of a result, equal to others with the same numbers. method: that made them."""

    method: str
    digest: str
    values: Mapping[str, np.ndarray] = field(repr=False, compare=False)

    @classmethod
    def of(cls, tree: "DataTree") -> "FittedDraws":
        """Some draws of a result, spread evenly over all chains.

        Raises ValueError for a result without draws.
        """
        posterior = posterior_draws(tree, "a proposal")
        flat = {str(name): v.values.reshape(-1, *v.shape[2:]) for name, v in posterior.data_vars.items()}
        number = len(next(iter(flat.values())))
        places = np.unique(np.linspace(0, number - 1, min(number, MAX_CENTRES)).astype(int))
        values = {name: value[places] for name, value in flat.items()}
        digest = sha256(b"".join(np.ascontiguousarray(values[name]).tobytes() for name in sorted(values)))
        return cls(str(tree.attrs.get("method", "")), digest.hexdigest()[:16], values)

    def mixture(self, bound: Bound) -> "KernelMixture":
        """Their mixture in the flat unconstrained coordinates of a program on its data.

        Raises ValueError where a latent site is missing, or where the draws do not span the space.
        """
        if missing := [name for name in bound.latent if name not in self.values]:
            raise ValueError(f"the proposal has no draws of {missing}; it has those of {sorted(self.values)}")
        dtypes = {name: bound.sites[name].dtype for name in bound.latent}
        values = {name: jnp.asarray(self.values[name], dtypes[name]) for name in bound.latent}
        points = np.unique(np.asarray(_flat_points(bound, values), float), axis=0)  # chains stay where they are
        covariance = (
            np.atleast_2d(np.cov(points, rowvar=False)) if len(points) > 1 else np.zeros((points.shape[1],) * 2)
        )
        if not np.isfinite(points).all() or np.linalg.matrix_rank(covariance) < len(covariance):
            raise ValueError(
                f"the {len(points)} draws of the proposal span less than the {len(covariance)} dimensions of the "
                "posterior, so no density can be made of them; take more draws, or a method such as Laplace()"
            )
        number, size = points.shape
        silverman = min((4 / ((size + 2) * number)) ** (1 / (size + 4)), 1.0)
        candidates = [_kernels(points, covariance, share * silverman) for share in BANDWIDTH_SHARES]
        centres, factor = max(candidates, key=lambda kernels: _left_out_score(points, *kernels))
        return KernelMixture(_Array(centres), _Array(factor))


def _kernels(points: np.ndarray, covariance: np.ndarray, bandwidth: float) -> tuple[np.ndarray, np.ndarray]:
    """The centres and Cholesky's factor of the scale of kernels around points (point, coordinate)."""
    centres = points.mean(0) + np.sqrt(1 - bandwidth**2) * (points - points.mean(0))
    return centres, bandwidth * np.linalg.cholesky(covariance)


def _left_out_score(points: np.ndarray, centres: np.ndarray, factor: np.ndarray) -> float:
    """The mean log density of points under the kernels of the others, up to a constant."""
    size = points.shape[1]
    scaled, middles = np.linalg.solve(factor, points.T).T, np.linalg.solve(factor, centres.T).T
    squares = ((scaled[:, None] - middles[None]) ** 2).sum(-1)
    logs = -0.5 * (DEGREES_OF_FREEDOM + size) * np.log1p(squares / DEGREES_OF_FREEDOM)
    np.fill_diagonal(logs, -np.inf)
    return float(np.logaddexp.reduce(logs, axis=1).mean() - np.log(np.diag(factor)).sum())


class _Array:
    """An array that is equal to others with the same numbers, so that it can be a part of a record."""

    def __init__(self, value: np.ndarray):
        self.value = np.ascontiguousarray(value, float)
        self._key = (value.shape, self.value.tobytes())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Array) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True)
class KernelMixture:
    """A mixture of multivariate Student t with equal weights. centres: (kernel, coordinate). factor: Cholesky's, of the
    scale that all kernels have."""

    centres: _Array
    factor: _Array

    def draw(self, key: Array) -> Array:
        """A draw (coordinate,)."""
        centre_key, noise_key, tail_key = jax.random.split(key, 3)
        centres, factor = jnp.asarray(self.centres.value), jnp.asarray(self.factor.value)
        centre = centres[jax.random.randint(centre_key, (), 0, len(centres))]
        stretch = jnp.sqrt(0.5 * DEGREES_OF_FREEDOM / jax.random.gamma(tail_key, 0.5 * DEGREES_OF_FREEDOM))
        return centre + stretch * factor @ jax.random.normal(noise_key, centre.shape)

    def log_density(self, flat: Array) -> Array:
        """Of a point (coordinate,)."""
        centres, factor, df = jnp.asarray(self.centres.value), jnp.asarray(self.factor.value), DEGREES_OF_FREEDOM
        size, gammaln = centres.shape[1], jax.scipy.special.gammaln
        scores = jax.scipy.linalg.solve_triangular(factor, (flat - centres).T, lower=True)
        kernels = -0.5 * (df + size) * jnp.log1p((scores**2).sum(0) / df)
        constant = gammaln(0.5 * (df + size)) - gammaln(0.5 * df) - 0.5 * size * jnp.log(df * jnp.pi)
        volume = jnp.log(jnp.diag(factor)).sum() + jnp.log(len(centres))
        return jax.scipy.special.logsumexp(kernels) + constant - volume


@jax.jit
def _flat_points(bound: Bound, values: dict[str, Array]) -> Array:
    """Flat unconstrained coordinates (draw, coordinate) of values (draw, *site)."""
    return jax.vmap(lambda one: ravel_pytree(partial(unconstrain, bound)(one))[0])(values)
