"""Where chains of Hamiltonian Monte Carlo start: near the posterior, whatever the priors.

Vague priors and covariates as they were measured put random points where a density is 1e-1000 and a step of any useful
size overflows: a chain that starts there never moves. From a random point a few steps of ascent lead to where the log
posterior no longer rises steeply. They end there, short of the maximum: densities of hierarchical models have none, and
R-hat needs chains that start apart.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from bayeslab.programs.program import Values

MAX_STEPS = 200
"""Steps of ascent, at most; a warm-up takes thousands of gradients."""
STEPS_PER_CHECK = 5
"""Steps after which the gain is looked at."""
MIN_GAIN_NATS = 10.0
"""Nats that so many steps must gain for the ascent to go on; with more than ten coordinates, one for each."""
FIRST_STEP = 0.1
"""The first step of every coordinate."""
STEP_RANGE = 1e-9, 1.0
"""The shortest and the longest step of a coordinate."""
RADIUS_GROWTH = 0.1
"""How much farther from zero each further random point may lie, where none before had a density."""
TRIES_BEFORE_NEAR_ZERO = 50
"""Random points after which every other one is drawn as near to zero as the first ones."""
GROWTH, DECAY = 1.3, 0.5
"""Factors of the step of a coordinate whose derivative keeps its sign, and changes it (Riedmiller and Braun 1993)."""


class AscentState(NamedTuple):
    """The state of the ascent, at flat unconstrained coordinates.

    position, steps, slope: of every coordinate; the slope that was last seen. log_density: there, minus infinity before
    the first finite one. earlier: that at the last check. num_steps: that were made. likely: the position up to where
    the density no longer rose steeply. steep: whether it still does. rising: whether the ascent goes on.
    """

    key: Array
    position: Array
    steps: Array
    slope: Array
    log_density: Array
    earlier: Array
    num_steps: Array
    likely: Array
    steep: Array
    rising: Array


def likely_position(
    key: Array, shapes: Mapping[str, tuple[int, ...]], log_density: Callable[[Values], Array]
) -> Values:
    """A position from which a chain can start, by resilient steps of ascent from a random one.

    shapes: of the unconstrained sites, by name. log_density: of a position.
    """
    return ascend(key, shapes, log_density)[0]


def ascend(
    key: Array,
    shapes: Mapping[str, tuple[int, ...]],
    log_density: Callable[[Values], Array],
    min_gain: float = MIN_GAIN_NATS,
    max_steps: int = MAX_STEPS,
) -> tuple[Values, Values]:
    """The position from which a chain can start, and the one where an ascent ends that goes on beyond it.

    min_gain: nats that `STEPS_PER_CHECK` steps must gain for the ascent to go on, in proportion more with more than ten
    coordinates. max_steps: the most steps that are made.
    """
    zeros, make_position = ravel_pytree({name: jnp.zeros(shape) for name, shape in shapes.items()})
    size, dtype = zeros.size, zeros.dtype
    value_and_slope = jax.value_and_grad(lambda flat: log_density(make_position(flat)))

    def draw(key: Array, earlier: Array | int = 0) -> tuple[Array, Array]:
        key, point_key = jax.random.split(key)
        growth = jnp.where(earlier % 2 == 1, earlier % TRIES_BEFORE_NEAR_ZERO, earlier)
        radius = 1.0 + RADIUS_GROWTH * growth
        return key, radius * jax.random.uniform(point_key, (size,), dtype, -1.0, 1.0)

    def step(state: AscentState) -> AscentState:
        value, slope = value_and_slope(state.position)
        valid = jnp.isfinite(value) & jnp.isfinite(slope).all()
        started = jnp.isfinite(state.log_density)
        key, other = draw(state.key, state.num_steps)
        # where no step has led anywhere yet, another random point; else half of the last step back
        retreat = jnp.where(started, state.position - 0.5 * jnp.sign(state.slope) * state.steps, other)
        agreement = jnp.sign(slope) * jnp.sign(state.slope)
        factors = jnp.where(agreement > 0, GROWTH, jnp.where(agreement < 0, DECAY, 1.0))
        steps = jnp.clip(jnp.where(valid, state.steps * factors, 0.5 * state.steps), *STEP_RANGE)
        moved = state.position + jnp.sign(slope) * steps
        count, log_density = state.num_steps + 1, jnp.where(valid, value, state.log_density)
        checked = count % STEPS_PER_CHECK == 0
        gain = log_density - state.earlier

        def goes_on(least: float) -> Array:
            return ~(checked & valid & (gain < max(least, least * size / MIN_GAIN_NATS)))

        steep, rising = state.steep & goes_on(MIN_GAIN_NATS), goes_on(min_gain)
        position = jnp.where(rising, jnp.where(valid, moved, retreat), state.position)
        return AscentState(
            key,
            position,
            steps,
            jnp.where(valid, slope, state.slope),
            log_density,
            jnp.where(checked, log_density, state.earlier),
            count,
            jnp.where(steep, position, state.likely),
            steep,
            rising,
        )

    key, first = draw(key)
    none = jnp.asarray(-jnp.inf, dtype)
    count, yes = jnp.zeros((), int), jnp.array(True)
    state = AscentState(key, first, zeros + FIRST_STEP, zeros, none, none, count, first, yes, yes)
    state = jax.lax.while_loop(lambda state: state.rising & (state.num_steps < max_steps), step, state)
    return make_position(state.likely), make_position(state.position)
