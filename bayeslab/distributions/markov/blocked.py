"""The recursions of many steps at once, for processors with vector units: blocks of time as lanes.

The steps of a sequence are cut into blocks that advance together, a block a lane; sequences of a batch are lanes too.
What a block does to a message is a K x K matrix. A first pass finds the matrices of all blocks, a short recursion over
blocks the messages that enter and leave each of them, and the ordinary recursions follow inside of all blocks at once.
Numbers are kept in range every few steps: forwards by exact powers of two, so no logarithm is taken on the way and the
evidence keeps its digits over a million steps, backwards by the messages that came forwards.

Between two of those a number may leave the range of floats, and the sum of exponents that of integers. `kept` says
whether none came near that: if not, the recursions of `markov_recursions`, which look at every step, have the answer.
A state that is lost below the range counts where the chain cannot get from elsewhere to where it goes (`mixes`), and
what comes after it is beyond the range: so they have it, too, if there are zeros and that is seen or cannot be.

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
    gathered,
    joined,
    remembering,
    tiled,
    with_weights,
)
from bayeslab.distributions.markov.log_likelihoods import UNROLLED
from bayeslab.distributions.markov.scaling import largest_entry, log_of, near, ranged, safe, sum_of_states
from bayeslab.distributions.markov.sequential import power, power_of_two


class Counts(NamedTuple):
    """Expected counts given all evidence: of first states over their prior (N, K), of moves over their probabilities
    (N, K, K), of `Visits`; the log of the evidence (N,); whether all numbers kept their range."""

    log_marginal: Array
    first: Array
    moves: Array
    visits: Array
    kept: Array


def log_marginal(lanes: Lanes) -> tuple[Array, Array]:
    """(*batch,), and whether all numbers kept their range."""
    if lanes.blocks > 1:
        _, last, exponent, kept = entering(lanes.initial, *transfers(lanes))
        found, kept = log_of(sum_of_states(last), exponent), kept.all()
    else:
        found, kept = _forward(lanes, lanes.initial.T)
    return found.reshape(lanes.shape[:-1]), kept & mixes(lanes)


def mixes(lanes: Lanes) -> Array:
    """Whether every state follows every other, with probabilities beside which what is below the range is nothing."""
    return (lanes.transition > 2.0 ** (-40 if lanes.transition.dtype == jnp.float32 else -200)).all()


class Visits(NamedTuple):
    """What is kept of the probabilities of states at every step.

    nothing: lanes -> what there is of all tiles, before any. start: that -> what there is of a tile, before any.
    add: (what there is of it, tile, chunk, probabilities of steps (K, lane)) -> more of it. put: (what there is of all
    tiles, place of the tile, what there is of it) -> more of that, tiles from the last to the first.
    end: (lanes, that) -> the result.
    """

    nothing: Callable[[Lanes], Any]
    start: Callable[[Any], Array]
    add: Callable[[Array, Tile, Array, list[Array]], Array]
    put: Callable[[Any, Array, Array], Any]
    end: Callable[[Lanes, Any], Array]


def counts(lanes: Lanes, visits: Visits) -> Counts:
    """The evidence and its derivatives, see `Counts`."""
    if lanes.parameters is None and lanes.blocks > 1:
        lanes = with_weights(lanes)
    initial, blocks, batch = lanes.initial, lanes.blocks, lanes.shape[:-1]
    number, states = initial.shape
    kept = jnp.array(True)
    start, end = initial.T, jnp.ones_like(initial.T)
    if blocks > 1:
        matrices = transfers(lanes)
        messages, last, exponent, kept = entering(initial, *matrices)
        found, kept = log_of(sum_of_states(last), exponent), kept.all()
        start, end = lanes_from(messages), lanes_from(_leaving(*matrices))
    moved, visited, back, within, safely, bounded = _inside(lanes, visits, start, end)
    safely &= mixes(lanes) | (bounded if blocks == 1 else False)
    first = back.reshape(states, number, blocks)[..., 0].T
    first = first / (initial * first).sum(-1, keepdims=True)
    moved = moved.reshape(states, states, number, blocks).sum(-1).transpose(2, 0, 1)
    shaped = first.reshape(*batch, states), moved.reshape(*batch, 1, states, states)
    found = found if blocks > 1 else within
    return Counts(found.reshape(batch), *shaped, visits.end(lanes, visited), kept & safely)


def _times(message: Array, matrix: Array) -> Array:
    """Messages (..., K, lane) times matrices (K, K, lane), one state to come from after the other."""
    return sum(
        (message[..., k, None, :] * matrix[k] for k in range(1, len(matrix))), message[..., 0, None, :] * matrix[0]
    )


def transfers(lanes: Lanes) -> tuple[Array, Array, Array]:
    """What a block does to a message that enters it: (block, K, K, N), exponents of rows (block, K, N), whether all
    is kept."""
    states, dtype = lanes.initial.shape[-1], lanes.initial.dtype

    def run(tile: Tile) -> tuple[Array, Array, Array]:
        def chunk(place: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            matrix, exponent, kept = carry
            (weight, more), moves = tile.weights(place), tile.moves(place)
            for u in range(UNROLLED):
                matrix = jnp.where(moves[u], _times(matrix, tile.transition), matrix)
                matrix = barrier(matrix * weight[u])
            top = matrix.max(1)
            scale, e = power(top)
            exponent += e + more
            return matrix * scale[:, None], exponent, kept & (safe(top) & near(exponent)).all(0)

        one = jnp.broadcast_to(jnp.eye(states, dtype=dtype)[..., None], (states, states, tile.width))
        start = one, jnp.zeros((states, tile.width), jnp.int32), jnp.ones(tile.width, bool)
        return lax.fori_loop(0, tile.number, chunk, start)

    matrix, exponent, kept = map(joined, tiled(run, lanes))
    matrix = matrix.reshape(states, states, -1, lanes.blocks).transpose(3, 0, 1, 2)
    return matrix, exponent.reshape(states, -1, lanes.blocks).transpose(2, 0, 1), kept.all()


def entering(initial: Array, matrix: Array, exponent: Array, kept: Array) -> tuple[Array, Array, Array, Array]:
    """The message that enters every block (block, K, N), the last that leaves one and its exponent, (K, N) and (N,),
    whether all is kept, (N,)."""

    def step(carry: tuple[Array, Array, Array], given: tuple[Array, Array]) -> tuple[Any, Array]:
        (message, before, kept), (matrix, exponent) = carry, given
        in_range, top = ranged(message, exponent)
        new = barrier(_times(barrier(in_range), matrix))
        peak = largest_entry(new)
        scale, e = power(peak)
        exponent = before + top + e
        return (new * scale, exponent, kept & safe(peak) & near(exponent)), message

    number = len(initial)
    start = initial.T, jnp.zeros(number, jnp.int32), jnp.broadcast_to(kept, number)
    (last, total, kept), messages = lax.scan(step, start, (matrix, exponent), unroll=2)
    return messages, last, total, kept


def _leaving(matrix: Array, exponent: Array, kept: Array) -> Array:
    """The message that comes back into the end of every block (block, K, N), up to its scale."""

    def step(message: Array, given: tuple[Array, Array]) -> tuple[Array, Array]:
        matrix, exponent = given
        new = _times(message, jnp.swapaxes(matrix, 0, 1)) * power_of_two(
            exponent - largest_entry(exponent), message.dtype
        )
        new = barrier(new)
        return new * power(largest_entry(new))[0], message

    start = jnp.ones(matrix.shape[2:], matrix.dtype)
    return lax.scan(step, start, (matrix, exponent), reverse=True, unroll=2)[1]


def lanes_from(blocks: Array) -> Array:
    """(block, K, N) as (K, lane)."""
    return blocks.transpose(1, 2, 0).reshape(blocks.shape[1], -1)


def _forward(lanes: Lanes, start: Array) -> tuple[Array, Array]:
    """The log of the evidence of lanes that are whole sequences, and whether all is kept."""

    def run(tile: Tile, start: Array) -> tuple[Array, Array]:
        def chunk(place: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            message, exponent, kept = carry
            _, message, exponent, safely = ahead(tile, place, message, exponent)
            return message, exponent, kept & safely

        carry = start, jnp.zeros(tile.width, jnp.int32), jnp.ones(tile.width, bool)
        message, exponent, kept = lax.fori_loop(0, tile.number, chunk, carry)
        return log_of(message.sum(0), exponent), kept

    found, kept = map(joined, tiled(run, lanes, start))
    return found, kept.all()


def ahead(tile: Tile, place: Array, message: Array, exponent: Array) -> tuple[list[Array], Array, Array, Array]:
    """A chunk forward: messages after every step, the last in range, its exponents, whether all is kept."""
    (weight, more), moves = tile.weights(place), tile.moves(place)
    after = []
    for u in range(UNROLLED):
        message = barrier(jnp.where(moves[u], _times(message, tile.transition), message) * weight[u])
        after.append(message)
    top = message.max(0)
    scale, e = power(top)
    exponent += e + more
    return after, message * scale, exponent, safe(top) & near(exponent)


def _inside(lanes: Lanes, visits: Visits, start: Array, end: Array) -> tuple[Array, ...]:
    """Both recursions inside of all lanes, given what enters them at both ends (K, lane).

    Expected moves over their probabilities (K, K, lane), visits of all tiles, the message that leaves at the
    beginning (K, lane), the log of the evidence of lanes that are whole sequences, whether all is kept, and whether no
    message that comes back to a state is so large that one lost there would count.
    """
    states, dtype = lanes.initial.shape[-1], lanes.initial.dtype
    largest = 2.0 ** (60 if dtype == jnp.float32 else 900)

    def run(so_far: Any, at: Array, tile: Tile, start: Array, end: Array) -> tuple[Any, tuple[Array, ...]]:
        tile = remembering(tile) if lanes.weights is None else tile
        backwards = tile.transition.transpose(1, 0, 2)

        def forth(carry: tuple[Array, Array, Array], place: Array) -> tuple[Any, Any]:
            before, exponent, kept = carry
            _, message, exponent, safely = ahead(tile, place, before, exponent)
            return (message, exponent, kept & safely), before

        def back(carry: tuple[Array, ...], given: tuple[Array, Array]) -> tuple[Any, None]:
            (message, moved, kept, bounded, visited), (place, before) = carry, given
            at = [before, *ahead(tile, place, before, jnp.int32(0))[0]]  # again: less than to write and read them
            weight, moves, found, pairs = tile.weights(place)[0], tile.moves(place), [], []
            both = sum_of_states(at[-1] * message)
            message = barrier(message / both)  # what messages from both sides agree on is 1 now, and stays so
            for u in reversed(range(UNROLLED)):
                found.append(at[u + 1] * message)
                weighed = barrier(weight[u] * message)
                pairs.append((barrier(jnp.where(moves[u], at[u], 0.0)), weighed))
                message = barrier(jnp.where(moves[u], _times(weighed, backwards), weighed))
            moved = sum((here[:, None] * there[None] for here, there in pairs), moved)
            kept &= safe(both) & (jnp.abs(sum_of_states(before * message) - 1) < 0.5)
            bounded &= largest_entry(message) < largest
            visited = visits.add(visited, tile, place, found[::-1])
            return (message, moved, kept, bounded, visited), None

        yes, places = jnp.ones(tile.width, bool), jnp.arange(tile.number)
        carry = start, jnp.zeros(tile.width, jnp.int32), yes
        (last, exponent, kept), stored = lax.scan(forth, carry, places)
        none = jnp.zeros((states, states, tile.width), dtype)
        begin = end, none, yes, yes, visits.start(so_far)
        (message, moved, safely, bounded, visited), _ = lax.scan(back, begin, (places, stored), reverse=True)
        return visits.put(so_far, at, visited), (moved, message, log_of(last.sum(0), exponent), kept & safely, bounded)

    visited, rest = gathered(run, visits.nothing(lanes), lanes, start, end)
    moved, message, found, kept, bounded = map(joined, rest)
    return moved, visited, message, found, kept.all(), bounded.all()


def _every_state() -> Visits:
    """Of a tile (lane, chunk, step, K), in memory that is there for all tiles, beside that of all of them (step, K)."""

    def nothing(lanes: Lanes) -> tuple[Array, Array]:
        states, (chunks, width), dtype = lanes.initial.shape[-1], lanes.tile, lanes.initial.dtype
        steps = chunks * UNROLLED * lanes.moving.shape[-1]
        if len(lanes.initial) == 1 and lanes.shape[-1] >= chunks * UNROLLED * width:
            steps = lanes.shape[-1]  # what pads one sequence is never written
        return jnp.zeros((steps, states), dtype), jnp.zeros((width, chunks, UNROLLED, states), dtype)

    def start(so_far: tuple[Array, Array]) -> Array:
        return so_far[1]

    def add(visited: Array, tile: Tile, place: Array, probs: list[Array]) -> Array:
        for u, each in enumerate(probs):
            visited = lax.dynamic_update_slice(visited, each.T[:, None, None], (0, place, u, 0))
        return visited

    def put(so_far: tuple[Array, Array], place: Array, visited: Array) -> tuple[Array, Array]:
        """Steps of the last tile that are beyond the end come before the others, and those of the tile before it over
        them."""
        every, _ = so_far
        part = visited.reshape(-1, every.shape[-1])
        begin = place * len(part)
        beyond = jnp.maximum(begin + len(part) - len(every), 0)
        part = lax.cond(beyond > 0, lambda: jnp.roll(part, beyond, 0), lambda: part)
        return lax.dynamic_update_slice(every, part, (begin - beyond, 0)), visited

    def end(lanes: Lanes, so_far: tuple[Array, Array]) -> Array:
        return lanes.unpadded(so_far[0][None])

    return Visits(nothing, start, add, put, end)


def _expected_rows() -> Visits:
    def nothing(lanes: Lanes) -> Array:
        states, columns, (_, width) = lanes.initial.shape[-1], lanes.evidence.shape[-2], lanes.tile
        return jnp.zeros((lanes.moving.shape[-1] // width, states, columns, width), lanes.initial.dtype)

    def start(so_far: Array) -> Array:
        return jnp.zeros(so_far.shape[1:], so_far.dtype)

    def add(visited: Array, tile: Tile, place: Array, probs: list[Array]) -> Array:
        rows = tile.rows(place)
        return visited + sum((probs[u][:, None] * rows[u] for u in range(1, UNROLLED)), probs[0][:, None] * rows[0])

    def put(so_far: Array, place: Array, visited: Array) -> Array:
        return so_far.at[place].set(visited)

    def end(lanes: Lanes, visited: Array) -> Array:
        found = joined(visited)
        found = found.reshape(*found.shape[:2], -1, lanes.blocks).sum(-1)
        return jnp.moveaxis(found, -1, 0).reshape(*lanes.shape[:-1], *found.shape[:2])

    return Visits(nothing, start, add, put, end)


EVERY_STATE = _every_state()
"""p(z_t | all evidence), (*batch, T, K)."""
EXPECTED_ROWS = _expected_rows()
"""Added up over rows of a product, each times its probability, (*batch, K, column)."""


def picked(values: Array, state: Array) -> Array:
    """values[state], an axis of few states, one after the other."""
    found = jnp.broadcast_to(values[0], np.broadcast_shapes(values.shape[1:], state.shape))
    for k in range(1, len(values)):
        found = jnp.where(state == k, values[k], found)
    return found
