"""The two problems of the benchmarks, as plain NumPy arrays, for every environment."""

import numpy as np

NUM_WARMUP = NUM_SAMPLES = 1000
NUM_CHAINS = 4


def diabetes() -> dict[str, np.ndarray]:
    """Progression of diabetes in 442 patients: x (row, feature) and y (row,), standardised, intercept first."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    x, y = ((a - a.mean(0)) / a.std(0) for a in (x, y))
    return {"x": np.column_stack([np.ones(len(y)), x]), "y": y}


def normal_gamma() -> dict[str, np.ndarray]:
    """A thousand draws y (row,) from a Normal with mean 1 and standard deviation 2."""
    return {"y": np.random.default_rng(0).normal(1.0, 2.0, 1000)}


PROBLEMS = {"linear_regression": diabetes, "normal_gamma": normal_gamma}
