"""The comparison card says what is wrong, and nothing where nothing is."""

import numpy as np
import pytest
from arviz_base import from_dict
from xarray import DataArray, DataTree

import bayeslab as bl
from bayeslab.diagnostics.peaks import find_peaks
from bayeslab.models import linear_regression

RNG = np.random.default_rng


def tree(draws: np.ndarray, **attrs: float) -> DataTree:
    made = from_dict({"posterior": {"w": draws}}, dims={"w": ["feature"]}, coords={"feature": ["a", "b"]})
    made.attrs |= attrs
    return made


def normal(seed: int, shift: float = 0.0, ratio: float = 1.0) -> np.ndarray:
    draws = RNG(seed).normal(size=(4, 500, 2))
    draws[..., 1] = shift + ratio * draws[..., 1]
    return draws


def said(trees: dict[str, DataTree]) -> dict[str, str]:
    return {name: "\n".join(lines) for name, lines in bl.comparison_card(trees).verdicts.items()}


def test_equal_posteriors_agree() -> None:
    found = said({"exact": tree(normal(0), log_evidence=-12.0), "NUTS": tree(normal(1))})
    assert found["exact"] == "the reference; log evidence -12.00"
    assert found["NUTS"] == "agrees with the reference, but for errors too small to be seen or to matter"


@pytest.mark.parametrize(
    ("shift", "ratio", "words"),
    [
        (0.5, 1.0, "means are off by up to 0.5"),
        (0.0, 0.5, "too narrow: sd down to 0.5"),
        (0, 2.0, "too wide: sd up to "),
    ],
)
def test_differences_are_named_with_their_parameter(shift: float, ratio: float, words: str) -> None:
    found = said({"exact": tree(normal(0)), "other": tree(normal(1, shift, ratio))})["other"]
    assert words in found
    assert "w[b]" in found
    assert "agrees" not in found


def test_a_narrow_interval_says_what_it_holds() -> None:
    assert "its 90 % interval holds 60 %" in said({"exact": tree(normal(0)), "VI": tree(normal(1, 0.0, 0.5))})["VI"]


def test_chains_that_keep_to_one_peak_each_and_chains_that_move() -> None:
    stuck, moving = normal(2), normal(3)
    stuck[::2, :, 0] += 8
    moving[:, ::2, 0] += 8
    found = said({"exact": tree(normal(0)), "stuck": tree(stuck), "moving": tree(moving)})
    for name in ("stuck", "moving"):
        assert "several peaks: 2 in w[a], in 1 of 2 parameters" in found[name]
    assert "Chains disagree" in found["stuck"]
    assert "several peaks" not in found["exact"]


@pytest.mark.parametrize("size", [200, 4000])
def test_skewed_and_heavy_tailed_draws_have_one_peak(size: int) -> None:
    rng = RNG(4)
    families = (rng.standard_normal, rng.standard_cauchy, rng.random, lambda n: rng.gamma(0.3, size=n))
    for family in families:
        assert all(len(find_peaks(family(size), size)) == 1 for _ in range(50))


def test_peaks_are_where_they_are() -> None:
    rng = RNG(5)
    draws = np.where(rng.uniform(size=4000) < 0.3, 6.0, 0.0) + rng.normal(size=4000)
    np.testing.assert_allclose(find_peaks(draws, 4000), [0.0, 6.0], atol=0.3)
    assert find_peaks(np.full(10, 3.0), 10) == [3.0]


def test_bounds_and_points_are_told() -> None:
    found = said({"exact": tree(normal(0), log_evidence=-12.0), "SVI": tree(normal(1), elbo=-15.0, elbo_se=0.1)})
    assert "below the log evidence" in found["SVI"]
    found = said({"exact": tree(normal(0)), "MAP": tree(normal(1)[:1, :1])})
    assert found["MAP"].startswith("a single point, without a spread")


@pytest.mark.slow
def test_a_card_of_a_regression() -> None:
    """Mean field by SVI is too narrow where covariates are correlated, and its ELBO is below the evidence."""
    lecture, data = linear_regression, linear_regression.data()
    trees = {
        "Exact": bl.fit(0, lecture.model, data, bl.Exact(num_samples=1000), progress=False),
        "SVI": bl.fit(0, lecture.model, data, bl.SVI(), progress=False),
        "MAP": bl.fit(0, lecture.model, data, bl.MAP(), progress=False),
    }
    card = bl.comparison_card(trees)
    assert "too narrow: sd down to 0.13 of the reference (w[s1])" in "\n".join(card.verdicts["SVI"])
    assert "below the log evidence" in "\n".join(card.verdicts["SVI"])
    assert card.verdicts["MAP"][0] == "a single point, without a spread"
    html = card._repr_html_()
    assert html.count("<tr>") == 4
    assert "&lt;" not in html
    assert "SVI:" in str(card)
    assert card.plot().axes[0].get_xlabel().startswith("error of the mean")


def test_names_are_escaped() -> None:
    html = bl.comparison_card({"<b>": tree(normal(0)), "x & y": tree(normal(1))})._repr_html_()
    assert "&lt;b&gt;" in html
    assert "x &amp; y" in html


def test_only_the_sites_that_are_compared_are_judged() -> None:
    stuck = tree(normal(2))
    apart = np.tile(np.arange(4.0)[:, None], (1, 500)) + RNG(6).normal(size=(4, 500)) / 10
    stuck["posterior"]["u"] = DataArray(apart, dims=["chain", "draw"])
    exact = tree(normal(0))
    exact["posterior"]["u"] = DataArray(RNG(7).normal(size=(4, 500)), dims=["chain", "draw"])
    trees = {"exact": exact, "stuck": stuck}
    assert "Chains disagree" in "\n".join(bl.comparison_card(trees).verdicts["stuck"])
    assert bl.comparison_card(trees, ["w"]).verdicts["stuck"][0].startswith("agrees")
