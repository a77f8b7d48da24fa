"""Individuals of known origin: what is known stays, frequencies follow it, and the others are told by them."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import bayeslab as bl
from bayeslab.models import structure_admixture
from bayeslab.populations import ancestry_prior, read_origins
from bayeslab.populations.known_origins import with_known_origins


def test_the_prior_is_alpha_and_copies_of_the_known_origin() -> None:
    prior = ancestry_prior(["b", None, "a", "b", float("nan"), ""], 3, alpha=0.5, strength=10)
    expected = np.full((6, 3), 0.5)
    expected[[0, 3], 0] += 10
    expected[2, 1] += 10
    np.testing.assert_array_equal(prior, expected)
    assert ancestry_prior(["b", None, "a"]).shape == (3, 2)


@pytest.mark.parametrize(
    ("origins", "options", "words"),
    [
        ([None, ""], {}, "no individual has a known origin"),
        (["a", "b"], {"num_populations": 1}, "num_populations is 1, but 2 populations are known"),
        (["a", "b"], {"strength": 0}, "strength is 0; expected a positive number"),
        (["a", "b"], {"alpha": -1}, "alpha is -1; expected a positive number"),
    ],
)
def test_what_is_no_origin_is_refused(origins: list, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ancestry_prior(origins, **options)


METHODS = {
    "MeanField": bl.mixed_membership.MeanField(num_starts=1, num_samples=500),
    "Gibbs": bl.mixed_membership.Gibbs(num_warmup=30, num_samples=400, num_chains=2),
}


@pytest.mark.parametrize("name", ["MeanField", pytest.param("Gibbs", marks=pytest.mark.slow)])
def test_known_origins_are_kept_and_tell_those_of_others(name: str) -> None:
    """Frequencies are Beta with the counts of the known, to which two unknown individuals add their own shares.

    Populations have the order of the labels in every chain, which a fit without them would take as it comes.
    """
    rng = np.random.default_rng(0)
    truth = np.array([0.1] * 12 + [0.9] * 12 + [0.1, 0.9])
    y = (rng.random((26, 30, 1)) < truth[:, None, None]).astype(int)
    data = {"num_individuals": 26, "num_alleles": np.full(30, 2), "num_populations": 2, "ploidy": 1, "y": y}
    data["alpha"] = ancestry_prior(["b"] * 12 + ["a"] * 12 + [None, None])
    tree = bl.fit(0, structure_admixture.model, data, METHODS[name], progress=False)
    ancestry = tree["posterior"]["ancestry"]
    assert float(ancestry[:, :, :12, 0].min()) > 0.999
    assert float(ancestry[:, :, 12:24, 1].min()) > 0.999
    mean = ancestry.mean(("chain", "draw")).values
    assert min(mean[24, 0], mean[25, 1]) > 0.8
    counts = np.einsum("ik,il->kl", mean[:24], y[:24, :, 0])
    expected = (1 + counts) / (2 + 12)
    found = tree["posterior"]["frequencies"].mean(("chain", "draw")).values[:, :, 1]
    most = 1 / 15  # what one copy more can change, by which Monte Carlo errors (0.005) are dwarfed
    assert np.abs(found - expected).max() < most + 0.02
    assert np.abs(found - expected[::-1]).min() > 0.3


def test_an_alpha_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"alpha has shape \(2, 3\); expected one number, \(2,\) or \(3, 2\)"):
        bl.bind(structure_admixture.model, structure_admixture.example() | {"alpha": np.ones((2, 3))})


@pytest.fixture
def panel() -> xr.Dataset:
    coords = {
        "population": ("individual", ["x", "y", "y"]),
        "population_flag": ("individual", [1, 0, 1]),
    }
    return xr.Dataset({"y": (("individual", "locus", "copy"), np.zeros((3, 1, 2), int))}, coords)


def test_origins_come_from_a_pop_file_or_from_flags(panel: xr.Dataset, tmp_path: Path) -> None:
    """A .pop beside the file comes first, as in ADMIXTURE."""
    file = tmp_path / "panel.bed"
    assert with_known_origins(panel, file)["origin"].values.tolist() == ["x", "", "y"]
    (tmp_path / "panel.pop").write_bytes(b"b\r\n-\r\na\r\n")
    assert read_origins(tmp_path / "panel.pop") == ["b", "", "a"]
    assert with_known_origins(panel, file)["origin"].values.tolist() == ["b", "", "a"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a\n-\n", "has 2 lines, but '.*' 3 individuals"),
        ("-\n-\n-\n", "no individual of '.*' has a known origin"),
        ("a\nb c\n-\n", "line 2 of '.*' is 'b c'; expected one word"),
    ],
)
def test_a_wrong_pop_file_is_refused(text: str, words: str, panel: xr.Dataset, tmp_path: Path) -> None:
    (tmp_path / "panel.pop").write_text(text)
    with pytest.raises(ValueError, match=words):
        with_known_origins(panel, tmp_path / "panel.bed")
    with pytest.raises(ValueError, match="does not say whose origin is known"):
        with_known_origins(panel.drop_vars("population_flag"), tmp_path / "other.bed")


def test_origins_are_unknown_in_lines_that_begin_with_no_letter_or_digit(tmp_path: Path) -> None:
    (tmp_path / "a.pop").write_text("A\n.\n?\n\nB\n*\n-\n_\nNA\n")
    assert read_origins(tmp_path / "a.pop") == ["A", "", "", "", "B", "", "", "", ""]


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n\n\n\n"])
def test_blank_lines_at_the_end_of_a_pop_file_are_unknown_origins(end: str, panel: xr.Dataset, tmp_path: Path) -> None:
    individuals = panel.sizes["individual"]
    (tmp_path / "a.pop").write_text("A\nB\n" + "\n" * (individuals - 2) + end)
    found = with_known_origins(panel, tmp_path / "a.bed")
    assert found["origin"].values.tolist() == ["A", "B", *[""] * (individuals - 2)]
