"""Whether an ascent ended at a maximum: a gradient that vanishes is not enough.

It vanishes too where the density has steps, on a plateau that goes on for ever, and at a saddle; and it does not where
a maximum is a kink. So the density is looked at around the point, and far away along directions that do not curve.
"""

from collections.abc import Callable, Mapping, Sequence
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
from bayeslab.programs.program import Bound, described, precision
from bayeslab.programs.tracing.compilation import evaluated
from bayeslab.verification.likely_points import widened

Density = Callable[[Bound, Array], Array]
"""The log joint as a function of a Bound and a flat unconstrained position."""

POINTS = 16
"""Points at which a density is evaluated in one call."""
NEAR = 1e-6
"""Length of the steps across which a jump is looked for, in units of the size of the coordinates."""
NEARER = 1e-9
"""Length of steps that are a thousand times smaller: a jump changes the density by as much."""
MANY = 64
"""Coordinates, at most, where the Hessian is looked at."""
FAR = np.geomspace(1e-2, 1e6, POINTS)
"""Distances to which directions are followed: up to a million times the size of the coordinates."""
FLAT = 1.0
"""Curvature, in units of the size of the coordinates, below which a direction is followed."""
FLATTEST = 8
"""Directions of little curvature that are followed, at most."""
RADII = 10.0 ** -np.arange(2, 10)
"""Radii within which gradients are sampled, in units of the size of the coordinates."""
TRIES = 20
"""Steps with one radius, at most."""
TOWARDS = 50.0
"""Unconstrained distance from zero beyond which a coordinate is taken to go to the end of its support."""

JUMPS = (
    "the log joint jumps where its gradient says that it is flat (a threshold, a rounding or an argmax), and no ascent "
    "sees that; smooth it, or sum over what jumps, or draw it"
)

EDGE = (
    "the ascent ended where data become impossible, and a maximum at such an edge has no gradient; draw with NUTS(), "
    "or solve for the edge"
)
OUT_OF_STEPS = "the optimisation stopped at its maximum number of steps; allow more, or continue with previous=tree"


class Verdict(NamedTuple):
    """Whether an ascent ended at a maximum.

    why: no maximum was found, in words; nothing where it was. lasting: whether more steps would not help.
    kink: the position of the maximum, if it has no gradient there.
    """

    why: str = ""
    lasting: bool = False
    kink: np.ndarray | None = None


def tolerance(value: Array) -> Array:
    """The size up to which a derivative of a log density with that value counts as zero."""
    return jnp.sqrt(jnp.finfo(value.dtype).eps) * jnp.maximum(1.0, jnp.abs(value))


def verdict(density: Density, bound: Bound, at: Array) -> Verdict:
    """Whether a density has a maximum at a point, at which an ascent in the precision of that ended.

    Sees jumps, kinks, saddles, and directions in which the density does not fall however far one goes, if the values
    of sites do not settle. With more than 64 coordinates of those directions only the one from the origin is looked at.
    """
    with precision(jnp.float64), np.errstate(all="ignore"):
        neighbourhood = _Around(density, widened(bound), np.asarray(at, float))
        is_stationary = abs(neighbourhood.slope / neighbourhood.scale).max() <= 2 * tolerance(
            jnp.asarray(neighbourhood.value, at.dtype)
        )
        if not np.isfinite(neighbourhood.value):
            return Verdict("the log joint is not a number where the ascent ended")
        if neighbourhood.jumps() or neighbourhood.jumps_around():
            return Verdict(JUMPS, lasting=True)
        if why := neighbourhood.escapes():
            return Verdict(why, lasting=True)
        if is_stationary:
            return Verdict()
        if (kink := neighbourhood.kink()) is not None:
            return Verdict(kink=kink)
        if why := EDGE if neighbourhood.ends() else neighbourhood.at_its_end():
            return Verdict(why, lasting=True)
        return Verdict(OUT_OF_STEPS)


def jumps(density: Density, bound: Bound, draws: np.ndarray) -> bool:
    """Whether a density jumps between the first of some draws (draw, coordinate) and the others."""
    with precision(jnp.float64), np.errstate(all="ignore"):
        first, *others = np.asarray(draws, float)
        neighbourhood = _Around(density, widened(bound), first)
        return any(neighbourhood.jumps_towards((other - first) / neighbourhood.scale) for other in others)


class _Around:
    """A density around a point, with coordinates in units of 1, or of themselves where these are larger."""

    def __init__(self, density: Density, bound: Bound, at: np.ndarray) -> None:
        self.values_and_gradients, self.bound, self.at = _values(density), bound, at
        self.scale = np.maximum(1.0, abs(at))
        self.random = np.random.default_rng(0)
        [self.value], [self.slope] = self(np.zeros((1, at.size)))

    def __call__(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Densities (point,) and their gradients (point, coordinate) some scaled steps away."""
        results = []
        for first in range(0, len(steps), POINTS):
            batch = steps[first : first + POINTS]
            padded = np.concatenate([batch, np.zeros((POINTS - len(batch), batch.shape[1]))])
            [(values, slopes)] = evaluated(
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

    def jumps(self) -> bool:
        """Whether a step that is a thousand times smaller changes the density by as much."""
        directions = self.directions(POINTS // 4)
        directions = np.concatenate([directions, -directions])
        values, _ = self(np.concatenate([NEAR * directions, NEARER * directions]))
        near, nearer = np.split(abs(values - self.value), 2)
        return bool(((nearer > 0.5 * near) & (nearer > self.rounding) & np.isfinite(near)).any())

    def ends(self) -> bool:
        """Whether the density is zero somewhere near."""
        values, _ = self(np.concatenate([scale * self.directions(POINTS) for scale in (1e-9, 1e-6, 1e-4)]))
        return bool((values == -np.inf).any() or np.isnan(values).any())

    def jumps_around(self) -> bool:
        return any(map(self.jumps_towards, self.directions(2)))

    def jumps_towards(self, way: np.ndarray) -> bool:
        """Whether the density differs between two points by what its gradients on the way do not say."""
        return self._unseen(way, 1) and self._unseen(way, POINTS)

    def _unseen(self, way: np.ndarray, pieces: int) -> bool:
        """Whether the density changes by what Gauss-Legendre quadrature of its gradients along a way does not say.

        pieces: how many the way is cut into.
        """
        places, weights = np.polynomial.legendre.leggauss(POINTS)
        starts = np.arange(pieces) / pieces
        places = (starts[:, None] + (places + 1) / 2 / pieces).reshape(-1)
        _, slopes = self(places[:, None] * way)
        [last], _ = self(way[None])
        along = (slopes @ way).reshape(pieces, POINTS) @ weights / 2 / pieces
        change, size = last - self.value, np.abs(along).sum()
        return bool(np.isfinite(change) and abs(change - along.sum()) > 0.5 + 0.25 * max(abs(change), size))

    def kink(self) -> np.ndarray | None:
        """The maximum near the point where gradients pull in all directions, so that an average of them is zero.

        Steps go along the shortest average of gradients within a radius, which shrinks where there is none that the
        density rises along: J. Burke, A. Lewis and M. Overton (2005), A robust gradient sampling algorithm for
        nonsmooth, nonconvex optimization. None where there is no such point, and where gradients shrink with the
        radius, as those of what is only steep do.
        """
        if self.at.size > MANY:
            return None
        position, height, sizes = np.zeros(self.at.size), self.value, dict.fromkeys(RADII, 0.0)
        for radius in RADII:
            for _ in range(TRIES):
                offsets = radius * self.random.uniform(-1, 1, (2 * self.at.size + POINTS, self.at.size))
                _, slopes = self(position + offsets)
                slopes = slopes[np.isfinite(slopes).all(1)]
                if not len(slopes):
                    return None
                direction, sizes[radius] = _shortest(slopes), float(abs(slopes).max())
                if abs(direction).max() <= 1e-3 * sizes[radius]:
                    break
                lengths = radius * 2.0 ** np.arange(3, 3 - POINTS, -1)
                values, _ = self(position + lengths[:, None] * direction / np.linalg.norm(direction))
                best = int(np.nanargmax(np.append(values, -np.inf)))
                if not values[best] > height:
                    break
                position, height = position + lengths[best] * direction / np.linalg.norm(direction), values[best]
        if abs(direction).max() > 1e-3 * sizes[RADII[-1]] or sizes[RADII[-1]] < 0.3 * sizes[RADII[-3]]:
            return None
        return self.at + position * self.scale

    def at_its_end(self) -> str:
        """In words, a coordinate that has gone far towards the end of a support, or nothing."""
        shapes = unconstrained.shapes(self.bound)
        ended = np.concatenate(
            [np.full(prod(shape), self.bound.sites[name].support != described(real)) for name, shape in sorted(shapes)]
        )
        far = np.where(ended, abs(self.at), 0.0)
        if far.max(initial=0.0) < TOWARDS:
            return ""
        where = named(np.eye(far.size)[np.argmax(far)], shapes)
        return f"the log joint still rises as {where} nears the end of its support, so it may have no maximum"

    def escapes(self) -> str:
        """In words, a direction in which the density does not fall, or nothing."""
        directions = [self.at / self.scale] if abs(self.at).max(initial=0) > 0 else []
        if self.at.size <= MANY:
            curvature, axes = self._curvature()
            if curvature[-1] > 1e-6 * max(1.0, float(abs(curvature).max())):
                values, _ = self(np.outer([-1e-2, -1e-3, 1e-3, 1e-2], axes[:, -1]))
                if np.nanmax(values) > self.value + self.rounding:
                    return f"the log joint is higher on both sides along {self._named(axes[:, -1])}: a saddle"
            flat = [upright(direction) for direction in axes[:, curvature > -FLAT].T[-FLATTEST:]]
            directions = [*directions, *flat, *(-direction for direction in flat)] if flat else []
        for direction in directions:
            direction = direction / np.linalg.norm(direction)
            values, _ = self(FAR[:, None] * direction)
            values = values[: int(np.argmin(np.append(~np.isnan(values), False)))]  # what is no number ends the way
            if not len(values) or values.min() < self.value - 1:
                continue
            if values[-1] > self.value + 1e-3:
                return f"the log joint is higher far away along {self._named(direction)}, so this is no maximum of it"
            if not self._moves(direction * FAR[: len(values)][-1:]):  # a support ends there
                if self._grew(direction):
                    return f"the log joint grows without bound along {self._named(direction)}, so it has no maximum"
            else:
                return (
                    f"the log joint does not fall along {self._named(direction)}, however far one goes, so it has no "
                    "maximum there; give a proper prior"
                )
        return ""

    def _grew(self, way: np.ndarray) -> bool:
        """Whether the density grew by a nat within 8 units before it was held at the end of a support."""
        low, high = 0.0, 1.0
        for _ in range(4):
            places = np.linspace(low, high, POINTS)
            values, _ = self(-places[:, None] * way)
            same = int(np.argmax(np.append(abs(values - self.value) > self.rounding, True)))
            low, high = places[max(same - 1, 0)], places[min(same, POINTS - 1)]
        [before], _ = self(-(high + 8 / self.scale.max()) * way[None])
        return bool(before < self.value - 1)

    def _curvature(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues of the Hessian, rising, and its eigenvectors, from differences of gradients."""
        step = 1e-4 * np.eye(self.at.size)
        _, slopes = self(np.concatenate([step, -step]))
        forward, backward = np.split(slopes, 2)
        hessian = (forward - backward) / 2e-4
        return eigh(np.nan_to_num((hessian + hessian.T) / 2))

    def _moves(self, step: np.ndarray) -> bool:
        """Whether sites change along a way, and do not only come nearer to the end of their support."""
        [here, there] = evaluated(
            [_constrained], (self.bound, jnp.asarray(self.at + np.stack([0 * step, step]) * self.scale))
        )[0]
        return bool((abs(there - here) > 1e-6 * np.maximum(1, abs(here))).any())

    def _named(self, way: np.ndarray) -> str:
        return named(way * self.scale, unconstrained.shapes(self.bound))


def upright(way: np.ndarray) -> np.ndarray:
    """A direction or its opposite, so that the first coordinate that is not small is positive."""
    return way * np.sign(way[np.argmax(abs(way) > 0.1 * abs(way).max())])


def named(
    way: np.ndarray,
    shapes: Sequence[tuple[str, tuple[int, ...]]],
    labels: Mapping[str, Sequence[Sequence[Any]]] | None = None,
) -> str:
    """A direction in words, by the coordinates that are at least a tenth of the largest, at most four of them.

    labels: of every axis of a site, where they are not numbers.
    """
    coordinates = [
        (name, [(labels or {}).get(name, [range(size) for size in shape])[i][at] for i, at in enumerate(index)])
        for name, shape in sorted(shapes)
        for index in np.ndindex(shape)
    ]
    written = [f"{name}[{', '.join(map(str, index))}]" if index else name for name, index in coordinates]
    way = way / abs(way).max()
    largest = [index for index in np.argsort(-abs(way).round(6), kind="stable") if abs(way[index]) >= 0.1]
    shown = sorted(largest[:4])
    text = ""
    for index in shown:
        sign = (" - " if way[index] < 0 else " + ") if text else ("-" if way[index] < 0 else "")
        factor = "" if abs(way[index]) > 0.999 else f"{abs(way[index]):.2g} "
        text += f"{sign}{factor}{written[index]}"
    return text + (" + ..." if len(largest) > 4 else "")


def _shortest(slopes: np.ndarray) -> np.ndarray:
    """The shortest average of some vectors, by non-negative least squares."""
    largest = max(abs(slopes).max(), 1e-300)
    rows = np.concatenate([slopes.T / largest, np.ones((1, len(slopes)))])
    share, _ = nnls(rows, np.append(np.zeros(slopes.shape[1]), 1.0))
    return share @ slopes / max(share.sum(), 1e-300)


@lru_cache(maxsize=64)
def _values(density: Density) -> Callable[[Any], tuple[Array, Array]]:
    """A function of a Bound and points: the densities there and their gradients."""

    def values(argument: tuple[Bound, Array]) -> tuple[Array, Array]:
        bound, points = argument
        return jax.lax.map(jax.value_and_grad(lambda flat: density(bound, flat)), points)

    return values


def _constrained(argument: tuple[Bound, Array]) -> Array:
    """The values of latent sites, flat, at some positions."""
    bound, points = argument

    def sites(flat: Array) -> Array:
        values = unconstrained.constrained(bound, unconstrained.unravel(bound)(flat))
        return ravel_pytree({name: values[name] for name in bound.latent})[0]

    return jax.lax.map(sites, points)
