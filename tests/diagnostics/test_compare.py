"""Differences between posteriors whose true distance is known."""

from typing import Any

import arviz_base
import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm, wasserstein_distance

from bayeslab.diagnostics.align import align
from bayeslab.diagnostics.compare import compare_parameters, compare_posteriors, k_hat
from bayeslab.reports.comparison_text import to_text


def normal_tree(seed: int, shift: float = 0.0, ratio: float = 1.0, correlation: float = 0.0,
                shape: tuple[int, int] = (4, 500), **attrs: Any) -> xr.DataTree:  # fmt: skip
    """Normal draws w (feature,) and s (), autocorrelated on request."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(*shape, 4))
    for t in range(1, shape[1] if correlation else 0):
        z[:, t] = correlation * z[:, t - 1] + np.sqrt(1 - correlation**2) * z[:, t]
    draws = shift + ratio * z
    posterior = {"w": draws[..., :3], "s": draws[..., 3]}
    found = arviz_base.from_dict({"posterior": posterior}, dims={"w": ["feature"]}, coords={"feature": list("abc")})
    found.attrs |= attrs
    return found


def weighted_tree(log_q: Any, lp: Any) -> xr.DataTree:
    stats = {"lp": np.atleast_2d(lp), "log_q": np.atleast_2d(log_q)}
    return arviz_base.from_dict({"posterior": {"w": np.zeros_like(stats["lp"])}, "sample_stats": stats})


def test_known_shift_and_ratio_are_found_within_their_errors() -> None:
    shift, ratio = 0.4, 0.6
    trees = {"exact": normal_tree(0), "VI": normal_tree(1, shift, ratio)}
    row = compare_parameters(trees).loc[{"posterior": "VI"}]
    ends = shift + ratio * norm.ppf([0.05, 0.95])
    distance = np.abs(shift + (ratio - 1) * norm.ppf((np.arange(100_000) + 0.5) / 100_000)).mean()
    truths = {"mean_error": shift, "sd_ratio": ratio, "coverage": np.diff(norm.cdf(ends))[0], "wasserstein": distance}
    for column, truth in truths.items():
        assert (abs(row[column] - truth) < 5 * row[f"{column}_mcse"]).all(), column
        assert (row[f"{column}_mcse"] < 0.1).all(), column


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_errors_are_as_large_as_they_say(correlation: float) -> None:
    """Deviations from the truth divided by their standard error have variance about one."""
    shift, ratio = 0.5, 0.7
    ends = shift + ratio * norm.ppf([0.05, 0.95])
    truths = {"mean_error": shift, "sd_ratio": ratio, "coverage": np.diff(norm.cdf(ends))[0]}
    scores: dict[str, list[float]] = {column: [] for column in truths}
    for seed in range(25):
        pair = [normal_tree(2 * seed + 1, correlation=correlation), normal_tree(2 * seed, shift, ratio, correlation)]
        row = compare_parameters(dict(zip("ab", pair, strict=True))).loc[{"posterior": "b"}]
        for column, truth in truths.items():
            scores[column] += list(((row[column] - truth) / row[f"{column}_mcse"]).values)
    for column, z in scores.items():
        assert 0.8 < np.std(z) < 1.25, (column, np.std(z))
        assert abs(np.mean(z)) < 0.4, (column, np.mean(z))


def test_equal_posteriors_are_at_the_floor_of_the_distance() -> None:
    distances, floors = [], []
    for seed in range(10):
        row = compare_parameters({"a": normal_tree(seed), "b": normal_tree(seed + 100)}).loc[{"posterior": "b"}]
        distances.append(row["wasserstein"].mean())
        floors.append(row["wasserstein_floor"].mean())
    np.testing.assert_allclose(np.mean(distances), np.mean(floors), rtol=0.15)


def test_elements_of_other_names_are_other_parameters() -> None:
    """Named elements are matched by name, numbered ones by position."""
    first, second = normal_tree(0), normal_tree(1)

    def renamed(labels: Any) -> xr.DataTree:
        return second.map_over_datasets(lambda each: each.assign_coords(feature=labels) if each else each)

    with pytest.raises(
        ValueError, match=r"Site 'w' has elements \['a', 'b', 'c'\] in 'x' and \['a', 'b', 'd'\] in 'y'"
    ):
        compare_posteriors({"x": first, "y": renamed(list("abd"))})
    other_dim = second.map_over_datasets(lambda each: each.rename(feature="w_dim_0") if each else each)
    assert compare_posteriors({"x": first, "y": other_dim})["mean_error_max"].max() < 0.3
    for labels in (list("cba"), [0, 1, 2]):
        assert compare_posteriors({"x": first, "y": renamed(labels)})["mean_error_max"].max() < 0.3


def test_distance_is_that_of_scipy() -> None:
    first, second = normal_tree(0, shape=(2, 60)), normal_tree(1, 0.3, 2.0, shape=(1, 90))
    row = compare_parameters({"a": first, "b": second}).loc[{"posterior": "b", "parameter": "s"}]
    x, y = (each["posterior"]["s"].values.ravel() for each in (first, second))
    np.testing.assert_allclose(row["wasserstein"], wasserstein_distance(x, y) / x.std(ddof=1), rtol=1e-12)


def test_summary_is_the_worst_of_the_parameters() -> None:
    trees = {"exact": normal_tree(0), "NUTS": normal_tree(1), "VI": normal_tree(2, 0.3, 0.5)}
    table, parameters = compare_posteriors(trees), compare_parameters(trees)
    assert table["mean_error_max"].equals(abs(parameters["mean_error"]).max("parameter"))
    assert table["sd_ratio_min"].equals(parameters["sd_ratio"].min("parameter"))
    assert table["coverage_min"].equals(parameters["coverage"].min("parameter"))
    assert table["wasserstein_max"].equals(parameters["wasserstein"].max("parameter"))
    worst = abs(parameters["mean_error"]).loc[{"posterior": "VI"}].argmax("parameter")
    chosen = parameters["mean_error_mcse"].loc[{"posterior": "VI"}][worst]
    assert float(table["mean_error_max_mcse"].loc[{"posterior": "VI"}]) == float(chosen)
    assert list(table["posterior"].values) == ["exact", "NUTS", "VI"]
    assert table.attrs["reference"] == "exact"
    assert np.isnan(table["mean_error_max"][0])


def test_costs_and_evidence_come_from_the_attributes() -> None:
    exact = normal_tree(0, log_evidence=-10.0, sampling_seconds=0.5)
    vi = normal_tree(1, elbo=-11.5, elbo_se=0.1, sampling_seconds=2.0, compile_seconds=3.0, num_gradients=100)
    row = compare_posteriors({"exact": exact, "VI": vi}).loc[{"posterior": "VI"}]
    assert float(row["elbo_gap"]) == 1.5
    assert float(row["elbo_gap_mcse"]) == 0.1
    assert float(row["ess_per_second"]) == float(row["ess_min"]) / 2
    assert float(row["ess_per_gradient"]) == float(row["ess_min"]) / 100
    assert float(row["compile_seconds"]) == 3.0


def test_a_point_estimate_has_a_mean_and_nothing_else() -> None:
    row = compare_parameters({"exact": normal_tree(0), "MAP": normal_tree(1, 0.0, 0.0, shape=(1, 1))})[{"posterior": 1}]
    np.testing.assert_allclose(row["mean_error"], 0.0, atol=0.2)
    np.testing.assert_allclose(row["wasserstein"], np.sqrt(2 / np.pi), atol=0.1)
    assert row[["sd", "sd_ratio", "coverage", "ess"]].isnull().all().to_array().all()
    assert "MAP" in to_text(compare_posteriors({"MAP": normal_tree(0, shape=(1, 1)), "NUTS": normal_tree(1)}))


def test_one_posterior_alone_has_moments_and_costs() -> None:
    alone = {"Gibbs": normal_tree(0, sampling_seconds=0.5)}
    assert compare_parameters(alone)["mean_error"].isnull().all()
    table = compare_posteriors(alone)
    assert float(table["ess_per_second"][0]) == float(table["ess_min"][0]) / 0.5
    assert table[["mean_error_max", "sd_ratio_min", "wasserstein_max", "coverage_max"]].isnull().all().to_array().all()
    assert to_text(table).splitlines()[0].split() == ["ESS", "ESS/s", "run", "s"]


@pytest.mark.parametrize("k", [0.3, 0.7, 1.0])
def test_k_hat_of_pareto_ratios(k: float) -> None:
    log_ratio = k * np.random.default_rng(0).exponential(size=20_000)
    found, error = k_hat(weighted_tree(np.zeros(20_000), log_ratio))
    assert abs(found - k) < 4 * error
    assert error < 0.15


def test_k_hat_of_normal_approximations() -> None:
    """The tail of N(0, 1) / N(0, s^2) for s < 1 is that of a Pareto with k = 1 - s^2; above 1 it is bounded."""
    z = np.random.default_rng(0).normal(size=50_000)
    for sd, low, high in ((0.5, 0.6, 0.9), (0.9, 0.0, 0.35), (2.0, -np.inf, 0.0)):
        found, _ = k_hat(weighted_tree(norm.logpdf(z) - np.log(sd), norm.logpdf(sd * z)))
        assert low < found < high, (sd, found)


def test_k_hat_where_it_says_nothing() -> None:
    z = np.random.default_rng(0).normal(size=1000)
    assert k_hat(weighted_tree(z, z - 3e4)) == (-np.inf, 0.0)
    assert np.isnan(k_hat(weighted_tree(z[:1], z[:1]))).all()
    assert np.isnan(k_hat(normal_tree(0))).all()


def test_only_common_continuous_sites_are_compared() -> None:
    first, second = normal_tree(0), normal_tree(1)
    first["posterior"] = first["posterior"].to_dataset().assign(z=first["posterior"]["s"].astype(int))
    second["posterior"] = (
        second["posterior"].to_dataset().assign(z=first["posterior"]["z"], extra=second["posterior"]["s"])
    )
    table = compare_parameters({"a": first, "b": second})
    assert list(table["parameter"].values) == ["w[a]", "w[b]", "w[c]", "s"]
    assert table.attrs["only_in_some"] == "b: extra"
    assert list(compare_parameters({"a": first, "b": second}, ["s"])["parameter"].values) == ["s"]


def test_parameters_are_matched_by_name() -> None:
    first, second = normal_tree(0), normal_tree(0)
    second["posterior"] = second["posterior"].to_dataset().isel(feature=[2, 0, 1])
    np.testing.assert_allclose(compare_parameters({"a": first, "b": second})["mean_error"][1], 0.0, atol=1e-12)


def test_aligned_trees_are_compared_in_one_order() -> None:
    def mixture(seed: int, order: list[int]) -> xr.DataTree:
        mu = np.array([-2.0, 0.0, 2.0])[order] + 0.1 * np.random.default_rng(seed).normal(size=(2, 100, 3))
        return arviz_base.from_dict({"posterior": {"mu": mu}}, dims={"mu": ["component"]})

    first, second = mixture(0, [0, 1, 2]), mixture(1, [2, 0, 1])
    assert compare_posteriors({"a": first, "b": second})["mean_error_max"][1] > 10
    table = compare_posteriors({"a": align(first, {"mu": "component"}), "b": second})
    assert table["mean_error_max"][1] < 1
    assert table.attrs["aligned"] == "mu"


def test_text_has_a_line_a_method_and_blanks_for_unknown() -> None:
    trees = {"exact": normal_tree(0, sampling_seconds=0.1), "VI": normal_tree(1, 0.3, 0.5, sampling_seconds=2.0)}
    header, exact, vi = to_text(compare_posteriors(trees)).splitlines()
    assert "sd ratio" in header
    assert "k-hat" not in header
    assert exact.startswith("exact")
    assert "nan" not in exact + vi
    assert "±" in vi
    assert max(map(len, (header, exact, vi))) < 140


def test_tables_survive_netcdf(tmp_path: Any) -> None:
    table = compare_posteriors({"exact": normal_tree(0), "VI": normal_tree(1)})
    table.to_netcdf(tmp_path / "table.nc")
    with xr.open_dataset(tmp_path / "table.nc") as loaded:
        xr.testing.assert_equal(loaded, table)


WRONG = {
    "none": ({}, None, ["at least one"]),
    "group": ({"a": normal_tree(0), "b": xr.DataTree()}, None, ["'b'", "'posterior'"]),
    "name": ({"a": normal_tree(0), "b": normal_tree(1)}, ["v"], ["'v'", "['w', 's']"]),
    "shape": (
        {"a": normal_tree(0), "b": arviz_base.from_dict({"posterior": {"w": np.zeros((1, 9, 5))}})},
        None,
        ["'w'", "(3,)", "(5,)", "'a'", "'b'"],
    ),
    "nothing": (
        {"a": normal_tree(0), "b": arviz_base.from_dict({"posterior": {"v": np.zeros((1, 9))}})},
        None,
        ["in common", "'a'"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls_say_what_is_there(case: str) -> None:
    trees, names, words = WRONG[case]
    with pytest.raises(ValueError) as error:
        compare_posteriors(trees, names)
    assert all(word in str(error.value) for word in words), error.value
