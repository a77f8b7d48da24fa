"""Sites that are jointly Normal given all others, found from how the gradient of the log joint changes.

Sites that are Normal given each other need not be jointly Normal: the precision of one may depend on another, as the
loadings and the factors of factor analysis do. So directions are tried one site at a time, with every other site moved,
and the joint rule is then proven by the law over its joint value (`bayeslab.verification.identity`).
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import combinations, product

import jax
import numpy as np

from bayeslab.distributions.precision_structure import PrecisionStructure, Tie, elimination_cost
from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.families import NORMAL
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.discrete_fields import meeting_sites
from bayeslab.verification.findings import LOOSE_TOLERANCE, Finding, rules_of
from bayeslab.verification.identity import (
    ALL_PROBES,
    NUM_NEAR_PROBES,
    RESIDUAL_TOLERANCE,
    identity_check,
    probe_noise,
)
from bayeslab.verification.normal_blocks.responses import (
    CHANGE_TOLERANCE,
    Measured,
    compatible_groups,
    conflicting_sites,
    coupled_sites,
    measured_responses,
)
from bayeslab.verification.normal_blocks.step_blocks import candidate_step_blocks
from bayeslab.verification.points.likely_points import in_double_precision, likely_points
from bayeslab.verification.points.probe_points import Point, choice_points, generic_points, prior_scale_points

NUM_GENERIC_POINTS = 2
"""The first points: with other values of all sites, at which a law holds to the digits of rounding."""
MAX_BLOCK_COST = 2 * 10**9
"""Multiplications of one elimination, above which sites are not taken together: about a second."""


def find_normal_blocks(bound: Bound, findings: Sequence[Finding]) -> list[Finding]:
    """Findings for sets of several sites that are jointly Normal given all others, each with a verified joint rule.

    findings: of the sites to look at, each given all others. What is refused stays as it is, site by site.
    """
    rules = [finding.rule for finding in findings if finding.rule is not None and finding.rule.family.is_normal]
    if len(rules) < 2:
        return []
    with jax.enable_x64(True):
        widened_bound = in_double_precision(bound)
        log_joint_terms = terms(widened_bound).terms
        points = [*generic_points(widened_bound), *choice_points(widened_bound)]
        others_on_scales = cache(partial(_points_on_scales, widened_bound, findings))
        by_steps = candidate_step_blocks(log_joint_terms, rules, points)
        proven = _proven(widened_bound, by_steps, points, others_on_scales) if by_steps else []
        taken = {name for rule in rules_of(proven) for name in rule.sites}
        others = [rule for rule in rules if rule.family.joint and rule.site not in taken]
        candidates = candidate_blocks(log_joint_terms, others, points)
        return [*proven, *(_proven(widened_bound, candidates, points, others_on_scales) if candidates else [])]


def _points_on_scales(bound: Bound, findings: Sequence[Finding]) -> list[Point]:
    """Points on the scales of priors and of the data."""
    return [*prior_scale_points(bound), *likely_points(bound, rules_of(findings))]


def _proven(
    bound: Bound, candidates: Sequence[Rule], points: Sequence[Point], others: Callable[[], list[Point]]
) -> list[Finding]:
    """The findings of the candidates whose law holds. points: the first two are held to the stricter tolerance.

    others: gives further points, found once.
    """
    strict, noise = dict.fromkeys(candidates, 0.0), probe_noise(bound)
    laws = [identity_check(terms(bound).terms, rule) for rule in candidates]
    for place, point in enumerate((*points, *others())):
        is_generic = place < NUM_GENERIC_POINTS
        verdicts = evaluate_all(laws, (*point, noise, ALL_PROBES if is_generic else NUM_NEAR_PROBES))
        for rule, verdict in zip(candidates, verdicts, strict=True):
            residual = float(verdict.residual)
            if is_generic or residual > LOOSE_TOLERANCE:
                strict[rule] = np.maximum(strict[rule], residual)
    return [
        Finding(rule.site, rule.children, rule, float(residual), "")
        for rule, residual in strict.items()
        if residual <= RESIDUAL_TOLERANCE
    ]


def candidate_blocks(log_joint_terms: tuple[Term, ...], rules: Sequence[Rule], points: Sequence[Point]) -> list[Rule]:
    """Rules for sets of sites that look jointly Normal, one for every set; not yet proven.

    rules: of the sites that are Normal given all others. points: the first two have other values of all sites, the
    rest other choices of discrete ones.
    """
    names = tuple(rule.site for rule in rules)
    measured = measured_responses(log_joint_terms, names, points)
    if measured is None:
        return []
    shapes = [np.shape(points[0][1][name]) for name in names]
    coupled, conflicts = coupled_sites(measured), conflicting_sites(measured)

    def structures(groups: Sequence[Sequence[int]]) -> list[PrecisionStructure]:
        components = (
            [names.index(name) for name in together]
            for group in groups
            for together in meeting_sites(log_joint_terms, [names[index] for index in group])
        )
        return [_structure(component, rules, shapes, measured, coupled) for component in components]

    def cost(blocks: Sequence[PrecisionStructure]) -> tuple[int, int]:
        return len(blocks), sum(map(elimination_cost, blocks))

    largest_first, smallest_first = (
        structures(compatible_groups(shapes, conflicts, descending)) for descending in (True, False)
    )
    cheapest = min(largest_first, smallest_first, key=cost)
    return [
        _block_rule(structure, log_joint_terms)
        for structure in cheapest
        if len(structure.names) > 1 and elimination_cost(structure) <= MAX_BLOCK_COST
    ]


def _block_rule(structure: PrecisionStructure, log_joint_terms: Sequence[Term]) -> Rule:
    rule = Rule(", ".join(structure.names), NORMAL, (), (), structure)
    return rule._replace(
        children=tuple(term.name for term in rule.reached(log_joint_terms) if term.name not in structure.names)
    )


def _structure(
    component: Sequence[int],
    rules: Sequence[Rule],
    shapes: Sequence[tuple[int, ...]],
    measured: Measured,
    coupled: set[tuple[int, int]],
) -> PrecisionStructure:
    """The sparsity of the joint precision of some sites."""
    moves, responses, scales = measured

    def are_tied(first: int, axis: int, second: int, other_axis: int) -> bool:
        for index, move in enumerate(moves):
            if move.site == first and move.axis == axis:
                positions = np.moveaxis(move.mask, axis, 0).reshape(shapes[first][axis], -1)[:, 0]
                for response, scale in zip(responses, scales, strict=True):
                    still = np.moveaxis(np.abs(response[second][index]), other_axis, 0)[~positions]
                    if still.max(initial=0.0) > CHANGE_TOLERANCE * scale[second]:
                        return False
        return True

    def ties(first: int, second: int) -> tuple[Tie, ...]:
        pairs = product(range(len(shapes[first])), range(len(shapes[second])))
        equal = [(a, b) for a, b in pairs if shapes[first][a] == shapes[second][b] > 1]
        equal.sort(key=lambda tie: abs((len(shapes[first]) - tie[0]) - (len(shapes[second]) - tie[1])))
        chosen: list[Tie] = []
        for tie in equal:
            if all(tie[0] != a and tie[1] != b for a, b in chosen) and are_tied(first, tie[0], second, tie[1]):
                chosen.append(tie)
        return tuple(sorted(chosen))

    places = {index: place for place, index in enumerate(component)}
    met = [(places[a], places[b], ties(a, b)) for a, b in combinations(component, 2) if (a, b) in coupled]
    return PrecisionStructure(
        tuple(rules[index].site for index in component),
        tuple(shapes[index] for index in component),
        tuple(rules[index].coupled for index in component),
        tuple(met),
    )
