"""Draws of the samplers of other projects, in an environment of their own (README.md); started by the scripts."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from problems import NUM_CHAINS, NUM_SAMPLES, NUM_WARMUP, SHORT_WARMUP
from worker import Answer, serve


def nutpie_diagonal(problem: str, data: dict[str, np.ndarray]) -> Callable[[int], Answer]:
    return _nutpie(problem, data, "diag")


def nutpie_low_rank(problem: str, data: dict[str, np.ndarray]) -> Callable[[int], Answer]:
    return _nutpie(problem, data, "low_rank")


def _nutpie(problem: str, data: dict[str, np.ndarray], adaptation: Any) -> Callable[[int], Answer]:
    import nutpie

    compiled = nutpie.compile_pymc_model(pymc_model(problem, data))

    def run(seed: int) -> Answer:
        began = time.process_time()
        tree = nutpie.sample(
            compiled,
            draws=NUM_SAMPLES,
            tune=NUM_WARMUP,
            chains=NUM_CHAINS,
            cores=1,
            seed=seed,
            progress_bar=False,
            save_warmup=False,
            adaptation=adaptation,
        )
        seconds = time.process_time() - began
        return seconds, {name: tree["posterior"][name].values for name in names(problem)}

    return run


def pymc(problem: str, data: dict[str, np.ndarray]) -> Callable[[int], Answer]:
    """PyMC's own NUTS; its step is built, hence compiled, before the clock starts."""
    import pymc

    model = pymc_model(problem, data)

    def run(seed: int) -> Answer:
        with model:
            start, step = pymc.init_nuts(
                init="jitter+adapt_diag", chains=NUM_CHAINS, random_seed=seed, progressbar=False, quiet=True
            )
            began = time.process_time()
            trace = pymc.sample(
                draws=NUM_SAMPLES,
                tune=NUM_WARMUP,
                chains=NUM_CHAINS,
                cores=1,
                step=step,
                initvals=start,
                random_seed=seed,
                progressbar=False,
                quiet=True,
                compute_convergence_checks=False,
                return_inferencedata=False,
            )
            seconds = time.process_time() - began
        draws = {name: np.stack(trace.get_values(name, combine=False)) for name in names(problem)}
        return seconds, draws

    return run


def pymc_model(problem: str, data: dict[str, np.ndarray]) -> Any:
    import pymc

    with pymc.Model() as model:
        if problem == "linear_regression":
            tau = pymc.Gamma("tau", 2.0, 1.0)
            w = pymc.Normal("w", 0.0, tau=0.1 * tau, shape=data["x"].shape[1])
            mean = data["x"] @ w
        else:
            tau = pymc.Gamma("tau", 2.0, 2.0)
            mean = pymc.Normal("mu", 0.0, tau=tau)
        pymc.Normal("y", mean, tau=tau, observed=data["y"])
    return model


def jags_long(problem: str, data: dict[str, np.ndarray]) -> Callable[[int], Answer]:
    return _jags(problem, data, NUM_WARMUP)


def jags_short(problem: str, data: dict[str, np.ndarray]) -> Callable[[int], Answer]:
    return _jags(problem, data, SHORT_WARMUP)


def _jags(problem: str, data: dict[str, np.ndarray], num_warmup: int) -> Callable[[int], Answer]:
    """JAGS with its glm module; a run that ends before the first iteration is subtracted."""
    folder = Path(tempfile.mkdtemp())
    (folder / "model.txt").write_text(JAGS_MODELS[problem])
    (folder / "data.txt").write_text("".join(_dumped(name, value) for name, value in data.items()))
    sizes = f"n <- {len(data['y'])}\n" + (f"k <- {data['x'].shape[1]}\n" if "x" in data else "")
    (folder / "sizes.txt").write_text(sizes)

    def seconds(script: str) -> float:
        (folder / "script.txt").write_text(script)
        process = subprocess.Popen(["jags", "script.txt"], cwd=folder, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, "JAGS failed"
        return usage.ru_utime + usage.ru_stime

    def run(seed: int) -> Answer:
        start = "load glm\nmodel in model.txt\ndata in data.txt\ndata in sizes.txt\n"
        start += f"compile, nchains({NUM_CHAINS})\n"
        for chain in range(1, NUM_CHAINS + 1):
            state = f'.RNG.name <- "base::Mersenne-Twister"\n.RNG.seed <- {1 + seed * NUM_CHAINS + chain}\n'
            (folder / f"start{chain}.txt").write_text(state)
            start += f"parameters in start{chain}.txt, chain({chain})\n"
        start += "initialize\n"
        draw = f"update {num_warmup}\n" + "".join(f"monitor {name}\n" for name in names(problem))
        draw += f"update {NUM_SAMPLES}\ncoda *\n"
        spent = seconds(start + draw) - seconds(start)
        return spent, _coda(folder)

    return run


def _dumped(name: str, value: np.ndarray) -> str:
    """An array in the format of R's dump."""
    numbers = ", ".join(map(repr, value.ravel(order="F").tolist()))
    return f"{name} <- structure(c({numbers}), .Dim = c({', '.join(f'{size}L' for size in value.shape)}))\n"


def _coda(folder: Path) -> dict[str, np.ndarray]:
    """The draws that JAGS has written: a scalar (chain, draw) for every line of the index."""
    chains = [np.loadtxt(folder / f"CODAchain{chain}.txt")[:, 1] for chain in range(1, NUM_CHAINS + 1)]
    index = [line.split() for line in (folder / "CODAindex.txt").read_text().splitlines()]
    return {name: np.stack([c[int(first) - 1 : int(last)] for c in chains]) for name, first, last in index}


def names(problem: str) -> list[str]:
    return NAMES[problem]


NAMES = {"linear_regression": ["tau", "w"], "normal_gamma": ["tau", "mu"], "normal_wishart": ["precision", "mu"]}
JAGS_MODELS = {
    "linear_regression": """model {
        tau ~ dgamma(2, 1)
        for (j in 1:k) { w[j] ~ dnorm(0, tau * 0.1) }
        mean <- x %*% w
        for (i in 1:n) { y[i] ~ dnorm(mean[i], tau) }
    }""",
    "normal_gamma": """model {
        tau ~ dgamma(2, 2)
        mu ~ dnorm(0, tau)
        for (i in 1:n) { y[i] ~ dnorm(mu, tau) }
    }""",
    "normal_wishart": """model {
        precision ~ dwish(inverse(scale), 7)
        mu ~ dmnorm(mu0, precision)
        for (i in 1:n) { y[i, ] ~ dmnorm(mu, precision) }
    }""",
}

PEERS = {
    "nutpie": nutpie_diagonal,
    "nutpie, low rank": nutpie_low_rank,
    "PyMC": pymc,
    "JAGS": jags_long,
    "JAGS, 200 + 1,000": jags_short,
}

if __name__ == "__main__":
    serve(lambda name, problem, arrays: PEERS[name](problem, arrays))
