"""The wheel: what it contains, and that it works alone, from any directory."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from shutil import copytree
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]

USE = """
import numpyro, bayeslab, bayeslab.models
from bayeslab.models import linear_regression
print(bayeslab.__file__, bayeslab.models.__file__, sep="\\n")
tree = bayeslab.fit(0, linear_regression.model, linear_regression.example(), bayeslab.MAP(), progress=False)
assert {"tau", "w"} <= set(tree["posterior"].data_vars)
"""


CONDA_NAMES = {"graphviz": "python-graphviz", "lazy-loader": "lazy_loader", "matplotlib": "matplotlib-base"}
"""The names that packages have on conda-forge where these are others."""


def test_the_conda_recipe_has_the_dependencies_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / "docs" / "conda" / "meta.yaml").read_text()
    expected = {"python": project["requires-python"]}
    for requirement in project["dependencies"]:
        name, bounds = re.fullmatch(r"([\w.-]+?)\s*([<>=~!].*)?", requirement).groups()
        expected[CONDA_NAMES.get(name, name)] = bounds or ""
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    listed = [line.strip().removeprefix("- ").partition(" ") for line in run.splitlines()]
    assert {name: bounds for name, _, bounds in listed} == expected
    assert len(listed) == len(expected)
    assert f'version: "{project["version"]}"' in recipe
    assert f"license: {project['license']}" in recipe
    [(command, target)] = project["scripts"].items()
    assert f"- {command} = {target}" in recipe


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree, for setuptools leaves folders in what it builds."""
    tree, dist = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for folder in ("bayeslab", "models"):
        copytree(ROOT / folder, tree / folder)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        (tree / file).write_text((ROOT / file).read_text())
    uv("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", dist, tree)
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the wheel installed; the dependencies are those of the running tests."""
    folder = tmp_path_factory.mktemp("environment")
    uv("venv", "--python", sys.executable, "--allow-existing", folder)
    python = next(folder.glob("[bS]*/python*"))
    uv("pip", "install", "--python", python, "--no-deps", "--no-index", wheel)
    (packages,) = {Path(p) for p in folder.glob("**/site-packages")}
    # A path in a .pth file is searched last, and its own .pth files, hence the editable install, are not read.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def test_wheel_contains_every_module_and_no_others(wheel: Path) -> None:
    """The engine as bayeslab, the lectures as bayeslab.models; no tests, no top-level models."""
    with ZipFile(wheel) as archive:
        modules = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    engine = {str(path.relative_to(ROOT)) for path in (ROOT / "bayeslab").rglob("*.py")}
    engine |= {"bayeslab/__init__.pyi", "bayeslab/py.typed", "bayeslab/plots/bayeslab.mplstyle"}
    lectures = {f"bayeslab/models/{path.name}" for path in (ROOT / "models").glob("*.py")}
    assert modules == engine | lectures


def test_wheel_works_alone_from_any_directory(environment: Path, tmp_path: Path) -> None:
    """bayeslab and bayeslab.models come from the wheel, and a lecture model is fitted."""
    for file in run(environment, tmp_path, "python", "-c", USE).split():
        assert Path(file).is_relative_to(environment)


def test_command_works_from_any_directory(environment: Path, tmp_path: Path) -> None:
    """The installed command lists the catalogue."""
    assert "linear_regression" in run(environment, tmp_path, "bayeslab", "models")


def run(environment: Path, folder: Path, command: str, *arguments: str) -> str:
    """What a command of the environment prints when called in the folder, free of Python's variables."""
    program = next(environment.glob(f"[bS]*/{command}*"))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [program, *arguments], cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def uv(*arguments: str | Path) -> None:
    """Run the uv that the development dependencies bring, without a network."""
    done = subprocess.run(
        [sys.executable, "-m", "uv", "--offline", "--quiet", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
