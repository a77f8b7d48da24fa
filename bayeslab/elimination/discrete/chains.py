"""Discrete elements that meet along one axis, each step the next: chains, and several chains that go side by side.

A scan over discrete sites makes such a field, whatever it reads and observes on its way. Elements of one step that meet
have a joint state.
"""

from math import prod
from typing import NamedTuple

import numpy as np

from bayeslab.distributions.markov.table_chain import ChainLayout
from bayeslab.elimination.discrete.fields import CONSTANT, Field
from bayeslab.elimination.discrete.repeated_functions import Functions

MAX_CHAIN_STATES = 128
"""Joint states of a step, at most."""
MAX_CHAIN_NUMBERS = 5 * 10**7
"""Numbers of all transitions of all chains, at most."""


class Pattern(NamedTuple):
    """Functions of equal scopes: of these members at one step, and of those at the next.

    first, second: places of the sites in the joint state. functions: which elements of a part they are (function,).
    chains, steps: where they are, by the chain and by the earlier step (function,).
    """

    first: tuple[int, ...]
    second: tuple[int, ...]
    functions: np.ndarray
    chains: np.ndarray
    steps: np.ndarray


def chain_layout(field: Field) -> ChainLayout | None:
    """How the elements of a field are chains along the first axis of their sites, or None where they are not.

    No function may have elements of steps that are not neighbours, and a chain has one element of every site a step.
    """
    if field.mixed or not all(field.shapes) or len({shape[0] for shape in field.shapes}) > 1:
        return None
    num_steps = field.shapes[0][0]
    steps, lanes, site_of_lane = _places(field)
    group = list(range(len(site_of_lane)))

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
    for lane in range(len(site_of_lane)):
        chains.setdefault(root(lane), []).append(lane)
    members = [[int(site_of_lane[lane]) for lane in chain] for chain in chains.values()]
    if not moves or any(each != list(range(len(field.names))) for each in members):
        return None
    cards = tuple(len(field.choices[site]) for site in members[0])
    states = prod(cards)
    if states > MAX_CHAIN_STATES or len(chains) * num_steps * states**2 > MAX_CHAIN_NUMBERS:
        return None
    by_place = np.empty((num_steps, len(site_of_lane)), np.int32)
    by_place[steps, lanes] = np.arange(field.size)
    elements = np.stack([by_place[:, chain] for chain in chains.values()])
    return ChainLayout(elements, cards)


def patterns_of(field: Field, layout: ChainLayout, part: np.ndarray) -> list[Pattern]:
    """The elements of one part of the log joint, by the members that they are functions of; constants are left out."""
    num_chains, num_steps, num_members = layout.elements.shape
    places = np.empty((field.size, 3), int)
    places[layout.elements.ravel()] = np.indices(layout.elements.shape).reshape(3, -1).T
    flat, found = part.ravel(), dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, int, int]]]()
    for index in np.flatnonzero(flat != CONSTANT):
        scope = places[list(field.scopes[flat[index]])]
        step = int(scope[:, 1].min())
        first = tuple(sorted(int(m) for _, t, m in scope if t == step))
        second = tuple(sorted(int(m) for _, t, m in scope if t > step))
        found.setdefault((first, second), []).append((int(index), int(scope[0, 0]), step))
    return [Pattern(*key, *np.array(rows).T) for key, rows in found.items()]


def step_functions(field: Field) -> Functions:
    """The elements of a field as functions: one for every site, at every step."""
    sites = np.repeat(np.arange(len(field.sizes)), field.sizes)
    return Functions(sites, _places(field)[0])


def _places(field: Field) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every element its step and its lane, all positions but for the step; for every lane its site."""
    steps, lanes, sites = [], [], []
    for site, (shape, size) in enumerate(zip(field.shapes, field.sizes, strict=True)):
        width = size // shape[0]
        steps.append(np.repeat(np.arange(shape[0]), width))
        lanes.append(np.tile(np.arange(width) + len(sites), shape[0]))
        sites += [site] * width
    return np.concatenate(steps), np.concatenate(lanes), np.array(sites)
