"""Results on the command line: units of the file, predictions, comparisons, problems and their advice."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayeslab.command_line.main import main
from bayeslab.command_line.method_choice import methods
from bayeslab.command_line.result_commands import load_result
from bayeslab.command_line.result_text import OPTIONS, advice
from bayeslab.command_line.tables.coding import ATTRIBUTE, file_coding_of
from bayeslab.results.saving import save

ROWS = 60


def frame() -> pd.DataFrame:
    """Houses: areas, days, towns and prices with noise."""
    rng = np.random.default_rng(0)
    area, town = rng.normal(2000, 500, ROWS), rng.choice(["x", "y"], ROWS)
    days = pd.date_range("2020-01-01", periods=ROWS, freq="3D").strftime("%Y-%m-%d")
    price = 50 + 0.1 * area - 20 * (town == "y") + rng.normal(0, 15, ROWS)
    return pd.DataFrame(
        {"area": area, "town": town, "sold": days, "price": price, "dear": np.where(price > 240, "dear", "cheap")}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Houses, new houses, an exact fit of their prices and one of another seed."""
    folder = tmp_path_factory.mktemp("houses")
    frame().to_csv(folder / "houses.csv", index=False)
    frame().iloc[:3].drop(columns=["dear", "price"]).to_csv(folder / "new.csv", index=False)
    for name, seed in (("fit", "0"), ("other", "1")):
        arguments = [
            "--target",
            "price",
            "--drop",
            "dear",
            "--date",
            "sold",
            "--draws",
            "4000",
            "--seed",
            seed,
            "--quiet",
        ]
        assert (
            main(["fit", "linear_regression", str(folder / "houses.csv"), *arguments, "-o", str(folder / f"{name}.nc")])
            == 0
        )
    return folder


def printed_json(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def least_squares() -> np.ndarray[Any, Any]:
    houses = frame()
    x = np.column_stack([np.ones(ROWS), houses["area"], houses["town"] == "y", 3.0 * np.arange(ROWS)])
    return np.linalg.lstsq(x, houses["price"], rcond=None)[0]


def test_coefficients_are_in_the_units_of_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nearly those of least squares: the prior is weak."""
    found = printed_json(["summary", str(folder / "fit.nc")], capsys)
    means = [found["original_units"][f"w[{name}]"]["mean"] for name in ("intercept", "area", "town[y]", "sold")]
    np.testing.assert_allclose(means, least_squares(), rtol=0.05, atol=0.05)
    assert abs(found["original_units"]["sigma"]["mean"] - 15) < 3
    assert abs(found["parameters"]["w[area]"]["mean"]) < 1.1
    assert "r_hat" not in found["parameters"]["tau"]
    assert found["problems"] == []
    main(["summary", str(folder / "fit.nc")])
    text = capsys.readouterr().out
    assert text.index("In the units of") < text.index("As fitted")
    assert "nan" not in text


def test_predictions_at_a_point_have_the_noise_of_rows(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The point has no draws; the mean of a row is that of many draws at it, and equal rows are predicted alike."""
    arguments = ["--target", "price", "--drop", "dear", "--date", "sold", "--method", "map", "--quiet"]
    assert main(["fit", "linear_regression", f"{folder}/houses.csv", *arguments, "-o", f"{folder}/map.nc"]) == 0
    found = printed_json(["predict", f"{folder}/map.nc", f"{folder}/new.csv"], capsys)
    exact = printed_json(["predict", f"{folder}/fit.nc", f"{folder}/new.csv"], capsys)
    for row, of_row in exact.items():
        assert found[row]["price"] == pytest.approx(of_row["price"], abs=3)
        assert found[row]["price sd"] == pytest.approx(of_row["price sd"], rel=0.2)
    assert main(["predict", f"{folder}/map.nc", f"{folder}/new.csv"]) == 0
    assert "at the point of MAP" in capsys.readouterr().out


def test_results_of_other_units_and_points_are_not_compared(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prices in another unit are other data though they are the same when standardised; a point leaves no row out."""
    other = frame().assign(price=lambda table: 100 * table["price"] + 7)
    other.to_csv(tmp_path / "units.csv", index=False)
    common = ["--target", "price", "--drop", "dear", "--date", "sold", "--quiet"]
    assert main(["fit", "linear_regression", f"{tmp_path}/units.csv", *common, "-o", f"{tmp_path}/units.nc"]) == 0
    assert main(["fit", "ridge", f"{folder}/houses.csv", *common, "--method", "map", "-o", f"{tmp_path}/p.nc"]) == 0
    for result, match in (("units", "of different data"), ("p", "is a point, of MAP, and rows are left out by draws")):
        capsys.readouterr()
        assert main(["compare", f"{folder}/fit.nc", f"{tmp_path}/{result}.nc"]) == 2
        assert match in capsys.readouterr().err


def test_numbers_as_fitted_say_so(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a model whose coefficients have no units of the file, too."""
    arguments = ["--target", "dear", "--drop", "price,town", "--date", "sold", "--method", "map"]
    table, out = f"{folder}/houses.csv", f"{tmp_path}/bayes.nc"
    assert main(["fit", "naive_bayes_gaussian", table, *arguments, "-o", out]) in (0, 3)
    assert "As fitted, with every column of numbers less its mean" in capsys.readouterr().out


def test_settings_are_numbers(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for value in ("null", '"wide"', '{"a": 1}', "[1, null]"):
        arguments = [
            "--target",
            "price",
            "--drop",
            "dear,sold",
            "--set",
            f"shrinkage={value}",
            "-o",
            f"{tmp_path}/s.nc",
        ]
        assert main(["fit", "linear_regression", f"{folder}/houses.csv", *arguments]) == 2
        assert "takes a number or a list of numbers" in capsys.readouterr().err


def test_classes_in_an_order_are_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "grades.csv"
    table.write_text("x,grade\n" + "\n".join(f"{i / 7},{('low', 'medium', 'high')[i % 3]}" for i in range(20)))
    assert main(["fit", "ordered_regression", str(table), "--target", "grade", "-o", str(tmp_path / "o.nc")]) == 2
    assert "classes in an order, which letters do not tell" in capsys.readouterr().err


def test_predictions_are_in_the_units_of_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And new days count from the first day of the fit."""
    out = folder / "predicted.csv"
    found = printed_json(["predict", str(folder / "fit.nc"), str(folder / "new.csv"), "-o", str(out)], capsys)
    houses = frame().iloc[:3]
    x = np.column_stack([np.ones(3), houses["area"], houses["town"] == "y", 3.0 * np.arange(3)])
    means = [row["price"] for row in found.values()]
    np.testing.assert_allclose(means, x @ least_squares(), atol=4)
    assert all(row["price low"] < row["price"] < row["price high"] for row in found.values())
    np.testing.assert_allclose(pd.read_csv(out)["price"], means)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table": "copy.csv"}, ""),
        ({"table": "copy.csv", "y_scale": 7.0}, "differ in the units of the target; chains to join are of the same"),
        ({"target": "rent"}, "differ in the target"),
        (None, "two.nc' does not say how its columns were read"),
    ],
)
def test_joined_chains_keep_how_columns_were_read(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any] | None, words: str
) -> None:
    """From a copy of a table, too; chains of data in other units are not joined."""
    paths = [str(tmp_path / name) for name in ("one.nc", "two.nc", "both.nc")]
    tree = load_result(folder / "fit.nc").isel(draw=slice(1000))
    tree.attrs["settings"] = "Method(num_chains=1)"
    save(tree, Path(paths[0]))
    coding = json.loads(tree.attrs.pop(ATTRIBUTE))
    tree.attrs |= {"key": "0 1"} | ({} if change is None else {ATTRIBUTE: json.dumps(coding | change)})
    save(tree, Path(paths[1]))
    assert main(["join", *paths[:2], "-o", paths[2], "--quiet"]) in ((2,) if words else (0, 3))
    assert words in capsys.readouterr().err
    if not words:
        assert file_coding_of(load_result(Path(paths[2]))) == file_coding_of(load_result(Path(paths[0])))


def test_a_result_is_compared_with_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed_json(["compare", str(folder / "fit.nc"), str(folder / "other.nc")], capsys)
    assert found[str(folder / "other.nc")]["mean_error_max"] < 0.15


def test_results_of_other_columns_or_priors_are_other_models(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their predictions are compared, not their coefficients."""
    common = ["--target", "price", "--date", "sold", "--quiet", "--draws", "4000"]
    for name, options in (("columns", ["--drop", "dear,area"]), ("prior", ["--drop", "dear", "--set", "shrinkage=30"])):
        out = f"{tmp_path}/{name}.nc"
        assert main(["fit", "linear_regression", f"{folder}/houses.csv", *common, *options, "-o", out]) in (0, 3)
        found = printed_json(["compare", f"{folder}/fit.nc", out], capsys)
        assert found[out]["elpd"] < found[f"{folder}/fit.nc"]["elpd"]


def test_generative_classifiers_are_compared_by_whole_rows(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"{tmp_path}/{alpha}.nc" for alpha in (1, 4)]
    for name, alpha in zip(names, (1, 4), strict=True):
        options = ["--target", "dear", "--drop", "price,town", "--date", "sold", "--set", f"alpha={alpha}", "--quiet"]
        assert main(["fit", "naive_bayes_gaussian", f"{folder}/houses.csv", *options, "-o", name]) in (0, 3)
    found = printed_json(["compare", *names], capsys)
    assert all(row["elpd"] < 0 for row in found.values())


def test_a_model_that_draws_no_rows_predicts_none(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--target", "dear", "--drop", "price,town", "--date", "sold", "--method", "map", "--quiet"]
    assert main(["fit", "svm", f"{folder}/houses.csv", *options, "-o", f"{tmp_path}/svm.nc"]) in (0, 3)
    assert main(["predict", f"{tmp_path}/svm.nc", f"{folder}/new.csv"]) == 2
    assert "draws nothing of single rows" in capsys.readouterr().err


def test_classes_are_predicted_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the approximation of Laplace, which is quick."""
    out = str(folder / "classes.nc")
    arguments = ["--target", "dear", "--drop", "price,sold", "--method", "laplace", "-o", out]
    found = printed_json(["fit", "logistic_regression", str(folder / "houses.csv"), *arguments], capsys)
    assert found["classes"] == ["cheap", "dear"]
    chances = printed_json(["predict", out, str(folder / "houses.csv")], capsys)
    dear = np.array([row["P(dear = dear)"] for row in chances.values()])
    assert (dear[frame()["dear"] == "dear"]).mean() > 0.7 > 0.4 > (dear[frame()["dear"] == "cheap"]).mean()


REFUSED = {
    "dates": (["linear_regression", "--target", "price", "--drop", "dear"], ["dates", "--date sold"]),
    "text target": (
        ["linear_regression", "--target", "dear", "--drop", "sold"],
        ["'cheap', 'dear'", "logistic_regression"],
    ),
    "numbers as classes": (
        ["logistic_regression", "--target", "price", "--drop", "sold"],
        ["60 different", "two classes"],
    ),
    "text for numbers": (["normal_gamma", "--column", "y=town"], ["town", "holds text", "takes numbers"]),
    "method": (
        ["linear_regression", "--target", "price", "--drop", "dear,sold", "--method", "nutz"],
        ["nuts", "mean-field"],
    ),
    "setting": (
        ["linear_regression", "--target", "price", "--drop", "dear,sold", "--method", "exact", "--warmup", "9"],
        ["--warmup", "Exact"],
    ),
    "option": (["linear_regression", "--target", "price", "--drop", "deer"], ["--drop", "deer", "Did you mean 'dear'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_mistakes_name_the_way_out(folder: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    [model, *arguments], words = REFUSED[case]
    assert main(["fit", model, str(folder / "houses.csv"), *arguments, "-o", str(folder / "none.nc")]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert not (folder / "none.nc").exists()


def test_predictions_refuse_other_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = {"column": {"town": None}, "level": {"town": "z"}, "missing": {"area": ""}}
    words = {
        "column": "no column 'town'",
        "level": "unknown level 'z' in line 2",
        "missing": "'area' .* missing in line 2",
    }
    changes |= {"text": {"area": "?"}, "order": {"sold": "3/4/2020"}}
    words |= {
        "text": r"'area' of .* holds '\?' in line 2, .* numbers as at the fit",
        "order": "in an order that nothing",
    }
    for case, change in changes.items():
        new = frame().iloc[:3].assign(**change)
        path = folder / f"{case}.csv"
        (new.drop(columns="town") if case == "column" else new).to_csv(path, index=False)
        assert main(["predict", str(folder / "fit.nc"), str(path)]) == 2
        said = capsys.readouterr().err
        assert re.search(words[case], said)
        assert "--" not in said  # predict has no options of columns
    assert main(["predict", str(folder / "new.csv"), str(folder / "new.csv")]) == 2
    assert "no result of" in capsys.readouterr().err


def test_advice_names_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every sentence that `diagnose` has, and of no argument of Python."""
    source = (Path(__file__).parents[2] / "bayeslab/diagnostics/diagnose.py").read_text()
    source += (Path(__file__).parents[2] / "bayeslab/verification/optimum.py").read_text()
    lines = re.sub(r'"\s*\n\s*f?"', "", source)
    assert all(said in lines for said in OPTIONS)
    for argument in ("num_samples", "previous=", "target_accept_prob", "max_tree_depth", "az.plot"):
        assert argument in lines
        assert argument not in " ".join(advice("\n".join(OPTIONS)))
    tree = load_result(folder / "fit.nc").isel(draw=slice(50))
    save(tree, folder / "few.nc")
    assert main(["summary", str(folder / "few.nc"), "--quiet"]) == 3
    assert capsys.readouterr().err.startswith("Few draws")


def test_every_method_has_a_name() -> None:
    assert {"em", "exact", "gibbs", "laplace", "map", "mean-field", "nuts", "svi"} <= methods().keys()
