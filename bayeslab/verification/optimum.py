"""Whether an ascent ended at a maximum: a gradient that vanishes is not enough.

It vanishes too where the density has steps, on a plateau that goes on for ever, and at a saddle; and it does not where
a maximum is a kink. So the density is looked at around the point, and far away along directions that do not curve.
"""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.distributions.constraints import real
from scipy.linalg import eigh
from scipy.optimize import nnls

from bayeslab.programs import unconstrained
from bayeslab.programs.program import Bound, precision_scope
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.programs.wrapped_distributions import describe_constraint
from bayeslab.verification.points.likely_points import in_double_precision

FlatDensity = Callable[[Bound, Array], Array]
"""The log joint as a function of a Bound and a flat unconstrained position."""

POINTS_PER_CALL = 16
"""Points at which a density is evaluated in one call."""
JUMP_STEP = 1e-6
"""Length of the steps across which a jump is looked for, in units of the size of the coordinates."""
SMALLER_JUMP_STEP = 1e-9
"""Length of steps that are a thousand times smaller: a jump changes the density by as much."""
ROUNDING_ERRORS = 4
"""Rounding errors of a coordinate that a step has which no ascent could see anything within."""
MAX_HESSIAN_COORDINATES = 64
"""Coordinates, at most, where the Hessian is looked at."""
ESCAPE_DISTANCES = np.geomspace(1e-2, 1e6, POINTS_PER_CALL)
"""Distances to which directions are followed: up to a million times the size of the coordinates."""
MAX_FLAT_CURVATURE = 1.0
"""Curvature, in units of the size of the coordinates, below which a direction is followed."""
MAX_FLAT_DIRECTIONS = 8
"""Directions of little curvature that are followed, at most."""
SAMPLING_RADII = 10.0 ** -np.arange(2, 10)
"""Radii within which gradients are sampled, in units of the size of the coordinates."""
MAX_STEPS_PER_RADIUS = 20
"""Steps with one radius, at most."""
MIN_BOUNDARY_DISTANCE = 50.0
"""Unconstrained distance from zero beyond which a coordinate is taken to go to the end of its support."""

JUMP_REASON = (
    "the log joint jumps where its gradient says that it is flat (a threshold, a rounding or an argmax), and no ascent "
    "sees that; smooth it, or sum over what jumps, or draw it"
)

EDGE_REASON = (
    "the ascent ended where data become impossible, and a maximum at such an edge has no gradient; draw with NUTS(), "
    "or solve for the edge"
)
NEEDLE_REASON = (
    "the log joint has a peak that is narrower than rounding errors of {} in {}, as where a scale goes to zero and "
    "it grows without bound, so it may have no maximum; draw with NUTS(), or give scales a prior that vanishes at zero"
)
ROUNDING_OF_AXES = 1e-5
"""The size up to which coordinates of a unit vector along which the density is flat are errors of differences."""
OUT_OF_STEPS_REASON = (
    "the optimisation stopped at its maximum number of steps; allow more, or continue with previous=tree"
)


class MaximumVerdict(NamedTuple):
    """Whether an ascent ended at a maximum.

    why: no maximum was found, in words; nothing where it was. lasting: whether more steps would not help.
    kink: the position of the maximum, if it has no gradient there.
    """

    why: str = ""
    lasting: bool = False
    kink: np.ndarray | None = None


def gradient_tolerance(value: Array) -> Array:
    """The size up to which a derivative of a log density with that value counts as zero."""
    return jnp.sqrt(jnp.finfo(value.dtype).eps) * jnp.maximum(1.0, jnp.abs(value))


def check_maximum(density: FlatDensity, bound: Bound, position: Array) -> MaximumVerdict:
    """Whether a density has a maximum at a point, at which an ascent in the precision of that ended.

    Sees jumps, kinks, saddles, peaks narrower than rounding errors, and directions in which the density does not fall
    however far one goes, if the values of sites do not settle. With more than 64 coordinates of those directions only
    the one from the origin is looked at.
    """
    with precision_scope(jnp.float64), np.errstate(all="ignore"):
        neighbourhood = _Neighbourhood(density, in_double_precision(bound), np.asarray(position, float))
        tolerance = 2 * gradient_tolerance(jnp.asarray(neighbourhood.value, position.dtype))
        is_stationary = abs(neighbourhood.slope / neighbourhood.scale).max() <= tolerance
        if not np.isfinite(neighbourhood.value):
            return MaximumVerdict("the log joint is not a number where the ascent ended")
        if neighbourhood.jumps() or neighbourhood.jumps_around():
            needle = "" if is_stationary else neighbourhood.needle(position.dtype)
            return MaximumVerdict(needle or JUMP_REASON, lasting=True)
        if why := neighbourhood.escapes():
            return MaximumVerdict(why, lasting=True)
        if is_stationary or neighbourhood.is_as_high_as_rounding_tells(position.dtype):
            return MaximumVerdict()
        if (kink := neighbourhood.kink()) is not None:
            return MaximumVerdict(kink=kink)
        at_end = EDGE_REASON if neighbourhood.ends() else neighbourhood.at_its_end()
        if why := at_end or neighbourhood.needle(position.dtype):
            return MaximumVerdict(why, lasting=True)
        return MaximumVerdict(OUT_OF_STEPS_REASON)


def has_jumps(density: FlatDensity, bound: Bound, draws: np.ndarray) -> bool:
    """Whether a density jumps between the first of some draws (draw, coordinate) and the others."""
    with precision_scope(jnp.float64), np.errstate(all="ignore"):
        first, *others = np.asarray(draws, float)
        neighbourhood = _Neighbourhood(density, in_double_precision(bound), first)
        return any(neighbourhood.jumps_towards((other - first) / neighbourhood.scale) for other in others)


class _Neighbourhood:
    """A density around a point, with coordinates in units of 1, or of themselves where these are larger."""

    def __init__(self, density: FlatDensity, bound: Bound, position: np.ndarray) -> None:
        self.values_and_gradients, self.bound, self.at = _values_and_gradients(density), bound, position
        self.scale = np.maximum(1.0, abs(position))
        self.random = np.random.default_rng(0)
        [self.value], [self.slope] = self(np.zeros((1, position.size)))

    def __call__(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Densities (point,) and their gradients (point, coordinate) some scaled steps away."""
        results = []
        for first in range(0, len(steps), POINTS_PER_CALL):
            batch = steps[first : first + POINTS_PER_CALL]
            padded = np.concatenate([batch, np.zeros((POINTS_PER_CALL - len(batch), batch.shape[1]))])
            [(values, slopes)] = evaluate_all(
                [self.values_and_gradients], (self.bound, jnp.asarray(self.at + padded * self.scale))
            )
            results.append((values[: len(batch)], slopes[: len(batch)] * self.scale))
        return np.concatenate([part for part, _ in results]), np.concatenate([part for _, part in results])

    @property
    def rounding(self) -> float:
        return 1e-6 * max(1.0, abs(float(self.value)))

    def directions(self, number: int) -> np.ndarray:
        drawn = self.random.normal(size=(number, self.at.size))
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)

    def needle(self, dtype: Any) -> str:
        """In words, the sites at which steps of a few rounding errors, in the precision of the ascent, change the
        density by a nat, or nothing."""
        shapes = sorted(unconstrained.unconstrained_shapes(self.bound))
        ends = np.cumsum([0, *(prod(shape) for _, shape in shapes)])
        steps = ROUNDING_ERRORS * float(jnp.finfo(dtype).eps) * self.random.choice([-1.0, 1.0], (len(shapes), ends[-1]))
        for step, start, end in zip(steps, ends, ends[1:], strict=False):
            step[:start] = step[end:] = 0
        values, _ = self(np.concatenate([steps, -steps]))
        sharp = (abs(values - self.value) > 1).reshape(2, -1).any(0)
        names = ", ".join(f"'{name}'" for (name, _), is_sharp in zip(shapes, sharp, strict=True) if is_sharp)
        return NEEDLE_REASON.format(names, dtype) if names else ""

    def jumps(self) -> bool:
        """Whether a step that is a thousand times smaller changes the density by as much."""
        directions = self.directions(POINTS_PER_CALL // 4)
        directions = np.concatenate([directions, -directions])
        values, _ = self(np.concatenate([JUMP_STEP * directions, SMALLER_JUMP_STEP * directions]))
        near, nearer = np.split(abs(values - self.value), 2)
        return bool(((nearer > 0.5 * near) & (nearer > self.rounding) & np.isfinite(near)).any())

    def ends(self) -> bool:
        """Whether the density is zero somewhere near."""
        values, _ = self(np.concatenate([scale * self.directions(POINTS_PER_CALL) for scale in (1e-9, 1e-6, 1e-4)]))
        return bool((values == -np.inf).any() or np.isnan(values).any())

    def jumps_around(self) -> bool:
        return any(map(self.jumps_towards, self.directions(2)))

    def jumps_towards(self, direction: np.ndarray) -> bool:
        """Whether the density differs between two points by what its gradients on the way do not say."""
        return self._unseen(direction, 1) and self._unseen(direction, POINTS_PER_CALL)

    def _unseen(self, direction: np.ndarray, pieces: int) -> bool:
        """Whether the density changes by what Gauss-Legendre quadrature of its gradients along a way does not say.

        pieces: how many the way is cut into.
        """
        places, weights = np.polynomial.legendre.leggauss(POINTS_PER_CALL)
        starts = np.arange(pieces) / pieces
        places = (starts[:, None] + (places + 1) / 2 / pieces).reshape(-1)
        _, slopes = self(places[:, None] * direction)
        [last], _ = self(direction[None])
        along = (slopes @ direction).reshape(pieces, POINTS_PER_CALL) @ weights / 2 / pieces
        change, size = last - self.value, np.abs(along).sum()
        return bool(np.isfinite(change) and abs(change - along.sum()) > 0.5 + 0.25 * max(abs(change), size))

    def kink(self) -> np.ndarray | None:
        """The maximum near the point where gradients pull in all directions, so that an average of them is zero.

        Steps go along the shortest average of gradients within a radius, which shrinks where there is none that the
        density rises along: J. Burke, A. Lewis and M. Overton (2005), A robust gradient sampling algorithm for
        nonsmooth, nonconvex optimization. None where there is no such point, and where gradients shrink with the
        radius, as those of what is only steep do.
        """
        if self.at.size > MAX_HESSIAN_COORDINATES:
            return None
        position, height, sizes = np.zeros(self.at.size), self.value, dict.fromkeys(SAMPLING_RADII, 0.0)
        for radius in SAMPLING_RADII:
            for _ in range(MAX_STEPS_PER_RADIUS):
                offsets = radius * self.random.uniform(-1, 1, (2 * self.at.size + POINTS_PER_CALL, self.at.size))
                _, slopes = self(position + offsets)
                slopes = slopes[np.isfinite(slopes).all(1)]
                if not len(slopes):
                    return None
                direction, sizes[radius] = _shortest_average(slopes), float(abs(slopes).max())
                if abs(direction).max() <= 1e-3 * sizes[radius]:
                    break
                lengths = radius * 2.0 ** np.arange(3, 3 - POINTS_PER_CALL, -1)
                values, _ = self(position + lengths[:, None] * direction / np.linalg.norm(direction))
                best = int(np.nanargmax(np.append(values, -np.inf)))
                if not values[best] > height:
                    break
                position, height = position + lengths[best] * direction / np.linalg.norm(direction), values[best]
        if (
            abs(direction).max() > 1e-3 * sizes[SAMPLING_RADII[-1]]
            or sizes[SAMPLING_RADII[-1]] < 0.3 * sizes[SAMPLING_RADII[-3]]
        ):
            return None
        return self.at + position * self.scale

    def at_its_end(self) -> str:
        """In words, a coordinate that has gone far towards the end of a support, or nothing."""
        shapes = unconstrained.unconstrained_shapes(self.bound)
        ended = np.concatenate(
            [
                np.full(prod(shape), self.bound.sites[name].support != describe_constraint(real))
                for name, shape in sorted(shapes)
            ]
        )
        far = np.where(ended, abs(self.at), 0.0)
        if far.max(initial=0.0) < MIN_BOUNDARY_DISTANCE:
            return ""
        where = unconstrained.describe_direction(np.eye(far.size)[np.argmax(far)], shapes)
        return f"the log joint still rises as {where} nears the end of its support, so it may have no maximum"

    def escapes(self) -> str:
        """In words, a direction in which the density does not fall, or nothing."""
        directions = [self.at / self.scale] if abs(self.at).max(initial=0) > 0 else []
        if self.at.size <= MAX_HESSIAN_COORDINATES:
            curvature, axes = self._curvature()
            if curvature[-1] > 1e-6 * max(1.0, float(abs(curvature).max())):
                values, _ = self(np.outer([-1e-2, -1e-3, 1e-3, 1e-2], axes[:, -1]))
                if np.nanmax(values) > self.value + self.rounding:
                    return f"the log joint is higher on both sides along {self._named(axes[:, -1])}: a saddle"
            flat = [
                unconstrained.with_positive_sign(np.where(abs(direction) > ROUNDING_OF_AXES, direction, 0.0))
                for direction in axes[:, curvature > -MAX_FLAT_CURVATURE].T[-MAX_FLAT_DIRECTIONS:]
            ]
            directions = [*directions, *flat, *(-direction for direction in flat)] if flat else []
        for direction in directions:
            direction = direction / np.linalg.norm(direction)
            values, _ = self(ESCAPE_DISTANCES[:, None] * direction)
            values = values[: int(np.argmin(np.append(~np.isnan(values), False)))]  # what is no number ends the way
            if not len(values) or values.min() < self.value - 1:
                continue
            if values[-1] > self.value + 1e-3:
                return f"the log joint is higher far away along {self._named(direction)}, so this is no maximum of it"
            if not self._moves(direction * ESCAPE_DISTANCES[: len(values)][-1:]):  # a support ends there
                if self._grew(direction):
                    return f"the log joint grows without bound along {self._named(direction)}, so it has no maximum"
            else:
                return (
                    f"the log joint does not fall along {self._named(direction)}, however far one goes, so it has no "
                    "maximum there; give a proper prior"
                )
        return ""

    def _grew(self, direction: np.ndarray) -> bool:
        """Whether the density grew by a nat within 8 units before it was held at the end of a support."""
        low, high = 0.0, 1.0
        for _ in range(4):
            places = np.linspace(low, high, POINTS_PER_CALL)
            values, _ = self(-places[:, None] * direction)
            same = int(np.argmax(np.append(abs(values - self.value) > self.rounding, True)))
            low, high = places[max(same - 1, 0)], places[min(same, POINTS_PER_CALL - 1)]
        return bool(self(-(high + 8 / self.scale.max()) * direction[None])[0][0] < self.value - 1)

    def _curvature(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of the Hessian, rising, and its eigenvectors, from differences of gradients."""
        step = 1e-4 * np.eye(self.at.size)
        _, slopes = self(np.concatenate([step, -step]))
        forward, backward = np.split(slopes, 2)
        hessian = (forward - backward) / 2e-4
        return eigh(np.nan_to_num((hessian + hessian.T) / 2))

    def is_as_high_as_rounding_tells(self, dtype: Any) -> bool:
        """Whether a quadratic approximation has its maximum no higher than rounding, in the precision of the ascent."""
        if self.at.size > MAX_HESSIAN_COORDINATES:
            return False
        curvature, axes = self._curvature()
        rise = ((axes.T @ self.slope) ** 2 / np.where(curvature < 0, -curvature, np.nan)).sum() / 2
        return bool(rise <= 8 * jnp.finfo(dtype).eps * max(1.0, abs(self.value)))

    def _moves(self, step: np.ndarray) -> bool:
        """Whether sites change along a way, and do not only come nearer to the end of their support."""
        [here, there] = evaluate_all(
            [_constrained_values], (self.bound, jnp.asarray(self.at + np.stack([0 * step, step]) * self.scale))
        )[0]
        return bool((abs(there - here) > 1e-6 * np.maximum(1, abs(here))).any())

    def _named(self, direction: np.ndarray) -> str:
        return unconstrained.describe_direction(direction * self.scale, unconstrained.unconstrained_shapes(self.bound))


def _shortest_average(slopes: np.ndarray) -> np.ndarray:
    """The shortest average of some vectors, by non-negative least squares, or one of them where these do not end."""
    largest = max(abs(slopes).max(), 1e-300)
    rows = np.concatenate([slopes.T / largest, np.ones((1, len(slopes)))])
    try:
        share, _ = nnls(rows, np.append(np.zeros(slopes.shape[1]), 1.0), maxiter=30 * len(slopes))
    except RuntimeError:
        return slopes[np.argmin(np.linalg.norm(slopes, axis=1))]
    return share @ slopes / max(share.sum(), 1e-300)


@lru_cache(maxsize=64)
def _values_and_gradients(density: FlatDensity) -> Callable[[Any], tuple[Array, Array]]:
    """A function of a Bound and points: the densities there and their gradients."""

    def values(argument: tuple[Bound, Array]) -> tuple[Array, Array]:
        bound, points = argument
        return jax.lax.map(jax.value_and_grad(lambda flat: density(bound, flat)), points)

    return values


def _constrained_values(argument: tuple[Bound, Array]) -> Array:
    """The values of latent sites, flat, at some positions."""
    bound, points = argument

    def sites(flat: Array) -> Array:
        values = unconstrained.constrain_flat(bound, flat)
        return ravel_pytree({name: values[name] for name in bound.latent})[0]

    return jax.lax.map(sites, points)
