"""LinearGaussianChain: every service equals that of one Normal over all numbers of a path, or of statsmodels."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax import Array
from scipy import stats
from scipy.linalg import block_diag
from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

from bayeslab.datasets import nile
from bayeslab.distributions import LinearGaussianChain
from bayeslab.distributions.kalman import Moments
from bayeslab.elimination.cubature import of_linear_gaussian_chain
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS

STEPS, SIZE = 8, 2
quick = partial(jax.jit, compiler_options=UNOPTIMISED_OPTIONS)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def covariances(rng: np.random.Generator, *shape: int, size: int = SIZE) -> np.ndarray:
    root = rng.normal(size=(*shape, size, size))
    return root @ np.swapaxes(root, -1, -2) + 0.1 * np.eye(size)


def varying() -> LinearGaussianChain:
    """Everything differs between steps and between members of the batch."""
    rng = np.random.default_rng(0)
    steps = (2, STEPS - 1)
    first, moves = rng.normal(size=(2, SIZE)), rng.normal(size=(*steps, SIZE, SIZE))
    offset, noise = rng.normal(size=(*steps, SIZE)), covariances(rng, *steps)
    return LinearGaussianChain(first, covariances(rng, 2), moves, noise, offset, time_varying=True)


def shared() -> LinearGaussianChain:
    """Steps share their transition, and members of the batch all but the first mean."""
    rng = np.random.default_rng(1)
    matrix = np.array([[0.9, 0.4], [-0.3, 0.8]])
    first = rng.normal(size=(3, 1, SIZE))
    return LinearGaussianChain(first, covariances(rng), matrix, covariances(rng, 2), num_steps=STEPS)


def single() -> LinearGaussianChain:
    return LinearGaussianChain(np.array([0.5]), np.array([[2.0]]), np.eye(1), np.array([[0.3]]), num_steps=1)


CHAINS: dict[str, Callable[[], LinearGaussianChain]] = {"varying": varying, "shared": shared, "single": single}
every_chain = pytest.mark.parametrize("name", CHAINS)


class Dense(NamedTuple):
    """A Normal over all numbers of a path, step by step."""

    mean: np.ndarray
    covariance: np.ndarray

    def given(self, precision: np.ndarray, linear: np.ndarray) -> tuple["Dense", float]:
        """The same given evidence, and the log of the integral over it."""
        gain = np.linalg.solve(np.eye(len(self.mean)) + self.covariance @ precision, self.covariance)
        mean = self.mean + gain @ (linear - precision @ self.mean)
        squares = linear @ gain @ linear + self.mean @ (linear - precision @ self.mean)
        squares += self.mean @ (linear - precision @ gain @ linear)
        squares += self.mean @ precision @ gain @ (precision @ self.mean - linear)
        log_determinant = np.linalg.slogdet(np.eye(len(self.mean)) + self.covariance @ precision)[1]
        return Dense(mean, gain), (squares - log_determinant) / 2

    def blocks(self, size: int, apart: int = 0) -> np.ndarray:
        """Covariances of states with those so many steps before."""
        steps = len(self.mean) // size
        places = [slice(size * t, size * (t + 1)) for t in range(steps)]
        return np.array([self.covariance[places[t], places[t - apart]] for t in range(apart, steps)])


def dense(chain: LinearGaussianChain, index: tuple[int, ...]) -> Dense:
    """A member of the batch, from its definition."""
    steps, size = chain.event_shape
    batch = chain.batch_shape
    first = np.broadcast_to(chain.initial_mean, (*batch, size))[index]
    start = np.broadcast_to(chain.initial_covariance, (*batch, size, size))[index]
    matrix = np.broadcast_to(chain.transition_matrix, (*batch, steps - 1, size, size))[index]
    noise = np.broadcast_to(chain.transition_covariance, (*batch, steps - 1, size, size))[index]
    offset = np.broadcast_to(chain.offset, (*batch, steps - 1, size))[index]
    path = np.eye(steps * size)
    for t in range(steps - 1):
        path[size * (t + 1) : size * (t + 2)] += matrix[t] @ path[size * t : size * (t + 1)]
    added = np.concatenate([first, *offset])
    return Dense(path @ added, path @ block_diag(start, *noise) @ path.T)


def evidence_for(chain: LinearGaussianChain) -> tuple[np.ndarray, np.ndarray]:
    """Of rank one at every step, of rank two at the first, and nothing at the third and fourth."""
    rng = np.random.default_rng(2)
    direction = rng.normal(size=(*chain.batch_shape, *chain.event_shape))
    direction[..., 2:4, :] = 0.0
    precision = 3.0 * direction[..., :, None] * direction[..., None, :]
    precision[..., 0, :, :] += np.eye(chain.event_shape[1])
    return precision, direction * rng.normal(size=(*direction.shape[:-1], 1))


@quick
def services(chain: LinearGaussianChain, precision: Array, linear: Array, path: Array) -> dict[str, Any]:
    posterior = chain.condition(precision, linear)
    points = of_linear_gaussian_chain(posterior)
    deviations = points - points.mean(0)
    return {
        "log_prob": chain.log_prob(path),
        "entropy": chain.entropy(),
        "marginals": chain.marginals(),
        "log_marginal": chain.log_marginal(precision, linear),
        "predicted": chain.predicted(precision, linear),
        "filtered": chain.filtered(precision, linear),
        "smoothed": chain.smoothed(precision, linear),
        "posterior_log_prob": posterior.log_prob(path),
        "cross_covariances": posterior.cross_covariances(),
        "mode": posterior.mode(),
        "variance": posterior.variance,
        "conditional_scale": posterior.conditional_scale,
        "divergence": dist.kl_divergence(posterior, chain),
        "points": Moments(points.mean(0), jnp.einsum("p...i,p...j->...ij", deviations, deviations) / len(points)),
        "points_apart": jnp.einsum("p...i,p...j->...ij", deviations[..., 1:, :], deviations[..., :-1, :]) / len(points),
    }


@every_chain
def test_every_service_is_that_of_one_normal(name: str) -> None:
    chain = CHAINS[name]()
    size, evidence = chain.event_shape[1], evidence_for(chain)
    path = np.random.default_rng(3).normal(size=chain.shape())
    found = jax.tree.map(np.asarray, services(chain, *evidence, path))
    same = partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-10)
    for index in np.ndindex(chain.batch_shape):
        prior = dense(chain, index)
        one = jax.tree.map(lambda leaf, index=index: leaf[index], found)
        precision, linear, value = evidence[0][index], evidence[1][index].ravel(), path[index].ravel()
        posterior, log_marginal = prior.given(block_diag(*precision), linear)
        before, after = (stats.multivariate_normal(each.mean, each.covariance) for each in (prior, posterior))
        same(one["log_prob"], before.logpdf(value))
        same(one["entropy"], before.entropy())
        is_normal(one["marginals"], prior)
        same(one["log_marginal"], log_marginal)
        is_normal(one["smoothed"], posterior)
        is_normal(one["points"], posterior)
        same(one["posterior_log_prob"], after.logpdf(value))
        for apart in (one["cross_covariances"], one["points_apart"]):
            same(apart, posterior.blocks(size, 1).reshape(apart.shape))
        same(one["mode"].ravel(), posterior.mean)
        same(one["variance"].ravel(), np.diag(posterior.covariance))
        same(one["conditional_scale"].ravel(), np.diag(np.linalg.inv(posterior.covariance)) ** -0.5)
        cross = np.trace(np.linalg.solve(prior.covariance, posterior.covariance)) - len(value)
        cross += (posterior.mean - prior.mean) @ np.linalg.solve(prior.covariance, posterior.mean - prior.mean)
        same(one["divergence"], cross / 2 + before.entropy() - after.entropy())
        for t in range(chain.num_steps):
            for service, known in (("predicted", t), ("filtered", t + 1)):
                so_far = [block if step < known else 0 * block for step, block in enumerate(precision)]
                there = prior.given(block_diag(*so_far), np.where(np.arange(len(linear)) < known * size, linear, 0))[0]
                same(one[service].mean[t], there.mean[t * size : (t + 1) * size])
                same(one[service].covariance[t], there.blocks(size)[t])


def is_normal(found: Moments, expected: Dense) -> None:
    np.testing.assert_allclose(found.mean.ravel(), expected.mean, rtol=1e-10, atol=1e-10)
    blocks = expected.blocks(found.mean.shape[-1])
    np.testing.assert_allclose(found.covariance, blocks, rtol=1e-10, atol=1e-10)


def local_trend(measured: np.ndarray) -> tuple[LinearGaussianChain, tuple[np.ndarray, np.ndarray], KalmanSmoother]:
    """A level whose slope is constant, hence a singular covariance, vaguely known at first; evidence; statsmodels."""
    matrix, noise, first = np.array([[1.0, 1.0], [0.0, 1.0]]), np.diag([1469.1, 0.0]), np.diag([1e6, 1e2])
    start, variance, steps = np.array([1000.0, 0.0]), 15098.5, len(measured)
    chain = LinearGaussianChain(start, first, matrix, noise, num_steps=steps, validate_args=False)
    seen = np.isfinite(measured)
    precision = np.zeros((steps, 2, 2))
    precision[:, 0, 0] = seen / variance
    linear = np.stack([np.where(seen, measured, 0.0) / variance, np.zeros(steps)], axis=1)
    other = KalmanSmoother(k_endog=1, k_states=2, tolerance=0)
    other.bind(measured.copy())
    other["design"], other["obs_cov"] = np.array([[1.0, 0.0]]), np.array([[variance]])
    other["transition"], other["selection"], other["state_cov"] = matrix, np.eye(2), noise
    other.initialize_known(start, first)
    return chain, (precision, linear), other


@pytest.mark.parametrize("missing", [(), (*range(20, 40), 99)], ids=["whole", "missing"])
def test_the_nile_of_statsmodels(missing: tuple[int, ...]) -> None:
    """With a covariance that is singular, and stretches without a measurement."""
    measured = nile().to_numpy()
    measured[list(missing)] = np.nan
    chain, evidence, other = local_trend(measured)
    theirs = other.smooth()
    seen = np.isfinite(measured)
    normalised = stats.norm.logpdf(measured[seen], scale=np.sqrt(15098.5)).sum()
    np.testing.assert_allclose(chain.log_marginal(*evidence) + normalised, theirs.llf, rtol=1e-10)
    smoothed, filtered = chain.smoothed(*evidence), chain.filtered(*evidence)
    for ours, mean, covariance in (
        (filtered, theirs.filtered_state, theirs.filtered_state_cov),
        (smoothed, theirs.smoothed_state, theirs.smoothed_state_cov),
    ):
        np.testing.assert_allclose(ours.mean, mean.T, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(ours.covariance, np.moveaxis(covariance, -1, 0), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(chain.predicted(*evidence).mean[1:], theirs.predicted_state.T[1:-1], rtol=1e-8)


def test_gradients_are_those_of_one_normal() -> None:
    """Also with respect to a transition covariance that is singular, at evidence that is."""
    chain, steps = varying(), 4
    evidence = [one[0, :steps] for one in evidence_for(chain)]
    noise = np.array(chain.transition_covariance)[0, : steps - 1]
    noise[0] = np.diag([1.0, 0.0])
    noise[1] = 0.0

    def recursion(first: Array, start: Array, matrix: Array, noise: Array, offset: Array, *evidence: Array) -> Array:
        one = LinearGaussianChain(first, start, matrix, noise, offset, time_varying=True, validate_args=False)
        return one.log_marginal(*evidence)

    def one_normal(first: Array, start: Array, matrix: Array, noise: Array, offset: Array, *evidence: Array) -> Array:
        means, rows = [first], [[start]]
        for t in range(steps - 1):
            means.append(matrix[t] @ means[-1] + offset[t])
            row = [matrix[t] @ block for block in rows[-1]]
            rows.append([*row, row[-1] @ matrix[t].T + noise[t]])
        covariance = jnp.block([[rows[s][t] if s >= t else rows[t][s].T for t in range(steps)] for s in range(steps)])
        mean, whole = jnp.concatenate(means), jax.scipy.linalg.block_diag(*evidence[0])
        keep = jnp.eye(len(mean)) + covariance @ whole
        slope = evidence[1].ravel() - whole @ mean
        squares = slope @ jnp.linalg.solve(keep, covariance @ slope)
        return mean @ evidence[1].ravel() + (squares - mean @ whole @ mean - jnp.linalg.slogdet(keep)[1]) / 2

    parameters = (chain.initial_mean[0], chain.initial_covariance[0], chain.transition_matrix[0, : steps - 1], noise)
    arguments = (*parameters, chain.offset[0, : steps - 1], *evidence)
    ours, theirs = (quick(jax.grad(f, tuple(range(7))))(*arguments) for f in (recursion, one_normal))
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if place in (1, 3, 5):  # of symmetric matrices
            one, other = (each + each.mT for each in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-10)


def test_draws_have_the_moments_of_the_chain() -> None:
    """Within five standard errors; a part without noise follows from the rest."""
    chain = shared()
    draws = np.asarray(quick(lambda chain: chain.sample(jax.random.key(0), (1000, 20)))(chain))
    assert draws.shape == (1000, 20, *chain.shape())
    for index in np.ndindex(chain.batch_shape):
        expected, flat = dense(chain, index), draws[(..., *index, slice(None), slice(None))].reshape(20_000, -1)
        variance = np.diag(expected.covariance)
        assert np.all(np.abs(flat.mean(0) - expected.mean) < 5 * np.sqrt(variance / len(flat)))
        error = np.sqrt((np.outer(variance, variance) + expected.covariance**2) / len(flat))
        assert np.all(np.abs(np.cov(flat.T) - expected.covariance) < 5 * error)
    slope = quick(lambda chain: chain.sample(jax.random.key(1), (3,)))(local_trend(np.zeros(5))[0])[..., 1]
    np.testing.assert_array_equal(slope, np.broadcast_to(slope[:, :1], slope.shape))


def test_coefficients_are_what_the_log_density_is_linear_in() -> None:
    """The chain of their mean has the mean log density of two chains, but for a constant."""

    @quick
    def gaps(one: LinearGaussianChain, paths: Array, *evidence: Array) -> Array:
        other = one.condition(*evidence)
        mean = jax.tree.map(lambda a, b: (a + b) / 2, one.coefficients(), other.coefficients())
        found = LinearGaussianChain.from_coefficients(mean).log_prob(paths)
        return found - (one.log_prob(paths) + other.log_prob(paths)) / 2

    found = gaps(varying(), np.random.default_rng(5).normal(size=(4, 2, STEPS, SIZE)), *evidence_for(varying()))
    np.testing.assert_allclose(found - found[0], 0.0, atol=1e-10)


def test_single_precision_and_more_series_than_chains() -> None:
    """Evidence, conditional and draws keep the precision of their arguments; evidence may extend the batch."""

    @quick
    def found(one: LinearGaussianChain, *evidence: Array) -> tuple[Array, Array]:
        return one.log_marginal(*evidence), one.condition(*evidence).sample(jax.random.key(2))

    chain, evidence = varying(), evidence_for(varying())
    log_marginal, draw = found(jax.tree.map(jnp.float32, chain), *(np.float32(np.stack([one] * 4)) for one in evidence))
    assert log_marginal.dtype == draw.dtype == jnp.float32
    assert (log_marginal.shape, draw.shape) == ((4, 2), (4, *chain.shape()))
    np.testing.assert_allclose(log_marginal, np.stack([chain.log_marginal(*evidence)] * 4), rtol=1e-4)


def test_chains_are_pytrees() -> None:
    """A map over parameters makes a stack of chains, and a map over the stack uses them one by one."""
    chain, evidence = varying(), evidence_for(varying())
    leaves = (chain.initial_mean, chain.initial_covariance, chain.transition_matrix, chain.transition_covariance)
    stack = jax.jit(jax.vmap(lambda *each: LinearGaussianChain(*each, time_varying=True)))(*leaves, chain.offset)
    assert (stack.batch_shape, stack.event_shape) == ((), chain.event_shape)
    found = jax.jit(jax.vmap(lambda one, *evidence: one.log_marginal(*evidence)))(stack, *evidence)
    np.testing.assert_allclose(found, chain.log_marginal(*evidence), rtol=1e-12)
    again = jax.tree.unflatten(*jax.tree.flatten(chain)[::-1])
    np.testing.assert_array_equal(again.mean, chain.mean)
    assert again.num_steps == STEPS


def test_evidence_that_is_not_a_number_is_not_hidden() -> None:
    chain, (precision, linear) = varying(), evidence_for(varying())
    linear[0, 3] = np.nan
    np.testing.assert_array_equal(np.isnan(chain.log_marginal(precision, linear)), [True, False])


ONE, ZERO = np.eye(2), np.zeros(2)
build = partial(LinearGaussianChain, ZERO, ONE, ONE, ONE)
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no numbers": (
        lambda: LinearGaussianChain(1.0, ONE, ONE, ONE, num_steps=3),
        r"initial_mean has shape \(\); expected",
    ),
    "other size": (
        lambda: LinearGaussianChain(ZERO, ONE, np.eye(3), ONE, num_steps=3),
        r"\(3, 3\); expected \(\*batch, 2, 2\)",
    ),
    "no length": (build, "num_steps is missing; give it, or time_varying=True"),
    "no steps": (lambda: build(num_steps=0), "num_steps is 0; expected at least 1"),
    "no axis of steps": (
        lambda: build(time_varying=True),
        r"transition_matrix has shape \(2, 2\); expected \(\*batch, num_steps - 1, 2, 2\)",
    ),
    "two lengths": (
        lambda: LinearGaussianChain(ZERO, ONE, np.stack([ONE] * 3), np.stack([ONE] * 4), time_varying=True),
        "transition_matrix has transitions for 4 steps and transition_covariance has transitions for 5 steps",
    ),
    "another length": (
        lambda: LinearGaussianChain(ZERO, ONE, np.stack([ONE] * 3), ONE[None], num_steps=7, time_varying=True),
        "for 4 steps, and num_steps is 7; expected one length",
    ),
    "batches": (
        lambda: LinearGaussianChain(np.zeros((3, 2)), ONE, np.stack([ONE] * 2), ONE, num_steps=3),
        r"batch shapes do not broadcast: initial_mean \(3,\), .*transition_matrix \(2,\)",
    ),
    "offset": (lambda: build(np.zeros(3), 4), r"offset has shape \(3,\); expected \(\*batch, 2\)"),
    "offsets of steps": (
        lambda: build(np.zeros((3, 2)), 4),
        "offset has an axis of 3, one for each transition of 4 steps: pass time_varying=True",
    ),
    "not positive": (lambda: LinearGaussianChain(ZERO, ONE, ONE, -ONE, num_steps=3), "invalid transition_covariance"),
    "singular": (lambda: LinearGaussianChain(ZERO, 0 * ONE, ONE, ONE, num_steps=3), "invalid initial_covariance"),
    "not finite": (lambda: LinearGaussianChain(ZERO, ONE, ONE + np.inf, ONE, num_steps=3), "invalid transition_matrix"),
    "path": (
        lambda: build(num_steps=3).log_prob(np.zeros((4, 2))),
        r"shape \(4, 2\) does not fit; expected \(..., 3, 2\)",
    ),
    "precision": (
        lambda: build(num_steps=3).condition(ONE, ZERO),
        r"precision has shape \(2, 2\); expected \(3, 2, 2\)",
    ),
    "linear": (
        lambda: build(num_steps=3).log_marginal(np.zeros((3, 2, 2)), np.zeros((3, 1))),
        r"linear has shape \(3, 1\); expected \(3, 2\)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_what_was_expected(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        call()
