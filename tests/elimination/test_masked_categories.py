"""Categories that are masked by logits of minus infinity have no probability, by every method."""

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import bayeslab as bl

LOGITS = np.array([[0.0, -np.inf, 1.0], [0.3, 0.2, -np.inf], [0.0, 0.0, 0.0]])
Y = np.array([0.5, 1.0, 2.2])


def levels(logits: Any, y: Any) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", 3):
        z = numpyro.sample("z", dist.Categorical(logits=logits))
        numpyro.sample("y", dist.Normal(mu + z, 1.0), obs=y)


def known(logits: Any, y: Any) -> None:
    with numpyro.plate("row", 3):
        z = numpyro.sample("z", dist.Categorical(logits=logits))
        numpyro.sample("y", dist.Normal(z, 1.0), obs=y)


def log_likelihood(mu: np.ndarray) -> np.ndarray:
    """log p(y | mu) of all rows (row, ...)."""
    probs = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    each = stats.norm.pdf(Y[:, None], np.asarray(mu)[..., None, None] + np.arange(3))
    return np.moveaxis(np.log((probs * each).sum(-1)), -1, 0)


GRID = np.linspace(-12, 12, 8001)
DENSITY = np.exp(stats.norm.logpdf(GRID, 0.0, 2.0) + log_likelihood(GRID).sum(0))
MEAN = float(np.trapezoid(GRID * DENSITY, GRID) / np.trapezoid(DENSITY, GRID))
SD = float(np.sqrt(np.trapezoid((GRID - MEAN) ** 2 * DENSITY, GRID) / np.trapezoid(DENSITY, GRID)))


@pytest.mark.parametrize(
    "method", [None, bl.Gibbs(num_samples=1000, num_chains=2), bl.SVI(num_samples=1000)], ids=["NUTS", "Gibbs", "SVI"]
)
def test_masked_categories_are_never_drawn(method: Any) -> None:
    tree = bl.fit(0, levels, {"logits": LOGITS, "y": Y}, method, progress=False)
    z = tree["posterior"]["z"]
    assert not (z.isel(row=0) == 1).any()
    assert not (z.isel(row=1) == 2).any()
    assert float(tree["posterior"]["mu"].mean()) == pytest.approx(MEAN, abs=5 * SD / np.sqrt(300))


def test_likelihoods_of_rows_leave_them_out() -> None:
    data = {"logits": LOGITS, "y": Y}
    tree = bl.fit(0, levels, data, bl.NUTS(num_warmup=200, num_samples=50, num_chains=1), progress=False)
    likelihood = bl.predict(1, levels, data, tree)["log_likelihood"]
    assert likelihood.attrs["integrated_out"] == ["z"]
    expected = log_likelihood(tree["posterior"]["mu"].values[0])
    np.testing.assert_allclose(likelihood["y"].values[0], expected.T, rtol=1e-9)


def test_their_evidence_is_exact() -> None:
    tree = bl.fit(0, known, {"logits": LOGITS, "y": Y}, bl.Exact(100), progress=False)
    np.testing.assert_allclose(tree.attrs["log_evidence"], log_likelihood(np.zeros(()))[:, ...].sum(), rtol=1e-12)


@pytest.mark.parametrize(("value", "words"), [(np.inf, "infinite at position"), (np.nan, "missing entry")])
def test_other_numbers_are_refused(value: float, words: str) -> None:
    logits = LOGITS.copy()
    logits[1, 0] = value
    with pytest.raises(ValueError, match=words):
        bl.bind(levels, {"logits": logits, "y": Y})


def test_a_row_without_a_category_is_refused() -> None:
    logits = LOGITS.copy()
    logits[1] = -np.inf
    with pytest.raises(ValueError, match="without a finite density"):
        bl.bind(levels, {"logits": logits, "y": Y})
