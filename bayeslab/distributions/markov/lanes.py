"""A batch of sequences with log likelihoods as lanes, and tiles of lanes that advance together."""

from collections.abc import Callable
from math import log, prod
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.markov.log_likelihoods import (
    STEPS_PER_CHUNK,
    FactoredLogLikelihood,
    LogLikelihood,
    block_layout,
    lanes_per_tile,
    pad_to_blocks,
    unpad,
)
from bayeslab.distributions.markov.sequential import Active

MAX_STATES_IN_LANES = 12
"""The largest number of states for which the work of the first pass, K times that of the others, is worthwhile."""
MIN_STEPS_IN_LANES = 64
"""The smallest number of steps for which lanes are worthwhile."""
MIN_MOVES_IN_LANES = 2_000
"""Sequences times steps times moves from state to state from which on lanes, which compile long, are faster."""
MAX_ABS_EXPONENT = 2**28
"""Bound on the size of an exponent of two, so that the sum of some of them fits into an integer."""

barrier = lax.optimization_barrier
"""Keeps a step one piece of vector code, instead of several pieces that are computed again and again."""


class Lanes(NamedTuple):
    """A batch of sequences as lanes, sequence by sequence and block by block.

    initial: the initial probabilities (N, K). shape: (*batch, T). blocks: their number in a sequence.
    transition: (K, K, lane), or one matrix for all lanes.
    evidence: the log likelihoods (lane, chunk, step, K), or rows of factored ones (tile, chunk, step, column, lane),
        which several sequences may share.
    parameters: of factored log likelihoods, (K, column, lane), or the same for all lanes; else None.
    moving: the steps of a lane into which the chain moves, from the first number to before the second, (2, lane).
    weights: scaled likelihoods, if several passes need them, (tile, chunk, step, K, lane), and their exponents.
    """

    initial: Array
    shape: tuple[int, ...]
    transition: Array
    blocks: int
    evidence: Array
    parameters: Array | None
    moving: Array
    weights: tuple[Array, Array] | None = None

    @property
    def tile(self) -> tuple[int, int]:
        """The number of chunks of a lane, and of lanes that advance together."""
        lanes, chunks, *_, last = self.evidence.shape
        return chunks, lanes_per_tile(lanes) if self.parameters is None else last

    def array(self) -> Array:
        """The log likelihoods, if they are not factored, (*batch, T, K)."""
        number, chunks, steps, states = self.evidence.shape
        return self.unpadded(self.evidence.reshape(number, chunks * steps, states))

    def unpadded(self, values: Array) -> Array:
        """Values (lane, step, ...) without padding, as (*batch, T, ...)."""
        return unpad(values, self.shape)


def lanes_are_worthwhile(shape: tuple[int, ...], transition: tuple[int, ...]) -> bool:
    """Whether lanes are worthwhile: one matrix for all steps, many steps, few states, and enough work in all.

    shape, transition: the shapes (*batch, T, K) of log likelihoods and (*batch, 1 or T - 1, K, K) of matrices.
    """
    fits = transition[-3] == 1 and shape[-1] <= MAX_STATES_IN_LANES and shape[-2] >= MIN_STEPS_IN_LANES
    return fits and prod(shape) * shape[-1] >= MIN_MOVES_IN_LANES


def make_lanes(initial: Array, transition: Array, log_likelihood: LogLikelihood, active: Active) -> Lanes:
    """The lanes of a batch of sequences, for arguments as in `bayeslab.distributions.markov.inference`."""
    *batch, steps, states = log_likelihood.shape
    number = prod(batch)
    if isinstance(log_likelihood, FactoredLogLikelihood):
        rows = log_likelihood.rows.broadcast_to(log_likelihood.batch)
        blocks, size = rows.blocks, rows.size
    else:
        blocks, size = block_layout(number, steps)

    def by_lane(values: Array) -> Array:
        """Values (*batch, K, ...) as (K, ..., lane), with one lane if they are the same for all."""
        inner = values.shape[-2:]
        if values.size == prod(inner):
            return values.reshape(*inner, 1)
        values = jnp.broadcast_to(values, (*batch, *inner)).reshape(number, *inner)
        return jnp.repeat(values, blocks, 0).transpose(1, 2, 0)

    if isinstance(log_likelihood, FactoredLogLikelihood):
        values, parameters = rows.laid.reshape(-1, *rows.laid.shape[-4:]), by_lane(log_likelihood.parameters)
    else:
        values, parameters = (
            pad_to_blocks(log_likelihood, blocks, size).reshape(number * blocks, -1, STEPS_PER_CHUNK, states),
            None,
        )
        values = barrier(values)  # so that it is in memory once, however many passes need it
    num_active = jnp.array(steps) if active is None else 1 + active.sum(-1)
    num_active = jnp.broadcast_to(num_active, batch).reshape(number, 1)
    steps_before = size * jnp.arange(blocks)
    active = jnp.stack([jnp.broadcast_to(1 - steps_before, (number, blocks)), num_active - steps_before])
    return Lanes(
        jnp.broadcast_to(initial, (*batch, states)).reshape(number, states),
        (*batch, steps),
        by_lane(transition[..., 0, :, :]),
        blocks,
        values,
        parameters,
        active.reshape(2, -1).astype(jnp.int32),
    )


class Tile(NamedTuple):
    """Lanes that advance together.

    transition: (K, K, lane), or one matrix for all lanes. width: the number of lanes. number: the number of chunks.
    rows: chunk -> rows of factored log likelihoods, (step, column, lane).
    at: chunk -> log likelihoods (step, K, lane).
    moves: chunk -> whether the chain moves into a step, (step, lane).
    weights: chunk -> scaled likelihoods and exponents, as of `_scaled_likelihoods`.
    """

    transition: Array
    width: int
    number: int
    rows: Callable[[Array], Array]
    at: Callable[[Array], Array]
    moves: Callable[[Array], Array]
    weights: Callable[[Array], tuple[Array, Array]]


def map_tiles(function: Callable[..., Any], lanes: Lanes, *arrays: Array) -> Any:
    """The results of function(tile, *arrays) of all tiles, (tile, ...). Lanes are the last axis of arrays."""

    def apply(so_far: None, index: Array, *arguments: Any) -> tuple[None, Any]:
        return None, function(*arguments)

    return scan_tiles(apply, None, lanes, *arrays)[1]


def scan_tiles(function: Callable[..., tuple[Any, Any]], initial: Any, lanes: Lanes, *arrays: Array) -> tuple[Any, Any]:
    """The last carry and the outputs (tile, ...) of a scan over tiles, from the last to the first.

    function: (carry so far, index of the tile, tile, *arrays) -> (carry, output). Lanes are the last axis of arrays.
    """
    number, (chunks, width) = lanes.moving.shape[-1], lanes.tile

    def step(so_far: Any, index: Array) -> tuple[Any, Any]:
        def part(x: Array) -> Array:
            return x if x.shape[-1] == 1 else lax.dynamic_slice_in_dim(x, index * width, width, -1)

        def rows(chunk: Array) -> Array:
            return lanes.evidence[index % len(lanes.evidence), chunk]

        def at(chunk: Array) -> Array:
            if parameters is not None:
                row = rows(chunk)
                first, *others = (row[:, j, None] * parameters[:, j] for j in range(row.shape[1]))
                return sum(others, first)
            states = lanes.evidence.shape[-1]
            block = lax.dynamic_slice(lanes.evidence, (index * width, chunk, 0, 0), (width, 1, STEPS_PER_CHUNK, states))
            return block.reshape(width, -1).T.reshape(STEPS_PER_CHUNK, states, width)

        def moves(chunk: Array) -> Array:
            steps = chunk * STEPS_PER_CHUNK + jnp.arange(STEPS_PER_CHUNK, dtype=jnp.int32)[:, None]
            first, end = part(lanes.moving)
            return (steps >= first) & (steps < end)

        def weights(chunk: Array) -> tuple[Array, Array]:
            if lanes.weights is None:
                return _scaled_likelihoods(at(chunk))
            weight, exponent = lanes.weights
            return weight[index, chunk], exponent[index, chunk]

        parameters = None if lanes.parameters is None else part(lanes.parameters)
        tile = Tile(part(lanes.transition), width, chunks, rows, at, moves, weights)
        return function(so_far, index, tile, *map(part, arrays))

    return lax.scan(step, initial, jnp.arange(number // width), reverse=True)


def with_weights(lanes: Lanes) -> Lanes:
    """Lanes whose scaled likelihoods are computed once, for several passes.

    Factored ones are rather computed again: those of a whole series lie farther away in memory than those of a tile.
    """
    return lanes._replace(weights=map_tiles(_weights_of_chunks, lanes))


def with_cached_weights(tile: Tile) -> Tile:
    """A tile whose scaled likelihoods are computed once, for both directions."""
    weight, exponent = _weights_of_chunks(tile)
    return tile._replace(weights=lambda chunk: (weight[chunk], exponent[chunk]))


def _weights_of_chunks(tile: Tile) -> tuple[Array, Array]:
    """The scaled likelihoods of all chunks of a tile."""
    return lax.map(tile.weights, jnp.arange(tile.number))


def join_tiles(x: Array) -> Array:
    """An array (tile, ..., lane) with the lanes of all tiles on one axis, the last."""
    return jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)


def _scaled_likelihoods(log_likelihood: Array) -> tuple[Array, Array]:
    """Likelihoods over the power of two next to the largest of a step, and its exponents, added up over the steps."""
    peak = log_likelihood.max(1)
    exponent = jnp.round(peak / log(2))
    exponent = jnp.where(jnp.isfinite(exponent), exponent, 0.0)
    weight = jnp.exp(log_likelihood - (exponent * log(2))[:, None])
    return barrier(weight), jnp.clip(exponent.sum(0), -MAX_ABS_EXPONENT, MAX_ABS_EXPONENT).astype(jnp.int32)
