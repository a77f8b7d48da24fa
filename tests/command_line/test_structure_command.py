"""From a file of genotypes to a report, whole and in pieces."""

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from bed_reader import to_bed

import bayeslab.populations.run as steps
from bayeslab.command_line.main import main
from bayeslab.datasets import simulated_genotypes
from bayeslab.reports.population_structure import Convergence, choice_verdict

OPTIONS = ["--chains", "2", "--draws", "12", "--warmup", "10", "--thinning", "1", "--maf", "0.05"]
NUMBERS = {"one": ["-k", "2", *OPTIONS, "--independent", "--alpha", "1"], "both": ["-k", "1-2", *OPTIONS]}
"""Options of runs with one number of populations and the prior that compiles in a third of the time, and with two."""
RESULTS = {"one": ["2.Q", "ancestry_2.csv", "choice.csv"]}
RESULTS["both"] = ["1.Q", "ancestry_1.csv", *RESULTS["one"]]
one_or_both = pytest.mark.parametrize("numbers", ["one", pytest.param("both", marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty individuals of two populations, some copies missing."""
    truth = simulated_genotypes(30, 60, 2, fst=0.3, missing=0.02, seed=1)
    path = tmp_path_factory.mktemp("genotypes") / "panel.bed"
    families = np.array([f"pop{k}" for k in truth["ancestry"].values.argmax(1)])
    individuals = np.array([f"i{number}" for number in range(30)])
    to_bed(path, truth["y"].values.sum(2), properties={"fid": families, "iid": individuals})
    return path


@pytest.fixture(scope="module")
def whole(file: Path) -> Callable[[str], Path]:
    """The folder of a run that was not stopped, of one number of populations or of both."""

    @cache
    def made(numbers: str) -> Path:
        folder = file.parent / numbers
        assert main(["structure", str(file), "-o", str(folder), *NUMBERS[numbers], "--export"]) == 0
        return folder

    return made


@one_or_both
def test_other_programs_get_their_files(numbers: str, whole: Callable[[str], Path]) -> None:
    """Means of chains are the mean, frequencies are those of an allele, rows are in one order."""
    folder = whole(numbers)
    shares = np.loadtxt(folder / "export" / "2.Q")
    runs = [np.loadtxt(folder / "export" / f"2.run_{chain}.Q") for chain in (1, 2)]
    np.testing.assert_allclose(np.mean(runs, 0), shares, atol=2e-6)
    assert np.loadtxt(folder / "export" / "2.P").shape == (
        len((folder / "export" / "loci.txt").read_text().splitlines()),
        2,
    )
    blocks = (folder / "export" / "2.indfile").read_text().strip().split("\n\n")
    assert [len(block.splitlines()) for block in blocks] == [30, 30]
    first = blocks[0].splitlines()[0].split()
    assert first[:5] == ["1", "1", "(0)", "1", ":"]
    np.testing.assert_allclose(np.array(first[5:], float).sum(), 1, atol=3e-6)
    mapped = [line.split("\t") for line in (folder / "export" / "pong_filemap").read_text().splitlines()]
    of_one = [["K1_run1", "1"], ["K1_run2", "1"]] if numbers == "both" else []
    assert [row[:2] for row in mapped] == [*of_one, ["K2_run1", "2"], ["K2_run2", "2"]]
    assert all((folder / "export" / row[2]).is_file() for row in mapped)
    panel = xr.load_dataset(folder / "genotypes.nc", engine="h5netcdf", mask_and_scale=False)
    expected = shares @ np.loadtxt(folder / "export" / "2.P").T  # the expected share of allele 1
    seen = np.ma.masked_less(panel["y"].values, 0).mean((0, 2))
    assert np.corrcoef(expected.mean(0), seen)[0, 1] > 0.95


@one_or_both
def test_a_report_and_tables_are_written(numbers: str, whole: Callable[[str], Path]) -> None:
    folder = whole(numbers)
    page = (folder / "report.html").read_text()
    assert page.count("<img") == (1 + 4 if numbers == "one" else 2 + 3 + 4)
    assert "panel.bed" in page
    assert "30 individuals at 60 loci were read" in page
    shares = np.loadtxt(folder / "2.Q")
    assert shares.shape == (30, 2)
    np.testing.assert_allclose(shares.sum(1), 1, atol=3e-6)
    summary = xr.load_dataset(folder / "ancestry_2.nc")
    np.testing.assert_allclose(summary["mean"], shares, atol=1e-6)
    assert summary["individual"].values[0] == "i0"
    assert json.loads((folder / "run.json").read_text())["filters"] == {"min_minor_allele_frequency": 0.05}
    figures = {figure.name for figure in (folder / "figures").iterdir()}
    assert figures >= {"ancestry.png", "trace_2.png", *(["choice.png"] if numbers == "both" else [])}


@pytest.mark.parametrize("stop", [0, *(pytest.param(stop, marks=pytest.mark.slow) for stop in (1, 2, 3))])
def test_what_was_stopped_goes_on(
    stop: int, file: Path, whole: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at a write, before or after the file has its name, and started again until it is through."""
    folder, number = file.parent / f"stopped {stop}", 0
    numbers = "both" if stop else "one"

    def interrupted(save: Any) -> Any:
        def saving(*given: Any) -> None:
            nonlocal number
            number += 1
            if number % 4 == stop:
                if stop % 2:
                    save(*given)
                raise KeyboardInterrupt
            save(*given)

        return saving

    monkeypatch.setattr(steps, "save", interrupted(steps.save))
    for _ in range(20):
        code = main(["structure", str(file), "-o", str(folder), *NUMBERS[numbers]])
        if code == 0:
            break
        assert code == 130
    assert number > 3
    for name in RESULTS[numbers]:
        assert (folder / name).read_bytes() == (whole(numbers) / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("numbers", ["2", pytest.param("1-2", marks=pytest.mark.slow)])
def test_few_genotypes_of_a_text_file(numbers: str, tmp_path: Path) -> None:
    """So few that origins would not be counted by default; one locus was not read at all."""
    rng = np.random.default_rng(0)
    rows = [
        f"ind{i} {i % 2 + 1} {100 + rng.integers(3)} {50 + rng.integers(2) + 4 * (i % 2)} -9"
        for i in np.repeat(range(12), 2)
    ]
    (tmp_path / "few.str").write_text("\n".join(["a b c", *rows]) + "\n")
    out = tmp_path / "out"
    few = str(tmp_path / "few.str")
    assert main(["structure", few, "-o", str(out), "-k", numbers, "--populations", *OPTIONS[:6]]) == 0
    assert "removed loci one allele: 1" in (out / "report.html").read_text()
    assert (out / "ancestry_2.csv").read_text().splitlines()[1].startswith("ind0,1,")


@pytest.mark.slow
def test_what_is_known_beforehand_is_taken(file: Path, whole: Callable[[str], Path], tmp_path: Path) -> None:
    """Known origins name their populations, places get a precision, and files of ADMIXTURE a comparison."""
    panel = tmp_path / "panel.bed"
    for suffix in (".bed", ".bim", ".fam"):
        panel.with_suffix(suffix).write_bytes(file.with_suffix(suffix).read_bytes())
    families = [line.split()[0] for line in panel.with_suffix(".fam").read_text().splitlines()]
    panel.with_suffix(".pop").write_text("".join(f"{name if n < 9 else '-'}\n" for n, name in enumerate(families)))
    few = ["-k", "2", *OPTIONS]
    assert main(["structure", str(panel), "-o", str(tmp_path / "known"), *few, "--supervised"]) == 0
    rows = np.genfromtxt(tmp_path / "known" / "ancestry_2.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    own = rows["group"] == rows["population"]
    assert rows["mean"][own][:9].min() > 0.999
    assert rows["mean"][own].mean() > 0.7
    assert "The origin of 9 of 30 individuals is known" in (tmp_path / "known" / "report.html").read_text()
    assert main(["structure", str(panel), "-o", str(tmp_path / "places"), *few, "--locprior"]) == 0
    report = (tmp_path / "places" / "report.html").read_text()
    assert "K was chosen with it" in report
    assert "K = 2: r is " in report
    files = [str(whole("one") / "export" / f"2.{letter}") for letter in "QP"]
    out = tmp_path / "started"
    assert main(["structure", str(panel), "-o", str(out), *NUMBERS["one"], "--start-from", *files]) == 0
    compared = np.genfromtxt(out / "comparison.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    np.testing.assert_allclose(compared["mean"] - compared["start"], compared["difference"], atol=1e-9)
    assert np.abs(compared["difference"]).mean() < 0.1


@pytest.mark.slow
def test_more_draws_and_populations_go_on(file: Path, whole: Callable[[str], Path]) -> None:
    folder = file.parent / "longer"
    for options in (["-k", "1", *OPTIONS[:2], "--draws", "5", *OPTIONS[4:]], NUMBERS["both"]):
        assert main(["structure", str(file), "-o", str(folder), *options]) == 0
    for name in RESULTS["both"]:
        assert (folder / name).read_bytes() == (whole("both") / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.bed"], "there is no file 'nowhere.bed'"),
        (["FILE", "-k", "2-31"], "K = 31 is more than the 30 individuals"),
        (["FILE", "-k", "0"], "'0' is no range such as 2-6"),
        (["FILE", "-k", "3-2"], "'3-2' has no number in it"),
        (["FILE", "--share", "1"], "share is 1.0; expected a share"),
        (["FILE", "--alpha", "-1"], "'-1' is neither a positive number nor 'learn'"),
        (["FILE", "--maf", "2"], "--maf is 2.0"),
        (["FILE", "--share", "1e-9"], "a share of 1e-09 of .* genotypes is none of them"),
        (["FILE", "-o", "FILE"], "'.*panel.bed' is a file; name a folder for the results"),
        (["FILE", "-o", "FILE/out"], "'.*panel.bed' is a file; name a folder for the results"),
        (["FILE", "--locprior", "--supervised"], "--locprior and --supervised are two priors of the same ancestry"),
        (
            ["FILE", "--supervised"],
            r"does not say whose origin is known; expected '.*panel.pop'.* --popdata and --popflag",
        ),
        (["FILE", "--start-from", "nothing.Q", "nothing.P"], "there is no file 'nothing.Q'"),
        (["FILE", "--ploidy", "2"], "is read with no options, but --ploidy is given"),
        (["FILE", "-o", "WHOLE", *NUMBERS["one"], "--seed", "3"], r"holds another run \(seed was 0 and is 3\)"),
        (["FILE", "-o", "WHOLE", *NUMBERS["one"], "--draws", "11"], r"holds another run \(draws was 12 and is 11\)"),
        (["FILE", "-o", "WHOLE", *NUMBERS["one"], "-k", "1"], r"populations was \[2\] and is \[1\]"),
    ],
)
def test_mistakes_get_one_sentence(
    arguments: list[str],
    words: str,
    file: Path,
    whole: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = whole("one")
    known = {"FILE": str(file), "FILE/out": str(file / "out"), "WHOLE": str(folder)}
    given = [known.get(word, word) for word in arguments]
    out = [] if "-o" in given else ["-o", str(tmp_path / "out")]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert main(["structure", *given, *out]) == 2
    assert re.search(words, capsys.readouterr().err.splitlines()[-1])
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert not (tmp_path / "out").exists()


def test_words_say_what_the_numbers_do() -> None:
    values = {
        "difference": ("num_populations", [-9.0, 0.0, -1.0]),
        "difference_se": ("num_populations", [3.0, 0.0, 2.0]),
    }
    choice = xr.Dataset(values, {"num_populations": [2, 3, 4]}, {"best": 3, "smallest": 3})
    assert choice_verdict(choice) == "K = 3 predicts genotypes that were hidden best."
    assert "largest that was run" in choice_verdict(choice.isel(num_populations=[0, 1]))
    assert "nothing to choose from" in choice_verdict(choice.isel(num_populations=[1]))
    assert choice_verdict(choice.assign_attrs(best=4)) == (
        "The data do not tell K = 3 and K = 4 apart: K = 4 predicts hidden genotypes better by 0.0, with a standard "
        "error of 0.0. By the rule of one standard error, which takes the smallest number that is behind by less, "
        "it is K = 3."
    )
    assert Convergence(1.005, 400, 0.01, 1, 4).words == "yes"
    assert Convergence(1.05, 100, 0.02, 1, 4).words.startswith("nearly")
    assert Convergence(1.3, 30, 0.06, 1, 4).words.startswith("no: the chains are up to 0.06 of ancestry apart")
    assert Convergence(1.0, 400, 0.3, 2, 4).words.startswith("no: the chains are in 2 groups")


OF_STRUCTURE = {
    "zero": ("m1 m2\na 1 0\na 1 3\n", [], "pass --missing 0 if 0 stands for .* or --missing -9 if it is an allele"),
    "columns": (
        "m1 m2\na p 1 2\na p 1 3\n",
        [],
        "line 2 .* --popdata, --popflag, --locdata, --phenotype and --extra-columns",
    ),
    "names": ("a 1 2\na 1 3\n", [], "pass --num-loci 2 if 1 of the 3 columns"),
    "rows": ("m1 m2\na 1 2 1 3\n", [], "--onerowperind fits"),
    "mainparams": ("m1 m2\na 1 2\na 1 3\n", ["--mainparams", "MAIN"], "has 1 individual; expected 7"),
    "override": ("m1 m2\na 1 2\na 1 3\n", ["--mainparams", "MAIN", "--numinds", "9"], "has 1 individual; expected 9"),
}


@pytest.mark.parametrize("case", OF_STRUCTURE)
def test_messages_on_files_name_options(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, options, words = OF_STRUCTURE[case]
    (tmp_path / "a.str").write_text(text)
    (tmp_path / "mainparams").write_text("#define NUMINDS 7\n#define LABEL 1\n")
    given = [str(tmp_path / "mainparams") if option == "MAIN" else option for option in options]
    assert main(["structure", str(tmp_path / "a.str"), "-o", str(tmp_path / "out"), *given]) == 2
    assert not (tmp_path / "out").exists()
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.search(words, said), said
    assert not re.search("missing=|num_loci|one_row|extra_columns|population_flags|num_individuals=", said)
