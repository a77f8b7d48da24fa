"""Chains in different modes are told apart and never averaged; chains of one mode stay together, whatever their labels.

Power of the criterion at its default (simulated, 4 chains as 3 + 1, autocorrelation 0.8, 300 draws): a component that
moved by 2 within-chain sd is found in 98 of 100 posteriors if it has one feature and in all if it has five or more, by
1.5 sd in 88 and in all; one that moved in a tenth of 20 features by 4 sd in all, in a twentieth by 6 sd in all. Chains
of one distribution with 26 effective draws each are never split, with 13 in 5 of 100 posteriors that have one feature
a component and in none of those with three or more; with 5 in two thirds, and in none of those with twenty.
"""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.signal import lfilter

from bayeslab.diagnostics.modes import modes

Values = np.ndarray[Any, Any]
DIMS = {
    "mu": ["component", "axis"],
    "weights": ["component"],
    "a": ["state", "state_"],
    "z": ["row"],
    "alpha": [],
    "fixed": ["component"],
}
MU = np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 6.0]])
MERGED = np.array([[2.0, 0.0], [2.0, 5.0], [2.0, 7.0]])  # the first two are one, the third is two


def tree(lp: Values | None = None, **posterior: Values) -> xr.DataTree:
    sites = xr.Dataset({name: (["chain", "draw", *DIMS[name]], values) for name, values in posterior.items()})
    groups = {"posterior": sites.assign_coords(chain=range(sites.sizes["chain"]))}
    if lp is not None:
        groups["sample_stats"] = xr.Dataset({"lp": (["chain", "draw"], lp)})
    return xr.DataTree.from_dict(groups)


def chains(rng: np.random.Generator, *centres: Values, draws: int = 200, phi: float = 0.0, sd: float = 1.0) -> Values:
    """A chain (draw, *centre) around each centre, autoregressive with coefficient phi, in its stationary state."""
    noise = rng.normal(size=(len(centres), draws, *centres[0].shape))
    noise[:, 1:] *= np.sqrt(1 - phi**2)
    return np.stack(centres)[:, None] + sd * lfilter([1.0], [1.0, -phi], noise, axis=1)


def switched(rng: np.random.Generator, values: Values) -> tuple[Values, Values]:
    """The components (axis 2) in another order in every draw, and the orders."""
    order = rng.permuted(np.tile(np.arange(values.shape[2]), (*values.shape[:2], 1)), axis=2)
    return np.take_along_axis(values, order.reshape(*order.shape, *[1] * (values.ndim - 3)), axis=2), order


def same_components(found: Any, expected: Values, atol: float) -> bool:
    """Whether the rows agree in some order."""
    gaps = np.abs(np.asarray(found)[:, None] - expected).max(-1)
    return bool((gaps.min(0) < atol).all() and (gaps.min(1) < atol).all())


def test_switched_labels_are_one_mode() -> None:
    rng = np.random.default_rng(0)
    mu, order = switched(rng, chains(rng, MU, MU, sd=0.3))
    z = np.argsort(order, axis=2)[:, :, [0, 1, 2, 2]]  # row 3 belongs to the third component, like row 2
    found = modes(tree(mu=mu, z=z), {"mu": "component"}, labels=["z"])
    assert found.sizes["mode"] == 1
    assert found["share"].values == 1
    assert found["num_chains"].values == 2
    assert found["mode_of_chain"].values.tolist() == [0, 0]
    assert same_components(found["mu"][0], MU, 0.1)
    assert found["z"].dims == ("mode", "row", "component")
    np.testing.assert_allclose(found["z"][0] @ found["mu"][0], MU[[0, 1, 2, 2]], atol=0.1)


def test_two_modes_have_their_own_share_height_and_means() -> None:
    """In the order of the first mode a component of the second has no place: they are aligned one by one."""
    rng = np.random.default_rng(1)
    centres = [MU, MU, MERGED, MU]
    mu, _ = switched(rng, chains(rng, *centres, sd=0.3))
    lp = rng.normal(size=mu.shape[:2]) * 2 - np.array([100.0, 100.0, 90.0, 100.0])[:, None]
    alpha = chains(rng, *(np.array(float(centre is MERGED)) for centre in centres), sd=0.1)
    found = modes(tree(lp, mu=mu, alpha=alpha), {"mu": "component"})
    np.testing.assert_array_equal(found["share"], [0.25, 0.75])
    np.testing.assert_array_equal(found["num_chains"], [1, 3])
    np.testing.assert_array_equal(found["mode_of_chain"], [1, 1, 0, 1])
    np.testing.assert_allclose(found["log_joint"], [-90, -100], atol=0.5)
    np.testing.assert_allclose(found["log_joint_sd"], 2, rtol=0.15)
    assert found["mu"].dims == ("mode", "component", "axis")
    assert same_components(found["mu"][0], MERGED, 0.1)
    assert same_components(found["mu"][1], MU, 0.1)
    np.testing.assert_allclose(found["alpha"], [1, 0], atol=0.05)
    distance = found["distance"].values
    np.testing.assert_array_equal(distance, distance.T)
    assert distance[0, 1] < 0.1
    assert distance[0, 2] > 10


def test_all_modes_have_one_order_of_components() -> None:
    """Two modes that differ in one component of three."""
    rng = np.random.default_rng(2)
    moved = MU + np.array([[0, 0], [0, 0], [0, 3.0]])
    mu, _ = switched(rng, chains(rng, MU, moved, MU, moved, sd=0.5, phi=0.8))
    found = modes(tree(mu=mu), {"mu": "component"})
    np.testing.assert_array_equal(found["mode_of_chain"], [0, 1, 0, 1])
    assert same_components(found["mu"][1], moved, 0.4)
    difference = np.abs(found["mu"][1] - found["mu"][0]).max("axis")
    np.testing.assert_allclose(np.sort(difference), [0, 0, 3], atol=0.4)


@pytest.mark.parametrize("seed", range(20))
def test_slow_chains_of_one_distribution_are_one_mode(seed: int) -> None:
    """Thirteen effective draws of five hundred: the chain means are far from each other in their standard errors."""
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(3, 200))
    mu, _ = switched(rng, chains(rng, centre, centre, phi=0.95, draws=500))
    found = modes(tree(mu=mu), {"mu": "component"})
    assert found.sizes["mode"] == 1
    assert found["distance"].max() < 0.4


def test_a_chain_that_moves_belongs_where_it_spends_most_draws_and_joins_nothing() -> None:
    rng = np.random.default_rng(3)
    moved = MU + np.array([[0, 0], [0, 0], [9.0, 9.0]])
    mu = chains(rng, MU, MU, moved, MU, sd=0.3)
    mu[3, :40] += moved - MU
    assert modes(tree(mu=mu), {"mu": "component"})["mode_of_chain"].values.tolist() == [0, 0, 1, 0]
    mu[3, :100] = chains(rng, moved, draws=100)
    found = modes(tree(mu=mu), {"mu": "component"})["mode_of_chain"].values
    assert found[0] == found[1] != found[2]


def test_transition_matrices_and_constant_features() -> None:
    """Both dimensions over states move; what never varies, as the zeros of a padded site, counts neither way."""
    rng = np.random.default_rng(4)
    a = np.array([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.5, 0.1, 0.4]])
    b = np.array([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.1, 0.5, 0.4]])
    draws = np.where(a > 0, chains(rng, a, a, b, sd=0.02), 0.0)
    found = modes(tree(a=draws), {"a": ("state", "state_")})
    np.testing.assert_array_equal(found["mode_of_chain"], [0, 0, 1])
    np.testing.assert_allclose(np.trace(found["a"].values, axis1=1, axis2=2), [1.8, 1.8], atol=0.02)
    assert (found["a"] == 0).any("state").sum() == 2


def test_point_estimates_are_together_where_they_agree() -> None:
    mu = np.stack([MU, MU[[2, 0, 1]] * (1 + 1e-5), MERGED, MU])[:, None]
    found = modes(tree(lp=np.array([[-5.0], [-5.0], [-7.0], [-5.0]]), mu=mu), {"mu": "component"})
    np.testing.assert_array_equal(found["mode_of_chain"], [0, 0, 1, 0])
    np.testing.assert_allclose(found["log_joint"], [-5, -7])
    np.testing.assert_array_equal(found["log_joint_sd"], 0)
    assert same_components(found["mu"][0], MU, 1e-3)
    same = modes(tree(mu=np.zeros((2, 5, 3, 2))), {"mu": "component"})
    assert same["distance"].max() == 0


def test_one_chain_and_one_component() -> None:
    rng = np.random.default_rng(5)
    one = modes(tree(mu=chains(rng, MU, sd=0.3)), {"mu": "component"})
    assert one.sizes["mode"] == one.sizes["chain"] == 1
    assert one["share"].values == 1
    mu = chains(rng, MU[:1], MU[:1] + 5, MU[:1])
    z = np.zeros((3, 200, 4), int)
    found = modes(tree(mu=mu, z=z), {"mu": "component"}, ["z"])
    np.testing.assert_array_equal(found["mode_of_chain"], [0, 1, 0])
    np.testing.assert_allclose(found["mu"][:, 0, 0], [0, 5], atol=0.3)
    assert (found["z"] == 1).all()


def test_without_a_log_joint_the_largest_share_comes_first() -> None:
    rng = np.random.default_rng(6)
    posterior = {"mu": chains(rng, MERGED, MU, MU, sd=0.3)}
    found = modes(tree(**posterior), {"mu": "component"})
    np.testing.assert_array_equal(found["mode_of_chain"], [1, 0, 0])
    assert found["log_joint"].isnull().all()
    assert found["log_joint_sd"].isnull().all()
    assert modes(tree(**posterior), {"mu": "component"}, max_distance=1e6).sizes["mode"] == 1


def test_the_input_stays_and_chains_keep_their_names() -> None:
    rng = np.random.default_rng(7)
    given = tree(mu=chains(rng, MERGED, MU, MU, sd=0.3)).isel(chain=[0, 2])
    before = given.copy(deep=True)
    found = modes(given, {"mu": "component"})
    xr.testing.assert_identical(given, before)
    np.testing.assert_array_equal(found["chain"], [0, 2])
    assert found["mode_of_chain"].sel(chain=2) != found["mode_of_chain"].sel(chain=0)
    assert given.sel(chain=found["chain"][found["mode_of_chain"] == 1])["posterior"].sizes["chain"] == 1


@pytest.mark.parametrize(
    ("posterior", "arguments", "words"),
    [
        ({}, {"site_dims": {}}, ["at least one site"]),
        ({}, {"site_dims": {"nu": "component"}}, ["'nu'", "'mu'"]),
        ({}, {"site_dims": {"mu": "state"}}, ["'mu'", "'state'"]),
        ({}, {"labels": ["mu"]}, ["integers", "'mu'"]),
        ({}, {"labels": ["y"]}, ["'y'"]),
        ({}, {"max_distance": 0.0}, ["max_distance", "positive", "0.0"]),
        ({}, {"max_distance": float("nan")}, ["max_distance", "nan"]),
        ({"mu": np.full((2, 5, 3, 2), np.nan)}, {}, ["'mu'", "not finite"]),
        (
            {"fixed": np.zeros((2, 5, 3), int)},
            {"labels": ["fixed"]},
            ["'fixed' of labels", "'component' of components"],
        ),
    ],
)
def test_wrong_calls_say_what_is_there(posterior: Any, arguments: Any, words: list[str]) -> None:
    given = tree(**({"mu": np.zeros((2, 5, 3, 2))} | posterior))
    with pytest.raises(ValueError) as error:
        modes(given, **({"site_dims": {"mu": "component"}} | arguments))
    assert all(word in str(error.value) for word in words), error.value


def test_a_site_named_like_a_column_and_a_tree_without_posterior_are_refused() -> None:
    given = tree(mu=np.zeros((2, 5, 3, 2)))
    given["posterior"] = xr.DataTree(given["posterior"].to_dataset().rename(mu="share"))
    with pytest.raises(ValueError, match=r"\['share'\].*'share'"):
        modes(given, {"share": "component"})
    with pytest.raises(ValueError, match="'posterior'"):
        modes(xr.DataTree.from_dict({"prior": xr.Dataset()}), {"mu": "component"})
