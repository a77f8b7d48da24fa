"""Points at which rules and tables are verified: values of the sites of a program, and data."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, product
from typing import Any
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution, ImproperUniform, Independent, biject_to
from numpyro.distributions.constraints import Constraint, boolean, nonnegative, positive, real
from numpyro.handlers import seed, substitute, trace, uncondition

from bayeslab.elimination.terms import terms
from bayeslab.programs.program import Bound, Values, described, feasible, of_elements
from bayeslab.programs.tracing.compilation import UNOPTIMISED

Point = tuple[Bound, Values]
"""A program with data, and values of its latent sites."""
MOST = 64
"""Points with other choices of discrete sites, at most."""
NUMBERS = 2 * 10**5
"""Numbers that these points are in all, about, where not all choices are tried with each other."""
FEW = 64
"""Elements of a site, at most, that takes all its choices, and mixed ones, however many numbers these points are."""
MIXED = 16
"""Points with mixed choices, after those at which every element takes every choice: two elements that may be 1 miss
that both are in all of them once in a hundred times."""
USUAL = 4
"""Points with values as far apart as they are in priors; half of them where they are many numbers."""
WIDEST = 100.0
"""Standard deviation of a site around its prior mean, at most, where ten times this mean is not larger."""


def points(bound: Bound) -> list[Point]:
    """The program at two feasible points, with other data and with the data of the fit."""
    data, latent, _ = _generic(bound)
    return list(zip([replace(bound, observed=data), bound], latent, strict=True))


@partial(jax.jit, compiler_options=UNOPTIMISED)
def _generic(bound: Bound) -> tuple[Values, list[Values], dict[str, tuple[Array, Array]]]:
    """Other data, values of the latent sites at two points, all inside their supports, and the widths of priors."""
    widths = {}

    def run(point: int) -> dict[str, Array]:
        seeded = seed(bound.source, jax.random.PRNGKey(2 + point))
        model = substitute(uncondition(seeded), substitute_fn=partial(_anywhere, point))
        sites = trace(model).get_trace(**bound.inputs)
        widths.update({name: width for name in bound.latent if (width := _width(sites[name]["fn"])) is not None})
        return {name: jnp.asarray(sites[name]["value"]) for name in (*bound.observed, *bound.latent)}

    site_values = [run(0), run(1)]
    data = {name: site_values[0][name].astype(value.dtype) for name, value in bound.observed.items()}
    return data, [{name: values[name] for name in bound.latent} for values in site_values], widths


def _width(fn: Distribution) -> tuple[Array, Array] | None:
    """The mean and the standard deviation of a real site, or about those of the log of a positive one; else None."""
    support = of_elements(fn.support)
    try:
        if support is real:
            return jnp.asarray(fn.mean), jnp.sqrt(fn.variance)
        return (jnp.log(fn.mean), jnp.ones(())) if support in (positive, nonnegative) else None
    except (ArithmeticError, AttributeError, NotImplementedError, ValueError):  # there are none
        return None


def further(bound: Bound) -> list[Point]:
    """Points where a table that holds at `generic_points` is tested again: values may be extreme."""
    return [*choices(bound), *usual(bound)]


def choices(bound: Bound) -> list[Point]:
    """Points with the data of the fit and the values that belong to it, but for other choices of the discrete sites.

    All choices are tried, where they are few; else every element takes every choice, and then they are mixed, for as
    many points as the data allow: of a site with many elements each takes a few choices at least, and all elements
    together take all.
    """
    values = points(bound)[1][1]
    site_choices = {name: prior.choices for name, prior in terms(bound).priors.items() if prior.choices is not None}
    site_choices = {name: options for name, options in site_choices.items() if len(options) > 1 and values[name].size}
    if not site_choices:
        return []
    shapes = {name: values[name].shape for name in site_choices}
    if (
        sum(values[name].size * math.log(len(options)) for name, options in site_choices.items())
        <= math.log(MOST) + 1e-9
    ):
        choice_sets = _all(site_choices, shapes)
    else:
        few = [len(options) for name, options in site_choices.items() if values[name].size <= FEW]
        num_points = max(few) + MIXED if few else 2
        choice_sets = islice(_some(site_choices, shapes), min(max(num_points, NUMBERS // _size(bound, values)), MOST))
    return [
        (bound, values | {name: jnp.asarray(options, values[name].dtype) for name, options in other.items()})
        for other in choice_sets
    ]


def _all(of: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]) -> Iterator[dict[str, np.ndarray]]:
    """All combinations of choices of all elements."""
    for combination in product(*(product(each, repeat=math.prod(shapes[name])) for name, each in of.items())):
        yield {name: np.reshape(choice, shapes[name]) for name, choice in zip(of, combination, strict=True)}


def _some(of: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]) -> Iterator[dict[str, np.ndarray]]:
    """Combinations in which every element takes every choice, then random ones, then all shifts of sites."""
    rng = np.random.default_rng(0)
    first = {name: rng.integers(len(each), size=shapes[name]) for name, each in of.items()}
    for shift in range(max(map(len, of.values()))):
        yield {name: each[(first[name] + shift) % len(each)] for name, each in of.items()}
    for _ in range(MIXED):
        yield {name: each[rng.integers(len(each), size=shapes[name])] for name, each in of.items()}
    for shifts in product(*(range(len(each)) for each in of.values())):
        yield {name: of[name][(first[name] + shift) % len(of[name])] for name, shift in zip(of, shifts, strict=True)}


def usual(bound: Bound) -> list[Point]:
    """Points with the data of the fit, and values of the latent sites as far apart as they are in their priors."""
    _, generic, widths = jax.device_get(_generic(bound))
    result = []
    for index in range(USUAL if _size(bound, generic[0]) * USUAL <= NUMBERS else USUAL // 2):
        values = dict(generic[index % 2])
        for name, (mean, scale) in widths.items():
            value, is_positive = values[name], bound.sites[name].support != described(real)
            steps = noise(name + " ", (USUAL, *value.shape), 2.0)[index]
            with np.errstate(over="ignore", invalid="ignore"):
                far_value = mean + np.minimum(scale, 10 * np.abs(mean) + WIDEST) * steps
                far_value = np.exp(far_value) if is_positive else far_value
            values[name] = np.where(np.isfinite(far_value) & ((far_value > 0) | (not is_positive)), far_value, value)
        result.append((bound, {name: jnp.asarray(value, generic[0][name].dtype) for name, value in values.items()}))
    return result


def _size(bound: Bound, values: Values) -> int:
    """How many numbers a point has."""
    return sum(leaf.size for leaf in jax.tree.leaves((bound, values)))


def _anywhere(point: int, site: dict) -> Any:
    """A value inside the support of a site, whatever its distribution there; integers within a few of the least."""
    if site["type"] != "sample" or site["value"] is not None:
        return None
    fn, support = site["fn"], site["fn"].support
    if not support.is_discrete:
        if isinstance(fn, ImproperUniform) or not isinstance(support, Constraint):
            return feasible(site)
        move = noise(site["name"], (2, *biject_to(support).inverse_shape(fn.shape())), 1.0)[point]
        return _moved(support, move)
    support = of_elements(support)
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if support is boolean:
        low, high = 0, 1
    if low is None or (fn.event_shape and not isinstance(fn, Independent)):
        return None
    top = low + 4 if high is None else high
    unit = noise(site["name"], (2, *fn.shape()), 0.5)[point] + 0.5
    return jnp.minimum(low + jnp.floor(unit * (top + 1 - low)), top).astype(int)


def _moved(support: Constraint, move: np.ndarray) -> Array:
    """A value inside a support; computed at once where the support is known, so that nothing is compiled for it."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(support)):
        return biject_to(support)(jnp.asarray(move))
    with jax.ensure_compile_time_eval():
        return _inside(support, jnp.asarray(move))


@jax.jit
def _inside(support: Constraint, move: Array) -> Array:
    """A value inside a support, from an unconstrained one."""
    return biject_to(support)(move)


def noise(name: str, shape: tuple[int, ...], radius: float) -> np.ndarray:
    """Fixed numbers between -radius and radius: random variates would cost more to compile than all else."""
    return np.random.default_rng(crc32(name.encode())).uniform(-radius, radius, shape)
