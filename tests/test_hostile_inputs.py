"""Whatever is given, a call works as for a clean copy, or refuses in one sentence that names what is wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import bayeslab as bl
from bayeslab.datasets import (
    documents,
    genotypes,
    motif_data,
    new_rows,
    original_scale,
    regression_data,
    sequences,
)
from bayeslab.models import gp_regression
from bayeslab.programs.program import Bound, precision_scope
from hostile import FORMS, GAPS, anything, counts, fingerprint, lawful, line, refused, shares, table

quick = settings(deadline=None, derandomize=True, max_examples=150)
NUMBERS = st.lists(st.integers(0, 100), min_size=1, max_size=4)
DATA = {"inputs": np.array([1.0, 2.0, 3.0]), "output": np.array([1.0, 1.5, 3.5])}
METHOD = bl.Exact(num_samples=8)


def bound(program: Callable[..., Any], data: Any) -> Bound:
    with precision_scope():
        return bl.bind(program, data)


@quick
@given(NUMBERS, st.sampled_from(sorted(FORMS)), st.sampled_from(["inputs", "width", "output", "count"]))
def test_the_form_of_numbers_changes_nothing(numbers: list[int], form: str, entry: str) -> None:
    """Every container and type of the same numbers gives the same Bound, and stays as it is."""
    program = counts if entry == "count" else line
    data = {"size": len(numbers)} if program is counts else {"inputs": np.ones(len(numbers)), "width": 1.0}
    numbers = [number + 1 for number in numbers] if entry == "width" else numbers
    name = "output" if entry == "count" else entry
    given = data | {name: FORMS[form](numbers)}
    before = fingerprint(given)
    found, clean = bound(program, given), bound(program, data | {name: np.array(numbers, float)})
    assert fingerprint(given) == before
    for one, other in ((found.arrays, clean.arrays), (found.observed, clean.observed)):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_array_equal(np.asarray(one[key], float), np.asarray(other[key], float))
    assert not found.present


@quick
@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=2, max_size=4), st.sampled_from(sorted(GAPS)),
       st.sampled_from([line, counts]))  # fmt: skip
def test_gaps_are_missing_entries_of_sites_and_errors_of_arguments(
    pairs: list[tuple[int, bool]], form: str, program: Callable[..., Any]
) -> None:
    numbers, gone = ([pair[i] for pair in pairs] for i in (0, 1))
    values = GAPS[form](numbers, gone)
    data = {"size": len(numbers)} if program is counts else {"inputs": np.ones(len(numbers))}
    before = fingerprint(values)
    found = lawful(lambda: bound(program, data | {"output": values}), "'output' has no value: all")
    assert fingerprint(values) == before
    assert (found is None) == all(gone)
    if found is not None:
        present = np.asarray(found.present.get("output", np.ones(len(numbers), bool)))
        np.testing.assert_array_equal(present, ~np.array(gone))
        np.testing.assert_array_equal(np.asarray(found.observed["output"])[present], np.array(numbers)[present])
        assert np.isfinite(found.observed["output"]).all()
    if any(gone):
        refused(lambda: bound(line, {"inputs": values}), "argument 'inputs'")


PLACES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "inputs": (line, {"output": np.ones(3)}),
    "output": (line, {"inputs": np.ones(3)}),
    "width": (line, DATA),
    "output of counts": (counts, {"size": 3}),
    "size": (counts, {"output": [1, 2, 3]}),
    "rate": (counts, {"size": 3, "output": [1, 2, 3]}),
    "kinds": (shares, {"size": 3, "output": [0, 0, 0]}),
    "output of shares": (shares, {"size": 3}),
}


@settings(quick, max_examples=400)
@given(anything(), st.sampled_from(sorted(PLACES)))
def test_anything_as_an_entry_binds_or_is_refused(value: Any, place: str) -> None:
    program, data = PLACES[place]
    name = place.split()[0]
    before = fingerprint(value)
    found = lawful(lambda: bound(program, data | {name: value}), *data, name, program.__name__)
    assert fingerprint(value) == before
    if found is not None:
        for each in (*found.arrays.values(), *found.observed.values()):
            assert not np.isnan(np.asarray(each, float)).any()
        assert found.observed["output"].shape == found.sites["output"].shape


@quick
@given(anything() | st.dictionaries(st.none() | st.integers() | st.text(max_size=3) | st.floats(), anything()))
def test_anything_as_data_is_refused(data: Any) -> None:
    refused(lambda: bound(line, data), "data", "entry", "'inputs'")


@settings(quick, max_examples=50)
@given(anything())
def test_anything_as_a_program_is_refused(program: Any) -> None:
    refused(lambda: bound(program, DATA), "a program is a function", "of 'len'", "neither an argument")


@settings(quick, max_examples=50)
@given(anything(), st.sampled_from([line, counts]))
def test_a_refusal_leaves_nothing_behind(value: Any, program: Callable[..., Any]) -> None:
    """What compilation remembers of hostile settings does not reach the next program."""
    lawful(lambda: bound(program, {"size": value, "inputs": value}), "size", "inputs", "line", "counts")
    assert bound(line, DATA).latent == ("slope",)
    refused(lambda: bound(counts, {"size": "three", "output": [1, 2, 3]}), "'three'")


SQUARE = np.arange(4.0).reshape(2, 2)
WRONG: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "columns twice": (line, pd.DataFrame(np.ones((3, 2)), columns=["inputs", "inputs"]), "columns .* named 'inputs'"),
    "columns in pairs": (
        line, pd.DataFrame({("inputs", 1): [1.0]}), r"named by text, but one is named \('inputs', 1\)"),
    "turned": (table, {"size": 2, "output": xr.DataArray(SQUARE, dims=("column", "row"))}, "'output' .* transpose"),
    "infinite input": (line, DATA | {"inputs": np.array([1, np.inf, 2])}, r"'inputs' is infinite at position \(1,\)"),
    "infinite width": (line, DATA | {"width": np.inf}, "'width' is infinite .* site 'slope'"),
    "infinite count": (counts, {"size": 2, "output": [np.inf, 1.0]}, r"'output' at position \(0,\) is inf"),
    "count beyond integers": (counts, {"size": 2, "output": [1e300, 1.0]}, r"\(0,\) is 1e\+300, which int64 cannot"),
    "count beyond signs": (
        counts, {"size": 1, "output": np.array([2**64 - 1], "u8")}, "is 18446744073709551615, which int64 cannot hold"),
    "dimension of a result": (line, DATA | {"inputs": xr.DataArray(np.ones(3), dims="draw")}, "'inputs' .* 'draw'"),
    "negative width": (line, DATA | {"width": -1.0}, "'scale' of the Normal at site 'slope' must be positive"),
    "no row": (
        line,
        {"inputs": np.zeros(0), "output": np.zeros(0)},
        "data are empty: a plate of 'line' has no element$",
    ),
    "an axis too many": (line, DATA | {"inputs": np.ones((3, 1, 1))}, "entry 'output' has shape"),
    "no axis": (line, {"inputs": 2.0}, "'line' does not run .* arguments are inputs: float64"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_data_are_refused_by_every_verb(case: str, fitted: xr.DataTree) -> None:
    program, data, words = WRONG[case]
    verbs = (
        bound,
        bl.explain,
        partial(bl.fit, 0, progress=False),
        partial(bl.simulate, 0),
        lambda program, data: bl.sbc(0, program, data, METHOD, progress=False),
        lambda program, data: bl.predict(0, program, data, fitted),
        lambda program, data: bl.recover(0, program, data, fitted),
        lambda program, data: bl.process_at(program, data, fitted, {}),
        lambda program, data: bl.states.smoothed_states(program, data, fitted),
    )
    before = fingerprint(data)
    for verb in verbs:
        with pytest.raises((TypeError, ValueError), match=words):
            verb(program, data)
        refused(lambda verb=verb: verb(program, data), "'")
    assert fingerprint(data) == before


def test_numbers_that_single_precision_cannot_hold_are_refused() -> None:
    for data in (DATA | {"output": np.array([1e300, 1.0, 1.0])}, DATA | {"inputs": np.array([1e300, 1.0, 1.0])}):
        refused(lambda data=data: bl.fit(0, line, data, METHOD, dtype=jnp.float32, progress=False), "float32 cannot")
    refused(lambda: bl.fit(0, counts, {"size": 1, "output": [2**40]}, METHOD, dtype=jnp.float32), "int32 cannot hold")


LABELS: dict[str, Any] = {
    "pairs": pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]),
    "twice": ["a", "a", "b"],
    "periods": pd.period_range("2020", periods=3, freq="M"),
    "zones": pd.date_range("2020", periods=3, tz="UTC"),
    "nothing": [None, np.nan, "a"],
}


@pytest.fixture(scope="module")
def fitted() -> xr.DataTree:
    return bl.fit(0, line, DATA, METHOD, progress=False)


@pytest.mark.parametrize("labels", LABELS)
def test_labels_change_no_draw_and_reach_files(labels: str, fitted: xr.DataTree, tmp_path: Any) -> None:
    data = {name: pd.Series(values, index=LABELS[labels]) for name, values in DATA.items()}
    tree = bl.predict(0, line, data, bl.fit(0, line, data, METHOD, progress=False))
    np.testing.assert_array_equal(tree["posterior"]["slope"], fitted["posterior"]["slope"])
    np.testing.assert_array_equal(tree["posterior_predictive"]["output"].sizes["row"], 3)
    tree.to_netcdf(tmp_path / "fit.nc")


@pytest.mark.parametrize("data", [{"size": 1, "output": [0], "kinds": 1}, {"size": 1, "output": [True], "kinds": 2}])
@pytest.mark.parametrize("method", [METHOD, bl.NUTS(num_samples=5, num_warmup=5, num_chains=1)])
def test_one_row_and_one_kind_are_enough(data: Any, method: Any) -> None:
    tree = bl.fit(0, shares, data, method, progress=False)
    assert np.isfinite(tree["posterior"]["share"]).all()
    np.testing.assert_allclose(tree["posterior"]["share"].sum(tree["posterior"]["share"].dims[-1]), 1)


def tree_of(posterior: xr.Dataset, **groups: xr.Dataset) -> xr.DataTree:
    return xr.DataTree.from_dict({"posterior": posterior, **groups})


DRAWS = xr.Dataset(
    {"mu": (("chain", "draw", "component"), np.random.default_rng(0).normal(size=(2, 9, 2)) + np.array([0.0, 9.0])),
     "z": (("chain", "draw", "row"), np.random.default_rng(1).integers(0, 2, (2, 9, 3)))},
    {"chain": [0, 1], "draw": np.arange(9)},
)  # fmt: skip
NO_TREES = [None, {}, "fit.nc", 3, DRAWS, [tree_of(DRAWS)]]
TREES: dict[str, xr.DataTree] = {
    "nothing": xr.DataTree(),
    "prior only": xr.DataTree.from_dict({"prior": DRAWS}),
    "empty posterior": tree_of(xr.Dataset()),
    "no chain": tree_of(DRAWS.isel(chain=0, drop=True)),
    "no draw": tree_of(DRAWS.isel(draw=0, drop=True)),
    "no chains": tree_of(DRAWS.isel(chain=slice(0, 0))),
    "no draws": tree_of(DRAWS.isel(draw=slice(0, 0))),
}


@pytest.mark.parametrize("verb", ["diagnose", "align", "predict"])
def test_what_is_no_result_is_refused(verb: str) -> None:
    call: Callable[[Any], Any] = {
        "diagnose": bl.diagnose,
        "align": lambda tree: bl.align(tree, {"mu": "component"}),
        "predict": lambda tree: bl.predict(0, line, DATA, tree),
    }[verb]
    for tree in [*NO_TREES, *TREES.values()]:
        before = fingerprint(tree)
        refused(lambda tree=tree: call(tree), f"{verb} takes a DataTree", f"{verb} needs")
        assert fingerprint(tree) == before


@pytest.mark.parametrize("verb", [
    lambda tree: bl.recover(0, line, DATA, tree),
    lambda tree: bl.process_at(gp_regression.model, gp_regression.example(), tree, {}),
    lambda tree: bl.calibration_verdict(tree),
    lambda tree: bl.modes(tree, {"mu": "component"}),
    lambda tree: bl.states.filtered_states(line, DATA, tree),
    lambda tree: bl.fit(0, line, DATA, METHOD, previous=tree, progress=False),
    lambda tree: bl.sbc(0, line, DATA, METHOD, given=tree, progress=False),
    lambda tree: original_scale(tree, regression_data(FRAME, "yield")),
])  # fmt: skip
def test_results_that_lack_groups_or_are_of_another_model_are_refused(verb: Callable[..., Any]) -> None:
    for tree in (TREES["nothing"], TREES["prior only"], TREES["empty posterior"], tree_of(xr.Dataset({"other": 1.0}))):
        refused(
            lambda tree=tree: verb(tree), "tree", "result", "sbc", "draws", "no site", "previous", "no coefficients"
        )


def test_the_order_of_dimensions_of_a_result_is_free(fitted: xr.DataTree) -> None:
    turned = fitted.copy()
    turned["posterior"] = xr.DataTree(fitted["posterior"].to_dataset().transpose("draw", "chain", ...))
    one, other = (bl.predict(0, line, DATA, tree)["posterior_predictive"]["output"] for tree in (fitted, turned))
    np.testing.assert_array_equal(one, other)
    assert bl.diagnose(fitted) == bl.diagnose(turned)


def test_draws_that_are_no_numbers_are_refused(fitted: xr.DataTree) -> None:
    for change in (
        lambda d: d * np.nan,
        lambda d: d.astype(str),
        lambda d: d.astype(complex),
        lambda d: d.astype(object),
    ):
        tree = fitted.copy()
        tree["posterior"] = xr.DataTree(change(fitted["posterior"].to_dataset()))
        refused(lambda tree=tree: bl.predict(0, line, DATA, tree), "draws of site 'slope' that are no numbers")
    refused(lambda: bl.predict(0, line, DATA, tree_of(DRAWS)), "none of the latent sites ['slope']")
    refused(lambda: bl.diagnose(tree_of(DRAWS.astype(str))), "no numeric site")
    assert bl.diagnose(tree_of(DRAWS * np.nan)).startswith("Not finite")
    gaps = DRAWS[["mu"]].isel(component=0) * np.nan
    assert "Divergences" not in bl.diagnose(tree_of(DRAWS, sample_stats=gaps.rename(mu="diverging")))


ALIGN: dict[str, tuple[dict[str, Any], str]] = {
    "no mapping": ({"site_dims": "mu"}, "site_dims maps"),
    "no names": ({"site_dims": {"mu": 3}}, "names of its dimensions"),
    "nothing": ({"site_dims": {}}, "at least one site"),
    "unknown": ({"site_dims": {"nu": "component"}}, "no site 'nu'"),
    "labels as text": ({"site_dims": {"mu": "component"}, "labels": "z"}, "labels are a list"),
    "labels as a number": ({"site_dims": {"mu": "component"}, "labels": 3}, "labels are a list"),
    "NaN": ({"tree": tree_of(DRAWS * np.nan), "site_dims": {"mu": "component"}}, "'mu' has values that are not finite"),
    "text": ({"tree": tree_of(DRAWS.astype(str)), "site_dims": {"mu": "component"}}, "'mu' has values that are not"),
    "no reference": ({"site_dims": {"mu": "component"}, "reference": DRAWS}, "takes a DataTree"),
    "smaller reference": (
        {"site_dims": {"mu": "component"}, "reference": tree_of(DRAWS.isel(component=[0]))}, "in the reference"),
    "other reference": (
        {"site_dims": {"mu": "component"}, "reference": tree_of(DRAWS.rename(mu="nu"))}, "no site 'mu'"),
}  # fmt: skip


@pytest.mark.parametrize("case", ALIGN)
def test_wrong_settings_of_align_are_refused(case: str) -> None:
    options, words = ALIGN[case]
    refused(lambda: bl.align(**({"tree": tree_of(DRAWS)} | options)), words)


@pytest.mark.parametrize("number", [0, -1, 2.5, "3", None, np.nan, [3]])
def test_numbers_of_draws_are_whole_and_positive(number: Any) -> None:
    refused(lambda: bl.simulate(0, line, DATA, number), "num_samples must be")


FRAME = pd.DataFrame({"rain": [1.0, 2.0, 4.0], "soil": ["clay", "sand", "clay"], "yield": [1.0, 3.0, 2.0]})


@quick
@given(anything(), st.sampled_from(["rain", "soil", "yield"]), st.booleans())
def test_anything_as_a_column_is_coded_or_refused(value: Any, column: str, standardise: bool) -> None:
    try:
        frame = FRAME.assign(**{column: value})
        repr(frame)
    except Exception:  # this is for pandas to refuse, and some frames that it makes it cannot show
        return
    data = lawful(lambda: regression_data(frame, "yield", standardise=standardise), column, "target")
    if data is not None:
        assert np.isfinite(data["x"]).all()
        assert not np.isinf(data["y"]).any()
        np.testing.assert_array_equal(new_rows(frame, data)["x"], data["x"])


def test_columns_of_objects_are_numbers_where_they_hold_numbers() -> None:
    objects = FRAME.assign(rain=FRAME["rain"].astype(object), **{"yield": FRAME["yield"].astype(object)})
    xr.testing.assert_identical(regression_data(objects, "yield"), regression_data(FRAME, "yield"))
    refused(lambda: regression_data(FRAME.assign(rain=[1e308, -1e308, 1.0]), "yield"), "'rain' has numbers too large")
    refused(lambda: new_rows(FRAME, None), "regression_data")  # type: ignore[arg-type]


@quick
@given(anything() | st.lists(st.lists(st.none() | st.text(max_size=2) | st.floats() | st.lists(st.text()))),
       st.none() | st.lists(st.none() | st.text(max_size=2) | st.just([1]), max_size=3))  # fmt: skip
def test_anything_as_documents_becomes_tokens_or_is_refused(source: Any, words: Any) -> None:
    found = lawful(lambda: documents(source, words), "document", "word", "count", "matrix", "table")
    if found is not None:
        assert len(found["word"]) == len(found["document"]) > 0
        assert (found["word"].cat.codes >= 0).all()


@quick
@given(anything())
def test_anything_as_motifs_sequences_and_genotypes_is_read_or_refused(value: Any) -> None:
    lawful(lambda: motif_data(value), "motif")
    lawful(lambda: motif_data({"one": value}), "motif 'one'")
    found = lawful(lambda: sequences({"one": value}), "sequence 'one'")
    assert found is None or found["y"].sizes["sequence"] == 1
    lawful(lambda: genotypes(value), "y ", "'y'", "Dataset", "locus")
    lawful(lambda: genotypes(np.eye(2, dtype=int)[..., None], value), "num_alleles", "locus")


def of_parts(priors: dict[str, Any], n: int) -> None:
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(priors["mean"], 1.0))


def test_columns_inside_of_an_argument_are_arrays_with_nothing_missing() -> None:
    for mean in (pd.Series([1.0, 2.0]), np.ma.masked_array([1.0, 2.0]), xr.DataArray([1.0, 2.0])):
        found = bound(of_parts, {"priors": {"mean": mean}, "n": 2})
        np.testing.assert_array_equal(found.arrays["priors.mean"], [1.0, 2.0])
    for gap in (pd.Series([1.0, None], dtype="Float64"), np.ma.masked_array([1.0, 2.0], [False, True])):
        with pytest.raises(ValueError, match=r"'priors\.mean' has a missing entry .NaN. at position \(1,\)"):
            bound(of_parts, {"priors": {"mean": gap}, "n": 2})
