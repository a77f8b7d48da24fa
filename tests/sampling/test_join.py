"""Chains of separate fits put together: those of one fit, to the bit, and nothing that is not of one posterior."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from jax import Array

import bayeslab as bl
from bayeslab.models import normal_gamma

DATA = normal_gamma.example()


def model(y: Array | None = None, scale: float = 3.0) -> None:
    """A location with a heavy tail, whose posterior only a chain draws from."""
    mu = numpyro.sample("mu", dist.StudentT(4.0, 0.0, scale))
    with numpyro.plate("row", 5):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


Y = {"y": np.array([0.3, -0.2, 1.1, 0.8, 0.4])}
GIBBS, NUTS = bl.Gibbs(5, 10, 4), bl.NUTS(20, 10, 4)


def job(first_chain: int = 0, program: Any = model, data: Any = Y, key: int = 0, **settings: Any) -> xr.DataTree:
    method = bl.NUTS(**{"num_warmup": 20, "num_samples": 10, "num_chains": 1} | settings)
    return bl.fit(key, program, data, method, first_chain=first_chain, progress=False)


def assert_same(one: xr.DataTree, other: xr.DataTree) -> None:
    """All groups, labels and settings, but for clocks."""
    assert set(one.children) == set(other.children)
    for group in one.children:
        xr.testing.assert_identical(one[group].to_dataset().drop_attrs(), other[group].to_dataset().drop_attrs())
    attributes = [{n: v for n, v in t.attrs.items() if not n.endswith("seconds")} for t in (one, other)]
    assert attributes[0] == attributes[1]


@pytest.mark.parametrize(("program", "data", "method"), [(normal_gamma.model, DATA, GIBBS), (model, Y, NUTS)])
def test_four_jobs_are_one_fit_of_four_chains(program: Any, data: Any, method: Any) -> None:
    """Draws, statistics, states, labels and attributes; in any order, and those of two chains as well."""
    at_once = bl.fit(0, program, data, method, progress=False)
    kind, settings = type(method), (method.num_warmup, method.num_samples)

    def chains(first: int, number: int) -> xr.DataTree:
        return bl.fit(0, program, data, kind(*settings, number), first_chain=first, progress=False)

    jobs = [chains(3, 1), chains(0, 2), chains(2, 1)]
    assert jobs[0]["posterior"]["chain"].values.tolist() == [3]
    joined = bl.join(jobs)
    assert_same(joined, at_once)
    longer = bl.fit(0, program, data, method, previous=joined, progress=False)
    assert_same(longer, bl.fit(0, program, data, method, previous=at_once, progress=False))


def test_every_group_is_kept() -> None:
    """Those that other verbs add as well, and what is drawn before the first draw."""
    jobs = [bl.predict(0, model, Y, job(chain)) for chain in range(2)]
    for tree in jobs:
        tree["warmup_posterior"] = tree["posterior"].to_dataset() + 1
        tree["unconstrained_posterior"] = tree["posterior"].to_dataset() - 1
    joined = bl.join(jobs)
    assert {"posterior_predictive", "log_likelihood", "warmup_posterior", "unconstrained_posterior"} <= {
        *joined.children
    }
    for group in joined.children:
        if "chain" in joined[group].dims:
            assert joined[group].sizes["chain"] == 2
    assert joined.attrs["num_gradients"] == sum(tree.attrs["num_gradients"] for tree in jobs)


def test_chains_of_several_keys_are_numbered_anew(tmp_path: Any) -> None:
    """They stay known by their keys, through files too: none comes in twice, and they can be gone on with."""
    first, second = job(key=0, num_chains=2), job(key=7, num_chains=2)
    bl.join({"a": first, "b": second}).to_netcdf(tmp_path / "joined.nc", engine="h5netcdf")
    joined = xr.load_datatree(tmp_path / "joined.nc", engine="h5netcdf")
    assert joined["posterior"]["chain"].values.tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(joined["posterior"]["mu"][2:], second["posterior"]["mu"])
    with pytest.raises(ValueError, match="joined and b both have chain 0 of key 0 7, so the same draws"):
        bl.join({"joined": joined, "b": second})
    longer = bl.fit(0, model, Y, NUTS, previous=joined, progress=False)
    assert longer.attrs["chain_sources"] == joined.attrs["chain_sources"]
    alone = bl.fit(7, model, Y, bl.NUTS(20, 10, 2), previous=second, progress=False)
    np.testing.assert_array_equal(longer["posterior"]["mu"][2:], alone["posterior"]["mu"])


def other_code(y: Array | None = None, scale: float = 3.0) -> None:
    """The model with another prior."""
    mu = numpyro.sample("mu", dist.StudentT(5.0, 0.0, scale))
    with numpyro.plate("row", 5):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


other_code.__qualname__ = "model"


def of_another_version(tree: xr.DataTree) -> xr.DataTree:
    tree = tree.copy()
    tree.attrs["bayeslab_version"] = "0.0.9"
    return tree


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda: job(0), r"trees\[0\] and trees\[1\] both have chain 0 of key 0 0, so the same draws"),
        (lambda: job(1, data={"y": Y["y"] + 1}), "differ in constant_data; chains to join are of the same data"),
        (lambda: job(1, data=Y | {"scale": 4.0}), "differ in constant_data"),
        (lambda: job(1, other_code), "differ in the code of the program"),
        (
            lambda: bl.fit(0, normal_gamma.model, DATA, bl.NUTS(20, 10, 1), first_chain=1, progress=False),
            "the program, ",
        ),
        (lambda: job(1, target_accept_prob=0.9), "was made by NUTS.*0.8.*0.9"),
        (lambda: job(1, num_samples=12), r"trees\[0\] has 10 draws of each chain, but trees\[1\] 12"),
        (lambda: bl.predict(0, model, Y, job(1)), "has groups .* join results with the same"),
        (lambda: of_another_version(job(1)), "differ in the version of bayeslab, 0.1.0 and 0.0.9"),
    ],
    ids=["twice", "data", "argument", "code", "program", "settings", "draws", "groups", "version"],
)
def test_what_is_not_of_one_posterior_is_refused(other: Callable[[], xr.DataTree], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bl.join([job(0), other()])


def test_what_has_no_chains_is_refused() -> None:
    exact = bl.fit(0, normal_gamma.model, DATA, bl.Exact(10), progress=False)
    with pytest.raises(ValueError, match=r"trees\[0\] was made by Exact, which has no chains"):
        bl.join([exact])
    with pytest.raises(TypeError, match=r"trees\[0\] is no result of fit"):
        bl.join([xr.DataTree()])
    with pytest.raises(ValueError, match="there is no result to join"):
        bl.join([])


@pytest.mark.parametrize(
    ("method", "chain", "error", "words"),
    [
        (bl.Exact(10), 1, ValueError, "first_chain is for methods with chains, and Exact has none"),
        (GIBBS, -1, ValueError, "first_chain must be 0 or above, but is -1"),
        (GIBBS, 1.5, TypeError, "first_chain must be the number of a chain, 0 or above, not 1.5"),
    ],
)
def test_wrong_numbers_of_chains_are_refused(method: Any, chain: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bl.fit(0, normal_gamma.model, DATA, method, first_chain=chain, progress=False)


def test_a_checkpoint_belongs_to_its_chain(tmp_path: Any) -> None:
    method, file = bl.Gibbs(5, 10, 1), tmp_path / "fit.nc"
    bl.fit(0, normal_gamma.model, DATA, method, checkpoint=file, first_chain=2, progress=False)
    again = bl.fit(0, normal_gamma.model, DATA, method, checkpoint=file, first_chain=2, progress=False)
    assert again["posterior"].sizes["draw"] == 10
    with pytest.raises(ValueError, match=r"is of chains \[2\], not of \[0\]"):
        bl.fit(0, normal_gamma.model, DATA, method, checkpoint=file, progress=False)
