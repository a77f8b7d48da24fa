"""CPU seconds of mean field on a mixture beside scikit-learn, on one core, compilation excluded.

    python benchmarks/mean_field.py --rounds 5

The same mixture, priors, factors, number of starts and tolerance; see README.md.
"""

import time

import numpy as np

from problems import PROBLEMS
from race import arguments, pin
from tables import goals, note, spread, table

STARTS = 5


def main() -> None:
    options = arguments(__doc__).parse_args()
    pin(options.core)  # before JAX and NumPy count the cores
    seconds: dict[str, list[float]] = {"bayeslab": [], "scikit-learn": []}
    y = np.asarray(PROBLEMS["diagonal_mixture"]()["y"])
    ours, theirs = starter(y), reference(y)
    ours(0)  # compiles
    for seed in range(1, options.rounds + 1):
        for name, fit in (("bayeslab", ours), ("scikit-learn", theirs)):
            weights, elapsed = fit(seed)
            seconds[name].append(elapsed)
            note(f"{name:14}{elapsed:8.3f} s   weights {np.array2string(np.sort(weights), precision=4)}")
    table(["", "CPU s"], [(name, spread(values)) for name, values in seconds.items()])
    goals([("scikit-learn, to bayeslab", np.divide(seconds["scikit-learn"], seconds["bayeslab"]), "at least 1")])


def starter(y):
    """bayeslab's runner. Weights are the mean of draws, so the last digits are noise."""
    import jax

    import bayeslab as bl
    from bayeslab.models import multivariate_gaussian_mixture
    from bayeslab.programs.program import precision_scope
    from bayeslab.sampling.runner import ChainStarts, drive
    from bayeslab.transforms.analysis import Analysis

    data = {"num_rows": len(y), "num_components": 4, "mu0": np.zeros(2), "scale": np.eye(2), "n0": 5.0, "y": y}
    method = bl.MeanField(num_starts=STARTS, joint=(("precision", "mu"),))
    with precision_scope():
        bound = bl.bind(multivariate_gaussian_mixture.model, data)
        sampler = method.plan(Analysis(bound))

    def fit(seed):
        with precision_scope():
            began = time.process_time()
            run = drive(ChainStarts(jax.random.PRNGKey(seed)), method, sampler, bound)
            return run.draws.samples["weights"][0].mean(0), time.process_time() - began

    return fit


def reference(y):
    from sklearn.mixture import BayesianGaussianMixture

    def fit(seed):
        began = time.process_time()
        mixture = BayesianGaussianMixture(
            n_components=4,
            n_init=STARTS,
            tol=1e-6,
            max_iter=3000,
            random_state=seed,
            weight_concentration_prior_type="dirichlet_distribution",
            weight_concentration_prior=1.0,
            mean_prior=np.zeros(2),
            mean_precision_prior=0.1,
            degrees_of_freedom_prior=5.0,
            covariance_prior=np.eye(2),
        ).fit(y)
        weights = mixture.weight_concentration_ / mixture.weight_concentration_.sum()
        return weights, time.process_time() - began

    return fit


if __name__ == "__main__":
    main()
