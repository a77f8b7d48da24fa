"""Precisions of jointly Normal sites that other sites only multiply by a number.

A term of the log joint is a quadratic function of sites that are jointly Normal given all others. Often all that the
others do to its precision is to multiply it by a number, as 1 / sd^2 multiplies X' X where rows have errors with a
standard deviation sd, and that of the effects multiplies an identity. Such matrices are found once, and the number from
the curvature of the term in one direction: an evaluation then takes no products with as many directions as the sites
have elements, of all rows each.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayeslab.distributions.block_normal import join_values
from bayeslab.distributions.precision_structure import PrecisionStructure
from bayeslab.elimination.conditional import Rule, block_densities, elimination_stages
from bayeslab.elimination.families import NORMAL
from bayeslab.elimination.normal_blocks import (
    PrecisionTable,
    curvature,
    gradients_and_precisions,
    precision_table,
    probe_direction,
    table_name,
)
from bayeslab.elimination.sweep import feasible_point
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.transforms.collapse import Marginal
from bayeslab.transforms.sufficient_statistics.tables import Statistics
from bayeslab.verification.points.likely_points import in_double_precision
from bayeslab.verification.points.probe_points import Point, generic_points, prior_scale_points

TOLERANCE = 1e-9
"""Share of the largest element of a precision by which it may differ from a multiple of that at another point."""

MIN_JOINT_SIZE = 32
"""Joint elements of a single site from which on a search for what multiplies its precision is worth its compiling."""


class ScaledTerms(NamedTuple):
    """Terms that other sites only multiply, as functions of jointly Normal ones but for a constant.

    rule: of the Normal sites. slopes: by the name of each term whether that is true of its gradient, besides its
    precision.
    """

    rule: Rule
    slopes: tuple[tuple[str, bool], ...]

    @property
    def name(self) -> str:
        """That of the table among the values."""
        return table_name(self.rule.sites)

    def table(self, bound: Bound, values: Values) -> PrecisionTable:
        """The table that takes the place of products with many directions. values: any, of all sites."""
        assert isinstance(self.rule.block, PrecisionStructure)
        site_terms = self.rule.reached(terms(bound).terms)
        densities = block_densities(self.rule, site_terms, bound, values)
        return precision_table(self.rule.block, site_terms, densities, dict(self.slopes))


def with_precision_tables(bound: Bound, scaled: Sequence[ScaledTerms]) -> Bound:
    """A Bound with sites integrated out that has the tables of some terms; its rows stay."""
    assert isinstance(bound.transform, Marginal)
    plain = bound.plain
    values = feasible_point(jax.random.PRNGKey(5), plain)
    tables = Statistics((), {each.name: each.table(plain, values) for each in scaled})
    known = {each.rule.sites: each.rule for each in scaled}
    rules = tuple(known.get(rule.sites, rule) for rule in bound.transform.rules)
    return replace(bound, transform=replace(bound.transform, rules=rules, statistics=tables))


def _as_block(rule: Rule, shape: tuple[int, ...]) -> Rule:
    """The rule of one site of many joint elements as that of a block of sites, which can have a table."""
    size = prod(shape[axis] for axis in rule.coupled)
    if rule.family is not NORMAL or rule.block is not None or size < MIN_JOINT_SIZE:
        return rule
    return rule._replace(block=PrecisionStructure((rule.site,), (shape,), (rule.coupled,), ()))


def scaled_terms(bound: Bound, rules: Sequence[Rule]) -> tuple[ScaledTerms, ...]:
    """For every block of jointly Normal sites the terms whose precision other sites only multiply, where there are any.

    rules: by which sites are integrated out, in this order. What a term says is compared on the data of the fit, and on
    others, at values of the other sites in general position and as far apart as they are in priors. A term with
    branches is left out, as it may take others elsewhere, but for how a distribution tests its own value.
    """
    log_joint_terms, kinks = terms(bound).terms, terms(bound).kinks

    def has_branches(term: Term) -> bool:
        return any(not (kinks[path].of_library and kinks[path].sites == {term.name}) for path in term.kinks)

    candidates = {}
    rules = [_as_block(rule, bound.sites[rule.sites[0]].shape) for rule in rules]
    for rule, stage in zip(rules, elimination_stages(rules, log_joint_terms), strict=True):
        reached = rule.reached(stage)
        if isinstance(rule.block, PrecisionStructure) and not any(term.holds for term in reached):
            candidates[rule] = [term for term in reached if not has_branches(term)]
    if not candidates:
        return ()
    with jax.enable_x64(True):
        widened_bound = in_double_precision(bound)
        other_data, generic = generic_points(widened_bound)
        points = [other_data, generic, (generic[0], other_data[1]), *prior_scale_points(widened_bound)]
        measured = [evaluate_all([_measures(rule) for rule in candidates], point) for point in points]
    scaled_terms = []
    for place, (rule, free_terms) in enumerate(candidates.items()):
        slopes = []
        for term in free_terms:
            own = [measures[place][term.name] for measures in measured]  # first at other data, which move gradients
            if are_multiples([each.precision for each in own]):
                slopes.append((term.name, are_multiples([each.precision_and_slope for each in own[1:]])))
        scaled_terms.append(ScaledTerms(rule, tuple(slopes)))
    return tuple(scaled for scaled in scaled_terms if scaled.slopes)


class Measured(NamedTuple):
    """What a term says of Normal sites at one point. precision: numbers of the precision that it adds, and last the
    curvature along one direction. precision_and_slope: these, and its gradient. Arrays of JAX, or of NumPy once they
    are on the host."""

    precision: Any
    precision_and_slope: Any


@lru_cache(maxsize=64)
def _measures(rule: Rule) -> Callable[[Point], dict[str, Measured]]:
    """A function of a point: what all terms say that the sites of a rule reach."""

    def measures(point: Point) -> dict[str, Measured]:
        bound, values = point
        assert isinstance(rule.block, PrecisionStructure)
        densities = block_densities(rule, rule.reached(terms(bound).terms), bound, values)
        gradients, precisions = gradients_and_precisions(rule.block, densities)
        centre, direction = jnp.zeros(rule.block.size), probe_direction(rule.block.size)
        measured = {}
        for name, density in densities.items():
            numbers = [*precisions[name].values(), curvature(density, centre, direction)]
            precision = join_values(numbers)
            measured[name] = Measured(precision, join_values([precision, gradients[name]]))
        return measured

    return measures


def are_multiples(vectors: Sequence[np.ndarray]) -> bool:
    """Whether all vectors are multiples of the first one, up to rounding; none is where that is not finite, or zero.

    Others that overflow are left out.
    """
    first = vectors[0]
    if not np.isfinite(first).all() or not first.any():
        return False
    for vector in vectors[1:]:
        multiple = (vector @ first) / (first @ first)
        if np.isfinite(vector).all() and np.abs(vector - multiple * first).max() > TOLERANCE * np.abs(vector).max():
            return False
    return True
