"""Programs with linear Gaussian chains: the lecture's recursions, one Normal, calibration, EM and mean field."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import stats

import bayeslab as bl
from bayeslab.models import linear_dynamical_system, local_level
from bayeslab.programs import unconstrained
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.collapse import marginal
from ranks import LEVEL, smallest_p
from zoo import CASES

LEARNED = CASES["learned_states"]


def kalman(
    y: Any, mu1: Any, sigma1: Any, a: Any, q: Any, c: Any, r: Any, b: Any, d: Any, **_: Any
) -> tuple[float, np.ndarray, np.ndarray]:
    """The lecture's filter and smoother: the log evidence, means and covariances of all states."""
    predicted, filtered, log_evidence = [], [], 0.0
    mean, spread = mu1, sigma1
    for row in y:
        predicted.append((mean, spread))
        if np.isfinite(row).all():
            noise = c @ spread @ c.T + r
            gain = spread @ c.T @ np.linalg.inv(noise)
            log_evidence += stats.multivariate_normal(c @ mean + d, noise).logpdf(row)
            mean, spread = mean + gain @ (row - c @ mean - d), spread - gain @ c @ spread
        filtered.append((mean, spread))
        mean, spread = a @ mean + b, a @ spread @ a.T + q
    smoothed = [filtered[-1]]
    for (mean, spread), (mean_next, spread_next) in zip(filtered[-2::-1], predicted[:0:-1], strict=True):
        back = spread @ a.T @ np.linalg.inv(spread_next)
        later, later_spread = smoothed[-1]
        smoothed.append((mean + back @ (later - mean_next), spread + back @ (later_spread - spread_next) @ back.T))
    means, spreads = zip(*smoothed[::-1], strict=True)
    return log_evidence, np.array(means), np.array(spreads)


def test_exact_is_the_filter_and_the_smoother_of_the_lecture() -> None:
    """One of the measurements is missing, which makes its step one of prediction alone."""
    data = linear_dynamical_system.example()
    log_evidence, means, spreads = kalman(**data)
    tree = bl.fit(0, linear_dynamical_system.model, data, bl.Exact(4000), progress=False)
    np.testing.assert_allclose(tree.attrs["log_evidence"], log_evidence, rtol=1e-12)
    z = tree["posterior"]["z"].values[0]
    variances = np.diagonal(spreads, axis1=1, axis2=2)
    assert np.all(np.abs(z.mean(0) - means) < 5 * np.sqrt(variances / len(z)))
    np.testing.assert_allclose(z.var(0), variances, rtol=5 * np.sqrt(2 / len(z)))


def log_joint(pull: float, moves: float, noise: float) -> float:
    """Of the unknown numbers and the measurements that are there, with the states integrated out by hand."""
    y, steps = LEARNED.data["y"], len(LEARNED.data["y"])
    variances = [2.0]
    for _ in range(steps - 1):
        variances.append(pull**2 * variances[-1] + 1 / moves)
    places = np.arange(steps)
    apart = np.abs(np.subtract.outer(places, places))
    covariance = pull**apart * np.array(variances)[np.minimum.outer(places, places)] + np.eye(steps) / noise
    seen = np.isfinite(y)
    prior = stats.norm(0.7, 0.3).logpdf(pull) + stats.gamma(3).logpdf(moves) + stats.gamma(4, scale=1 / 2).logpdf(noise)
    return prior + stats.multivariate_normal(pull ** places[seen], covariance[np.ix_(seen, seen)]).logpdf(y[seen])


def test_a_collapsed_program_has_the_evidence_of_one_normal() -> None:
    """So a missing measurement is one that is integrated out."""
    numbers = np.array([[0.7, 3.0, 2.0], [-0.4, 0.1, 30.0], [1.1, 50.0, 0.05]])
    with precision_scope():
        left = marginal(bl.bind(LEARNED.program, LEARNED.data), ("z",))
        found = jax.jit(jax.vmap(left.log_joint))(
            dict(zip(("pull", "moves", "noise"), jnp.asarray(numbers.T), strict=True))
        )
    np.testing.assert_allclose(found, [log_joint(*one) for one in numbers], rtol=1e-11)


def test_mean_field_is_below_the_evidence_and_its_bound_is_what_its_draws_say() -> None:
    """Everything about the chain is unknown, so its factor is made of the means of its coefficients."""
    tree = bl.fit(1, LEARNED.program, LEARNED.data, bl.MeanField(num_starts=1, num_samples=4000), progress=False)
    ratio = (tree["sample_stats"]["lp"] - tree["sample_stats"]["log_q"]).values.ravel()
    assert abs(ratio.mean() - tree.attrs["elbo"]) <= 5 * ratio.std() / np.sqrt(ratio.size)
    climb = tree["history"]["elbo"].values[0]
    assert np.nanmin(np.diff(climb, axis=0)) > -1e-10 * np.nanmax(np.abs(climb))
    assert tree.attrs["converged"] == 1
    evidence = np.logaddexp.reduce(ratio) - np.log(
        ratio.size
    )  # an estimate of it, with an error of ratio.std() at most
    assert tree.attrs["elbo"] < evidence < tree.attrs["elbo"] + 1.0


@pytest.mark.slow
def test_em_ends_where_the_gradient_is_zero() -> None:
    """Of the log joint with the states integrated out."""
    model, data = local_level.model, local_level.example()
    tree = bl.fit(2, model, data, bl.EM(num_starts=1, collapse=("z",)), progress=False)
    assert tree.attrs["converged"] == 1
    assert np.nanmin(np.diff(tree["history"]["log_joint"].values[0], axis=0)) >= 0
    with precision_scope():
        left = marginal(bl.bind(model, data), ("z",))
        values = {name: jnp.asarray(tree["posterior"][name].values[0, 0]) for name in left.latent}
        flat, back = ravel_pytree(unconstrained.unconstrain(left, values))

        def density(position: Any) -> Any:
            return left.log_joint(unconstrained.constrain(left, back(position)))

        value, gradient = jax.jit(jax.value_and_grad(density))(flat)
    assert np.abs(gradient).max() < 1e-5 * max(1.0, abs(float(value)))
    np.testing.assert_allclose(tree["sample_stats"]["lp"].values, float(value), rtol=1e-10)


def test_gibbs_is_calibrated() -> None:
    """States jointly, then the precisions of their moves and of the noise; neighbours are thinned."""
    data = {"num_steps": 4, "alpha": 4.0, "beta_level": 4.0, "beta_noise": 1.0, "y": np.zeros(4)}
    gibbs = bl.Gibbs(num_warmup=20, num_samples=39, num_chains=1, thinning=4)
    assert smallest_p(bl.sbc(3, local_level.model, data, gibbs, 300, progress=False)) > LEVEL


def test_mean_field_keeps_no_more_than_a_chain() -> None:
    with (
        pytest.raises(ValueError, match="joint names site 'z', whose factor is a LinearGaussianChain"),
        precision_scope(),
    ):
        bl.fit(0, LEARNED.program, LEARNED.data, bl.MeanField(joint=(("moves", "z"),)), progress=False)
