"""The verdict on ranks: its probabilities are exact, and the errors it says it sees are those it sees."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest
from xarray import DataTree

import bayeslab as bl
from bayeslab.calibration.rank_uniformity import errors_seen, p_value, rank_distribution, simultaneous_band
from bayeslab.methods.stated import Stated
from bayeslab.models import hmm, linear_regression, normal_known_variance
from bayeslab.plots import plot_calibration


@pytest.mark.parametrize("number", [2, 3, 40, 300])
def test_p_values_of_uniform_ranks_are_uniform(number: int) -> None:
    """Within the steps of a discrete statistic; the share below a twentieth is exact for many ranks."""
    rng = np.random.default_rng(0)
    found = np.array([p_value(rng.uniform(size=number)) for _ in range(1000)])
    for level in (0.01, 0.05, 0.3):
        error = np.sqrt(level * (1 - level) / len(found))
        assert (found <= level).mean() < level + 5 * error
        if number > 10:
            assert (found <= level).mean() > 0.7 * level - 5 * error


def test_two_ranks_by_hand() -> None:
    """The only time is a half; both ranks on one side of it have probability 1/2, one on each side is no deviation."""
    assert p_value(np.array([0.1, 0.2])) == pytest.approx(0.5)
    assert p_value(np.array([0.1, 0.7])) == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["shift_seen", "narrow_seen", "wide_seen"])
def test_errors_that_are_seen_leave_the_band_nine_times_of_ten(name: str) -> None:
    simulations, draws, level = 200, 39, 0.01
    size = errors_seen(simulations, draws, level)[name]
    shift, ratio = (size, 1.0) if name == "shift_seen" else (0.0, size)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(500):
        truth, drawn = rng.normal(size=simulations), shift + ratio * rng.normal(size=(draws, simulations))
        found.append(p_value(((drawn < truth).sum(0) + rng.uniform(size=simulations)) / (draws + 1)) <= level)
    assert np.mean(found) == pytest.approx(0.9, abs=5 * np.sqrt(0.09 / 500))


def test_ranks_among_right_draws_are_uniform() -> None:
    times = np.linspace(0, 1, 7)
    np.testing.assert_allclose(rank_distribution(times, 9, 0.0, 1.0), times, atol=1e-3)


def verdict(ranks: dict[str, np.ndarray], **settings: Any) -> object:
    tree = bl.sbc(
        0, normal_known_variance.model, normal_known_variance.example(), Stated(normal_known_variance.posterior, 9), 10,
        progress=False,
    )  # fmt: skip
    from arviz_base import from_dict

    made = from_dict({"prior_sbc": {name: each[None] for name, each in ranks.items()}})
    made.attrs = dict(tree.attrs)
    return bl.calibration_verdict(made, **settings)


def test_the_worst_element_is_named_and_all_are_counted() -> None:
    rng = np.random.default_rng(2)
    ranks = {"a": rng.uniform(size=(500, 4)), "b": rng.uniform(size=500), "c": np.full((500, 2), 0.5)}
    ranks["a"][:, 0] = 0.5  # is not judged, but has its place
    ranks["a"][:, 2] = ranks["a"][:, 2] ** 2
    table = verdict(ranks)
    assert list(table["quantity"].values) == ["a", "b"]
    assert int(table["worst"].sel(quantity="a")) == 2
    assert table.attrs["passes"] == 0
    assert float(table["middle"].sel(quantity="a")) < -0.3
    alone = verdict(ranks, var_names=["b"])
    assert list(alone["quantity"].values) == ["b"]
    assert float(alone["p_value"][0]) == pytest.approx(p_value(ranks["b"]))
    assert float(table["p_value"].sel(quantity="b")) == pytest.approx(min(1, 4 * p_value(ranks["b"])))


def test_a_right_method_passes_and_says_what_it_would_have_seen() -> None:
    lecture = linear_regression
    table = bl.calibration_verdict(bl.sbc(5, lecture.model, lecture.example(), bl.Exact(99), 1000, progress=False))
    assert table.attrs["passes"] == 1
    assert 0.1 < table.attrs["shift_seen"] < 0.2
    assert 0.8 < table.attrs["narrow_seen"] < 0.9 < 1.1 < table.attrs["wide_seen"] < 1.25


def test_refusals_say_why() -> None:
    with pytest.raises(ValueError, match="needs the result of sbc, but got DataTree"):
        bl.calibration_verdict(DataTree())
    with pytest.raises(ValueError, match="at least 10 simulations, got 4"):
        verdict({"a": np.full(4, 0.5)})
    with pytest.raises(ValueError, match="level must be a probability"):
        verdict({"a": np.linspace(0.1, 0.9, 20)}, level=0.0)
    with pytest.raises(ValueError, match=r"no ranks of \['b'\], only of \['a'\]"):
        verdict({"a": np.linspace(0.1, 0.9, 20)}, var_names=["b"])
    with pytest.raises(ValueError, match="no ranks that vary"):
        verdict({"a": np.full(20, 0.5)})


@pytest.mark.parametrize("gaps", [False, True])
def test_posteriors_are_calibrated_near_the_data_at_hand(gaps: bool) -> None:
    """Data and a simulated copy of them, gaps included; draws that are too wide for truths are found."""
    lecture, data = normal_known_variance, normal_known_variance.example()
    if gaps:
        data |= {"y": np.where(np.arange(len(data["y"])) % 2 == 0, data["y"], np.nan)}
    given = bl.fit(0, lecture.model, data, bl.Exact(num_samples=1000), progress=False)
    wide = given.copy()
    wide["posterior"] = given["posterior"].to_dataset().map(lambda x: x.mean() + 1.5 * (x - x.mean()))
    for truths, passes in ((given, 1), (wide, 0)):
        checks = bl.sbc(1, lecture.model, data, bl.Exact(99), 500, given=truths, progress=False)
        assert checks.attrs["given_data"] == 1
        assert bl.calibration_verdict(checks, level=1e-4).attrs["passes"] == passes


@pytest.mark.slow
def test_hidden_states_are_calibrated_near_the_data_at_hand() -> None:
    lecture, data = hmm, hmm.example()
    given = bl.fit(0, lecture.model, data, bl.Gibbs(num_samples=500, thinning=5), progress=False)
    quantities = {
        "seen": lambda values: (values["y"] == 0).mean() + values["emission"][0, 0] - values["emission"][1, 0]
    }
    method = bl.Gibbs(num_warmup=50, num_samples=19, num_chains=1, thinning=3)
    checks = bl.sbc(1, lecture.model, data, method, 500, given=given, quantities=quantities, progress=False)
    assert bl.calibration_verdict(checks, level=1e-4).attrs["passes"] == 1


def test_a_result_of_other_data_is_refused() -> None:
    lecture, data = normal_known_variance, normal_known_variance.example()
    given = bl.fit(0, lecture.model, data, bl.Exact(num_samples=50), progress=False)
    with pytest.raises(ValueError, match="but is of other data"):
        bl.sbc(1, lecture.model, data | {"y": data["y"] + 1}, bl.Exact(99), 20, given=given)
    with pytest.raises(ValueError, match="given has 50 draws, fewer than the 99 simulations"):
        bl.sbc(1, lecture.model, data, bl.Exact(99), 99, given=given)


def test_a_collapsed_program_is_refused() -> None:
    lecture, data = linear_regression, linear_regression.example()
    collapsed = bl.collapse(lecture.model, "w")
    given = bl.fit(0, collapsed, data, bl.NUTS(num_samples=50), progress=False)
    with pytest.raises(ValueError, match="with sites integrated out cannot come twice"):
        bl.sbc(1, collapsed, data, bl.NUTS(), 20, given=given)


@pytest.mark.slow
def test_uniform_ranks_of_the_exact_posterior_need_no_correction() -> None:
    """The p-values of the verdict over keys are not too small."""
    lecture = normal_known_variance
    found = []
    for key in range(40):
        checks = bl.sbc(key, lecture.model, lecture.example(), Stated(lecture.posterior, 19), 100, progress=False)
        found.append(float(bl.calibration_verdict(checks)["p_value"].min()))
    assert kstest(found, "uniform", alternative="greater").pvalue > 1e-3


def test_the_figure_has_the_band_of_the_verdict() -> None:
    """A rank function just inside of the band passes at its level, one beyond it does not."""
    rng = np.random.default_rng(3)
    tree = bl.sbc(
        0,
        linear_regression.model,
        linear_regression.example(),
        Stated(linear_regression.posterior, 9),
        60,
        progress=False,
    )
    axes = plot_calibration(tree)
    assert [axis.get_title() for axis in axes] == ["log_joint", "log_likelihood", "tau", "w"]
    assert [len(axis.lines) for axis in axes] == [1, 1, 1, 2]
    low, high = simultaneous_band(60, 0.05)
    times = np.arange(1, 60) / 60
    for _ in range(300):
        ranks = rng.uniform(size=60) ** 1.3
        counts = np.searchsorted(np.sort(ranks), times, side="right")
        if abs((p := p_value(ranks)) - 0.05) > 1e-3:  # bands of counts have no level in between
            assert ((counts >= low) & (counts <= high)).all() == (p > 0.05)
    with pytest.raises(ValueError, match="no ranks of"):
        plot_calibration(tree, ["v"])


def test_ranks_that_never_vary_are_not_drawn() -> None:
    from arviz_base import from_dict

    made = from_dict({"prior_sbc": {"c": np.full((1, 500, 2), 0.5)}})
    made.attrs = {"num_draws": 9}
    with pytest.raises(ValueError, match="no ranks that vary"):
        plot_calibration(made)
