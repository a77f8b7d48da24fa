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
from numpyro.distributions import Distribution, ImproperUniform, Independent, Poisson, biject_to
from numpyro.distributions.constraints import Constraint, boolean, nonnegative, positive, real, sphere
from numpyro.handlers import substitute, trace

from bayeslab.elimination.terms import terms
from bayeslab.programs.program import Bound, Values, init_inside_support
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS
from bayeslab.programs.wrapped_distributions import describe_constraint, elementwise_constraint, innermost_distribution

Point = tuple[Bound, Values]
"""A program with data, and values of its latent sites."""
MAX_CHOICE_POINTS = 64
"""Points with other choices of discrete sites, at most."""
MAX_POINT_NUMBERS = 2 * 10**5
"""Numbers that these points are in all, about, where not all choices are tried with each other."""
MAX_CYCLED_ELEMENTS = 64
"""Elements of a site, at most, that takes all its choices, and mixed ones, however many numbers these points are."""
NUM_COUNTS_TRIED = 6
"""Values of a count without a bound that are tried among choices of discrete sites."""
NUM_MIXED_POINTS = 16
"""Points with mixed choices, after those at which every element takes every choice: two elements that may be 1 miss
that both are in all of them once in a hundred times."""
NUM_PRIOR_SCALE_POINTS = 4
"""Points with values as far apart as they are in priors; half of them where they are many numbers."""
MAX_PRIOR_DEVIATION = 100.0
"""Standard deviation of a site around its prior mean, at most, where ten times this mean is not larger."""


def generic_points(bound: Bound) -> list[Point]:
    """The program at two feasible points, with other data and with the data of the fit."""
    data, latent, _ = _generic_values(bound)
    return list(zip([replace(bound, observed=data), bound], latent, strict=True))


@partial(jax.jit, compiler_options=UNOPTIMISED_OPTIONS)
def _generic_values(bound: Bound) -> tuple[Values, list[Values], dict[str, tuple[Array, Array]]]:
    """Other data, values of the latent sites at two points, all inside their supports, and the widths of priors."""
    widths = {}

    def run(point: int) -> dict[str, Array]:
        seeded = bound.unconditioned(jax.random.PRNGKey(2 + point))
        model = substitute(seeded, substitute_fn=partial(_generic_value, point, dict(bound.limits)))
        sites = trace(model).get_trace(**bound.inputs)
        widths.update({name: width for name in bound.latent if (width := _prior_width(sites[name]["fn"])) is not None})
        return {name: jnp.asarray(sites[name]["value"]) for name in (*bound.observed, *bound.latent)}

    site_values = [run(0), run(1)]
    data = {name: site_values[0][name].astype(value.dtype) for name, value in bound.observed.items()}
    return data, [{name: values[name] for name in bound.latent} for values in site_values], widths


def _prior_width(fn: Distribution) -> tuple[Array, Array] | None:
    """The mean and the standard deviation of a real site, or about those of the log of a positive one; else None."""
    support = elementwise_constraint(fn.support)
    try:
        if support is real:
            return jnp.asarray(fn.mean), jnp.sqrt(fn.variance)
        return (jnp.log(fn.mean), jnp.ones(())) if support in (positive, nonnegative) else None
    except (ArithmeticError, AttributeError, NotImplementedError, ValueError):  # there are none
        return None


def extra_points(bound: Bound) -> list[Point]:
    """Points where a table that holds at `generic_points` is tested again: values may be extreme."""
    return [*choice_points(bound), *prior_scale_points(bound)]


def choice_points(bound: Bound) -> list[Point]:
    """Points with the data of the fit and the values that belong to it, but for other choices of the discrete sites.

    All choices are tried, where they are few; else every element takes every choice, and then they are mixed, for as
    many points as the data allow: of a site with many elements each takes a few choices at least, and all elements
    together take all.
    """
    values = generic_points(bound)[1][1]
    site_choices = {name: prior.choices for name, prior in terms(bound).priors.items() if prior.choices is not None}
    site_choices = {name: options for name, options in site_choices.items() if len(options) > 1 and values[name].size}
    for name, limit in bound.limits:
        site_choices[name] = np.unique(np.linspace(0, limit, NUM_COUNTS_TRIED).astype(int))
    if not site_choices:
        return []
    shapes = {name: values[name].shape for name in site_choices}
    if (
        sum(values[name].size * math.log(len(options)) for name, options in site_choices.items())
        <= math.log(MAX_CHOICE_POINTS) + 1e-9
    ):
        choice_sets = _all_choices(site_choices, shapes)
    else:
        few = [len(options) for name, options in site_choices.items() if values[name].size <= MAX_CYCLED_ELEMENTS]
        num_points = max(few) + NUM_MIXED_POINTS if few else 2
        choice_sets = islice(
            _mixed_choices(site_choices, shapes),
            min(max(num_points, MAX_POINT_NUMBERS // _point_size(bound, values)), MAX_CHOICE_POINTS),
        )
    return [
        (bound, values | {name: jnp.asarray(options, values[name].dtype) for name, options in other.items()})
        for other in choice_sets
    ]


def _all_choices(
    site_choices: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]
) -> Iterator[dict[str, np.ndarray]]:
    """All combinations of choices of all elements."""
    for combination in product(*(product(each, repeat=math.prod(shapes[name])) for name, each in site_choices.items())):
        yield {name: np.reshape(choice, shapes[name]) for name, choice in zip(site_choices, combination, strict=True)}


def _mixed_choices(
    site_choices: dict[str, np.ndarray], shapes: dict[str, tuple[int, ...]]
) -> Iterator[dict[str, np.ndarray]]:
    """Combinations in which every element takes every choice, then random ones, then all shifts of sites."""
    rng = np.random.default_rng(0)
    first = {name: rng.integers(len(each), size=shapes[name]) for name, each in site_choices.items()}
    for shift in range(max(map(len, site_choices.values()))):
        yield {name: each[(first[name] + shift) % len(each)] for name, each in site_choices.items()}
    for _ in range(NUM_MIXED_POINTS):
        yield {name: each[rng.integers(len(each), size=shapes[name])] for name, each in site_choices.items()}
    for shifts in product(*(range(len(each)) for each in site_choices.values())):
        yield {
            name: site_choices[name][(first[name] + shift) % len(site_choices[name])]
            for name, shift in zip(site_choices, shifts, strict=True)
        }


def prior_scale_points(bound: Bound) -> list[Point]:
    """Points with the data of the fit, and values of the latent sites as far apart as they are in their priors."""
    _, generic, widths = jax.device_get(_generic_values(bound))
    result = []
    for index in range(
        NUM_PRIOR_SCALE_POINTS
        if _point_size(bound, generic[0]) * NUM_PRIOR_SCALE_POINTS <= MAX_POINT_NUMBERS
        else NUM_PRIOR_SCALE_POINTS // 2
    ):
        values = dict(generic[index % 2])
        for name, (mean, scale) in widths.items():
            value, is_positive = values[name], bound.sites[name].support != describe_constraint(real)
            steps = fixed_noise(name + " ", (NUM_PRIOR_SCALE_POINTS, *value.shape), 2.0)[index]
            with np.errstate(over="ignore", invalid="ignore"):
                far_value = mean + np.minimum(scale, 10 * np.abs(mean) + MAX_PRIOR_DEVIATION) * steps
                far_value = np.exp(far_value) if is_positive else far_value
            values[name] = np.where(np.isfinite(far_value) & ((far_value > 0) | (not is_positive)), far_value, value)
        result.append((bound, {name: jnp.asarray(value, generic[0][name].dtype) for name, value in values.items()}))
    return result


def _point_size(bound: Bound, values: Values) -> int:
    """How many numbers a point has."""
    return sum(leaf.size for leaf in jax.tree.leaves((bound, values)))


def _generic_value(point: int, limits: dict[str, int], site: dict) -> Any:
    """A value inside the support of a site, whatever its distribution there; integers within a few of the least.

    Counts that are summed over up to a limit have values that allow what is observed.
    """
    if site["type"] != "sample" or site["value"] is not None:
        return None
    if site["name"] in limits:
        return jnp.full(site["fn"].shape(), limits[site["name"]] >> (1 + point))
    fn, support = site["fn"], site["fn"].support
    if not support.is_discrete:
        if isinstance(fn, ImproperUniform) or not isinstance(support, Constraint) or support is sphere:
            return init_inside_support(site)
        move = fixed_noise(site["name"], (2, *biject_to(support).inverse_shape(fn.shape())), 1.0)[point]
        return _supported_value(support, move)
    support = elementwise_constraint(support)
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    if support is boolean:
        low, high = 0, 1
    if low is None or (fn.event_shape and not isinstance(fn, Independent)):
        return None
    top = low + 4 if high is None else high
    unit = fixed_noise(site["name"], (2, *fn.shape()), 0.5)[point] + 0.5
    value = jnp.minimum(low + jnp.floor(unit * (top + 1 - low)), top).astype(int)
    inner = innermost_distribution(fn)  # a rate of zero allows no other count
    return jnp.where(inner.rate == 0, 0, value) if isinstance(inner, Poisson) else value


def _supported_value(support: Constraint, position: np.ndarray) -> Array:
    """A value inside a support; computed at once where the support is known, so that nothing is compiled for it."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(support)):
        return biject_to(support)(jnp.asarray(position))
    with jax.ensure_compile_time_eval():
        return _transformed(support, jnp.asarray(position))


@jax.jit
def _transformed(support: Constraint, position: Array) -> Array:
    """A value inside a support, from an unconstrained one."""
    return biject_to(support)(position)


def fixed_noise(name: str, shape: tuple[int, ...], radius: float) -> np.ndarray:
    """Fixed numbers between -radius and radius: random variates would cost more to compile than all else."""
    return np.random.default_rng(crc32(name.encode())).uniform(-radius, radius, shape)
