"""Discrete sites whose elements meet: what they are summed over with, or drawn from, is found and verified.

Which elements meet is read off the program (`bayeslab.elimination.discrete.scopes`). What is then claimed of the log
joint is tested at points like every other rule (`bayeslab.verification.identity`).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from bayeslab.distributions.block_normal import join_values
from bayeslab.distributions.factor_graphs.elimination_order import elimination_rounds, elimination_size
from bayeslab.elimination.conditional import Rule, without
from bayeslab.elimination.discrete.collapsed.collapsed_draws import collapsed_elements, residual_of_moves
from bayeslab.elimination.discrete.collapsed.precision_rows import changed_rows
from bayeslab.elimination.discrete.field_search import find_field
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.discrete.table_reading import plan_of, reading_of
from bayeslab.elimination.families import CHAIN_OF_STEPS, ELEMENT_BY_ELEMENT, JOINTLY_ENUMERATED
from bayeslab.elimination.family import Family
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.findings import LOOSE_TOLERANCE, Finding, rules_of
from bayeslab.verification.identity import (
    ALL_PROBES,
    NUM_NEAR_PROBES,
    RESIDUAL_TOLERANCE,
    identity_check,
    probe_noise,
)
from bayeslab.verification.points.likely_points import in_double_precision, likely_points
from bayeslab.verification.points.probe_points import Point, choice_points, generic_points, prior_scale_points

MAX_CHOICE_POINTS = 4
"""Points with other choices of discrete sites at which a rule is tested, at most: it is tested at many from each."""
ROUNDINGS = 32
"""Residual of a rule that passes where the program computes in single precision, in roundings: which elements meet is
read off the program, so that its arrays of its own need no more digits."""


class FieldFinding(NamedTuple):
    """What was found for discrete sites that meet. names: theirs.

    jointly: the rule that sums over all of them, or why there is none. by_element: the rule that draws one element
    after another, or why there is none.
    """

    names: tuple[str, ...]
    jointly: Finding
    by_element: Finding


def find_discrete_fields(bound: Bound, findings: Sequence[Finding]) -> list[FieldFinding]:
    """Findings for sets of enumerable sites that meet, or whose elements do.

    findings: of all latent sites, each given all others.
    """
    priors = terms(bound).priors
    refused = {finding.site for finding in findings if finding.rule is None}
    sets = meeting_sites(terms(bound).terms, [name for name in bound.latent if priors[name].choices is not None])
    sets = [names for names in sets if len(names) > 1 or names[0] in refused]
    if not sets:
        return []
    return _findings_of_sets(bound, findings, sets, None)


def find_collapsed_field(bound: Bound, findings: Sequence[Finding], rule: Rule, names: tuple[str, ...]) -> FieldFinding:
    """The findings for discrete sites with Normal sites integrated out. rule: of the Normal sites."""
    [finding] = _findings_of_sets(bound, findings, [names], rule)
    by_element = finding.by_element.rule
    if by_element is None or by_element.family is not ELEMENT_BY_ELEMENT:
        return finding
    with_rows = _with_changed_rows(bound, rule, by_element)
    return finding._replace(by_element=finding.by_element._replace(rule=with_rows))


def _with_changed_rows(bound: Bound, normal: Rule, by_element: Rule) -> Rule:
    """The rule that draws elements one after another, with the rows of the precision of Normal sites that change with
    each, where these are few, and where the log joint is the same when no other rows are made anew."""
    assert by_element.field is not None
    with jax.enable_x64(True):
        widened_bound = in_double_precision(bound)
        log_joint_terms = terms(widened_bound).terms
        points = [*generic_points(widened_bound), *choice_points(widened_bound)[:1]]
        rows = changed_rows(normal, by_element.field, log_joint_terms, *points[0])
        if rows is None:
            return by_element
        field = by_element.field.with_changed_rows(rows)
        residual = _moves_check(field, normal, log_joint_terms)
        worst = np.max([evaluate_all([residual], point)[0] for point in points])
    return by_element._replace(field=field) if worst <= RESIDUAL_TOLERANCE else by_element


@lru_cache(maxsize=64)
def _moves_check(field: Field, normal: Rule, log_joint_terms: tuple[Term, ...]) -> Callable[[Point], Array]:
    """The function that tests the rows of a precision that change with elements; the same for the same arguments."""

    def residual(point: Point) -> Array:
        bound, values = point
        near = join_values(values[name] for name in normal.sites)
        elements = collapsed_elements(field, normal, log_joint_terms, bound, values)
        return residual_of_moves(elements, field.joined(values), near)

    return residual


def _findings_of_sets(
    bound: Bound, findings: Sequence[Finding], sets: Sequence[tuple[str, ...]], rule: Rule | None
) -> list[FieldFinding]:
    """The findings for sets of discrete sites, under the log joint, or with the sites of a rule integrated out."""
    with jax.enable_x64(True):
        widened_bound = in_double_precision(bound)
        log_joint_terms = terms(widened_bound).terms
        if rule is not None:
            log_joint_terms = without(rule, log_joint_terms)
        others = [finding for finding in findings if not bound.sites[finding.site].is_discrete]
        points = field_points(widened_bound, likely_points(widened_bound, rules_of(others)))

        def both(names: tuple[str, ...]) -> FieldFinding:
            field = _field_or_refusal(widened_bound, log_joint_terms, names, points)
            if isinstance(field, Finding):
                return FieldFinding(names, field, field)
            jointly = _field_rule(widened_bound, log_joint_terms, field, JOINTLY_ENUMERATED, points)
            if jointly.rule is not None and jointly.rule.family is CHAIN_OF_STEPS:
                return FieldFinding(names, jointly, jointly)  # nobody draws the steps of a chain one after another
            by_element = _field_rule(widened_bound, log_joint_terms, field, ELEMENT_BY_ELEMENT, points)
            return FieldFinding(names, jointly, by_element)

        return [both(names) for names in sets]


def meeting_sites(log_joint_terms: Sequence[Term], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Sites in sets that have no term of the log joint in common."""
    sets: list[set[str]] = []
    for name in names:
        reached = frozenset().union(*(term.depends for term in log_joint_terms if name in term.depends))
        touching = [one for one in sets if not reached.isdisjoint(one)]
        sets = [one for one in sets if one not in touching]
        sets.append({name}.union(*touching))
    return sorted((tuple(name for name in names if name in one) for one in sets), key=lambda one: names.index(one[0]))


def field_points(bound: Bound, likely: Sequence[Point]) -> list[Point]:
    """Points at which a rule is tested; the first two are held to the stricter tolerance."""
    return [*generic_points(bound), *choice_points(bound)[:MAX_CHOICE_POINTS], *prior_scale_points(bound), *likely]


def find_field_rule(
    bound: Bound, log_joint_terms: tuple[Term, ...], names: tuple[str, ...], family: Family, points: Sequence[Point]
) -> Finding:
    """The verified rule of some discrete sites under the sum of some terms, or the reason why there is none.

    points: see `field_points`.
    """
    field = _field_or_refusal(bound, log_joint_terms, names, points)
    return field if isinstance(field, Finding) else _field_rule(bound, log_joint_terms, field, family, points)


def _field_or_refusal(
    bound: Bound, log_joint_terms: tuple[Term, ...], names: tuple[str, ...], points: Sequence[Point]
) -> Field | Finding:
    """The field of some discrete sites, or the finding that says why it is none."""
    try:
        return find_field(log_joint_terms, terms(bound).priors, names, *points[1])
    except ValueError as reason:
        return Finding(", ".join(names), _children(log_joint_terms, names), None, np.nan, str(reason))


def _field_rule(
    bound: Bound, log_joint_terms: tuple[Term, ...], field: Field, family: Family, points: Sequence[Point]
) -> Finding:
    """The verified rule of a field, or the reason why there is none."""
    site, children = ", ".join(field.names), _children(log_joint_terms, field.names)
    if family is JOINTLY_ENUMERATED and field.with_totals is not None:
        field = field.with_totals
    if family is JOINTLY_ENUMERATED and field.chain is not None:
        family = CHAIN_OF_STEPS
    elif family is JOINTLY_ENUMERATED:
        try:
            reading_of(field)
        except ValueError as reason:
            return Finding(site, children, None, np.nan, str(reason))
    rule = Rule(site, family, (), children, None, field)
    noise, law, worst = probe_noise(bound), identity_check(log_joint_terms, rule), 0.0
    for index, point in enumerate(points):
        [verdict] = evaluate_all([law], (*point, noise, NUM_NEAR_PROBES if index > 1 else ALL_PROBES))
        residual = float(verdict.residual)
        if index < 2 or not residual <= LOOSE_TOLERANCE:
            if np.isnan(residual) and not verdict.possible:
                continue  # nothing is possible there, so nothing is tested
            worst = float(np.maximum(worst, residual))
    if worst <= max(RESIDUAL_TOLERANCE, ROUNDINGS * field.eps):
        return Finding(site, children, rule, worst, "")
    if np.isnan(worst) and family is ELEMENT_BY_ELEMENT:
        why = "values of some of its elements exclude values of others, so one after another they may not reach all"
        return Finding(site, children, None, worst, why)
    return Finding(site, children, None, worst, f"its elements meet in {', '.join(map(repr, children))}")


def _children(log_joint_terms: Sequence[Term], names: Sequence[str]) -> tuple[str, ...]:
    """The terms that some sites reach, apart from their own."""
    reached = [term.name for term in log_joint_terms if not term.depends.isdisjoint(names)]
    return tuple(name for name in reached if name not in names)


def joint_size(field: Field) -> int:
    """How many numbers the tables have that arise when all elements are summed over."""
    if field.chain is not None:
        num_chains, num_steps, _ = field.chain.layout.elements.shape
        return num_chains * num_steps * field.chain.layout.num_states
    if field.totals_graph is not None:
        return sum(move.size for total in field.totals_graph.totals.totals for move in total.moves)
    plan = plan_of(field)
    rounds = elimination_rounds(plan.cards, plan.scopes)
    return elimination_size(plan.cards, [step for steps in rounds for step in steps])[1]
