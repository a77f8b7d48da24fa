"""Ascent to a maximum, sped up by Anderson acceleration, where a step gives the objective only at the point before it.

`bayeslab.methods.acceleration` is for steps that give the objective after them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.methods.acceleration import ANDERSON_DEPTH, anderson_extrapolation
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape

START_GAIN_TOLERANCE_NATS = 0.1
"""Gain in nats below which a step is the last, where other methods go on from its end."""


class AscentState(NamedTuple):
    """The state of an accelerated ascent.

    at: flat coordinates where the next step starts.
    leapt: whether that is an extrapolated point, and not the end of the last step.
    objective: its value before the last step that was accepted.
    inputs, outputs: coordinates before and after the last steps, (MEMORY + 1, size).
    number: how many of these steps follow each other.
    """

    at: Array
    leapt: Array
    objective: Array
    inputs: Array
    outputs: Array
    number: Array
    converged: Array


Step = Callable[[Array], tuple[Array, Array]]
"""A function of coordinates that returns the coordinates after a step, and the objective before it."""


def initial_ascent(coordinates: Array) -> AscentState:
    """The state before the first step."""
    steps, false = jnp.broadcast_to(coordinates, (ANDERSON_DEPTH + 1, coordinates.size)), jnp.array(False)
    return AscentState(
        coordinates, false, jnp.asarray(-jnp.inf, jnp.result_type(float)), steps, steps, jnp.array(0), false
    )


def accelerated_step(
    state: AscentState,
    step: Step,
    clip_coordinates: Callable[[Array], Array],
    min_gain: float = START_GAIN_TOLERANCE_NATS,
) -> AscentState:
    """The state after one step and one Anderson extrapolation; an extrapolation that lowered the objective is undone.

    clip_coordinates: returns the nearest feasible coordinates.
    min_gain: the ascent has converged when a step that no extrapolation came before gains less, in nats.
    """
    after, objective = step(state.at)
    gain = objective - state.objective
    noise = 4 * jnp.finfo(objective.dtype).eps * jnp.abs(objective)
    inputs = jnp.concatenate([state.inputs[1:], state.at[None]])
    outputs = jnp.concatenate([state.outputs[1:], after[None]])
    number = jnp.minimum(state.number + 1, ANDERSON_DEPTH + 1)
    small = gain < min_gain + noise
    far = (number > 1) & ~small  # what a leap gains says nothing of the end: a plain step follows
    ahead = jnp.where(far, clip_coordinates(anderson_extrapolation(inputs, outputs, number)), after)
    accepted = AscentState(ahead, far, objective, inputs, outputs, number, small & ~state.leapt)
    false = jnp.zeros_like(far)
    undone = state._replace(at=state.outputs[-1], leapt=false, number=jnp.zeros_like(number))
    return jax.tree.map(lambda a, b: jnp.where(~state.leapt | (gain > -noise), a, b), accepted, undone)


def maximize(
    state: AscentState,
    step: Step,
    clip_coordinates: Callable[[Array], Array],
    max_steps: int,
    min_gain: float = START_GAIN_TOLERANCE_NATS,
) -> AscentState:
    """The state after the ascent has converged, or after `max_steps` steps."""

    def unfinished(carry: tuple[Array, AscentState]) -> Array:
        return (carry[0] < max_steps) & ~carry[1].converged

    def take_step(carry: tuple[Array, AscentState]) -> tuple[Array, AscentState]:
        return carry[0] + 1, accelerated_step(carry[1], step, clip_coordinates, min_gain)

    return jax.lax.while_loop(unfinished, take_step, (jnp.array(0), state))[1]


def to_coordinates(weights: Array, components: Array) -> Array:
    """Flat coordinates of weights and components."""
    return jnp.concatenate([weights.ravel(), components.ravel()])


def from_coordinates(coordinates: Array, shape: GenotypeShape | TokenShape) -> tuple[Array, Array]:
    """Weights (individual, population) and components (population, locus, allele) of flat coordinates."""
    weights, components = jnp.split(coordinates, [shape.individuals * shape.populations])
    size = (shape.populations, shape.loci, shape.alleles)
    return weights.reshape(shape.individuals, shape.populations), components.reshape(size)
