"""LowRank equals dense algebra with its covariance matrix; its two solvers approach the kernel as they grow."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from scipy import stats
from tinygp import kernels, transforms
from tinygp.kernels import quasisep
from tinygp.kernels.distance import L2Distance

import bayeslab as bl
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.gaussian_processes.hilbert_space import HilbertSpace
from bayeslab.gaussian_processes.inducing_points import InducingPoints, inducing_points
from bayeslab.gaussian_processes.low_rank import LowRank
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS
from quick_cases import quick_ones

ROWS, FUNCTIONS, NEW = 12, 5, 4
quick = partial(jax.jit, compiler_options=UNOPTIMISED_OPTIONS)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Known:
    """Random functions of x, the same at every call."""

    def at(self, x: Array) -> tuple[Array, Array]:
        frequency = jnp.arange(1.0, FUNCTIONS + 1)
        return jnp.sin(x[:, None] * frequency + frequency**2), 0.2 + 0.1 * jnp.cos(x)


jax.tree_util.register_pytree_node(Known, lambda known: ((), None), lambda *_: Known())

x = np.linspace(-1.0, 2.0, ROWS)
new = np.array([-1.5, 0.3, 0.31, 4.0])


def known() -> LowRank:
    return LowRank(*Known().at(jnp.asarray(x)), Known())


def evidence(size: int = ROWS, noise: float = 0.3) -> tuple[Array, Array]:
    """Of a response at every row, every third of which is missing."""
    rng = np.random.default_rng(1)
    precision = np.where(np.arange(size) % 3 == 1, 0.0, rng.uniform(0.5, 2.0, size) / noise**2)
    return jnp.asarray(precision), jnp.asarray(precision * rng.normal(size=size))


def dense_mass(covariance: np.ndarray, precision: Array, linear: Array) -> float:
    """The log density of the responses, relative to that of their own noise at its peak."""
    there = np.asarray(precision) > 0
    some, target = np.asarray(precision)[there], (np.asarray(linear)[there] / np.asarray(precision)[there])
    noise = np.diag(1 / some)
    together = stats.multivariate_normal(cov=covariance[np.ix_(there, there)] + noise).logpdf(target)
    return together - np.sum(stats.norm.logpdf(0, scale=some**-0.5))


def dense_posterior(
    inner: np.ndarray, across: np.ndarray, outer: np.ndarray, precision: Array, linear: Array
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance matrix of values with the prior covariances `across` with the rows and `outer` themselves."""
    weight = np.asarray(precision)[:, None]
    solved = np.linalg.solve(np.eye(len(inner)) + weight * inner, np.column_stack([linear, weight * across.T]))
    return across @ solved[:, 0], outer - across @ solved[:, 1:]


def known_covariances() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the rows, of the new inputs with the rows, of the new inputs."""
    (basis, remainder), (other, more) = Known().at(jnp.asarray(x)), Known().at(jnp.asarray(new))
    rows, across, outer = basis @ basis.T + jnp.diag(remainder), other @ basis.T, other @ other.T + jnp.diag(more)
    return np.asarray(rows), np.asarray(across), np.asarray(outer)


def assert_draws(draws: Array, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Their first two moments, within five standard errors."""
    found, count = np.asarray(draws).reshape(-1, len(mean)), draws.size // len(mean)
    variance = np.diag(covariance)
    assert np.all(np.abs(found.mean(0) - mean) < 5 * np.sqrt(variance / count))
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
    assert np.all(np.abs(np.cov(found.T) - covariance) < 5 * error)


@quick
def services(process: LowRank, value: Array, precision: Array, linear: Array, at: Array) -> dict[str, Any]:
    key, shape, given = jax.random.key(0), (200, 100), (precision, linear)
    return {
        "log_density": process.log_density(value),
        "log_mass": process.log_mass(*given),
        "moments": process.moments(*given),
        "moments_at": process.moments_at(*given, at),
        "covariance_at": process.covariance_at(*given, at),
        "draw": process.draw(key, shape),
        "given": process.given(key, *given, shape),
        "draws_at": process.draws_at(key, *given, at, shape),
    }


def test_every_service_is_that_of_the_covariance_matrix() -> None:
    rows, across, outer = known_covariances()
    value = np.random.default_rng(0).normal(size=ROWS)
    found = services(known(), jnp.asarray(value), *evidence(), jnp.asarray(new))
    expected = stats.multivariate_normal(cov=rows).logpdf(value)
    np.testing.assert_allclose(found["log_density"], expected, rtol=1e-9)
    np.testing.assert_allclose(found["log_mass"], dense_mass(rows, *evidence()), rtol=1e-9)
    here = dense_posterior(rows, rows, rows, *evidence())
    there = dense_posterior(rows, across, outer, *evidence())
    for name, (mean, covariance) in {"moments": here, "moments_at": there}.items():
        np.testing.assert_allclose(found[name].mean, mean, rtol=1e-9)
        np.testing.assert_allclose(found[name].variance, np.diag(covariance), rtol=1e-9)
    np.testing.assert_allclose(found["covariance_at"], there[1], rtol=1e-9, atol=1e-12)
    assert found["draws_at"].shape == (200, 100, NEW)
    assert_draws(found["draw"], np.zeros(ROWS), rows)
    assert_draws(found["given"], *here)
    assert_draws(found["draws_at"], *there)


def test_nothing_is_learnt_from_no_evidence() -> None:
    nothing = jnp.zeros(ROWS)
    found = services(known(), nothing, nothing, nothing, jnp.asarray(new))
    np.testing.assert_allclose(found["log_mass"], 0, atol=1e-12)
    np.testing.assert_allclose(found["moments"].mean, 0, atol=1e-12)
    np.testing.assert_allclose(found["moments"].variance, np.diag(known_covariances()[0]), rtol=1e-9)


def euclidean(kind: Any) -> Any:
    return kind(distance=L2Distance())


LINE = np.sort(np.random.default_rng(2).uniform(3.0, 7.0, 40))
PLANE = np.random.default_rng(3).uniform([-1.0, 5.0], [1.0, 9.0], (40, 2))
ARD = np.array([2.0, 0.8])


def represent(solver: Any, kernel: Any, inputs: np.ndarray = LINE) -> Any:
    return solver.represent(kernel, jnp.asarray(inputs))


def flat() -> Any:
    return 1.3 * kernels.ExpSquared(0.8)


def rough() -> Any:
    return kernels.Matern52(1.1) * 0.7


def stretched() -> Any:
    return transforms.Linear(ARD, kernels.ExpSquared())


@partial(jax.jit, static_argnums=0, compiler_options=UNOPTIMISED_OPTIONS)
def answers(solver: Any, kernel: Any, inputs: Array, precision: Array, linear: Array, at: Array) -> Any:
    process = solver.represent(kernel, inputs)
    return process.log_mass(precision, linear), process.moments_at(precision, linear, at)


@quick
def covariances(kernel: Any, first: Array, second: Array) -> Array:
    return kernel(first, second)


def errors(solvers: list[Any], kernel: Any, inputs: np.ndarray) -> list[float]:
    """The largest differences from the kernel, of the log mass and of predictions in units of their deviation."""
    precision, linear = evidence(len(inputs))
    at = inputs[1:7] * 0.9 + inputs.mean(0) * 0.1
    rows = np.asarray(covariances(kernel, inputs, inputs))
    mass = dense_mass(rows, precision, linear)
    across, outer = (np.asarray(covariances(kernel, at, other)) for other in (inputs, at))
    mean, covariance = dense_posterior(rows, across, outer, precision, linear)
    deviation = np.sqrt(np.diag(covariance))

    def error(solver: Any) -> float:
        found, moments = answers(solver, kernel, jnp.asarray(inputs), precision, linear, jnp.asarray(at))
        apart = np.abs(moments.mean - mean) / deviation, np.abs(np.sqrt(moments.variance) / deviation - 1)
        return max(abs(float(found) / mass - 1), *map(float, map(np.max, apart)))

    return [error(solver) for solver in solvers]


@pytest.mark.parametrize(
    ("made", "inputs", "boundary", "sizes"),
    [(flat, LINE, 2.5, [10, 16, 30]), (rough, LINE, 4.0, [20, 60, 300]), (stretched, PLANE, 3.0, [6, 10, 24])],
)
def test_hilbert_space_approaches_the_kernel(
    made: Callable[[], Any], inputs: np.ndarray, boundary: float, sizes: list[int]
) -> None:
    found = errors([HilbertSpace(size, boundary) for size in sizes], made(), inputs)
    assert all(later < earlier / 3 for earlier, later in itertools.pairwise(found)), found
    assert found[-1] < 1e-4, found


@pytest.mark.parametrize(
    ("made", "inputs", "sizes"), [(flat, LINE, [6, 12]), (rough, LINE, [6, 18]), (stretched, PLANE, [6, 20])]
)
def test_inducing_points_approach_the_kernel(made: Callable[[], Any], inputs: np.ndarray, sizes: list[int]) -> None:
    """At all data they give its answer."""
    found = errors([*(inducing_points(inputs, size) for size in sizes), InducingPoints(inputs)], made(), inputs)
    assert all(later < earlier / 3 for earlier, later in itertools.pairwise(found)), found
    assert found[-1] < 1e-5, found


def through_points(x: Any) -> None:
    process = GaussianProcess(kernels.ExpSquared(), x, solver=inducing_points(LINE, 10))
    f = numpyro.sample("f", process, infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, 0.3))


@pytest.mark.slow
def test_fewer_new_inputs_than_inducing_points_are_predicted_as_among_many() -> None:
    data, many = {"x": LINE, "y": np.sin(LINE)}, np.linspace(3.0, 7.0, 30)
    tree = bl.fit(0, through_points, data, bl.Exact(num_samples=2), progress=False)
    few, among = (bl.process_at(through_points, data, tree, {"x": new}) for new in (many[:3], many))
    for name in ("f", "f_sd", "y", "y_sd"):
        np.testing.assert_allclose(few[name], among[name][:3], rtol=1e-9)


PARTS: dict[str, tuple[Any, np.ndarray, int, float]] = {
    "Matern 3/2": (kernels.Matern32(0.7), LINE, 800, 3.0),
    "quasiseparable": (quasisep.Matern52(0.6, sigma=1.2) + 0.5 * quasisep.Matern52(0.9), LINE, 200, 3.0),
    "sum": (kernels.ExpSquared(0.8) + 0.5 * (kernels.Matern52(0.6) + 2.0), LINE, 200, 3.0),
    "periodic": (0.8 * kernels.ExpSineSquared(2.0, gamma=1.5), LINE, 9, 1.1),
    "stretched periodic": (transforms.Linear(0.5, kernels.ExpSineSquared(1.0, gamma=1.5)), LINE, 9, 1.1),
    "product": (kernels.ExpSineSquared(2.0, gamma=0.5) * kernels.ExpSquared(0.8), LINE, 20, 2.5),
    "polynomial": ((transforms.Linear(ARD, kernels.DotProduct()) + 2.0) * kernels.DotProduct(), PLANE, 1, 1.1),
    "Matern of two inputs": (transforms.Linear(ARD, euclidean(kernels.Matern52)), PLANE, 50, 3.0),
    "additive": (
        transforms.Subspace(0, kernels.ExpSquared(0.8))
        + transforms.Linear(ARD, transforms.Subspace(1, kernels.Matern52(0.7))),
        PLANE,
        200,
        3.5,
    ),
}


@pytest.mark.parametrize("name", quick_ones(PARTS, "quasiseparable", "sum", "Matern of two inputs"))
def test_functions_of_a_kernel_have_its_covariances(name: str) -> None:
    kernel, inputs, size, boundary = PARTS[name]
    solver = HilbertSpace(size, boundary)
    basis = quick(lambda kernel, inputs: solver.represent(kernel, inputs).basis)(kernel, jnp.asarray(inputs))
    np.testing.assert_allclose(basis @ basis.T, covariances(kernel, inputs, inputs), atol=1e-3)


@pytest.mark.parametrize("solver", [HilbertSpace(12, 2.0), inducing_points(LINE, 12)])
def test_gradients_are_those_of_finite_differences(solver: Any) -> None:
    """With missing rows, of the log mass along a direction of the hyperparameters and the evidence; and second ones."""
    precision, linear = evidence(len(LINE))
    start = jnp.array([1.2, 0.8, 1.1])

    def mass(distance: Array) -> Array:
        numbers = start + distance * jnp.array([0.5, 0.3, -0.4])
        kernel = numbers[0] * kernels.ExpSquared(numbers[1])
        return solver.represent(kernel, jnp.asarray(LINE)).log_mass(numbers[2] * precision, linear)

    @quick
    def derivatives(at: Array) -> tuple[Array, Array, Array]:
        (value, slope), (_, bend) = jax.jvp(jax.value_and_grad(mass), (at,), (jnp.ones(()),))
        return value, slope, bend

    (before, *_), (_, slope, bend), (after, *_) = found = [derivatives(at) for at in (-1e-5, 0.0, 1e-5)]
    np.testing.assert_allclose(slope, (after - before) / 2e-5, rtol=1e-5)
    np.testing.assert_allclose(bend, (found[2][1] - found[0][1]) / 2e-5, rtol=1e-4)


def test_gradients_by_the_evidence_are_finite_where_it_is_missing() -> None:
    slopes = quick(jax.grad(lambda *both: known().log_mass(*both), argnums=(0, 1)))(*evidence())
    assert all(jnp.isfinite(slope).all() for slope in slopes)


def test_functions_of_vanishing_strength_have_finite_gradients() -> None:
    """A smooth kernel has spectral densities that underflow."""

    def mass(scale: Array) -> Array:
        process = HilbertSpace(200).represent(kernels.ExpSquared(scale), jnp.asarray(LINE))
        return process.log_mass(*evidence(len(LINE)))

    value, slope = quick(jax.value_and_grad(mass))(jnp.array(3.0))
    assert jnp.isfinite(value)
    assert jnp.isfinite(slope)


@pytest.mark.parametrize("solver", [HilbertSpace(12, 2.0), inducing_points(LINE, 12)])
def test_processes_of_many_kernels_at_once(solver: Any) -> None:
    """Hyperparameters with an axis of draws; alone and in single precision they give the same."""
    precision, linear = evidence(len(LINE))

    def mean(scale: Array, x: Array) -> Array:
        process = solver.represent(kernels.Matern52(scale), x)
        return process.moments_at(precision.astype(x.dtype), linear.astype(x.dtype), x[:3]).mean

    scales = jnp.array([0.5, 1.0, 2.0])
    double = quick(jax.vmap(mean, (0, None)))(scales, jnp.asarray(LINE))
    with jax.enable_x64(False):
        single = quick(mean)(scales[1].astype("float32"), jnp.asarray(LINE, "float32"))
    assert single.dtype == "float32"
    np.testing.assert_allclose(single, double[1], atol=1e-3)


def test_inputs_outside_of_the_box_are_an_error_or_nan() -> None:
    process = quick(HilbertSpace(10, 1.2).represent)(kernels.ExpSquared(), LINE)
    far = jnp.array([5.0, 9.0])
    with pytest.raises(ValueError, match=r"input 9 is outside of the box .* larger boundary"):
        process.functions.at(far)
    basis, _ = quick(process.functions.at)(far)
    assert jnp.isfinite(basis[0]).all()
    assert jnp.isnan(basis[1]).all()


def test_chosen_points_differ_and_represent_the_data() -> None:
    """As many as asked, hashable, the same at every call; all different rows where that is what is asked."""
    solver = inducing_points(np.column_stack([LINE, 1e3 * LINE[::-1]]), 7)
    assert np.shape(solver.points) == (7, 2)
    assert hash(solver) == hash(inducing_points(np.column_stack([LINE, 1e3 * LINE[::-1]]), 7))
    assert len(set(solver.points)) == 7
    assert inducing_points(np.repeat([1.0, 2.0, 4.0], 5), 3) == InducingPoints(np.array([1.0, 2.0, 4.0]))


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no density": (
        lambda: represent(HilbertSpace(5), kernels.RationalQuadratic(alpha=1.0) + 1.0),
        "RationalQuadratic .* InducingPoints",
    ),
    "L1": (lambda: represent(HilbertSpace(5), kernels.Matern32(), PLANE), "Matern32 of 2 inputs .*L2Distance"),
    "two periods": (
        lambda: represent(HilbertSpace(5), kernels.ExpSineSquared(gamma=1.0), PLANE),
        r"ExpSineSquared has 2 inputs.*Subspace\(0",
    ),
    "matrix": (
        lambda: represent(HilbertSpace(5), transforms.Linear(np.eye(2), kernels.ExpSquared()), PLANE),
        "is a matrix",
    ),
    "counts": (lambda: represent(HilbertSpace((5, 6)), kernels.ExpSquared()), r"\(5, 6\) and x has 1 columns"),
    "no basis": (lambda: HilbertSpace(0), "num_basis is 0; expected"),
    "boundary": (lambda: HilbertSpace(5, 1.0), "boundary is 1.0; expected more than 1"),
    "constant": (lambda: represent(HilbertSpace(5), kernels.ExpSquared(), np.ones(5)), "column 0 of x never varies"),
    "new columns": (
        lambda: quick(HilbertSpace(5).represent)(kernels.ExpSquared(), LINE).functions.at(jnp.ones((3, 2))),
        "2 columns; expected 1",
    ),
    "a number": (lambda: InducingPoints(20), r"inducing_points\(x, m\)"),
    "not finite": (lambda: InducingPoints([0.0, np.nan]), "not finite"),
    "columns": (lambda: represent(InducingPoints(PLANE), kernels.ExpSquared()), "2 columns and x has 1"),
    "few rows": (lambda: inducing_points(np.ones(9), 2), "num_points is 2; expected 1 to 1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_say_what_to_do(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        call()
