"""MeanField of softmax regressions: Boehning's bound, below the evidence, and the programs that have none."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from scipy.optimize import minimize
from scipy.special import log_softmax

import bayeslab as bl

X = np.array([-1.5, -1.0, -0.4, 0.1, 0.3, 0.9, 1.4, 2.0])
Y = {2: np.array([0, 0, 1, 0, 1, 1, 0, 1]), 3: np.array([0, 1, 0, 1, 2, 1, 2, 2])}
TAU = 1.5


def against_the_first(x: Array, num_classes: int, tau: float) -> None:
    """Slopes of all classes but the first, whose logit is zero: with two classes the Bernoulli logit."""
    with numpyro.plate("class", num_classes - 1):
        w = numpyro.sample("w", dist.Normal(0.0, tau))
    with numpyro.plate("row", len(x)):
        logits = jnp.concatenate([jnp.zeros((len(x), 1)), x[:, None] * w], axis=1)
        numpyro.sample("y", dist.Categorical(logits=logits))


def log_joint(w: np.ndarray, num_classes: int) -> np.ndarray:
    """The log joint at slopes (point, class - 1), by hand."""
    logits = np.concatenate([np.zeros((*w.shape[:-1], len(X), 1)), X[:, None] * w[..., None, :]], axis=-1)
    prior = -0.5 * (w**2).sum(-1) / TAU**2 - w.shape[-1] * np.log(np.sqrt(2 * np.pi) * TAU)
    return prior + log_softmax(logits, axis=-1)[..., np.arange(len(X)), Y[num_classes]].sum(-1)


def boehning(num_classes: int) -> tuple[np.ndarray, np.ndarray, float]:
    """The mean, the covariance and the bound, by hand."""
    size = num_classes - 1
    mode = minimize(lambda w: -log_joint(w, num_classes), np.zeros(size), tol=1e-12).x
    curvature = 0.5 * (np.eye(num_classes) - 1 / num_classes)[1:, 1:] * (X**2).sum()
    precision = curvature + np.eye(size) / TAU**2
    bound = log_joint(mode, num_classes) + size / 2 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] / 2
    return mode, np.linalg.inv(precision), float(bound)


def log_evidence(num_classes: int) -> float:
    """By sums over a grid."""
    axis = np.linspace(-9, 9, 361)
    grid = np.stack(np.meshgrid(*[axis] * (num_classes - 1), indexing="ij"), axis=-1).reshape(-1, num_classes - 1)
    values = log_joint(grid, num_classes)
    return float(values.max() + np.log(np.exp(values - values.max()).sum()) + grid.shape[1] * np.log(axis[1] - axis[0]))


def fit(model: Any, data: dict[str, Any], **settings: Any) -> Any:
    return bl.fit(0, model, data, bl.MeanField(**settings), progress=False)


@pytest.mark.parametrize("num_classes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_it_is_the_bound_of_boehning(num_classes: int) -> None:
    """Never falling, equal to that by hand, and below the evidence; with two classes that of logistic regression."""
    data = {"x": X, "num_classes": num_classes, "tau": TAU, "y": Y[num_classes]}
    tree = fit(against_the_first, data, num_samples=4000)
    mean, covariance, bound = boehning(num_classes)
    np.testing.assert_allclose(tree.attrs["elbo"], bound, rtol=1e-8)
    assert tree.attrs["converged"] == 1
    assert log_evidence(num_classes) - 1 < bound < log_evidence(num_classes)
    steps = tree["history"]["elbo"].values[0]
    assert (np.diff(steps[np.isfinite(steps)]) >= 0).all()
    w = tree["posterior"]["w"].values[0]
    np.testing.assert_array_less(np.abs(w.mean(0) - mean), 5 * np.sqrt(np.diag(covariance) / len(w)))
    np.testing.assert_allclose(np.cov(w.T), np.squeeze(covariance), atol=0.1 * covariance.max())
    log_weights = (tree["sample_stats"]["lp"] - tree["sample_stats"]["log_q"]).values
    assert log_weights.mean() > bound - 5 * log_weights.std() / np.sqrt(len(w))  # the bound of the bound


def curved(x: Array, tau: float) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, tau))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Categorical(logits=jnp.stack([0 * x, x * w, x * w + 0.01 * w**2], axis=1)))


def heavy_tails(x: Array, tau: float) -> None:
    w = numpyro.sample("w", dist.StudentT(30.0, 0.0, tau))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Categorical(logits=jnp.stack([0 * x, x * w, 2 * x * w], axis=1)))


@pytest.mark.parametrize("model", [curved, pytest.param(heavy_tails, marks=pytest.mark.slow)])
def test_other_programs_have_none(model: Any) -> None:
    with pytest.raises(ValueError, match=r"site 'w': .*use SVI\(\)"):
        fit(model, {"x": X, "tau": TAU, "y": Y[3]})


@pytest.mark.slow
def test_rows_that_are_masked_or_weighted_count_as_such() -> None:
    """A row of weight two is a row twice, and one that a mask hides is none."""

    def weighted(x: Array, weight: Array) -> None:
        w = numpyro.sample("w", dist.Normal(0.0, TAU).expand([3]).to_event(1))
        with numpyro.plate("row", len(x)), numpyro.handlers.scale(scale=weight):
            seen = dist.Categorical(logits=x[:, None] * w).mask(weight > 0)
            numpyro.sample("y", seen)

    weights = np.array([1.0, 2.0, 0.0, 1.0, 2.0, 1.0, 0.0, 1.0])
    rows = np.repeat(np.arange(8), weights.astype(int))
    one = fit(weighted, {"x": X, "weight": weights, "y": Y[3]})
    other = fit(weighted, {"x": X[rows], "weight": np.ones(len(rows)), "y": Y[3][rows]})
    np.testing.assert_allclose(one.attrs["elbo"], other.attrs["elbo"], rtol=1e-8)
