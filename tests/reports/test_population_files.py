"""Files for other programs, of chains that number the populations in different orders."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xarray import Dataset, DataTree

from bayeslab.populations.run import Results
from bayeslab.reports.population_files import export

ANCESTRY = np.array([[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.05, 0.95], [0.3, 0.3, 0.4]])
FREQUENCY = np.array([[0.95, 0.1], [0.2, 0.85], [0.5, 0.4]])
"""Of allele 1, by population and locus."""


@pytest.mark.parametrize("kept", ["posterior", "posterior_mean"])
def test_frequencies_have_the_order_of_ancestry(kept: str, tmp_path: Path) -> None:
    """Means over chains, also where only those of each chain are kept."""
    orders = [[0, 1, 2], [2, 0, 1]]
    noise = np.random.default_rng(0).normal(0, 1e-3, (2, 5, *ANCESTRY.shape))
    ancestry = np.stack([np.stack([ANCESTRY[:, order]] * 5) for order in orders]) + noise
    alleles = np.stack([1 - FREQUENCY, FREQUENCY], -1)
    frequencies = np.stack([np.stack([alleles[order]] * 5) for order in orders])
    draws = ("chain", "draw")
    groups: dict[str, Any] = {"posterior": Dataset({"ancestry": ((*draws, "individual", "population"), ancestry)})}
    axes = ("population", "locus", "allele")
    if kept == "posterior":
        groups["posterior"]["frequencies"] = ((*draws, *axes), frequencies)
    else:
        groups["posterior_mean"] = Dataset({"frequencies": (("chain", *axes), frequencies.mean(1))})
    genotypes = Dataset(
        {"alleles": (("locus", "allele"), [["A", "C"], ["G", "T"]])},
        {"individual": [f"i{number}" for number in range(4)], "locus": ["L1", "L2"]},
    )
    results = Results(genotypes, Dataset(), {3: DataTree.from_dict(groups)}, {})
    folder = export(results, tmp_path / "export")
    shares, found = np.loadtxt(folder / "3.Q"), np.loadtxt(folder / "3.P")
    order = [int(np.argmax(shares[:3, population])) for population in range(3)]
    assert sorted(order) == [0, 1, 2]
    np.testing.assert_allclose(shares, ANCESTRY[:, order], atol=0.01)
    np.testing.assert_allclose(found, FREQUENCY[order].T, atol=1e-6)
    for chain in (1, 2):
        np.testing.assert_allclose(np.loadtxt(folder / f"3.run_{chain}.Q"), shares, atol=0.01)
