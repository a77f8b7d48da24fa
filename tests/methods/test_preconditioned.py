"""NUTS around a Normal approximation: exact where the posterior is one and where it is not, and only where it pays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from blackjax.mcmc.integrators import IntegratorState

import bayeslab as bl
from bayeslab.methods.mcmc import KernelSampler
from bayeslab.methods.moves.preconditioned import (
    PreconditionedSampler,
    inverse_root,
    newton,
    shrunk_covariance,
    shrunk_mean,
    split_step,
    turning_step,
)
from bayeslab.models import logistic_regression, svm
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis

TEN_ROWS = logistic_regression.example()
SEPARABLE = TEN_ROWS | {"y": (TEN_ROWS["x"][:, 1] > 0) * 1, "tau0": 30.0}
"""Any steep line separates these classes: a posterior with one long tail along each."""


def grid_moments(data: dict[str, Any], widths: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations (2,) of the coefficients by sums over a grid."""
    w = np.stack(np.meshgrid(*(np.linspace(-width, width, 801) for width in widths), indexing="ij"), -1).reshape(-1, 2)
    logits = w @ data["x"].T
    log_joint = (data["y"] * logits - np.logaddexp(0, logits)).sum(1) - 0.5 * (w**2).sum(1) / data["tau0"] ** 2
    weights = np.exp(log_joint - log_joint.max())
    weights /= weights.sum()
    mean = weights @ w
    return mean, np.sqrt(weights @ (w - mean) ** 2)


@pytest.mark.parametrize(("data", "widths"), [(TEN_ROWS, (8.0, 8.0)), (SEPARABLE, (90.0, 150.0))])
def test_moments_are_those_of_a_grid(data: dict[str, Any], widths: tuple[float, float]) -> None:
    """Near a Normal, where steps rotate, and far from one, where they do not."""
    w = bl.fit(0, logistic_regression.model, data, bl.NUTS(1000, 4000), progress=False)["posterior"]["w"].values
    mean, deviation = grid_moments(data, widths)
    z = (w - mean) / deviation
    for statistic, expected in ((z, 0.0), (z**2, 1.0)):  # batch means, as draws depend on each other
        batches = statistic.reshape(4 * 10, 400, 2).mean(1)
        error = batches.std(0, ddof=1) / np.sqrt(len(batches))
        np.testing.assert_array_less(np.abs(batches.mean(0) - expected), 4 * error)


def test_a_coordinate_without_curvature_keeps_its_unit() -> None:
    factor = np.asarray(inverse_root(jnp.diag(jnp.array([0.0, 4.0]))))
    np.testing.assert_allclose(abs(factor).sum(0), [1.0, 0.5], atol=1e-6)


def test_a_loss_that_is_linear_between_its_corners() -> None:
    """The curvature of a hinge says nothing of a free intercept; moments are those of a grid."""
    data = svm.example()
    tree = bl.fit(0, svm.model, data, bl.NUTS(500, 2000), progress=False)
    draws = np.concatenate([tree["posterior"]["intercept"].values[..., None], tree["posterior"]["w"].values], -1)
    grid = np.stack(np.meshgrid(*[np.linspace(-5, 5, 81)] * 3, indexing="ij"), -1).reshape(-1, 3)
    margins = data["y"] * (grid[:, :1] + grid[:, 1:] @ data["x"].T)
    weights = np.exp(-np.maximum(0, 1 - margins).sum(1) - 0.5 * (grid[:, 1:] ** 2).sum(1))
    mean = np.average(grid, axis=0, weights=weights)
    variance = np.average((grid - mean) ** 2, axis=0, weights=weights)
    for values, expected in ((draws, mean), ((draws - mean) ** 2, variance)):
        batches = values.reshape(4 * 10, 200, 3).mean(1)
        error = batches.std(0, ddof=1) / np.sqrt(len(batches))
        np.testing.assert_array_less(np.abs(batches.mean(0) - expected), 4.5 * error)


def chain_of(model: Any, data: dict[str, Any], num_warmup: int) -> tuple[Any, Any]:
    """The last state of a chain of 200 draws, and what is known of these."""
    with precision_scope(np.float64):
        bound = bl.bind(model, data)
        sampler = bl.NUTS(num_warmup).plan(Analysis(bound))
        assert isinstance(sampler, PreconditionedSampler)

        @jax.jit
        def run(key: Any) -> tuple[Any, Any]:
            return jax.lax.scan(lambda state, _: sampler.advance(state, bound), sampler.start(key, bound), None, 200)

        return run(jax.random.PRNGKey(1))


def test_three_steps_make_a_draw_of_a_regression_with_many_rows() -> None:
    x = np.random.default_rng(0).normal(size=(400, 3)) * [1.0, 30.0, 0.01]  # as they were measured
    state, draws = chain_of(logistic_regression.model, {"x": x, "y": np.arange(400) % 2, "tau0": 10.0}, 100)
    assert np.median(draws.stats["n_steps"]) == 3
    assert not draws.stats["diverging"].any()
    assert state.rotates


@pytest.mark.parametrize("rotates", [True, False])
def test_steps_keep_volume_and_are_undone(rotates: bool) -> None:
    with precision_scope(np.float64):
        step = split_step(jnp.array(rotates), lambda z: -jnp.sum(jnp.cosh(z)) + z[0] * z[1], None)
        slope = jax.grad(lambda z: -jnp.sum(jnp.cosh(z)) + z[0] * z[1])

        def moved(flat: Any, size: float) -> Any:
            after = step(IntegratorState(flat[:2], flat[2:], 0.0, slope(flat[:2])), size)
            return jnp.concatenate([after.position, after.momentum])

        start = jnp.array([0.3, -0.7, 1.1, 0.4])
        np.testing.assert_allclose(moved(moved(start, 0.8), -0.8), start, rtol=1e-12)
        np.testing.assert_allclose(jnp.linalg.det(jax.jacobian(moved)(start, 0.8)), 1.0, rtol=1e-12)


def test_a_step_around_a_normal_is_exact() -> None:
    with precision_scope(np.float64):
        z, momentum = jnp.array([0.3, -0.7]), jnp.array([1.1, 0.4])
        step = split_step(jnp.array(True), lambda z: -0.5 * z @ z, None)
        after = step(IntegratorState(z, momentum, 0.0, -z), jnp.pi / 2)
        np.testing.assert_allclose(after.position, momentum, atol=1e-15)
        np.testing.assert_allclose(after.momentum, -z, atol=1e-15)


def test_trajectories_around_a_normal_are_seen_to_turn() -> None:
    """The first of 3, 7, 15, ... steps to exceed half a turn stays below a whole one, whatever the step size was."""
    sizes = jnp.geomspace(0.01, 1.1, 200)
    steps = np.asarray(jax.vmap(lambda size: turning_step(size, jnp.array(True), 10))(sizes))
    angles = (2.0 ** np.arange(2, 11) - 1) * steps[:, None]
    first = np.where(angles > np.pi, angles, np.inf).min(1)
    assert (first > np.pi).all()
    assert (first < 1.9 * np.pi).all()
    assert (steps > 0.75 * np.asarray(sizes)).all()
    assert turning_step(jnp.asarray(0.43), jnp.array(False), 10) == jnp.asarray(0.43)


def test_newton_finds_the_mode_and_its_curvature() -> None:
    with precision_scope(np.float64):
        precision = jnp.array([[4e6, 1e3], [1e3, 1.0]])
        mode, factor = newton(lambda w: -0.5 * (w - 2) @ precision @ (w - 2), jnp.array([0.0, 5.0]))
        np.testing.assert_allclose(mode, [2.0, 2.0], rtol=1e-6)
        np.testing.assert_allclose(factor @ factor.T, jnp.linalg.inv(precision), rtol=1e-8)


def test_a_curvature_that_is_no_number_leaves_coordinates_as_they_are() -> None:
    np.testing.assert_array_equal(inverse_root(jnp.full((2, 2), jnp.nan)), np.eye(2))


def test_moments_of_few_draws_are_those_of_a_standard_normal() -> None:
    """Unless they are further from it than chance would have them."""
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=(20, 30)), rng.normal(size=(5000, 2)) * [1.0, 3.0]
    with precision_scope(np.float64):
        np.testing.assert_array_equal(
            shrunk_covariance(jnp.asarray(0.5 * few.T @ few / 20), jnp.asarray(20)), np.eye(30)
        )
        np.testing.assert_array_equal(shrunk_covariance(jnp.zeros((30, 30)), jnp.asarray(5)), np.eye(30))
        sample = many.T @ many / 5000
        np.testing.assert_allclose(shrunk_covariance(jnp.asarray(sample), jnp.asarray(5000)), sample, atol=1e-3)
        np.testing.assert_array_equal(shrunk_mean(jnp.full(5, 0.1), jnp.asarray(30)), np.zeros(5))
        np.testing.assert_allclose(shrunk_mean(jnp.full(5, 2.0), jnp.asarray(3000)), 2.0, rtol=1e-3)


def two_peaks(x: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x * w[0] * w[1], 0.5))


def heavy_tails(x: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 10.0))
    numpyro.sample("y", dist.StudentT(2.0, x * w, 0.5))


@pytest.mark.parametrize("model", [two_peaks, heavy_tails])
def test_other_log_joints_keep_the_other_sampler(model: Any) -> None:
    """A product of sites has two modes, and tails that are no Normal's bend upwards."""
    data = {"x": np.arange(4.0), "y": np.array([0.0, 2.0, 3.0, 7.0])}
    with precision_scope(np.float64):
        assert isinstance(bl.NUTS().plan(Analysis(bl.bind(model, data))), KernelSampler)


def test_warm_up_may_be_one_draw() -> None:
    tree = bl.fit(0, logistic_regression.model, TEN_ROWS, bl.NUTS(1, 50, 1), progress=False)
    assert np.isfinite(tree["posterior"]["w"].values).all()
