"""Plans for Markov decision processes with finitely many states and actions, of one process or of every posterior draw.

A process has transition_probs (*batch, state, action, state), the probabilities of the next state, and a reward
(*batch, state) of every state (CS229, 15.1). What a plan maximises is the expected sum of discount^t reward(s_t).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from bayeslab.programs.program import precision_scope
from bayeslab.results.datatree import posterior_draws

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

MAX_ITERATIONS = 100_000


class Plan(NamedTuple):
    """What to do, and what it is worth.

    value: of every state under the best policy (*batch, state). policy: the best action (*batch, state), the first of
    several. num_iterations: of the slowest process of a batch.
    """

    value: Array
    policy: Array
    num_iterations: Array


def value_iteration(transition_probs: ArrayLike, reward: ArrayLike, discount: float, tolerance: float = 1e-9) -> Plan:
    """The plan by V <- R + discount max_a P_a V (CS229, 15.2.1).

    tolerance: no value is further from the best one; the discounted change of a step bounds that.
    Raises ValueError for shapes that do not fit, probabilities that are none, a discount outside of [0, 1), and one so
    near to 1 that 100,000 iterations do not come as near as the tolerance.
    """
    with precision_scope():
        plan = jax.device_get(iterate_values(*checked_process(transition_probs, reward, discount), tolerance))
    if plan.num_iterations == MAX_ITERATIONS:
        raise ValueError(
            f"{MAX_ITERATIONS:,} iterations do not bring the values within {tolerance} of the best ones at a discount "
            f"of {discount}; use policy_iteration, a larger tolerance or a smaller discount"
        )
    return plan


def policy_iteration(transition_probs: ArrayLike, reward: ArrayLike, discount: float) -> Plan:
    """The plan by improving a policy whose values are solved for, until no action is better (CS229, 15.2.2).

    Takes fewer iterations than `value_iteration`, of a system of linear equations each. Raises as that does.
    """
    with precision_scope():
        return jax.device_get(_policy_iteration(*checked_process(transition_probs, reward, discount)))


def policy_value(transition_probs: ArrayLike, reward: ArrayLike, discount: ArrayLike, policy: ArrayLike) -> Any:
    """The value of every state (*batch, state) under a policy, by solving V = R + discount P_policy V.

    policy: an action for every state (*batch, state), or probabilities of actions (*batch, state, action).
    Can be part of a loss of `bl.decide`.
    """
    with precision_scope():
        probs, actions = jnp.asarray(transition_probs, float), jnp.asarray(policy)
        if jnp.issubdtype(actions.dtype, jnp.integer):
            actions = jax.nn.one_hot(actions, probs.shape[-2], dtype=probs.dtype)
        if actions.shape[-2:] != probs.shape[-3:-1]:
            raise ValueError(
                f"policy has shape {np.shape(policy)}; expected an action, or probabilities of {probs.shape[-2]} "
                f"actions, for each of {probs.shape[-3]} states"
            )
        moves = jnp.einsum("...sa,...sat->...st", actions, probs)
        value = _solved(moves, jnp.asarray(reward, float), jnp.asarray(discount, float))
    return value if isinstance(value, jax.core.Tracer) else np.asarray(value)


def posterior_plans(
    tree: "DataTree", discount: float, transition: str = "transition", reward: str | ArrayLike = "reward"
) -> "Dataset":
    """The best plan of the process of every posterior draw: a posterior of values and of policies.

    transition: the site with probabilities of next states (state, action, state). reward: the site with rewards of
    states (state,), or these rewards where they are known.
    Returns a Dataset with value and policy (chain, draw, state). The mean of values is no value of one policy: every
    draw has the plan that is best if the draw is true. Raises ValueError for missing sites and for shapes that do not
    fit.
    """
    from xarray import Dataset

    draws = posterior_draws(tree, "posterior_plans")
    for name in (transition, *([reward] if isinstance(reward, str) else [])):
        if name not in draws:
            raise ValueError(f"the result has no site '{name}', only {[*draws.data_vars]}")
    probs = draws[transition]
    rewards = draws[reward].values if isinstance(reward, str) else np.asarray(reward)
    plan = value_iteration(probs.values, rewards, discount)
    dims = probs.dims[:3]
    coords = {name: probs.coords[name] for name in dims if name in probs.coords}
    return Dataset({"value": (dims, plan.value), "policy": (dims, plan.policy)}, coords)


def checked_process(transition_probs: ArrayLike, reward: ArrayLike, discount: float) -> tuple[Array, Array, Array]:
    """The arrays of a process; raises ValueError where they are none."""
    probs, rewards = np.asarray(transition_probs), np.asarray(reward)
    if probs.ndim < 3 or probs.shape[-1] != probs.shape[-3] or 0 in probs.shape:
        raise ValueError(f"transition_probs has shape {probs.shape}; expected (*batch, state, action, state)")
    if rewards.shape[-1:] != probs.shape[-1:]:
        raise ValueError(
            f"reward has shape {rewards.shape}; expected (*batch, {probs.shape[-1]}), a number for every state"
        )
    if not (np.isfinite(probs).all() and (probs >= 0).all() and np.allclose(probs.sum(-1), 1, atol=1e-6)):
        raise ValueError("transition_probs must be probabilities of next states, which sum to one along the last axis")
    if not np.isfinite(rewards).all():
        raise ValueError("reward must be finite numbers")
    if not 0 <= discount < 1:
        raise ValueError(f"discount must be at least 0 and less than 1, but is {discount}")
    try:
        np.broadcast_shapes(probs.shape[:-3], rewards.shape[:-1])
    except ValueError:
        raise ValueError(
            f"transition_probs and reward have batch shapes {probs.shape[:-3]} and {rewards.shape[:-1]}; expected "
            "shapes that broadcast"
        ) from None
    dtype = jnp.result_type(float)
    return jnp.asarray(probs, dtype), jnp.asarray(rewards, dtype), jnp.asarray(discount, dtype)


def action_values(probs: Array, reward: Array, discount: Array, value: Array) -> Array:
    """The value of an action now and what `value` says later, (*batch, state, action)."""
    return reward[..., None] + discount * jnp.einsum("...sat,...t->...sa", probs, value)


@jax.jit
def iterate_values(probs: Array, reward: Array, discount: Array, tolerance: float) -> Plan:
    bound = tolerance * (1 - discount)

    def is_open(state: tuple[Array, Array, Array]) -> Array:
        _, change, count = state
        return (count == 0) | ((discount * change > bound) & (count < MAX_ITERATIONS))

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        value, _, count = state
        new = action_values(probs, reward, discount, value).max(-1)
        return new, abs(new - value).max(), count + 1

    start = jnp.zeros(jnp.broadcast_shapes(reward.shape, probs.shape[:-2]), probs.dtype)
    value, _, count = jax.lax.while_loop(is_open, step, (start, jnp.asarray(jnp.inf, probs.dtype), jnp.int32(0)))
    return Plan(value, best_action(action_values(probs, reward, discount, value)), count)


@jax.jit
def _policy_iteration(probs: Array, reward: Array, discount: Array) -> Plan:
    shape = jnp.broadcast_shapes(reward.shape, probs.shape[:-2])

    def value_of(policy: Array) -> Array:
        return policy_value(probs, jnp.broadcast_to(reward, shape), discount, policy)

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        policy, _, count = state
        values = action_values(probs, reward, discount, value_of(policy))
        own = jnp.take_along_axis(values, policy[..., None], -1)[..., 0]
        scale = 1e-10 * (1 + abs(values).max(-1))
        better = values.max(-1) > own + scale  # rounding alone changes no action, or this would not end
        return jnp.where(better, jnp.argmax(values, -1), policy), better.any(), count + 1

    def is_open(state: tuple[Array, Array, Array]) -> Array:
        return state[1] & (state[2] < MAX_ITERATIONS)

    start = jnp.zeros(shape, int), jnp.array(True), jnp.int32(0)
    policy, _, count = jax.lax.while_loop(is_open, step, start)
    value = value_of(policy)
    return Plan(value, best_action(action_values(probs, reward, discount, value)), count)


def best_action(values: Array) -> Array:
    """The first of the actions whose values are largest but for rounding."""
    top = values.max(-1, keepdims=True)
    return jnp.argmax(values >= top - 1e-8 * (1 + abs(top)), -1)


def _solved(moves: Array, reward: Array, discount: Array) -> Array:
    identity = jnp.eye(moves.shape[-1], dtype=moves.dtype)
    shape = jnp.broadcast_shapes(moves.shape[:-1], reward.shape)
    system = jnp.broadcast_to(identity - discount * moves, (*shape, shape[-1]))
    return jnp.linalg.solve(system, jnp.broadcast_to(reward, shape)[..., None])[..., 0]
