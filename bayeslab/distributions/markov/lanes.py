"""A batch of sequences with evidence as lanes, and tiles of them that advance together: for `markov_lanes`."""

from collections.abc import Callable
from math import log, prod
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.markov.log_likelihoods import (
    UNROLLED,
    Evidence,
    ProductEvidence,
    cut,
    in_blocks,
    unpadded,
    width_of,
)
from bayeslab.distributions.markov.sequential import Moving

STATES = 12
"""The most states for which the work of the first pass, K times that of the others, pays."""
STEPS = 64
"""The fewest steps for which anything of this pays."""
FARTHEST = 2**28
"""The largest exponent of two, of which some fit into an integer."""

barrier = lax.optimization_barrier  # keeps a step one piece of vector code, instead of several computed again and again


class Lanes(NamedTuple):
    """A batch of sequences as lanes, sequence by sequence and block by block.

    initial: (N, K). shape: (*batch, T). transition: (K, K, lane), or 1 for all. blocks: of a sequence.
    evidence: (lane, chunk, step, K); of a product its rows (tile, chunk, step, column, lane), which several sequences
    may share. parameters: of a product (K, column, lane), or 1 for all; else None.
    moving: the steps of a lane into which it moves, from the first to before the second, (2, lane).
    weights: what `_weights` makes of the evidence, if several passes look for it, (tile, chunk, step, K, lane) and
    exponents (tile, chunk, lane).
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
        """Chunks, and lanes that advance together."""
        lanes, chunks, *_, last = self.evidence.shape
        return chunks, width_of(lanes) if self.parameters is None else last

    def array(self) -> Array:
        """Evidence that is no product again, (*batch, T, K)."""
        number, chunks, steps, states = self.evidence.shape
        return self.unpadded(self.evidence.reshape(number, chunks * steps, states))

    def unpadded(self, values: Array) -> Array:
        """(*batch, T, ...) of values (lane, step, ...)."""
        return unpadded(values, self.shape)


def pays(evidence: tuple[int, ...], transition: tuple[int, ...]) -> bool:
    """Whether arrays of these shapes are worth cutting into lanes: one matrix for all steps, and enough of them."""
    return transition[-3] == 1 and evidence[-1] <= STATES and evidence[-2] >= STEPS


def lanes_of(initial: Array, transition: Array, evidence: Evidence, moving: Moving) -> Lanes:
    *batch, steps, states = evidence.shape
    number = prod(batch)
    if isinstance(evidence, ProductEvidence):
        rows = evidence.rows.repeated(evidence.batch)
        blocks, size = rows.blocks, rows.size
    else:
        blocks, size = cut(number, steps)

    def by_lane(values: Array) -> Array:
        """(K, ..., lane) of values (*batch, K, ...), or 1 if they are the same for all."""
        inner = values.shape[-2:]
        if values.size == prod(inner):
            return values.reshape(*inner, 1)
        values = jnp.broadcast_to(values, (*batch, *inner)).reshape(number, *inner)
        return jnp.repeat(values, blocks, 0).transpose(1, 2, 0)

    if isinstance(evidence, ProductEvidence):
        laid, parameters = rows.laid.reshape(-1, *rows.laid.shape[-4:]), by_lane(evidence.parameters)
    else:
        laid, parameters = in_blocks(evidence, blocks, size).reshape(number * blocks, -1, UNROLLED, states), None
        laid = barrier(laid)  # in memory once, whoever looks for it
    lengths = jnp.array(steps) if moving is None else 1 + moving.sum(-1)
    lengths = jnp.broadcast_to(lengths, batch).reshape(number, 1)
    before = size * jnp.arange(blocks)
    moving = jnp.stack([jnp.broadcast_to(1 - before, (number, blocks)), lengths - before])
    return Lanes(
        jnp.broadcast_to(initial, (*batch, states)).reshape(number, states),
        (*batch, steps),
        by_lane(transition[..., 0, :, :]),
        blocks,
        laid,
        parameters,
        moving.reshape(2, -1).astype(jnp.int32),
    )


class Tile(NamedTuple):
    """Lanes that advance together. transition: (K, K, lane), or 1 for all. number: of chunks.

    rows: chunk -> of what the evidence is a product with, (step, column, lane).
    at: chunk -> evidence (step, K, lane).
    moves: chunk -> whether to move into a step (step, lane).
    weights: chunk -> see `_weights`.
    """

    transition: Array
    width: int
    number: int
    rows: Callable[[Array], Array]
    at: Callable[[Array], Array]
    moves: Callable[[Array], Array]
    weights: Callable[[Array], tuple[Array, Array]]


def tiled(function: Callable[..., Any], lanes: Lanes, *more: Array) -> Any:
    """function(tile, *more), a tile after the other, (tile, ...). Lanes are the last axis of `more`."""

    def one(so_far: None, place: Array, *given: Any) -> tuple[None, Any]:
        return None, function(*given)

    return gathered(one, None, lanes, *more)[1]


def gathered(function: Callable[..., tuple[Any, Any]], so_far: Any, lanes: Lanes, *more: Array) -> tuple[Any, Any]:
    """function(so_far, place, tile, *more) -> (more of it, what there is of the tile), from the last tile to the first:
    all of it, and that of the tiles (tile, ...)."""
    number, (chunks, width) = lanes.moving.shape[-1], lanes.tile

    def one(so_far: Any, place: Array) -> tuple[Any, Any]:
        def part(x: Array) -> Array:
            return x if x.shape[-1] == 1 else lax.dynamic_slice_in_dim(x, place * width, width, -1)

        def rows(chunk: Array) -> Array:
            return lanes.evidence[place % len(lanes.evidence), chunk]

        def at(chunk: Array) -> Array:
            if parameters is not None:
                given = rows(chunk)
                first, *rest = (given[:, j, None] * parameters[:, j] for j in range(given.shape[1]))
                return sum(rest, first)
            states = lanes.evidence.shape[-1]
            evidence = lax.dynamic_slice(lanes.evidence, (place * width, chunk, 0, 0), (width, 1, UNROLLED, states))
            return evidence.reshape(width, -1).T.reshape(UNROLLED, states, width)

        def moves(chunk: Array) -> Array:
            steps = chunk * UNROLLED + jnp.arange(UNROLLED, dtype=jnp.int32)[:, None]
            first, end = part(lanes.moving)
            return (steps >= first) & (steps < end)

        def weights(chunk: Array) -> tuple[Array, Array]:
            if lanes.weights is None:
                return _weights(at(chunk))
            weight, exponent = lanes.weights
            return weight[place, chunk], exponent[place, chunk]

        parameters = None if lanes.parameters is None else part(lanes.parameters)
        tile = Tile(part(lanes.transition), width, chunks, rows, at, moves, weights)
        return function(so_far, place, tile, *map(part, more))

    return lax.scan(one, so_far, jnp.arange(number // width), reverse=True)


def with_weights(lanes: Lanes) -> Lanes:
    """Lanes whose weights are found once, for several passes. Those of a product are rather found again: what the
    whole series needs is farther away than what a tile needs."""
    return lanes._replace(weights=tiled(_every_weight, lanes))


def remembering(tile: Tile) -> Tile:
    """A tile whose weights are found once, for both directions."""
    weight, exponent = _every_weight(tile)
    return tile._replace(weights=lambda chunk: (weight[chunk], exponent[chunk]))


def _every_weight(tile: Tile) -> tuple[Array, Array]:
    return lax.map(tile.weights, jnp.arange(tile.number))


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
