"""Tables of chains, read off the log joint: what it says of every state of every step, and of neighbours.

Functions of one step are looked at once for every value of its members, at all steps at once. Functions of two
neighbours take their values at even and odd steps. Where all steps have one function of neighbours, as where all share
a matrix, one configuration shows all its values, at as many steps.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.distributions.markov.scored.chain_layout import ChainLayout
from bayeslab.distributions.markov.scored.table_chain import TableChain
from bayeslab.elimination.discrete.chains.readings import Pattern, readings_of, rows_of, value_of_state, values_of
from bayeslab.elimination.discrete.field_parts import field_parts
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.discrete.first_steps import EqualRows, Pieces
from bayeslab.elimination.discrete.sum_of_parts import SumOfParts
from bayeslab.elimination.terms import Term
from bayeslab.programs.program import Bound, Values


class ChainTables(NamedTuple):
    """What the log joint says of chains: the sum of both tables, see `TableChain`, and a constant."""

    numbers: tuple[Array, Array]
    constant: Array


def chain_conditional(
    field: Field, log_joint_terms: Sequence[Term], bound: Bound, values: Values
) -> tuple[TableChain, Array]:
    """The joint conditional of a field of chains, over indices of choices (size,), and its log evidence."""
    assert field.chain is not None
    tables = chain_tables(field, log_joint_terms, bound, values)
    chain = TableChain(*tables.numbers, field.chain.layout)
    return chain, chain.log_partition + tables.constant


def chain_tables(field: Field, log_joint_terms: Sequence[Term], bound: Bound, values: Values) -> ChainTables:
    """The tables of a field of chains at values of the other sites."""
    assert field.chain is not None
    layout, taken = field.chain.layout, field_parts(field, log_joint_terms, bound, values)
    num_chains, num_steps, _ = layout.elements.shape
    size = layout.num_states
    states, constant = jnp.zeros((num_chains, num_steps, size)), taken.constant
    shared, moves = jnp.zeros((1, 1, size, size)), jnp.zeros((1, 1, size, size))
    for number, reading in enumerate(readings_of(field)):
        if reading.constants is not None:
            nowhere = jnp.zeros(field.size, jnp.int32)
            constant += _weighted(taken, number, nowhere, reading.constants).sum()
        for pattern, is_shared in reading.patterns:
            if is_shared:
                shared += _shared_moves(layout, pattern, taken, number)[None, None]
            elif pattern.second:
                moves += _moves(field, layout, pattern, taken, number)
            else:
                states += _states(field, layout, pattern, taken, number)
    return ChainTables((states, moves + shared), constant)


def _weighted(taken: SumOfParts, number: int, indices: Array | Pieces, functions: np.ndarray) -> Array:
    """What some elements of one part say at a configuration (function,)."""
    weight = taken.weights[number]
    if not weight.ndim:
        part = taken.parts(indices.whole() if isinstance(indices, Pieces) else indices)[number]
    else:
        width = weight.size // weight.shape[0]
        count = int(functions.max(initial=0)) // width + 1
        part, weight = taken.first_rows(indices, number, count), weight[:count]
    return _picked(jnp.where(weight == 0, 0.0, weight * part).ravel(), functions)


def _configuration(field: Field, chosen: dict[int, Array], at: np.ndarray) -> Array:
    """Indices of all elements (element,): some members have a value at some steps, all else the first one.

    at: whether a step is one of these (step,).
    """
    assert field.chain is not None
    pieces = []
    for (member, first), size in zip(field.chain.layout.sites, field.sizes, strict=True):
        value = jnp.broadcast_to(chosen.get(member, jnp.zeros((), jnp.int32)), (size,))
        length = len(at) - first if first or len(field.sizes) == len(field.chain.layout.cards) else 1
        mine = np.repeat(at[first : first + length], size // length)
        pieces.append(value if mine.all() else jnp.where(mine, value, 0))
    return jnp.concatenate(pieces) if len(pieces) > 1 else pieces[0]


def _same_at_all_steps(field: Field, chosen: dict[int, Array]) -> Pieces:
    """Indices of all elements (element,): some members have a value at all steps, all else the first one."""
    assert field.chain is not None
    members = [member for member, _ in field.chain.layout.sites]
    values = [chosen.get(member, jnp.zeros((), jnp.int32))[None] for member in members]
    return Pieces(tuple(EqualRows(value, size) for value, size in zip(values, field.sizes, strict=True)))


def _states(field: Field, layout: ChainLayout, pattern: Pattern, taken: SumOfParts, number: int) -> Array:
    """The table of states of some functions of one step (chain, step, state)."""
    num_chains, num_steps, _ = layout.elements.shape

    def at(value: Array) -> Array:
        configuration = _same_at_all_steps(field, dict(zip(pattern.first, value, strict=True)))
        return _weighted(taken, number, configuration, pattern.functions)

    by_value = jax.vmap(at, out_axes=-1)(jnp.asarray(values_of(layout, pattern.first)))
    by_place = _placed(by_value, rows_of(pattern, num_steps), num_chains * num_steps)
    return _picked(by_place, value_of_state(layout, pattern.first), -1).reshape(num_chains, num_steps, -1)


def _moves(field: Field, layout: ChainLayout, pattern: Pattern, taken: SumOfParts, number: int) -> Array:
    """The table of neighbours of some functions of two steps (chain, step - 1, state, state)."""
    num_chains, num_steps, _ = layout.elements.shape
    first, second = values_of(layout, pattern.first), values_of(layout, pattern.second)
    pairs = np.repeat(first, len(second), 0), np.tile(second, (len(first), 1))
    states = value_of_state(layout, pattern.first)[:, None], value_of_state(layout, pattern.second)
    value_of_pair = (states[0] * len(second) + states[1]).ravel()
    rows, total = np.array(rows_of(pattern, num_steps - 1)), jnp.zeros((num_chains * (num_steps - 1), len(pairs[0])))
    for parity in range(2):
        mine = np.flatnonzero(pattern.steps % 2 == parity)
        is_before = np.arange(num_steps) % 2 == parity
        if not len(mine):
            continue

        def at(
            value: tuple[Array, Array],
            is_before: np.ndarray = is_before,
            mine: np.ndarray = mine,
        ) -> Array:
            first = dict(zip(pattern.first, value[0], strict=True))
            second = dict(zip(pattern.second, value[1], strict=True))
            configuration = _configuration(field, first, is_before) + _configuration(field, second, ~is_before)
            return _weighted(taken, number, configuration, pattern.functions[mine])

        by_value = jax.lax.map(at, tuple(map(jnp.asarray, pairs)), batch_size=64)
        total = total.at[rows[mine]].add(by_value.T)
    shape = num_chains, num_steps - 1, layout.num_states, layout.num_states
    return total[:, value_of_pair].reshape(shape)


def _shared_moves(layout: ChainLayout, pattern: Pattern, taken: SumOfParts, number: int) -> Array:
    """The table of neighbours of a function that all steps of all chains share (state, state)."""
    first, second = values_of(layout, pattern.first), values_of(layout, pattern.second)
    starts = 2 * np.arange(len(first) * len(second))
    indices = np.zeros(layout.elements.size, np.int32)
    indices[layout.elements[:, starts][:, :, list(pattern.first)]] = np.repeat(first, len(second), 0)
    indices[layout.elements[:, starts + 1][:, :, list(pattern.second)]] = np.tile(second, (len(first), 1))
    place = {
        step: function
        for function, chain, step in zip(pattern.functions, pattern.chains, pattern.steps, strict=True)
        if chain == 0
    }
    table = _weighted(taken, number, jnp.asarray(indices), np.array([place[start] for start in starts]))
    states = value_of_state(layout, pattern.first)[:, None], value_of_state(layout, pattern.second)
    return table[states[0] * len(second) + states[1]]


def _picked(array: Array, places: np.ndarray, axis: int = 0) -> Array:
    """Places of an array, which is left as it is where these are all of them in order."""
    same = array.shape[axis] == len(places) and np.array_equal(places, np.arange(len(places)))
    return array if same else jnp.take(array, places, axis)


def _placed(by_function: Array, rows: Sequence[int], number: int) -> Array:
    """Sums of functions (function, value) that have the same row, (row, value)."""
    if list(rows) == list(range(number)):
        return by_function
    return jnp.zeros((number, by_function.shape[-1])).at[np.array(rows)].add(by_function)
