"""Factors on one core: Gibbs sampling beside NumPy, EM beside scikit-learn, gradients of few and many rows.

    python benchmarks/latent_linear.py --rounds 5

`ppca` and `factor_analysis`, compilation excluded; see README.md.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.linalg import cholesky, solve_triangular
from scipy.stats import multivariate_normal

from race import arguments, pin
from tables import goals, note, spread, table

NUM_ROWS, NUM_FEATURES, NUM_FACTORS = 10_000, 50, 5
SWEEPS, GRADIENTS = 50, 200
PRIORS = {"ppca": (1.0, 0.1), "factor_analysis": (2.0, 0.5)}
"""Shape and rate of the precisions of noise, as the models have them."""
FLAT = {"loading_scale": 1e3, "location_scale": 1e3, "alpha": 1.0, "beta": 1e-9}
"""Priors that leave the maximum where the likelihood has it."""


def main() -> None:
    options = arguments(__doc__).parse_args()
    pin(options.core)  # before JAX counts the cores
    y = simulated(NUM_ROWS, NUM_FEATURES)
    runners: dict[str, Callable[[int], tuple[float, str]]] = {}
    for name in PRIORS:
        runners[f"{name}, Gibbs, ms a sweep"] = gibbs(name, y)
        runners[f"{name}, NumPy, ms a sweep"] = partial(by_hand, name, y)
    runners["factor_analysis, EM, s"] = em(y)
    runners["FactorAnalysis of scikit-learn, s"] = partial(reference, y)
    for rows in (1_000, 100_000):
        runners[f"ppca without factors, {rows:,} rows by 20, ms a gradient"] = gradient(simulated(rows, 20))
    costs: dict[str, list[float]] = {name: [] for name in runners}
    for name, run in runners.items():
        note(name, *run(0))  # compiles
    for seed in range(1, options.rounds + 1):
        for name, run in runners.items():
            cost, found = run(seed)
            costs[name].append(cost)
            note(f"{name:60}{cost:10.3f}   {found}")
    table(["", "CPU"], [(name, spread(values)) for name, values in costs.items()])
    values = list(costs.values())
    goals(
        [
            ("Gibbs of ppca, to NumPy", np.divide(*values[0:2]), "at most 3"),
            ("Gibbs of factor_analysis, to NumPy", np.divide(*values[2:4]), "at most 3"),
            ("EM, to scikit-learn", np.divide(*values[4:6]), "at most 1"),
            ("gradients of 100,000 rows, to 1,000", np.divide(*values[:5:-1]), "1"),
        ]
    )


def simulated(rows: int, features: int) -> np.ndarray:
    """Standardised rows (row, feature) of a few factors, each feature with a noise of its own."""
    rng = np.random.default_rng(0)
    loadings, noise = rng.normal(size=(features, NUM_FACTORS)), np.sqrt(rng.uniform(0.3, 2.0, features))
    y = rng.normal(size=(rows, NUM_FACTORS)) @ loadings.T + rng.normal(size=(rows, features)) * noise
    return (y - y.mean(0)) / y.std(0)


def data_of(y: np.ndarray) -> dict[str, Any]:
    return {"num_rows": len(y), "num_features": y.shape[1], "num_factors": NUM_FACTORS, "y": y}


def runner(name: str, data: dict[str, Any], method: Any) -> Callable[[int], tuple[float, dict[str, np.ndarray]]]:
    """bayeslab's runner: CPU seconds and draws of the first chain for a seed."""
    import jax

    import bayeslab as bl
    from bayeslab.programs.program import precision_scope
    from bayeslab.sampling.runner import ChainStarts, drive
    from bayeslab.transforms.analysis import Analysis

    with precision_scope():
        bound = bl.bind(getattr(bl.models, name).model, data)
        sampler = method.plan(Analysis(bound))

    def run(seed: int) -> tuple[float, dict[str, np.ndarray]]:
        with precision_scope():
            began = time.process_time()
            draws = jax.block_until_ready(drive(ChainStarts(jax.random.PRNGKey(seed)), method, sampler, bound).draws)
            return time.process_time() - began, {site: np.asarray(each)[0] for site, each in draws.samples.items()}

    return run


def gibbs(name: str, y: np.ndarray) -> Callable[[int], tuple[float, str]]:
    import bayeslab as bl

    run = runner(name, data_of(y), bl.Gibbs(num_warmup=0, num_samples=SWEEPS, num_chains=1))

    def sweeps(seed: int) -> tuple[float, str]:
        seconds, draws = run(seed)
        return seconds / SWEEPS * 1e3, f"mean precision of the last sweep {draws['tau'][-1].mean():.3f}"

    return sweeps


def by_hand(name: str, y: np.ndarray, seed: int) -> tuple[float, str]:
    """The same sweep as one would write it: factors, loadings with means, precisions. All draws are kept."""
    began, rng, (alpha, beta) = time.process_time(), np.random.default_rng(seed), PRIORS[name]
    rows, features = y.shape
    z = rng.normal(size=(rows, NUM_FACTORS))
    tau, kept = np.ones(features), []
    for _ in range(SWEEPS):
        loadings = draw_loadings(rng, y, z, tau)
        w, mu = loadings[:, 1:], loadings[:, 0]
        centred, weighted = y - mu, w * tau[:, None]
        factor = cholesky(np.eye(NUM_FACTORS) + weighted.T @ w, lower=True)
        inverse = solve_triangular(factor, np.eye(NUM_FACTORS), lower=True)
        z = (centred @ weighted @ inverse.T + rng.standard_normal(z.shape)) @ inverse
        squares = ((centred - z @ w.T) ** 2).sum(0)
        if name == "ppca":
            tau[:] = rng.gamma(alpha + y.size / 2) / (beta + squares.sum() / 2)
        else:
            tau = rng.gamma(alpha + rows / 2, size=features) / (beta + squares / 2)
        kept.append((w, mu, z, tau.copy()))
    seconds = time.process_time() - began
    return seconds / SWEEPS * 1e3, f"mean precision of the last sweep {tau.mean():.3f}"


def draw_loadings(rng: Generator, y: np.ndarray, z: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """Means and loadings (feature, 1 + factor) of all features."""
    design = np.column_stack([np.ones(len(z)), z])
    prior = np.diag([1e-2, *np.ones(NUM_FACTORS)])
    precision = tau[:, None, None] * (design.T @ design) + prior
    linear = tau[:, None] * (y.T @ design)
    factor = np.linalg.cholesky(precision)
    mean = np.linalg.solve(precision, linear[..., None])[..., 0]
    return mean + np.linalg.solve(factor.mT, rng.standard_normal((*mean.shape, 1)))[..., 0]


def em(y: np.ndarray) -> Callable[[int], tuple[float, str]]:
    import bayeslab as bl

    run = runner("factor_analysis", data_of(y) | FLAT, bl.EM(num_starts=1, collapse=("z",)))

    def fit(seed: int) -> tuple[float, str]:
        seconds, draws = run(seed)
        w, mu, tau = (draws[name][0] for name in ("w", "mu", "tau"))
        covariance = w @ w.T + np.diag(1 / tau)
        return seconds, f"log likelihood {multivariate_normal(mu, covariance).logpdf(y).sum():.4f}"

    return fit


def reference(y: np.ndarray, seed: int) -> tuple[float, str]:
    from sklearn.decomposition import FactorAnalysis

    began = time.process_time()
    fitted = FactorAnalysis(NUM_FACTORS, random_state=seed).fit(y)
    seconds = time.process_time() - began
    return seconds, f"log likelihood {fitted.score(y) * len(y):.4f}"


def gradient(y: np.ndarray) -> Callable[[int], tuple[float, str]]:
    """The log posterior that NUTS moves in once the factors are integrated out, with its gradient."""
    import jax

    import bayeslab as bl
    from bayeslab.methods.moves.concavity import num_coordinates
    from bayeslab.methods.wrappers.collapsed import without_discrete_sites
    from bayeslab.methods.wrappers.compressed import row_or_precision_replacement
    from bayeslab.programs.program import precision_scope
    from bayeslab.programs.unconstrained import flat_log_posterior
    from bayeslab.transforms.analysis import Analysis

    with precision_scope():
        analysis = Analysis(bl.bind(bl.models.ppca.model, data_of(y)))
        marginal = without_discrete_sites(analysis, bl.NUTS(collapse=("z",)))
        bound = row_or_precision_replacement(marginal, analysis, 10**6, True).applied(marginal)
        evaluate = jax.jit(jax.value_and_grad(flat_log_posterior, argnums=1))

    def gradients(seed: int) -> tuple[float, str]:
        with precision_scope():
            flat = np.random.default_rng(seed).normal(scale=0.1, size=num_coordinates(marginal))
            began = time.process_time()
            for _ in range(GRADIENTS):
                value, _ = jax.block_until_ready(evaluate(bound, flat))
            return (time.process_time() - began) / GRADIENTS * 1e3, f"log posterior {value:.2f}"

    return gradients


if __name__ == "__main__":
    main()
