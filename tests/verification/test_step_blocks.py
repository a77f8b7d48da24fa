"""Several sites of steps that are jointly Normal are one chain, and only where neighbouring steps alone meet."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from scipy.stats import multivariate_normal

import bayeslab as bl
from bayeslab.distributions.block_tridiagonal.integral import integral, solution
from bayeslab.distributions.block_tridiagonal.step_normal import StepStructure
from bayeslab.elimination.chain_families import step_block_conditional
from bayeslab.programs.binding import bind
from bayeslab.transforms.analysis import Analysis

NUM_STEPS, DRIFT, TURN, NOISE = 70, 0.3, 0.2, 0.5
X = np.random.default_rng(0).normal(size=(NUM_STEPS, 2))
Y = np.random.default_rng(1).normal(size=NUM_STEPS)
COVARIANCE_OF_WALK = np.minimum.outer(np.arange(NUM_STEPS), np.arange(NUM_STEPS)) + 1.0


def rolling_regression(x: Array, drift: float = DRIFT, y: Array | None = None) -> None:
    level = numpyro.sample("level", dist.GaussianRandomWalk(drift, NUM_STEPS))
    slope = numpyro.sample("slope", dist.GaussianRandomWalk(TURN, NUM_STEPS))
    intercept = numpyro.sample("intercept", dist.Normal(0, 2))
    jitter = numpyro.sample("jitter", dist.Normal(0, 0.1).expand([NUM_STEPS]).to_event(1))
    numpyro.sample("y", dist.Normal(intercept + level + jitter + slope * x[:, 0], NOISE), obs=y)


def covariance_of_rows() -> np.ndarray:
    slope = np.outer(X[:, 0], X[:, 0]) * COVARIANCE_OF_WALK * TURN**2
    return COVARIANCE_OF_WALK * DRIFT**2 + slope + 4.0 + np.eye(NUM_STEPS) * (0.01 + NOISE**2)


def blocks_of(program: Callable[..., None], data: dict[str, np.ndarray]) -> list[tuple[str, ...]]:
    analysis = Analysis(bind(program, data))
    return [finding.rule.sites for finding in analysis.normal_blocks if isinstance(finding.rule.block, StepStructure)]


def test_two_walks_and_what_meets_them_step_by_step_are_one_chain() -> None:
    assert blocks_of(rolling_regression, {"x": X, "y": Y}) == [("level", "slope", "jitter")]


def test_evidence_and_posterior_are_those_of_dense_algebra() -> None:
    tree = bl.fit(jax.random.key(0), rolling_regression, {"x": X, "y": Y}, bl.Exact(num_samples=4000), progress=False)
    joint = multivariate_normal(np.zeros(NUM_STEPS), covariance_of_rows())
    assert float(tree.attrs["log_evidence"]) == pytest.approx(joint.logpdf(Y), rel=1e-10)
    cross = X[:, 0, None] * COVARIANCE_OF_WALK * TURN**2
    gain = np.linalg.solve(covariance_of_rows(), cross).T
    mean, variance = gain @ Y, np.diag(COVARIANCE_OF_WALK * TURN**2 - gain @ cross)
    draws = tree.posterior["slope"].values.reshape(-1, NUM_STEPS)
    assert np.abs(draws.mean(0) - mean).max() < 5 * np.sqrt(variance.max() / len(draws))
    np.testing.assert_allclose(draws.var(0), variance, rtol=5 * np.sqrt(2 / len(draws)))


def test_nuts_integrates_the_chain_out_and_agrees_with_quadrature_over_a_scale() -> None:
    def program(x: Array, y: Array | None = None) -> None:
        rolling_regression(x, numpyro.sample("drift", dist.Uniform(0.05, 1.0)), y)

    tree = bl.fit(jax.random.key(1), program, {"x": X, "y": Y}, progress=False)
    grid = np.linspace(0.05, 1.0, 400)
    rest = covariance_of_rows() - COVARIANCE_OF_WALK * DRIFT**2
    joints = (multivariate_normal(np.zeros(NUM_STEPS), rest + COVARIANCE_OF_WALK * s**2) for s in grid)
    logs = np.array([joint.logpdf(Y) for joint in joints])
    weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    mean = weights @ grid
    sd = np.sqrt(weights @ (grid - mean) ** 2)
    assert "level" in tree.attrs["settings"]
    assert abs(float(tree.posterior["drift"].mean()) - mean) < 5 * sd / np.sqrt(1000)


def product_of_walks(y: Array | None = None) -> None:
    factor = numpyro.sample("factor", dist.GaussianRandomWalk(0.3, NUM_STEPS))
    loading = numpyro.sample("loading", dist.GaussianRandomWalk(0.3, NUM_STEPS))
    numpyro.sample("y", dist.Normal(factor * loading, NOISE), obs=y)


def lagged_by_two(y: Array | None = None) -> None:
    level = numpyro.sample("level", dist.GaussianRandomWalk(0.3, NUM_STEPS))
    input_ = numpyro.sample("input", dist.GaussianRandomWalk(0.3, NUM_STEPS))
    numpyro.sample("y", dist.Normal(level[2:] + input_[:-2], NOISE), obs=y[2:])


def scaled_by_the_other(y: Array | None = None) -> None:
    level = numpyro.sample("level", dist.GaussianRandomWalk(0.3, NUM_STEPS))
    log_scale = numpyro.sample("log_scale", dist.GaussianRandomWalk(0.3, NUM_STEPS))
    numpyro.sample("y", dist.Normal(level, jnp.exp(log_scale / 2)), obs=y)


@pytest.mark.parametrize("program", [product_of_walks, lagged_by_two, scaled_by_the_other])
def test_walks_that_are_no_chain_together_are_no_block(program: Callable[..., None]) -> None:
    assert blocks_of(program, {"y": Y}) == []


def lagged_by_one(y: Array | None = None) -> None:
    level = numpyro.sample("level", dist.GaussianRandomWalk(0.3, NUM_STEPS))
    input_ = numpyro.sample("input", dist.GaussianRandomWalk(0.3, NUM_STEPS))
    numpyro.sample("y", dist.Normal(level[1:] + input_[:-1], NOISE), obs=y[1:])


def test_walks_that_meet_one_step_apart_are_one_chain() -> None:
    assert blocks_of(lagged_by_one, {"y": Y}) == [("level", "input")]


@pytest.mark.parametrize("size", [1, 2, 5])
@jax.enable_x64(True)
def test_integrals_of_a_block_tridiagonal_normal_and_their_derivatives(size: int) -> None:
    rng = np.random.default_rng(size)
    num_steps = 6
    roots = rng.normal(size=(num_steps, size, size))
    between = 0.2 * rng.normal(size=(num_steps - 1, size, size))
    own, linear = roots @ roots.mT + 3 * np.eye(size), rng.normal(size=(num_steps, size))

    def dense(own: Array, following: Array) -> Array:
        whole = jnp.zeros((num_steps, size, num_steps, size))
        steps = np.arange(num_steps)
        whole = whole.at[steps, :, steps].add(own).at[steps[1:], :, steps[:-1]].add(following)
        return whole.at[steps[:-1], :, steps[1:]].add(following.mT).reshape(num_steps * size, -1)

    def by_algebra(own: Array, following: Array, linear: Array) -> Array:
        matrix = dense(own, following)
        return linear.ravel() @ jnp.linalg.solve(matrix, linear.ravel()) - 0.7 * jnp.linalg.slogdet(matrix)[1]

    def by_steps(own: Array, following: Array, linear: Array) -> Array:
        square, log_determinant, _ = integral(own, following, linear)
        return square - 0.7 * log_determinant

    arrays = own, between, linear
    np.testing.assert_allclose(by_steps(*arrays), by_algebra(*arrays), rtol=1e-12)
    solved = np.linalg.solve(dense(own, between), linear.ravel())
    np.testing.assert_allclose(solution(*map(jnp.asarray, arrays)).ravel(), solved, rtol=1e-10)
    moves = own, 0.3 * between, 0.5 * linear

    def along(function: Callable[..., Array], t: Array) -> Array:
        return function(*(array + t * move for array, move in zip(arrays, moves, strict=True)))

    for derivative in (jax.grad, lambda f: jax.grad(jax.grad(f)), lambda f: jax.jacfwd(jax.grad(f))):
        pair = [derivative(partial(along, f))(0.1) for f in (by_steps, by_algebra)]
        np.testing.assert_allclose(*pair, rtol=1e-9)


def beside_globals(x: Array, y: Array | None = None) -> None:
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([2]).to_event(1))
    level = numpyro.sample("level", dist.GaussianRandomWalk(DRIFT, NUM_STEPS))
    slope = numpyro.sample("slope", dist.GaussianRandomWalk(TURN, NUM_STEPS))
    numpyro.sample("y", dist.Normal(intercept + x @ weights + level + slope * x[:, 0], NOISE), obs=y)


def test_a_chain_of_walks_goes_before_several_sites_that_it_meets() -> None:
    """These are a set of jointly Normal sites of their own, whose terms are others once the chain is gone."""
    slope = np.outer(X[:, 0], X[:, 0]) * COVARIANCE_OF_WALK * TURN**2
    noise = NOISE**2 * np.eye(NUM_STEPS)
    right = multivariate_normal(np.zeros(NUM_STEPS), COVARIANCE_OF_WALK * DRIFT**2 + slope + 1 + X @ X.T + noise)
    tree = bl.fit(0, beside_globals, {"x": X, "y": Y}, bl.Exact(num_samples=10), progress=False)
    assert float(tree.attrs["log_evidence"]) == pytest.approx(right.logpdf(Y), rel=1e-10)


def of_noise(x: Array, noise: float, y: Array | None = None) -> None:
    level = numpyro.sample("level", dist.GaussianRandomWalk(DRIFT, NUM_STEPS))
    slope = numpyro.sample("slope", dist.GaussianRandomWalk(TURN, NUM_STEPS))
    numpyro.sample("y", dist.Normal(level + slope * x[:, 0], noise), obs=y)


@pytest.mark.parametrize(("noise", "dtype"), [(1e-2, jnp.float32), (1e-4, jnp.float64)])
def test_little_noise_has_its_evidence(noise: float, dtype: type) -> None:
    slope = np.outer(X[:, 0], X[:, 0]) * COVARIANCE_OF_WALK * TURN**2
    whole = COVARIANCE_OF_WALK * DRIFT**2 + slope + noise**2 * np.eye(NUM_STEPS)
    data = {"x": X, "y": Y, "noise": noise}
    tree = bl.fit(0, of_noise, data, bl.Exact(num_samples=10), dtype=dtype, progress=False)
    right = multivariate_normal(np.zeros(NUM_STEPS), whole).logpdf(Y)
    assert float(tree.attrs["log_evidence"]) == pytest.approx(right, abs=0.1 if dtype == jnp.float32 else 1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_an_evidence_of_rounding_counts_as_none(dtype: type) -> None:
    """It is right where it is there, and never too large: chains would stay where it is."""
    structure = StepStructure(("level", "slope"), ((NUM_STEPS,), (NUM_STEPS,)))
    x, y = X[:, 0].astype(dtype), Y.astype(dtype)

    @jax.jit
    def log_integral(noise: Array) -> Array:
        def density(value: Array) -> Array:
            moves = jnp.diff(value, axis=0, prepend=0) / jnp.array([DRIFT, TURN], dtype)
            residual = (y - value[:, 0] - value[:, 1] * x) / noise
            squares = (moves**2).sum() + (residual**2).sum()
            return -0.5 * squares - NUM_STEPS * jnp.log(noise * DRIFT * TURN * (2 * jnp.pi) ** 1.5)

        return step_block_conditional(structure, density, None)[1]

    with jax.enable_x64(dtype == jnp.float64):
        noises = np.logspace(-11, -1, 60)
        found = np.array([log_integral(jnp.asarray(noise, dtype)) for noise in noises], float)
    slope = np.outer(X[:, 0], X[:, 0]) * COVARIANCE_OF_WALK * TURN**2
    whole = COVARIANCE_OF_WALK * DRIFT**2 + slope
    right = [multivariate_normal(np.zeros(NUM_STEPS), whole + n**2 * np.eye(NUM_STEPS)).logpdf(Y) for n in noises]
    known = np.isfinite(found)
    assert known[noises > (2e-2 if dtype == jnp.float32 else 1e-5)].all()
    assert not known[noises < (1e-4 if dtype == jnp.float32 else 1e-9)].any()
    np.testing.assert_allclose(found[known], np.array(right)[known], atol=0.5)
