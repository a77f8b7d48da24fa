"""A process at new inputs: latent sites of rows are those of new rows, and categories and columns those of the fit."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas
import pytest

import bayeslab as bl
from bayeslab import kernels
from bayeslab.gaussian_processes.hilbert_space import HilbertSpace

X, Y = np.array([0.0, 0.5, 0.5, 2.0]), np.array([0.3, -0.5, 2.0, 1.0])
NEW = np.array([0.25, 0.5, 3.0, 7.0])


def process(x: Any, lengthscale: Any = 1.0) -> Any:
    kernel = kernels.squared_exponential(lengthscale)
    return numpyro.sample("f", bl.GaussianProcess(kernel, x), infer={"event_dims": ["row"]})


def effect_of_rows(x: Any) -> None:
    f = process(x)
    with numpyro.plate("row", len(x)):
        e = numpyro.sample("e", dist.Normal(0.0, 2.0))
        numpyro.sample("y", dist.Normal(f + e, 0.5))


def noisy_inputs(x: Any) -> None:
    with numpyro.plate("row", len(x)):
        at = numpyro.sample("at", dist.Normal(x, 0.3))
    f = process(at)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, 0.2))


def noise_of_rows(x: Any) -> None:
    f = process(x)
    with numpyro.plate("row", len(x)):
        variance = numpyro.sample("variance", dist.InverseGamma(1.5, 0.4))
        numpyro.sample("y", dist.Normal(f, jnp.sqrt(variance)))


def groups(x: Any, group: Any, n: int) -> None:
    with numpyro.plate("group", n):
        e = numpyro.sample("e", dist.Normal(0.0, 1.0))
    f = process(x)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f + e[group], 0.5))


def two_inputs(x: Any) -> None:
    f = process(x, jnp.array([1.0, 5.0]))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, 0.5))


@pytest.mark.parametrize("number", [1, 3, 4])
def test_an_effect_of_a_new_row_comes_from_its_prior(number: int) -> None:
    """As many new rows as the fit had, and others: a measurement varies as f, the effect and the noise do."""
    data = {"x": X, "y": Y}
    tree = bl.fit(0, effect_of_rows, data, bl.Gibbs(num_samples=2000, num_chains=2), progress=False)
    new = bl.process_at(effect_of_rows, data, tree, {"x": NEW[:number]})
    covariance = np.exp(-((X[:, None] - X) ** 2) / 2) + 4.25 * np.eye(4)
    across = np.exp(-((NEW[:number, None] - X) ** 2) / 2)
    mean = across @ np.linalg.solve(covariance, Y)
    variance = 1 - (across * np.linalg.solve(covariance, across.T).T).sum(1)
    error = 4 * 2.2 / np.sqrt(4000)
    np.testing.assert_allclose(new["f"], mean, atol=error)
    np.testing.assert_allclose(new["y"], mean, atol=error)
    np.testing.assert_allclose(new["y_sd"], np.sqrt(variance + 4.25), atol=error)


def test_a_point_has_moments_of_its_rows_too() -> None:
    """Far away f is its prior: an effect and the noise are added, however few draws the result has."""
    data = {"x": pandas.Series(X, index=list("abcd")), "y": Y}
    tree = bl.fit(0, effect_of_rows, data, bl.MAP(), progress=False)
    far = bl.process_at(effect_of_rows, data, tree, {"x": pandas.Series(NEW + 50, index=list("efgh"))})
    np.testing.assert_allclose(far["y"], 0.0, atol=4 * 2 / np.sqrt(400))
    np.testing.assert_allclose(far["y_sd"], np.sqrt(5.25), rtol=0.15)
    assert [*far["row"].values] == list("efgh")


def test_inputs_with_errors_are_drawn_at_new_places() -> None:
    data = {"x": X, "y": Y}
    tree = bl.fit(0, noisy_inputs, data, bl.NUTS(200, 300, num_chains=2, collapse=("f",)), progress=False)
    far = bl.process_at(noisy_inputs, data, tree, {"x": NEW + 50})
    np.testing.assert_allclose(far["f"], 0.0, atol=1e-6)
    np.testing.assert_allclose(far["f_sd"], 1.0, atol=1e-6)
    draws = bl.process_draws(1, noisy_inputs, data, tree, {"x": NEW + 50})["f"].values
    np.testing.assert_allclose(draws.std((0, 1)), 1.0, atol=4 / np.sqrt(2 * 600))
    near, again = (bl.process_draws(key, noisy_inputs, data, tree, {"x": X})["f"].values.ravel() for key in (1, 2))
    assert abs(np.corrcoef(near - near.mean(), again - again.mean())[0, 1]) < 0.9


def test_a_measurement_whose_noise_is_that_of_its_row_is_left_to_the_process() -> None:
    data = {"x": X, "y": Y}
    tree = bl.fit(0, noise_of_rows, data, bl.Gibbs(num_warmup=50, num_samples=50, num_chains=2), progress=False)
    assert [*bl.process_at(noise_of_rows, data, tree, {"x": NEW}).data_vars] == ["f", "f_sd"]


def test_categories_have_the_codes_of_the_fit() -> None:
    data = {"x": X, "group": pandas.Categorical(["b", "a", "b", "a"]), "n": 2, "y": Y}
    tree = bl.fit(0, groups, data, progress=False)
    member, new_member = np.eye(2)[[1, 0, 1, 0]], np.eye(2)[[1] * 4]
    covariance = np.exp(-((X[:, None] - X) ** 2) / 2) + member @ member.T + 0.25 * np.eye(4)
    across = np.exp(-((NEW[:, None] - X) ** 2) / 2) + new_member @ member.T
    new = {"x": NEW, "group": pandas.Categorical(list("bbbb"))}
    answer = bl.process_at(groups, data, tree, new)["y"]
    np.testing.assert_allclose(answer, across @ np.linalg.solve(covariance, Y), atol=4 / np.sqrt(4000))
    with pytest.raises(ValueError, match=r"category 'c' at position .* which the fit does not know"):
        bl.process_at(groups, data, tree, new | {"group": pandas.Categorical(list("cbbb"))})
    with pytest.raises(ValueError, match=r"site 'e' has shape \(2,\) in the result, but \(3,\) for the new inputs"):
        bl.process_at(groups, data, tree, new | {"n": 3})


def test_columns_are_those_of_the_fit() -> None:
    data = {"x": pandas.DataFrame({"u": [0.0, 1, 0, 1], "v": [0.0, 0, 3, 2]}), "y": Y}
    tree = bl.fit(0, two_inputs, data, bl.Exact(50), progress=False)
    new = pandas.DataFrame({"u": [0.5, 0.2], "v": [2.0, 1.0]})
    scaled, new_scaled = data["x"].to_numpy() / [1, 5], new.to_numpy() / [1, 5]
    covariance = np.exp(-((scaled[:, None] - scaled) ** 2).sum(-1) / 2) + 0.25 * np.eye(4)
    across = np.exp(-((new_scaled[:, None] - scaled) ** 2).sum(-1) / 2)
    answer = bl.process_at(two_inputs, data, tree, {"x": new})["f"]
    np.testing.assert_allclose(answer, across @ np.linalg.solve(covariance, Y), rtol=1e-6)
    for wrong in (new[["v", "u"]], new.set_axis(["p", "q"], axis=1)):
        with pytest.raises(ValueError, match="position 0 of axis 1, where the fit had 'u'"):
            bl.process_at(two_inputs, data, tree, {"x": wrong})


def test_inputs_outside_of_the_box_are_named() -> None:
    def boxed(x: Any) -> None:
        solver = HilbertSpace(8, boundary=1.5)
        kernel = kernels.squared_exponential(1.0)
        f = numpyro.sample("f", bl.GaussianProcess(kernel, x, solver=solver), infer={"event_dims": ["row"]})
        with numpyro.plate("row", len(x)):
            numpyro.sample("y", dist.Normal(f, 0.5))

    data = {"x": X, "y": Y}
    tree = bl.fit(0, boxed, data, bl.Exact(20), progress=False)
    assert np.isfinite(bl.process_at(boxed, data, tree, {"x": NEW[:2]})["f"]).all()
    with pytest.raises(ValueError, match="no value at position 2 of the new inputs: it is outside of the box"):
        bl.process_at(boxed, data, tree, {"x": np.array([0.25, 0.5, 30.0])})
    with pytest.raises(ValueError, match="no value at position 0"):
        bl.process_draws(0, boxed, data, tree, {"x": np.array([30.0])})
