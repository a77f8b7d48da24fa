"""Programs with auxiliary variables: the posterior of all other sites is the same, by every method."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats import ess
from numpyro.handlers import mask, scale, seed, substitute, trace
from numpyro.infer.util import log_density
from scipy import stats

import bayeslab as bl
from bayeslab.distributions import BernoulliProbit, hinge_factor
from bayeslab.models import bayesian_lasso, glm, logistic_regression, perceptron
from bayeslab.programs.program import precision_scope
from ranks import LEVEL, smallest_p

Program = Callable[..., Any]
X = np.stack([np.ones(8), np.array([-1.5, -1.0, -0.5, 0.0, 0.2, 0.6, 1.1, 1.7])], axis=1)


def coefficients() -> Any:
    with numpyro.plate("feature", 2):
        return numpyro.sample("w", dist.Normal(0.0, 1.5))


def successes(trials: Any) -> None:
    w = coefficients()
    with numpyro.plate("row", 8):
        numpyro.sample("y", dist.Binomial(trials, logits=X @ w))


def counts(total: float) -> None:
    w = coefficients()
    with numpyro.plate("row", 8):
        numpyro.sample("y", dist.NegativeBinomialLogits(total, X @ w))


def robust() -> None:
    w = coefficients()
    with numpyro.plate("row", 8):
        numpyro.sample("y", dist.StudentT(4.0, X @ w, 0.5))


def events() -> None:
    """One event of all rows."""
    w = coefficients()
    numpyro.sample("y", dist.Bernoulli(logits=X @ w).to_event(1), infer={"event_dims": ["row"]})


def quantiles() -> None:
    w = coefficients()
    with numpyro.plate("row", 8):
        numpyro.sample("y", dist.AsymmetricLaplaceQuantile(X @ w, 0.4, 0.7))


def asymmetric() -> None:
    w = coefficients()
    with numpyro.plate("row", 8):
        numpyro.sample("y", dist.AsymmetricLaplace(X @ w, 0.4, 0.6))


def margins(sign: Any) -> None:
    w = coefficients()
    with numpyro.plate("row", 8):
        hinge_factor("loss", sign * (X @ w), 1.5)


FLAGS = np.array([0, 0, 1, 0, 0, 1, 1, 1])
MEASURED = np.array([1.0, 0.4, 0.2, 5.0, -0.3, -0.6, -1.2, -1.9])
CASES: dict[str, tuple[Program, dict[str, Any]]] = {
    "logistic": (logistic_regression.model, logistic_regression.example()),
    "probit": (perceptron.model, {"x": X, "temperature": 1.0, "y": FLAGS}),
    "lasso": (bayesian_lasso.model, bayesian_lasso.example()),
    "binomial": (successes, {"trials": np.array([3, 20, 1, 4, 2, 5, 3, 2]), "y": np.array([0, 5, 1, 1, 1, 4, 2, 2])}),
    "negative binomial": (counts, {"total": 2.5, "y": np.array([0, 4, 1, 0, 7, 3, 2, 12])}),
    "robust": (robust, {"y": MEASURED}),
    "quantile": (quantiles, {"y": MEASURED}),
    "asymmetric": (asymmetric, {"y": MEASURED}),
    "hinge": (margins, {"sign": 2.0 * FLAGS - 1}),
    "events": (events, {"y": FLAGS}),
}
AT = {"w": np.array([0.3, -0.2])}
every_case = pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[pytest.mark.slow] * (name != "logistic")) for name in CASES]
)


@lru_cache
def moments(case: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Means and standard deviations of w, and the log evidence, by sums over a grid under the program itself."""
    model, data = CASES[case]
    observed = {name: jnp.asarray(value) for name, value in data.items() if name == "y"}
    arguments = {name: value for name, value in data.items() if name != "y"}
    axis = np.linspace(-9, 9, 721)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    with precision_scope():
        log_joint = jax.jit(lambda w: log_density(model, (), arguments, {"w": w} | observed)[0])
        values = np.asarray(jax.lax.map(log_joint, jnp.asarray(grid), batch_size=4096))
    weights = np.exp(values - values.max())
    mean = weights @ grid / weights.sum()
    spread = np.sqrt(weights @ (grid - mean) ** 2 / weights.sum())
    return mean, spread, float(values.max() + np.log(weights.sum() * (axis[1] - axis[0]) ** 2))


def fit(case: str, method: Any) -> Any:
    model, data = CASES[case]
    return bl.fit(0, bl.augment(model), data, method, progress=False)


@every_case
def test_gibbs_draws_the_posterior(case: str) -> None:
    mean, spread, _ = moments(case)
    tree = fit(case, bl.Gibbs(num_samples=3000, num_chains=2))
    w = tree["posterior"].dataset["w"]
    size = ess(w).values
    np.testing.assert_array_less(np.abs(w.mean(("chain", "draw")).values - mean), 5 * spread / np.sqrt(size))
    np.testing.assert_allclose(w.std(("chain", "draw")).values, spread, rtol=0.1)


def jaakkola_jordan(x: np.ndarray, y: np.ndarray, tau0: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The mean, the covariance and the bound of Jaakkola and Jordan (2000), iterated until nothing moves."""
    xi, size = np.ones(len(y)), x.shape[1]
    for _ in range(1000):
        slope = np.tanh(xi / 2) / (4 * xi)
        covariance = np.linalg.inv(np.eye(size) / tau0**2 + 2 * (x.T * slope) @ x)
        mean = covariance @ x.T @ (y - 0.5)
        xi = np.sqrt(np.einsum("ij,jk,ik->i", x, covariance, x) + (x @ mean) ** 2)
    bound = np.linalg.slogdet(covariance)[1] / 2 - size * np.log(tau0)
    bound += mean @ np.linalg.solve(covariance, mean) / 2
    return mean, covariance, bound + np.sum(-np.logaddexp(0, -xi) - xi / 2 + slope * xi**2)


def test_mean_field_is_the_bound_of_jaakkola_and_jordan() -> None:
    """To the last digit, and below the evidence."""
    data = logistic_regression.example()
    mean, covariance, bound = jaakkola_jordan(data["x"], data["y"], data["tau0"])
    tree = fit("logistic", bl.MeanField(num_starts=1, tolerance=1e-12, num_samples=2000))
    np.testing.assert_allclose(tree.attrs["elbo"], bound, rtol=1e-9)
    assert bound < moments("logistic")[2]
    w = tree["posterior"]["w"].values[0]
    for j in range(2):
        assert stats.kstest(w[:, j], stats.norm(mean[j], np.sqrt(covariance[j, j])).cdf).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("case", ["lasso", "quantile", "hinge"])
def test_mean_field_over_variances_is_a_bound(case: str) -> None:
    """Below the evidence, by less than a nat; its means are where the posterior is."""
    mean, spread, log_evidence = moments(case)
    tree = fit(case, bl.MeanField(num_starts=1, num_samples=4000))
    assert log_evidence - 1 < tree.attrs["elbo"] < log_evidence
    w = tree["posterior"]["w"].values[0]
    np.testing.assert_array_less(np.abs(w.mean(0) - mean), 0.5 * spread)
    log_weights = (tree["sample_stats"]["lp"] - tree["sample_stats"]["log_q"]).values
    error = 5 * log_weights.std() / np.sqrt(log_weights.size)
    assert abs(log_weights.mean() - tree.attrs["elbo"]) < error


@pytest.mark.slow
def test_what_depends_on_the_shape_has_no_mean() -> None:
    """An unknown dispersion is in the number of trials of a Polya-Gamma variable, not in its tilt alone."""
    with pytest.raises(ValueError, match="site 'y_omega': the log joint has no mean over it in closed form"):
        bl.fit(0, bl.augment(glm.model), glm.example(), bl.EM(collapse=("y_omega",)), progress=False)


@pytest.mark.parametrize(
    ("case", "auxiliary"),
    [
        pytest.param("logistic", "y_omega", marks=pytest.mark.slow),
        pytest.param("probit", "y_utility", marks=pytest.mark.slow),
        pytest.param("robust", "y_precision", marks=pytest.mark.slow),
        pytest.param("lasso", "w_variance", marks=pytest.mark.slow),
    ],
)
def test_em_finds_the_mode_of_the_program_itself(case: str, auxiliary: str) -> None:
    model, data = CASES[case]
    mode = bl.fit(0, model, data, bl.MAP(), progress=False)["posterior"]["w"].values
    found = fit(case, bl.EM(collapse=(auxiliary,), num_starts=1))["posterior"]["w"].values
    np.testing.assert_allclose(found, mode, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["logistic", "probit", "negative binomial", "lasso", "quantile"])
def test_gibbs_is_calibrated(case: str) -> None:
    model, data = CASES[case]
    method = bl.Gibbs(num_warmup=50, num_samples=39, thinning=10, num_chains=1)
    assert smallest_p(bl.sbc(1, bl.augment(model), data, method, 500, progress=False)) > LEVEL


def test_the_law_of_all_other_sites_is_the_same() -> None:
    """There is one site more, and the densities of w and of y given w are what they were."""
    model, data = CASES["logistic"]
    inputs = {"x": data["x"], "tau0": data["tau0"]}
    with precision_scope():
        plain = trace(substitute(seed(model, 0), data=AT)).get_trace(**inputs)
        augmented = trace(substitute(seed(bl.augment(model), 0), data=AT)).get_trace(**inputs)
        assert list(augmented) == [*plain, "y_omega"]
        for name, value in [("w", AT["w"]), ("y", jnp.asarray(data["y"]))]:
            first, second = (np.asarray(each[name]["fn"].log_prob(value)) for each in (plain, augmented))
            np.testing.assert_array_equal(first, second)


@pytest.mark.slow
def test_missing_rows_say_nothing() -> None:
    """With and without the rows whose y is missing w has one conditional, at the same values of the others."""
    data = logistic_regression.example()
    y = data["y"].astype(float)
    y[[1, 4]] = np.nan
    tree = bl.fit(0, bl.augment(logistic_regression.model), data | {"y": y}, bl.Gibbs(num_samples=3000), progress=False)
    present = ~np.isnan(y)
    model, _ = CASES["logistic"]
    kept = {"x": data["x"][present], "tau0": data["tau0"], "y": data["y"][present]}
    other = bl.fit(1, bl.augment(model), kept, bl.Gibbs(num_samples=3000), progress=False)
    one, two = (each["posterior"].dataset["w"] for each in (tree, other))
    error = np.sqrt(one.var(("chain", "draw")) / ess(one) + two.var(("chain", "draw")) / ess(two)).values
    gap = one.mean(("chain", "draw")).values - two.mean(("chain", "draw")).values
    np.testing.assert_array_less(np.abs(gap), 5 * error)


@pytest.mark.parametrize("case", ["quantile", "asymmetric", "hinge"])
def test_averaged_over_its_variables_a_program_is_what_it_was(case: str) -> None:
    """By quadrature, row by row, on either side of the kink."""
    model, data = CASES[case]
    name = "loss_mixing" if case == "hinge" else "y_mixing"
    own = name.split("_")[0]
    arguments = {key: value for key, value in data.items() if key != "y"}
    values = AT | {key: jnp.asarray(value) for key, value in data.items() if key == "y"}
    nodes, weights = np.polynomial.legendre.leggauss(400)
    t = 18.0 * nodes - 12.0  # the log of the variable

    def row_densities(program: Any, more: dict[str, Any]) -> Any:
        sites = trace(substitute(seed(program, 0), data=values | more)).get_trace(**arguments)
        return sum(sites[site]["fn"].log_prob(sites[site]["value"]) for site in (own, *more))

    with precision_scope():
        augmented = jax.jit(
            jax.vmap(lambda at: row_densities(bl.augment(model), {name: jnp.full(8, jnp.exp(at))}) + at)
        )
        averaged = np.log(18.0 * weights @ np.exp(augmented(t)))
        np.testing.assert_allclose(averaged, row_densities(model, {}), atol=1e-3)


def test_what_counts_more_than_once_keeps_its_density() -> None:
    """A weight in front of the log density is no number of trials, and what is masked is left alone."""

    def weighted() -> None:
        w = coefficients()
        with numpyro.plate("row", 8), scale(scale=2.0):
            numpyro.sample("y", dist.Bernoulli(logits=X @ w))

    def hidden() -> None:
        with mask(mask=jnp.arange(2) < 1), numpyro.plate("feature", 2):
            numpyro.sample("w", dist.Laplace(0.0, 1.0))

    with precision_scope():
        assert list(trace(seed(bl.augment(weighted), 0)).get_trace()) == ["feature", "w", "row", "y"]
        assert list(trace(seed(bl.augment(hidden), 0)).get_trace()) == ["feature", "w"]


def test_a_mask_of_rows_is_one_of_their_events() -> None:
    """Six vectors of two, the last one masked: its Polya-Gamma variables have no tilt, those of others their own."""
    x = np.arange(1.0, 13.0).reshape(6, 2)

    def vectors() -> None:
        with numpyro.plate("row", 6):
            logits = dist.Bernoulli(logits=x).to_event(1)
            numpyro.sample("y", logits.mask(np.arange(6) < 5), obs=np.ones((6, 2), int))

    omega = trace(seed(bl.augment(vectors), 0)).get_trace()["y_omega"]["fn"]
    np.testing.assert_array_equal(omega.base_dist.tilt, x * (np.arange(6) < 5)[:, None])


@pytest.mark.slow
def test_a_dispersion_that_is_not_known_gets_nuts() -> None:
    """The variable of a negative binomial depends on it, so that it has no conditional in closed form."""
    explained = str(bl.explain(bl.augment(glm.model), glm.example()))
    assert "not Gamma given 'y', 'y_omega'" in explained
    assert "Normal, joint over 2" in explained


def test_augmented_programs_are_programs() -> None:
    model = bl.augment(logistic_regression.model)
    assert model == bl.augment(logistic_regression.model) == bl.augment(model)
    assert model.__name__ == "model augmented"
    with pytest.raises(TypeError, match="augment takes a program, not str"):
        bl.augment("model")  # type: ignore[arg-type]
    inner = trace(seed(bl.augment(lambda: numpyro.sample("y", BernoulliProbit(jnp.zeros(3)).to_event(1))), 0))
    utility = inner.get_trace()["y_utility"]["fn"]
    assert utility.event_shape == (3,)


def test_latent_counts_of_numbers_of_trials_that_are_data_are_augmented() -> None:
    """Their supports are data, so they are checked; a run without counts has the same sites as one with them."""

    def trials(n: Any) -> None:
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", len(n)):
            numpyro.sample("y", dist.Binomial(n, logits=b))

    prior = bl.simulate(0, bl.augment(trials), {"n": np.array([3, 5, 8])}, num_samples=400)
    drawn = prior["prior"] if "y" in prior["prior"] else prior["prior_predictive"]
    assert (drawn["y"] <= np.array([3, 5, 8])).all()
    assert prior["prior"]["y_omega"].shape == (1, 400, 3)
