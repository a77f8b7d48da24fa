"""Control of linear systems at quadratic cost: Riccati's recursion over a finite horizon, and its limit.

With s_{t+1} = A s_t + B a_t + noise the cost is the sum of s_t' U s_t + a_t' W a_t over the actions, and s_T' U s_T at
the end (CS229, 16.2, where rewards are minus costs and Phi_t is minus `value`). The best action is gain_t s_t, with a
minus that the lecture's formula lacks, and noise adds to the cost, where the lecture takes it off.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from bayeslab.programs.program import precision_scope


class LinearControl(NamedTuple):
    """The law a_t = gain_t s_t and the expected cost s' value_t s + noise_cost_t from step t on.

    gain: (*batch, step, action, component). value: (*batch, step + 1, component, component). noise_cost:
    (*batch, step + 1).
    """

    gain: Array
    value: Array
    noise_cost: Array


def finite_control(
    dynamics: tuple[ArrayLike, ArrayLike],
    costs: tuple[ArrayLike, ArrayLike],
    num_steps: int,
    noise: ArrayLike = 0.0,
) -> LinearControl:
    """The best control of num_steps actions, by Riccati's recursion from the end.

    dynamics: A (*batch, component, component) and B (*batch, component, action). costs: U (component, component) of
    states, positive semidefinite, and W (action, action) of actions, positive definite. noise: the covariance of the
    noise of a step (*batch, component, component), positive semidefinite.
    Raises ValueError for shapes that do not fit, matrices that are not symmetric or not definite, and no step.
    """
    with precision_scope():
        a, b, u, w = checked_matrices(dynamics, costs)
        if num_steps < 1:
            raise ValueError(f"num_steps must be at least 1, but is {num_steps}")
        noise = jnp.broadcast_to(jnp.asarray(noise, a.dtype), a.shape)
        require_covariance("noise", noise)
        return jax.device_get(_riccati(a, b, u, w, noise, num_steps))


def stationary_control(
    dynamics: tuple[ArrayLike, ArrayLike], costs: tuple[ArrayLike, ArrayLike]
) -> tuple[np.ndarray, np.ndarray]:
    """The gain (action, component) and the value (component, component) of control that never ends.

    They solve the algebraic Riccati equation, by SciPy; the limit of the first ones of `finite_control`.
    dynamics, costs: as there, of one system. Raises ValueError as that does, and where no control keeps the cost
    finite.
    """
    from scipy.linalg import solve_discrete_are

    with precision_scope():
        a, b, u, w = (np.asarray(leaf) for leaf in checked_matrices(dynamics, costs))
    if a.ndim != 2:
        raise ValueError(f"the dynamics of one system are expected, but A has shape {a.shape}")
    try:
        value = solve_discrete_are(a, b, u, w)
    except (np.linalg.LinAlgError, ValueError):
        raise ValueError("no control keeps the cost finite: actions do not reach what grows by itself") from None
    return -np.linalg.solve(w + b.T @ value @ b, b.T @ value @ a), value


def checked_matrices(
    dynamics: tuple[ArrayLike, ArrayLike], costs: tuple[ArrayLike, ArrayLike]
) -> tuple[Array, Array, Array, Array]:
    """A, B, U and W; raises ValueError where they do not fit."""
    a, b, u, w = (np.asarray(leaf, float) for leaf in (*dynamics, *costs))
    if a.ndim < 2 or a.shape[-1] != a.shape[-2] or not a.shape[-1]:
        raise ValueError(f"A has shape {a.shape}; expected (*batch, component, component)")
    if b.ndim < 2 or b.shape[-2] != a.shape[-1] or not b.shape[-1]:
        raise ValueError(f"B has shape {b.shape}; expected (*batch, {a.shape[-1]}, action)")
    for name, cost, size in (("U", u, a.shape[-1]), ("W", w, b.shape[-1])):
        if cost.shape != (size, size) or not np.allclose(cost, cost.T):
            raise ValueError(f"{name} has shape {cost.shape}; expected a symmetric matrix ({size}, {size})")
    for name, array in (("A", a), ("B", b), ("U", u), ("W", w)):
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must have finite numbers")
    if np.linalg.eigvalsh(w).min() <= 0 or np.linalg.eigvalsh(u).min() < -1e-10 * abs(u).max():
        raise ValueError("U must be positive semidefinite and W positive definite: every action has a cost")
    return jnp.asarray(a), jnp.asarray(b), jnp.asarray(u), jnp.asarray(w)


def require_covariance(name: str, covariance: ArrayLike) -> None:
    """Raises ValueError where a matrix (*batch, size, size) is not symmetric or has a negative eigenvalue."""
    matrix = np.asarray(covariance)
    scale = abs(matrix).max(initial=0.0)
    is_covariance = (
        np.isfinite(matrix).all()
        and np.allclose(matrix, matrix.mT, atol=1e-10 * scale)
        and np.linalg.eigvalsh(matrix).min(initial=0.0) >= -1e-10 * scale
    )
    if not is_covariance:
        raise ValueError(f"{name} must be a covariance: symmetric, without negative eigenvalues")


@partial(jax.jit, static_argnames="num_steps")
def _riccati(a: Array, b: Array, u: Array, w: Array, noise: Array, num_steps: int) -> LinearControl:
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    last = jnp.broadcast_to(u, (*batch, *u.shape))

    def step(later: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        value, cost = later
        pulled = b.mT @ value
        gain = -jnp.linalg.solve(w + pulled @ b, pulled @ a)
        new = u + a.mT @ value @ (a + b @ gain)
        new = (new + new.mT) / 2
        cost = cost + jnp.trace(noise @ value, axis1=-2, axis2=-1)
        return (new, cost), (gain, new, cost)

    start = last, jnp.zeros(batch, last.dtype)
    _, (gain, value, cost) = jax.lax.scan(step, start, None, length=num_steps, reverse=True)
    value, cost = jnp.concatenate([value, last[None]]), jnp.concatenate([cost, start[1][None]])
    lead = len(batch)
    return LinearControl(jnp.moveaxis(gain, 0, lead), jnp.moveaxis(value, 0, lead), jnp.moveaxis(cost, 0, lead))
