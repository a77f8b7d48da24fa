"""Ascent to a maximum, sped up by Anderson acceleration, where a step gives the objective only at the point before it.

`bayeslab.methods.acceleration` is for steps that give the objective after them.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.methods.acceleration import MEMORY, crossing
from bayeslab.mixed_membership.genotypes.allele_counts import Shape
from bayeslab.mixed_membership.tokens.topic_counts import Tokens

GAIN = 0.1
"""Gain in nats below which a step is the last, where other methods go on from its end."""


class Climb(NamedTuple):
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


def climb(at: Array) -> Climb:
    """The state before the first step."""
    steps, false = jnp.broadcast_to(at, (MEMORY + 1, at.size)), jnp.array(False)
    return Climb(at, false, jnp.asarray(-jnp.inf, jnp.result_type(float)), steps, steps, jnp.array(0), false)


def climbed(state: Climb, step: Step, inside: Callable[[Array], Array], least: float = GAIN) -> Climb:
    """The state after one step and one Anderson extrapolation; an extrapolation that lowered the objective is undone.

    inside: returns the nearest feasible coordinates.
    least: the ascent has converged when a step that no extrapolation came before gains less, in nats.
    """
    after, objective = step(state.at)
    gain = objective - state.objective
    noise = 4 * jnp.finfo(objective.dtype).eps * jnp.abs(objective)
    inputs = jnp.concatenate([state.inputs[1:], state.at[None]])
    outputs = jnp.concatenate([state.outputs[1:], after[None]])
    number = jnp.minimum(state.number + 1, MEMORY + 1)
    small = gain < least + noise
    far = (number > 1) & ~small  # what a leap gains says nothing of the end: a plain step follows
    ahead = jnp.where(far, inside(crossing(inputs, outputs, number)), after)
    accepted = Climb(ahead, far, objective, inputs, outputs, number, small & ~state.leapt)
    false = jnp.zeros_like(far)
    undone = state._replace(at=state.outputs[-1], leapt=false, number=jnp.zeros_like(number))
    return jax.tree.map(lambda a, b: jnp.where(~state.leapt | (gain > -noise), a, b), accepted, undone)


def top(state: Climb, step: Step, inside: Callable[[Array], Array], most: int, least: float = GAIN) -> Climb:
    """The state after the ascent has converged, or after `most` steps."""

    def unfinished(carry: tuple[Array, Climb]) -> Array:
        return (carry[0] < most) & ~carry[1].converged

    def take_step(carry: tuple[Array, Climb]) -> tuple[Array, Climb]:
        return carry[0] + 1, climbed(carry[1], step, inside, least)

    return jax.lax.while_loop(unfinished, take_step, (jnp.array(0), state))[1]


def joined(weights: Array, components: Array) -> Array:
    """Flat coordinates of weights and components."""
    return jnp.concatenate([weights.ravel(), components.ravel()])


def split(at: Array, shape: Shape | Tokens) -> tuple[Array, Array]:
    """Weights (individual, population) and components (population, locus, allele) of flat coordinates."""
    weights, components = jnp.split(at, [shape.individuals * shape.populations])
    size = (shape.populations, shape.loci, shape.alleles)
    return weights.reshape(shape.individuals, shape.populations), components.reshape(size)
