"""Uniform numbers of a counter, computed where they are used.

The generator is that of JAX, Threefry-2x32 with twenty rounds (Salmon, Moraes, Dror and Shaw 2011, Parallel random
numbers: as easy as 1, 2, 3). JAX computes it in a loop over rounds, through memory, on a CPU; written out it becomes a
part of the loop that uses the numbers, for about a tenth of the cost.
"""

import jax.numpy as jnp
from jax import Array

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Bits by which the second word is rotated in four rounds, alternately, as the paper has them."""
NUM_ROUNDS = 20
"""Number of rounds, those of JAX."""
BITS_PER_UNIFORM = 24
"""Number of random bits of a uniform number: as many as a number in single precision has."""


def uniforms(key: Array, row: Array, column: Array) -> tuple[Array, Array]:
    """Two numbers from (0, 1), in single precision, for every pair of counters; all are uint32. key: (2,)."""
    first, second = threefry(key, row, column)
    return _to_unit_interval(first), _to_unit_interval(second)


def threefry(key: Array, row: Array, column: Array) -> tuple[Array, Array]:
    """Two random words of 32 bits for every pair of counters (row, column). key: (2,)."""
    keys = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA)
    x, y = row + keys[0], column + keys[1]
    for number in range(NUM_ROUNDS):
        cycle, position = divmod(number, 4)
        x = x + y
        y = _rotate_left(y, ROTATIONS[cycle % 2][position]) ^ x
        if position == 3:
            x, y = x + keys[(cycle + 1) % 3], y + keys[(cycle + 2) % 3] + jnp.uint32(cycle + 1)
    return x, y


def _rotate_left(word: Array, by: int) -> Array:
    """The word with its bits rotated to the left."""
    return (word << jnp.uint32(by)) | (word >> jnp.uint32(32 - by))


def _to_unit_interval(word: Array) -> Array:
    """A number from (0, 1) made of the highest bits of a random word."""
    return ((word >> jnp.uint32(32 - BITS_PER_UNIFORM)).astype(jnp.int32).astype(jnp.float32) + 0.5) * jnp.float32(
        2.0**-BITS_PER_UNIFORM
    )
