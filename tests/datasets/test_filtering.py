"""The filters of genotypes against plain loops over the same rules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from bayeslab.datasets import filter_genotypes, genotypes, read_genotypes
from bayeslab.datasets.genetics import filters as filtering
from genotype_panels import quick

Array = np.ndarray[Any, Any]


def panel(
    individuals: int = 12, loci: int = 40, seed: int = 0, num_alleles: int = 3, missing: float = 0.15, ploidy: int = 2
) -> xr.Dataset:
    """Neighbours are alike, some loci have one allele; chromosomes take turns, and positions are in no order."""
    rng = np.random.default_rng(seed)
    y = np.empty((individuals, loci, ploidy), np.int8)
    y[:, 0] = rng.integers(0, num_alleles, (individuals, ploidy))
    for locus in range(1, loci):
        new = rng.integers(0, rng.integers(1, num_alleles + 1), (individuals, ploidy))
        y[:, locus] = np.where(rng.random((individuals, 1)) < 0.8, y[:, locus - 1], new) if rng.random() < 0.7 else new
    y[rng.random(y.shape) < missing * rng.random(loci)[:, None] * 2 * rng.random((individuals, 1, 1))] = -1
    return xr.Dataset(
        {
            "y": (("individual", "locus", "copy"), y, {"_FillValue": -1}),
            "alleles": (("locus", "allele"), np.full((loci, num_alleles), "A", object)),
        },
        {
            "individual": [f"i{i}" for i in range(individuals)],
            "locus": [f"l{i}" for i in range(loci)],
            "population": ("individual", [f"p{i % 3}" for i in range(individuals)]),
            "chromosome": ("locus", [str(i % 2) for i in range(loci)]),
            "position": ("locus", rng.integers(0, 300, loci)),
        },
        {"source": "panel.bed", "individuals_read": individuals, "loci_read": loci},
    )


def minor(y: Array) -> float:
    """Of one locus (individual, copy)."""
    counts = np.unique(y[y >= 0], return_counts=True)[1]
    return (counts.sum() - counts.max()) / counts.sum() if counts.size else 0.0


def r2(first: Array, second: Array) -> float:
    """Of two loci (individual, copy), from those with all copies of both."""
    whole = ((first >= 0) & (second >= 0)).all(1)
    pair = []
    for y in (first, second):
        values, counts = np.unique(y[y >= 0], return_counts=True)
        pair.append((y[whole] == values[counts.argmax()]).sum(1))
    if not whole.any() or min(np.ptp(one) for one in pair) == 0:
        return 0.0
    return float(np.corrcoef(*pair)[0, 1] ** 2)


def in_order(dataset: xr.Dataset, loci: list[int]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for locus in sorted(loci, key=lambda locus: (dataset["position"].values[locus], locus)):
        places.setdefault(str(dataset["chromosome"].values[locus]), []).append(locus)
    return places


def plainly(
    dataset: xr.Dataset, individual: float, locus: float, frequency: float, distance: int, max_r2: float, window: int
) -> tuple[list[int], list[int], list[int]]:
    """Individuals, loci, and how many each filter removed."""
    y = dataset["y"].values
    people = [i for i in range(len(y)) if (y[i] < 0).mean() <= individual]
    if not people:
        return [], [], []
    removed, y = [len(y) - len(people)], y[people]
    loci = [j for j in range(y.shape[1]) if (y[:, j] < 0).mean() <= locus]
    several = [j for j in loci if len(set(y[:, j].ravel().tolist()) - {-1}) > 1]
    common = [j for j in several if minor(y[:, j]) >= frequency]
    position = dataset["position"].values
    far = []
    for along in in_order(dataset, common).values():
        kept: list[int] = []
        for j in along:
            known = [i for i in kept if position[i] >= 1]
            if position[j] < 1 or not known or position[j] - position[known[-1]] >= distance:
                kept.append(j)
        far += kept
    linked = set()
    for along in in_order(dataset, far).values():
        for place, i in enumerate(along):
            for j in along[place + 1 : place + window]:
                if not {i, j} & linked and r2(y[:, i], y[:, j]) > max_r2 + 1e-9:
                    linked.add(i if minor(y[:, i]) < minor(y[:, j]) else j)
    left = sorted(set(far) - linked)
    sizes = [dataset.sizes["locus"], len(loci), len(several), len(common), len(far), len(left)]
    return people, left, [*removed, *(np.array(sizes[:-1]) - sizes[1:]).tolist()]


NAMES = ["individuals_missing", "loci_missing", "loci_one_allele", "loci_rare", "loci_near", "loci_linked"]
shares = st.floats(0, 0.6)


@quick
@given(st.integers(0, 2**20), st.integers(1, 3), shares, shares, shares, st.integers(0, 20), shares, st.integers(2, 9))
def test_filters_are_those_of_plain_loops(
    seed: int, ploidy: int, individual: float, locus: float, frequency: float, distance: int, max_r2: float, window: int
) -> None:
    dataset = panel(seed=seed, ploidy=ploidy)
    people, loci, removed = plainly(dataset, individual, locus, frequency, distance, max_r2, window)
    options = {"max_missing_individual": individual, "max_missing_locus": locus, "thin_distance": distance}
    options |= {"min_minor_allele_frequency": frequency, "max_r2": max_r2, "window": window}
    if not loci:
        with pytest.raises(ValueError, match=r"no individual is left|no locus is left of 40: removed_"):
            filter_genotypes(dataset, **options)
        return
    found = filter_genotypes(dataset, **options)
    assert [found.attrs[f"removed_{name}"] for name in NAMES] == removed
    xr.testing.assert_identical(found.drop_attrs(), dataset.isel(individual=people, locus=loci).drop_attrs())
    assert found["y"].attrs == {"_FillValue": -1}


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_no_two_neighbours_stay_linked(missing: float) -> None:
    """Over the seams of what is compared at once, which are at 64 loci here."""
    dataset = panel(30, 400, num_alleles=2, missing=missing).drop_vars(["position", "chromosome"])
    found = filter_genotypes(dataset, max_r2=0.3, window=20)["locus"].values
    kept = dataset.sel(locus=found)["y"].values
    place = {name: number for number, name in enumerate(filter_genotypes(dataset)["locus"].values)}
    apart = [[place[b] - place[a] for b in found] for a in found]
    for i in range(len(found)):
        near = [j for j in range(i + 1, len(found)) if apart[i][j] < 20]
        assert all(r2(kept[:, i], kept[:, j]) <= 0.3 + 1e-9 for j in near)
    assert 20 < len(found) < 300


def test_copies_of_a_locus_are_linked_and_thresholds_pass() -> None:
    """r2 = 1 is not above 1, whatever rounding does; a frequency of 0.1 is not below 0.1."""
    y = np.zeros((10, 6, 1), np.int8)
    y[:3, :4], y[0, 4], y[:2, 5] = 1, 1, 1
    y[:, 3] = 1 - y[:, 3]
    dataset = panel(10, 6, ploidy=1).assign(y=(("individual", "locus", "copy"), y, {"_FillValue": -1}))
    dataset = dataset.drop_vars("chromosome").assign_coords(position=("locus", [6, 5, 4, 3, 2, 1]))
    assert filter_genotypes(dataset, max_r2=1).sizes["locus"] == 6
    assert filter_genotypes(dataset, max_r2=0.99)["locus"].values.tolist() == ["l3", "l4", "l5"]
    assert filter_genotypes(dataset, min_minor_allele_frequency=0.1).sizes["locus"] == 6
    assert filter_genotypes(dataset, min_minor_allele_frequency=0.2).sizes["locus"] == 5
    assert filter_genotypes(dataset, thin_distance=2)["locus"].values.tolist() == ["l1", "l3", "l5"]


def test_counts_add_up_over_filterings(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = panel(seed=1)
    monkeypatch.setattr(filtering, "COPIES_PER_BLOCK", 30)
    once = filter_genotypes(dataset, max_missing_locus=0.2)
    twice = filter_genotypes(filter_genotypes(dataset), max_missing_locus=0.2)
    assert twice["y"].identical(once["y"])
    for attrs in (once.attrs, twice.attrs):
        assert attrs["loci_read"] - sum(attrs[f"removed_{name}"] for name in NAMES[1:]) == once.sizes["locus"]


def test_what_is_filtered_is_data_and_can_be_saved(tmp_path: Path) -> None:
    """Without a warning: loci of one allele are gone."""
    found = filter_genotypes(panel(missing=0.05), max_r2=0.5)
    found.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    again = filter_genotypes(read_genotypes(tmp_path / "a.nc"))
    assert again.attrs == found.attrs
    assert genotypes(again)["y"].identical(genotypes(found)["y"])
    assert genotypes(found)["y"]["population"].values.tolist() == found["population"].values.tolist()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "share": ({"max_missing_locus": 1.5}, "max_missing_locus is 1.5; expected a number from 0 to 1"),
    "negative": ({"min_minor_allele_frequency": -0.1}, "min_minor_allele_frequency is -0.1; expected"),
    "nan": ({"max_missing_individual": np.nan}, "max_missing_individual is nan; expected"),
    "r2": ({"max_r2": np.nan}, "max_r2 is nan; expected"),
    "distance": ({"thin_distance": -1}, "thin_distance is -1 and window 50; expected at least 0 and 2"),
    "window": ({"max_r2": 0.5, "window": 1}, "thin_distance is 0 and window 1; expected at least 0 and 2"),
    "everything": (
        {"min_minor_allele_frequency": 1.0},
        r"no locus is left of 40: removed_individuals_missing 0, .*removed_loci_rare \d+\.",
    ),
    "everybody": ({"max_missing_individual": 0.0}, "no individual is left: all 12 have more missing than"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_thresholds_are_refused(case: str) -> None:
    options, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        filter_genotypes(panel(missing=2.0), **options)


def test_other_datasets_are_refused() -> None:
    dataset = panel()
    with pytest.raises(ValueError, match="no coordinate position, so thin_distance means nothing"):
        filter_genotypes(dataset.drop_vars("position"), thin_distance=5)
    with pytest.raises(ValueError, match="the dataset has y of float64; expected integers with the attribute"):
        filter_genotypes(dataset.assign(y=dataset["y"] * 1.0))


def test_panels_without_any_genotype_have_no_locus_left(tmp_path: Path) -> None:
    (tmp_path / "a.gen").write_text("t\nl1\nl2\nl3\npop\na, 0000 0000 0000\nb, 0000 0000 0000\n")
    with pytest.raises(ValueError, match=r"no locus is left of 3: .*removed_loci_one_allele 3"):
        filter_genotypes(read_genotypes(tmp_path / "a.gen"))
