"""Numbers of components and of factors, chosen by hidden rows: against closed forms, and where the number is known."""

from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.typing import NDArray
from scipy import stats

import bayeslab as bl
from bayeslab.models import factor_analysis, gaussian_mixture, noisy_ica, ppca

Array = NDArray[Any]
Y = np.array([0.3, -1.2, 0.8, 2.2, -0.4, 1.1, 0.2])


def level(num_rows: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", num_rows):
        numpyro.sample("y", dist.Normal(mu, 1.0))


def test_hidden_rows_are_predicted_from_all_others() -> None:
    """Every third row is in a block; the predictive density of a block is a Normal."""
    found = bl.held_out(0, level, {"num_rows": 7, "y": Y}, bl.Exact(40_000), blocks=3)
    for block, hidden in enumerate(([0, 3, 6], [1, 4], [2, 5])):
        joint = stats.multivariate_normal(np.zeros(7), np.eye(7) + 4.0).logpdf(Y)
        rest = np.delete(Y, hidden)
        expected = joint - stats.multivariate_normal(np.zeros(len(rest)), np.eye(len(rest)) + 4.0).logpdf(rest)
        np.testing.assert_allclose(found["log_density"][block], expected, atol=0.03)
    assert found["entries"].values.tolist() == [3, 2, 2]


def test_labels_are_summed_over_and_rows_in_order_are_mixed() -> None:
    """Everything but the labels is known, so the density of hidden rows is that of the mixture, in every block."""
    y = np.sort(Y)
    known = {"weights": np.array([0.3, 0.7]), "mu": np.array([-1.0, 1.0]), "tau": np.array([1.0, 2.0])}
    data = {"num_rows": 7, "num_components": 2, "y": y, **known}
    found = bl.held_out(0, gaussian_mixture.model, data, bl.Exact(3), blocks=2)
    logs = np.log(np.exp(stats.norm(known["mu"], known["tau"] ** -0.5).logpdf(y[:, None])) @ known["weights"])
    np.testing.assert_allclose(found["log_density"], [logs[::2].sum(), logs[1::2].sum()], rtol=1e-10)


def test_factors_of_hidden_rows_know_nothing() -> None:
    """Given all else, hidden rows are Normal. Factors of complete rows have one precision, those of hidden ones not."""
    rng = np.random.default_rng(3)
    y, w, mu, tau = rng.normal(size=(7, 3)), rng.normal(size=(3, 2)), np.array([0.1, -0.2, 0.4]), 2.0
    data = {"num_rows": 7, "num_features": 3, "num_factors": 2, "w": w, "mu": mu, "tau": tau, "y": y}
    found = bl.held_out(0, ppca.model, data, bl.Exact(3), blocks=3)
    logs = stats.multivariate_normal(mu, w @ w.T + np.eye(3) / tau).logpdf(y)
    np.testing.assert_allclose(found["log_density"], [logs[block::3].sum() for block in range(3)], rtol=1e-9)


@cache
def wide_rows() -> Array:
    rng = np.random.default_rng(3)
    return rng.normal(size=(60, 2)) @ rng.normal(size=(2, 5)) + 0.5 * rng.normal(size=(60, 5))


def factor_data(**more: Any) -> dict[str, Any]:
    return {"num_rows": 60, "num_features": 5, "y": wide_rows(), **more}


@pytest.mark.slow
def test_two_factors_are_found() -> None:
    """A third one does no harm to predictions, but the bound charges for it."""
    table = bl.choose(0, ppca.model, factor_data(), "num_factors", (1, 2, 3), bl.MeanField(num_samples=200), 3)
    assert table.attrs["smallest"] == 2
    assert table["evidence_bound"].values.argmax() == 1


@pytest.mark.slow
def test_three_components_are_found() -> None:
    rng = np.random.default_rng(4)
    y = np.concatenate([rng.normal(centre, 0.4, 25) for centre in (-3.0, 0.0, 3.0)])
    data = {"num_rows": len(y), "y": y}
    method = bl.MeanField(num_samples=200)
    table = bl.choose(0, gaussian_mixture.model, data, "num_components", (1, 3, 4), method)
    assert table.attrs["smallest"] == 3
    assert float(table["difference"].sel(num_components=1)) < -3 * float(table["difference_se"].sel(num_components=1))
    assert table["evidence_bound"].values.argmax() == 1
    assert np.isfinite(table["loo"]).all()


def test_sites_of_rows_that_cannot_be_integrated_out_are_named() -> None:
    data = {"num_rows": 60, "num_features": 5, "num_sources": 1, "y": wide_rows()}
    with pytest.raises(ValueError, match="'s' cannot be integrated out"):
        bl.held_out(0, noisy_ica.model, data, bl.NUTS(num_samples=10), blocks=3)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"blocks": 61}, "60 elements of plate 'row' have entries; take fewer blocks than 61"),
        (
            {"site": "column"},
            r"'column' is neither a chain nor a plate of observed sites; these are \['row', 'feature'\]",
        ),
        ({"site": "feature", "blocks": 2}, "cannot be integrated out"),
    ],
)
def test_parts_that_cannot_be_hidden_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bl.held_out(0, factor_analysis.model, factor_data(num_factors=1), bl.MeanField(), **more)


def test_a_program_without_rows_is_refused() -> None:
    def single() -> None:
        numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal()), 1.0))

    with pytest.raises(ValueError, match="no latent MarkovChain or LinearGaussianChain"):
        bl.held_out(0, single, {"y": jnp.array(0.3)}, bl.Exact(2))
