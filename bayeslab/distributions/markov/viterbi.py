"""The Viterbi algorithm in lanes: the most probable path of a Markov chain, by maxima in place of sums (Viterbi 1967).

It takes four passes: the log probabilities of the best paths through all blocks; those with which blocks begin; inside
of all blocks at once the best state before every state, and the state before the block; and the path back along them.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.markov.blocked import select_state
from bayeslab.distributions.markov.lanes import Lanes, Tile, barrier, join_tiles, map_tiles
from bayeslab.distributions.markov.log_likelihoods import STEPS_PER_CHUNK


def viterbi_path(lanes: Lanes) -> Array:
    """The most probable path (*batch, T). lanes: with logs of initial and transition probabilities."""
    initial, blocks = lanes.initial, lanes.blocks
    number, states = initial.shape
    start = initial.T
    if blocks > 1:
        start = _entering_log_probs(initial, _block_matrices(lanes, blocks))
    last, origin, pointers = _recursion_in_lanes(lanes, start)
    ends = _block_ends(last.reshape(states, number, blocks), origin.reshape(states, number, blocks))
    return lanes.unpadded(_trace_back(lanes, ends.reshape(-1), pointers))


def _block_matrices(lanes: Lanes, blocks: int) -> Array:
    """The log probability of the best path through a block, from the state before it to its last, (block, N, K, K)."""
    states, dtype = lanes.initial.shape[-1], lanes.initial.dtype

    def run(tile: Tile) -> Array:
        def chunk(index: Array, matrix: Array) -> Array:
            log_likelihood, active = tile.at(index), tile.moves(index)
            for u in range(STEPS_PER_CHUNK):
                best = matrix[:, 0, None] + tile.transition[0]
                for k in range(1, states):
                    best = jnp.maximum(best, matrix[:, k, None] + tile.transition[k])
                matrix = barrier(jnp.where(active[u], best, matrix) + log_likelihood[u])
            return matrix - _zero_if_infinite(matrix.max((0, 1)))

        identity = jnp.where(jnp.eye(states, dtype=bool), jnp.zeros((), dtype), -jnp.inf)
        start = jnp.broadcast_to(identity[..., None], (states, states, tile.width))
        return lax.fori_loop(0, tile.number, chunk, start)

    return join_tiles(map_tiles(run, lanes)).reshape(states, states, -1, blocks).transpose(3, 2, 0, 1)


def _entering_log_probs(initial: Array, matrix: Array) -> Array:
    """The log probabilities with which every lane begins, (K, lane)."""

    def step(best: Array, matrix: Array) -> tuple[Array, Array]:
        new = (best[:, :, None] + matrix).max(1)
        return new - _zero_if_infinite(new.max(-1, keepdims=True)), best

    entering = lax.scan(step, initial, matrix)[1]
    return entering.transpose(2, 1, 0).reshape(initial.shape[-1], -1)


def _recursion_in_lanes(lanes: Lanes, start: Array) -> tuple[Array, Array, Array]:
    """The Viterbi recursion inside of all lanes.

    Returns log probabilities at the end of every lane (K, lane), the state before the lane that the best path to each
    of its last states comes from (K, lane), and the best state before every state, (tile, chunk, step, K, lane).
    """
    states = lanes.initial.shape[-1]

    def run(tile: Tile, start: Array) -> tuple[Array, Array, Array]:
        stay = jnp.broadcast_to(jnp.arange(states, dtype=jnp.int32)[:, None], (states, tile.width))

        def chunk(carry: tuple[Array, Array], index: Array) -> tuple[Any, Array]:
            best, origin = carry
            log_likelihood, active = tile.at(index), tile.moves(index)
            pointers_of_chunk = []
            for u in range(STEPS_PER_CHUNK):
                best_now, pointer = best[0] + tile.transition[0], jnp.zeros_like(stay)
                for k in range(1, states):
                    candidate = best[k] + tile.transition[k]
                    pointer = jnp.where(candidate > best_now, k, pointer)
                    best_now = jnp.maximum(best_now, candidate)
                pointer = jnp.where(active[u], pointer, stay)
                best = barrier(jnp.where(active[u], best_now, best) + log_likelihood[u])
                origin = barrier(select_state(origin, pointer))
                pointers_of_chunk.append(pointer.astype(jnp.int8))
            return (best - _zero_if_infinite(best.max(0)), origin), jnp.stack(pointers_of_chunk)

        (best, origin), pointers = lax.scan(chunk, (start, stay), jnp.arange(tile.number))
        return best, origin, pointers

    best, origin, pointers = map_tiles(run, lanes, start)
    return join_tiles(best), join_tiles(origin), pointers


def _block_ends(last: Array, origin: Array) -> Array:
    """The last state of every block on the best path, (N, block)."""

    def step(state: Array, origin: Array) -> tuple[Array, Array]:
        return jnp.take_along_axis(origin, state[None], 0)[0], state

    final = jnp.argmax(last[..., -1], 0).astype(origin.dtype)
    return lax.scan(step, final, jnp.moveaxis(origin, -1, 0), reverse=True)[1].T


def _trace_back(lanes: Lanes, ends: Array, pointers: Array) -> Array:
    """The states of every lane (lane, step), found backwards from its last state."""
    width = pointers.shape[-1]

    def run(tile: tuple[Array, Array]) -> Array:
        def chunk(state: Array, pointer: Array) -> tuple[Array, Array]:
            path = []
            for u in reversed(range(STEPS_PER_CHUNK)):
                path.append(state)
                state = barrier(select_state(pointer[u].astype(jnp.int32), state))
            return state, jnp.stack(path[::-1])

        return lax.scan(chunk, *tile, reverse=True)[1].reshape(-1, width).T

    return lax.map(run, (ends.reshape(-1, width), pointers)).reshape(lanes.moving.shape[-1], -1)


def _zero_if_infinite(x: Array) -> Array:
    """Numbers with 0 in place of those that are infinite."""
    return jnp.where(jnp.isfinite(x), x, 0.0)
