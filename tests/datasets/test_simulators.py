"""Simulators, and all that makes data: any argument is obeyed or refused by its name, and data are as described."""

import inspect
import operator
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import simulator_laws as laws
from bayeslab import datasets
from dated_tables import WORDS_OF_TIMES, timed
from genotype_panels import Y, structure_text, write_plink, write_small_texts, write_vcf
from hostile import anything, lawful, refused

quick = settings(deadline=None, derandomize=True, max_examples=60)


def documents_law(found: xr.Dataset, given: dict[str, Any]) -> None:
    counts, topics, shares = (found[name] for name in ("counts", "topics", "shares"))
    assert counts.shape == (given["num_documents"], given["num_words"])
    assert topics.shape == (given["num_topics"], given["num_words"])
    assert shares.dims == ("document", "topic")
    assert counts.dtype.kind == "i"
    assert (counts >= 0).all()
    assert (counts.sum("word") == given["num_tokens"]).all()
    rows_sum_to_one(topics, shares)


def genotypes_law(found: xr.Dataset, given: dict[str, Any]) -> None:
    y, ancestry = found["y"], found["ancestry"]
    assert y.shape == (given["num_individuals"], given["num_loci"], given["ploidy"])
    assert y.dtype == float
    assert (y.isin(range(int(given["num_alleles"]))) | (y.isnull() & (given["missing"] > 0))).all()
    assert found["frequencies"].shape == (given["num_populations"], given["num_loci"], given["num_alleles"])
    assert ancestry.shape == (given["num_individuals"], given["num_populations"])
    rows_sum_to_one(found["frequencies"], ancestry)
    if given["admixture"] is None:
        assert np.ptp(ancestry.values.sum(0)) <= 1
        assert (ancestry.max("population") == 1).all()


def rows_sum_to_one(*tables: xr.DataArray) -> None:
    for each in tables:
        assert (each >= 0).all()
        np.testing.assert_allclose(each.sum(each.dims[-1]), 1, rtol=1e-12)


SIMULATORS: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[Any, dict[str, Any]], None]]] = {
    function.__name__: (function, given, law)
    for function, given, law in (
        (datasets.simulated_documents,
         {"num_documents": 3, "num_tokens": 9, "num_words": 4, "num_topics": 2, "alpha": 0.1, "concentration": 0.1},
         documents_law),
        (datasets.simulated_genotypes,
         {"num_individuals": 3, "num_loci": 4, "num_populations": 2, "num_alleles": 3, "ploidy": 2, "fst": 0.1,
          "admixture": 0.5, "missing": 0.1},
         genotypes_law),
        (datasets.dishonest_casino,
         {"num_steps": 9, "num_sequences": 3, "stay": (0.9, 0.8), "loaded": (0.1,) * 5 + (0.5,)},
         laws.casino_law),
        (datasets.simulated_track, {"num_steps": 9}, laws.track_law),
        (datasets.simulated_returns, {"num_steps": 9}, laws.returns_law),
        (datasets.half_moons, {"num_rows": 9, "noise": 0.2}, laws.moons_law),
        (datasets.shop_visitors, {"num_hours": 9}, laws.visitors_law),
        (datasets.simulated_mails, {"num_mails": 9}, laws.mails_law),
        (datasets.simulated_tomogram, {}, laws.tomogram_law),
        (datasets.simulated_cocktail_party, {"num_times": 9, "num_microphones": 2, "noise": 0.2}, laws.party_law),
        (datasets.rib_and_rob, {"num_words": 9, "error_rate": 0.1}, laws.words_law),
        (datasets.grid_walk, {"num_moves": 9}, laws.walk_law),
        (datasets.swinging_pendulum, {"num_steps": 9}, laws.pendulum_law),
        (datasets.balanced_pole, {"num_actions": 9}, laws.pole_law),
    )
}  # fmt: skip
"""Each with arguments that are right, and what has to hold for what it returns."""

PLACES = [(name, argument) for name, one in SIMULATORS.items() for argument in (*one[1], "seed")]

NAN, INF = float("nan"), float("inf")
NEVER = [None, True, np.True_, "1", "", [0.5], [[1, 2], [3, 4]], np.ones((2, 2)), 1j, NAN, INF, -INF, len]
WHOLE = [*NEVER, -1, 2.7, 3.0, np.int64(-1), np.float32(2), np.ma.masked, np.ma.masked_array(3, True)]
SIZES = [*WHOLE, 0, 10**18, 10**400]
NUMBERS = [*NEVER, -0.1, 1e300, 10**400, "half", np.ma.masked_array(0.5, True)]
FLAGS = [None, 0, 1.0, "yes", "", [True], np.array([True, False]), NAN]
KINDS = {
    "num_documents num_tokens num_words num_topics num_individuals num_loci num_populations ploidy": SIZES,
    "num_steps num_sequences num_hours num_mails num_times num_microphones num_moves num_actions": SIZES,
    "num_alleles num_rows num_columns num_states": [*SIZES, 1],
    "thin_distance window extra_columns num_individuals": WHOLE,
    "seed": [*WHOLE, np.random.default_rng(0)],
    "alpha concentration": [*NUMBERS, 0],
    "admixture": [*NUMBERS[1:], 0],
    "noise error_rate slip": NUMBERS,
    "max_missing_individual max_missing_locus min_minor_allele_frequency max_r2": [*NUMBERS, 1.5],
    "missing": [*NUMBERS, 1],
    "fst": [*NUMBERS, 0, 1],
    "passed_only intercept standardise standardise_target one_row locations phenotypes drop_empty": FLAGS,
    "marker_names recessive_alleles map_distances phase_rows labels populations population_flags": FLAGS,
    "path": [None, True, 3, 1.5, b"panel.bed", ["panel.bed"], len],
    "stay": [*NEVER, (0.9,), (0.9, 0.9, 0.9), (1.1, 0.9), (NAN, 0.9), (0.9, -0.1), ("0.9", 0.9), 0.9, {0.8, 0.9}],
    "loaded": [*NEVER, (0.2,) * 5, (0.2,) * 6, (0.5, 0.7, -0.2, 0, 0, 0), (NAN, 1, 0, 0, 0, 0), (1,) * 6, "111111"],
}
WRONG = {argument: values for arguments, values in KINDS.items() for argument in arguments.split()}


@pytest.mark.parametrize(("name", "argument"), PLACES)
def test_wrong_arguments_are_refused_by_name(name: str, argument: str) -> None:
    function, given, _ = SIMULATORS[name]
    for value in WRONG[argument]:
        refused(lambda value=value: function(**given | {argument: value}), argument)


ANY = st.floats(0, 1e100, exclude_min=True)
SHARE = st.floats(0, 1)
RIGHT: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("alpha", "concentration"), ANY),
    **dict.fromkeys(("num_alleles", "num_rows"), st.integers(2, 5)) | {"error_rate": SHARE},
    "seed": st.integers(0, 2**32 - 1),
    "num_tokens": st.integers(1, 2**50),
    "fst": st.floats(0, 1, exclude_min=True, exclude_max=True),
    "admixture": st.none() | ANY,
    "missing": st.floats(0, 1, exclude_max=True),
    "noise": st.just(0) | ANY,
    "stay": st.tuples(SHARE, SHARE),
    "loaded": st.permutations([0, 0, 0.1, 0.2, 0.3, 0.4]) | st.permutations([1, 0, 0, 0, 0, 0]),
}


@settings(quick, max_examples=150)
@given(st.data(), st.sampled_from(sorted(SIMULATORS)))
def test_simulated_data_are_as_described(data: st.DataObject, name: str) -> None:
    """Of any size, with more of a kind than there are things; the same again, from NumPy's numbers too."""
    function, places, law = SIMULATORS[name]
    given = {place: data.draw(RIGHT.get(place, st.integers(1, 5)), place) for place in (*places, "seed")}
    found = function(**given)
    law(found, given)
    for each in (given, {place: numpy_number(value) for place, value in given.items()}):
        again = function(**each)
        for entry in found:
            np.testing.assert_array_equal(found[entry], again[entry])


def numpy_number(value: Any) -> Any:
    return np.array(value)[()] if isinstance(value, int | float) else value


@settings(quick, max_examples=300)
@given(anything() | st.floats() | st.integers(-2, 9), st.sampled_from(PLACES))
def test_anything_as_an_argument_is_obeyed_or_refused(value: Any, place: tuple[str, str]) -> None:
    name, argument = place
    function, given, law = SIMULATORS[name]
    given = given | {argument: value}
    with suppress(TypeError):
        assume(not 50 < operator.index(value) < 2**50)  # slow, not wrong
    found = lawful(lambda: function(**given), argument)
    if found is not None:
        law(found, given)


@pytest.mark.parametrize("name", SIMULATORS)
def test_another_seed_gives_other_data(name: str) -> None:
    function, given, _ = SIMULATORS[name]
    found = [function(**given, seed=seed) for seed in range(5)]
    for entry in ("counts", "frequencies", "x", "y"):
        if entry in found[0] and not (name == "half_moons" and entry == "y"):
            assert len({np.asarray(one[entry]).tobytes() for one in found}) == 5, entry


def has_mean(values: Any, expected: float) -> None:
    values = np.asarray(values)
    assert abs(values.mean() - expected) < 4.5 * values.std() / np.sqrt(values.size)


@pytest.mark.parametrize("fst", [0.01, 0.1, 0.5, 0.9, 0.99, 0.9999])
def test_populations_have_drifted_as_far_as_fst_says(fst: float) -> None:
    """E (p - q)^2 = fst E (p (1 - q) + q (1 - p)), as both have mean m and variance fst m (1 - m)."""
    found = datasets.simulated_genotypes(1, 20_000, 2, fst=fst, num_alleles=3)
    one, other = found["frequencies"].values[..., 0]
    has_mean((one - other) ** 2 - fst * (one * (1 - other) + other * (1 - one)), 0.0)


def test_individuals_have_the_frequencies_of_their_population_and_shares_of_their_prior() -> None:
    pure = datasets.simulated_genotypes(900, 20, 3, admixture=None, fst=0.3)
    for population in range(3):
        own = (pure["y"].values == 1)[pure["ancestry"].values[:, population] == 1].mean((0, 2))
        expected = pure["frequencies"].values[population, :, 1]
        assert (np.abs(own - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 600) + 1e-9).all()
    has_variance(datasets.simulated_genotypes(5000, 1, 4, admixture=0.3)["ancestry"], 0.3)


def has_variance(shares: xr.DataArray, concentration: float) -> None:
    """Of a symmetric Dirichlet distribution."""
    size = shares.shape[1]
    has_mean((shares[:, 0] - 1 / size) ** 2, (1 - 1 / size) / size / (size * concentration + 1))
    has_mean(shares[:, 0], 1 / size)


def test_words_come_from_the_topics_of_their_document() -> None:
    found = datasets.simulated_documents(2000, 50, 6, 3, alpha=0.4, concentration=0.7)
    has_variance(found["shares"], 0.4)
    has_variance(datasets.simulated_documents(1, 1, 6, 5000, concentration=0.7)["topics"], 0.7)
    probability = (found["shares"] @ found["topics"]).values
    has_mean((found["counts"] - 50 * probability)[:, 0], 0.0)
    has_mean((found["counts"] - 50 * probability) ** 2 - 50 * probability * (1 - probability), 0.0)


def test_the_track_has_the_noise_that_it_states() -> None:
    """Second differences over m minutes have variance 6 times 0.3^2 of measurements and 2/3 m^3 0.02^2 of the ship."""
    y = datasets.simulated_track(12_000)["y"].values[:6000]
    for m in (1, 20):
        parts = y[: len(y) // (2 * m + 1) * (2 * m + 1)].reshape(-1, 2 * m + 1, 2)
        has_mean((parts[:, 0] - 2 * parts[:, m] + parts[:, -1]) ** 2, 6 * 0.3**2 + 2 / 3 * m**3 * 0.02**2)


def test_a_pendulum_that_hangs_swings_a_little() -> None:
    """It loses what pushes give it, so that least squares find the dynamics of small swings."""
    found = datasets.swinging_pendulum(3000)
    assert np.abs(found["y"].sel(component="angle")).max() < 0.8
    theta = np.linalg.lstsq(np.concatenate([found["state"], found["action"]], 1), found["y"].values)[0].T
    np.testing.assert_allclose(theta, [[0.902, 0.095, 0.01], [-0.98, 0.95, 0.1]], atol=0.03)


def test_moons_are_half_circles_with_noise() -> None:
    found = datasets.half_moons(4000, noise=0.1)
    for kind, centre in ((0, [0.0, 0.0]), (1, [1.0, 0.5])):
        radius = np.linalg.norm(found["x"].values[found["y"].values == kind] - centre, axis=1)
        has_mean((radius - 1) ** 2, 0.01)
    plain = datasets.half_moons(40, noise=0)
    np.testing.assert_allclose((plain["x"][plain["y"] == 0] ** 2).sum("input"), 1)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Every other public function with arguments that are right."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "panel.str").write_text(structure_text())
    small, plink = write_small_texts(folder), datasets.read_plink(write_plink(folder))
    frame = pd.DataFrame({"rain": [1.0, 2.0, 4.0], "soil": ["clay", "sand", "clay"], "yield": [1.0, 3.0, 2.0]})
    data = datasets.regression_data(frame, "yield")
    w = xr.DataArray(np.ones((1, 2, 3)), {"feature": data["feature"].values}, ["chain", "draw", "feature"])
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"w": w})})
    shares = {"max_missing_individual": 0.9, "max_missing_locus": 0.9, "min_minor_allele_frequency": 0.1, "max_r2": 0.9}
    places = inspect.signature(datasets.read_structure).parameters.values()
    flags = {one.name: one.default for one in places if isinstance(one.default, bool)}
    found = {
        datasets.documents: {"source": np.eye(2, dtype=int), "words": ["a", "b"], "names": ["c", "d"]},
        datasets.filter_genotypes: {"dataset": plink, **shares, "thin_distance": 2, "window": 3},
        datasets.genotype_linkage: {"dataset": plink, "r2": 0.5, "window": 3, "seed": 0},
        datasets.genotypes: {"y": np.abs(Y), "num_alleles": np.full(Y.shape[1], 2), "drop_empty": False},
        datasets.motif_data: {"sequences": datasets.rox1_sites()},
        datasets.new_rows: {"frame": frame, "data": data},
        datasets.original_scale: {"tree": tree, "data": data},
        datasets.read_genotypes: {"path": folder / "panel.str"},
        datasets.read_plink: {"path": folder / "panel.bed"},
        datasets.read_structure: {
            "path": folder / "panel.str", "ploidy": 2, "missing": -9, "num_loci": Y.shape[1], "extra_columns": 0,
            "marker_names": True, "num_individuals": len(Y), **flags},
        datasets.read_vcf: {"path": write_vcf(folder, ".vcf"), "passed_only": False},
        datasets.scaled_prior: {"y": [1.0, 2.0, np.nan]},
        datasets.classification_data: {"frame": frame, "target": "soil", "intercept": True, "standardise": True},
        datasets.regression_data: {
            "frame": frame, "target": "yield", "intercept": True, "standardise": True, "standardise_target": True},
        datasets.sequences: {"arrays": {"one": [1, 2], "two": [3]}},
        datasets.grid_world: {"num_rows": 3, "num_columns": 4, "slip": 0.2},
        datasets.river_swim: {"num_states": 6},
    } | small | timed(frame)  # fmt: skip
    return {function.__name__: (function, given) for function, given in found.items()}


def test_every_function_with_arguments_is_tested(calls: dict[str, Any]) -> None:
    """With all of its arguments but those that it hands on."""
    for name in datasets.__all__:
        parameters = inspect.signature(getattr(datasets, name)).parameters.values()
        known = {place for one, place in PLACES if one == name} | set(calls[name][1] if name in calls else ())
        assert known == {one.name for one in parameters if one.kind != one.VAR_KEYWORD}, name


WORDS = {
    "words": ("word",),
    "names": ("documents",),
    "y": ("y ", "'y'", "locus"),
    "sequences": ("motif",),
    "frame": ("DataFrame", "table", "column"),
    "target": ("target",),
    "arrays": ("sequence",),
    "tree": ("DataTree", "tree"),
} | WORDS_OF_TIMES


@settings(quick, max_examples=400)
@given(st.data(), anything())
def test_anything_as_another_argument_is_obeyed_or_refused(
    calls: dict[str, Any], data: st.DataObject, value: Any
) -> None:
    """But for documents, of which test_hostile_inputs has the same: any matrix could have billions of words."""
    places = [(name, argument) for name in calls for argument in calls[name][1] if argument != "source"]
    name, argument = data.draw(st.sampled_from(places))
    function, given = calls[name]
    with suppress(FileNotFoundError):
        lawful(lambda: function(**given | {argument: value}), *WORDS.get(argument, (argument, "panel.")))


def test_wrong_arguments_of_other_functions_are_refused_by_name(calls: dict[str, Any]) -> None:
    for function, right in calls.values():
        function(**right)
        defaults = {name: each.default for name, each in inspect.signature(function).parameters.items()}
        for argument in right.keys() & WRONG.keys():
            for value in WRONG[argument]:
                is_another_word = isinstance(right[argument], str) and isinstance(value, str) and value
                if not is_another_word and (value is not None or defaults[argument] is not None):
                    refused(lambda f=function, g=right | {argument: value}: f(**g), argument)


PARTS = {
    ("filter_genotypes", "dataset"): ("y", "alleles", "individual", "locus", "chromosome", "position", "population"),
    ("new_rows", "data"): ("kind", "column", "level", "baseline", "centre", "scale", "y_centre", "y_scale", "feature"),
    ("original_scale", "data"): ("kind", "column", "centre", "scale", "y_centre", "y_scale", "feature"),
    ("sequences", "arrays"): ("two",),
    ("motif_data", "sequences"): ("ROX1",),
}
PART_WORDS = ("dataset", "locus", "alleles", "data", "column", "features", "sequence", "motif")


@settings(quick, max_examples=400)
@given(anything(), st.sampled_from([(*at, entry) for at, entries in PARTS.items() for entry in entries]), st.booleans())
def test_anything_inside_of_an_argument_is_read_or_refused(
    calls: dict[str, Any], value: Any, place: tuple[str, str, str], typed: bool
) -> None:
    name, argument, entry = place
    function, given = calls[name]
    assume(not isinstance(value, int) or value < 10**100)  # of which a sentence is too long
    try:
        changed = altered(given[argument], entry, value, typed)
    except Exception:  # this is for NumPy or xarray to refuse
        return
    lawful(lambda: function(**given | {argument: changed}), *PART_WORDS)


def altered(whole: Any, entry: str, value: Any, typed: bool) -> Any:
    """A mapping with another entry, or a Dataset with one of the same dimensions."""
    if not isinstance(whole, xr.Dataset):
        return whole | {entry: value}
    values = np.asarray(value) if typed else np.asarray(value, object)
    return whole.assign({entry: (whole[entry].dims, np.resize(values, whole[entry].shape))})


@quick
@given(st.sampled_from([1, 126, 127, 128, 129, 2**15 - 1, 2**15, 2**31, 2**53 - 1]) | st.integers(1, 2**40))
def test_alleles_of_any_number_stay_as_they_are(allele: int) -> None:
    found = datasets.genotypes(np.array([[[0, allele]], [[allele, 0]]]))
    np.testing.assert_array_equal(found["y"], [[[0, allele]], [[allele, 0]]])
    assert found["num_alleles"] == allele + 1


LABELLED = xr.DataArray(np.array([[[0, 1], [1, 1]], [[0, 0], [0, 1]]]), dims=["individual", "locus", "copy"])
REFUSED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "infinite": (lambda _: datasets.sequences([[1.0, INF]]), "sequence 0 has a number that is infinite"),
    "no axis": (lambda _: datasets.sequences(np.array(3.0)), "sequences are arrays by name or in a list"),
    "pair as name": (lambda _: datasets.sequences({("a", 1): [1.0]}), "a sequence is named ('a', 1); expected text"),
    "nothing as name": (lambda _: datasets.motif_data({None: "ACT"}), "a motif is named None; expected text"),
    "loci first": (lambda _: datasets.genotypes(LABELLED.transpose("locus", ...)), "y has individual elsewhere"),
    "another name": (
        lambda _: datasets.genotypes(LABELLED.rename(individual="who").assign_coords(individual=("who", ["a", "b"]))),
        "y has individual elsewhere and dimension who in its place"),
    "no allele": (lambda _: datasets.genotypes([[[0, 1e300]]]), "y is 1e+300 for individual 0"),
    "words first": (lambda _: datasets.documents(xr.DataArray(np.eye(2, dtype=int), dims=["word", "document"])),
                    "the matrix has dimensions ('word', 'document'); expected (document, word)"),
    "words in no order": (lambda _: datasets.documents(np.eye(2, dtype=int), {"a", "b"}),
                          "names of words must be text or numbers in a list, but are set"),
    "many words": (lambda _: datasets.documents(np.full((3, 3), 2**51)),
                   "words in all; expected counts that memory can hold"),
    "attribute": (lambda calls: filtered(calls, lambda one: one.assign_attrs(removed_loci_rare="many")),
                  "attribute removed_loci_rare of the dataset is 'many'; expected an integer"),
    "positions": (lambda calls: filtered(calls, lambda one: one.assign(position=one["position"] + 0.5)),
                  "the dataset has position of float64; expected integers"),
    "place": (lambda calls: filtered(calls, lambda one: one.assign_coords(position=("individual", range(len(Y))))),
              "the dataset has dimensions (individual) of position"),
}  # fmt: skip


def filtered(calls: dict[str, Any], change: Callable[[xr.Dataset], xr.Dataset]) -> xr.Dataset:
    return (call := calls["filter_genotypes"])[0](**call[1] | {"dataset": change(call[1]["dataset"])})


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_read_as_something_else_is_refused(calls: dict[str, Any], case: str) -> None:
    call, words = REFUSED[case]
    refused(lambda: call(calls), words)


def test_chromosomes_of_any_name_are_kept_apart(calls: dict[str, Any]) -> None:
    names = np.array([1, 2, "X"] * Y.shape[1], object)[: Y.shape[1]]
    found = [filtered(calls, lambda one, n=n: one.assign(chromosome=("locus", n))) for n in (names, names.astype(str))]
    np.testing.assert_array_equal(found[0]["locus"], found[1]["locus"])
