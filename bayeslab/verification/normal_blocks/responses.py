"""How the gradient of the log joint changes as some sites move: which of them meet, and which are jointly Normal."""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from bayeslab.elimination.around import bit_masks
from bayeslab.elimination.terms import Term, sum_of_terms
from bayeslab.programs.program import Bound, Values
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.points.probe_points import Point

CHANGE_TOLERANCE = 1e-9
"""Share of the largest response of a site below which its response to a move is rounding."""
MAX_CHOICE_POINTS = 16
"""Points with other choices of discrete sites that the sparsity is looked for at, at most."""
MAX_MOVED_NUMBERS = 2 * 10**7
"""Numbers of all moves, above which no sites are taken together."""


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


def measured_responses(
    log_joint_terms: tuple[Term, ...], names: tuple[str, ...], points: Sequence[Point]
) -> Measured | None:
    """What the moves of some sites tell, at most at some of the points; None where that is too much or not finite.

    points: the first two have other values of all sites, the rest other choices of discrete ones.
    """
    if not any(len(term.depends.intersection(names)) > 1 for term in log_joint_terms):
        return None
    points = points[: 2 + MAX_CHOICE_POINTS]
    shapes = [np.shape(points[0][1][name]) for name in names]
    moves = _moves(shapes)
    if len(moves) * sum(map(math.prod, shapes)) > MAX_MOVED_NUMBERS:
        return None
    responses = [_responses(log_joint_terms, names, moves, point) for point in points]
    if not all(np.isfinite(array).all() for response in responses for array in response):
        return None
    return Measured(moves, responses, [[np.abs(array).max() for array in response] for response in responses])


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


def coupled_sites(measured: Measured) -> set[tuple[int, int]]:
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


def conflicting_sites(measured: Measured) -> set[frozenset[int]]:
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


def compatible_groups(
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
