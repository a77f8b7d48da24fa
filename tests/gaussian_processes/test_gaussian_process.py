"""Gaussian processes in programs: the conditional, its evidence, what samplers see, and prediction.

Oracles: scikit-learn, quadrature over a hyperparameter, refitting without a row.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to
from scipy import integrate, special, stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as theirs

import bayeslab as bl
from bayeslab import kernels
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.gaussian_processes.dense import Dense
from bayeslab.gaussian_processes.distribution import solver_of
from bayeslab.gaussian_processes.hilbert_space import HilbertSpace
from bayeslab.gaussian_processes.state_space.solver import StateSpace
from bayeslab.models import gp_regression, gp_regression_unknown_kernel, kernel_logistic, polynomial_regression
from lines import LINE, NEW, PLANE, RANDOM, Y


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


KERNELS: dict[str, tuple[Any, Any]] = {
    "squared exponential": (kernels.squared_exponential(0.7), theirs.RBF(0.7)),
    "one lengthscale an input": (kernels.squared_exponential(np.array([0.7, 2.0])), theirs.RBF([0.7, 2.0])),
    "matern12": (kernels.matern12(0.7), theirs.Matern(0.7, nu=0.5)),
    "matern32": (kernels.matern32(np.array([0.7, 2.0])), theirs.Matern([0.7, 2.0], nu=1.5)),
    "matern52": (kernels.matern52(0.7), theirs.Matern(0.7, nu=2.5)),
    "rational quadratic": (kernels.rational_quadratic(0.7, 1.3), theirs.RationalQuadratic(0.7, 1.3)),
    "linear and constant": (kernels.linear(0.5) + 2.0, 4 * theirs.DotProduct(0.0) + theirs.ConstantKernel(2.0)),
    "polynomial": (kernels.polynomial(3, 1.0, 0.8), theirs.DotProduct(0.8) ** 3),
    "product": (
        0.3 * kernels.matern32(0.5) * kernels.linear(),
        0.3 * theirs.Matern(0.5, nu=1.5) * theirs.DotProduct(0),
    ),
    "white": (kernels.matern12() + kernels.white(0.4), theirs.Matern(1.0, nu=0.5) + theirs.WhiteKernel(0.4)),
}


@pytest.mark.parametrize(("ours", "other"), KERNELS.values(), ids=KERNELS.keys())
def test_kernels_have_the_values_of_scikit_learn(ours: Any, other: Any) -> None:
    np.testing.assert_allclose(ours(PLANE, PLANE), other(PLANE), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours(PLANE), np.diag(other(PLANE)), rtol=1e-10)


def test_periodic_kernel_and_kernels_of_some_inputs() -> None:
    ours, other = kernels.periodic(1.5, 0.8), theirs.ExpSineSquared(0.8, 1.5)
    np.testing.assert_allclose(ours(LINE, NEW), other(LINE[:, None], NEW[:, None]), rtol=1e-10)
    second, both = kernels.of_inputs(1, kernels.matern32()), kernels.of_inputs((0, 1), kernels.matern32())
    np.testing.assert_allclose(second(PLANE, PLANE), kernels.matern32()(PLANE[:, 1], PLANE[:, 1]), rtol=1e-12)
    np.testing.assert_allclose(both(PLANE, PLANE), kernels.matern32()(PLANE, PLANE), rtol=1e-12)


def scikit_learn(kernel: Any, x: Any, y: Any, noise: Any) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(kernel, alpha=noise**2, optimizer=None).fit(x, y)


@pytest.mark.parametrize("noise", [0.3, np.linspace(0.1, 0.6, 12), 1e-4], ids=["one", "each", "small"])
def test_exact_posterior_is_that_of_scikit_learn(noise: Any) -> None:
    """Mean, covariance, log marginal likelihood; a row without a response says nothing."""
    y = np.where(np.arange(12) == 5, np.nan, Y)
    data = {"x": LINE, "y": y, "kernel": 1.7 * kernels.matern52(0.9), "sigma": noise, "mu": 0.2}
    tree = bl.fit(0, gp_regression.model, data, bl.Exact(num_samples=2), progress=False)
    seen = ~np.isnan(y)
    other = scikit_learn(
        theirs.ConstantKernel(1.7) * theirs.Matern(0.9, nu=2.5),
        LINE[seen, None],
        y[seen] - 0.2,
        np.broadcast_to(noise, 12)[seen],
    )
    np.testing.assert_allclose(tree.attrs["log_evidence"], other.log_marginal_likelihood_value_, rtol=1e-8)
    found = bl.process_at(gp_regression.model, data, tree, {"x": NEW, "sigma": 0.1}, covariance=True)
    mean, covariance = other.predict(NEW[:, None], return_cov=True)
    np.testing.assert_allclose(found["f"], mean + 0.2, atol=1e-8)
    np.testing.assert_allclose(found["f_covariance"], covariance, atol=1e-8)
    np.testing.assert_allclose(found["f_sd"] ** 2, np.diag(covariance), atol=1e-8)
    np.testing.assert_allclose(found["y_sd"] ** 2, np.diag(covariance) + 0.01, atol=1e-8)


def test_joint_draws_at_new_inputs_have_the_posterior_moments() -> None:
    data = gp_regression.example()
    tree = bl.fit(1, gp_regression.model, data, bl.Exact(num_samples=4000), progress=False)
    found = bl.process_at(gp_regression.model, data, tree, {"x": NEW}, covariance=True, slope=True)
    drawn = bl.process_draws(2, gp_regression.model, data, tree, {"x": NEW})["f"].values[0]
    error = found["f_sd"].values / np.sqrt(4000)
    assert (np.abs(drawn.mean(0) - found["f"].values) < 5 * error).all()
    scale = np.sqrt(np.outer(*[found["f_sd"].values ** 2] * 2) * 2 / 4000)
    assert (np.abs(np.cov(drawn.T) - found["f_covariance"].values) < 5 * scale).all()
    step = 1e-4
    high, low = (bl.process_at(gp_regression.model, data, tree, {"x": NEW + h})["f"] for h in (step, -step))
    np.testing.assert_allclose(found["f_slope"][:, 0], (high - low) / (2 * step), rtol=1e-5, atol=1e-6)


def test_draws_of_the_posterior_have_its_moments() -> None:
    """Matheron's rule, at the inputs of the fit."""
    process = GaussianProcess(kernels.matern32(1.0), LINE, 0.5)
    precision = np.where(np.arange(12) < 3, 0.0, 5.0)
    given = process.condition(precision, precision * Y)
    drawn = np.asarray(given.sample(jax.random.PRNGKey(0), (20_000,)))
    deviation = np.asarray(jnp.sqrt(given.variance))
    assert (np.abs(drawn.mean(0) - given.mean) < 5 * deviation / np.sqrt(20_000)).all()
    assert (np.abs(drawn.std(0) / deviation - 1) < 5 / np.sqrt(2 * 20_000)).all()


def test_leave_one_out_in_closed_form_is_refitting() -> None:
    """Rasmussen and Williams (2006), 5.12: y_i - [K^-1 y]_i / [K^-1]_ii and 1 / [K^-1]_ii."""
    kernel, noise = kernels.matern32(0.8), 0.3
    inverse = np.linalg.inv(np.asarray(kernel(LINE, LINE)) + noise**2 * np.eye(12))
    mean, variance = Y - (inverse @ Y) / np.diag(inverse), 1 / np.diag(inverse)
    for row in (0, 5):
        data = {"x": LINE, "y": np.where(np.arange(12) == row, np.nan, Y), "kernel": kernel, "sigma": noise}
        tree = bl.fit(0, gp_regression.model, data, bl.Exact(num_samples=1), progress=False)
        found = bl.process_at(gp_regression.model, data, tree, {"x": LINE[[row]]})
        np.testing.assert_allclose([found["y"][0], found["y_sd"][0] ** 2], [mean[row], variance[row]], rtol=1e-8)


@pytest.mark.slow
def test_polynomial_regression_is_a_process() -> None:
    """Weight space and function space: the same evidence and the same predictions, with a singular kernel matrix."""
    data = polynomial_regression.example()
    weights = bl.fit(0, polynomial_regression.model, data, bl.Exact(num_samples=4000), progress=False)
    process = {"x": data["x"][:, None], "y": data["y"], "kernel": 1.5**2 * kernels.polynomial(2), "sigma": 0.4}
    functions = bl.fit(0, gp_regression.model, process, bl.Exact(num_samples=2), progress=False)
    np.testing.assert_allclose(weights.attrs["log_evidence"], functions.attrs["log_evidence"], rtol=1e-9)
    found = bl.process_at(gp_regression.model, process, functions, {"x": NEW[:, None]})
    drawn = weights["posterior"]["w"].values[0] @ np.vander(NEW, 3, increasing=True).T
    assert (np.abs(drawn.mean(0) - found["f"].values) < 5 * found["f_sd"].values / np.sqrt(4000)).all()


def flat(x: Any) -> None:
    scale = numpyro.sample("scale", dist.ImproperUniform(dist.constraints.positive, (), ()))
    f = numpyro.sample("f", GaussianProcess(kernels.squared_exponential(scale), x), infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, 0.3))


def test_maximum_likelihood_is_that_of_scikit_learn() -> None:
    """Type II, by a flat prior; and predictions there."""
    data = {"x": LINE, "y": Y}
    tree = bl.fit(0, bl.collapse(flat, "f"), data, bl.MAP(), progress=False)
    other = GaussianProcessRegressor(theirs.RBF(0.5), alpha=0.09).fit(LINE[:, None], Y)
    np.testing.assert_allclose(tree["posterior"]["scale"].item(), other.kernel_.length_scale, rtol=1e-4)
    found = bl.process_at(flat, data, tree, {"x": NEW})
    np.testing.assert_allclose(found["f"], other.predict(NEW[:, None]), atol=1e-3)


def one_scale(x: Any) -> None:
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.7))
    f = numpyro.sample("f", GaussianProcess(kernels.squared_exponential(scale), x), infer={"event_dims": ["row"]})
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, 0.3))


@pytest.mark.slow
def test_hyperparameters_by_nuts_agree_with_quadrature() -> None:
    """With f integrated out; and f recovered, of which a row without a response is drawn as well."""

    def joint(log_scale: float) -> float:
        prior = stats.norm(0, 0.7).logpdf(log_scale)
        return prior + scikit_learn(theirs.RBF(np.exp(log_scale)), LINE[:, None], Y, 0.3).log_marginal_likelihood_value_

    grid = np.linspace(-3.5, 2.5, 400)
    weights = special.softmax([joint(one) for one in grid])
    mean = weights @ grid
    deviation = np.sqrt(weights @ grid**2 - mean**2)
    data = {"x": LINE, "y": Y}
    collapsed = bl.collapse(one_scale, "f")
    tree = bl.fit(3, collapsed, data, bl.NUTS(num_warmup=300, num_samples=500), progress=False)
    logs = np.log(tree["posterior"]["scale"].values)
    assert abs(logs.mean() - mean) < 5 * deviation / np.sqrt(500)
    assert abs(logs.std() / deviation - 1) < 0.2
    whole = bl.recover(4, collapsed, data, tree)
    found = bl.process_at(one_scale, data, tree, {"x": LINE})
    drawn = whole["posterior"]["f"].values.reshape(-1, 12)
    assert (np.abs(drawn.mean(0) - found["f"].values) < 5 * found["f_sd"].values / np.sqrt(500)).all()


def test_whitened_sampling_of_a_classifier_agrees_with_quadrature() -> None:
    """f is not conjugate; NUTS sees standard Normal coordinates."""
    x, y = np.array([0.0, 0.7]), np.array([1, 0])
    data = {"x": x, "y": y, "a": 2.0, "b": 1.0}
    covariance = 4 * np.exp(-((x[:, None] - x) ** 2) / 2)
    normal = stats.multivariate_normal(cov=covariance)

    def density(second: float, first: float) -> float:
        return normal.pdf([first, second]) * special.expit(first) * special.expit(-second)

    mass, mean = (
        integrate.dblquad(lambda b, a, power=power: a**power * density(b, a), -12, 12, -12, 12, epsabs=1e-8)[0]
        for power in (0, 1)
    )
    tree = bl.fit(5, kernel_logistic.model, data, bl.NUTS(num_warmup=300, num_samples=500), progress=False)
    f = tree["posterior"]["f"].values[..., 0]
    assert abs(f.mean() - mean / mass) < 5 * f.std() / np.sqrt(700)
    found = bl.process_at(kernel_logistic.model, data, tree, {"x": x})
    np.testing.assert_allclose(found["f"][0], f.mean(), atol=1e-4)


def test_unconstrained_coordinates_are_standard_normal() -> None:
    process = GaussianProcess(kernels.squared_exponential(2.0), LINE, 1.5)  # nearly singular
    whitening, noise = biject_to(process.support), RANDOM.normal(size=12)
    value = whitening(noise)
    total = process.log_prob(value) + whitening.log_abs_det_jacobian(noise, value)
    np.testing.assert_allclose(total, stats.norm.logpdf(noise).sum(), rtol=1e-6)


def test_a_matrix_of_low_rank_has_an_answer() -> None:
    """500 rows of rank 3, all of them twice, and constant responses."""
    x = np.tile(np.linspace(-1, 1, 250), 2)[:, None]
    data = {"x": x, "y": np.ones(500), "kernel": kernels.polynomial(2), "sigma": 0.1}
    tree = bl.fit(0, gp_regression.model, data, bl.Exact(num_samples=2), progress=False)
    phi = np.sqrt([1, 2, 1]) * np.vander(x[:, 0], 3, increasing=True)
    inner = np.linalg.slogdet(np.eye(3) + phi.T @ phi * 100)[1]
    solved = np.linalg.solve(np.eye(3) + phi.T @ phi * 100, phi.T @ np.ones(500))
    squares = 100 * (500 - 100 * np.ones(500) @ phi @ solved)
    expected = -0.5 * (squares + inner + 500 * np.log(2 * np.pi * 0.01))
    np.testing.assert_allclose(tree.attrs["log_evidence"], expected, rtol=1e-8)
    assert np.isfinite(tree["posterior"]["f"].values).all()


def test_explain_says_how_a_process_is_computed() -> None:
    text = str(bl.explain(gp_regression.model, gp_regression.example()))
    assert "GaussianProcess, dense" in text
    assert "not in closed form" in str(bl.explain(kernel_logistic.model, kernel_logistic.example()))


def summed(x: Any) -> None:
    f = numpyro.sample("f", GaussianProcess(kernels.matern32(), x))
    numpyro.sample("y", dist.Normal(jnp.cumsum(f), 0.3).to_event(1))


def test_evidence_that_joins_values_is_not_taken_for_elementwise() -> None:
    assert "not in closed form" in str(bl.explain(summed, {"x": LINE, "y": Y}))


WRONG = [
    (lambda: GaussianProcess(kernels.matern32(), np.zeros((0,))), "none of them empty"),
    (lambda: GaussianProcess(kernels.matern32(), LINE, np.zeros(3)), "expected a number or"),
    (lambda: kernels.polynomial(0), "at least 1"),
    (lambda: kernels.squared_exponential(-1.0), "lengthscale"),
    (lambda: kernels.matern32(np.array([1.0, np.nan])), "lengthscale"),
    (lambda: bl.bind(gp_regression.model, gp_regression.example() | {"x": np.full(8, np.nan)}), "x"),
    (lambda: bl.bind(gp_regression.model, gp_regression.example() | {"sigma": -1.0}), "sigma"),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG, ids=[words for _, words in WRONG])
def test_wrong_input_gets_a_sentence(wrong: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        wrong()


def test_inputs_of_another_dimension_and_other_data_are_refused() -> None:
    data = gp_regression.example()
    tree = bl.fit(0, gp_regression.model, data, bl.Exact(num_samples=2), progress=False)
    with pytest.raises(ValueError, match=r"new inputs have shape \(4, 2\)"):
        bl.process_at(gp_regression.model, data, tree, {"x": np.zeros((4, 2))})
    with pytest.raises(ValueError, match="other data"):
        bl.process_at(gp_regression.model, data | {"y": data["y"] + 1}, tree, {"x": NEW})
    with pytest.raises(ValueError, match="process_at"):
        bl.predict(0, gp_regression.model, data | {"x": NEW, "y": NEW}, tree)


def test_one_row_is_enough() -> None:
    data = {"x": LINE[:1], "y": Y[:1], "kernel": kernels.matern32(), "sigma": 0.3}
    tree = bl.fit(0, gp_regression.model, data, bl.Exact(num_samples=2), progress=False)
    np.testing.assert_allclose(tree.attrs["log_evidence"], stats.norm(0, np.sqrt(1.09)).logpdf(Y[0]), rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_unknown_kernel_takes_one_or_more_inputs(size: int) -> None:
    data = {"x": PLANE[:, :size], "y": Y}
    text = str(bl.explain(bl.collapse(gp_regression_unknown_kernel.model, "f"), data))
    assert f"input {size}" in text


def test_solver_is_chosen_by_rows_and_kernel() -> None:
    rows = np.linspace(0, 1, 1_001)
    matern, smooth = kernels.matern32(), kernels.squared_exponential()
    assert isinstance(solver_of(matern, rows[:1000], None), Dense)
    assert isinstance(solver_of(matern, rows, None), StateSpace)
    assert isinstance(solver_of(smooth, rows, None), Dense)
    assert solver_of(smooth, np.zeros(10_001), None) is None
    with pytest.raises(ValueError, match="HilbertSpace or inducing_points"):
        GaussianProcess(smooth, np.zeros(10_001)).sample(jax.random.PRNGKey(0))


def by_basis(x: Any, num_basis: int) -> None:
    f = numpyro.sample("f", GaussianProcess(kernels.squared_exponential(), x, solver=HilbertSpace(num_basis, 2.0)))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(f, 0.3))


@pytest.mark.slow
def test_predictions_say_how_far_a_solver_is_from_the_dense_answer() -> None:
    apart = []
    for size in (6, 24):
        data = {"x": LINE, "y": Y, "num_basis": size}
        assert "GaussianProcess, hilbert space" in str(bl.explain(by_basis, data))
        tree = bl.fit(0, by_basis, data, bl.Exact(num_samples=2), progress=False)
        apart.append(bl.process_at(by_basis, data, tree, {"x": np.linspace(0, 5, 4)}).attrs)
    assert apart[0]["mean_error"] > 0.1
    assert apart[0]["sd_error"] > 0.1
    assert abs(apart[0]["log_marginal_error"]) > 0.1
    assert max(abs(apart[1][name]) for name in ("mean_error", "sd_error", "log_marginal_error")) < 1e-3
    assert apart[1]["solver"] == "HilbertSpace"


def outputs(x: Any) -> None:
    with numpyro.plate("output", 2):
        f = numpyro.sample("f", GaussianProcess(kernels.matern32(), x), infer={"event_dims": ["row"]})
        numpyro.sample("y", dist.Normal(f, 0.3).to_event(1))


@pytest.mark.slow
def test_processes_in_a_plate_are_independent() -> None:
    y = np.stack([Y, np.where(np.arange(12) < 4, np.nan, -2 * Y)])
    tree = bl.fit(0, outputs, {"x": LINE, "y": y}, bl.Exact(num_samples=4000), progress=False)
    matern = theirs.Matern(1.0, nu=1.5)
    others = [scikit_learn(matern, LINE[seen, None], one[seen], 0.3) for one in y for seen in [~np.isnan(one)]]
    expected = sum(other.log_marginal_likelihood_value_ for other in others)
    np.testing.assert_allclose(tree.attrs["log_evidence"], expected, rtol=1e-8)
    for one, other in zip(np.moveaxis(tree["posterior"]["f"].values[0], 1, 0), others, strict=True):
        mean, deviation = other.predict(LINE[:, None], return_std=True)
        assert (np.abs(one.mean(0) - mean) < 5 * deviation / np.sqrt(4000)).all()


@pytest.mark.slow
@pytest.mark.parametrize("number", [250, 1000])
def test_the_whole_pipeline_is_calibrated(number: int) -> None:
    """Hyperparameters and function from their priors: NUTS on the rest, ranks of all of them uniform."""
    data = gp_regression_unknown_kernel.example()
    method = bl.NUTS(num_warmup=200, num_samples=99, thinning=3, num_chains=1)
    marginal = bl.collapse(gp_regression_unknown_kernel.model, "f")
    ranks = bl.sbc(6, marginal, data, method, num_simulations=number)["prior_sbc"]
    for name, values in ranks.data_vars.items():
        for element in values.values.reshape(number, -1).T:
            assert stats.kstest(element, "uniform").pvalue > 1e-4, name


@pytest.mark.slow
def test_components_are_those_of_the_formula_and_add_up() -> None:
    slow, fast = kernels.squared_exponential(3.0), 0.5 * kernels.matern32(0.4)
    data = {"x": LINE, "y": Y, "kernel": slow + fast + kernels.constant(0.3), "sigma": 0.3, "mu": 0.7}
    tree = bl.fit(0, gp_regression.model, data, bl.Exact(num_samples=2), progress=False)
    found = bl.process_components(gp_regression.model, data, tree, {"x": NEW})
    assert found["f"].dims == ("component", "row")
    whole = bl.process_at(gp_regression.model, data, tree, {"x": NEW})
    np.testing.assert_allclose(found["f"].sum("component") + 0.7, whole["f"], atol=1e-10)
    inverse = np.linalg.inv(np.asarray(data["kernel"](LINE, LINE)) + 0.09 * np.eye(12))
    for place, part in enumerate((slow, fast, kernels.constant(0.3))):
        across = np.asarray(part(NEW, LINE))
        variance = np.diag(np.asarray(part(NEW, NEW)) - across @ inverse @ across.T)
        np.testing.assert_allclose(found["f"][place], across @ inverse @ (Y - 0.7), atol=1e-9)
        np.testing.assert_allclose(found["f_sd"][place] ** 2, variance, atol=1e-9)


@pytest.mark.slow
def test_components_average_over_draws_and_need_a_covariance_matrix() -> None:
    data = {"x": LINE, "y": Y}
    tree = bl.fit(3, bl.collapse(one_scale, "f"), data, bl.NUTS(num_warmup=50, num_samples=20), progress=False)
    only, whole = (verb(one_scale, data, tree, {"x": NEW}) for verb in (bl.process_components, bl.process_at))
    for name in ("f", "f_sd"):
        np.testing.assert_allclose(only[name][0], whole[name], rtol=1e-8, atol=1e-10)
    basis = data | {"num_basis": 6}
    fitted = bl.fit(0, by_basis, basis, bl.Exact(num_samples=2), progress=False)
    with pytest.raises(ValueError, match=r"Dense\(\)"):
        bl.process_components(by_basis, basis, fitted, {"x": LINE})
