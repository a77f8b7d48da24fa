"""Sites that are jointly Normal given all others, found from how the gradient of the log joint changes.

Sites that are Normal given each other need not be jointly Normal: the precision of one may depend on another, as the
loadings and the factors of factor analysis do. So directions are tried one site at a time, with every other site moved,
and the joint rule is then proven by the law over its joint value (`bayeslab.verification.identity`).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations, product
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from bayeslab.distributions.precision_structure import PrecisionStructure, Tie, elimination_cost
from bayeslab.elimination.around import bit_masks
from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.families import NORMAL
from bayeslab.elimination.terms import Term, sum_of_terms, terms
from bayeslab.programs.program import Bound, Values
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
from bayeslab.verification.points.likely_points import in_double_precision, likely_points
from bayeslab.verification.points.probe_points import Point, choice_points, generic_points, prior_scale_points

CHANGE_TOLERANCE = 1e-9
"""Share of the largest response of a site below which its response to a move is rounding."""
MAX_CHOICE_POINTS = 16
"""Points with other choices of discrete sites that the sparsity is looked for at, at most."""
MAX_MOVED_NUMBERS = 2 * 10**7
"""Numbers of all moves, above which no sites are taken together."""
MAX_BLOCK_COST = 2 * 10**9
"""Multiplications of one elimination, above which sites are not taken together: about a second."""


class Move(NamedTuple):
    """A direction in which one site moves, and what it tells.

    site: the index of the one that moves. shifted: of another one that is elsewhere meanwhile, or None.
    axis: along which the site moves at the masked positions alone, or None where all of it moves. mask: those
    positions (*site).
    """

    site: int
    shifted: int | None
    axis: int | None
    mask: np.ndarray


class Measured(NamedTuple):
    """How the gradient of the log joint changes as sites move.

    responses: at each point, for every site the changes (move, *site) of its gradient.
    scales: at each point, for every site the largest of them without sign.
    """

    moves: Sequence[Move]
    responses: Sequence[list[np.ndarray]]
    scales: Sequence[list[float]]


def find_normal_blocks(bound: Bound, findings: Sequence[Finding]) -> list[Finding]:
    """Findings for sets of several sites that are jointly Normal given all others, each with a verified joint rule.

    findings: of the sites to look at, each given all others. What is refused stays as it is, site by site.
    """
    rules = [finding.rule for finding in findings if finding.rule is not None and finding.rule.family.joint]
    if len(rules) < 2:
        return []
    with jax.enable_x64(True):
        widened_bound = in_double_precision(bound)
        log_joint_terms = terms(widened_bound).terms
        generic_pair, chosen = generic_points(widened_bound), choice_points(widened_bound)
        candidates = candidate_blocks(log_joint_terms, rules, [*generic_pair, *chosen])
        if not candidates:
            return []
        strict = dict.fromkeys(candidates, 0.0)
        others = [*chosen, *prior_scale_points(widened_bound), *likely_points(widened_bound, rules_of(findings))]
        noise = probe_noise(widened_bound)
        laws = [identity_check(log_joint_terms, rule) for rule in candidates]
        for point in (*generic_pair, *others):
            is_generic = any(point is generic for generic in generic_pair)
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
    if not any(len(term.depends.intersection(names)) > 1 for term in log_joint_terms):
        return []
    points = points[: 2 + MAX_CHOICE_POINTS]
    shapes = [np.shape(points[0][1][name]) for name in names]
    moves = _moves(shapes)
    if len(moves) * sum(map(math.prod, shapes)) > MAX_MOVED_NUMBERS:
        return []
    responses = [_responses(log_joint_terms, names, moves, point) for point in points]
    if not all(np.isfinite(array).all() for response in responses for array in response):
        return []
    scales = [[np.abs(array).max() for array in response] for response in responses]
    measured = Measured(moves, responses, scales)
    coupled, conflicts = _coupled_sites(measured), _conflicts(measured)

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
        structures(_compatible_groups(shapes, conflicts, descending)) for descending in (True, False)
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


def _moves(shapes: Sequence[tuple[int, ...]]) -> list[Move]:
    """All moves: every site as a whole, also with every other one shifted, and by halves along every axis."""
    sites = range(len(shapes))
    moves = [Move(site, None, None, np.ones(shapes[site], bool)) for site in sites]
    moves += [Move(site, shifted, None, np.ones(shapes[site], bool)) for site, shifted in product(sites, sites)]
    for site in sites:
        axes, masks = bit_masks(shapes[site])
        moves += [Move(site, None, axis, mask) for axis, mask in zip(axes, masks, strict=True)]
    return moves


def _responses(
    log_joint_terms: tuple[Term, ...], names: tuple[str, ...], moves: Sequence[Move], point: Point
) -> list[np.ndarray]:
    """For every site, how its gradient changes with every move, (move, *site)."""
    rng = np.random.default_rng(7)
    values = [np.asarray(point[1][name]) for name in names]
    steps = [rng.uniform(0.5, 2.0, value.shape) * rng.choice([-1.0, 1.0], value.shape) for value in values]
    shifts, directions = ([np.zeros((len(moves), *step.shape)) for step in steps] for _ in range(2))
    for place, move in enumerate(moves):
        directions[move.site][place] = steps[move.site] * move.mask
        if move.shifted is not None:
            shifts[move.shifted][place] = steps[move.shifted]
    [result] = evaluate_all([_response_function(log_joint_terms, names)], (*point, shifts, directions))
    return [np.asarray(array) for array in result]


@lru_cache(maxsize=64)
def _response_function(log_joint_terms: tuple[Term, ...], names: tuple[str, ...]) -> Callable[[Any], list[Array]]:
    """A function of a point, shifts and directions that gives the products of the Hessian with the directions."""
    reached = [term for term in log_joint_terms if not term.depends.isdisjoint(names)]

    def responses(argument: tuple[Bound, Values, list[Array], list[Array]]) -> list[Array]:
        bound, values, shifts, directions = argument
        base = [values[name] for name in names]

        def density(parts: list[Array]) -> Array:
            return sum_of_terms(reached, bound, values | dict(zip(names, parts, strict=True)))

        def response(move: tuple[list[Array], list[Array]]) -> list[Array]:
            at = [value + shift for value, shift in zip(base, move[0], strict=True)]
            return jax.jvp(jax.grad(density), (at,), (move[1],))[1]

        return jax.lax.map(response, (shifts, directions))

    return responses


def _coupled_sites(measured: Measured) -> set[tuple[int, int]]:
    """Pairs of sites, in both orders, of which one responds to a move of the other."""
    moves, responses, scales = measured
    places = np.array([index for index, move in enumerate(moves) if move.axis is None], int)
    coupled = set()
    for other in range(len(scales[0])):
        responds = np.zeros(len(places), bool)
        for response, scale in zip(responses, scales, strict=True):
            responds |= _largest(response[other][places]) > CHANGE_TOLERANCE * scale[other]
        moved = {moves[index].site for index in places[responds]} - {other}
        coupled |= {pair for site in moved for pair in ((site, other), (other, site))}
    return coupled


def _conflicts(measured: Measured) -> set[frozenset[int]]:
    """Sets of up to three sites that are not jointly Normal: how two respond to each other depends on the third.

    The first moves are those of every site with no other one shifted.
    """
    moves, responses, scales = measured
    places = np.array([index for index, move in enumerate(moves) if move.shifted is not None], int)
    bases = np.array([moves[index].site for index in places], int)
    conflicts = set()
    for other in range(len(scales[0])):
        differs = np.zeros(len(places), bool)
        for response, scale in zip(responses, scales, strict=True):
            change = response[other][places] - response[other][bases]
            differs |= _largest(change) > CHANGE_TOLERANCE * scale[other]
        conflicts |= {frozenset((moves[i].site, moves[i].shifted, other)) for i in places[differs]}
    return conflicts


def _largest(arrays: np.ndarray) -> np.ndarray:
    """The largest number without its sign of every array (array,)."""
    return np.abs(arrays).max(tuple(range(1, arrays.ndim)), initial=0.0)


def _compatible_groups(
    shapes: Sequence[tuple[int, ...]], conflicts: set[frozenset[int]], descending: bool
) -> list[list[int]]:
    """Sites in groups without conflicts; the largest sites choose first whom they are with, or the smallest do.

    A mean goes with the factors of a factor model or with its loadings: the latter is a matrix a feature, not a row.
    """
    rest = sorted(range(len(shapes)), key=lambda index: -int(np.prod(shapes[index])), reverse=not descending)
    groups = []
    while rest:
        group: list[int] = []
        for index in rest:
            if not any(index in conflict and conflict <= {*group, index} for conflict in conflicts):
                group.append(index)
        group = group or [rest[0]]
        rest = [index for index in rest if index not in group]
        groups.append(sorted(group))
    return groups


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
