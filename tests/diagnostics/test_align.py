"""Components that change places from draw to draw are brought back into one order."""

import json
from typing import Any

import arviz_base
import numpy as np
import pytest
import xarray as xr

from bayeslab.diagnostics.align import align

MU = np.array([[-2.0, 0.0], [0.0, 1.0], [2.0, 0.5]])
PI = np.array([0.2, 0.3, 0.5])
A = np.array([[0.8, 0.1, 0.1], [0.3, 0.6, 0.1], [0.2, 0.5, 0.3]])


def mixture(seed: int, noise: float = 0.15, chains: int = 2, draws: int = 200) -> tuple[xr.DataTree, xr.DataTree]:
    """The same posterior twice: with switched labels, and without."""
    rng = np.random.default_rng(seed)
    shape = (chains, draws)
    clean = {
        "mu": MU + noise * rng.normal(size=(*shape, 3, 2)),
        "pi": PI + 0.1 * noise * rng.normal(size=(*shape, 3)),
        "a": A + 0.1 * noise * rng.normal(size=(*shape, 3, 3)),
        "z": rng.integers(3, size=(*shape, 7)),
        "tau": rng.gamma(2.0, size=shape),
    }
    order = rng.permuted(np.tile(np.arange(3), (*shape, 1)), axis=2)
    rows = np.take_along_axis(clean["a"], order[..., None], axis=2)
    switched = clean | {
        "mu": np.take_along_axis(clean["mu"], order[..., None], axis=2),
        "pi": np.take_along_axis(clean["pi"], order, axis=2),
        "a": np.take_along_axis(rows, order[:, :, None, :], axis=3),
        "z": np.take_along_axis(np.argsort(order, axis=2), clean["z"], axis=2),
    }
    return tree(switched), tree(clean)


def tree(posterior: dict[str, Any]) -> xr.DataTree:
    dims = {"mu": ["component", "axis"], "pi": ["component"], "a": ["state", "state_"], "z": ["row"]}
    coords = {"component": np.arange(3), "axis": ["length", "width"]}
    lp = np.random.default_rng(0).normal(size=posterior["tau"].shape)
    found = arviz_base.from_dict({"posterior": posterior, "sample_stats": {"lp": lp}}, dims=dims, coords=coords)
    found.attrs["method"] = "NUTS"
    return found


DIMS = {"mu": "component", "pi": "component", "a": ("state", "state_")}


def same_up_to_one_order(first: xr.DataTree, second: xr.DataTree) -> bool:
    """Whether one permutation of components, the same in every draw, leads from one to the other."""
    orders = [np.array(order) for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))]
    a, b = first["posterior"], second["posterior"]
    return any(
        np.allclose(a["mu"].values[:, :, order], b["mu"])
        and np.allclose(a["pi"].values[:, :, order], b["pi"])
        and np.allclose(a["a"].values[:, :, order][:, :, :, order], b["a"])
        and np.array_equal(np.argsort(order)[a["z"].values], b["z"].values)
        for order in orders
    )


@pytest.mark.parametrize("seed", range(5))
def test_switched_labels_are_restored_in_every_site(seed: int) -> None:
    switched, clean = mixture(seed)
    assert not same_up_to_one_order(switched, clean)
    assert same_up_to_one_order(align(switched, DIMS, labels=["z"]), clean)


def test_a_transition_matrix_alone_is_enough() -> None:
    switched, clean = mixture(0)
    aligned = align(switched, {"a": ("state", "state_")})["posterior"]["a"]
    spread = aligned.std(["chain", "draw"]).max()
    assert spread < 2 * clean["posterior"]["a"].std(["chain", "draw"]).max()


def test_a_reference_fixes_the_order_across_trees() -> None:
    (first, _), (second, _) = mixture(1), mixture(2)
    first = align(first, DIMS, labels=["z"])
    second = align(second, DIMS, labels=["z"], reference=first)
    means = [each["posterior"]["mu"].mean(["chain", "draw"]) for each in (first, second)]
    np.testing.assert_allclose(*means, atol=0.1)


def turned(value: Any, names: list[Any] | None = None) -> xr.DataTree:
    """Shares of individuals (chain, draw, individual, population) with their names."""
    given = {} if names is None else {"individual": names}
    posterior = xr.Dataset({"ancestry": (("chain", "draw", "individual", "population"), value)}, given)
    return xr.DataTree.from_dict({"posterior": posterior})


@pytest.mark.parametrize("names", [[f"i{place}" for place in range(12)], list(range(1900, 1912)), None])
def test_a_reference_may_have_its_labels_and_axes_in_another_order(names: list[Any] | None) -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        given = turned(rng.dirichlet(np.full(3, 0.3), 12) + 0.01 * rng.normal(size=(1, 30, 12, 3)), names)
        reference = given["posterior"].to_dataset().isel(population=[2, 0, 1])
        if names is not None:
            reference = reference.isel(individual=rng.permutation(12))
        reference = reference.transpose("population", "draw", "individual", "chain")
        aligned = align(given, {"ancestry": "population"}, reference=xr.DataTree.from_dict({"posterior": reference}))
        assert (aligned["alignment"]["permutation"] == [2, 0, 1]).all()


def test_axes_of_one_size_are_told_apart_by_name() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=(3, 3, 2)) + 0.05 * rng.normal(size=(1, 20, 3, 3, 2))
        posterior = xr.Dataset({"f": (("chain", "draw", "component", "locus", "allele"), values)})
        given, other = (
            xr.DataTree.from_dict({"posterior": each}) for each in (posterior, posterior.transpose(..., "locus"))
        )
        assert (align(given, {"f": "component"}, reference=other)["alignment"]["permutation"] == [0, 1, 2]).all()


def test_a_reference_of_others_is_refused_and_one_without_labels_is_in_the_order_of_the_tree() -> None:
    value = np.random.default_rng(1).dirichlet(np.full(3, 0.3), (1, 5, 4))
    given = turned(value, ["a", "b", "c", "d"])
    for names, words in ((["a", "b", "c", "e"], "has no 'd'"), ([2, 3, 4, 5], "has no 'a'")):
        with pytest.raises(ValueError, match=f"Dimension 'individual' of the reference {words}; expected the labels"):
            align(given, {"ancestry": "population"}, reference=turned(value, names))
    for names in (None, [0, 1, 2, 3]):
        aligned = align(given, {"ancestry": "population"}, reference=turned(value, names))
        assert aligned["alignment"]["permutation"][0, 0].values.tolist() == [0, 1, 2]


def test_the_input_and_everything_else_stay() -> None:
    switched, _ = mixture(3)
    before = switched.copy(deep=True)
    aligned = align(switched, DIMS)
    xr.testing.assert_identical(switched, before)
    xr.testing.assert_identical(aligned["sample_stats"].dataset, switched["sample_stats"].dataset)
    xr.testing.assert_identical(aligned["posterior"]["tau"], switched["posterior"]["tau"])
    assert aligned.attrs == switched.attrs
    assert list(aligned["posterior"]["axis"].values) == ["length", "width"]
    assert aligned["posterior"]["mu"].dims == switched["posterior"]["mu"].dims


def test_the_permutations_are_recorded() -> None:
    switched, _ = mixture(4)
    aligned = align(switched, DIMS)
    permutation = aligned["alignment"]["permutation"]
    assert permutation.dims == ("chain", "draw", "component")
    moved = np.take_along_axis(switched["posterior"]["pi"].values, permutation.values, axis=2)
    np.testing.assert_array_equal(moved, aligned["posterior"]["pi"])
    assert json.loads(aligned["alignment"].attrs["site_dims"])["a"] == ["state", "state_"]


def test_nothing_moves_in_an_aligned_tree_and_in_a_single_draw() -> None:
    _, clean = mixture(5)
    xr.testing.assert_identical(align(clean, DIMS)["posterior"].dataset, clean["posterior"].dataset)
    single = clean.isel(chain=[0], draw=[0])
    xr.testing.assert_identical(align(single, DIMS)["posterior"].dataset, single["posterior"].dataset)


@pytest.mark.parametrize(
    ("site_dims", "labels", "words"),
    [
        ({}, [], ["at least one site"]),
        ({"nu": "component"}, [], ["'nu'", "'mu'", "'pi'"]),
        ({"mu": "state"}, [], ["'mu'", "'state'", "['component', 'axis']"]),
        ({"mu": "draw"}, [], ["'draw'"]),
        ({"mu": "component", "z": "row"}, [], ["one size", "'mu[component]': 3", "'z[row]': 7"]),
        ({"a": ("state", "state")}, [], ["'a'", "two different"]),
        ({"mu": "component"}, ["pi"], ["integers", "'pi'", "float64"]),
        ({"mu": "component"}, ["y"], ["'y'"]),
        ({"mu": "axis"}, ["z"], ["0 to 1", "'z'", "0 to 2"]),
        ({"z": "row"}, ["z"], ["'z' of labels has the dimension 'row' of components", "such as rows"]),
    ],
)
def test_wrong_calls_say_what_is_there(site_dims: Any, labels: list[str], words: list[str]) -> None:
    switched, _ = mixture(0, draws=20)
    with pytest.raises(ValueError) as error:
        align(switched, site_dims, labels)
    assert all(word in str(error.value) for word in words), error.value


def test_a_tree_without_posterior_is_refused() -> None:
    with pytest.raises(ValueError, match="'posterior'"):
        align(arviz_base.from_dict({"prior": {"mu": np.zeros((1, 5))}}), {"mu": "component"})


def test_draws_in_one_order_stay_as_they_are() -> None:
    """One site tells components apart and many say nothing: the first draw, which all others would be held against,
    may look like any order."""
    rng = np.random.default_rng(5)
    for _ in range(5):
        rate = np.array([38.0, 3.5]) + np.array([2.2, 0.7]) * rng.normal(size=(1, 400, 2))
        noise = {"pi": rng.dirichlet([2, 2], (1, 400)), "a": rng.dirichlet([3, 3], (1, 400, 2))}
        dims = {"rate": ["component"], "pi": ["component"], "a": ["component", "component_"]}
        found = arviz_base.from_dict({"posterior": noise | {"rate": rate}}, dims=dims)
        aligned = align(found, {"rate": "component", "pi": "component", "a": ("component", "component_")})
        assert np.ptp(aligned["alignment"]["permutation"].values, axis=1).max() == 0


@pytest.mark.parametrize("seed", range(3))
def test_one_site_decides_between_chains_in_different_orders(seed: int) -> None:
    """Neither the first draw nor the order that draws have is near the one to be found."""
    rng, shape = np.random.default_rng(seed), (2, 400)
    mu = np.array([-3.0, 3.0]) + 0.4 * rng.normal(size=(*shape, 2))
    mu[1] = mu[1, :, ::-1]
    moves, pi, tau = rng.dirichlet([2, 2], (*shape, 2)), rng.dirichlet([1, 1], shape), rng.gamma(4, size=(*shape, 2))
    names = {"pi": ("component",), "a": ("component", "component_"), "tau": ("component",), "mu": ("component",)}
    dims = {name: list(of) for name, of in names.items()}
    found = align(arviz_base.from_dict({"posterior": {"pi": pi, "a": moves, "tau": tau, "mu": mu}}, dims=dims), names)
    first, second = np.moveaxis(found["posterior"]["mu"].values, -1, 0)
    assert (first > second).all() or (first < second).all()


def test_components_may_be_sorted_by_a_site() -> None:
    switched, _ = mixture(4)
    aligned = align(switched, DIMS, ["z"], order_by="pi")
    means = aligned["posterior"]["pi"].mean(["chain", "draw"]).values
    assert (np.diff(means) > 0).all()
    assert same_up_to_one_order(aligned, align(switched, DIMS, ["z"]))
    for arguments, words in (
        ({"order_by": "mu"}, "needs one number for each component, but 'mu'"),
        ({"order_by": "tau"}, "'tau', which is not among the sites to permute"),
        ({"order_by": "pi", "reference": switched}, "not both"),
    ):
        with pytest.raises(ValueError, match=words):
            align(switched, DIMS, **arguments)


def test_means_of_chains_follow_their_draws() -> None:
    """Also of a site whose draws were not kept, along the same dimension."""
    rng = np.random.default_rng(0)
    truth, table = rng.dirichlet(np.ones(3), 8), rng.normal(size=(3, 5))
    orders = np.array([[0, 1, 2], [2, 0, 1]])
    draws = np.stack([truth[:, order] + 0.01 * rng.normal(size=(50, 8, 3)) for order in orders])
    draws[1, 7] = draws[1, 7][:, [1, 0, 2]]
    dims = ("chain", "draw", "individual", "population")
    groups = {
        "posterior": xr.Dataset({"ancestry": (dims, draws)}),
        "posterior_mean": xr.Dataset({"frequencies": (("chain", "population", "locus"), table[orders])}),
    }
    found = align(xr.DataTree.from_dict(groups), {"ancestry": "population"})
    ancestry, means = found["posterior"]["ancestry"].mean(("chain", "draw")), found["posterior_mean"]["frequencies"]
    np.testing.assert_array_equal(means[0], means[1])
    place = np.abs(ancestry.values[:, :, None] - truth[:, None]).sum(0).argmin(1)
    np.testing.assert_array_equal(means[0], table[place])
