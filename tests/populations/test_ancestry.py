"""Ancestry and divergence after a fit of STRUCTURE: against quantiles, closed forms and sums by hand."""

from pathlib import Path
from typing import Any

import arviz_base
import numpy as np
import pytest
import xarray as xr

import bayeslab as bl
from bayeslab.datasets import genotypes, simulated_genotypes
from bayeslab.models import structure, structure_admixture
from bayeslab.populations.ancestry import ancestry_summary, divergence, match_populations, q_table, write_q

Array = np.ndarray[Any, Any]
DIMS = {
    "ancestry": ["individual", "population"],
    "frequencies": ["population", "locus", "allele"],
    "z": ["individual"],
}
NAMES = ["Ann", "Ben", "Cleo", "Dan", "Eve"]
ANCESTRY = np.array([[0.9, 0.05, 0.05], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8], [0.4, 0.5, 0.1], [0.2, 0.1, 0.7]])
FREQUENCIES = np.array(
    [
        [[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.6, 0.4, 0.0], [0.1, 0.1, 0.8]],
        [[0.2, 0.8, 0.0], [0.6, 0.3, 0.1], [0.5, 0.5, 0.0], [0.3, 0.4, 0.3]],
        [[0.4, 0.6, 0.0], [0.1, 0.1, 0.8], [0.1, 0.9, 0.0], [0.7, 0.2, 0.1]],
    ]
)


def tree(names: Any = NAMES, **sites: Array) -> xr.DataTree:
    return arviz_base.from_dict({"posterior": sites}, dims=DIMS, coords={"individual": names})


def drawn(seed: int, chains: int = 3, draws: int = 50) -> tuple[Array, Array]:
    """Ancestry and frequencies about those above, one order of populations in all chains."""
    rng = np.random.default_rng(seed)
    ancestry = np.stack([rng.dirichlet(80 * row, (chains, draws)) for row in ANCESTRY], 2)
    frequencies = np.maximum(rng.gamma(40 * np.broadcast_to(FREQUENCIES, (chains, draws, *FREQUENCIES.shape))), 1e-9)
    frequencies = np.where(FREQUENCIES > 0, frequencies, 0.0)
    return ancestry, frequencies / frequencies.sum(-1, keepdims=True)


def switched(ancestry: Array, frequencies: Array) -> tuple[Array, Array]:
    """Another order in every chain but the first."""
    orders = [np.roll(np.arange(ANCESTRY.shape[1]), chain) for chain in range(len(ancestry))]
    pairs = zip(ancestry, frequencies, orders, strict=True)
    both = [(q[..., order], p[:, order]) for q, p, order in pairs]
    return np.stack([q for q, _ in both]), np.stack([p for _, p in both])


def averaged(given: xr.DataTree, own: bool = True) -> xr.DataTree:
    """As fit keeps many frequencies: means and standard deviations of every chain, those of ancestry too if own."""
    posterior = given["posterior"].to_dataset()
    sites = posterior[["ancestry", "frequencies"] if own else ["frequencies"]].drop_vars("population")
    groups = {"posterior": posterior.drop_vars(["frequencies", "locus", "allele"])}
    groups |= {"posterior_mean": sites.mean("draw"), "posterior_sd": sites.std("draw")}
    return xr.DataTree.from_dict(groups)


def test_a_summary_is_of_aligned_draws() -> None:
    plain, frequencies = drawn(0)
    found = ancestry_summary(tree(ancestry=switched(plain, frequencies)[0]), 0.8)
    draws = plain.reshape(-1, *ANCESTRY.shape)
    order = match(found["mean"].values, draws.mean(0))
    for name, expected in {
        "mean": draws.mean(0),
        "sd": draws.std(0),
        "low": np.quantile(draws, 0.1, axis=0),
        "high": np.quantile(draws, 0.9, axis=0),
    }.items():
        assert found[name].dims == ("individual", "population")
        np.testing.assert_allclose(found[name], expected[:, order], rtol=1e-12, err_msg=name)
    assert found["individual"].values.tolist() == NAMES
    assert found.attrs == {"of": "ancestry", "probability": 0.8}


def match(found: Array, expected: Array) -> Array:
    """Where the columns of the first are in the second."""
    distance = np.abs(found[:, :, None] - expected[:, None]).sum(0)
    assert sorted(distance.argmin(1)) == list(range(found.shape[1]))
    return distance.argmin(1)


def test_an_aligned_tree_keeps_its_order() -> None:
    given = tree(ancestry=switched(*drawn(1))[0])
    reference = tree(ancestry=ANCESTRY[None, None][..., [2, 0, 1]])
    aligned = bl.align(given, {"ancestry": "population"}, reference=reference)
    mean = ancestry_summary(aligned)["mean"]
    np.testing.assert_allclose(mean, aligned["posterior"]["ancestry"].mean(("chain", "draw")), rtol=1e-12)
    np.testing.assert_allclose(mean, ANCESTRY[:, [2, 0, 1]], atol=0.03)


def test_a_point_has_no_interval() -> None:
    found = ancestry_summary(tree(ancestry=ANCESTRY[None, None]))
    for name in ("mean", "low", "high"):
        np.testing.assert_array_equal(found[name], ANCESTRY)
    assert (found["sd"] == 0).all()


@pytest.mark.parametrize("individuals", [1, 4])
def test_one_population_is_all_ancestry(individuals: int) -> None:
    names = NAMES[:individuals]
    found = ancestry_summary(tree(names, ancestry=np.ones((2, 6, individuals, 1))))
    assert (found["mean"] == 1).all()
    assert {k: v.tolist() for k, v in match_populations({1: found}).items()} == {1: [0]}
    table = divergence(tree(names, ancestry=np.ones((1, 1, individuals, 1)), frequencies=FREQUENCIES[None, None, :1]))
    np.testing.assert_allclose(table["heterozygosity"], 1 - (FREQUENCIES[0] ** 2).sum(-1).mean())
    assert (table["distance"] == 0).all()
    assert (table["fst"] == 0).all()


def test_origins_have_probabilities() -> None:
    """Labels of z are those of frequencies, and another order in the second chain changes nothing."""
    rng = np.random.default_rng(2)
    z = np.array([[0, 1, 2, 0, 2]] * 40)
    z[:10, 3] = 1
    both = np.stack([rng.permuted(z, axis=0), (rng.permuted(z, axis=0) + 1) % 3])
    frequencies = np.broadcast_to(FREQUENCIES, (2, 40, *FREQUENCIES.shape)).copy()
    frequencies[1] = np.roll(frequencies[1], 1, axis=1)
    found = ancestry_summary(given := tree(z=both, frequencies=frequencies))
    order = match(found["mean"].values, np.eye(3)[[0, 1, 2, 0, 2]])
    expected = np.eye(3)[[0, 1, 2, 0, 2]]
    expected[3] = [0.75, 0.25, 0]
    np.testing.assert_allclose(found["mean"], expected[:, order])
    for name in ("low", "high"):
        np.testing.assert_array_equal(found[name], found["mean"])
    assert found.attrs["of"] == "origins"
    heterozygosity = 1 - np.square(FREQUENCIES).sum(-1).mean(1)
    np.testing.assert_allclose(divergence(given)["heterozygosity"], heterozygosity[order])


def test_divergence_of_two_populations_by_hand() -> None:
    """At one locus p = 0.8 and 0.3, at the other both 0.5."""
    p = np.array([[[0.8, 0.2], [0.5, 0.5]], [[0.3, 0.7], [0.5, 0.5]]])
    found = divergence(tree(frequencies=p[None, None]))
    np.testing.assert_allclose(found["heterozygosity"], [(0.32 + 0.5) / 2, (0.42 + 0.5) / 2])
    between = (0.8 * 0.7 + 0.2 * 0.3 + 0.5) / 2
    np.testing.assert_allclose(found["distance"][0, 1], between - (0.82 + 0.92) / 4)
    np.testing.assert_allclose(found["distance"][0, 1], (0.5**2 + 0.5**2) / 2 / 2)
    np.testing.assert_allclose(found["fst"][1, 0], 1 - (0.82 + 0.92) / 4 / between)
    fixed = divergence(tree(frequencies=np.eye(2)[None, None, :, None]))
    np.testing.assert_array_equal(fixed["fst"], 1 - np.eye(2))
    np.testing.assert_array_equal(fixed["distance"], 1 - np.eye(2))
    same = divergence(tree(frequencies=np.eye(2)[None, None, [0, 0], None]))
    assert (same["fst"] == 0).all()


def by_hand(p: Array) -> dict[str, Array]:
    """Sums over loci and alleles of frequencies (population, locus, allele), one by one."""
    size, loci, _ = p.shape
    different = np.empty((size, size))
    for k in range(size):
        for other in range(size):
            different[k, other] = np.mean([1 - sum(p[k, locus] * p[other, locus]) for locus in range(loci)])
    within = np.diag(different)
    mean = np.array([[(a + b) / 2 for b in within] for a in within])
    return {"heterozygosity": within, "distance": different - mean, "fst": 1 - mean / different}


def test_divergence_is_that_of_every_draw() -> None:
    plain = drawn(3)
    found = divergence(given := tree(**dict(zip(("ancestry", "frequencies"), switched(*plain), strict=True))), 0.5)
    order = match(ancestry_summary(given)["mean"].values, plain[0].mean((0, 1)))
    draws = [by_hand(p[order]) for p in plain[1].reshape(-1, *FREQUENCIES.shape)]
    for name in ("heterozygosity", "distance", "fst"):
        values = np.stack([each[name] for each in draws])
        np.testing.assert_allclose(found[name], values.mean(0), atol=1e-14)
        np.testing.assert_allclose(found[f"{name}_sd"], values.std(0), atol=1e-14)
        np.testing.assert_allclose(found[f"{name}_low"], np.quantile(values, 0.25, axis=0), atol=1e-14)
        np.testing.assert_allclose(found[f"{name}_high"], np.quantile(values, 0.75, axis=0), atol=1e-14)
    assert found["fst"].dims == ("population", "other")
    assert "draws" in found.attrs["computed"]


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("aligned", [True, False])
def test_means_say_nearly_the_same_as_draws(own: bool, aligned: bool) -> None:
    """In the order of every chain, whatever became of its draws: all but covariances of populations."""
    plain = drawn(4)
    given = tree(**dict(zip(("ancestry", "frequencies"), switched(*plain), strict=True)))
    means = averaged(given, own)
    if aligned:
        reference = tree(ancestry=ANCESTRY[None, None][..., [1, 0, 2]])
        given, means = (bl.align(each, {"ancestry": "population"}, reference=reference) for each in (given, means))
        given = tree(ancestry=plain[0][..., [1, 0, 2]], frequencies=plain[1][:, :, [1, 0, 2]])
    whole, found = divergence(given), divergence(means)
    np.testing.assert_allclose(found["heterozygosity"], whole["heterozygosity"], rtol=1e-12)
    np.testing.assert_allclose(found["distance"], whole["distance"], atol=2e-3)
    np.testing.assert_allclose(found["fst"], whole["fst"], atol=5e-3)
    assert (np.diag(found["fst"]) == 0).all()
    assert np.isnan(found["fst_sd"]).all()
    assert "not kept" in found["fst_low"].attrs["reason"]
    order = match(ancestry_summary(means)["mean"].values, plain[0].mean((0, 1)))
    p, variance = plain[1].mean(1)[:, order], plain[1].var(1)[:, order]
    alike = np.einsum("cklj,cmlj->km", p, p) / 12 + np.diag(variance.sum((2, 3)).mean(0)) / 4
    np.testing.assert_allclose(found["distance"][0, 1], (alike[0, 0] + alike[1, 1]) / 2 - alike[0, 1])


def test_a_chain_that_switched_has_no_means() -> None:
    ancestry, frequencies = drawn(5)
    ancestry[1, 20:], frequencies[1, 20:] = ancestry[1, 20:][..., [1, 2, 0]], frequencies[1, 20:][:, [1, 2, 0]]
    with pytest.raises(ValueError, match="changed places within chain 1"):
        divergence(averaged(tree(ancestry=ancestry, frequencies=frequencies)))


def test_a_fit_is_near_the_truth() -> None:
    """And means of frequencies say nearly the same of populations as their draws."""
    sim = simulated_genotypes(80, 150, 2, fst=0.2, admixture=0.2, num_alleles=3, seed=5)
    data = {**genotypes(sim["y"]), "num_populations": 2}
    method = bl.mixed_membership.Gibbs(100, 100, num_chains=2)
    fitted = bl.fit(0, structure_admixture.model, data, method, progress=False)
    found, table = ancestry_summary(fitted), divergence(fitted)
    order = match(found["mean"].values, sim["ancestry"].values)
    assert abs(found["mean"].values - sim["ancestry"].values[:, order]).mean() < 0.08
    assert (found["low"] <= found["mean"]).all()
    assert (found["mean"] <= found["high"]).all()
    truth = by_hand(sim["frequencies"].values)
    np.testing.assert_allclose(table["fst"][0, 1], truth["fst"][0, 1], atol=0.08)
    np.testing.assert_allclose(table["heterozygosity"], truth["heterozygosity"][order], atol=0.05)
    means = divergence(averaged(fitted))
    for name in ("heterozygosity", "distance", "fst"):
        np.testing.assert_allclose(means[name], table[name], atol=0.02)


def test_a_fit_of_origins() -> None:
    fitted = bl.fit(0, structure.model, structure.example(), bl.Gibbs(5, 20, num_chains=2), progress=False)
    found = ancestry_summary(fitted)
    np.testing.assert_allclose(found["mean"].sum("population"), 1)
    assert found.attrs["of"] == "origins"
    assert divergence(fitted)["population"].equals(found["population"])


def summary(mean: Array, names: Any = None) -> xr.Dataset:
    return ancestry_summary(tree(range(len(mean)) if names is None else names, ancestry=mean[None, None]))


def test_colours_follow_a_population_that_splits() -> None:
    """The larger part keeps the colour, the other one gets the first that is free."""
    origin = np.repeat([0, 1, 2], [10, 4, 6])
    two, three = (0.94 * np.eye(k)[each] + 0.06 / k for k, each in ((2, np.minimum(origin, 1)), (3, origin)))
    four = 0.96 * np.eye(4)[np.where(np.arange(20) < 3, 3, origin)] + 0.01
    first = summary(two)
    for seed in range(6):
        turns = [np.random.default_rng(seed).permutation(k) for k in (3, 4)]
        found = match_populations({4: summary(four[:, turns[1]]), 2: first, 3: summary(three[:, turns[0]])})
        assert list(found) == [2, 3, 4]
        assert found[2].tolist() == [0, 1]
        assert found[3].tolist() == np.array([0, 2, 1])[turns[0]].tolist()
        assert found[4].tolist() == np.array([0, 2, 1, 3])[turns[1]].tolist()


def test_colours_need_not_be_of_successive_numbers() -> None:
    rng = np.random.default_rng(0)
    found = match_populations({k: summary(rng.dirichlet(np.ones(k), 30)) for k in (1, 4, 12)})
    for number, colours in found.items():
        assert sorted(colours) == list(range(number))


def test_a_table_has_a_row_for_every_share() -> None:
    found = ancestry_summary(tree(ancestry=drawn(6)[0]))
    table = q_table(found, ["a", "b", "b", "a", "c"])
    assert list(table) == ["individual", "group", "population", "mean", "sd", "low", "high"]
    assert len(table) == 15
    row = table[(table["individual"] == "Dan") & (table["population"] == 1)].iloc[0]
    assert row["group"] == "a"
    for name in ("mean", "sd", "low", "high"):
        assert row[name] == found[name].sel(individual="Dan", population=1)
    assert "group" not in q_table(found)


def test_a_q_matrix_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    found = ancestry_summary(tree(ancestry=drawn(7)[0].astype("f4")))
    path = tmp_path / "few.3.Q"
    write_q(found, path)
    assert np.loadtxt(path).shape == (5, 3)
    np.testing.assert_allclose(np.loadtxt(path), found["mean"], atol=6e-7)
    np.testing.assert_allclose(np.loadtxt(path).sum(1), 1, atol=2e-6)
    assert all(len(word) == 8 for line in path.read_text().splitlines() for word in line.split(" "))
    write_q(summary(ANCESTRY), str(path))
    assert path.read_text().startswith("0.900000 0.050000 0.050000\n0.100000")
    with pytest.raises(OSError, match="no folder"):
        write_q(found, tmp_path / "none" / "few.3.Q")
    assert [file.name for file in tmp_path.iterdir()] == ["few.3.Q"]


GIVEN = tree(ancestry=ANCESTRY[None, None], frequencies=FREQUENCIES[None, None])
FOUND = ancestry_summary(GIVEN)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ancestry_summary(tree(frequencies=FREQUENCIES[None, None])), "no ancestry and no origins z"),
        (lambda: ancestry_summary(tree(frequencies=FREQUENCIES[None, None])), "only ['frequencies']"),
        (lambda: ancestry_summary(GIVEN, 1.0), "probability is 1.0; expected that of an interval"),
        (lambda: ancestry_summary(tree(ancestry=ANCESTRY[None, None, ..., None])), "expected ['chain', 'draw', 'indiv"),
        (lambda: divergence(tree(ancestry=ANCESTRY[None, None])), "no frequencies of populations, only ['ancestry']"),
        (lambda: divergence(bl.align(GIVEN, {"ancestry": "population"})), "one of the sites 'ancestry' and 'freq"),
        (lambda: match_populations({}), "got none"),
        (lambda: match_populations({2: FOUND}), "K = 2 has 3 populations"),
        (lambda: match_populations({3: GIVEN}), "expected a summary from ancestry_summary, got a DataTree"),
        (
            lambda: match_populations({3: FOUND, 2: summary(ANCESTRY[:, :2], ["Ann", "Ben", "Cleo", "Dan", "Eva"])}),
            "K = 2 and K = 3 have different individuals",
        ),
        (lambda: q_table(FOUND, ["a", "b"]), "groups has 2 labels; expected one for each of 5 individuals"),
        (lambda: q_table(GIVEN), "got a DataTree"),
        (lambda: write_q(GIVEN, "q"), "got a DataTree"),
    ],
)
def test_wrong_calls(call: Any, words: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value), error.value
