"""The forward-backward recursions of many steps at once, for processors with vector units: blocks of time as lanes.

The steps of a sequence are cut into blocks that advance together, a block a lane; sequences of a batch are lanes too.
What a block does to a message is a K x K matrix. A first pass finds the matrices of all blocks, a short recursion over
blocks the messages that enter and leave each of them, and the ordinary recursions follow inside of all blocks at once.
Numbers are kept in range every few steps: forwards by exact powers of two, so no logarithm is taken on the way and the
log evidence keeps its digits over a million steps, backwards by the messages that came forwards.

Between two of those a number may leave the range of floats, and the sum of exponents that of integers. The flag
`in_range` is True if none came near that: if not, the recursions of `bayeslab.distributions.markov.sequential`, which
scale at every step, give the answer. A state that is lost below the range counts where the chain cannot get from
elsewhere to where it goes (`is_mixing`), and what comes after it is beyond the range. So they give the answer, too,
where there are zeros and that is seen or cannot be.

Steps that do not move leave a message as it is: the first step of a sequence, and what pads it to full blocks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.distributions.markov.lanes import (
    Lanes,
    Tile,
    barrier,
    join_tiles,
    map_tiles,
    scan_tiles,
    with_cached_weights,
    with_weights,
)
from bayeslab.distributions.markov.log_likelihoods import STEPS_PER_CHUNK
from bayeslab.distributions.markov.scaling import is_safe, is_small, largest_entry, log_scaled, rescale, sum_of_states
from bayeslab.distributions.markov.sequential import power_of_two, split_exponent


class ExpectedCounts(NamedTuple):
    """Expected counts given all observations, which are the derivatives of the log evidence.

    log_marginal: the log evidence (*batch,). first: p(z_1) over the initial probabilities (*batch, K).
    moves: expected transitions over their probabilities (*batch, 1, K, K). visits: the result of `VisitAccumulator`.
    in_range: whether all numbers kept their range.
    """

    log_marginal: Array
    first: Array
    moves: Array
    visits: Array
    in_range: Array


def log_marginal(lanes: Lanes) -> tuple[Array, Array]:
    """The log evidence (*batch,), and whether all numbers kept their range."""
    if lanes.blocks > 1:
        _, last, exponent, in_range = entering_messages(lanes.initial, *block_matrices(lanes))
        value, in_range = log_scaled(sum_of_states(last), exponent), in_range.all()
    else:
        value, in_range = _forward(lanes, lanes.initial.T)
    return value.reshape(lanes.shape[:-1]), in_range & is_mixing(lanes)


def is_mixing(lanes: Lanes) -> Array:
    """Whether every state follows every other, so likely that numbers below the range are nothing beside it."""
    return (lanes.transition > 2.0 ** (-40 if lanes.transition.dtype == jnp.float32 else -200)).all()


class VisitAccumulator(NamedTuple):
    """An accumulator of the probabilities of states at every step, as pure functions.

    nothing: lanes -> the empty accumulator of all tiles.
    start: accumulator of all tiles -> the empty accumulator of one tile.
    add: (accumulator of a tile, tile, index of a chunk, probabilities of its steps (K, lane)) -> that accumulator.
    put: (accumulator of all tiles, index of a tile, accumulator of that tile) -> the former; the last tile comes first.
    end: (lanes, accumulator of all tiles) -> the result.
    """

    nothing: Callable[[Lanes], Any]
    start: Callable[[Any], Array]
    add: Callable[[Array, Tile, Array, list[Array]], Array]
    put: Callable[[Any, Array, Array], Any]
    end: Callable[[Lanes, Any], Array]


def expected_counts(lanes: Lanes, visits: VisitAccumulator) -> ExpectedCounts:
    """The log evidence and its derivatives, by the forward-backward algorithm in lanes."""
    if lanes.parameters is None and lanes.blocks > 1:
        lanes = with_weights(lanes)
    initial, blocks, batch = lanes.initial, lanes.blocks, lanes.shape[:-1]
    number, states = initial.shape
    in_range = jnp.array(True)
    start, end = initial.T, jnp.ones_like(initial.T)
    if blocks > 1:
        matrices = block_matrices(lanes)
        messages, last, exponent, in_range = entering_messages(initial, *matrices)
        value, in_range = log_scaled(sum_of_states(last), exponent), in_range.all()
        start, end = blocks_to_lanes(messages), blocks_to_lanes(_leaving_messages(*matrices))
    transitions, visited, message, lane_values, lanes_in_range, bounded = _forward_backward(lanes, visits, start, end)
    lanes_in_range &= is_mixing(lanes) | (bounded if blocks == 1 else False)
    first = message.reshape(states, number, blocks)[..., 0].T
    first = first / (initial * first).sum(-1, keepdims=True)
    transitions = transitions.reshape(states, states, number, blocks).sum(-1).transpose(2, 0, 1)
    expected = first.reshape(*batch, states), transitions.reshape(*batch, 1, states, states)
    value = value if blocks > 1 else lane_values
    return ExpectedCounts(value.reshape(batch), *expected, visits.end(lanes, visited), in_range & lanes_in_range)


def _multiply(message: Array, matrix: Array) -> Array:
    """The products of messages (..., K, lane) and matrices (K, K, lane), summed over earlier states one by one."""
    return sum(
        (message[..., k, None, :] * matrix[k] for k in range(1, len(matrix))), message[..., 0, None, :] * matrix[0]
    )


def block_matrices(lanes: Lanes) -> tuple[Array, Array, Array]:
    """The matrix of every block, which maps a message that enters it to the one that leaves it (block, K, K, N),
    exponents of its rows (block, K, N), and whether all is in range."""
    states, dtype = lanes.initial.shape[-1], lanes.initial.dtype

    def run(tile: Tile) -> tuple[Array, Array, Array]:
        def chunk(index: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            matrix, exponent, in_range = carry
            (weight, weight_exponent), active = tile.weights(index), tile.moves(index)
            for u in range(STEPS_PER_CHUNK):
                matrix = jnp.where(active[u], _multiply(matrix, tile.transition), matrix)
                matrix = barrier(matrix * weight[u])
            top = matrix.max(1)
            scale, e = split_exponent(top)
            exponent += e + weight_exponent
            return matrix * scale[:, None], exponent, in_range & (is_safe(top) & is_small(exponent)).all(0)

        identity = jnp.broadcast_to(jnp.eye(states, dtype=dtype)[..., None], (states, states, tile.width))
        start = identity, jnp.zeros((states, tile.width), jnp.int32), jnp.ones(tile.width, bool)
        return lax.fori_loop(0, tile.number, chunk, start)

    matrix, exponent, in_range = map(join_tiles, map_tiles(run, lanes))
    matrix = matrix.reshape(states, states, -1, lanes.blocks).transpose(3, 0, 1, 2)
    return matrix, exponent.reshape(states, -1, lanes.blocks).transpose(2, 0, 1), in_range.all()


def entering_messages(
    initial: Array, matrix: Array, exponent: Array, in_range: Array
) -> tuple[Array, Array, Array, Array]:
    """The forward messages that enter the blocks (block, K, N), by a recursion over blocks, the message that leaves the
    last block (K, N) and its exponent (N,), and whether all is in range (N,)."""

    def step(carry: tuple[Array, Array, Array], block: tuple[Array, Array]) -> tuple[Any, Array]:
        (message, total, in_range), (matrix, exponent) = carry, block
        scaled_message, shift = rescale(message, exponent)
        new = barrier(_multiply(barrier(scaled_message), matrix))
        peak = largest_entry(new)
        scale, e = split_exponent(peak)
        exponent = total + shift + e
        return (new * scale, exponent, in_range & is_safe(peak) & is_small(exponent)), message

    number = len(initial)
    start = initial.T, jnp.zeros(number, jnp.int32), jnp.broadcast_to(in_range, number)
    (last, total, in_range), messages = lax.scan(step, start, (matrix, exponent), unroll=2)
    return messages, last, total, in_range


def _leaving_messages(matrix: Array, exponent: Array, in_range: Array) -> Array:
    """The backward message that enters the end of every block (block, K, N), up to its scale."""

    def step(message: Array, block: tuple[Array, Array]) -> tuple[Array, Array]:
        matrix, exponent = block
        new = _multiply(message, jnp.swapaxes(matrix, 0, 1)) * power_of_two(
            exponent - largest_entry(exponent), message.dtype
        )
        new = barrier(new)
        return new * split_exponent(largest_entry(new))[0], message

    start = jnp.ones(matrix.shape[2:], matrix.dtype)
    return lax.scan(step, start, (matrix, exponent), reverse=True, unroll=2)[1]


def blocks_to_lanes(blocks: Array) -> Array:
    """An array (block, K, N) as (K, lane)."""
    return blocks.transpose(1, 2, 0).reshape(blocks.shape[1], -1)


def _forward(lanes: Lanes, start: Array) -> tuple[Array, Array]:
    """The log evidence of lanes that are whole sequences, and whether all is in range."""

    def run(tile: Tile, start: Array) -> tuple[Array, Array]:
        def chunk(index: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            message, exponent, in_range = carry
            _, message, exponent, chunk_in_range = forward_chunk(tile, index, message, exponent)
            return message, exponent, in_range & chunk_in_range

        carry = start, jnp.zeros(tile.width, jnp.int32), jnp.ones(tile.width, bool)
        message, exponent, in_range = lax.fori_loop(0, tile.number, chunk, carry)
        return log_scaled(message.sum(0), exponent), in_range

    value, in_range = map(join_tiles, map_tiles(run, lanes, start))
    return value, in_range.all()


def forward_chunk(tile: Tile, index: Array, message: Array, exponent: Array) -> tuple[list[Array], Array, Array, Array]:
    """The forward recursion over one chunk: messages after every step, the last one scaled, its exponents, and whether
    all is in range."""
    (weight, weight_exponent), active = tile.weights(index), tile.moves(index)
    after = []
    for u in range(STEPS_PER_CHUNK):
        message = barrier(jnp.where(active[u], _multiply(message, tile.transition), message) * weight[u])
        after.append(message)
    top = message.max(0)
    scale, e = split_exponent(top)
    exponent += e + weight_exponent
    return after, message * scale, exponent, is_safe(top) & is_small(exponent)


def _forward_backward(lanes: Lanes, visits: VisitAccumulator, start: Array, end: Array) -> tuple[Array, ...]:
    """Both recursions inside of all lanes, given the messages that enter them at both ends (K, lane).

    Returns expected transitions over their probabilities (K, K, lane), visits of all tiles, the backward message that
    leaves at the beginning (K, lane), the log evidence of lanes that are whole sequences, whether all is in range, and
    whether no backward message of a state is so large that a forward one lost there would count.
    """
    states, dtype = lanes.initial.shape[-1], lanes.initial.dtype
    max_message = 2.0 ** (60 if dtype == jnp.float32 else 900)

    def run(so_far: Any, tile_index: Array, tile: Tile, start: Array, end: Array) -> tuple[Any, tuple[Array, ...]]:
        tile = with_cached_weights(tile) if lanes.weights is None else tile
        backwards = tile.transition.transpose(1, 0, 2)

        def forth(carry: tuple[Array, Array, Array], index: Array) -> tuple[Any, Any]:
            before, exponent, in_range = carry
            _, message, exponent, chunk_in_range = forward_chunk(tile, index, before, exponent)
            return (message, exponent, in_range & chunk_in_range), before

        def back(carry: tuple[Array, ...], step: tuple[Array, Array]) -> tuple[Any, None]:
            (message, transitions, in_range, bounded, visited), (index, before) = carry, step
            # Messages are computed again: that costs less than to write and read them.
            messages = [before, *forward_chunk(tile, index, before, jnp.int32(0))[0]]
            weight, active, probs, pairs = tile.weights(index)[0], tile.moves(index), [], []
            scale = sum_of_states(messages[-1] * message)
            message = barrier(message / scale)  # so that the sum over states of both messages is 1, and stays so
            for u in reversed(range(STEPS_PER_CHUNK)):
                probs.append(messages[u + 1] * message)
                weighed = barrier(weight[u] * message)
                pairs.append((barrier(jnp.where(active[u], messages[u], 0.0)), weighed))
                message = barrier(jnp.where(active[u], _multiply(weighed, backwards), weighed))
            transitions = sum((left[:, None] * right[None] for left, right in pairs), transitions)
            in_range &= is_safe(scale) & (jnp.abs(sum_of_states(before * message) - 1) < 0.5)
            bounded &= largest_entry(message) < max_message
            visited = visits.add(visited, tile, index, probs[::-1])
            return (message, transitions, in_range, bounded, visited), None

        all_true, indices = jnp.ones(tile.width, bool), jnp.arange(tile.number)
        carry = start, jnp.zeros(tile.width, jnp.int32), all_true
        (last, exponent, in_range), stored = lax.scan(forth, carry, indices)
        no_transitions = jnp.zeros((states, states, tile.width), dtype)
        begin = end, no_transitions, all_true, all_true, visits.start(so_far)
        (message, transitions, chunk_in_range, bounded, visited), _ = lax.scan(
            back, begin, (indices, stored), reverse=True
        )
        return visits.put(so_far, tile_index, visited), (
            transitions,
            message,
            log_scaled(last.sum(0), exponent),
            in_range & chunk_in_range,
            bounded,
        )

    visited, outputs = scan_tiles(run, visits.nothing(lanes), lanes, start, end)
    transitions, message, value, in_range, bounded = map(join_tiles, outputs)
    return transitions, visited, message, value, in_range.all(), bounded.all()


def _state_accumulator() -> VisitAccumulator:
    """Collects the state probabilities of all tiles (step, K), in memory (lane, chunk, step, K) that tiles share."""

    def nothing(lanes: Lanes) -> tuple[Array, Array]:
        states, (chunks, width), dtype = lanes.initial.shape[-1], lanes.tile, lanes.initial.dtype
        steps = chunks * STEPS_PER_CHUNK * lanes.moving.shape[-1]
        if len(lanes.initial) == 1 and lanes.shape[-1] >= chunks * STEPS_PER_CHUNK * width:
            steps = lanes.shape[-1]  # what pads one sequence is never written
        return jnp.zeros((steps, states), dtype), jnp.zeros((width, chunks, STEPS_PER_CHUNK, states), dtype)

    def start(so_far: tuple[Array, Array]) -> Array:
        return so_far[1]

    def add(visited: Array, tile: Tile, index: Array, probs: list[Array]) -> Array:
        for u, prob in enumerate(probs):
            visited = lax.dynamic_update_slice(visited, prob.T[:, None, None], (0, index, u, 0))
        return visited

    def put(so_far: tuple[Array, Array], index: Array, visited: Array) -> tuple[Array, Array]:
        """Writes a tile: steps of the last tile that are beyond the end come before its others, and are overwritten by
        the tile before it."""
        every, _ = so_far
        part = visited.reshape(-1, every.shape[-1])
        begin = index * len(part)
        beyond = jnp.maximum(begin + len(part) - len(every), 0)
        part = lax.cond(beyond > 0, lambda: jnp.roll(part, beyond, 0), lambda: part)
        return lax.dynamic_update_slice(every, part, (begin - beyond, 0)), visited

    def end(lanes: Lanes, so_far: tuple[Array, Array]) -> Array:
        return lanes.unpadded(so_far[0][None])

    return VisitAccumulator(nothing, start, add, put, end)


def _row_accumulator() -> VisitAccumulator:
    """Adds up the rows of factored log likelihoods, each times the probabilities of its states."""

    def nothing(lanes: Lanes) -> Array:
        states, columns, (_, width) = lanes.initial.shape[-1], lanes.evidence.shape[-2], lanes.tile
        return jnp.zeros((lanes.moving.shape[-1] // width, states, columns, width), lanes.initial.dtype)

    def start(so_far: Array) -> Array:
        return jnp.zeros(so_far.shape[1:], so_far.dtype)

    def add(visited: Array, tile: Tile, index: Array, probs: list[Array]) -> Array:
        rows = tile.rows(index)
        return visited + sum(
            (probs[u][:, None] * rows[u] for u in range(1, STEPS_PER_CHUNK)), probs[0][:, None] * rows[0]
        )

    def put(so_far: Array, index: Array, visited: Array) -> Array:
        return so_far.at[index].set(visited)

    def end(lanes: Lanes, visited: Array) -> Array:
        sums = join_tiles(visited)
        sums = sums.reshape(*sums.shape[:2], -1, lanes.blocks).sum(-1)
        return jnp.moveaxis(sums, -1, 0).reshape(*lanes.shape[:-1], *sums.shape[:2])

    return VisitAccumulator(nothing, start, add, put, end)


STATE_PROBABILITIES = _state_accumulator()
"""Collects p(z_t | all observations), (*batch, T, K)."""
EXPECTED_ROWS = _row_accumulator()
"""Collects the sums over steps of p(z_t = k | all observations) rows[t], (*batch, K, column)."""


def select_state(values: Array, state: Array) -> Array:
    """The entries values[state], where the first axis has few states, selected one after the other."""
    selected = jnp.broadcast_to(values[0], np.broadcast_shapes(values.shape[1:], state.shape))
    for k in range(1, len(values)):
        selected = jnp.where(state == k, values[k], selected)
    return selected
