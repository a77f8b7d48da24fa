"""Population structure at size: a sweep of Gibbs, and the point estimate beside ADAMIXTURE and fastmixture.

.venv/bin/python benchmarks/structure.py sweep
.venv/bin/python benchmarks/structure.py point --peers .tools/admixture/bin
.venv/bin/python benchmarks/structure.py posterior --sweeps 2000
"""

import argparse
import os
import resource
import subprocess
import tempfile
import time
from itertools import permutations
from pathlib import Path

import numpy as np

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
os.environ.update(ONE_THREAD)

import arviz_stats as azs  # noqa: E402
import jax  # noqa: E402

import bayeslab as bl  # noqa: E402
from bayeslab.datasets import simulated_genotypes  # noqa: E402
from bayeslab.methods.gibbs import Gibbs  # noqa: E402
from bayeslab.models import structure_admixture  # noqa: E402
from bayeslab.program import precision, structure  # noqa: E402
from bayeslab.runner import compiled  # noqa: E402

SWEEPS = {
    "K = 2": (1000, 10_000, 2, 2),
    "K = 5": (1000, 10_000, 5, 2),
    "K = 10": (1000, 10_000, 10, 2),
    "K = 20": (1000, 10_000, 20, 2),
    "K = 5, 1,000 loci": (1000, 1000, 5, 2),
    "K = 5, 6 alleles": (300, 10_000, 5, 6),
    "K = 5, 12 alleles": (300, 10_000, 5, 12),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sweep", "point", "posterior"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=Path(".tools/admixture/bin"))
    parser.add_argument("--sweeps", type=int, default=2000)
    asked = parser.parse_args()
    {"sweep": sweep, "point": point, "posterior": posterior}[asked.what](asked)


def sweep(asked: argparse.Namespace) -> None:
    """Nanoseconds of CPU per allele copy of a whole sweep: origins, counts, ancestry, frequencies and log joint."""
    cases = {name: _one_sweep(*case) for name, case in SWEEPS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(asked.rounds):
        for name, (run, _, _) in cases.items():
            began = time.process_time()
            run()
            seconds[name].append(time.process_time() - began)
    for name, (_, copies, memory) in cases.items():
        each = 1e9 * np.array(seconds[name]) / copies
        print(f"{name:20} {np.median(each):6.2f} ns ({each.min():.2f} to {each.max():.2f}); {memory}")


def _one_sweep(individuals: int, loci: int, populations: int, alleles: int):
    rng = np.random.default_rng(0)
    y = rng.integers(0, alleles, (individuals, loci, 2)).astype(np.uint8)
    data = {"num_individuals": individuals, "num_alleles": np.full(loci, alleles), "y": y}
    with precision():
        bound = bl.bind(structure_admixture.model, data | {"num_populations": populations})
        code = compiled(Gibbs(counts=True).plan(bound), structure(bound), None)
        given = code.prepare(bound)
        state = code.start(np.zeros(2, np.uint32), given)
        state, _ = jax.block_until_ready(code.advance(np.int32(1), np.int32(1), state, given))
    packed = given.packed.nbytes / y.nbytes

    def run() -> None:
        with precision():
            jax.block_until_ready(code.advance(np.int32(1), np.int32(1), state, given))

    return run, y.size, f"bytes kept: {packed:.2f} of the alleles'"


def point(asked: argparse.Namespace) -> None:
    """CPU seconds, log likelihood and error of the point estimate of 500 individuals, 20,000 loci, K = 3."""
    truth = simulated_genotypes(500, 20_000, 3, seed=0)
    y = truth["y"].values.astype(np.uint8)
    varies = (y.min((0, 2)) != y.max((0, 2))).nonzero()[0]
    y, ancestry = y[:, varies], truth["ancestry"].values
    data = {"num_individuals": 500, "num_alleles": np.full(y.shape[1], 2), "num_populations": 3, "y": y}
    for number in range(asked.rounds):
        began = time.process_time()
        tree = bl.fit(number, structure_admixture.model, data, bl.MAP(), progress=False)
        spent = time.process_time() - began
        q, p = (tree["posterior"][name].values[0, 0] for name in ("ancestry", "frequencies"))
        compiling = f", {tree.attrs['compile_seconds']:.1f} s of them to compile" if number == 0 else ""
        report("bayeslab", spent, log_likelihood(y, q, p[..., 1]), q, ancestry, compiling)
    with tempfile.TemporaryDirectory() as folder:
        write_plink(Path(folder) / "data", y)
        for number in range(min(asked.rounds, 2)):
            for name, command in peers(asked.peers, folder, number).items():
                before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                done = subprocess.run(command, env=os.environ | ONE_THREAD, capture_output=True, text=True, cwd=folder)
                spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
                if done.returncode:
                    print(name, "failed:", done.stderr[-500:])
                    continue
                q, p = (np.loadtxt(next(Path(folder).glob(f"{name}*.{end}"))) for end in ("Q", "P"))
                report(name, spent, max(log_likelihood(y, q, p.T), log_likelihood(y, q, 1 - p.T)), q, ancestry)
                for one in Path(folder).glob(f"{name}*"):
                    one.unlink()


def peers(folder: Path, data: str, seed: int) -> dict[str, list[str]]:
    folder = folder.absolute()
    commands = {
        "adamixture": "--min_k 3 --max_k 3 --data_path data.bed --save_dir . --name adamixture -t 1 --seed",
        "fastmixture": "--bfile data --K 3 --threads 1 --out fastmixture --seed",
    }
    there = {name: [str(folder / name), *line.split(), str(seed + 1)] for name, line in commands.items()}
    return {name: command for name, command in there.items() if Path(command[0]).exists()}


def posterior(asked: argparse.Namespace) -> None:
    """Effective draws of ancestry from a cold start, on data that come from the model: uniform frequencies, alpha 1."""
    rng = np.random.default_rng(0)
    p, ancestry = rng.random((3, 20_000)), rng.dirichlet(np.ones(3), 500)
    y = (rng.random((500, 20_000, 2)) < (ancestry @ p)[..., None]).astype(np.uint8)
    data = {"num_individuals": 500, "num_alleles": np.full(20_000, 2), "num_populations": 3, "y": y}
    began = time.process_time()
    method = bl.Gibbs(num_warmup=200, num_samples=asked.sweeps, num_chains=1)
    tree = bl.fit(0, structure_admixture.model, data, method, progress=False)
    spent = time.process_time() - began
    q = tree["posterior"].to_dataset()[["ancestry"]]
    ess = azs.ess(q)["ancestry"].values
    order = list(
        min(permutations(range(3)), key=lambda s: error(q["ancestry"].values[0].mean(0)[:, list(s)], ancestry))
    )
    low, high = np.quantile(q["ancestry"].values[0][:, :, order], [0.05, 0.95], axis=0)
    print(
        f"{spent:.1f} CPU s, {tree.attrs['compile_seconds']:.1f} s of them to compile; {asked.sweeps} sweeps after 200"
    )
    print(f"effective draws of an element: {ess.min():.0f} at least, {np.median(ess):.0f} in the median")
    print(f"90 % intervals cover {((ancestry >= low) & (ancestry <= high)).mean():.3f}")


def report(name: str, spent: float, log_density: float, q: np.ndarray, truth: np.ndarray, more: str = "") -> None:
    rmse = min(error(q[:, list(order)], truth) for order in permutations(range(q.shape[1])))
    print(f"{name:12} {spent:7.2f} CPU s, log likelihood {log_density:.2f}, RMSE {rmse:.5f}{more}", flush=True)


def error(q: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(((q - truth) ** 2).mean()))


def log_likelihood(y: np.ndarray, q: np.ndarray, p: np.ndarray) -> float:
    mean = np.clip(q @ p, 1e-12, 1 - 1e-12)
    number = y.sum(-1)
    return float((number * np.log(mean) + (y.shape[2] - number) * np.log1p(-mean)).sum())


def write_plink(path: Path, y: np.ndarray) -> None:
    """Counts of the second allele as .bed, .bim and .fam."""
    code = np.array([0b11, 0b10, 0b00], np.uint8)[y.sum(-1)].T
    code = np.pad(code, ((0, 0), (0, -len(y) % 4))).reshape(len(code), -1, 4)
    packed = (code << np.array([0, 2, 4, 6], np.uint8)).sum(-1, dtype=np.uint8)
    path.with_suffix(".bed").write_bytes(bytes([0x6C, 0x1B, 0x01]) + packed.tobytes())
    path.with_suffix(".bim").write_text("".join(f"1\ts{i}\t0\t{i + 1}\tA\tG\n" for i in range(len(code))))
    path.with_suffix(".fam").write_text("".join(f"f{i}\ti{i}\t0\t0\t0\t-9\n" for i in range(len(y))))


if __name__ == "__main__":
    main()
