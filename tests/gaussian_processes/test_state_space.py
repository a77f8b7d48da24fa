"""StateSpace: every service equals the formula with the covariance matrix of all values."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from tinygp import kernels, transforms
from tinygp.kernels import quasisep
from tinygp.kernels.distance import Distance

from bayeslab.gaussian_processes.moments import Moments
from bayeslab.gaussian_processes.state_space import kalman as scalar_kalman
from bayeslab.gaussian_processes.state_space.solver import StateSpace, StateSpaceProcess, state_space_kernel
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS

quick = partial(jax.jit, compiler_options=UNOPTIMISED_OPTIONS)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several of them, and a last one that is not full."""
    monkeypatch.setattr(scalar_kalman, "MAX_STEPS_PER_BLOCK", 5)


KERNELS: dict[str, Callable[[Array, Array], Any]] = {
    "matern32": lambda scale, size: kernels.Matern32(scale, kernels.distance.L2Distance()) * size,
    "matern52": lambda scale, size: size * kernels.Matern52(scale),
    "sum": lambda scale, size: size * kernels.Matern32(scale) + kernels.Exp(2 * scale) * 0.5,
    "linear": lambda scale, size: transforms.Linear(-1 / scale, kernels.Matern32() + size * kernels.Exp()) + size,
    "product": lambda scale, size: kernels.Exp(scale) * (size * kernels.Cosine(scale) + kernels.Matern32(3.0)),
    "celerite": lambda scale, size: quasisep.Celerite(size, 0.1, 1 / scale, 2.0) + quasisep.SHO(2 / scale, 3.0, size),
    "carma": lambda scale, size: quasisep.CARMA(jnp.array([1.2, 1.1]) / scale, jnp.array([1.0, 3.0]) * size),
    "large": lambda scale, size: size * kernels.Matern52(scale) + kernels.Matern52(2.0) + kernels.Exp(scale),
}
SLOW = ("carma", "large")  # to compile
every_kernel = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in KERNELS]
)


class Case(NamedTuple):
    """Unsorted inputs, some of them twice, with missing values; x is (row, 1)."""

    x: np.ndarray
    new: np.ndarray
    precision: np.ndarray
    linear: np.ndarray


def case() -> Case:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 4.0, 13)
    x[5], x[6], x[7] = x[0], x[0], x[1] + 1e-5
    precision = rng.uniform(0.5, 20.0, 13) * (rng.uniform(size=13) < 0.7)
    new = np.array([2.0, -1.0, x[3], 9.0, 2.001])
    return Case(x[:, None], new, precision, precision * rng.normal(size=13))


class Found(NamedTuple):
    """What a representation says; slopes by scale and size, precision and linear."""

    log_mass: Any
    slopes: Any
    mean: Any
    variance: Any
    mean_at: Any
    variance_at: Any
    covariance_at: Any


NUMBERS = np.array([0.8, 1.3])


def dense_log_mass(name: str, numbers: Array, precision: Array, linear: Array, x: Array) -> Array:
    """By the covariance matrix, of rows that are all there."""
    root = jnp.sqrt(precision)
    target = linear / root
    met = jnp.eye(len(root)) + root[:, None] * KERNELS[name](*numbers)(x, x) * root
    return -(target @ jnp.linalg.solve(met, target) + jnp.linalg.slogdet(met)[1]) / 2


@cache
def reference(name: str) -> Found:
    """By covariance matrices, in NumPy; nothing is said of slopes by missing rows."""
    given = case()
    x, there = given.x[:, 0], given.precision > 0
    both, size = np.concatenate([x, given.new]), len(x)

    def covariances(numbers: Array) -> tuple[Array, Array]:
        prior = KERNELS[name](*numbers)(both, both)
        return prior, prior

    change, prior = map(np.asarray, quick(jax.jacfwd(covariances, has_aux=True))(NUMBERS))
    root = np.sqrt(given.precision)
    scaled = root[:, None] * prior[:size]
    met = np.eye(size) + scaled[:, :size] * root
    target = np.divide(given.linear, root, where=there, out=np.zeros(size))
    solved, outer = np.linalg.solve(met, target), np.outer(root, root)
    mean, covariance = scaled.T @ solved, prior - scaled.T @ np.linalg.solve(met, scaled)
    log_mass = -(target @ solved + np.linalg.slogdet(met)[1]) / 2
    pull = (np.outer(solved, solved) - np.linalg.inv(met)) * outer / 2
    variance, new = np.diag(covariance), slice(size, None)
    peak = (given.linear / np.where(there, given.precision, 1.0))[there]
    own, spread = mean[:size][there], variance[:size][there]
    slopes = (np.einsum("ij,ijk->k", pull, change[:size, :size]), (peak**2 - own**2 - spread) / 2, own - peak)
    return Found(log_mass, slopes, mean[:size], variance[:size], mean[new], variance[new], covariance[new, new])


@cache
def found(name: str) -> Found:
    def everything(numbers: Array, given: Case) -> Found:
        def process(numbers: Array) -> StateSpaceProcess:
            return StateSpace().represent(KERNELS[name](*numbers), given.x)

        evidence, here = (given.precision, given.linear), process(numbers)
        mass = jax.value_and_grad(lambda numbers, *evidence: process(numbers).log_mass(*evidence), (0, 1, 2))
        both = here.moments_at(*evidence, jnp.concatenate([given.x, given.new[:, None]]))
        split = (
            part for moment in zip(*(jnp.split(one, [len(given.x)]) for one in both), strict=True) for part in moment
        )
        return Found(*mass(numbers, *evidence), *split, here.covariance_at(*evidence, given.new))

    return quick(everything)(NUMBERS, case())


@every_kernel
def test_moments_are_those_of_the_covariance_matrix(name: str) -> None:
    for field in ("log_mass", "mean", "variance", "mean_at", "variance_at", "covariance_at"):
        ours, theirs = getattr(found(name), field), getattr(reference(name), field)
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9, err_msg=field)


@every_kernel
def test_slopes_are_those_of_the_covariance_matrix(name: str) -> None:
    there = case().precision > 0
    numbers, *evidence = found(name).slopes
    np.testing.assert_allclose(numbers, reference(name).slopes[0], rtol=1e-7, atol=1e-9)
    for ours, theirs in zip(evidence, reference(name).slopes[1:], strict=True):
        np.testing.assert_allclose(ours[there], theirs, rtol=1e-7, atol=1e-9)
        assert np.isfinite(ours).all()


def test_second_derivatives_in_every_mode() -> None:
    given = case()
    there = given.precision > 0
    rows = Case(given.x[there], given.new, given.precision[there], given.linear[there])

    def log_mass(numbers: Array) -> Array:
        process = StateSpace().represent(KERNELS["matern32"](*numbers), rows.x)
        return process.log_mass(rows.precision, rows.linear)

    theirs = quick(jax.hessian(partial(dense_log_mass, "matern32")))(NUMBERS, rows.precision, rows.linear, rows.x[:, 0])
    ours = quick(lambda numbers: (jax.hessian(log_mass)(numbers), jax.jacrev(jax.jacrev(log_mass))(numbers)))(NUMBERS)
    for one in ours:
        np.testing.assert_allclose(one, theirs, rtol=1e-7, atol=1e-9)


def test_slopes_by_the_inputs() -> None:
    given = case()
    x = np.linspace(0.0, 3.0, 13)[::-1] ** 2
    rows = (np.maximum(given.precision, 0.5), given.linear, x)

    def log_mass(x: Array) -> Array:
        return StateSpace().represent(KERNELS["matern52"](*NUMBERS), x).log_mass(*rows[:2])

    theirs = quick(jax.grad(partial(dense_log_mass, "matern52"), 3))(NUMBERS, *rows)
    np.testing.assert_allclose(quick(jax.grad(log_mass))(x), theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("spacing", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("kernel", [kernels.Exp(1.0), kernels.Matern32(1.0), kernels.Matern52(1.0)])
def test_nearly_exact_observations(kernel: Any, spacing: float) -> None:
    """Of a path of the process with a noise of 1e-6, against extended precision."""
    x = spacing * np.arange(12.0)
    precision = np.full(12, 1e12)
    value = np.sin(x)
    found = nearly_exact(kernel, x, precision, precision * value)
    theirs = _extended(type(kernel).__name__, x, value, 1e-12)
    np.testing.assert_allclose(found, theirs, rtol=1e-8)


@quick
def nearly_exact(kernel: Any, x: Array, precision: Array, linear: Array) -> Array:
    return StateSpace().represent(kernel, x).log_mass(precision, linear)


def _extended(name: str, x: np.ndarray, value: np.ndarray, noise: float) -> float:
    """log N(value; 0, K + noise) + log(2 pi noise) / 2 a row, by a Cholesky factorisation in long double."""
    gap = np.abs(np.subtract.outer(x, x)).astype(np.longdouble)
    u = gap * np.sqrt(np.longdouble({"Exp": 1, "Matern32": 3, "Matern52": 5}[name]))
    factor = {"Exp": 1, "Matern32": 1 + u, "Matern52": 1 + u + u * u / 3}[name]
    rest = factor * np.exp(-u) + np.longdouble(noise) * np.eye(len(x))
    white, total = value.astype(np.longdouble), np.longdouble(0)
    for place in range(len(x)):
        pivot = rest[place, place]
        total -= (white[place] ** 2 / pivot + np.log(pivot / np.longdouble(noise))) / 2
        gain = rest[place + 1 :, place] / pivot
        white[place + 1 :] -= gain * white[place]
        rest[place + 1 :, place + 1 :] -= np.outer(gain, rest[place, place + 1 :])
    return float(total)


def test_density_of_the_values() -> None:
    x = np.array([0.3, 2.0, -1.0, 0.9, 5.0])
    value = np.array([0.2, -0.4, 1.0, 0.3, 0.0])
    kernel = KERNELS["sum"](*NUMBERS)
    covariance = np.asarray(kernel(x, x)) * (1 + 1e-10 * np.eye(5))
    theirs = -(value @ np.linalg.solve(covariance, value) + np.linalg.slogdet(2 * np.pi * covariance)[1]) / 2
    found = quick(lambda value: StateSpace().represent(kernel, x).log_density(value))(value)
    np.testing.assert_allclose(found, theirs, rtol=1e-9)


def test_draws_have_the_moments() -> None:
    """Before and after the evidence, there and at new inputs."""
    given, number = case(), 20_000
    evidence, x = (given.precision, given.linear), given.x[:, 0]

    @quick
    def draws(key: Array, numbers: Array) -> tuple[list[Array], Array, Array, Moments]:
        kernel, keys = KERNELS["sum"](*numbers), jax.random.split(key, 3)
        here = StateSpace().represent(kernel, given.x)
        prior, after = here.draw(keys[0], (number,)), here.given(keys[1], *evidence, (number,))
        at = here.draws_at(keys[2], *evidence, given.new, (number // 2, 2)).reshape(number, -1)
        return [prior, after, at], kernel(x, x), here.covariance_at(*evidence, x), here.moments(*evidence)

    (prior, after, at), before, covariance, moments = draws(jax.random.key(0), NUMBERS)
    np.testing.assert_allclose(moments.mean, reference("sum").mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(moments.variance, np.diag(covariance), rtol=1e-9, atol=1e-9)
    _same(prior, np.zeros(13), before)
    _same(after, reference("sum").mean, covariance)
    _same(at, reference("sum").mean_at, reference("sum").covariance_at)


def _same(draws: Array, mean: Array, covariance: Array) -> None:
    """Within five standard errors."""
    draws, covariance = np.asarray(draws), np.asarray(covariance)
    number, variance = len(draws), np.diag(covariance)
    np.testing.assert_array_less(np.abs(draws.mean(0) - mean), 5 * np.sqrt(variance / number) + 1e-9)
    error = np.sqrt((np.outer(variance, variance) + np.square(covariance)) / number)
    np.testing.assert_array_less(np.abs(np.cov(draws.T) - covariance), 5 * error + 1e-9)


def test_maps_over_evidence_and_kernels_in_single_precision() -> None:
    x = jnp.linspace(0.0, 3.0, 7, dtype=jnp.float32)
    precision = jnp.asarray([[1.0] * 7, [0.0] * 7], jnp.float32)

    def log_mass(scale: Array, precision: Array) -> Array:
        return StateSpace().represent(kernels.Matern32(scale), x).log_mass(precision, precision)

    found = quick(jax.vmap(jax.value_and_grad(log_mass)))(jnp.asarray([1.0, 2.0], jnp.float32), precision)
    assert all(one.dtype == jnp.float32 for one in found)
    root = np.eye(7) + np.asarray(kernels.Matern32(1.0)(x, x))
    theirs = -(np.ones(7) @ np.linalg.solve(root, np.ones(7)) + np.linalg.slogdet(root)[1]) / 2
    np.testing.assert_allclose(found[0], [theirs, 0.0], rtol=1e-5)


def test_one_row() -> None:
    here = StateSpace().represent(2.0 * kernels.Matern32(1.0), np.array([0.7]))
    evidence = (np.array([0.5]), np.array([1.0]))
    mean, variance = quick(here.moments)(*evidence)
    np.testing.assert_allclose([mean[0], variance[0]], [1.0, 1.0])
    np.testing.assert_allclose(quick(here.log_mass)(*evidence), -0.5 - np.log(2) / 2)


class Squared(Distance):
    def distance(self, X1: Array, X2: Array) -> Array:
        return jnp.sum((X1 - X2) ** 2)


WITHOUT = {
    "ExpSquared": (kernels.Matern32() + kernels.ExpSquared(), np.zeros(3)),
    "Matern52 with Squared": (2.0 * kernels.Matern52(distance=Squared()), np.zeros(3)),
    "Linear with 2 scales": (transforms.Linear(np.ones(2), kernels.Exp()), np.zeros((3, 1))),
    "Subspace": (transforms.Subspace(0, kernels.Exp()), np.zeros((3, 1))),
}


@pytest.mark.parametrize("words", WITHOUT)
def test_kernels_without_a_state_space(words: str) -> None:
    kernel, x = WITHOUT[words]
    assert state_space_kernel(kernel) is None
    with pytest.raises(ValueError, match=f"^{words}, a part of the kernel, has no state space; use another solver"):
        StateSpace().represent(kernel, x)


def test_several_inputs() -> None:
    with pytest.raises(ValueError, match=r"x has shape \(3, 2\); StateSpace\(\) needs one input"):
        StateSpace().represent(kernels.Exp(), np.zeros((3, 2)))


def test_the_equivalent_kernel_is_the_same_function() -> None:
    x = jnp.asarray([0.0, 0.4, 1.5])
    kernel = 2.0 * transforms.Linear(-3.0, kernels.Matern32(0.5)) + kernels.Constant(0.3)
    equivalent = state_space_kernel(kernel)
    assert isinstance(equivalent, quasisep.Quasisep)
    np.testing.assert_allclose(equivalent(x, x), kernel(x, x), rtol=1e-12)
