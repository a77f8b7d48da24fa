"""Forward filtering, backward sampling of a path of a Markov chain in lanes (Carter and Kohn 1994,
doi:10.1093/biomet/81.3.541).

It takes four passes: the matrices of all blocks; the last states of all blocks, drawn one given the next; inside of all
blocks at once the forward messages given the state before the block; and the states drawn backwards along them.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.enumerated import inverse_cdf
from bayeslab.distributions.markov.blocked import (
    block_matrices,
    blocks_to_lanes,
    entering_messages,
    forward_chunk,
    is_mixing,
    select_state,
)
from bayeslab.distributions.markov.lanes import Lanes, Tile, barrier, join_tiles, map_tiles, with_weights
from bayeslab.distributions.markov.log_likelihoods import STEPS_PER_CHUNK
from bayeslab.distributions.markov.scaling import is_safe, rescale


def sample_path(lanes: Lanes, uniform: Array) -> tuple[Array, Array]:
    """Paths (*batch, T), by inverse cumulative distributions at uniform (*batch, T), and whether all is in range."""
    initial, blocks = lanes.initial, lanes.blocks
    steps, number = lanes.shape[-1], len(initial)
    # At every step the number that draws the state before it; at the first the one that draws the last state of all.
    before = jnp.roll(jnp.broadcast_to(uniform, lanes.shape), 1, -1).reshape(number, steps)
    size = lanes.tile[0] * STEPS_PER_CHUNK
    before = jnp.pad(before, ((0, 0), (0, size * blocks - steps))).reshape(number * blocks, size)
    if blocks > 1:
        lanes = with_weights(lanes)
        start, end, in_range = _sample_block_ends(
            initial, *block_matrices(lanes), before[:, 0].reshape(number, blocks).T
        )
        path, lanes_in_range = _sample_lanes(lanes, start, before, end)
    else:
        path, lanes_in_range = _sample_lanes(lanes, initial.T, before)
        in_range = jnp.array(True)
    return lanes.unpadded(path), in_range & lanes_in_range.all() & is_mixing(lanes)


def _sample_block_ends(
    initial: Array, matrix: Array, exponent: Array, in_range: Array, uniform: Array
) -> tuple[Array, Array, Array]:
    """Draws the last states of all blocks.

    Returns the message with which every lane begins (K, lane), which is one at the state before it except where a
    sequence begins, the last state of every lane (lane,), and whether all is in range.
    matrix, exponent, in_range: the results of `block_matrices`. uniform: (block, N).
    """
    states = initial.shape[-1]
    messages, last, _, in_range = entering_messages(initial, matrix, exponent, in_range)

    def step(carry: tuple[Array, Array], block: tuple[Array, ...]) -> tuple[Any, Array]:
        (state, in_range), (message, matrix, exponent, uniform) = carry, block
        weights, _ = rescale(message * select_state(jnp.moveaxis(matrix, 1, 0), state), exponent)
        before, total = inverse_cdf(weights, uniform)
        return (before, in_range & is_safe(total)), state

    final, total = inverse_cdf(last, uniform[0])
    earlier_blocks = messages[1:], matrix[1:], exponent[1:], uniform[1:]
    (last_end, in_range), earlier_ends = lax.scan(
        step, (final, in_range & is_safe(total)), earlier_blocks, reverse=True, unroll=2
    )
    ends = jnp.concatenate([last_end[None], earlier_ends])
    is_known = jnp.arange(states)[:, None] == ends[:-1, None]
    start = jnp.concatenate([initial.T[None], is_known.astype(initial.dtype)])
    return blocks_to_lanes(start), ends.T.reshape(-1), in_range.all()


def _sample_lanes(lanes: Lanes, start: Array, uniform: Array, *end: Array) -> tuple[Array, Array]:
    """The states of every lane (lane, step), and whether all is in range.

    start: the message with which every lane begins. uniform: (lane, step).
    end: the last states of the lanes; without them the last state is drawn from its message.
    """

    def run(tile: Tile, start: Array, uniform: Array, *end: Array) -> tuple[Array, Array]:
        def forth(carry: tuple[Array, Array], index: Array) -> tuple[Any, Array]:
            before, in_range = carry
            after, message, _, chunk_in_range = forward_chunk(tile, index, before, jnp.int32(0))
            return (message, in_range & chunk_in_range), jnp.stack([before, *after[:-1]])

        def back(carry: tuple[Array, Array], chunk: tuple[Array, Array, Array]) -> tuple[Any, Array]:
            (state, in_range), (index, before, uniform) = carry, chunk
            active, path = tile.moves(index), []
            for u in reversed(range(STEPS_PER_CHUNK)):
                path.append(state)
                new_state, total = inverse_cdf(
                    before[u] * select_state(jnp.moveaxis(tile.transition, 1, 0), state), uniform[u]
                )
                state = barrier(jnp.where(active[u], new_state, state))
                in_range &= is_safe(total) | ~active[u]
            return (state, in_range), jnp.stack(path[::-1])

        all_true, indices = jnp.ones(tile.width, bool), jnp.arange(tile.number)
        (last, in_range), messages = lax.scan(forth, (start, all_true), indices)
        uniform = uniform.reshape(tile.number, STEPS_PER_CHUNK, tile.width)
        final, total = (*end, last.max(0)) if end else inverse_cdf(last, uniform[0, 0])
        (_, in_range), path = lax.scan(
            back, (final, in_range & is_safe(total)), (indices, messages, uniform), reverse=True
        )
        return path.reshape(-1, tile.width), in_range

    path, in_range = map(join_tiles, map_tiles(run, lanes, start, uniform.T, *end))
    return path.T, in_range
