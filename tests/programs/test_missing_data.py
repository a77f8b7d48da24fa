"""Densities of events of which parts are missing, in rows of which some are masked."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import mask
from scipy.stats import norm

import bayeslab as bl
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.missing.missing_data import marginalise_missing, with_support_check
from bayeslab.programs.program import precision_scope

PRESENT = np.array([[True, False, False], [True, True, False], [True, True, True]])
VALID = np.array([True, False, True])
MOVES = np.array([[0.9, 0.1], [0.3, 0.7]])
EVENTS: dict[str, Any] = {
    "independent": lambda: dist.Normal(jnp.arange(3.0), 1.0).to_event(1),
    "normal": lambda: dist.MultivariateNormal(jnp.arange(3.0), jnp.eye(3)),
    "chain": lambda: bl.MarkovChain(np.array([0.5, 0.5]), MOVES, 3),
    "guarded": lambda: with_support_check(dist.Uniform(0.0, jnp.full(3, 2.0)).to_event(1)),
}
FORMS: dict[str, Any] = {
    "rows": lambda one: one.expand([3]).mask(VALID),
    "before the plate": lambda one: one.mask(True).expand([3]).mask(VALID),
    "twice": lambda one: one.expand([3]).mask(VALID).mask(np.array([True, True, False])),
    "all": lambda one: one.expand([3]).mask(False),
    "none": lambda one: one.expand([3]),
}
LEFT = {"rows": VALID, "before the plate": VALID, "twice": [True, False, False], "all": [False] * 3, "none": [True] * 3}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("event", EVENTS)
def test_masked_rows_say_nothing_where_others_miss_entries(event: str, form: str) -> None:
    value = np.array([[0, 0, 0], [0, 1, 0], [1, 1, 0]])
    with precision_scope():
        found = marginalise_missing(FORMS[form](EVENTS[event]()), PRESENT).log_prob(value)
    if event == "chain":
        expected = np.log([0.5, 0.5 * 0.1, 0.5 * 0.7 * 0.3])
    elif event == "guarded":
        expected = -np.log(2) * PRESENT.sum(1)
    else:
        expected = (norm.logpdf(value, np.arange(3)) * PRESENT).sum(1)
    np.testing.assert_allclose(found, np.where(LEFT[form], expected, 0.0), rtol=1e-12)


def test_a_missing_entry_leaves_the_bound_of_the_others() -> None:
    with precision_scope(), numpyro.validation_enabled(False):
        found = marginalise_missing(
            with_support_check(dist.Uniform(0.0, jnp.full((2, 2), 2.0)).to_event(1)), np.array([[True, False]] * 2)
        )
        np.testing.assert_allclose(found.log_prob(np.array([[1.0, 9.0], [9.0, 1.0]])), [-np.log(2), -np.inf])


def test_a_masked_row_says_nothing_beside_one_with_a_missing_entry() -> None:
    def model(valid: Any, n: int) -> None:
        mean = numpyro.sample("mean", dist.Normal(0.0, 10.0))
        with numpyro.plate("row", n), mask(mask=valid):
            numpyro.sample("y", dist.Normal(mean, 1.0).expand([2]).to_event(1))

    data = {"valid": VALID[:2], "n": 2, "y": np.array([[1.0, np.nan], [100.0, 100.0]])}
    tree = bl.fit(0, model, data, bl.Exact(10), progress=False)
    assert tree.attrs["log_evidence"] == pytest.approx(norm.logpdf(1, 0, np.sqrt(101)))


@pytest.mark.parametrize("inside", [False, True])
def test_masked_rows_have_no_log_likelihood(inside: bool) -> None:
    def model(n: int, valid: Any) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", n), mask(mask=valid if not inside else jnp.ones(n, bool)):
            numpyro.sample("y", dist.Normal(mu * jnp.ones(n), 1.0).mask(valid if inside else True))

    data = {"n": 4, "valid": np.array([True, True, False, True]), "y": np.array([1.0, np.nan, 3.0, 0.5])}
    tree = bl.predict(1, model, data, bl.fit(1, model, data, bl.Exact(num_samples=5), progress=False))
    mu = tree["posterior"]["mu"].values[..., None]
    expected = np.where([True, False, False, True], norm(mu, 1).logpdf([1.0, 0.0, 3.0, 0.5]), np.nan)
    np.testing.assert_allclose(tree["log_likelihood"]["y"], expected)


@pytest.mark.parametrize(
    "prior", [dist.DiscreteUniform(0, 1), dist.Binomial(1, 0.5), dist.Categorical(np.full(2, 0.5))]
)
def test_labels_with_known_bounds_may_be_missing_in_part(prior: dist.Distribution) -> None:
    def program(n: int) -> None:
        mu = numpyro.sample("mu", dist.Normal(0, 3).expand([2]).to_event(1))
        with numpyro.plate("row", n):
            g = numpyro.sample("g", prior)
            numpyro.sample("y", dist.Normal(mu[g], 1.0))

    data = {"n": 5, "g": np.array([0, 1, 0, np.nan, np.nan]), "y": np.array([-1.0, 3.0, -1.2, 2.8, -0.9])}
    bound = bind(program, data)
    assert [*terms(bound).priors["g"].choices] == [0, 1]
    tree = bl.fit(0, program, data, bl.NUTS(num_warmup=100, num_samples=200, num_chains=1), progress=False)
    new = {"n": 2, "g": np.array([1, np.nan]), "y": np.array([3.0, -1.0])}
    found = bl.predict(1, program, new, tree)
    assert found["predictions_probabilities"]["g"].values[1, 0] > 0.95
    assert "g given the rest" in found["predictions_log_likelihood"]
