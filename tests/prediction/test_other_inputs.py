"""Processes keep no draws at inputs that are not those of the fit; coefficients do."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from tinygp.kernels import Matern32

import bayeslab as bl

X = np.linspace(0.0, 3.0, 6)
Y = np.sin(X)


def process(x: Any) -> None:
    f = numpyro.sample("f", bl.GaussianProcess(Matern32(1.0), x))
    numpyro.sample("y", dist.Normal(f, 0.3).to_event(1))


def normal_vector(x: Any) -> None:
    f = numpyro.sample("f", dist.MultivariateNormal(0.0, jnp.exp(-((x[:, None] - x) ** 2)) + 1e-3 * jnp.eye(len(x))))
    numpyro.sample("y", dist.Normal(f, 0.3).to_event(1))


def zellner(x: Any) -> None:
    """A g-prior: the covariance of coefficients is of the rows, and they have none of their own."""
    design = jnp.stack([jnp.ones(len(x)), x], axis=1)
    b = numpyro.sample("b", dist.MultivariateNormal(jnp.zeros(2), 10.0 * jnp.linalg.inv(design.T @ design)))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(design @ b, 0.3))


@pytest.mark.parametrize("program", [process, normal_vector])
@pytest.mark.parametrize("new", [{"x": X + 0.5}, {"x": X + 0.5, "y": np.where(X > 1, np.nan, Y)}])
def test_a_process_at_other_inputs_is_refused(program: Any, new: dict[str, Any]) -> None:
    tree = bl.fit(0, program, {"x": X, "y": Y}, bl.Exact(num_samples=50), progress=False)
    with pytest.raises(ValueError, match="site 'f' has draws at the inputs of the fit, and these are others"):
        bl.predict(1, program, new, tree)
    assert "predictions" in bl.predict(1, program, {"x": X}, tree).children


def test_coefficients_go_to_other_rows() -> None:
    tree = bl.fit(0, zellner, {"x": X, "y": Y}, bl.Exact(num_samples=2000), progress=False)
    drawn = bl.predict(1, zellner, {"x": X + 0.5}, tree)["predictions"]["y"].values[0]
    b = tree.posterior["b"].values[0]
    right = b.mean(0)[0] + b.mean(0)[1] * (X + 0.5)
    np.testing.assert_allclose(drawn.mean(0), right, atol=5 * drawn.std() / np.sqrt(2000))
