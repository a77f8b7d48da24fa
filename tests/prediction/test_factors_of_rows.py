"""Factors beside observed sites: those that have a term for each row change the rows, which nothing draws from."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayeslab as bl

COUNTS = np.array([1, 2, 1, 3, 1])
METHOD = bl.NUTS(num_warmup=50, num_samples=20, num_chains=1)


def positive_counts(y: Any) -> None:
    """Poisson counts of at least one, with the mass that they have divided by hand."""
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Poisson(rate), obs=y)
        numpyro.factor("mass", -jnp.log1p(-jnp.exp(-rate)))


def effects_by_hand(y: Any) -> None:
    """An effect of every row, whose prior is written as a factor: given it the rows are what their site draws."""
    with numpyro.plate("row", len(y)):
        effect = numpyro.sample("effect", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.factor("prior", -(effect**2) / 2)
        numpyro.sample("y", dist.Poisson(jnp.exp(effect)), obs=y)


def sum_to_zero(y: Any) -> None:
    """A factor of a plate of its own, as a soft constraint."""
    with numpyro.plate("group", 2):
        effect = numpyro.sample("effect", dist.Normal(0.0, 1.0))
    numpyro.factor("constraint", -10 * effect.sum() ** 2)
    with numpyro.plate("row", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(effect[0])), obs=y)


def test_a_factor_that_has_a_term_for_each_row_is_refused() -> None:
    tree = bl.fit(0, positive_counts, {"y": COUNTS}, METHOD, progress=False)
    with pytest.raises(ValueError, match="draws site 'y' from its own distribution, but factor 'mass' changes it"):
        bl.predict(1, positive_counts, {"y": COUNTS}, tree)
    with pytest.raises(ValueError, match="density of site 'y' from its own distribution, but factor 'mass' changes it"):
        bl.log_likelihood(positive_counts, {"y": COUNTS}, tree, "row")


@pytest.mark.parametrize("program", [effects_by_hand, sum_to_zero])
def test_a_factor_of_latent_sites_alone_is_not(program: Any) -> None:
    tree = bl.fit(0, program, {"y": COUNTS}, METHOD, progress=False)
    replicated = bl.predict(1, program, {"y": COUNTS}, tree)["posterior_predictive"]["y"]
    assert replicated.shape == (1, 20, 5)


WEIGHTS = np.array([0.5, -1.0, 0.0, 2.0, 0.3])


def labels_by_hand(y: Any) -> None:
    """A label of every row, whose odds are written as a factor that is not normalised."""
    rates = numpyro.sample("rates", dist.Gamma(2.0, 1.0).expand([2]).to_event(1))
    with numpyro.plate("row", len(y)):
        label = numpyro.sample("label", dist.Bernoulli(0.5))
        numpyro.factor("odds", WEIGHTS * label)
        numpyro.sample("y", dist.Poisson(1e-3 + rates[label]), obs=y)


@pytest.mark.parametrize("verb", ["predict", "log_likelihood"])
def test_factors_of_labels_are_their_prior(verb: str) -> None:
    """Rows are mixtures with the odds that the factor says, whichever way their likelihoods are asked for."""
    data = {"y": COUNTS}
    tree = bl.fit(0, labels_by_hand, data, METHOD, progress=False)
    if verb == "predict":
        likelihood = bl.predict(1, labels_by_hand, data, tree)["log_likelihood"]
    else:
        likelihood = bl.log_likelihood(labels_by_hand, data, tree, "row")["log_likelihood"]
    assert likelihood.attrs["integrated_out"] == ["label"]
    share = 1 / (1 + np.exp(-WEIGHTS))
    of_label = stats.poisson.pmf(COUNTS[:, None], 1e-3 + tree["posterior"]["rates"].values[0][:, None, :])
    mixture = (1 - share) * of_label[..., 0] + share * of_label[..., 1]
    np.testing.assert_allclose(likelihood["y"].values[0], np.log(mixture), rtol=1e-9)


def test_without_an_observed_site_there_is_no_likelihood() -> None:
    def by_hand(y: Any) -> None:
        rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
        with numpyro.plate("row", len(y)):
            numpyro.factor("density", dist.Poisson(rate).log_prob(y))

    tree = bl.fit(0, by_hand, {"y": COUNTS}, METHOD, progress=False)
    with pytest.raises(ValueError, match="log_likelihood needs an observed site"):
        bl.log_likelihood(by_hand, {"y": COUNTS}, tree, "row")
