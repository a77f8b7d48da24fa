"""Population structure at size: a sweep of Gibbs, and the point estimate beside ADAMIXTURE and fastmixture.

.venv/bin/python benchmarks/structure.py sweep
.venv/bin/python benchmarks/structure.py point --peers .tools/admixture/bin
.venv/bin/python benchmarks/structure.py posterior --sweeps 1000
"""

import argparse
import resource
import subprocess
import tempfile
import time
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from race import arguments, pin
from tables import note, number, spread, table

SWEEPS = {
    "K = 2": (1000, 10_000, 2, 2),
    "K = 5": (1000, 10_000, 5, 2),
    "K = 10": (1000, 10_000, 10, 2),
    "K = 20": (1000, 10_000, 20, 2),
    "K = 5, 1,000 loci": (1000, 1000, 5, 2),
    "K = 5, 6 alleles": (300, 10_000, 5, 6),
    "K = 5, 12 alleles": (300, 10_000, 5, 12),
}
MAP = "bayeslab, `bl.MAP()`"
PEERS = {
    "adamixture": "--min_k 3 --max_k 3 --data_path data.bed --save_dir . --name adamixture -t 1 --seed",
    "fastmixture": "--bfile data --K 3 --threads 1 --out fastmixture --seed",
}
"""Program -> its arguments, all but the value of the last."""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("what", choices=["sweep", "point", "posterior"])
    parser.add_argument("--peers", type=Path, default=Path(".tools/admixture/bin"), help="folder of the other programs")
    parser.add_argument("--sweeps", type=int, default=1000)
    asked = parser.parse_args()
    pin(asked.core)  # before JAX counts the cores
    {"sweep": sweep, "point": point, "posterior": posterior}[asked.what](asked)


def sweep(asked: argparse.Namespace) -> None:
    """Nanoseconds of CPU per allele copy of a whole sweep, the mean of those without origins and the one with them."""
    from bayeslab.mixed_membership.samplers.gibbs import SWEEPS_PER_ORIGIN_DRAW

    cases = {name: _one_sweep(*case, SWEEPS_PER_ORIGIN_DRAW) for name, case in SWEEPS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(asked.rounds):
        for name, (run, _, _) in cases.items():
            began = time.process_time()
            run()
            seconds[name].append((time.process_time() - began) / SWEEPS_PER_ORIGIN_DRAW)
    rows = []
    for name, (_, copies, kept) in cases.items():
        rows.append([name, spread(1e9 * np.array(seconds[name]) / copies), number(kept)])
    table(["one sweep", "ns per allele copy", "bytes kept per allele copy"], rows)


def _one_sweep(individuals: int, loci: int, populations: int, alleles: int, sweeps: int):
    import jax

    import bayeslab as bl
    from bayeslab.mixed_membership.methods import Gibbs
    from bayeslab.models import structure_admixture
    from bayeslab.programs.program import compilation_signature, precision_scope
    from bayeslab.sampling.executables import compile_sampler
    from bayeslab.transforms.analysis import Analysis

    rng = np.random.default_rng(0)
    y = rng.integers(0, alleles, (individuals, loci, 2)).astype(np.uint8)
    data = {"num_individuals": individuals, "num_alleles": np.full(loci, alleles), "y": y}
    with precision_scope():
        bound = bl.bind(structure_admixture.model, data | {"num_populations": populations})
        code = compile_sampler(Gibbs(num_warmup=1).plan(Analysis(bound)), compilation_signature(bound), None)
        code.make_ready("start")
        given = code.prepare(bound)
        state = code.start(np.zeros(2, np.uint32), given)
        state, _ = jax.block_until_ready(code.advance(np.int32(1), np.int32(1), state, given))
    packed = given.packed.nbytes / y.nbytes

    def run() -> None:
        with precision_scope():
            jax.block_until_ready(code.advance(np.int32(1), np.int32(sweeps), state, given))

    return run, y.size, packed


def point(asked: argparse.Namespace) -> None:
    """CPU seconds, log likelihood and error of the point estimate of 500 individuals, 20,000 loci, K = 3."""
    import bayeslab as bl
    from bayeslab.models import structure_admixture

    y, ancestry = _drifted()
    data = {"num_individuals": 500, "num_alleles": np.full(y.shape[1], 2), "num_populations": 3, "y": y}

    def ours(seed: int) -> tuple[float, float, float]:
        began = time.process_time()
        tree = bl.fit(seed, structure_admixture.model, data, bl.MAP(), progress=False)
        spent = time.process_time() - began
        q, p = (tree["posterior"][name].values[0, 0] for name in ("ancestry", "frequencies"))
        return spent, log_likelihood(y, q, p[..., 1]), rmse(q, ancestry)

    def theirs(program: str, seed: int, folder: Path) -> tuple[float, float, float]:
        command = [str(asked.peers.absolute() / program), *PEERS[program].split(), str(seed + 1)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        q, p = (np.loadtxt(next(folder.glob(f"{program}*.{end}"))) for end in ("Q", "P"))
        for file in folder.glob(f"{program}*"):
            file.unlink()
        return spent, max(log_likelihood(y, q, p.T), log_likelihood(y, q, 1 - p.T)), rmse(q, ancestry)

    first, *_ = ours(0)
    with tempfile.TemporaryDirectory() as folder:
        write_plink(Path(folder) / "data", y)
        fits = {MAP: ours}
        for program in PEERS:
            if (asked.peers / program).exists():
                fits[program] = partial(theirs, program, folder=Path(folder))
            else:
                note(f"{program} is not installed: skipped")
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in fits}
        for seed in range(asked.rounds):
            for name, fit in fits.items():
                found[name].append(fit(seed))
                note(name, *found[name][-1])
    rows = []
    for name, runs in found.items():
        spent, log_density, wrong = np.transpose(runs)
        ratio = "1" if name == MAP else spread(spent / np.transpose(found[MAP])[0])
        rows.append([name, spread(spent), ratio, f"{np.median(log_density):,.1f}", number(np.median(wrong))])
    table(["point estimate", "CPU s", "ratio to bayeslab", "log likelihood", "RMSE of ancestry"], rows)
    print(f"The first fit, which compiles, takes {number(first)} CPU seconds.")


def posterior(asked: argparse.Namespace) -> None:
    """Effective draws of ancestry from a cold start: of data from the model, and of those of the point estimate."""
    import arviz_stats as azs

    import bayeslab as bl
    from bayeslab.models import structure_admixture

    def fitted(seed: int, y: np.ndarray, draws: int) -> tuple[float, float, np.ndarray, Any]:
        """CPU seconds without those of the compiler, these, draws of ancestry, and the result."""
        data = {"num_individuals": 500, "num_alleles": np.full(y.shape[1], 2), "num_populations": 3, "y": y}
        method = bl.Gibbs(num_warmup=100, num_samples=draws, num_chains=1)
        began = time.process_time()
        tree = bl.fit(seed, structure_admixture.model, data, method, progress=False)
        compiling = tree.attrs["compile_seconds"]
        return time.process_time() - began - compiling, compiling, tree["posterior"]["ancestry"].values[0], tree

    rows, compiling = [], []
    for name, (y, ancestry) in {"the model": _of_the_model(), "F_ST of 0.1": _drifted()}.items():
        runs = []
        for seed in range(asked.rounds):
            spent, seconds, q, tree = fitted(seed, y, asked.sweeps)
            compiling.append(seconds)
            burn_in, *_ = fitted(seed, y, 1)
            data = tree["posterior"].to_dataset()[["ancestry"]]
            bulk, tail = (azs.ess(data, method=which)["ancestry"].values for which in ("bulk", "tail"))
            low, high = np.quantile(q[:, :, nearest(q.mean(0), ancestry)], [0.05, 0.95], axis=0)
            covered = ((ancestry >= low) & (ancestry <= high)).mean()
            runs.append((spent, burn_in, np.median(bulk), bulk.min(), tail.min(), covered))
            note(name, *runs[-1])
        rows.append([name, *map(spread, np.transpose(runs))])
    columns = [
        "CPU s",
        "start and warm-up",
        "effective draws, median",
        "least",
        "of tails, least",
        "90 % intervals cover",
    ]
    table(["data from", *columns], rows)
    print(f"One chain, 100 + {asked.sweeps:,} sweeps. The first compiles for {number(compiling[0])} CPU seconds more.")


def _of_the_model() -> tuple[np.ndarray, np.ndarray]:
    """Genotypes (individual, locus, copy) and ancestry."""
    rng = np.random.default_rng(0)
    p, ancestry = rng.random((3, 20_000)), rng.dirichlet(np.ones(3), 500)
    return (rng.random((500, 20_000, 2)) < (ancestry @ p)[..., None]).astype(np.uint8), ancestry


def _drifted() -> tuple[np.ndarray, np.ndarray]:
    """The same of populations from a common ancestor, without loci that do not vary."""
    from bayeslab.datasets import simulated_genotypes

    truth = simulated_genotypes(500, 20_000, 3, seed=0)
    y = truth["y"].values.astype(np.uint8)
    return y[:, (y.min((0, 2)) != y.max((0, 2))).nonzero()[0]], truth["ancestry"].values


def nearest(q: np.ndarray, truth: np.ndarray) -> list[int]:
    """The order of the populations in which they are nearest to the truth."""
    return list(min(permutations(range(q.shape[1])), key=lambda order: error(q[:, list(order)], truth)))


def rmse(q: np.ndarray, truth: np.ndarray) -> float:
    return error(q[:, nearest(q, truth)], truth)


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
