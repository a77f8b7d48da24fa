"""Imports point one way, files stay short, and importing bayeslab costs and changes nothing."""

import ast
import json
import operator
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import bayeslab as bl

ROOT = Path(__file__).parents[1]

# A folder imports only from itself and from those before it. "verbs" are the files beside the folders.
FOLDERS = (
    *("distributions", "gaussian_processes", "formulas", "programs", "elimination", "results", "verification"),
    *(
        "program_graphs",
        "transforms",
        "sampling",
        "methods",
        "mixed_membership",
        "diagnostics",
        "verbs",
        "prediction",
        "control",
    ),
    *("monte_carlo", "particles", "graphical_models", "calibration", "datasets", "states", "topics", "populations"),
    *("supervised", "plots", "reports", "command_line"),
)

LECTURES_MAY_IMPORT = ("bayeslab", "bayeslab.models", "bayeslab.distributions", "bayeslab.gaussian_processes")

# Packages that no fit needs, or that are loaded on first use.
LATE = {"arviz", "arviz_base", "arviz_plots", "arviz_stats", "bed_reader", "cyvcf2", "matplotlib", "pandas", "sklearn"}
LATE |= {"equinox", "flax", "graphviz", "networkx", "tinygp", "tqdm", "xarray"}

IMPORT = """
import json, sys
import jax, numpyro
settings, loaded = dict(jax.config.values), set(sys.modules)
import bayeslab
bayeslab.fit, bayeslab.NUTS, bayeslab.explain
print(json.dumps({
    "changed": [name for name, value in jax.config.values.items() if settings.get(name) != value],
    "added": sorted(set(sys.modules) - loaded),
}))
"""


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in (ROOT / "bayeslab").rglob("*.py")}


def folder_of(module: str) -> str:
    _, *inside = module.split(".")
    return inside[0] if len(inside) > 1 or inside[0] in FOLDERS else "verbs"


def package_of(path: Path) -> tuple[str, ...]:
    return path.relative_to(ROOT).parent.parts


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_import_one_way(folder: str) -> None:
    """Anywhere in a file: at the top, inside functions, for annotations only."""
    allowed = {*FOLDERS[: FOLDERS.index(folder) + 1]}
    for module, path in MODULES.items():
        if module != "bayeslab" and folder_of(module) == folder:
            names = {name for _, name in bayeslab_imports(path, package_of(path))} - {"bayeslab.models"}
            if folder == "command_line":
                names -= {"bayeslab"}
            assert {folder_of(name) for name in names} <= allowed, module


def test_no_module_imports_itself_through_others() -> None:
    """Imports of modules, as soon as they are imported themselves, have no cycle."""
    graph = {
        module: {name for top_level, name in bayeslab_imports(path, package_of(path)) if top_level} & MODULES.keys()
        for module, path in MODULES.items()
    }
    # what a package hands on is imported with any of its modules
    graph = {module: {name for name in names if MODULES[name].name != "__init__.py"} for module, names in graph.items()}
    TopologicalSorter(graph).prepare()


def test_no_module_is_hidden_by_what_a_package_hands_on() -> None:
    for module, path in MODULES.items():
        if path.name == "__init__.py":
            inside = {name for name in MODULES if name.rpartition(".")[0] == module}
            handed = {f"{module}.{name}" for name in getattr(import_module(module), "__all__", ())}
            hidden = {name for name in inside & handed if not isinstance(operator.attrgetter(name[9:])(bl), ModuleType)}
            assert not hidden


def test_completion_shows_what_users_need() -> None:
    assert dir(bl) == sorted(bl.__all__)
    assert all(hasattr(bl, name) for name in bl.__all__)
    assert sum(not isinstance(getattr(bl, name), ModuleType) for name in bl.__all__) < 52


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: path.stem)
def test_tests_do_not_import_by_the_folder_of_tests(path: Path) -> None:
    """It is no package on the path of pytest, only where the project's folder happens to be on Python's."""
    for node in ast.walk(ast.parse(path.read_text())):
        assert not any(name.split(".")[0] == "tests" for name in imported_modules(node, ())), ast.unparse(node)


@pytest.mark.parametrize("path", sorted((ROOT / "models").glob("*.py")), ids=lambda path: path.stem)
def test_lectures_import_the_engine_for_distributions_and_data_only(path: Path) -> None:
    """A lecture is a NumPyro program; the engine gives it what NumPyro lacks and, inside its functions, real data."""
    for top_level, name in bayeslab_imports(path, ("bayeslab", "models")):
        package = ".".join(name.split(".")[:2])
        data = package == "bayeslab.datasets" and not top_level
        assert data or package in LECTURES_MAY_IMPORT, name


def bayeslab_imports(path: Path, package: tuple[str, ...]) -> Iterator[tuple[bool, str]]:
    """The modules of bayeslab that a file imports, and whether as soon as it is imported itself."""
    tree = ast.parse(path.read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        for name in imported_modules(node, package):
            if name.split(".")[0] == "bayeslab":
                yield id(node) not in inside, name


def imported_modules(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    """The absolute names of the modules an import statement loads: `from package import module` is one."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    start = package[: len(package) - node.level + 1] if node.level else ()
    source = ".".join((*start, *filter(None, [node.module])))
    modules = MODULES.keys() | {"bayeslab.models"}
    return [full if (full := f"{source}.{alias.name}") in modules else source for alias in node.names]


@pytest.mark.parametrize("folder", ["bayeslab", "models", "tests", "benchmarks"])
def test_files_are_short(folder: str) -> None:
    """At most 400 lines; of the engine and the lectures at most 350, and half of them below 130."""
    lengths = {str(path): len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py")}
    engine = folder in ("bayeslab", "models")
    assert {path: length for path, length in lengths.items() if length > (350 if engine else 400)} == {}
    assert not engine or statistics.median(lengths.values()) < 130


def test_folders_are_small() -> None:
    for folder in {path.parent for path in MODULES.values()}:
        assert len(list(folder.glob("*.py"))) <= 14, folder


def test_importing_bayeslab_changes_no_setting_and_loads_little() -> None:
    """JAX's configuration stays as it was; what a fit does not need is loaded on first use."""
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["changed"] == []
    assert LATE.isdisjoint(report["added"])
    assert "scipy.stats" not in report["added"]
    assert not any(name.startswith(("bayeslab.models", "bayeslab.datasets")) for name in report["added"])


FIT = """
from bayeslab.models import normal_gamma as lecture
bl.fit(0, lecture.model, lecture.example(), bl.SVI(num_steps=10, num_samples=10), progress=False)
"""
ORDERS = (
    "import arviz; import bayeslab as bl",
    "import bayeslab as bl; import arviz; import bayeslab.datasets",
)


@pytest.mark.parametrize("imports", ORDERS)
def test_arviz_may_be_imported_first(imports: str) -> None:
    """It leaves half of numpyro in its place, to be loaded later, and that half misses what SVI needs."""
    done = subprocess.run([sys.executable, "-c", imports + FIT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_folders_import_numpyro_as_a_whole_first() -> None:
    """Where a part comes first, half of numpyro that ArviZ left stays half: `from bayeslab.monte_carlo import SMC`."""
    parts = re.compile(r"^(from numpyro|import numpyro\.)", re.MULTILINE)
    for folder in {path.relative_to(ROOT / "bayeslab").parts[0] for path in MODULES.values()} - {"models"}:
        modules = [path.read_text() for path in (ROOT / "bayeslab" / folder).rglob("*.py")]
        if any(map(parts.search, modules)):
            assert "\nimport numpyro  #" in (ROOT / "bayeslab" / folder / "__init__.py").read_text(), folder


def test_no_test_imports_another_test() -> None:
    """What tests share is in tests/catalogue."""
    for path in (ROOT / "tests").rglob("*.py"):
        assert "from test_" not in path.read_text().replace('"from test_"', ""), path
