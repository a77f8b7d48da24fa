"""Steps to a maximum taken farther than they go, where only the objective before a step is known without more work."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from bayeslab.methods.acceleration import MEMORY, crossing
from bayeslab.mixed_membership.genotypes.allele_counts import Shape
from bayeslab.mixed_membership.tokens.topic_counts import Tokens

GAIN = 0.1
"""In nats, of a step that is the last, where other methods go on from there."""


class Climb(NamedTuple):
    """at: flat coordinates where the next step starts. leapt: whether that is elsewhere than where the last one ended.

    objective: before the last step that was kept. inputs, outputs: coordinates before and after the last steps,
    (MEMORY + 1, size), number of which follow each other.
    """

    at: Array
    leapt: Array
    objective: Array
    inputs: Array
    outputs: Array
    number: Array
    converged: Array


Step = Callable[[Array], tuple[Array, Array]]
"""Coordinates -> those after a step, the objective before it."""


def climb(at: Array) -> Climb:
    """Before the first step."""
    steps, no = jnp.broadcast_to(at, (MEMORY + 1, at.size)), jnp.array(False)
    return Climb(at, no, jnp.asarray(-jnp.inf, jnp.result_type(float)), steps, steps, jnp.array(0), no)


def climbed(state: Climb, step: Step, inside: Callable[[Array], Array], least: float = GAIN) -> Climb:
    """A step from where the last ones lead. What lowers the objective is undone.

    inside: the nearest coordinates that are possible. least: the gain of a step, not leapt to, that is not the last.
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
    kept = Climb(ahead, far, objective, inputs, outputs, number, small & ~state.leapt)
    no = jnp.zeros_like(far)
    undone = state._replace(at=state.outputs[-1], leapt=no, number=jnp.zeros_like(number))
    return jax.tree.map(lambda a, b: jnp.where(~state.leapt | (gain > -noise), a, b), kept, undone)


def top(state: Climb, step: Step, inside: Callable[[Array], Array], most: int, least: float = GAIN) -> Climb:
    """After so many steps at most."""

    def unfinished(carry: tuple[Array, Climb]) -> Array:
        return (carry[0] < most) & ~carry[1].converged

    def one(carry: tuple[Array, Climb]) -> tuple[Array, Climb]:
        return carry[0] + 1, climbed(carry[1], step, inside, least)

    return jax.lax.while_loop(unfinished, one, (jnp.array(0), state))[1]


def joined(weights: Array, components: Array) -> Array:
    """As coordinates."""
    return jnp.concatenate([weights.ravel(), components.ravel()])


def split(at: Array, shape: Shape | Tokens) -> tuple[Array, Array]:
    """Weights (individual, population) and components (population, locus, allele)."""
    weights, components = jnp.split(at, [shape.individuals * shape.populations])
    size = (shape.populations, shape.loci, shape.alleles)
    return weights.reshape(shape.individuals, shape.populations), components.reshape(size)
