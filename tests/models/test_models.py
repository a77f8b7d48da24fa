"""Laws of the stated posteriors and evidences, checked on every lecture with NumPyro alone.

Mukherjee's misprints M10 to M12 are those of the normal chapter, 3.2.1.1, 3.2.1.3 and 3.2.2.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_base.io_numpyro import infer_dims
from numpyro.handlers import block, seed, substitute, trace
from numpyro.infer import init_to_uniform
from numpyro.infer.util import log_density

from bayeslab.datasets import mendel_peas, portland_houses
from bayeslab.models import (
    LECTURES,
    inverse_gamma,
    linear_dynamics_model,
    linear_regression,
    linear_regression_known_noise,
    normal_gamma,
    normal_known_mean,
    normal_known_variance,
    normal_wishart,
    svm,
)
from bayeslab.programs.data import read_entries, with_nested_entries
from bayeslab.programs.wrapped_distributions import innermost_distribution
from evidences import ORACLES

Values = dict[str, Any]

WEIGHTS = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0, 0.2, 1.0, 1.0, 4.0])
STATED = [lecture for lecture in LECTURES if hasattr(lecture, "posterior")]
CASES: list[tuple[ModuleType, Values]] = [(lecture, {}) for lecture in STATED]
CASES += [(linear_regression, {"weights": WEIGHTS})]
every_lecture = pytest.mark.parametrize("lecture", LECTURES, ids=lambda one: one.__name__.split(".")[-1])
every_case = pytest.mark.parametrize(
    ("lecture", "extra"), CASES, ids=["-".join([one.__name__.split(".")[-1], *more]) for one, more in CASES]
)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@every_case
def test_evidence_is_the_same_at_every_latent_value(lecture: ModuleType, extra: Values) -> None:
    """log p(z, y) - log p(z | y) is the stated log p(y), whatever z."""
    values = inputs(lecture, extra)
    gaps = law(lecture.model, lecture.posterior, values)
    np.testing.assert_allclose(gaps, evidence(lecture, values), rtol=1e-9)


@every_case
def test_posterior_draws_the_latent_sites_only(lecture: ModuleType, extra: Values) -> None:
    values = inputs(lecture, extra)
    latent = {name: shape for name, shape in shapes(fill(lecture.model, values)).items() if name != "y"}
    assert shapes(fill(lecture.posterior, values)) == latent


@every_lecture
def test_real_data_fit_the_program(lecture: ModuleType) -> None:
    """Names are arguments or sites, shapes agree, and labels name the dimensions that the program has."""
    entries = with_nested_entries(read_entries(lecture.data()))
    parts = {name: entry.value for name, entry in entries.items() if "." in name}
    arguments = {name: entry.value for name, entry in entries.items() if name in settings(lecture)}
    for name in (name for name, value in arguments.items() if type(value) is dict):
        arguments[name] = {key: parts.get(f"{name}.{key}", part) for key, part in arguments[name].items()}
    drawn = shapes(fill(lecture.model, arguments))
    observed = {name: entry for name, entry in entries.items() if name not in (*arguments, *parts)}
    assert observed or lecture is svm  # whose labels are an argument, for want of a likelihood
    assert set(observed) <= set(drawn)
    dims = infer_dims(lecture.model, model_kwargs=arguments)
    for name, entry in observed.items():
        assert np.shape(entry.value) == drawn[name]
        assert list(entry.dims) == dims.get(name, [])
    labelled = {entry.dims[axis] for entry in entries.values() for axis in entry.labels}
    labelled |= {name.rpartition(".")[2] for name, entry in entries.items() if entry.categories}
    nobody_names = {"component", "state", "state_", "symbol", "population", "allele", "topic", "token"}
    nobody_names |= {"species_term_", "power", "class", "coefficient", "cut", "function", "factor", "stick"}
    nobody_names |= {"source", "unit_1", "output"}
    nobody_names |= {"component_", "regressor", "action"}
    nobody_names |= {"edge", "hidden", "node", "node_", "a_value", "b_value", "c_value", "a_given_b", "c_given_b"}
    assert {name for names in dims.values() for name in names} <= labelled | nobody_names


def test_dimensions_are_named() -> None:
    named = {
        lecture.__name__.split(".")[-1]: infer_dims(lecture.model, model_kwargs=settings(lecture))
        for lecture in LECTURES
    }
    assert named["dirichlet_multinomial"] == {"p": ["letter"], "y": ["motif", "position"]}
    assert named["weight_matrix"] == {"p": ["position", "letter"], "y": ["motif", "position"]}
    assert named["normal_wishart"] == {
        "precision": ["feature", "feature_"],
        "mu": ["feature"],
        "y": ["row", "feature"],
    }
    assert named["linear_regression"] == {"w": ["feature"], "y": ["row"]}
    components = {"weights": ["component"], "mu": ["component"], "z": ["row"], "y": ["row"]}
    assert named["gaussian_mixture"] == components | {"tau": ["component"]}
    assert named["multivariate_gaussian_mixture"] == components | {
        "precision": ["component", "feature", "feature_"],
        "mu": ["component", "feature"],
        "y": ["row", "feature"],
    }


# Misprints of the lecture: programs that the law must refuse.


def weight_of_prior_mean_misprinted(y: Any, mu0: float, sigma0: float, sigma: float) -> None:
    """M10: sigma^2 for sigma^2 / n in the weight of mu0."""
    noise = sigma**2 / len(y)
    mean = (sigma0**2 * jnp.mean(y) + sigma**2 * mu0) / (sigma0**2 + noise)
    numpyro.sample("mu", dist.Normal(mean, 1 / jnp.sqrt(1 / sigma0**2 + 1 / noise)))


def rate_misprinted(y: Any, mu0: float, kappa0: float, alpha: float, beta: float) -> None:
    """M11: n / (n + 1) for kappa0 n / (kappa0 + n)."""
    n, mean = len(y), jnp.mean(y)
    rate = beta + jnp.sum((y - mean) ** 2) / 2 + n / (n + 1) * (mean - mu0) ** 2 / 2
    tau = numpyro.sample("tau", dist.Gamma(alpha + n / 2, rate))
    mu_n = (kappa0 * mu0 + n * mean) / (kappa0 + n)
    numpyro.sample("mu", dist.Normal(mu_n, 1 / jnp.sqrt((kappa0 + n) * tau)))


def scatter_misprinted(y: Any, mu0: Any, scale: Any, n0: float, kappa0: float) -> None:
    """M12 as printed: degrees of freedom n0 + n / 2, and the terms, halved, added to the scale."""
    n, mean = len(y), jnp.mean(y, axis=0)
    scatter = (y - mean).T @ (y - mean)
    shift = kappa0 / (kappa0 + n) * jnp.outer(mean - mu0, mean - mu0)
    wishart(dist.Wishart(n0 + n / 2, scale_matrix=scale + (scatter + shift) / 2), y, mu0, kappa0)


def shift_misprinted(y: Any, mu0: Any, scale: Any, n0: float, kappa0: float) -> None:
    """M12 with all but one fault mended: n is missing in the last term."""
    n, mean = len(y), jnp.mean(y, axis=0)
    scatter = (y - mean).T @ (y - mean)
    shift = kappa0 / (kappa0 + n) * jnp.outer(mean - mu0, mean - mu0)
    rate = jnp.linalg.inv(scale) + scatter + shift
    wishart(dist.Wishart(n0 + n, rate_matrix=rate), y, mu0, kappa0)


def wishart(updated: dist.Distribution, y: Any, mu0: Any, kappa0: float) -> None:
    kappa_n = kappa0 + len(y)
    precision = numpyro.sample("precision", updated)
    mu_n = (kappa0 * mu0 + jnp.sum(y, axis=0)) / kappa_n
    numpyro.sample("mu", dist.MultivariateNormal(mu_n, precision_matrix=kappa_n * precision))


def precision_for_covariance(y: Any, state: Any, action: Any, scale: Any, n0: float, k0: Any) -> None:
    """The columns of theta in linear_dynamics_model have the covariance k_n in place of its inverse."""
    u = jnp.concatenate([state, action], 1)
    m0, k_n = jnp.eye(2, 3), k0 + u.T @ u
    m_n = jnp.linalg.solve(k_n, (m0 @ k0 + y.T @ u).T).T
    rate = jnp.linalg.inv(scale) + y.T @ y + m0 @ k0 @ m0.T - m_n @ k_n @ m_n.T
    precision = numpyro.sample("precision", dist.Wishart(n0 + len(y), rate_matrix=rate))
    rows, columns = (jnp.linalg.cholesky(each) for each in (jnp.linalg.inv(precision), k_n))
    numpyro.sample("theta", dist.MatrixNormal(m_n, rows, columns))


@pytest.mark.parametrize(
    ("lecture", "misprint"),
    [
        (linear_dynamics_model, precision_for_covariance),
        (normal_known_variance, weight_of_prior_mean_misprinted),
        (normal_gamma, rate_misprinted),
        (normal_wishart, scatter_misprinted),
        (normal_wishart, shift_misprinted),
    ],
)
def test_misprinted_posterior_breaks_the_law(lecture: ModuleType, misprint: Callable[..., None]) -> None:
    assert np.std(law(lecture.model, misprint, inputs(lecture))) > 0.05


def test_misprinted_rate_is_right_for_a_prior_weight_of_one() -> None:
    """Why the example of normal_gamma has another weight."""
    gaps = law(normal_gamma.model, rate_misprinted, inputs(normal_gamma, {"kappa0": 1.0}))
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-9)


# Evidence by other means.


@every_case
def test_evidence_agrees_with_another_way_to_compute_it(lecture: ModuleType, extra: Values) -> None:
    stated = evidence(lecture, inputs(lecture, extra))
    other: Any = ORACLES[lecture](**lecture.example() | extra)
    np.testing.assert_allclose(stated, other, rtol=1e-8)


# Numbers of the lectures and what follows from them.


@pytest.mark.parametrize(
    ("covariates", "coefficients"),
    [(["area"], [71.2705, 0.134525]), (["area", "bedrooms"], [89.5979, 0.139211, -8.73802])],
)
def test_house_prices_of_the_lecture(covariates: list[str], coefficients: list[float]) -> None:
    """CS229 1.1: under a vague prior the posterior mean is least squares on the 47 houses of Portland."""
    houses = portland_houses()
    x = np.stack([np.ones(47), *(houses[name] for name in covariates)], axis=1)
    values = {"x": x, "y": houses["price"].to_numpy(), "tau0": 1e5, "sigma": 66.0}
    mean = mean_of_w(linear_regression_known_noise.posterior, values)
    np.testing.assert_allclose(mean, coefficients, rtol=1e-5)


def test_ridge_is_the_posterior_mean() -> None:
    """Mukherjee 3.3: (X'X + lambda n I)^-1 X'Y with lambda = sigma^2 / (n tau0^2)."""
    values = inputs(linear_regression_known_noise)
    x, penalty = values["x"], values["sigma"] ** 2 / values["tau0"] ** 2
    ridge = np.linalg.solve(x.T @ x + penalty * np.eye(2), x.T @ values["y"])
    mean = mean_of_w(linear_regression_known_noise.posterior, values)
    np.testing.assert_allclose(mean, ridge, rtol=1e-12)


def test_variance_and_precision_are_one_model() -> None:
    def densities(variance: jax.Array) -> tuple[jax.Array, jax.Array]:
        by_variance = log_density(fill(inverse_gamma.posterior, values), (), {}, {"variance": variance})[0]
        by_tau = log_density(fill(normal_known_mean.posterior, values), (), {}, {"tau": 1 / variance})[0]
        return by_variance, by_tau - 2 * jnp.log(variance)

    values = inputs(inverse_gamma)
    assert str(values) == str(inputs(normal_known_mean))
    by_variance, by_tau = jax.jit(jax.vmap(densities))(jnp.array([0.1, 0.5, 2.0]))
    np.testing.assert_allclose(by_variance, by_tau, rtol=1e-12)
    one, other = (evidence(lecture, values) for lecture in (inverse_gamma, normal_known_mean))
    np.testing.assert_allclose(one, other, rtol=1e-14)


def test_one_dimensional_wishart_is_a_gamma() -> None:
    """Normal-Wishart with one feature is Normal-Gamma with alpha = n0 / 2 and beta = 1 / (2 scale)."""
    gamma = inputs(normal_gamma)
    wishart = {
        "y": gamma["y"][:, None],
        "mu0": jnp.array([gamma["mu0"]]),
        "kappa0": gamma["kappa0"],
        "n0": 2 * gamma["alpha"],
        "scale": jnp.array([[1 / (2 * gamma["beta"])]]),
    }
    one, other = evidence(normal_gamma, gamma), evidence(normal_wishart, wishart)
    np.testing.assert_allclose(one, other, rtol=1e-12)


def test_whole_weights_count_rows() -> None:
    """A row of weight k and k equal rows of weight one say the same about w."""
    data = linear_regression.example()
    copies = np.array([1, 2, 1, 3, 1, 1, 1, 2, 1, 1])
    weighted = inputs(linear_regression, {"weights": copies.astype(float)})
    repeated = weighted | {name: np.repeat(data[name], copies, axis=0) for name in data} | {"weights": 1.0}
    means = [mean_of_w(linear_regression.posterior, values) for values in (weighted, repeated)]
    np.testing.assert_allclose(means[0], means[1], rtol=1e-12)


def test_mendel_found_three_to_one() -> None:
    peas = mendel_peas()
    assert (int(peas["dominant"].sum()), int(peas["recessive"].sum())) == (14949, 5010)


# Programs filled with values, and the law.


def inputs(lecture: ModuleType, extra: Values | None = None) -> Values:
    """All arguments and observed values of an example, defaults included."""
    parameters = inspect.signature(lecture.model).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
    return defaults | lecture.example() | (extra or {})


def fill(function: Callable[..., Any], values: Values) -> Callable[..., Any]:
    """Pass `function` those of `values` that it names as arguments."""
    names = inspect.signature(function).parameters
    return partial(function, **{k: v for k, v in values.items() if k in names})


def evidence(lecture: ModuleType, values: Values) -> jax.Array:
    return jax.jit(fill(lecture.evidence, values))()


def mean_of_w(posterior: Callable[..., Any], values: Values) -> jax.Array:
    program = seed(fill(posterior, values), 0)
    return jax.jit(lambda: trace(program).get_trace()["w"]["fn"].mean)()


def settings(lecture: ModuleType) -> Values:
    names = inspect.signature(lecture.model).parameters
    return {k: v for k, v in inputs(lecture).items() if k in names}


def sites(program: Callable[..., Any], key: jax.Array) -> Values:
    """The values of the sample sites of one run."""
    record = trace(seed(with_starts(program), key)).get_trace()
    return {name: site["value"] for name, site in record.items() if site["type"] == "sample"}


def with_starts(program: Callable[..., Any]) -> Callable[..., Any]:
    """The program with sites of improper priors, which nothing draws, at a value of their support."""

    def start(site: Values) -> Any:
        improper = site["type"] == "sample" and isinstance(innermost_distribution(site["fn"]), dist.ImproperUniform)
        return dist.biject_to(site["fn"].support)(jnp.zeros(site["fn"].shape())) if improper else None

    return substitute(program, substitute_fn=start)


def shapes(program: Callable[..., Any]) -> dict[str, tuple[int, ...]]:
    drawn = jax.eval_shape(partial(sites, program), jax.random.key(0))
    return {name: value.shape for name, value in drawn.items()}


def law(model: Callable[..., Any], posterior: Callable[..., Any], values: Values) -> np.ndarray:
    """log p(z, y) - log p(z | y) at ten values of z anywhere in its support."""
    observed = {"y": jnp.asarray(values["y"])}
    joint, conditional = fill(model, values), fill(posterior, values)

    def gap(key: jax.Array) -> jax.Array:
        given = block(substitute(seed(joint, key), data=observed), hide=["y"])
        latent = sites(substitute(given, substitute_fn=init_to_uniform), key)
        return log_density(joint, (), {}, latent | observed)[0] - log_density(conditional, (), {}, latent)[0]

    return np.asarray(jax.jit(jax.vmap(gap))(jax.random.split(jax.random.key(0), 10)))
