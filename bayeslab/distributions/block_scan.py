"""A scan in blocks, for accelerators: what `lax.scan` returns, where the effects of steps compose. On a CPU it is that.

T steps are cut into blocks. A scan over the steps of a block, all blocks side by side, finds the effect of every block;
a scan over blocks the carry that enters each of them; and the plain recursion follows, again in all blocks side by
side. The scan over blocks is cut into blocks of its own, up to `MAX_LEVELS` loops deep. The program is at most seven
loops, whatever T is.

Work and depth beside an associative scan, for carries of K numbers whose effects are K x K matrices: that multiplies
about 2 T matrices, 2 T K^3 in work, in 2 log2 T rounds, each of another shape, so its program grows with T. Here it is
T K^3 for the effects of blocks and T K^2 for what follows, and a little for blocks of blocks, in about 8 (T / 2)^(1/4)
rounds: 100 in place of 32 at 50,000 steps, each of them a few short kernels. Nothing but carries and outputs is kept of
a step.
"""

from collections.abc import Callable
from math import ceil, prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from bayeslab.distributions.processor import on_accelerator

MIN_STEPS_IN_BLOCKS = 32
"""The least number of steps that are cut into blocks."""
MIN_STEPS_IN_MANY_LEVELS = 512
"""The least number of steps that are cut into blocks of blocks of blocks."""
MAX_LEVELS = 4
"""Loops that are inside of each other, at most: a fifth saves fewer than thirty rounds of a million steps."""
MAX_EFFECT_SIZE = 2**18
"""With more numbers than this in the effects of a batch, the batch alone keeps an accelerator busy, and is not cut."""


class Effects(NamedTuple):
    """What several steps do to a carry, as pure functions.

    nothing: the effect of no step, a pytree.
    extend: (effect, input) -> the effect of these steps and one more.
    apply: (effect, carry) -> the carry after these steps.
    join: (effect, effect of the steps after these) -> the effect of all of them.
    """

    nothing: Any
    extend: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any], Any]
    join: Callable[[Any, Any], Any]


def scan_in_blocks(
    step: Callable[[Any, Any], tuple[Any, Any]], effects: Effects, start: Any, inputs: Any, reverse: bool = False
) -> tuple[Any, Any]:
    """The last carry and the outputs of `lax.scan(step, start, inputs, reverse=reverse)`.

    What fills up the blocks repeats the last step and leaves the carry as it is.
    """
    steps = len(jax.tree.leaves(inputs)[0])
    return _scan(step, effects, start, inputs, reverse, num_levels(steps, effects.nothing))


def _scan(
    step: Callable[[Any, Any], tuple[Any, Any]], effects: Effects, start: Any, inputs: Any, reverse: bool, levels: int
) -> tuple[Any, Any]:
    """The scan as so many loops inside of each other."""
    if levels == 1:
        return lax.scan(step, start, inputs, reverse=reverse)
    steps = len(jax.tree.leaves(inputs)[0])
    size = ceil((steps / 2) ** (1 / levels))
    blocks = ceil(steps / size)
    added = blocks * size - steps
    ends = (added, 0) if reverse else (0, added)

    def by_block(leaf: Array) -> Array:
        whole = jnp.pad(leaf, (ends, *[(0, 0)] * (leaf.ndim - 1)), "edge")
        return whole.reshape(blocks, size, *leaf.shape[1:]).swapaxes(0, 1)

    def kept(goes_on: Array, new: Any, old: Any) -> Any:
        return jax.tree.map(lambda new, old: jnp.where(goes_on, new, old), new, old)

    def extend(effect: Any, item: tuple[Array, Any]) -> tuple[Any, None]:
        goes_on, input_ = item
        return kept(goes_on, effects.extend(effect, input_), effect), None

    def follow(carry: Any, item: tuple[Array, Any]) -> tuple[Any, Any]:
        goes_on, input_ = item
        new, output = step(carry, input_)
        return kept(goes_on, new, carry), output

    is_step = jnp.pad(jnp.ones(steps, bool), ends).reshape(blocks, size).T
    cut = is_step, jax.tree.map(by_block, inputs)
    nothing = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (blocks, *leaf.shape)), effects.nothing)
    every_effect = lax.scan(jax.vmap(extend), nothing, cut, reverse=reverse)[0]
    entering = _scan(
        lambda carry, effect: (effects.apply(effect, carry), carry),
        effects._replace(extend=effects.join),
        start,
        every_effect,
        reverse,
        levels - 1,
    )
    last, outputs = lax.scan(jax.vmap(follow), entering[1], cut, reverse=reverse)

    def by_step(leaf: Array) -> Array:
        return lax.slice_in_dim(leaf.swapaxes(0, 1).reshape(-1, *leaf.shape[2:]), ends[0], ends[0] + steps)

    return jax.tree.map(lambda leaf: leaf[0 if reverse else -1], last), jax.tree.map(by_step, outputs)


def num_levels(steps: int, effect: Any) -> int:
    """How many loops a scan becomes that are inside of each other, one on a CPU. effect: of the whole batch."""
    is_wide = sum(prod(leaf.shape) for leaf in jax.tree.leaves(effect)) > MAX_EFFECT_SIZE
    if not on_accelerator() or steps < MIN_STEPS_IN_BLOCKS or is_wide:
        return 1
    return 2 if steps < MIN_STEPS_IN_MANY_LEVELS else MAX_LEVELS


def of_every_state(
    step: Callable[[Any, Any], tuple[Any, Any]], states: Any, apply: Callable[[Any, Any], Any]
) -> Effects:
    """Effects that are known from what becomes of a few carries: of every state alone, or of unit vectors.

    states: these carries, on a leading axis. apply: as in `Effects`; it combines what became of them.
    """
    return Effects(
        states,
        lambda effect, input_: jax.vmap(lambda carry: step(carry, input_)[0])(effect),
        apply,
        lambda effect, later: jax.vmap(lambda carry: apply(later, carry))(effect),
    )
