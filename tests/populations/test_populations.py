"""The number of populations: hidden genotypes, their scores by hand, splits, and starts that are given."""

from itertools import product
from typing import Any

import arviz_base
import numpy as np
import pytest
import xarray as xr

import bayeslab as bl
from bayeslab.datasets import genotypes, simulated_genotypes
from bayeslab.models import linear_regression, structure_admixture
from bayeslab.populations import choice as populations
from bayeslab.populations.choice import (
    HeldOutGenotypes,
    Means,
    hide_genotypes,
    log_densities,
    means_of_chain,
    score_populations,
    split_population,
)
from bayeslab.transforms.masked import Masked

Array = np.ndarray[Any, Any]
DIMS = {"ancestry": ["individual", "population"], "frequencies": ["population", "locus", "allele"]}
FIELD = bl.mixed_membership.MeanField(num_starts=1, num_samples=50, tolerance=0.1)
MODEL = Masked(structure_admixture.model)
"""What the fits of a choice compile, so that others compile nothing."""
METHODS = {
    "MeanField": FIELD,
    "MAP": bl.mixed_membership.MAP(),
    "Gibbs": bl.mixed_membership.Gibbs(num_warmup=1, num_samples=5, num_chains=2),
}


def panel(individuals: int, loci: int, num_populations: int, **options: Any) -> dict[str, Any]:
    """Of the loci that differ between individuals."""
    y = simulated_genotypes(individuals, loci, num_populations, **options)["y"]
    differ = (y.max(("individual", "copy")) > y.min(("individual", "copy"))).values
    return genotypes(y[:, differ]) | {"num_populations": num_populations}


@pytest.fixture(scope="module")
def apart() -> dict[str, Any]:
    """Sixty individuals, in turn of one of three populations."""
    return panel(60, 200, 3, fst=0.2, admixture=None, missing=0.02, seed=2)


def probabilities(rng: np.random.Generator, *shape: int) -> Array:
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1])


def some(seed: int, individuals: int = 5, num_populations: int = 3, loci: int = 4, alleles: int = 3) -> Means:
    rng = np.random.default_rng(seed)
    return Means(probabilities(rng, individuals, num_populations), probabilities(rng, num_populations, loci, alleles))


def log_density(y: Array, draws: list[Means]) -> Array:
    """Copy by copy."""
    found = np.zeros(len(y))
    for individual, locus, copy in product(*map(range, y.shape)):
        if (allele := y[individual, locus, copy]) >= 0:
            shown = [ancestry[individual] @ frequencies[:, locus, allele] for ancestry, frequencies in draws]
            found[individual] += np.log(np.mean(shown))
    return found


def some_genotypes(seed: int = 0, shape: tuple[int, ...] = (5, 4, 2)) -> Array:
    return np.random.default_rng(seed).integers(-1, 3, shape)


@pytest.mark.parametrize("block", [1, 2**24])
def test_densities_are_sums_over_copies(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where few fit into memory."""
    monkeypatch.setattr(populations, "PROBABILITIES_PER_BLOCK", block)
    y, draws = some_genotypes(), [some(seed) for seed in range(3)]
    np.testing.assert_allclose(log_densities(y, draws), log_density(y, draws), rtol=1e-12)
    y[2] = -1
    assert log_densities(y, draws)[2] == 0


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_hiding_leaves_every_locus_and_individual_something(share: float) -> None:
    data = panel(30, 12, 2, missing=0.6, seed=3)
    seen = (data["y"].values >= 0).any(2)
    hidden = hide_genotypes(0, structure_admixture.model, data, share)
    assert not (hidden & ~seen).any()
    assert (seen & ~hidden).any(0).all()
    assert (seen & ~hidden).any(1).all()
    np.testing.assert_array_equal(hidden, hide_genotypes(0, structure_admixture.model, data, share))
    assert (hidden != hide_genotypes(1, structure_admixture.model, data, share)).any()


def test_the_share_is_that_of_what_was_read() -> None:
    data = panel(100, 300, 2, missing=0.5, seed=4)
    seen = (data["y"].values >= 0).any(2)
    hidden = hide_genotypes(0, structure_admixture.model, data, 0.1)
    assert abs(hidden.sum() / seen.sum() - 0.1) < 4.5 * np.sqrt(0.09 / seen.sum())


def test_missing_copies_are_hidden_alike_however_they_are_written() -> None:
    codes = panel(20, 30, 2, missing=0.3, seed=5)["y"]
    y = codes.where(codes >= 0).values
    forms = [y, np.ma.masked_invalid(y), codes]
    first, *others = [hide_genotypes(0, structure_admixture.model, {"y": form}, 0.3) for form in forms]
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("before", [1, 2])
def test_a_split_finds_the_population_that_is_not_explained(before: int) -> None:
    """Ten of sixty individuals are of a population that the fit has not; loci have two or three alleles."""
    rng = np.random.default_rng(6)
    real = np.array([2, 3] * 60)
    drawn = rng.gamma(0.5, size=(before + 1, 120, 3)) * (np.arange(3) < real[:, None])
    frequencies = drawn / drawn.sum(-1, keepdims=True)
    origin = np.repeat(np.arange(before + 1), [60 - 10, 10] if before == 1 else [25, 25, 10])
    below = frequencies[origin].cumsum(-1)[:, :, None]
    y = (rng.random((60, 120, 2, 1)) > below).sum(-1)
    y[rng.random(y.shape) < 0.1] = -1
    known = np.eye(before)[np.minimum(origin, before - 1)]
    found = split_population(Means(known, frequencies[:before]), y)
    np.testing.assert_allclose(found.ancestry.sum(1), 1)
    np.testing.assert_allclose(found.frequencies.sum(-1), 1)
    assert min(found.ancestry.min(), found.frequencies.min()) >= 0
    assert (found.frequencies[:, real == 2, 2] == 0).all()
    new = found.ancestry[:, before]
    assert new[origin == before].min() > 0.5 > 0.3 > new[origin != before].max()
    errors = [np.abs(one - frequencies[before]).mean() for one in found.frequencies]
    assert np.argmin(errors) == before


@pytest.mark.slow
def test_three_populations_are_chosen(apart: dict[str, Any]) -> None:
    table = bl.populations.choose_populations(0, structure_admixture.model, apart, (2, 3, 4))
    assert table.attrs == {"best": 3, "smallest": 3, "method": "MeanField"}
    assert table["num_populations"].values.tolist() == [2, 3, 4]
    assert table["log_density"].dims == ("num_populations", "individual")
    hidden = hide_genotypes(0, structure_admixture.model, apart, 0.1)
    np.testing.assert_array_equal(table["genotypes"], hidden.sum(1))
    density = table["log_density"].values
    np.testing.assert_allclose(table["log_score"], density.sum(1))
    np.testing.assert_allclose(table["log_score_se"], np.sqrt(60) * density.std(1, ddof=1))
    gap = density - density[1]
    np.testing.assert_allclose(table["difference"], gap.sum(1), atol=1e-9)
    np.testing.assert_allclose(table["difference_se"], np.sqrt(60) * gap.std(1, ddof=1), atol=1e-9)
    assert (table["difference"][[0, 2]] < 0).all()
    assert np.isfinite(table["evidence_bound"]).all()
    assert table["evidence_bound"][1] > table["evidence_bound"][0]


def test_numbers_are_compared_on_the_same_genotypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each is handed the means of the fit before; the table follows from the densities of individuals."""
    data = genotypes(np.random.default_rng(3).integers(0, 2, (60, 9, 2)))
    density = np.random.default_rng(4).normal([[-30.0], [-27.0], [-28.0]], 1.0, (3, 60))
    given = []

    def scored(key: Any, held_out: HeldOutGenotypes, value: int, method: Any, before: Any) -> Any:
        hidden = held_out.hidden
        given.append((hidden, before))
        variables = {"log_density": ("individual", density[value - 2]), "genotypes": ("individual", hidden.sum(1))}
        row = xr.Dataset(variables, {"num_populations": value}).assign(log_score=density[value - 2].sum())
        sites = {name: one[None, None] for name, one in some(value, 60, value)._asdict().items()}
        return row, arviz_base.from_dict({"posterior": sites}, dims=DIMS)

    monkeypatch.setattr(populations, "score_populations", scored)
    table = bl.populations.choose_populations(0, structure_admixture.model, data, (2, 3, 4))
    for place, (hidden, before) in enumerate(given):
        np.testing.assert_array_equal(hidden, hide_genotypes(0, structure_admixture.model, data, 0.1))
        assert (before is None) == (place == 0)
        if place:
            np.testing.assert_allclose(before.frequencies, some(place + 1, 60, place + 1).frequencies)
    here = given[0][0].any(1)
    gap = (density - density[1])[:, here]  # of those of whom something is hidden
    assert table.attrs["best"] == 3
    np.testing.assert_allclose(table["difference"], gap.sum(1), atol=1e-9)
    np.testing.assert_allclose(table["difference_se"], np.sqrt(here.sum()) * gap.std(1, ddof=1), atol=1e-9)
    np.testing.assert_array_equal(table["genotypes"], given[0][0].sum(1))


@pytest.mark.slow
def test_the_number_is_found_in_nine_of_ten() -> None:
    found = []
    for seed in range(10):
        data = panel(200, 1000, 3, fst=0.05, seed=seed)
        found.append(bl.populations.choose_populations(seed, structure_admixture.model, data, (2, 3, 4)).attrs["best"])
    assert found.count(3) >= 9, found


def test_a_method_without_bound_has_none(apart: dict[str, Any]) -> None:
    hidden = hide_genotypes(0, structure_admixture.model, apart, 0.2)
    row, tree = score_populations(0, HeldOutGenotypes(structure_admixture.model, apart, hidden), 3, METHODS["MAP"])
    assert np.isnan(row["evidence_bound"])
    assert row.attrs["method"] == "MAP"
    y = np.where(hidden[:, :, None], apart["y"].values, -1)
    np.testing.assert_allclose(row["log_density"], log_density(y, [means_of_chain(tree)]), rtol=1e-6)


WRONG_CHOICES = {
    "no values": ({"values": ()}, "needs numbers of populations to choose from, got none"),
    "all": ({"share": 1.0}, "share is 1.0; expected a share of genotypes to hide, between 0 and 1"),
    "none": ({"share": 1e-9}, "a share of 1e-09 of 30 genotypes is none of them"),
    "one individual": ({"share": 0.01}, "genotypes hides those of one individual only; expected two or more"),
    "no y": ({"data": {"num_individuals": 5}}, r"data have no entry 'y'; expected genotypes .* beside \['num_ind"),
    "two axes": ({"data": {"y": np.zeros((5, 6))}}, r"genotypes y have shape \(5, 6\); expected three axes"),
    "program": ({"model": linear_regression.model}, "'num_populations' is no argument of the program; these are"),
}


@pytest.mark.parametrize("name", WRONG_CHOICES)
def test_wrong_choices(name: str) -> None:
    changes, words = WRONG_CHOICES[name]
    rng = np.random.default_rng(8)
    call = {"model": structure_admixture.model, "data": genotypes(rng.integers(0, 2, (5, 6, 2))), "values": (1, 2)}
    with pytest.raises(ValueError, match=words):
        bl.populations.choose_populations(0, **(call | changes))


def runs(likely: list[Means]) -> xr.DataTree:
    """A fit with a chain for each of them, of four draws about it."""
    sites = {}
    for name in Means._fields:
        value = np.stack([getattr(one, name) for one in likely])
        other = np.roll(value, 1, axis=-1)
        sites[name] = np.stack([value + step * (other - value) for step in (-0.2, -0.1, 0.1, 0.2)], 1)
    return arviz_base.from_dict({"posterior": sites}, dims=DIMS)


def test_delta_is_that_of_evanno() -> None:
    y = some_genotypes()
    chains = {number: [some(10 * number + run, num_populations=number) for run in range(3)] for number in (1, 2, 3, 5)}
    table = bl.populations.evanno(y, {number: runs(each) for number, each in reversed(chains.items())})
    likelihood = np.array([[log_density(y, [one]).sum() for one in each] for each in chains.values()])
    assert table["num_populations"].values.tolist() == [1, 2, 3, 5]
    np.testing.assert_allclose(table["log_likelihood"], likelihood, rtol=1e-10)
    mean, sd = likelihood.mean(1), likelihood.std(1, ddof=1)
    np.testing.assert_allclose(table["mean"], mean)
    np.testing.assert_allclose(table["sd"], sd)
    expected = abs(mean[2] - 2 * mean[1] + mean[0]) / sd[1]
    np.testing.assert_allclose(table["delta"], [np.nan, expected, np.nan, np.nan])


def test_runs_that_agree_have_an_infinite_delta() -> None:
    y = some_genotypes()
    table = bl.populations.evanno(y, {number: runs([some(number, num_populations=number)] * 2) for number in (1, 2, 3)})
    assert table["delta"].values.tolist()[1] == np.inf


@pytest.mark.parametrize(("numbers", "words"), [((1, 1), r"\{1: 1, 2: 1\} chains"), ((2, 3), r"\{1: 2, 2: 3\} chains")])
def test_evanno_needs_several_runs_of_each(numbers: tuple[int, int], words: str) -> None:
    trees = {value: runs([some(0, num_populations=value)] * number) for value, number in enumerate(numbers, 1)}
    with pytest.raises(ValueError, match=words + "; expected the same number for each, at least 2"):
        bl.populations.evanno(some_genotypes(), trees)


def test_evanno_leaves_out_what_was_not_read_however_it_is_written() -> None:
    y = some_genotypes()
    trees = {number: runs([some(run, num_populations=number) for run in range(2)]) for number in (1, 2)}
    there = np.where(y < 0, 0, y)
    expected = bl.populations.evanno(y, trees)["log_likelihood"]
    assert (expected != bl.populations.evanno(there, trees)["log_likelihood"]).all()
    for form in (np.ma.masked_array(there, y < 0), np.where(y < 0, np.nan, y), y.tolist()):
        np.testing.assert_allclose(bl.populations.evanno(form, trees)["log_likelihood"], expected)


WRONG_FITS: dict[str, tuple[dict[int, int], Any, str]] = {
    "key": ({2: 3, 3: 2}, np.s_[:], "the fit at 2 of trees has 3 populations; expected fits by that number"),
    "individuals": ({2: 2}, np.s_[:3], r"y has {'individuals': 3, 'loci': 4}, but the fit of 2 populations {'indi"),
    "loci": ({2: 2}, np.s_[:, :3], r"y has {'individuals': 5, 'loci': 3}, but the fit of 2 populations {'indi"),
    "copies": ({2: 2}, np.s_[:, :, 0], r"genotypes y have shape \(5, 4\); expected three axes"),
}


@pytest.mark.parametrize("name", WRONG_FITS)
def test_evanno_needs_the_genotypes_of_the_fits(name: str) -> None:
    numbers, part, words = WRONG_FITS[name]
    trees = {value: runs([some(run, num_populations=number) for run in range(2)]) for value, number in numbers.items()}
    with pytest.raises(ValueError, match=words):
        bl.populations.evanno(some_genotypes()[part], trees)


def test_evanno_refuses_alleles_that_the_fits_have_not() -> None:
    with pytest.raises(ValueError, match="y has allele 2, but the fit of 2 populations has alleles 0 to 1; expected"):
        bl.populations.evanno(
            some_genotypes(), {2: runs([some(run, num_populations=2, alleles=2) for run in range(2)])}
        )


@pytest.fixture(scope="module")
def field(apart: dict[str, Any]) -> xr.DataTree:
    """The bound at a start from the singular vectors."""
    return bl.fit(0, MODEL, apart, FIELD, progress=False)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "Gibbs")) for n in METHODS])
def test_a_fit_begins_where_it_is_told(name: str, apart: dict[str, Any], field: xr.DataTree) -> None:
    """The populations of a start keep their places, in all chains; what is climbed does not fall."""
    best, order = means_of_chain(field), [2, 0, 1]
    start = Means(best.ancestry[:, order], best.frequencies[order])
    tree = bl.fit(3, MODEL, apart, METHODS[name], start=start._asdict(), progress=False)
    for chain in range(tree["posterior"].sizes["chain"]):
        found = means_of_chain(tree, chain)
        for site in (0, 1):
            assert np.abs(found[site] - start[site]).mean() < 0.1 < np.abs(found[site] - best[site]).mean()
    if name == "MeanField":
        elbo = tree["history"]["elbo"].values.ravel()
        elbo = elbo[np.isfinite(elbo)]
        assert tree.attrs["elbo"] == elbo[-1] >= elbo[0]
        assert elbo[0] > field.attrs["elbo"] - 10
        assert tree.attrs["elbo"] > field.attrs["elbo"] - 0.5
    if name == "MAP":
        y = apart["y"].values
        assert log_densities(y, [means_of_chain(tree)]).sum() > log_densities(y, [start]).sum()


def test_a_split_is_a_start(apart: dict[str, Any], field: xr.DataTree) -> None:
    """From two of three populations, merged by hand, the split leads to the bound of the fit of three."""
    best = means_of_chain(field)
    merged = Means(
        np.stack([best.ancestry[:, 0] + best.ancestry[:, 1], best.ancestry[:, 2]], 1),
        np.stack([(best.frequencies[0] + best.frequencies[1]) / 2, best.frequencies[2]]),
    )
    start = split_population(merged, apart["y"].values)
    tree = bl.fit(1, MODEL, apart, FIELD, start=start._asdict(), progress=False)
    assert tree.attrs["elbo"] > field.attrs["elbo"] - 1


WRONG_STARTS = {
    "one of two": (FIELD, {"frequencies": None}, r"start lacks values of \['frequencies'\]; expected those of"),
    "no site": (FIELD, {"q": 1.0}, r"start names \['q'\], which are no latent sites"),
    "observed": (FIELD, {"y": np.ones((5, 6, 2))}, r"start names \['y'\], which are no latent sites"),
    "too much": (FIELD, {"alpha": 1.0}, r"start has values of \['alpha'\]; expected those of \['ancestry', 'freq"),
    "shape": (
        FIELD,
        {"ancestry": np.ones((5, 3)) / 3},
        r"start of site 'ancestry' has shape \(5, 3\); expected",
    ),
    "sums": (FIELD, {"ancestry": np.ones((5, 2))}, "start of site 'ancestry' has rows that are no probabilities"),
    "negative": (FIELD, {"ancestry": np.tile([2.0, -1.0], (5, 1))}, "has rows that are no probabilities"),
    "several": (bl.mixed_membership.MeanField(num_starts=2), {}, "MeanField has 2 starts of its own; beside start"),
    "other method": (bl.NUTS(), {}, "NUTS finds its own start for this program; leave start out"),
}


@pytest.mark.parametrize("name", WRONG_STARTS)
def test_wrong_starts(name: str) -> None:
    method, changes, words = WRONG_STARTS[name]
    data = genotypes(np.random.default_rng(9).integers(0, 2, (5, 6, 2))) | {"num_populations": 2}
    if "alpha" in changes:
        data, method = data | {"alpha": None}, bl.mixed_membership.Gibbs(1, 1, 1)
    whole = some(0, num_populations=2, loci=6, alleles=2)._asdict() | changes
    start = {site: value for site, value in whole.items() if value is not None}
    with pytest.raises(ValueError, match=words) as caught:
        bl.fit(0, MODEL, data, method, start=start, progress=False)
    assert "\n" not in str(caught.value)


def test_a_result_goes_on_from_where_it_stopped(field: xr.DataTree, apart: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="previous goes on from where it stopped; give that or start, not both"):
        bl.fit(0, MODEL, apart, FIELD, previous=field, start=means_of_chain(field)._asdict())
