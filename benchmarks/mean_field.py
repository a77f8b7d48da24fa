"""CPU seconds of mean field on mixtures beside scikit-learn, on one core, compilation excluded.

    python benchmarks/mean_field.py --rounds 5

The same priors, number of starts and tolerance; see README.md.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from problems import PROBLEMS
from race import arguments, pin
from tables import goals, note, spread, table

Fit = Callable[[int], tuple[np.ndarray, float]]
"""From a seed to the weights and CPU seconds."""


def main() -> None:
    options = arguments(__doc__).parse_args()
    pin(options.core)  # before JAX and NumPy count the cores
    fits = {"four components": four_components(), "Dirichlet process": dirichlet_process()}
    seconds: dict[tuple[str, str], list[float]] = {}
    for ours, _ in fits.values():
        ours(0)  # compiles
    for seed in range(1, options.rounds + 1):
        for mixture, pair in fits.items():
            for name, fit in zip(("bayeslab", "scikit-learn"), pair, strict=True):
                weights, elapsed = fit(seed)
                seconds.setdefault((mixture, name), []).append(elapsed)
                largest = np.array2string(np.sort(weights)[::-1][:4], precision=4)
                note(f"{mixture:20}{name:14}{elapsed:8.3f} s   largest weights {largest}")
    table(["", "CPU s"], [(", ".join(names), spread(values)) for names, values in seconds.items()])
    goals(
        [
            (
                f"{mixture}: scikit-learn, to bayeslab",
                np.divide(seconds[mixture, "scikit-learn"], seconds[mixture, "bayeslab"]),
                "at least 1",
            )
            for mixture in fits
        ]
    )


def four_components() -> tuple[Fit, Fit]:
    import bayeslab as bl
    from bayeslab.models import multivariate_gaussian_mixture

    y = np.asarray(PROBLEMS["diagonal_mixture"]()["y"])
    data = {"num_rows": len(y), "num_components": 4, "mu0": np.zeros(2), "scale": np.eye(2), "n0": 5.0, "y": y}
    method = bl.MeanField(num_starts=5, joint=(("precision", "mu"),))
    priors = {
        "weight_concentration_prior_type": "dirichlet_distribution",
        "weight_concentration_prior": 1.0,
        "mean_prior": np.zeros(2),
        "mean_precision_prior": 0.1,
        "degrees_of_freedom_prior": 5.0,
        "covariance_prior": np.eye(2),
    }
    return runner(multivariate_gaussian_mixture.model, data, method), reference(y, n_components=4, n_init=5, **priors)


def dirichlet_process() -> tuple[Fit, Fit]:
    """The example of the catalogue, but for the concentration, which is known, since scikit-learn does not learn it."""
    import bayeslab as bl
    from bayeslab.models import dirichlet_process_mixture as lecture

    data = lecture.data() | {"alpha": 1.0}
    y = np.asarray(data["y"])[:, None]
    priors = {
        "weight_concentration_prior_type": "dirichlet_process",
        "weight_concentration_prior": 1.0,
        "mean_prior": np.array([4.0]),
        "mean_precision_prior": 0.1,
        "degrees_of_freedom_prior": 4.0,
        "covariance_prior": np.array([[2 * data["b"]]]),
    }
    ours = runner(lecture.model, data, bl.MeanField(num_starts=10, joint=(("tau", "mu"),)))
    return ours, reference(y, n_components=10, n_init=10, init_params="random", **priors)


def runner(model: Callable[..., None], data: dict[str, Any], method: Any) -> Fit:
    """bayeslab's runner. Weights are the mean of draws, so the last digits are noise."""
    import jax

    import bayeslab as bl
    from bayeslab.models.dirichlet_process_mixture import stick_breaking
    from bayeslab.programs.program import precision_scope
    from bayeslab.sampling.runner import ChainStarts, drive
    from bayeslab.transforms.analysis import Analysis

    with precision_scope():
        bound = bl.bind(model, data)
        sampler = method.plan(Analysis(bound))

    def fit(seed: int) -> tuple[np.ndarray, float]:
        with precision_scope():
            began = time.process_time()
            run = drive(ChainStarts(jax.random.PRNGKey(seed)), method, sampler, bound)
            draws = {site: np.asarray(each[0]) for site, each in run.draws.samples.items()}
            elapsed = time.process_time() - began
        weights = jax.vmap(stick_breaking)(draws["left"]) if "left" in draws else draws["weights"]
        return np.asarray(weights).mean(0), elapsed

    return fit


def reference(y: np.ndarray, **options: Any) -> Fit:
    from sklearn.mixture import BayesianGaussianMixture

    def fit(seed: int) -> tuple[np.ndarray, float]:
        began = time.process_time()
        mixture = BayesianGaussianMixture(tol=1e-6, max_iter=3000, random_state=seed, **options).fit(y)
        return mixture.weights_, time.process_time() - began

    return fit


if __name__ == "__main__":
    main()
