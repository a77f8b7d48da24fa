"""Mixtures whose number of components is unknown, and their limit without spread."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, xlogy
from sklearn.cluster import KMeans
from sklearn.mixture import BayesianGaussianMixture

import bayeslab as bl
from bayeslab.models import dirichlet_process_mixture, kmeans

Array = NDArray[Any]


def heaps(per_heap: int = 12) -> Array:
    rng = np.random.default_rng(2)
    centres = np.array([[0.0, 0.0], [3.0, 0.5], [1.0, 3.0]])
    return np.concatenate([centre + 0.4 * rng.normal(size=(per_heap, 2)) for centre in centres])


def test_em_at_a_low_temperature_is_lloyd() -> None:
    y = heaps()
    data = {"num_rows": len(y), "num_features": 2, "num_components": 3, "temperature": 1e-3, "scale": 1e3, "y": y}
    tree = bl.fit(0, kmeans.model, data, bl.EM(num_starts=8), progress=False)
    centres = tree["posterior"]["mu"].values[0, 0]
    found, labels, inertia = kmeans.hard_em(y, centres + 0.01)
    other = KMeans(3, n_init=10, random_state=0).fit(y)
    np.testing.assert_allclose(inertia, other.inertia_, rtol=1e-9)
    np.testing.assert_allclose(centres, found, atol=1e-6)
    np.testing.assert_array_equal(labels, tree["posterior"]["z"].values[0, 0])


def test_hard_em_never_increases_the_sum_of_squares_and_keeps_empty_centres() -> None:
    y = heaps()
    far = np.concatenate([y[:2], [[100.0, 100.0]]])
    centres, labels, inertia = kmeans.hard_em(y, far)
    np.testing.assert_array_equal(centres[2], far[2])
    assert labels.max() == 1
    assert inertia <= ((y[:, None] - far) ** 2).sum(2).min(1).sum()
    np.testing.assert_allclose(kmeans.hard_em(y, centres)[0], centres)


def test_labels_are_those_of_softmax_at_a_temperature() -> None:
    """x = 0.4 between 0 and 1: the lecture's limit, 0.525, 0.731 and 1.000."""
    for temperature, share in ((1.0, 0.525), (0.1, 0.731), (0.01, 1.0)):
        data = {"num_rows": 1, "num_features": 1, "num_components": 2, "temperature": temperature}
        tree = bl.fit(
            0, kmeans.model, data | {"mu": np.array([[0.0], [1.0]]), "y": np.array([[0.4]])},
            bl.Exact(20_000), progress=False,
        )  # fmt: skip
        assert abs(float((tree["posterior"]["z"] == 0).mean()) - share) < 0.02


SETTINGS = {"mu0": 0.2, "kappa0": 0.3, "a": 2.5, "b": 0.8}
ALPHA = 1.3


def bound(y: Array, r: Array) -> float:
    """The evidence lower bound of labels with probabilities r (row, component), at the best factors of all else."""
    mu0, kappa0, a, b = SETTINGS.values()
    counts = r.sum(0)
    later = counts[::-1].cumsum()[::-1]
    sticks = betaln(1 + counts[:-1], ALPHA + later[1:]) - betaln(1, ALPHA)
    total, squares = r.T @ y, r.T @ y**2
    kappa = kappa0 + counts
    rate = b + (squares + kappa0 * mu0**2 - (total + kappa0 * mu0) ** 2 / kappa) / 2
    normal = gammaln(a + counts / 2) - gammaln(a) + a * np.log(b) - (a + counts / 2) * np.log(rate)
    normal += (np.log(kappa0 / kappa) - counts * np.log(2 * np.pi)) / 2
    return float(sticks.sum() + normal.sum() - xlogy(r, r).sum())


METHOD = bl.MeanField(joint=(("tau", "mu"),), num_starts=4)


def one_dimension() -> Array:
    rng = np.random.default_rng(5)
    return np.concatenate([rng.normal(-2, 0.5, 25), rng.normal(1.5, 0.7, 25)])


def six_heaps() -> Array:
    """2,000 rows, of which the smallest heap has 50."""
    rng = np.random.default_rng(0)
    centres, scales = (-9, -5, -2, 0, 2, 6), (0.5, 0.3, 0.4, 0.3, 0.5, 1.0)
    sizes = (50, 150, 300, 400, 500, 600)
    return np.concatenate([rng.normal(*each) for each in zip(centres, scales, sizes, strict=True)]) / 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two heaps", "six heaps"])
def test_mean_field_reaches_the_bound_of_scikit_learn(name: str) -> None:
    y, size = one_dimension() if name == "two heaps" else six_heaps(), 5 if name == "two heaps" else 10
    data = {"num_rows": len(y), "num_components": size, **SETTINGS, "alpha": ALPHA, "y": y}
    tree = bl.fit(0, dirichlet_process_mixture.model, data, METHOD, progress=False)
    prior = {"mean_prior": [SETTINGS["mu0"]], "mean_precision_prior": SETTINGS["kappa0"]}
    prior |= {"degrees_of_freedom_prior": 2 * SETTINGS["a"], "covariance_prior": [[2 * SETTINGS["b"]]]}
    other = BayesianGaussianMixture(
        n_components=size, weight_concentration_prior_type="dirichlet_process", weight_concentration_prior=ALPHA,
        n_init=10, max_iter=2000, tol=1e-8, random_state=0, **prior,
    ).fit(y[:, None])  # fmt: skip
    prior_of_alpha = 2 * np.log(2) + np.log(ALPHA) - 2 * ALPHA
    elbo = tree.attrs["elbo"] - prior_of_alpha
    assert elbo > bound(y, other.predict_proba(y[:, None])) - 1e-3
    shares = (tree["posterior"]["z"].values[0][:, :, None] == np.arange(size)).mean(0)
    assert abs(elbo - bound(y, shares)) < 1e-3 * len(y) + 0.5  # shares have Monte Carlo error


def test_the_number_of_occupied_components_is_that_of_all_partitions() -> None:
    """Five rows, three components: all 243 allocations, with the rest integrated out in closed form."""
    y, size = np.array([-1.5, -1.2, 0.1, 1.4, 1.9]), 3
    data = {"num_rows": 5, "num_components": size, **SETTINGS, "alpha": ALPHA, "y": y}
    labels = np.stack(np.unravel_index(np.arange(size**5), (size,) * 5), axis=1)
    logs = np.array([bound(y, np.eye(size)[each]) for each in labels])
    probability = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    exact = [probability[[len(set(each)) == number for each in labels.tolist()]].sum() for number in (1, 2, 3)]
    tree = bl.fit(0, dirichlet_process_mixture.model, data, bl.Gibbs(num_samples=4000), progress=False)
    occupied = tree["posterior"]["occupied"].values
    found = [(occupied == number).mean() for number in (1, 2, 3)]
    np.testing.assert_allclose(found, exact, atol=0.03)
