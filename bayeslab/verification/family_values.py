"""Whether values of the log joint alone refute that a site has its family, before anything is differentiated.

Along a line of values of the site the log joint must be linear in the few statistics of its family. Values at a few
more points than that show where it is not. What is not refuted here is proven elsewhere, by
`bayeslab.verification.identity`.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to

from bayeslab.elimination.families import families_of, wider_families_of
from bayeslab.elimination.family import Family
from bayeslab.elimination.terms import Term, sum_of_terms, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS, evaluate_all
from bayeslab.verification.points.probe_points import generic_points

POSITIONS = np.array([-1.3, -0.9, -0.5, -0.2, 0.1, 0.4, 0.8, 1.2])
"""Unconstrained positions on the line: more of them than a family has statistics, and a constant."""
WIDE = 5.0
"""How many times as far the positions on a second line lie: there a sum of logarithms, such as the evidence of Normal
sites is of a precision, does not look like the few statistics of a family."""
MIN_REFUTING_SHARE = 1e-5
"""Share of the change of the log joint along the line that statistics must leave to refute a family: a thousand times
what rounding leaves."""
ROUNDING_SHARE = 1e-9
"""Share of the log joint itself that may be rounding."""


def has_family_by_values(bound: Bound, log_joint_terms: tuple[Term, ...], name: str) -> bool:
    """Whether values of the log joint are those of the family of a continuous site, as far as lines tell.

    True where a site has several families or one without a few statistics, and where values are not numbers.
    """
    prior = terms(bound).priors[name]
    families = families_of(prior)
    if len(families) != 1:
        return True
    return any(may_have(family, bound, log_joint_terms, name) for family in (*families, *wider_families_of(prior)))


def may_have(family: Family, bound: Bound, log_joint_terms: tuple[Term, ...], name: str) -> bool:
    """Whether values of the log joint are those of a family, as far as lines tell."""
    if not (family.joint or (terms(bound).priors[name].event_dim == 0 and _has_few_statistics(family))):
        return True
    return all(
        _is_linear(*_along_line(point, log_joint_terms, name, family, positions))
        for point in generic_points(bound)
        for positions in (POSITIONS, WIDE * POSITIONS)
    )


def _has_few_statistics(family: Family) -> bool:
    """Whether statistics are two or three numbers for every element."""
    if family.statistics is None:
        return False
    shapes = jax.eval_shape(family.statistics, jax.ShapeDtypeStruct((), float))
    return isinstance(shapes, tuple) and len(shapes) in (2, 3) and all(shape.shape == () for shape in shapes)


def _along_line(
    point: tuple[Bound, Values], log_joint_terms: tuple[Term, ...], name: str, family: Family, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The log joint at values of a site on a line, and the statistics of its family there, (value, statistic)."""
    bound, values = point
    own = np.asarray(values[name])
    if family.joint:
        statistics = [positions, positions**2]
        # another step for every element: a mean that is integrated out makes up for one that they share
        line = own + np.multiply.outer(positions, 1.0 + np.sin(1.0 + np.arange(own.size)).reshape(own.shape))
    else:
        with jax.ensure_compile_time_eval():
            support = terms(bound).priors[name].distribution(bound, values).support
            at, *statistics = map(np.asarray, _values_and_statistics(family, support, jnp.asarray(positions)))
        line = np.broadcast_to(at.reshape(-1, *(1 for _ in own.shape)), (len(at), *own.shape))
    repeated = {site: np.broadcast_to(value, (len(positions), *np.shape(value))) for site, value in values.items()}
    moved = {site: np.array(value) for site, value in repeated.items()} | {name: np.array(line, own.dtype)}
    [log_joint] = evaluate_all([_log_joint_function(log_joint_terms)], (bound, moved))
    return np.asarray(log_joint), np.stack([np.ones_like(positions), *statistics], axis=-1)


@partial(jax.jit, static_argnums=0, compiler_options=UNOPTIMISED_OPTIONS)
def _values_and_statistics(family: Family, support: Any, positions: Array) -> tuple[Array, ...]:
    """Values inside of a support at unconstrained positions, and the statistics of a family there: one piece of code,
    not one for each operation."""
    assert family.statistics is not None
    at = biject_to(support)(positions)
    return at, *family.statistics(at)


def _is_linear(log_joint: np.ndarray, statistics: np.ndarray) -> bool:
    """Whether values of the log joint are linear in statistics, or not numbers."""
    if not np.isfinite(log_joint).all():
        return True
    scaled = statistics / np.abs(statistics).max(0)
    change = log_joint - log_joint.mean()
    rest = np.abs(change - scaled @ np.linalg.lstsq(scaled, change, rcond=None)[0]).max()
    return bool(rest <= max(MIN_REFUTING_SHARE * np.ptp(log_joint), ROUNDING_SHARE * np.abs(log_joint).max()))


@lru_cache(maxsize=64)
def _log_joint_function(log_joint_terms: tuple[Term, ...]) -> Callable[[Any], Array]:
    """A function of a Bound and of several values of all sites that gives the log joint at each."""

    def log_joint(argument: tuple[Bound, Values]) -> Array:
        bound, values = argument
        return jax.lax.map(lambda at: sum_of_terms(log_joint_terms, bound, at), values)

    return log_joint
