"""Linkage of neighbours is told from the correlation that population structure makes everywhere."""

import numpy as np
import pytest
import xarray as xr

from bayeslab.datasets import filter_genotypes, genotype_linkage, simulated_genotypes
from bayeslab.datasets.genetics.linkage import Linkage
from bayeslab.populations.run import linkage_warning


def panel(y: np.ndarray, chromosomes: int = 2) -> xr.Dataset:
    individuals, loci, _ = y.shape
    alleles = np.full((loci, 2), ["A", "G"], object)
    coords = {
        "individual": [f"i{number}" for number in range(individuals)],
        "locus": [f"rs{number}" for number in range(loci)],
        "chromosome": ("locus", np.repeat(np.arange(chromosomes), loci // chromosomes)),
        "position": ("locus", np.tile(1000 * np.arange(1, 1 + loci // chromosomes), chromosomes)),
    }
    attrs = {"_FillValue": -1}
    return xr.Dataset(
        {"y": (("individual", "locus", "copy"), y, attrs), "alleles": (("locus", "allele"), alleles)}, coords
    )


def independent(fst: float, seed: int = 0) -> np.ndarray:
    return simulated_genotypes(60, 200, 2, fst=fst, seed=seed)["y"].values.astype("int8")


@pytest.mark.parametrize("fst", [0.02, 0.6])
def test_structure_alone_is_no_linkage(fst: float) -> None:
    assert not genotype_linkage(panel(independent(fst))).is_strong


def test_copied_neighbours_are_linked_until_they_are_thinned() -> None:
    """Every locus is there twice: half of the neighbours are copies, and r2 or distance takes one of each away."""
    doubled = independent(0.02)[:, :100].repeat(2, axis=1)
    doubled[0, 0] = -1
    linked = panel(doubled)
    found = genotype_linkage(linked)
    assert found.neighbours == pytest.approx(100 / 198, abs=0.02)
    assert found.far_apart < 0.01
    assert found.is_strong
    words = linkage_warning(linked.assign_attrs(found._asdict()))
    assert "correlation of 51% of them is above 0.5" in words
    for options in ({"max_r2": 0.5}, {"thin_distance": 2000}):
        thinned = filter_genotypes(linked, **options)
        assert not genotype_linkage(thinned).is_strong
        assert linkage_warning(thinned.assign_attrs(genotype_linkage(thinned)._asdict())) == ""


def test_one_locus_has_no_neighbour() -> None:
    found = genotype_linkage(panel(independent(0.1)[:, :1], 1))
    assert np.isnan(found).all()
    assert not found.is_strong
    assert linkage_warning(panel(independent(0.1)[:, :2], 1)) == ""
    assert Linkage(0.3, 0.2).is_strong is False


@pytest.mark.parametrize("loci", [30, 52])
def test_few_loci_do_not_tell_linkage_from_structure(loci: int) -> None:
    """Without enough pairs far apart nothing is called linked, and nothing is advised."""
    y = simulated_genotypes(60, 200, 2, fst=0.8, admixture=None, seed=1)["y"].values[:, :loci].astype("int8")
    unlinked = panel(y, 1)
    found = genotype_linkage(unlinked)
    assert found.neighbours > 0.1
    assert np.isnan(found.far_apart)
    assert not found.is_strong
    assert found.is_unclear
    words = linkage_warning(unlinked.assign_attrs(found._asdict()))
    assert "by linkage or by population structure" in words
    assert "thin" not in words


@pytest.mark.parametrize("positions", ["none", "unknown", "known"])
def test_thinning_by_distance_is_advised_where_there_are_positions(positions: str) -> None:
    linked = panel(independent(0.02)[:, :100].repeat(2, axis=1))
    if positions == "none":
        linked = linked.drop_vars("position")
    elif positions == "unknown":
        linked["position"] = xr.zeros_like(linked["position"])
    words = linkage_warning(linked.assign_attrs(Linkage(0.5, 0.01)._asdict()))
    assert words.endswith("with --r2 0.2 or --thin 100000" if positions == "known" else "with --r2 0.2")
