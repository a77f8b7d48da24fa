"""EM of programs of textbooks, against what is written by hand: annotators who err (Dawid and Skene 1979, Applied
Statistics 28, 20-28), and a hidden chain whose moves depend on covariates (Bengio and Frasconi 1995)."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.contrib.control_flow import scan
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import bayeslab as bl

NUM_CLASSES, NUM_ITEMS, NUM_ANNOTATORS = 3, 40, 5


def annotators(num_classes: int, num_items: int, num_annotators: int) -> None:
    """Every annotator gives every item a label, which depends on the true one by a table of confusion."""
    share = numpyro.sample("share", dist.Dirichlet(2.0 * jnp.ones(num_classes)))
    with numpyro.plate("annotator", num_annotators, dim=-2), numpyro.plate("truth", num_classes, dim=-1):
        confusion = numpyro.sample("confusion", dist.Dirichlet(2.0 * jnp.ones(num_classes)))
    with numpyro.plate("item", num_items, dim=-2):
        z = numpyro.sample("z", dist.Categorical(share))
        with numpyro.plate("annotator of item", num_annotators, dim=-1):
            numpyro.sample("y", dist.Categorical(confusion[jnp.arange(num_annotators), z]))


def simulated_labels() -> np.ndarray:
    rng = np.random.default_rng(1)
    z = rng.integers(0, NUM_CLASSES, NUM_ITEMS)
    tables = np.stack([rng.dirichlet(6.0 * row + 1, NUM_ANNOTATORS) for row in np.eye(NUM_CLASSES)], axis=1)
    return np.array([[rng.choice(NUM_CLASSES, p=tables[a, k]) for a in range(NUM_ANNOTATORS)] for k in z])


def log_joint_of_items(share: np.ndarray, confusion: np.ndarray, y: np.ndarray) -> np.ndarray:
    """log p(z, y) of every item and class."""
    return np.log(share) + sum(np.log(confusion[a][:, y[:, a]]).T for a in range(NUM_ANNOTATORS))


def em_step(share: np.ndarray, confusion: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Expected counts, one more for every cell, as shares."""
    probs = softmax(log_joint_of_items(share, confusion, y), axis=1)
    counts = np.array([[probs[y[:, a] == v].sum(0) for v in range(NUM_CLASSES)] for a in range(NUM_ANNOTATORS)])
    table = counts.transpose(0, 2, 1) + 1
    return (probs.sum(0) + 1) / (NUM_ITEMS + NUM_CLASSES), table / table.sum(-1, keepdims=True)


@pytest.mark.slow
def test_em_ends_where_the_steps_by_hand_do() -> None:
    """At a point that they leave alone, and no lower than where they end from eight random starts."""
    y = simulated_labels()
    sizes = {"num_classes": NUM_CLASSES, "num_items": NUM_ITEMS, "num_annotators": NUM_ANNOTATORS}
    posterior = bl.fit(0, annotators, sizes | {"y": y}, bl.EM(num_starts=5), progress=False)["posterior"]
    found = posterior["share"].values[0, 0], posterior["confusion"].values[0, 0]
    for mine, after in zip(found, em_step(*found, y), strict=True):
        np.testing.assert_allclose(mine, after, atol=1e-6)
    np.testing.assert_array_equal(
        posterior["z"].values[0, 0].squeeze(), log_joint_of_items(*found, y).argmax(1), strict=True
    )

    def log_posterior(share: np.ndarray, confusion: np.ndarray) -> float:
        likelihood = logsumexp(log_joint_of_items(share, confusion, y), axis=1).sum()
        return float(likelihood + np.log(share).sum() + np.log(confusion).sum())

    rng, ends = np.random.default_rng(2), []
    for _ in range(8):
        point = (
            rng.dirichlet(np.ones(NUM_CLASSES)),
            rng.dirichlet(2 * np.ones(NUM_CLASSES), (NUM_ANNOTATORS, NUM_CLASSES)),
        )
        for _ in range(300):
            point = em_step(*point, y)
        ends.append(log_posterior(*point))
    assert log_posterior(*found) >= max(ends) - 1e-6


def driven_chain(u: Array) -> None:
    """Two states; a covariate and the state before it say how likely the second one is."""
    b = numpyro.sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.Normal(0.0, 2.0))
    mu = numpyro.sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 0.3).to_event(1))

    def step(z: Any, now: Array) -> tuple[Any, None]:
        z = numpyro.sample("z", dist.Bernoulli(logits=b[z] + s * now), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Normal(mu[z], 0.7))
        return z, None

    scan(step, jnp.array(0), u)


def driven_log_posterior(flat: np.ndarray, u: np.ndarray, y: np.ndarray) -> float:
    """By the forward recursion; constants apart. flat: b, s and mu."""
    b, s, mu = flat[:2], flat[2], flat[3:]
    log_emission = -0.5 * ((y[:, None] - mu) / 0.7) ** 2
    logits = b + s * u[:, None]  # (step, state before)
    log_moves = -np.logaddexp(0, np.stack([logits, -logits], axis=-1))
    forward = log_moves[0, 0] + log_emission[0]
    for moves, emission in zip(log_moves[1:], log_emission[1:], strict=True):
        forward = logsumexp(forward[:, None] + moves, axis=0) + emission
    return float(logsumexp(forward) - (flat[:3] ** 2).sum() / 8 - ((mu - [-1, 1]) ** 2).sum() / (2 * 0.3**2))


@pytest.mark.slow
def test_em_of_a_chain_with_covariates_is_the_maximum_of_the_forward_recursion() -> None:
    rng, z = np.random.default_rng(2), 0
    u, y = rng.normal(size=20), np.zeros(20)
    for t in range(20):
        z = int(rng.random() < 1 / (1 + np.exp(1 - 2 * u[t] - 2 * z)))
        y[t] = rng.normal([-1, 1.5][z], 0.7)
    posterior = bl.fit(0, driven_chain, {"u": u, "y": y}, bl.EM(num_starts=1), progress=False)["posterior"]
    found = np.concatenate([posterior[name].values.ravel() for name in ("b", "s", "mu")])
    best = minimize(lambda flat: -driven_log_posterior(flat, u, y), found, tol=1e-10)
    np.testing.assert_allclose(found, best.x, atol=1e-4)
