"""The problems of the benchmarks, as plain NumPy arrays, for every environment."""

import numpy as np

NUM_WARMUP = NUM_SAMPLES = 1000
NUM_CHAINS = 4
SHORT_WARMUP = 200
NUM_INDEPENDENT = 100_000


def diabetes() -> dict[str, np.ndarray]:
    """Progression of diabetes in 442 patients: x (row, feature) and y (row,), standardised, intercept first."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True, scaled=False)
    x, y = ((a - a.mean(0)) / a.std(0) for a in (x, y))
    return {"x": np.column_stack([np.ones(len(y)), x]), "y": y}


def normal_gamma() -> dict[str, np.ndarray]:
    """A thousand draws y (row,) from a Normal with mean 1 and standard deviation 2."""
    return {"y": np.random.default_rng(0).normal(1.0, 2.0, 1000)}


def normal_wishart() -> dict[str, np.ndarray]:
    """Two hundred draws y (row, feature) from a correlated Normal in five dimensions, and its Normal-Wishart prior."""
    rng = np.random.default_rng(1)
    mixing = np.eye(5) + 0.4 * rng.normal(size=(5, 5))
    return {"y": 1.0 + rng.normal(size=(200, 5)) @ mixing, "mu0": np.zeros(5), "scale": np.eye(5)}


def mixture(rows: int) -> dict[str, np.ndarray]:
    """Draws y (row,) from three Normals that overlap a little."""
    rng = np.random.default_rng(2)
    z = rng.choice(3, rows, p=[0.2, 0.5, 0.3])
    return {"y": rng.normal(np.array([-3.0, 0.0, 4.0])[z], np.array([0.7, 1.0, 1.5])[z])}


MIXTURE_MU = np.array([[-2.0, -1.5], [2.0, -2.0], [-1.5, 2.0], [2.0, 1.5]])
MIXTURE_SD = np.array([[0.9, 0.7], [0.8, 1.0], [0.7, 0.9], [1.0, 0.8]])
"""Means and standard deviations (component, feature) behind `diagonal_mixture`."""


def diagonal_mixture() -> dict[str, np.ndarray]:
    """A thousand draws y (row, feature) from four Normals that touch, with independent features."""
    rng = np.random.default_rng(3)
    z = rng.choice(4, 1000, p=[0.15, 0.25, 0.25, 0.35])
    return {"y": rng.normal(MIXTURE_MU[z], MIXTURE_SD[z])}


def hidden_chain() -> dict[str, np.ndarray]:
    """Two thousand steps y (step,) of a chain with three states that stay for twenty steps; their Normals overlap."""
    rng = np.random.default_rng(4)
    moves, z = np.array([[0.95, 0.03, 0.02], [0.03, 0.95, 0.02], [0.02, 0.03, 0.95]]), [0]
    for _ in range(1999):
        z.append(rng.choice(3, p=moves[z[-1]]))
    return {"y": rng.normal(np.array([-2.0, 0.0, 2.0])[z], np.array([0.7, 1.0, 0.8])[z])}


def tumours() -> dict[str, np.ndarray]:
    """569 tumours of the breast, benign or not: x (row, 31), standardised, intercept first, and y (row,)."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return {"x": np.column_stack([np.ones(len(y)), (x - x.mean(0)) / x.std(0)]), "y": y}


def simulated_classes() -> dict[str, np.ndarray]:
    """10,000 rows of two classes: x (row, 50), normal and independent, intercept first, and y (row,)."""
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(10_000), rng.normal(size=(10_000, 49))])
    probability = 1 / (1 + np.exp(-x @ rng.normal(0.0, 0.3, 50)))
    return {"x": x, "y": (rng.random(10_000) < probability).astype(int)}


PROBLEMS = {
    "tumours": tumours,
    "simulated_classes": simulated_classes,
    "linear_regression": diabetes,
    "normal_gamma": normal_gamma,
    "normal_wishart": normal_wishart,
    "diagonal_mixture": diagonal_mixture,
    "hidden_chain": hidden_chain,
}
