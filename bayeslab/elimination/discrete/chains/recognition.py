"""Discrete elements that meet along one axis, each step the next: chains, and several chains that go side by side.

A scan over discrete sites makes such a field, whatever it reads and observes on its way. Elements of one step that meet
have a joint state.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from bayeslab.distributions.markov.scored.chain_layout import ChainLayout
from bayeslab.elimination.discrete.chains.repeated_functions import Functions
from bayeslab.elimination.discrete.fields import Field

MAX_CHAIN_STATES = 128
"""Joint states of a step, at most."""
MAX_CHAIN_NUMBERS = 5 * 10**7
"""Numbers of all transitions of all chains, at most."""


def chain_layout(field: Field) -> ChainLayout | None:
    """How the elements of a field are chains along the first axis of their sites, or None where they are not.

    No function may have elements of steps that are not neighbours, and a chain has one element of every site a step.
    Sites without that axis may be the states before the first step.
    """
    sites = None if field.mixed else _members_of_sites(field)
    if sites is None:
        return None
    steps, lanes, member_of_lane = _places(field, sites)
    chains = _connected_lanes(field, steps, lanes, len(member_of_lane))
    if chains is None or any(member_of_lane[chain].tolist() != [*range(len(chain))] for chain in chains):
        return None
    num_members, num_steps = len(chains[0]), int(steps.max()) + 1
    cards = tuple(field.cards[lanes == member][0].item() for member in range(num_members))
    states = prod(cards)
    if states > MAX_CHAIN_STATES or len(chains) * num_steps * states**2 > MAX_CHAIN_NUMBERS:
        return None
    by_place = np.empty((num_steps, len(member_of_lane)), np.int32)
    by_place[steps, lanes] = np.arange(field.size)
    return ChainLayout(np.stack([by_place[:, chain] for chain in chains]), cards, sites)


def _members_of_sites(field: Field) -> tuple[tuple[int, int], ...] | None:
    """Which member of a joint state the elements of every site are, and at which step they begin; None if unknown."""
    ndim = max(map(len, field.shapes))
    long = [site for site, shape in enumerate(field.shapes) if len(shape) == ndim]
    if ndim == 0 or len({field.shapes[site] for site in long}) > 1 or field.shapes[long[0]][0] < 2:
        return None
    before = [site for site in range(len(field.shapes)) if site not in long]
    if before and len(before) != len(long):
        return None
    members = {site: (member, int(bool(before))) for member, site in enumerate(long)}
    for site in before:
        kind = field.shapes[site], field.choices[site]
        taken = {member for member, step in members.values() if step == 0}
        fitting = [m for m, other in enumerate(long) if (field.shapes[other][1:], field.choices[other]) == kind]
        fitting = [member for member in fitting if member not in taken]
        if not fitting:
            return None
        members[site] = fitting[0], 0
    return tuple(members[site] for site in range(len(field.shapes)))


def _connected_lanes(field: Field, steps: np.ndarray, lanes: np.ndarray, number: int) -> list[list[int]] | None:
    """Lanes in sets that meet; None where elements of steps that are not neighbours do, or none of different steps."""
    group = list(range(number))

    def root(lane: int) -> int:
        while group[lane] != lane:
            lane = group[lane] = group[group[lane]]
        return lane

    moves = False
    for scope in field.scopes:
        times = steps[list(scope)]
        if times.max() - times.min() > 1:
            return None
        moves |= bool(times.max() > times.min())
        for lane in lanes[list(scope[1:])]:
            group[root(int(lane))] = root(int(lanes[scope[0]]))
    chains: dict[int, list[int]] = {}
    for lane in range(number):
        chains.setdefault(root(lane), []).append(lane)
    return list(chains.values()) if moves else None


def step_functions(field: Field, layout: ChainLayout) -> Functions:
    """The elements of a field as functions: one for every member, at every step."""
    members = np.repeat([member for member, _ in layout.sites], field.sizes)
    return Functions(members, _places(field, layout.sites)[0])


def _places(field: Field, sites: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every element its step and its lane, member and positions but for the step; for every lane its member."""
    num_members = 1 + max(member for member, _ in sites)
    ndim = max(map(len, field.shapes))
    width = prod(next(shape for shape in field.shapes if len(shape) == ndim)[1:])
    steps, lanes = [], []
    for (member, first), shape, size in zip(sites, field.shapes, field.sizes, strict=True):
        length = shape[0] if len(shape) == ndim else 1
        steps.append(np.repeat(np.arange(first, first + length), size // length))
        lanes.append(np.tile(np.arange(size // length) * num_members + member, length))
    return np.concatenate(steps), np.concatenate(lanes), np.tile(np.arange(num_members), width)
