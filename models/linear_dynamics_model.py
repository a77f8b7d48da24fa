"""Linear dynamics with unknown matrices and unknown noise, under a matrix-normal-Wishart prior.

    precision        ~ Wishart(scale, n0),    scale (component, component), n0 > components - 1
    theta | precision ~ MatrixNormal(m0, rows precision^-1, columns k0^-1)
    y_i | theta      ~ Normal(theta u_i, precision^-1),    row i = 1..n, u = (state, action)

CS229, 15.4.2 (15.6) and 16.2, step 1, where theta is (A, B) and estimated by least squares; y is the state after the
step. The posterior is of the same form with

    k_n = k0 + sum u u',    m_n = (m0 k0 + sum y u') k_n^-1,    n_n = n0 + n
    scale_n^-1 = scale^-1 + sum y y' + m0 k0 m0' - m_n k_n m_n'

and m_n goes to the least squares estimate with k0 to zero. Control for the posterior mean of theta leaves out that
theta is not known; its draws may have dynamics that grow.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import multigammaln


def model(
    state: Array, action: Array, scale: Array | float = 1.0, n0: float | None = None, k0: Array | float = 1.0
) -> None:
    """Draw precision (component, component_), theta (component, regressor) and y (row, component).

    state: (row, component), before each step. action: (row, input). Regressors are those of the state, then of the
    action. scale: (component, component), or a number times the identity. n0: the components plus one, if None. k0:
    (regressor, regressor), or a number times the identity; the prior mean of theta is 0 but 1 from each component to
    itself.
    """
    regressors = jnp.concatenate([state, action], 1)
    m0, scale, n0, k0 = _prior(state, action, scale, n0, k0)
    precision = dist.Wishart(n0, scale_matrix=scale)
    precision = numpyro.sample("precision", precision, infer={"event_dims": ["component", "component_"]})
    rows, columns = _root_of_inverse(precision), _root_of_inverse(k0)
    theta = numpyro.sample(
        "theta", dist.MatrixNormal(m0, rows, columns), infer={"event_dims": ["component", "regressor"]}
    )
    with numpyro.plate("row", len(state)):
        normal = dist.MultivariateNormal(regressors @ theta.T, precision_matrix=precision)
        numpyro.sample("y", normal, infer={"event_dims": ["component"]})


def posterior(y: Array, state: Array, action: Array, scale: Array, n0: float, k0: Array) -> None:
    """Draw precision and theta from p(precision, theta | y)."""
    m_n, k_n, rate = _updated(y, state, action, scale, n0, k0)
    precision = dist.Wishart(_prior(state, action, scale, n0, k0)[2] + len(y), rate_matrix=rate)
    precision = numpyro.sample("precision", precision, infer={"event_dims": ["component", "component_"]})
    theta = dist.MatrixNormal(m_n, _root_of_inverse(precision), _root_of_inverse(k_n))
    numpyro.sample("theta", theta, infer={"event_dims": ["component", "regressor"]})


def evidence(y: Array, state: Array, action: Array, scale: Array, n0: float, k0: Array) -> Array:
    """log p(y)."""
    rows, size = y.shape
    _, k_n, rate = _updated(y, state, action, scale, n0, k0)
    _, prior_scale, degrees, prior_k = _prior(state, action, scale, n0, k0)
    log_det = lambda matrix: jnp.linalg.slogdet(matrix)[1]  # noqa: E731
    gammas = multigammaln((degrees + rows) / 2, size) - multigammaln(degrees / 2, size)
    scales = (degrees + rows) * log_det(rate) + degrees * log_det(prior_scale)
    columns = size * (log_det(k_n) - log_det(prior_k))
    return gammas - (scales + columns + rows * size * jnp.log(jnp.pi)) / 2


def example() -> dict[str, Any]:
    """Six steps of two components under one push, with a prior that is no multiple of the identity."""
    rng = np.random.default_rng(0)
    state, action = rng.normal(size=(6, 2)), rng.normal(size=(6, 1))
    theta = np.array([[0.9, 0.2, 0.0], [-0.3, 0.8, 0.5]])
    y = np.concatenate([state, action], 1) @ theta.T + 0.3 * rng.normal(size=(6, 2))
    k0 = np.array([[0.7, 0.1, 0.0], [0.1, 0.5, -0.2], [0.0, -0.2, 0.4]])
    return {"state": state, "action": action, "scale": np.array([[2.0, 0.3], [0.3, 1.5]]), "n0": 3.5, "k0": k0, "y": y}


def data() -> dict[str, Any]:
    """300 steps of a pendulum that hangs and is pushed (simulated)."""
    from bayeslab.datasets import swinging_pendulum

    return {**swinging_pendulum(300), "k0": 0.01}


def _prior(state: Any, action: Any, scale: Any, n0: Any, k0: Any) -> tuple[Array, Array, Any, Array]:
    """m0 (component, regressor), scale (component, component), n0 and k0 (regressor, regressor)."""
    size, regressors = state.shape[1], state.shape[1] + action.shape[1]
    matrix = lambda x, n: x if jnp.ndim(x) == 2 else x * jnp.eye(n)  # noqa: E731
    degrees = size + 1.0 if n0 is None else n0
    return jnp.eye(size, regressors), matrix(scale, size), degrees, matrix(k0, regressors)


def _updated(y: Array, state: Array, action: Array, scale: Any, n0: Any, k0: Any) -> tuple[Array, Array, Array]:
    """m_n, k_n and the inverse of scale_n."""
    u = jnp.concatenate([state, action], 1)
    m0, scale, _, k0 = _prior(state, action, scale, n0, k0)
    k_n = k0 + u.T @ u
    m_n = jnp.linalg.solve(k_n, (m0 @ k0 + y.T @ u).T).T
    inverse = jnp.linalg.solve(scale, jnp.eye(len(scale)))
    return m_n, k_n, inverse + y.T @ y + m0 @ k0 @ m0.T - m_n @ k_n @ m_n.T


def _root_of_inverse(precision: Array) -> Array:
    """The Cholesky factor of the inverse of a precision matrix."""
    return jnp.linalg.cholesky(jnp.linalg.inv(precision))
