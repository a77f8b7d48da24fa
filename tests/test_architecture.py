"""Imports point one way, files stay short, and importing bayeslab costs and changes nothing."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A module imports only from those before it.
ORDER = (
    "kernels",
    *("processes.moments", "processes.cholesky", "processes.dense"),
    *("processes.low_rank", "processes.periodic", "processes.hilbert_space", "processes.inducing_points"),
    *(
        "distributions.enumerated",
        "distributions.places",
        "distributions.random_bits",
        "distributions.gamma",
        "distributions.joint_normal",
        "distributions.kalman",
        "distributions.linear_gaussian_chain",
        "processes.small_matrices",
        "processes.state_space_kernels",
        "processes.scalar_kalman",
        "processes.motions",
        "processes.state_space",
        "processes",
        "solvers",
        "distributions.gaussian_process",
        "distributions.markov_recursions",
        "distributions.markov_rows",
        "distributions.markov_tiles",
        "distributions.markov_lanes",
        "distributions.markov_parallel",
        "distributions.markov_paths",
        "distributions.markov_draws",
        "distributions.markov_inference",
        "distributions.markov_chain",
        "distributions.padded_dirichlet",
        "distributions.ordered",
    ),
    "distributions",
    *(
        "observation",
        "subsampling",
        "compilation",
        "program",
        "entries",
        "flow",
        "checks",
        "bind",
        "unconstrained",
        "draws",
    ),
    *("analyticity", "branches", "terms", "replacement", "cubature", "families", "elimination", "points"),
    *("law", "likely", "optimum", "branching", "undefined", "proof", "order", "sweep"),
    *("statistics", "labels", "compress", "watch", "collapse", "expectation", "conflict"),
    *(
        "methods",
        "methods.settings",
        "methods.starts",
        "methods.acceleration",
        "methods.factors",
        "methods.minibatches",
        "methods.recovering",
        "methods.summarising",
    ),
    *(
        "membership",
        "membership.devices",
        "membership.alleles",
        "membership.dirichlet",
        "membership.tokens",
        "membership.blocks",
        "membership.pairs",
        "membership.alternating",
    ),
    *("membership.found", "membership.data"),
    *("membership.ascent", "membership.newton", "membership.spectral", "membership.layout", "membership.likeliest"),
    *(
        "membership.cut",
        "membership.carried",
        "membership.two_alleles",
        "membership.summed",
        "membership.summed_loci",
        "membership.exchange",
        "membership.summed_sweep",
    ),
    *("membership.parts", "membership.closest", "membership.watched"),
    *(
        "methods.stated",
        "methods.exact",
        "methods.mcmc",
        "methods.membership_point",
        "methods.membership_gibbs",
        "methods.membership_mean_field",
        "methods.membership_batches",
        "methods.gibbs",
        "methods.svi",
        "methods.laplace",
    ),
    *("methods.em", "methods.mean_field", "plan", "explain"),
    *(
        "executables",
        "runner",
        "digest",
        "tree",
        "progress",
        "saving",
        "checkpoints",
        "continuation",
        "importance",
        "starting",
        "improper",
        "fit",
    ),
    *(
        "likelihood",
        "generative",
        "predict",
        "process_predictions",
        "recover",
        "series",
        "hidden_states",
        "held_out",
        "populations",
        "replication",
        "calibration",
        "uniformity",
    ),
    *("alignment", "modes", "peaks", "comparison", "joint_distribution", "diagnosis", "topics", "ancestry"),
    *("plots", "plots_states", "plots_topics", "plots_structure", "plots_processes", "plots_calibration", "card"),
    "datasets.arguments",
    *(
        "datasets.documents",
        "datasets.genotypes",
        "datasets.motifs",
        "datasets.regression",
        "datasets.scales",
        "datasets.sequences",
    ),
    *(
        "datasets.genotype_form",
        "datasets.plink",
        "datasets.vcf",
        "datasets.structure_text",
        "datasets.genotype_files",
        "datasets.filtering",
    ),
    *("datasets.series", "datasets.state_space", "datasets.tables", "datasets"),
    *("columns", "demonstration", "structure_run", "structure_report", "command_line"),
)

# Packages that no fit needs, or that are loaded on first use.
LATE = {"arviz", "arviz_base", "arviz_plots", "arviz_stats", "bed_reader", "cyvcf2", "matplotlib", "pandas", "sklearn"}
LATE |= {"equinox", "tinygp", "tqdm", "xarray"}

IMPORT = """
import json, sys
import jax, numpyro
settings, loaded = dict(jax.config.values), set(sys.modules)
import bayeslab
print(json.dumps({
    "changed": [name for name, value in jax.config.values.items() if settings.get(name) != value],
    "added": sorted(set(sys.modules) - loaded),
}))
"""


def engine_file(module: str) -> Path:
    path = ROOT.joinpath("bayeslab", *module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_every_engine_file_has_its_place() -> None:
    """A new file enters ORDER, where a reader looks for what it may import."""
    files = set((ROOT / "bayeslab").rglob("*.py")) - {ROOT / "bayeslab" / "__init__.py"}
    assert files == {engine_file(module) for module in ORDER}


@pytest.mark.parametrize("module", ORDER)
def test_engine_imports_only_what_comes_before(module: str) -> None:
    """Anywhere in the file: at the top, inside functions, for annotations only."""
    allowed = {f"bayeslab.{earlier}" for earlier in ORDER[: ORDER.index(module)]}
    if module == "command_line":
        allowed |= {"bayeslab", "bayeslab.models"}
    path = engine_file(module)
    package = path.relative_to(ROOT).parent.parts
    assert {name for _, name in bayeslab_imports(path, package)} <= allowed


@pytest.mark.parametrize("path", sorted((ROOT / "models").glob("*.py")), ids=lambda path: path.stem)
def test_lectures_import_the_engine_for_distributions_and_data_only(path: Path) -> None:
    """A lecture is a NumPyro program; the engine gives it what NumPyro lacks and, inside its functions, real data."""
    for top_level, name in bayeslab_imports(path, ("bayeslab", "models")):
        package = ".".join(name.split(".")[:2])
        data = package == "bayeslab.datasets" and not top_level
        assert data or package in ("bayeslab.models", "bayeslab.distributions", "bayeslab.kernels"), name


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
    modules = {f"bayeslab.{module}" for module in ORDER} | {"bayeslab.models"}
    return [full if (full := f"{source}.{alias.name}") in modules else source for alias in node.names]


@pytest.mark.parametrize("folder", ["bayeslab", "models", "tests", "benchmarks"])
def test_files_are_short(folder: str) -> None:
    """At most 400 lines, most far fewer."""
    lengths = {str(path): len(path.read_text().splitlines()) for path in (ROOT / folder).rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > 400} == {}


def test_importing_bayeslab_changes_no_setting_and_loads_little() -> None:
    """JAX's configuration stays as it was; what a fit does not need is loaded on first use."""
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["changed"] == []
    assert LATE.isdisjoint(report["added"])
    assert "scipy.stats" not in report["added"]
    assert not any(name.startswith(("bayeslab.models", "bayeslab.datasets")) for name in report["added"])


ARVIZ_FIRST = """
import arviz
import bayeslab as bl
from bayeslab.models import normal_gamma as lecture
bl.fit(0, lecture.model, lecture.example(), bl.SVI(num_steps=10, num_samples=10), progress=False)
"""


def test_arviz_may_be_imported_first() -> None:
    """It leaves half of numpyro in its place, to be loaded later, and that half misses what SVI needs."""
    done = subprocess.run([sys.executable, "-c", ARVIZ_FIRST], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
