"""Runs the scripts one after the other and writes their tables into README.md, which the guide shows.

    python benchmarks/renew.py                                   # all
    python benchmarks/renew.py nuts.py "structure.py sweep"      # some
    python benchmarks/renew.py --rounds 3 topics.py              # all of one script

A table stands between two comments that name its script, with the day, the machine and the versions above it. What a
script that fails had written before stays.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
ROUNDS = {
    "nuts.py": 5,
    "first_posterior.py": 5,
    "gibbs.py": 5,
    "mixture.py": 5,
    "mixture_posterior.py": 3,
    "mean_field.py": 5,
    "latent_linear.py": 5,
    "autoencoder.py": 5,
    "hierarchies_jags.py": 3,
    "planning.py": 3,
    "discrete.py": 3,
    "structure.py sweep": 5,
    "structure.py point": 2,
    "structure.py posterior": 3,
    "topics.py sweep": 5,
    "topics.py perplexity": 5,
    "hidden_markov.py": 3,
    "hidden_markov_posterior.py": 3,
    "gaussian_processes.py gradient": 7,
    "gaussian_processes.py line": 7,
    "gaussian_processes.py nuts": 3,
}
"""Command -> how often it measures, unless told otherwise."""

OWN = {"NumPy": "numpy", "scikit-learn": "scikit-learn"}
PEERS = {
    "nutpie": ("peers", "nutpie"),
    "PyMC": ("peers", "pymc"),
    "tomotopy": ("peers", "tomotopy"),
    "Stan": ("stan", "pystan"),
    "dynamax": ("hmm", "dynamax"),
    "hmmlearn": ("hmm", "hmmlearn"),
    "adamixture": ("admixture", "adamixture"),
    "fastmixture": ("admixture", "fastmixture"),
}
"""Word of a table -> the environment in .tools that it comes from, and the package."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", help="by default all: " + ", ".join(ROUNDS))
    parser.add_argument("--rounds", type=int, help="by default each its own")
    options = parser.parse_args()
    asked = [name for name in ROUNDS if not options.scripts or {name, name.split()[0]} & set(options.scripts)]
    known = set(ROUNDS) | {name.split()[0] for name in ROUNDS}
    if unknown := set(options.scripts) - known:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(ROUNDS)}")
    page = PAGE.read_text()
    assert all(place(name).search(page) for name in asked), "README.md needs a pair of comments for every command"
    failed = [name for name in asked if not renewed(name, options.rounds or ROUNDS[name])]
    if failed:
        sys.exit(f"not renewed, because they failed: {', '.join(failed)}")


def renewed(name: str, rounds: int) -> bool:
    """Whether a command ran and its tables are in the page."""
    print(f"== {name}", flush=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_COMPILATION")}
    script, *words = name.split()
    command = [sys.executable, str(HERE / script), *words, "--rounds", str(rounds)]
    lines = []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    tables = "".join(lines).strip()
    if process.returncode or not tables:
        return False
    write(name, f"{measured(rounds, tables)}\n\n{tables}")
    return True


def write(name: str, text: str) -> None:
    """Replace what stands between the comments of a command."""
    page = place(name).sub(lambda _: f"\n\n{text}\n\n", PAGE.read_text())
    new = PAGE.with_suffix(".new")
    new.write_text(page)
    os.replace(new, PAGE)


def place(name: str) -> re.Pattern[str]:
    return re.compile(f"(?<=<!-- {re.escape(name)} -->).*?(?=<!-- /{re.escape(name)} -->)", re.DOTALL)


def measured(rounds: int, tables: str) -> str:
    """When, where and with what: the packages that the tables name."""
    repeated = f"{rounds} round{'s' if rounds > 1 else ''}"
    versions = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in ("jax", "numpyro"))]
    named = set(re.findall(r"[\w-]+", tables))
    versions += [f"{package} {version(package)}" for word, package in OWN.items() if word in named]
    there = ((where[1], version_there(*where)) for word, where in PEERS.items() if word in named)
    versions += [f"{package} {number}" for package, number in there if number]
    if "JAGS" in named:
        versions.append(jags())
    return f"Measured on {date.today():%-d %B %Y} on {machine()}; {repeated}; {', '.join(versions)}."


def machine() -> str:
    kind = platform.machine().replace("_", "-")
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return f"a {os.cpu_count()}-core {kind} CPU" + (f" ({model[1].strip()})" if model else "")


def version_there(environment: str, package: str) -> str:
    """That of a package in another environment."""
    python = HERE.parent / ".tools" / environment / "bin" / "python"
    command = [str(python), "-c", f"from importlib.metadata import version; print(version({package!r}))"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() if python.exists() else ""


def jags() -> str:
    """JAGS greets with its version."""
    greeting = subprocess.run(["jags"], input="exit\n", capture_output=True, text=True).stdout
    return " ".join(greeting.split()[2:4])


if __name__ == "__main__":
    main()
