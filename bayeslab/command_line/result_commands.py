"""`bayeslab summary`, `compare` and `predict`: what is done with results that are files."""

import json
import sys
import warnings
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.command_line.fit_command import EXIT_PROBLEMS
from bayeslab.command_line.result_text import PROBABILITY, problems, result_record, result_text
from bayeslab.command_line.tables.coding import ATTRIBUTE, FileCoding, common_coding, file_coding_of, in_terms_of_file
from bayeslab.command_line.tables.csv_data import counted, covariate_frame, mapped_columns
from bayeslab.command_line.tables.table_file import TextTable, read_table

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import Dataset, DataTree

NUM_DRAWS_AT_A_POINT = 4000
"""Draws of a new row from its distribution at a point, of which the mean and an interval are told."""
MAX_ROWS_PRINTED = 20
"""The most predictions that are printed; a file gets all."""
NOTHING_TO_PREDICT = "the model draws nothing of single rows, so there is nothing to predict"


def summary(arguments: Namespace) -> int:
    """Print what a result says; returns the exit code."""
    return _tell(arguments, load_result(arguments.result), arguments.result)


def _tell(arguments: Namespace, tree: "DataTree", path: Path) -> int:
    """Print what a result in a file says; returns the exit code."""
    complaints = problems(tree)
    if arguments.json:
        print(json.dumps(result_record(tree) | {"file": str(path)}, indent=1))
    elif not arguments.quiet:
        print(f"{tree.attrs['model']} by {tree.attrs['method']}")
        print(result_text(tree))
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return EXIT_PROBLEMS if complaints else 0


def join(arguments: Namespace) -> int:
    """Write the chains of several results as one, and print what it says; returns the exit code."""
    from bayeslab.results.joining import join as join_chains
    from bayeslab.results.saving import require_writable, save

    require_writable(arguments.out)
    if len(set(arguments.results)) < len(arguments.results):
        raise ValueError("a result is named twice; name each once")
    named = {f"'{path}'": load_result(path) for path in arguments.results}
    try:
        tree = join_chains(named)
    except ValueError as error:
        options = str(error).replace("its own first_chain, or its own key", "its own --chain, or its own --seed")
        raise ValueError(options) from error
    coding = common_coding({name: file_coding_of(each) for name, each in named.items()})
    if coding is not None:  # joined attributes are those that are the same, and paths of files are none of these
        tree.attrs[ATTRIBUTE] = coding.to_json()
    save(tree, arguments.out)
    return _tell(arguments, tree, arguments.out)


def compare(arguments: Namespace, lectures: dict[str, ModuleType]) -> int:
    """Print how far results are from the first, or of other models which predicts best; returns the exit code.

    Raises ValueError for results of other data.
    """
    trees = {str(path): load_result(path) for path in arguments.results}
    if len(trees) < 2:
        raise ValueError("name two results or more, of different files")
    first, *others = trees
    for name in others:
        if not _same_observations(trees[first], trees[name]):
            raise ValueError(f"'{name}' and '{first}' are of different data, so nothing of them can be compared")
    if all(_is_of_program(tree, trees[first]) for tree in trees.values()):
        from bayeslab.diagnostics.compare import compare_posteriors
        from bayeslab.reports.comparison_text import to_text

        table = compare_posteriors(trees)
        frame = table.to_dataframe()
        text = f"Against '{first}', in standard deviations of its posterior:\n{to_text(table)}"
    else:
        frame = _predictive_table(trees, lectures, arguments.seed)
        text = f"Predictions of one row from the others, the best model first:\n{frame.to_string(na_rep='-')}"
    if arguments.json:
        print(json.dumps(json.loads(frame.to_json(orient="index")), indent=1))
    elif not arguments.quiet:
        print(text)
    return 0


def predict(arguments: Namespace, lectures: dict[str, ModuleType]) -> int:
    """Predict the target, or what the model draws of a row, for the rows of a new file; returns the exit code."""
    from bayeslab.prediction.predict import predict as predict_rows
    from bayeslab.results.saving import require_writable, save_text

    tree = load_result(arguments.result)
    coding = file_coding_of(tree)
    if coding is None:
        raise ValueError(f"'{arguments.result}' does not say how its columns were read; make it with `bayeslab fit`")
    if "observed_data" not in tree.children:
        raise ValueError(NOTHING_TO_PREDICT)
    if arguments.out is not None:
        require_writable(arguments.out)
    table = read_table(arguments.table, arguments.separator, arguments.encoding)
    lecture = _lecture_of(tree, lectures)
    try:
        data = _new_data(lecture, table, coding)
        predicted = predict_rows(arguments.seed, lecture.model, data, _repeated(tree) if _is_point(tree) else tree)
    except ValueError as error:
        raise ValueError(_without_options(in_terms_of_file(str(error), table, coding))) from error
    frame = _prediction_frame(predicted, table, coding)
    if arguments.out is not None:
        save_text(frame.to_csv(index_label="row"), arguments.out)
    if arguments.json:
        keyed = frame if frame.index.is_unique else frame.reset_index().set_axis(range(1, len(frame) + 1))
        print(json.dumps(json.loads(keyed.to_json(orient="index", double_precision=15)), indent=1))
    elif not arguments.quiet:
        at_point = f", at the point of {tree.attrs['method']}: not of its own error" if _is_point(tree) else ""
        print(f"{coding.target or 'predictions'}: means, and intervals of probability {PROBABILITY}{at_point}")
        print(frame.head(MAX_ROWS_PRINTED).to_string(na_rep="-", float_format="{:.4g}".format))
        if len(frame) > MAX_ROWS_PRINTED:
            print(f"and {len(frame) - MAX_ROWS_PRINTED} more rows: -o FILE.csv writes all")
        if (coding.y_scale, coding.y_centre) != (1.0, 0.0) and (others := _other_sites(frame, coding.target)):
            print(f"{', '.join(others)}: as the model has it, of a standardised {coding.target}")
        if arguments.out is not None:
            print(f"\nWritten: {arguments.out}")
    return 0


def _other_sites(frame: "DataFrame", target: str | None) -> list[str]:
    """The sites besides the target of which a frame has means."""
    return [name for name in frame.columns if f"{name} sd" in frame.columns and name != target]


def _is_point(tree: "DataTree") -> bool:
    """Whether a result is one value of its sites."""
    return tree["posterior"].sizes["chain"] * tree["posterior"].sizes["draw"] == 1


def _repeated(tree: "DataTree") -> "DataTree":
    """The result with its one draw, a point, as many times as there are predictions to draw at it."""
    repeated = tree.copy()
    posterior = tree["posterior"].to_dataset().isel(draw=np.zeros(NUM_DRAWS_AT_A_POINT, int))
    repeated["posterior"] = posterior.assign_coords(draw=np.arange(NUM_DRAWS_AT_A_POINT))
    return repeated


def load_result(path: Path) -> "DataTree":
    """The result in a file. Raises FileNotFoundError, and ValueError for a file that is none."""
    import xarray

    if not path.is_file():
        raise FileNotFoundError(f"there is no file '{path}'")
    try:
        tree = xarray.load_datatree(path, engine="h5netcdf")
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"'{path}' is damaged, or no result of `bayeslab fit` ({error})") from error
    if "posterior" not in tree.children or "model" not in tree.attrs:
        raise ValueError(f"'{path}' is no result of `bayeslab fit`: it has no posterior of a model")
    return tree


def _lecture_of(tree: "DataTree", lectures: dict[str, ModuleType]) -> ModuleType:
    """The model that a result is of."""
    name = str(tree.attrs["model"]).removesuffix(".model").rpartition(".")[2]
    if name not in lectures:
        raise ValueError(f"the result is of {tree.attrs['model']}, which is no model of `bayeslab models`")
    return lectures[name]


def _without_options(message: str) -> str:
    """A message on columns without the options of `fit` that say how to read them: `predict` has none of these."""
    before, option, _ = message.partition(" --")
    fact = before.rpartition(": ")[0]
    return f"{fact}; change it in the file: columns are read as at the fit" if option else message


def _new_data(lecture: ModuleType, table: TextTable, coding: FileCoding) -> dict[str, Any]:
    """The data of a model for the rows of a new file, read as those of the fit."""
    from bayeslab.datasets import new_rows
    from bayeslab.programs.arguments import signature

    parameters = signature(lecture.model).parameters
    data: dict[str, Any] = {**counted(lecture, table)}
    for name, text in coding.columns.items():
        if name in parameters or all(each in table.columns for each in text.split(",")) or text in table.columns:
            data[name] = mapped_columns(table, text, coding.reading)
    if coding.features:
        numbers = {feature[1]: "" for feature in coding.features if feature[0] == "number"}
        reading = replace(
            coding.reading,
            categorical=tuple({*coding.reading.categorical, *coding.levels}),
            found=numbers | dict(coding.reading.found),
        )
        frame = covariate_frame(table, coding.covariates, replace(coding, reading=reading), levels=False)
        _require_known_levels(table, frame, coding)
        x = new_rows(frame, coding.coded_data())["x"]
        data["x"] = x.isel(feature=0, drop=True) if coding.is_vector else x
    return data


def _require_known_levels(table: TextTable, frame: "DataFrame", coding: FileCoding) -> None:
    """Raise ValueError for a level of a new row that no row of the fit has."""
    from bayeslab.programs.binding import suggestion

    for name, known in coding.levels.items():
        unknown = ~frame[name].isin(known).to_numpy()
        if unknown.any():
            level, line = frame[name].iloc[int(unknown.argmax())], table.lines[int(unknown.argmax())]
            raise ValueError(
                f"column '{name}' of '{table.path}' has the unknown level '{level}' in line {line}."
                f"{suggestion(level, known)} The fit has {known}"
            )


def _prediction_frame(predicted: "DataTree", table: TextTable, coding: FileCoding) -> "DataFrame":
    """A row of the file a row: mean, sd and interval of every number that is drawn of it, probabilities of classes, and
    the target where the file has it."""
    import pandas
    from xarray import Dataset

    group = "predictions" if "predictions" in predicted.children else "posterior_predictive"
    with_chances = "predictions_probabilities" in predicted.children
    chances = predicted["predictions_probabilities"].to_dataset() if with_chances else Dataset()
    columns: dict[str, Any] = {}
    tails = 50 * (1 - PROBABILITY) * np.array([1, -1]) + [0, 100]
    for site, values in predicted[group].data_vars.items():
        is_target = site == "y" and bool(coding.target)
        name, labels = (coding.target, coding.classes) if is_target else (str(site), ())
        drawn = values.transpose("chain", "draw", ...).values
        drawn = drawn.reshape(-1, *drawn.shape[2:]).astype(float)
        if drawn.shape[1:] != (table.num_rows,):
            continue
        if site in chances:
            probabilities = chances[site].values
            for code in range(probabilities.shape[1]):
                columns[f"P({name} = {labels[code] if labels else code})"] = probabilities[:, code]
        elif labels:
            codes = (drawn + 1) / 2 if coding.signed else drawn
            columns |= {f"P({name} = {label})": (codes == code).mean(0) for code, label in enumerate(labels)}
        else:
            drawn = drawn * coding.y_scale + coding.y_centre if is_target else drawn
            low, high = np.percentile(drawn, tails, axis=0)
            columns |= {name: drawn.mean(0), f"{name} sd": drawn.std(0), f"{name} low": low, f"{name} high": high}
    index = table.labels if table.labels is not None else range(1, table.num_rows + 1)
    if not columns:
        raise ValueError(NOTHING_TO_PREDICT)
    frame = pandas.DataFrame(columns, index=pandas.Index(list(index), name="row"))
    if coding.target in table.columns:
        frame.insert(0, f"{coding.target} in file", table.columns[coding.target])
    return frame


def _same_observations(first: "DataTree", other: "DataTree") -> bool:
    """Whether two results have the same observed values, in the units of their files."""
    if not all("observed_data" in tree.children for tree in (first, other)):
        return False
    codings = [file_coding_of(tree) for tree in (first, other)]
    units = [np.array([coding.y_centre, coding.y_scale]) for coding in codings if coding is not None]
    if len(units) == 2 and not np.allclose(units[0], units[1]):
        return False
    values = [tree["observed_data"].to_dataset() for tree in (first, other)]
    return set(values[0]) == set(values[1]) and all(
        values[0][name].shape == values[1][name].shape
        and np.allclose(values[0][name].values, values[1][name].values, equal_nan=True)
        for name in values[0]
    )


def _is_of_program(tree: "DataTree", other: "DataTree") -> bool:
    """Whether two results are of one model with the same arguments, such as covariates and priors."""
    from xarray import Dataset

    mine, others = (
        each["constant_data"].to_dataset() if "constant_data" in each.children else Dataset() for each in (tree, other)
    )
    return tree.attrs["model"] == other.attrs["model"] and mine.equals(others)


def _predictive_table(trees: dict[str, "DataTree"], lectures: dict[str, ModuleType], seed: int) -> "DataFrame":
    """Expected log predictive densities by leaving one row out, with those of `az.compare`."""
    from arviz_stats import compare as compare_densities
    from xarray import DataTree

    from bayeslab.prediction.predict import predict as predict_rows

    with_density = {}
    for name, tree in trees.items():
        if _is_point(tree):
            raise ValueError(
                f"'{name}' is a point, of {tree.attrs['method']}, and rows are left out by draws; compare results of "
                "methods that draw"
            )
        observed = {str(site): values for site, values in tree["observed_data"].data_vars.items()}
        predicted = predict_rows(seed, _lecture_of(tree, lectures).model, observed, tree)
        if "log_likelihood" not in predicted.children:
            raise ValueError(f"'{name}' has no density of single rows, so its predictions cannot be compared")
        densities = _row_density(predicted["log_likelihood"].to_dataset(), name)
        with_density[name] = DataTree.from_dict(
            {"posterior": predicted["posterior"].to_dataset(), "log_likelihood": densities}
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Pareto", UserWarning)  # the table has a column of large Pareto k
        return compare_densities(with_density)


def _row_density(densities: "Dataset", name: str) -> "Dataset":
    """The log densities of rows: of several sites that rows have, as features and labels, their sum.

    Raises ValueError for sites that have no rows in common. name: of the result.
    """
    from bayeslab.prediction.class_probabilities import GIVEN_THE_REST

    sites = [site for site in densities.data_vars if not str(site).endswith(GIVEN_THE_REST)]
    if len(sites) == 1:
        return densities[sites]
    rows = [dim for dim in densities[sites[0]].dims if all(dim in densities[site].dims for site in sites)]
    if len(rows) == 2:
        raise ValueError(f"'{name}' has no density of single rows, so its predictions cannot be compared")
    total: Any = sum(densities[site].sum([*{*densities[site].dims} - {*rows}]) for site in sites)
    return total.to_dataset(name="all sites")
