"""STRUCTURE: origins against the enumeration of all of them, and genotypes as people have them."""

from collections.abc import Callable
from itertools import product
from typing import Any

import arviz_stats as azs
import numpy as np
import pytest
import xarray as xr

import bayeslab as bl
from bayeslab.datasets import genotypes, simulated_genotypes
from bayeslab.models import structure, structure_admixture, structure_correlated
from bayeslab.transforms.analysis import Analysis
from memberships import Array, log_dirichlet_multinomial
from quick_cases import quick_ones

METHODS = {
    "Gibbs": bl.Gibbs(num_samples=10_000, num_chains=2),
    "NUTS": bl.NUTS(num_warmup=500, num_samples=2500, num_chains=2),
}


def together(log_joint: Array, origins: Array) -> Array:
    """Whether two have the same origin, in the mean over all assignments (assignment, one)."""
    weight = np.exp(log_joint - log_joint.max())
    same = origins[:, :, None] == origins[:, None, :]
    return np.einsum("a,aij->ij", weight / weight.sum(), same)


def without_admixture(data: dict[str, Any]) -> Array:
    """Pairs of individuals: p(z_i = z_j | x), with frequencies integrated out."""
    x, states = data["y"], data["num_populations"]
    origins = np.array(list(product(range(states), repeat=len(x))))
    log_joint = np.zeros(len(origins))
    for locus, alleles in enumerate(data["num_alleles"]):
        is_allele = np.stack([(x[:, locus] == j).filled(False).sum(-1) for j in range(alleles)], -1)
        counts = np.einsum("aik,ij->akj", origins[:, :, None] == np.arange(states), is_allele)
        log_joint += log_dirichlet_multinomial(counts, data["concentration"]).sum(-1)
    return together(log_joint, origins)


def with_admixture(data: dict[str, Any]) -> Array:
    """Pairs of copies that were read, with frequencies and ancestry integrated out."""
    x, states = data["y"], data["num_populations"]
    places = np.argwhere(~np.ma.getmaskarray(x))
    values = x[tuple(places.T)]
    origins = np.array(list(product(range(states), repeat=len(places))), np.int8)
    is_origin = (origins[:, :, None] == np.arange(states)).astype(np.int8)
    log_joint = np.zeros(len(origins))
    for individual in range(len(x)):
        mine = is_origin[:, places[:, 0] == individual].sum(1)
        log_joint += log_dirichlet_multinomial(mine, data["alpha"])
    for locus, alleles in enumerate(data["num_alleles"]):
        here = places[:, 1] == locus
        counts = np.stack([is_origin[:, here & (values == j)].sum(1) for j in range(alleles)], -1)
        log_joint += log_dirichlet_multinomial(counts, data["concentration"]).sum(-1)
    return together(log_joint, origins)


@pytest.mark.parametrize(
    ("oracle", "name"),
    quick_ones(product([without_admixture, with_admixture], METHODS), (with_admixture, "Gibbs")),
)
def test_origins_are_those_of_all_assignments(oracle: Callable[[dict[str, Any]], Array], name: str) -> None:
    lecture = structure if oracle is without_admixture else structure_admixture
    data = lecture.example()
    tree = bl.fit(1, lecture.model, data, METHODS[name], progress=False)
    z = tree["posterior"]["z"].values
    if lecture is structure_admixture:
        z = z[(slice(None), slice(None), *np.argwhere(~np.ma.getmaskarray(data["y"])).T)]
    same = (z[..., :, None] == z[..., None, :]).astype(float)
    rows, columns = np.triu_indices(same.shape[-1], 1)
    found = xr.Dataset({"same": (("chain", "draw", "pair"), same[..., rows, columns])})
    error = azs.mcse(found, method="mean")["same"].values
    gap = found["same"].mean(("chain", "draw")).values - oracle(data)[rows, columns]
    assert np.abs(gap / error).max() < 4.5  # of at most 136 pairs


def test_a_single_population_is_the_closed_form() -> None:
    """K = 1: frequencies are Dirichlet with the counts of alleles, the ancestry is one."""
    data = structure_admixture.example() | {"num_populations": 1}
    tree = bl.fit(0, structure_admixture.model, data, bl.Gibbs(num_samples=4000, num_chains=2), progress=False)
    x, alleles = data["y"], data["num_alleles"]
    for locus, size in enumerate(alleles):
        counts = np.array([(x[:, locus] == j).sum() for j in range(size)]) + data["concentration"]
        p = tree["posterior"]["frequencies"][:, :, 0, locus, :size]
        mean = counts / counts.sum()
        spread = np.sqrt(mean * (1 - mean) / (counts.sum() + 1))
        np.testing.assert_array_less(np.abs(p.mean(("chain", "draw")) - mean), 4.5 * spread / np.sqrt(8000))
    np.testing.assert_array_equal(tree["posterior"]["ancestry"], 1.0)


@pytest.mark.parametrize("lecture", [structure_admixture, pytest.param(structure_correlated, marks=pytest.mark.slow)])
def test_hyperparameters_are_drawn_by_nuts(lecture: Any) -> None:
    """What has no conditional in closed form is a block of NUTS inside Gibbs."""
    data = lecture.example() | {"alpha": None}
    plan = bl.Gibbs().plan(Analysis(bl.bind(lecture.model, data)))
    free = {"alpha"} if lecture is structure_admixture else {"alpha", "ancestral", "drift"}
    assert set(plan.rest) == free


def test_simulated_genotypes_have_their_frequencies() -> None:
    one = simulated_genotypes(4000, 5, 2, num_alleles=3, missing=0.1, fst=0.2)
    expected = np.einsum("ik,klj->lj", one["ancestry"], one["frequencies"]) / 4000
    for allele in range(3):
        share = (one["y"] == allele).where(one["y"].notnull()).mean(("individual", "copy"))
        np.testing.assert_allclose(share, expected[:, allele], atol=4.5 * 0.5 / np.sqrt(7200))
    assert abs(float(one["y"].isnull().mean()) - 0.1) < 0.01


def test_genotypes_are_counted_and_dropped() -> None:
    x = np.array([[[0, 1], [1, 1], [2, np.nan]], [[0, 0], [1, np.nan], [0, 1]]])
    with pytest.warns(UserWarning, match="1 of 3 loci have a single allele and are dropped"):
        data = genotypes(x)
    assert (data["num_individuals"], data["ploidy"], list(data["num_alleles"])) == (2, 2, [2, 3])
    np.testing.assert_array_equal(data["y"], np.nan_to_num(x[:, [0, 2]], nan=-1))
    np.testing.assert_array_equal(genotypes(np.ma.masked_invalid(x[:, [0, 2]]))["y"], data["y"])
    present = bl.bind(structure.model, data | {"num_populations": 2}).present["y"]
    np.testing.assert_array_equal(present, ~np.isnan(x[:, [0, 2]]))
    assert genotypes(x[:, :1])["y"].dtype == np.int8


WRONG = {
    "no copies": (np.zeros((2, 3)), None, r"shape \(2, 3\); expected \(individual, locus, copy\)"),
    "negative": ([[[0, -9]], [[1, 0]]], None, "y is -9 for individual 0 at locus 0, copy 1, which is no allele"),
    "half": ([[[0, 1]], [[0.5, 0]]], None, "y is 0.5 for individual 1 at locus 0, copy 0"),
    "beyond": (
        [[[0, 1]], [[2, 0]]],
        [2],
        "y is 2 for individual 1 at locus 0, copy 0, which num_alleles does not allow",
    ),
    "no data": ([[[np.nan, np.nan]], [[np.nan, np.nan]]], None, "y has no genotype"),
    "other loci": ([[[0, 1]], [[1, 1]]], [2, 2], r"num_alleles has shape \(2,\), but y has 1 loci"),
    "empty": (np.zeros((0, 3, 2)), None, "none of them empty"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_genotypes_get_one_sentence(case: str) -> None:
    x, alleles, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        genotypes(np.asarray(x, float), alleles)


def test_individuals_without_a_genotype_are_told() -> None:
    y = xr.DataArray([[[0, 1]], [[-1, -1]], [[1, 1]]], {"individual": ["a", "b", "c"]}, ["individual", "locus", "copy"])
    y.attrs["_FillValue"] = -1
    with pytest.warns(UserWarning, match="individual b has no genotype: kept, and .*drop_empty=True"):
        kept = genotypes(y)
    assert kept["y"].values.tolist() == [[[0, 1]], [[-1, -1]], [[1, 1]]]
    assert kept["num_individuals"] == 3
    with pytest.warns(UserWarning, match="individual b has no genotype: left out"):
        left = genotypes(y, drop_empty=True)
    assert left["num_individuals"] == 2
    assert left["y"]["individual"].values.tolist() == ["a", "c"]


def test_nothing_to_tell_populations_by() -> None:
    with pytest.raises(ValueError, match="no locus has two alleles"):
        genotypes(np.zeros((2, 1, 2)))


def test_an_allele_that_a_locus_lacks_is_named() -> None:
    data = structure.example()
    wrong = data["y"].copy()
    wrong[1, 2, 0] = 2
    with pytest.raises(ValueError, match=r"\(1, 2, 0\) is 2"):
        bl.bind(structure.model, data | {"y": wrong})


@pytest.mark.parametrize("lecture", [structure, structure_admixture, structure_correlated])
def test_there_are_no_more_populations_than_individuals(lecture: Any) -> None:
    with pytest.raises(ValueError, match="num_populations is 5, more than the"):
        bl.bind(lecture.model, lecture.example() | {"num_populations": 5})
