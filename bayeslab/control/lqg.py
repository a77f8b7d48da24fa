"""Linear quadratic Gaussian control: a linear system seen with noise, steered by what the Kalman filter believes.

The belief of a state is Normal; its covariance depends on no action, and the best action is that of the known state
with the mean of the belief in its place: the separation principle (CS229, 16.4).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from bayeslab.control.linear_quadratic import require_covariance
from bayeslab.distributions.kalman import Moments, Transition, matvec, predict, semidefinite_cholesky
from bayeslab.programs.program import precision_scope, raw_key

if TYPE_CHECKING:
    from xarray import Dataset


class LinearSystem(NamedTuple):
    """s_1 ~ N(mu1, sigma1), s_{t+1} ~ N(a s_t + b action_t, q), y_t ~ N(c s_t, r): the arguments of `models.lqg`.

    mu1 (component,), sigma1, a, q (component, component), b (component, action), c (direction, component), r
    (direction, direction). sigma1, q and r may be singular: what is known for sure, moves without noise, or is measured
    without error.
    """

    mu1: Any
    sigma1: Any
    a: Any
    q: Any
    b: Any
    c: Any
    r: Any


def closed_loop(
    key: Array | int, system: LinearSystem, costs: tuple[ArrayLike, ArrayLike], gain: ArrayLike, num_runs: int = 1
) -> "Dataset":
    """Simulated runs in which every action is gain_t times the filtered mean of the state.

    costs: U of states and W of actions, as for `finite_control`. gain: (step, action, component); there is one state
    more than actions.
    Returns a Dataset with s and belief (run, step, component), belief_covariance (step, component, component), the same
    in all runs, y (run, step, direction), action (run, turn, input) and cost (run,).
    Raises ValueError for shapes that do not fit and for num_runs below one.
    """
    from xarray import Dataset

    with precision_scope():
        arrays, cost_arrays, gains = _checked(system, costs, gain)
        if num_runs < 1:
            raise ValueError(f"num_runs must be at least 1, but is {num_runs}")
        keys = jax.random.split(raw_key(key), num_runs)
        s, y, belief, covariance, action, cost = jax.device_get(_simulated(keys, arrays, cost_arrays, gains))
    return Dataset(
        {
            "s": (("run", "step", "component"), s),
            "y": (("run", "step", "direction"), y),
            "belief": (("run", "step", "component"), belief),
            "belief_covariance": (("step", "component", "component_"), covariance[0]),
            "action": (("run", "turn", "input"), action),
            "cost": (("run",), cost),
        }
    )


def expected_cost(system: LinearSystem, costs: tuple[ArrayLike, ArrayLike], gain: ArrayLike) -> float:
    """The expected cost of `closed_loop`, exactly, by the second moments of belief and state.

    Arguments and errors are those of `closed_loop`.
    """
    with precision_scope():
        return float(_expected_cost(*_checked(system, costs, gain)))


Matrices = tuple[Array, Array]


def _checked(
    system: LinearSystem, costs: tuple[ArrayLike, ArrayLike], gain: ArrayLike
) -> tuple[LinearSystem, Matrices, Array]:
    """All arguments as arrays; raises ValueError where shapes do not fit."""
    arrays = LinearSystem(*(jnp.asarray(leaf, float) for leaf in system))
    gains, (u, w) = jnp.asarray(gain, float), (jnp.asarray(leaf, float) for leaf in costs)
    size = arrays.mu1.shape[-1] if arrays.mu1.ndim else 0
    inputs, seen = arrays.b.shape[-1:], arrays.c.shape[:-1]
    expected = {
        "mu1": (arrays.mu1, (size,)),
        "sigma1": (arrays.sigma1, (size, size)),
        "a": (arrays.a, (size, size)),
        "q": (arrays.q, (size, size)),
        "b": (arrays.b, (size, *inputs)),
        "c": (arrays.c, (*seen, size)),
        "r": (arrays.r, (*seen, *seen)),
        "U": (u, (size, size)),
        "W": (w, (*inputs, *inputs)),
        "gain": (gains, (*gains.shape[:1], *inputs, size)),
    }
    for name, (array, shape) in expected.items():
        if array.shape != shape or not array.size:
            raise ValueError(f"{name} has shape {array.shape}; expected {shape}, as mu1, b and c say")
        if not np.isfinite(np.asarray(array)).all():
            raise ValueError(f"{name} must have finite numbers")
    for name in ("sigma1", "q", "r"):
        require_covariance(name, getattr(arrays, name))
    return arrays, (u, w), gains


def _updated(prior: Moments, system: LinearSystem, y: Array) -> Moments:
    """The belief after a measurement. What is measured may have no variance, hence the generalised inverse."""
    seen = system.c @ prior.covariance
    gain = (jnp.linalg.pinv(seen @ system.c.T + system.r, hermitian=True) @ seen).T
    covariance = prior.covariance - gain @ seen
    return Moments(prior.mean + gain @ (y - system.c @ prior.mean), (covariance + covariance.T) / 2)


@jax.jit
def _simulated(keys: Array, system: LinearSystem, costs: Matrices, gains: Array) -> tuple[Array, ...]:
    (u, w), num_actions = costs, len(gains)
    roots = [semidefinite_cholesky(cov) for cov in (system.sigma1, system.q, system.r)]

    def noise(key: Array, number: int, root: Array) -> Array:
        return matvec(root, jax.random.normal(key, (number, len(root)), root.dtype))

    def run(key: Array) -> tuple[Array, ...]:
        first_key, move_key, seen_key = jax.random.split(key, 3)
        moved, wrong = noise(move_key, num_actions, roots[1]), noise(seen_key, num_actions + 1, roots[2])

        def see(s: Array, error: Array, prior: Moments) -> tuple[Array, Moments]:
            y = system.c @ s + error
            return y, _updated(prior, system, y)

        def step(carry: tuple[Array, Moments], inputs: tuple[Array, Array, Array]) -> Any:
            (s, belief), (gain, push, error) = carry, inputs
            action = gain @ belief.mean
            cost = s @ u @ s + action @ w @ action
            s = system.a @ s + system.b @ action + push
            y, belief = see(s, error, predict(belief, Transition(system.a, system.b @ action, system.q)))
            return (s, belief), (s, y, belief, action, cost)

        first = system.mu1 + noise(first_key, 1, roots[0])[0]
        y, belief = see(first, wrong[0], Moments(system.mu1, system.sigma1))
        (last, _), (s, ys, beliefs, action, cost) = jax.lax.scan(step, (first, belief), (gains, moved, wrong[1:]))
        starts, later = (first, y, *belief), (s, ys, *beliefs)
        joined = [jnp.concatenate([one[None], more]) for one, more in zip(starts, later, strict=True)]
        return *joined, action, cost.sum() + last @ u @ last

    return jax.vmap(run)(keys)


@jax.jit
def _expected_cost(system: LinearSystem, costs: Matrices, gains: Array) -> Array:
    """E s s' = E m m' + P for the mean m and the covariance P of the belief, of which m moves by what is learnt."""
    (u, w), nothing = costs, jnp.zeros_like(system.mu1)

    def see(prior: Array) -> Array:
        return _updated(Moments(nothing, prior), system, jnp.zeros(len(system.c))).covariance

    def step(carry: Matrices, gain: Array) -> tuple[Matrices, Array]:
        square, covariance = carry
        cost = jnp.trace(u @ (square + covariance)) + jnp.trace(w @ gain @ square @ gain.T)
        moves = system.a + system.b @ gain
        prior = system.a @ covariance @ system.a.T + system.q
        covariance = see(prior)
        return (moves @ square @ moves.T + prior - covariance, covariance), cost

    covariance = see(system.sigma1)
    start = jnp.outer(system.mu1, system.mu1) + system.sigma1 - covariance, covariance
    (square, covariance), cost = jax.lax.scan(step, start, gains)
    return cost.sum() + jnp.trace(u @ (square + covariance))
