"""Predictions where the user says which plates have new elements, and what is said where nobody does."""

import warnings
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.models import ppca

RNG = np.random.default_rng(1)
LOADINGS = np.array([[1.0, -0.8, 0.5]])
SIZES: dict[str, Any] = {"num_rows": 12, "num_features": 3, "num_factors": 1}


def rows() -> np.ndarray:
    return RNG.normal(size=(12, 1)) @ LOADINGS + 0.4 * RNG.normal(size=(12, 3))


FITTED, NEW = rows(), rows()
NEW[:, 1] = np.nan


@pytest.fixture(scope="module")
def tree() -> Any:
    method = bl.Gibbs(num_warmup=300, num_samples=500, num_chains=2)
    return bl.fit(0, ppca.model, SIZES | {"y": FITTED}, method, progress=False)


@pytest.mark.parametrize("number", [12, 5])
def test_rows_of_a_factor_model_are_drawn_given_what_is_known_of_them(tree: Any, number: int) -> None:
    """The feature that is missing has its Normal distribution given the others, factors integrated out."""
    data = SIZES | {"num_rows": number, "y": NEW[:number]}
    predicted = bl.predict(1, ppca.model, data, tree, new_plates=["row"])["predictions"]
    assert predicted.attrs["draws_of_the_fit"] == ["tau", "mu", "w"]
    posterior, known, moments = tree["posterior"], [0, 2], []
    for w, mu, tau in zip(
        *(posterior[name].values.reshape(-1, *posterior[name].shape[2:]) for name in ("w", "mu", "tau")), strict=True
    ):
        covariance = w @ w.T + np.eye(3) / tau
        gain = np.linalg.solve(covariance[np.ix_(known, known)], covariance[known, 1])
        mean = mu[1] + (NEW[:number, known] - mu[known]) @ gain
        moments.append(np.stack([mean, np.full(number, covariance[1, 1] - gain @ covariance[known, 1])]))
    mean, variance = np.mean(moments, 0)
    draws = predicted["y"].values[..., 1].reshape(-1, number)
    np.testing.assert_allclose(draws.mean(0), mean, atol=4.5 * np.sqrt(variance.max() / len(draws)))


def test_elements_that_may_be_old_or_new_are_named(tree: Any) -> None:
    with pytest.warns(UserWarning, match=r"'w'.*'z'.* keep the draws of the fit, though 'y' has other values"):
        bl.predict(1, ppca.model, SIZES | {"y": NEW}, tree)
    with pytest.raises(ValueError, match="or name that of 'row', 'factor' in new_plates whose elements are all others"):
        bl.predict(1, ppca.model, SIZES | {"num_rows": 5, "y": NEW[:5]}, tree)
    with pytest.raises(ValueError, match=r"'rows', which is no plate of the program; these are \['factor', 'feature'"):
        bl.predict(1, ppca.model, SIZES | {"y": NEW}, tree, new_plates=["rows"])


def test_groups_of_the_fit_keep_their_effects_unless_they_are_others() -> None:
    def groups(num_groups: int, times: int) -> None:
        with numpyro.plate("group", num_groups, dim=-2):
            level = numpyro.sample("level", dist.Normal(0.0, 3.0))
            with numpyro.plate("time", times, dim=-1):
                numpyro.sample("y", dist.Normal(level, 0.1))

    data = {"num_groups": 3, "times": 2, "y": np.array([[5.0, 5.1], [-4.0, -4.1], [0.1, 0.0]])}
    tree = bl.fit(0, groups, data, progress=False)
    other = data | {"y": np.array([[5.2, np.nan], [-3.9, np.nan], [4.0, np.nan]])}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        old = bl.predict(1, groups, other, tree)["predictions"]
        new = bl.predict(1, groups, other, tree, new_plates="group")["predictions"]
    np.testing.assert_allclose(old["y"].mean(("chain", "draw"))[2, 1], 0.05, atol=0.02)
    np.testing.assert_allclose(new["y"].mean(("chain", "draw"))[2, 1], 4.0, atol=0.02)
