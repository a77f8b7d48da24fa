"""Draws of the samplers of other projects, in an environment of their own (README.md); started by the scripts."""

import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from jags import jags_sampler
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
            pymc.Normal("y", data["x"] @ w, tau=tau, observed=data["y"])
        elif problem == "normal_gamma":
            tau = pymc.Gamma("tau", 2.0, 2.0)
            mean = pymc.Normal("mu", 0.0, tau=tau)
            pymc.Normal("y", mean, tau=tau, observed=data["y"])
        else:
            weights = pymc.Dirichlet("weights", np.ones(4))
            tau = pymc.Gamma("tau", 2.0, 1.0, shape=(4, 2))
            mu = pymc.Normal("mu", 0.0, tau=0.1 * tau, shape=(4, 2))
            each = pymc.logp(pymc.Normal.dist(mu, tau=tau), data["y"][:, None, :]).sum(axis=2)
            pymc.Potential("y", pymc.math.logsumexp(pymc.math.log(weights) + each, axis=1).sum())
    return model


def stan(problem: str, data: dict[str, np.ndarray]) -> Callable[[int], Answer]:
    """Stan's NUTS through PyStan; on the clock is the process that draws, which ends with its run.

    No seed is passed on: PyStan keeps the draws of a seed on disk and would not draw them again.
    """
    import stan
    from httpstan import services_stub

    rows, features = data["y"].shape
    posterior = stan.build(STAN_MODELS[problem], data | {"n": rows, "d": features})

    def run(seed: int) -> Answer:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        services_stub.executor = ProcessPoolExecutor(1, mp_context=get_context("fork"))
        fit = posterior.sample(num_chains=NUM_CHAINS, num_warmup=NUM_WARMUP, num_samples=NUM_SAMPLES)
        services_stub.executor.shutdown()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        draws = {name: fit[name].reshape(*fit[name].shape[:-1], NUM_SAMPLES, NUM_CHAINS) for name in names(problem)}
        return spent, {name: np.moveaxis(value, (-1, -2), (0, 1)) for name, value in draws.items()}

    return run


def jags_long(problem: str, data: dict[str, np.ndarray]) -> Callable[[int], Answer]:
    return _jags(problem, data, NUM_WARMUP)


def jags_short(problem: str, data: dict[str, np.ndarray]) -> Callable[[int], Answer]:
    return _jags(problem, data, SHORT_WARMUP)


def _jags(problem: str, data: dict[str, np.ndarray], num_warmup: int) -> Callable[[int], Answer]:
    sizes = {"n": len(data["y"])} | ({"k": data["x"].shape[1]} if "x" in data else {})
    return jags_sampler(JAGS_MODELS[problem], data | sizes, names(problem), num_warmup)


def names(problem: str) -> list[str]:
    return NAMES[problem]


NAMES = {
    "linear_regression": ["tau", "w"],
    "normal_gamma": ["tau", "mu"],
    "normal_wishart": ["precision", "mu"],
    "diagonal_mixture": ["weights", "tau", "mu"],
}
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
    "diagonal_mixture": """model {
        weights ~ ddirch(rep(1, 4))
        for (j in 1:4) {
            for (f in 1:2) {
                tau[j, f] ~ dgamma(2, 1)
                mu[j, f] ~ dnorm(0, 0.1 * tau[j, f])
            }
        }
        for (i in 1:n) {
            z[i] ~ dcat(weights)
            for (f in 1:2) { y[i, f] ~ dnorm(mu[z[i], f], tau[z[i], f]) }
        }
    }""",
}
STAN_MODELS = {
    "diagonal_mixture": """
    data {
        int n;
        int d;
        array[n] vector[d] y;
    }
    parameters {
        simplex[4] weights;
        array[4] vector<lower=0>[d] tau;
        array[4] vector[d] mu;
    }
    model {
        vector[4] log_weights = log(weights);
        array[4] vector[d] sd;
        for (j in 1:4) {
            sd[j] = inv_sqrt(tau[j]);
            tau[j] ~ gamma(2, 1);
            mu[j] ~ normal(0, sd[j] / sqrt(0.1));
        }
        for (i in 1:n) {
            vector[4] terms = log_weights;
            for (j in 1:4) terms[j] += normal_lpdf(y[i] | mu[j], sd[j]);
            target += log_sum_exp(terms);
        }
    }""",
}

PEERS = {
    "nutpie": nutpie_diagonal,
    "nutpie, low rank": nutpie_low_rank,
    "PyMC": pymc,
    "Stan": stan,
    "JAGS": jags_long,
    "JAGS, 200 + 1,000": jags_short,
}

if __name__ == "__main__":
    serve(lambda name, problem, arrays: PEERS[name](problem, arrays))
