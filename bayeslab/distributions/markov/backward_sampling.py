"""A path of a Markov chain given evidence in lanes (`markov_lanes`): filter forwards, draw backwards (Carter and Kohn
1994, doi:10.1093/biomet/81.3.541).

Four passes: what a block does to a message; the last states of all blocks, drawn one given the next; inside of all
blocks at once the messages given the state before the block; and back along them.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.enumerated import inverted
from bayeslab.distributions.markov.blocked import ahead, entering, lanes_from, mixes, picked, transfers
from bayeslab.distributions.markov.lanes import Lanes, Tile, barrier, joined, tiled, with_weights
from bayeslab.distributions.markov.log_likelihoods import UNROLLED
from bayeslab.distributions.markov.scaling import ranged, safe


def draw(lanes: Lanes, uniform: Array) -> tuple[Array, Array]:
    """(*batch, T), by inverse cumulative distributions at uniform (*batch, T), and whether all numbers kept their
    range."""
    initial, blocks = lanes.initial, lanes.blocks
    steps, number = lanes.shape[-1], len(initial)
    # At every step the number that draws the state before it; at the first the one that draws the last state of all.
    before = jnp.roll(jnp.broadcast_to(uniform, lanes.shape), 1, -1).reshape(number, steps)
    size = lanes.tile[0] * UNROLLED
    before = jnp.pad(before, ((0, 0), (0, size * blocks - steps))).reshape(number * blocks, size)
    if blocks > 1:
        lanes = with_weights(lanes)
        start, end, kept = _ends(initial, *transfers(lanes), before[:, 0].reshape(number, blocks).T)
        path, safely = _inside(lanes, start, before, end)
    else:
        path, safely = _inside(lanes, initial.T, before)
        kept = jnp.array(True)
    return lanes.unpadded(path), kept & safely.all() & mixes(lanes)


def _ends(initial: Array, matrix: Array, exponent: Array, kept: Array, uniform: Array) -> tuple[Array, Array, Array]:
    """The message with which every lane begins (K, lane), all on the state before it except where a sequence begins,
    the last state of every lane (lane,), and whether all is kept. uniform: (block, N)."""
    states = initial.shape[-1]
    messages, last, _, kept = entering(initial, matrix, exponent, kept)

    def step(carry: tuple[Array, Array], given: tuple[Array, ...]) -> tuple[Any, Array]:
        (state, kept), (message, matrix, exponent, uniform) = carry, given
        ways, _ = ranged(message * picked(jnp.moveaxis(matrix, 1, 0), state), exponent)
        before, total = inverted(ways, uniform)
        return (before, kept & safe(total)), state

    final, total = inverted(last, uniform[0])
    given = messages[1:], matrix[1:], exponent[1:], uniform[1:]
    (first, kept), rest = lax.scan(step, (final, kept & safe(total)), given, reverse=True, unroll=2)
    ends = jnp.concatenate([first[None], rest])
    known = jnp.arange(states)[:, None] == ends[:-1, None]
    start = jnp.concatenate([initial.T[None], known.astype(initial.dtype)])
    return lanes_from(start), ends.T.reshape(-1), kept.all()


def _inside(lanes: Lanes, start: Array, uniform: Array, *end: Array) -> tuple[Array, Array]:
    """The states of every lane (lane, step) given the last, else with the last drawn from its message, and what is
    kept."""

    def run(tile: Tile, start: Array, uniform: Array, *end: Array) -> tuple[Array, Array]:
        def forth(carry: tuple[Array, Array], place: Array) -> tuple[Any, Array]:
            before, kept = carry
            after, message, _, safely = ahead(tile, place, before, jnp.int32(0))
            return (message, kept & safely), jnp.stack([before, *after[:-1]])

        def back(carry: tuple[Array, Array], given: tuple[Array, Array, Array]) -> tuple[Any, Array]:
            (state, kept), (place, before, uniform) = carry, given
            moves, path = tile.moves(place), []
            for u in reversed(range(UNROLLED)):
                path.append(state)
                drawn, total = inverted(before[u] * picked(jnp.moveaxis(tile.transition, 1, 0), state), uniform[u])
                state = barrier(jnp.where(moves[u], drawn, state))
                kept &= safe(total) | ~moves[u]
            return (state, kept), jnp.stack(path[::-1])

        yes, places = jnp.ones(tile.width, bool), jnp.arange(tile.number)
        (last, kept), messages = lax.scan(forth, (start, yes), places)
        uniform = uniform.reshape(tile.number, UNROLLED, tile.width)
        final, total = (*end, last.max(0)) if end else inverted(last, uniform[0, 0])
        (_, kept), path = lax.scan(back, (final, kept & safe(total)), (places, messages, uniform), reverse=True)
        return path.reshape(-1, tile.width), kept

    path, kept = map(joined, tiled(run, lanes, start, uniform.T, *end))
    return path.T, kept
