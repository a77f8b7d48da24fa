"""Change points whose prior has no family are drawn by slices; bends and smooth changes of such sites are not."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import AffineTransform
from scipy import stats

import bayeslab as bl

TIME = np.linspace(0.0, 10.0, 21)
BEFORE = [0.3, -0.9, 0.5, 0.1, -0.4, 0.9, 0.2, 0.6]
Y = np.array([*BEFORE, 1.3, 0.1, 1.6, 0.9, 1.9, 0.4, 1.1, 0.8, 1.5, 0.2, 1.2, 1.4, 0.7])
SCALED_BETA = dist.TransformedDistribution(
    dist.Beta(2.0, 2.0), AffineTransform(0.0, 10.0, domain=dist.constraints.unit_interval)
)


def change(prior: Any) -> Any:
    """A mean that is 0 before a change point and 1 after it."""

    def program(time: Any, y: Any = None) -> None:
        point = numpyro.sample("point", prior)
        with numpyro.plate("row", len(time)):
            numpyro.sample("y", dist.Normal(jnp.where(time < point, 0.0, 1.0), 0.8), obs=y)

    return program


@pytest.mark.parametrize(
    ("prior", "density"),
    [(dist.LogNormal(1.0, 0.7), stats.lognorm(0.7, scale=np.e)), (SCALED_BETA, stats.beta(2, 2, scale=10))],
)
def test_change_points_have_their_posterior(prior: Any, density: Any) -> None:
    """Against sums over a fine grid; NUTS, which knows no jumps, stays between two steps."""
    data = {"time": TIME, "y": Y}
    assert "steps in 'point', drawn by slices" in str(bl.explain(change(prior), data))
    tree = bl.fit(0, change(prior), data, bl.Gibbs(num_samples=2000, num_chains=2), progress=False)
    drawn = tree.posterior["point"].values
    grid = np.linspace(0.001, 30.0, 30000)
    means = (TIME[:, None] >= grid) * 1.0
    log_weight = density.logpdf(grid) + stats.norm(means, 0.8).logpdf(Y[:, None]).sum(0)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ grid
    deviation = np.sqrt(weight @ (grid - mean) ** 2)
    batches = drawn.reshape(2, 20, -1).mean(-1)
    assert abs(drawn.mean() - mean) < 5 * batches.std(ddof=1) / np.sqrt(40)
    assert drawn.std() == pytest.approx(deviation, rel=0.2)


@pytest.mark.parametrize(
    "curve",
    [
        lambda time, point: jnp.maximum(time - point, 0.0),
        lambda time, point: jnp.where(time < point, 0.0, time - point),
        lambda time, point: 1 / (1 + jnp.exp(point - time)),
    ],
)
def test_what_does_not_jump_is_left_to_nuts(curve: Any) -> None:
    def bent(time: Any, y: Any = None) -> None:
        point = numpyro.sample("point", dist.LogNormal(1.0, 0.7))
        numpyro.sample("y", dist.Normal(curve(time, point), 0.8), obs=y)

    told = str(bl.explain(bent, {"time": TIME, "y": Y}))
    assert "fit uses NUTS" in told
    assert "a LogNormal has no family" in told
