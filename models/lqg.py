"""A linear system that is steered and seen with noise: the partially observed process of linear quadratic control.

    s_1         ~ Normal(mu1, sigma1)
    s_t+1 | s_t ~ Normal(a s_t + b action_t, q),    turn t = 1..T
    y_t | s_t   ~ Normal(c s_t, r),                 step t = 1..T + 1

CS229, 16.4, where y_t is a vector shorter than the state. The posterior of the states is the belief on which actions
are based; with an action its prediction is a s_{t|t} + b action_t, where the lecture's worked filter has none, and the
lecture's gain K_t belongs to t + 1. `bl.states.filtered_states` is the belief after every measurement,
`bl.control.finite_control` the law, and `bl.control.closed_loop` both together.
"""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.distributions import LinearGaussianChain


def model(action: Array, mu1: Array, sigma1: Array, a: Array, q: Array, b: Array, c: Array, r: Array) -> None:
    """Draw states s (step, component) and measurements y (step, direction), of one step more than actions.

    action (turn, input), mu1 (component,), sigma1, a, q (component, component), b (component, input), c (direction,
    component), r (direction, direction).
    """
    chain = LinearGaussianChain(mu1, sigma1, a[None], q[None], action @ b.T, time_varying=True)
    s = numpyro.sample("s", chain, infer={"event_dims": ["step", "component"]})
    with numpyro.plate("step", len(action) + 1):
        normal = dist.MultivariateNormal(s @ c.T, covariance_matrix=r)
        numpyro.sample("y", normal, infer={"event_dims": ["direction"]})


def example() -> dict[str, Any]:
    """Five measurements of a drifting position and four pushes."""
    return {
        "action": np.array([[0.5], [-1.0], [0.2], [0.0]]),
        "mu1": np.array([0.5, -0.2]),
        "sigma1": np.array([[0.5, 0.1], [0.1, 0.4]]),
        "a": np.array([[1.0, 0.4], [0.0, 0.9]]),
        "q": np.array([[0.05, 0.01], [0.01, 0.08]]),
        "b": np.array([[0.0], [0.5]]),
        "c": np.array([[1.0, 0.2]]),
        "r": np.array([[0.1]]),
        "y": np.array([[0.4], [0.7], [0.1], [0.3], [-0.2]]),
    }


def data() -> dict[str, Any]:
    """A pole kept upright for six seconds by 60 pushes, its angle measured every tenth of a second (simulated)."""
    from bayeslab.datasets import balanced_pole

    return balanced_pole(60)
