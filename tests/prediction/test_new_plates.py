"""Predictions where the user says which plates have new elements, and what is said where nobody does."""

import warnings
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from pandas import Series
from xarray import DataArray

import bayeslab as bl
from bayeslab.datasets import documents
from bayeslab.models import lda, ppca

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


def test_factors_that_are_vectors_are_named_too() -> None:
    def factors(num_rows: int) -> None:
        with numpyro.plate("feature", 3, dim=-1):
            w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with numpyro.plate("row", num_rows, dim=-2):
            z = numpyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
            with numpyro.plate("feature", 3, dim=-1):
                numpyro.sample("y", dist.Normal((w * z).sum(-1), 0.5))

    method = bl.Gibbs(num_warmup=20, num_samples=20, num_chains=1)
    tree = bl.fit(0, factors, {"num_rows": 12, "y": FITTED}, method, progress=False)
    with pytest.warns(UserWarning, match="keep the draws of the fit, though 'y' has other values"):
        bl.predict(1, factors, {"num_rows": 12, "y": NEW}, tree)


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


def test_groups_of_the_fit_come_first_among_more_of_them() -> None:
    def subjects(n: int, x: Any) -> None:
        with numpyro.plate("subject", n, dim=-2):
            a = numpyro.sample("a", dist.Normal(0.0, 5.0))
            with numpyro.plate("time", 3, dim=-1):
                numpyro.sample("y", dist.Normal(a + x, 0.1))

    def named(names: list[str]) -> Any:
        return DataArray(np.zeros((len(names), 3)), {"subject": names, "time": [0, 1, 2]}, ("subject", "time"))

    y = named(["s1", "s2"]) + np.array([[1.0], [5.0]])
    tree = bl.fit(0, subjects, {"n": 2, "x": named(["s1", "s2"]), "y": y}, progress=False)
    told = bl.predict(1, subjects, {"n": 3, "x": named(["s1", "s2", "s3"])}, tree)["predictions"]["y"]
    np.testing.assert_allclose(told.mean(("chain", "draw", "time"))[:2], [1.0, 5.0], atol=0.05)
    with pytest.raises(ValueError, match="entry 'x' has 's2' at position 0 of axis 0, where the fit had 's1'"):
        bl.predict(1, subjects, {"n": 3, "x": named(["s2", "s1", "s3"])}, tree)


def named_groups(group: Any, num_groups: int) -> None:
    with numpyro.plate("group", num_groups):
        level = numpyro.sample("level", dist.Normal(0.0, 5.0))
    with numpyro.plate("row", len(group)):
        numpyro.sample("y", dist.Normal(level[group], 0.1))


def test_a_number_of_groups_that_stands_in_the_way_of_a_new_name_is_named() -> None:
    """It may be left out, and it may be larger than the names."""
    data = {"group": Series(["a", "a", "b", "b"]), "num_groups": 2, "y": np.array([1.0, 1, 5, 5])}
    tree = bl.fit(0, named_groups, data, progress=False)
    new = Series(["b", "c", "a"])
    with pytest.raises(ValueError, match="leave out 'num_groups', which grows with new names"):
        bl.predict(1, named_groups, {"group": new, "num_groups": 2}, tree)
    for sizes in ({}, {"num_groups": 3}, {"num_groups": 4}):
        drawn = bl.predict(1, named_groups, {"group": new, **sizes}, tree)["predictions"]["y"]
        np.testing.assert_allclose(drawn.mean(("chain", "draw"))[[0, 2]], [5.0, 1.0], atol=0.05)
        np.testing.assert_allclose(drawn[..., 1].std(), 5.0, rtol=0.1)


def test_groups_by_position_are_told_to_have_names() -> None:
    def sizes(group: Any, size: Any) -> None:
        with numpyro.plate("group", len(size)):
            level = numpyro.sample("level", dist.Normal(size, 5.0))
        with numpyro.plate("row", len(group)):
            numpyro.sample("y", dist.Normal(level[group], 0.1))

    data = {"group": np.array([0, 0, 1, 1]), "size": np.zeros(2), "y": np.array([1.0, 1, 5, 5])}
    tree = bl.fit(0, sizes, data, bl.Exact(10), progress=False)
    with pytest.raises(ValueError, match="where they are new groups, give codes as names"):
        bl.predict(1, sizes, {"group": np.arange(3), "size": np.zeros(3)}, tree)


def test_new_documents_are_replicated_where_their_shares_follow_from_nothing() -> None:
    """Shares of a document whose words are to be scored are no sites of rows: what cannot be said is left out."""
    counts = documents(np.array([[3, 1, 0], [0, 2, 2], [1, 1, 2]]))
    data = counts | {"num_topics": 2, "alpha": 0.5, "concentration": 0.7}
    method = bl.mixed_membership.Gibbs(num_warmup=20, num_samples=20, num_chains=2)
    fitted = bl.fit(0, lda.model, data, method, progress=False)
    new = documents(np.array([[2, 0, 0], [0, 0, 1]]))
    assert "word" in bl.predict(1, lda.model, new, fitted, new_plates=["document"])["predictions"]
