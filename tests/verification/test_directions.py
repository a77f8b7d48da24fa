"""Observed directions, whose support has no way to the unconstrained line, do not stop a plan."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from scipy.special import ndtr

import bayeslab as bl


def test_a_plan_for_observed_directions_is_made_and_its_posterior_is_right() -> None:
    """Unit vectors of a projected Normal with unknown mean, by default; against a grid over that mean."""

    def model(y=None):
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("row", 6):
            numpyro.sample("y", dist.ProjectedNormal(centre), obs=y)

    angle = np.array([0.1, 0.5, -0.4, 1.0, 0.3, 2.0])
    y = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    tree = bl.fit(0, model, {"y": y}, progress=False)
    grid = np.linspace(-4.0, 4.0, 161)
    mean = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    along = mean @ y.T
    standard = np.exp(-(along**2) / 2) / np.sqrt(2 * np.pi)
    radial = np.exp(-((mean**2).sum(-1)[..., None] - along**2) / 2) / np.sqrt(2 * np.pi)
    log_density = np.log(radial * (standard + along * ndtr(along))).sum(-1) - (mean**2).sum(-1) / 2
    weight = np.exp(log_density - log_density.max())
    expected = (weight[..., None] * mean).sum((0, 1)) / weight.sum()
    draws = tree.posterior["centre"]
    error = 5 * draws.std(("chain", "draw")) / jnp.sqrt(1000)
    assert (np.abs(draws.mean(("chain", "draw")) - expected) < error).all()
