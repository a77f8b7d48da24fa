"""Each defect is named with its remedy, and a sound result gets no line."""

from collections.abc import Callable
from typing import Any

import arviz_base
import numpy as np
import pytest
import xarray as xr

from bayeslab.diagnostics.diagnose import diagnose

Values = dict[str, np.ndarray[Any, Any]]


def sound(chains: int = 4, draws: int = 1000) -> tuple[Values, Values]:
    """Independent draws, and statistics of a NUTS run without any defect."""
    rng = np.random.default_rng(1)
    shape = (chains, draws)
    posterior = {"w": rng.normal(size=(*shape, 3)), "tau": rng.gamma(2.0, size=shape), "zero": np.zeros(shape)}
    stats = {
        "diverging": np.zeros(shape, bool),
        "reached_max_tree_depth": np.zeros(shape, bool),
        "acceptance_rate": rng.uniform(size=shape),
        "energy": rng.normal(size=shape),
    }
    return posterior, stats


def tree(posterior: Values, stats: Values, **attrs: Any) -> xr.DataTree:
    groups = {"posterior": posterior} | ({"sample_stats": stats} if stats else {})
    found = arviz_base.from_dict(groups, dims={"w": ["feature"]}, coords={"feature": ["age", "bmi", "bp"]})
    found.attrs |= attrs
    return found


def freeze(posterior: Values, stats: Values) -> None:
    posterior["w"][2] = 3.0
    posterior["tau"][2] = 1.0


def freeze_all(posterior: Values, stats: Values) -> None:
    for values in posterior.values():
        values[:] = 1.0


def reject(posterior: Values, stats: Values) -> None:
    stats["acceptance_rate"][1] = 0.0


def shift(posterior: Values, stats: Values) -> None:
    posterior["w"][3, :, 1] += 3.0


def diverge(posterior: Values, stats: Values) -> None:
    stats["diverging"][0, :40] = True


def walk(posterior: Values, stats: Values) -> None:
    steps = np.random.default_rng(0).normal(size=posterior["tau"].shape)
    for t in range(1, steps.shape[1]):
        steps[:, t] += 0.93 * steps[:, t - 1]
    posterior["tau"] = steps


def saturate(posterior: Values, stats: Values) -> None:
    stats["reached_max_tree_depth"][:, ::10] = True


def drift(posterior: Values, stats: Values) -> None:
    stats["energy"] = np.cumsum(stats["energy"], axis=1)


def spoil(posterior: Values, stats: Values) -> None:
    posterior["w"][0, 5, 1] = np.nan


def approximate(posterior: Values, stats: Values) -> None:
    stats["lp"] = 1.5 * np.random.default_rng(0).exponential(size=stats["energy"].shape)
    stats["log_q"] = np.zeros_like(stats["lp"])


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        (freeze, ["chain 2 did not move", "another key"]),
        (freeze_all, ["chain 0, 1, 2, 3 did not move"]),
        (reject, ["chain 1 did not move"]),
        (shift, ["R-hat", "w[bmi]", "1.01", "1 of 5", "warm up longer"]),
        (diverge, ["40 of 4,000 draws (0.01)", "target_accept_prob"]),
        (walk, ["tau", "below 400", "num_samples"]),
        (saturate, ["400 of 4,000", "max_tree_depth"]),
        (drift, ["BFMI", "0.3", "reparameterise"]),
        (spoil, ["w[bmi]", "NaN"]),
        (approximate, ["k-hat", "0.7", "guide"]),
    ],
)
def test_a_defect_is_named_with_its_remedy(defect: Callable[[Values, Values], None], words: list[str]) -> None:
    posterior, stats = sound()
    defect(posterior, stats)
    text = diagnose(tree(posterior, stats))
    assert all(word in text for word in words), text


@pytest.mark.parametrize("attrs", [{"method": "SMC"}, {"method": "SIR", "importance_ess": 50.0, "k_hat": 0.1}])
def test_draws_that_came_all_at_once_are_not_to_go_on(attrs: dict[str, Any]) -> None:
    """Neither weighted draws nor the particles of SMC have a warm-up, and `fit` refuses to go on from them."""
    posterior, stats = sound()
    shift(posterior, stats)
    walk(posterior, stats)
    text = diagnose(tree(posterior, stats, **attrs))
    assert all(words in text for words in ("Populations disagree", "Few draws", "raise num_samples."))
    assert not any(words in text for words in ("warm up", "previous"))


@pytest.mark.parametrize(("attrs", "word"), [({"converged": 0}, "stopped"), ({"k_hat": 0.9}, "0.90")])
def test_attributes_of_an_approximation_are_read(attrs: dict[str, float], word: str) -> None:
    posterior, _ = sound(chains=1)
    assert word in diagnose(tree(posterior, {}, **attrs))


@pytest.mark.parametrize(("chains", "draws"), [(4, 1000), (1, 1000), (1, 1)])
def test_a_sound_result_gets_no_line(chains: int, draws: int) -> None:
    posterior, stats = sound(chains, draws)
    assert diagnose(tree(posterior, {}, converged=1, k_hat=0.2)) == ""
    assert draws == 1 or diagnose(tree(posterior, stats)) == ""


@pytest.mark.parametrize(("chains", "draws", "words"), [(2, 2, "2 in each of 2 chains"), (1, 3, "3, too few")])
def test_too_few_draws_to_tell_anything_are_named(chains: int, draws: int, words: str) -> None:
    posterior, _ = sound(chains, draws)
    assert diagnose(tree(posterior, {})).startswith(f"Few draws: {words}")


@pytest.mark.parametrize("name", ["label", "parameter", "variable"])
def test_any_dimension_may_be_called_as_those_of_tables_are(name: str) -> None:
    posterior, stats = sound()
    shifted = np.stack([posterior["tau"], posterior["tau"] + np.arange(4)[:, None]], -1)
    groups = {"posterior": {"w": shifted}, "sample_stats": stats}
    text = diagnose(arviz_base.from_dict(groups, dims={"w": [name]}))
    assert "R-hat" in text
    assert "w[1]" in text


def test_a_kernel_that_accepts_every_proposal_is_not_frozen() -> None:
    posterior, stats = sound()
    stats["acceptance_rate"][:] = 1.0
    assert diagnose(tree(posterior, stats)) == ""


def test_at_most_five_lines_worst_first() -> None:
    posterior, stats = sound()
    for defect in (freeze, shift, diverge, walk, saturate, drift, approximate):
        defect(posterior, stats)
    lines = diagnose(tree(posterior, stats, converged=0)).splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("Frozen")


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (arviz_base.from_dict({"prior": {"w": np.zeros((1, 5))}}), "'posterior'"),
        (arviz_base.from_dict({"posterior": {"flag": np.zeros((1, 5), bool)}}), "'flag'"),
    ],
)
def test_a_tree_without_numbers_is_refused(wrong: xr.DataTree, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        diagnose(wrong)


def test_indicators_that_are_real_numbers_are_labels() -> None:
    """A chain in which an indicator of probability 0.9995 is always one has moved."""
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(4, 1000))
    positive = np.ones((4, 1000))
    positive[:2, 10] = 0
    dims = ("chain", "draw")
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"mean": (dims, mean), "positive": (dims, positive)})})
    assert str(diagnose(tree)) == ""
    frozen = xr.Dataset({"mean": (dims, mean), "stuck": (dims, np.repeat([[0.5], [1.5], [2.5], [3.5]], 1000, 1))})
    assert "Frozen" in str(diagnose(xr.DataTree.from_dict({"posterior": frozen})))
