"""ADMIXTURE's .Q and .P: read, held against genotypes, and compared."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from bayeslab.datasets import simulated_genotypes
from bayeslab.populations import admixture_start, compare_ancestry, read_frequencies, read_q
from bayeslab.populations.priors_of_ancestry import start_of_chains, with_rows_of_file
from bayeslab.populations.run import Settings


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    """Forty individuals of three populations at sixty loci, and the shares and frequencies behind them."""
    simulated = simulated_genotypes(40, 60, 3, fst=0.4, admixture=0.2, missing=0.05, seed=2)
    y = simulated["y"].fillna(-1).astype("int8").assign_attrs(_FillValue=-1)
    names = {"individual": [f"i{n}" for n in range(40)], "locus": [f"rs{n}" for n in range(60)]}
    panel = xr.Dataset({"y": y, "alleles": (("locus", "allele"), np.full((60, 2), ["A", "G"], object))}, names)
    return {
        "panel": panel,
        "q": simulated["ancestry"].values,
        "p": simulated["frequencies"].values[:, :, 1].T,
    }


def test_a_start_has_either_orientation_of_the_frequencies(truth: dict[str, Any]) -> None:
    panel, q, p = truth["panel"], truth["q"], truth["p"]
    start = admixture_start(panel, q, p)
    other = admixture_start(panel, q, 1 - p)
    np.testing.assert_allclose(start["frequencies"], other["frequencies"], atol=1e-12)
    np.testing.assert_allclose(start["frequencies"][:, :, 1], p.T, atol=2e-5)
    np.testing.assert_allclose(start["ancestry"], q, atol=1e-4)
    np.testing.assert_allclose(start["frequencies"].sum(-1), 1)


WRONG = {
    "individuals": (lambda q, p: (q[::-1], p), "predicts the genotypes worse than one ancestry for all"),
    "loci": (lambda q, p: (q, p[::-1]), "do not fit what .* expected the loci of the genotypes in their order"),
    "alleles": (
        lambda q, p: (q, np.where(np.arange(60)[:, None] < 9, 1 - p, p)),
        "are those of the other allele than at the rest",
    ),
    "fewer loci": (lambda q, p: (q, p[:-1]), "the .P has 59 loci, but the genotypes 60"),
    "fewer individuals": (lambda q, p: (q[1:], p), "the .Q has 39 individuals, but the genotypes 40"),
    "populations": (lambda q, p: (q, p[:, :2]), "of as many populations"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_of_other_genotypes_are_refused(case: str, truth: dict[str, Any]) -> None:
    change, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        admixture_start(truth["panel"], *change(truth["q"], truth["p"]))


def test_loci_of_three_alleles_are_refused(truth: dict[str, Any]) -> None:
    panel = truth["panel"].copy()
    panel["alleles"] = (("locus", "allele"), np.full((60, 3), ["A", "G", "T"], object))
    with pytest.raises(ValueError, match=r"locus rs0 has 3 alleles; a \.P has loci of two"):
        admixture_start(panel, truth["q"], truth["p"])


def test_a_comparison_pairs_populations(truth: dict[str, Any]) -> None:
    q, moved = truth["q"], truth["q"][:, [2, 0, 1]].copy()
    moved[7] += [0.1, -0.1, 0.0]
    columns = dict.fromkeys(("mean", "sd", "low", "high"), (("individual", "population"), q))
    summary = xr.Dataset(columns, {"individual": truth["panel"]["individual"].values})
    compared = compare_ancestry(summary, moved)
    assert compared.order.tolist() == [1, 2, 0]
    assert (compared.individual, compared.largest) == ("i7", pytest.approx(0.1))
    assert compared.mean == pytest.approx(0.2 / q.size)
    with pytest.raises(ValueError, match=r"ancestry has shape \(39, 3\)"):
        compare_ancestry(summary, moved[1:])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.5 0.5\n0.5 x\n", "line 2, column 2 of '.*' is 'x'; expected a number from 0 to 1"),
        ("0.5 0.5\n1.5 -0.5\n", "line 2, column 1 of"),
        ("0.5 nan\n", "line 1, column 2 of"),
        ("0.5 0.5\n1\n", "line 2 of '.*' has 1 numbers; expected 2 as in line 1"),
        ("0.5 0.5\n0.5 0.4\n", "line 2 of '.*' sums to 0.9; expected shares"),
        ("0.5 0.5\n\n0.5 0.5\n", "line 2 of '.*' has 0 numbers"),
        ("", "is empty; expected a line for an individual"),
    ],
)
def test_what_is_no_q_names_its_place(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.Q").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_q(tmp_path / "a.Q")


def test_files_are_read_as_they_come(tmp_path: Path) -> None:
    (tmp_path / "a.2.Q").write_bytes(b"0.25\t0.75\r\n 1.000001 0.00001\r\n")
    np.testing.assert_allclose(read_q(tmp_path / "a.2.Q"), [[0.25, 0.75], [1, 0]], atol=2e-5)
    (tmp_path / "a.2.P").write_text("0.1 0.9\n0.00001 0.3\n1 1\n")
    assert read_frequencies(tmp_path / "a.2.P").shape == (3, 2)


def test_rows_go_with_the_individuals_and_loci_that_passed(truth: dict[str, Any], tmp_path: Path) -> None:
    """Files are of all that was read, or of what filters left; of an earlier selection they are neither."""
    np.savetxt(tmp_path / "a.Q", truth["q"], fmt="%.6f")
    np.savetxt(tmp_path / "a.P", truth["p"], fmt="%.6f")
    settings = Settings("panel", (3,), start_from=(str(tmp_path / "a.Q"), str(tmp_path / "a.P")))
    kept = with_rows_of_file(truth["panel"]).isel(individual=slice(5, None), locus=slice(0, 50))
    start = start_of_chains(kept, settings)
    assert start is not None
    np.testing.assert_allclose(start["ancestry"], truth["q"][5:], atol=1e-4)
    np.testing.assert_allclose(start["frequencies"][:, :, 1], truth["p"].T[:, :50], atol=2e-5)
    with pytest.raises(ValueError, match=r"the \.Q has 40 individuals, but the genotypes 35"):
        start_of_chains(with_rows_of_file(kept), settings)
    with pytest.raises(ValueError, match=r"'a\.Q' has 3 populations, which is none of \[2\] that are run"):
        start_of_chains(kept, replace(settings, populations=(2,)))
