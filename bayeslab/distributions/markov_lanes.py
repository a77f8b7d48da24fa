"""The recursions of many steps at once, for processors with vector units: blocks of time as lanes.

The steps of a sequence are cut into blocks that advance together, a block a lane; sequences of a batch are lanes too.
What a block does to a message is a K x K matrix. A first pass finds the matrices of all blocks, a short recursion over
blocks the messages that enter and leave each of them, and the ordinary recursions follow inside of all blocks at once.
Numbers are kept in range by exact powers of two, every few steps, so no logarithm is taken on the way and the evidence
keeps its digits over a million steps.

Between two of those a number may leave the range of floats, and the sum of exponents that of integers. `kept` says
whether none came near that: if not, the recursions of `markov_recursions`, which look at every step, have the answer.

Steps that do not move leave a message as it is: the first step of a sequence, and what pads it to full blocks.
"""

from collections.abc import Callable
from functools import reduce
from math import log, log2, prod
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from bayeslab.distributions.markov_recursions import Moving

UNROLLED = 4
"""Steps between two looks at the range."""
TILE = 64
"""Lanes that advance together, at most: what they need stays in the nearest cache."""
VECTOR = 8  # of which their number is a multiple
ENOUGH = 16
"""Sequences that are enough lanes, so that blocks would only add work."""
STATES = 12
"""The most states for which the work of the first pass, K times that of the others, pays."""
STEPS = 64
"""The fewest steps for which anything of this pays."""

FARTHEST = 2**28
"""The largest exponent of two, of which some fit into an integer."""

barrier = lax.optimization_barrier  # keeps a step one piece of vector code, instead of several computed again and again


class Lanes(NamedTuple):
    """A batch of sequences as lanes, sequence by sequence and block by block.

    initial: (N, K). blocks: of a sequence. shape: (*batch, T).
    transition: (K, K, lane), or 1 for all. evidence: (lane, chunk, step, K). moves: into a step, (lane, chunk, step).
    weights: what `_weights` makes of the evidence, if several passes look for it, (tile, chunk, step, K, lane) and
    exponents (tile, chunk, lane).
    """

    initial: Array
    blocks: int
    shape: tuple[int, ...]
    transition: Array
    evidence: Array
    moves: Array
    weights: tuple[Array, Array] | None = None

    def unpadded(self, values: Array) -> Array:
        """(*batch, T, ...) of values (lane, step, ...)."""
        inner = values.shape[2:]
        return values.reshape(len(self.initial), -1, *inner)[:, : self.shape[-1]].reshape(*self.shape, *inner)

    def given(self) -> Array:
        """The evidence again, (*batch, T, K)."""
        number, chunks, steps, states = self.evidence.shape
        return self.unpadded(self.evidence.reshape(number, chunks * steps, states))


class Counts(NamedTuple):
    """Expected counts given all evidence: of first states over their prior (N, K), of moves over their probabilities
    (N, K, K), of states at every step (N, T, K); the log of the evidence (N,); whether all numbers kept their range."""

    log_marginal: Array
    first: Array
    moves: Array
    states: Array
    kept: Array


def pays(evidence: tuple[int, ...], transition: tuple[int, ...]) -> bool:
    """Whether arrays of these shapes are worth cutting into lanes: one matrix for all steps, and enough of them."""
    return transition[-3] == 1 and evidence[-1] <= STATES and evidence[-2] >= STEPS


def log_marginal(lanes: Lanes) -> tuple[Array, Array]:
    """(*batch,), and whether all numbers kept their range."""
    if lanes.blocks > 1:
        _, last, exponent, kept = entering(lanes.initial, *transfers(lanes))
        found, kept = _log(_sum(last), exponent), kept.all()
    else:
        found, kept = _forward(lanes, lanes.initial.T)
    return found.reshape(lanes.shape[:-1]), kept


def counts(lanes: Lanes) -> Counts:
    """The evidence and its derivatives, see `Counts`."""
    lanes = with_weights(lanes)
    initial, blocks, batch = lanes.initial, lanes.blocks, lanes.shape[:-1]
    number, states = initial.shape
    kept = jnp.array(True)
    start, end = initial.T, jnp.ones_like(initial.T)
    if blocks > 1:
        matrices = transfers(lanes)
        messages, last, exponent, kept = entering(initial, *matrices)
        found, kept = _log(_sum(last), exponent), kept.all()
        start, end = lanes_from(messages), lanes_from(_leaving(*matrices))
    moved, visited, back, within, safely = _inside(lanes, start, end)
    first = back.reshape(states, number, blocks)[..., 0].T
    first = first / (initial * first).sum(-1, keepdims=True)
    moved = moved.reshape(states, states, number, blocks).sum(-1).transpose(2, 0, 1)
    shaped = first.reshape(*batch, states), moved.reshape(*batch, 1, states, states)
    found = found if blocks > 1 else within
    return Counts(found.reshape(batch), *shaped, lanes.unpadded(visited), kept & safely)


def lanes_of(initial: Array, transition: Array, evidence: Array, moving: Moving) -> Lanes:
    *batch, steps, states = evidence.shape
    number = prod(batch)
    blocks = 1 if number >= ENOUGH else 1 << round(log2(steps) / 2)
    chunks = -(-steps // (blocks * UNROLLED))
    padding = blocks * chunks * UNROLLED - steps
    evidence = jnp.pad(evidence.reshape(number, steps, states), ((0, 0), (0, padding), (0, 0)))
    moves = jnp.broadcast_to(True if moving is None else moving, (*batch, steps - 1)).reshape(number, steps - 1)
    moves = jnp.pad(moves, ((0, 0), (1, padding)))
    matrix = transition.reshape(-1, states, states)
    if len(matrix) > 1:
        matrix = jnp.broadcast_to(transition, (*batch, 1, states, states)).reshape(number, states, states)
        matrix = jnp.repeat(matrix, blocks, 0)
    return Lanes(
        jnp.broadcast_to(initial, (*batch, states)).reshape(number, states),
        blocks,
        (*batch, steps),
        matrix.transpose(1, 2, 0),
        barrier(evidence.reshape(number * blocks, chunks, UNROLLED, states)),  # in memory once, whoever looks for it
        moves.reshape(number * blocks, chunks, UNROLLED),
    )


class Tile(NamedTuple):
    """Lanes that advance together. transition: (K, K, lane), or 1 for all. number: of chunks.

    at: chunk -> evidence (step, K, lane).
    moves: chunk -> whether to move into a step (step, lane).
    weights: chunk -> see `_weights`.
    """

    transition: Array
    width: int
    number: int
    at: Callable[[Array], Array]
    moves: Callable[[Array], Array]
    weights: Callable[[Array], tuple[Array, Array]]


def tiled(function: Callable[..., Any], lanes: Lanes, *more: Array) -> Any:
    """function(tile, *more), a tile after the other, (tile, ...). Lanes are the last axis of `more`."""
    number, chunks, _, states = lanes.evidence.shape
    width = max((some for some in range(VECTOR, TILE + 1, VECTOR) if number % some == 0), default=number)

    def one(place: Array) -> Any:
        def at(chunk: Array) -> Array:
            evidence = lax.dynamic_slice(lanes.evidence, (place, chunk, 0, 0), (width, 1, UNROLLED, states))
            return evidence.reshape(width, -1).T.reshape(UNROLLED, states, width)

        def moves(chunk: Array) -> Array:
            return lax.dynamic_slice(lanes.moves, (place, chunk, 0), (width, 1, UNROLLED))[:, 0].T

        def weights(chunk: Array) -> tuple[Array, Array]:
            if lanes.weights is None:
                return _weights(at(chunk))
            weight, exponent = lanes.weights
            return weight[place // width, chunk], exponent[place // width, chunk]

        def cut(x: Array) -> Array:
            return x if x.shape[-1] == 1 else lax.dynamic_slice_in_dim(x, place, width, -1)

        return function(Tile(cut(lanes.transition), width, chunks, at, moves, weights), *map(cut, more))

    return lax.map(one, jnp.arange(0, number, width))


def with_weights(lanes: Lanes) -> Lanes:
    """Lanes whose weights are found once, for several passes."""

    def run(tile: Tile) -> tuple[Array, Array]:
        return lax.map(tile.weights, jnp.arange(tile.number))

    return lanes._replace(weights=tiled(run, lanes))


def joined(x: Array) -> Array:
    """The lanes of all tiles (tile, ..., lane) on one axis, the last."""
    return jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)


def _weights(evidence: Array) -> tuple[Array, Array]:
    """exp(evidence) over a power of two that its largest state has, and the exponents, added up over the steps."""
    peak = evidence.max(1)
    exponent = jnp.round(peak / log(2))
    exponent = jnp.where(jnp.isfinite(exponent), exponent, 0.0)
    weight = jnp.exp(evidence - (exponent * log(2))[:, None])
    return barrier(weight), jnp.clip(exponent.sum(0), -FARTHEST, FARTHEST).astype(jnp.int32)


def _power(x: Array) -> tuple[Array, Array]:
    """2^-e and e, the exponent of x > 0 as its bits have it."""
    whole, digits, bias = (jnp.int32, 23, 127) if x.dtype == jnp.float32 else (jnp.int64, 52, 1023)
    e = jnp.clip((lax.bitcast_convert_type(x, whole) >> digits) - bias, 1 - bias, bias - 1)
    return lax.bitcast_convert_type((bias - e) << digits, x.dtype), e.astype(jnp.int32)


def safe(x: Array) -> Array:
    """Whether a number that began near 1 is far from the end of the range, so that others beside it kept theirs."""
    return x > 2.0 ** (-60 if x.dtype == jnp.float32 else -700)


def near(exponent: Array) -> Array:
    return jnp.abs(exponent) < FARTHEST


def _times(message: Array, matrix: Array) -> Array:
    """Messages (..., K, lane) times matrices (K, K, lane), one state to come from after the other."""
    return sum(
        (message[..., k, None, :] * matrix[k] for k in range(1, len(matrix))), message[..., 0, None, :] * matrix[0]
    )


def transfers(lanes: Lanes) -> tuple[Array, Array, Array]:
    """What a block does to a message that enters it: (block, K, K, N), exponents of rows (block, K, N), whether all
    is kept."""
    states, dtype = lanes.evidence.shape[-1], lanes.evidence.dtype

    def run(tile: Tile) -> tuple[Array, Array, Array]:
        def chunk(place: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            matrix, exponent, kept = carry
            (weight, more), moves = tile.weights(place), tile.moves(place)
            for u in range(UNROLLED):
                matrix = jnp.where(moves[u], _times(matrix, tile.transition), matrix)
                matrix = barrier(matrix * weight[u])
            top = matrix.max(1)
            scale, e = _power(top)
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
        peak = _most(new)
        scale, e = _power(peak)
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
        new = _times(message, jnp.swapaxes(matrix, 0, 1)) * _scaled(exponent - _most(exponent), message.dtype)
        new = barrier(new)
        return new * _power(_most(new))[0], message

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
        return _log(message.sum(0), exponent), kept

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
    scale, e = _power(top)
    exponent += e + more
    return after, message * scale, exponent, safe(top) & near(exponent)


def _inside(lanes: Lanes, start: Array, end: Array) -> tuple[Array, ...]:
    """Both recursions inside of all lanes, given what enters them at both ends (K, lane).

    Expected moves over their probabilities (K, K, lane), states (lane, step, K), the message that leaves at the
    beginning (K, lane), the log of the evidence of lanes that are whole sequences, and whether all is kept.
    """
    states, dtype = lanes.evidence.shape[-1], lanes.evidence.dtype

    def run(tile: Tile, start: Array, end: Array) -> tuple[Array, ...]:
        backwards = tile.transition.transpose(1, 0, 2)

        def forth(carry: tuple[Array, Array, Array], place: Array) -> tuple[Any, Any]:
            before, exponent, kept = carry
            _, message, exponent, safely = ahead(tile, place, before, exponent)
            return (message, exponent, kept & safely), before

        def back(carry: tuple[Array, ...], given: tuple[Array, Array]) -> tuple[Any, None]:
            (message, moved, kept, states), (place, before) = carry, given
            at = [before, *ahead(tile, place, before, jnp.int32(0))[0]]  # again: less than to write and read them
            weight, moves, found = tile.weights(place)[0], tile.moves(place), []
            for u in reversed(range(UNROLLED)):
                joint = at[u + 1] * message
                each = 1 / _sum(joint)
                kept &= safe(1 / each)  # messages from both sides agree on states that they keep
                found.append(joint * each)
                weighed = barrier(weight[u] * message)
                moved = moved + jnp.where(moves[u], at[u] * each, 0.0)[:, None] * weighed[None]
                message = barrier(jnp.where(moves[u], _times(weighed, backwards), weighed))
            top = message.max(0)
            visited = jnp.stack(found[::-1]).reshape(-1, tile.width).T
            states = lax.dynamic_update_slice(states, visited[:, None], (0, place, 0))
            return (message * _power(top)[0], moved, kept & safe(top), states), None

        yes, places = jnp.ones(tile.width, bool), jnp.arange(tile.number)
        carry = start, jnp.zeros(tile.width, jnp.int32), yes
        (last, exponent, kept), stored = lax.scan(forth, carry, places)
        none = jnp.zeros((states, states, tile.width), dtype)
        nowhere = jnp.zeros((tile.width, tile.number, UNROLLED * states), dtype)
        (message, moved, safely, visited), _ = lax.scan(back, (end, none, yes, nowhere), (places, stored), reverse=True)
        return moved, message, _log(last.sum(0), exponent), kept & safely, visited

    *rest, visited = tiled(run, lanes, start, end)
    moved, message, found, kept = map(joined, rest)
    return moved, visited.reshape(len(lanes.evidence), -1, states), message, found, kept.all()


def picked(values: Array, state: Array) -> Array:
    """values[state], an axis of few states, one after the other."""
    found = jnp.broadcast_to(values[0], np.broadcast_shapes(values.shape[1:], state.shape))
    for k in range(1, len(values)):
        found = jnp.where(state == k, values[k], found)
    return found


def _most(x: Array) -> Array:
    """Of the states, one after the other."""
    return reduce(jnp.maximum, x[1:], x[0])


def _sum(x: Array) -> Array:
    """Over the states, one after the other."""
    return sum((x[k] for k in range(1, len(x))), x[0])


def ranged(x: Array, exponent: Array) -> tuple[Array, Array]:
    """x 2^exponent (K, lane) over 2^top, and top, the largest exponent of those that are not zero."""
    top = _most(jnp.where(x > 0, exponent, jnp.iinfo(jnp.int32).min // 2))
    return x * _scaled(exponent - top, x.dtype), top


def _scaled(exponent: Array, dtype: Any) -> Array:
    """2^exponent for exponents of at most 0."""
    return jnp.exp2(jnp.maximum(exponent, jnp.finfo(dtype).minexp).astype(dtype))


def _log(x: Array, exponent: Array) -> Array:
    return jnp.log(x) + exponent.astype(x.dtype) * log(2)
