"""fit(): every method against closed forms, and what users are told where a method does not apply."""

from collections.abc import Callable
from functools import lru_cache, partial
from types import ModuleType
from typing import Any

import arviz_stats as azs
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.infer import BarkerMH, autoguide
from xarray import DataTree

import bayeslab as bl
from bayeslab import bind, fit
from bayeslab.methods.stated import Stated
from bayeslab.models import (
    LECTURES,
    beta_binomial,
    dirichlet_multinomial,
    inverse_gamma,
    linear_regression,
    linear_regression_known_noise,
    normal_gamma,
    normal_known_mean,
    normal_known_variance,
)
from bayeslab.programs.arguments import signature
from bayeslab.programs.program import Data, precision_scope
from quick_cases import quick_ones

STATED = [lecture for lecture in LECTURES if hasattr(lecture, "posterior")]


CLOSED_FORMS = (dirichlet_multinomial, linear_regression)
"""Probabilities, and scalars with a joint Normal; others are slow. Evidences of all families of conditionals
are beside quadrature in `test_elimination.py`, and those that lectures state in `test_models.py`."""


def every_lecture(*quick: ModuleType) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lecture", quick_ones(STATED, *quick), ids=lambda m: m.__name__.rpartition(".")[2])


def name_of(method: Any) -> str:
    return type(method).__name__


def quiet(key: int, model: Callable[..., Any], data: Data, method: Any = None, **more: Any) -> DataTree:
    return fit(key, model, data, method, progress=False, **more)


def evidence(lecture: ModuleType) -> float:
    with precision_scope():
        bound = bind(lecture.model, lecture.example())
        values = bound.inputs | bound.observed
        return float(lecture.evidence(**{n: values[n] for n in signature(lecture.evidence).parameters}))


@lru_cache
def exact(lecture: ModuleType, num_samples: int = 10_000) -> DataTree:
    return quiet(1, lecture.model, lecture.example(), Stated(lecture.posterior, num_samples))


def gaps(one: DataTree, other: DataTree) -> dict[str, np.ndarray]:
    """Differences of the posterior means in Monte Carlo standard errors."""
    a, b = one["posterior"].dataset, other["posterior"].dataset
    found = {}
    for name in a:
        error = np.hypot(azs.mcse(a, method="mean")[name], azs.mcse(b, method="mean")[name])
        gap = abs(a[name].mean(("chain", "draw")) - b[name].mean(("chain", "draw")))
        found[str(name)] = np.where(error > 0, gap / np.where(error > 0, error, 1), 0.0)
    return found


@every_lecture(*CLOSED_FORMS)
def test_stated_and_found_posteriors_have_the_evidence_of_the_closed_form(lecture: ModuleType) -> None:
    found = quiet(1, lecture.model, lecture.example(), bl.Exact(10_000))
    np.testing.assert_allclose(exact(lecture).attrs["log_evidence"], evidence(lecture), rtol=1e-9)
    np.testing.assert_allclose(found.attrs["log_evidence"], evidence(lecture), rtol=1e-10)
    for name, gap in gaps(exact(lecture), found).items():
        assert gap.max() < 5, name


@every_lecture(dirichlet_multinomial, linear_regression)
def test_gibbs_agrees_with_the_exact_posterior(lecture: ModuleType) -> None:
    tree = quiet(2, lecture.model, lecture.example(), bl.Gibbs())
    assert bl.diagnose(tree) == ""
    for name, gap in gaps(exact(lecture), tree).items():
        assert gap.max() < 5, name


@every_lecture(inverse_gamma, linear_regression)
def test_nuts_agrees_with_the_exact_posterior(lecture: ModuleType) -> None:
    tree = quiet(2, lecture.model, lecture.example(), bl.NUTS())
    assert bl.diagnose(tree) == ""
    for name, gap in gaps(exact(lecture), tree).items():
        assert gap.max() < 5, name


def test_methods_agree_on_the_diabetes_data() -> None:
    data = linear_regression.data()
    stated = quiet(0, linear_regression.model, data, Stated(linear_regression.posterior, 10_000))
    with precision_scope():
        x, y = jnp.asarray(data["x"].values), jnp.asarray(data["y"].values)
        closed = linear_regression.evidence(x, y, 0.1, 2.0, 1.0, 1.0)
    np.testing.assert_allclose(stated.attrs["log_evidence"], closed, rtol=1e-9)
    for method in (bl.NUTS(), bl.Gibbs()):
        assert all(gap.max() < 5 for gap in gaps(stated, quiet(1, linear_regression.model, data, method)).values())


def test_laplace_is_exact_for_a_normal_posterior() -> None:
    lecture = linear_regression_known_noise
    tree = quiet(3, lecture.model, lecture.example(), bl.Laplace())
    np.testing.assert_allclose(tree.attrs["elbo"], evidence(lecture), rtol=1e-9)
    assert tree.attrs["converged"] == 1
    assert all(gap.max() < 5 for gap in gaps(exact(lecture), tree).values())


def test_full_rank_svi_finds_a_normal_posterior() -> None:
    lecture = linear_regression_known_noise
    tree = quiet(4, lecture.model, lecture.example(), bl.SVI(bl.full_rank_normal()))
    assert tree.attrs["converged"] == 1
    assert 0 <= evidence(lecture) - tree.attrs["elbo"] + 5 * tree.attrs["elbo_se"] < 0.01 + 10 * tree.attrs["elbo_se"]
    assert tree.attrs["k_hat"] < 0.7


def test_mean_field_loses_spread_where_coefficients_correlate() -> None:
    """For a Normal posterior the mean field has precision diag(precision): its spread is known (Bishop, 10.1.2)."""
    lecture, data = linear_regression_known_noise, linear_regression_known_noise.data()
    tree = quiet(5, lecture.model, data, bl.SVI(num_samples=4000))
    with precision_scope():
        inputs = bind(lecture.model, data).inputs
    x, tau0, sigma = (np.asarray(inputs[name]) for name in ("x", "tau0", "sigma"))
    precisions = np.diag(x.T @ x / sigma**2 + np.eye(x.shape[1]) / tau0**2)
    np.testing.assert_allclose(tree["posterior"]["w"].std(("chain", "draw")) * np.sqrt(precisions), 1.0, atol=0.06)
    assert tree.attrs["k_hat"] > 0.7  # and says so


@pytest.mark.parametrize(
    "guide",
    [
        bl.low_rank_normal(),
        pytest.param(bl.normalising_flow(), marks=pytest.mark.slow),
        autoguide.AutoMultivariateNormal,
    ],
    ids=["low rank", "flow", "class"],
)
def test_other_guides_come_close(guide: Any) -> None:
    tree = quiet(6, normal_gamma.model, normal_gamma.example(), bl.SVI(guide))
    gap = evidence(normal_gamma) - tree.attrs["elbo"]
    assert -5 * tree.attrs["elbo_se"] < gap < 0.2
    assert tree.attrs["converged"] == 1


def test_a_guide_of_the_users_own() -> None:
    def guide(y: Any) -> None:
        loc = numpyro.param("loc", jnp.mean(y))
        scale = numpyro.param("scale", 1.0, constraint=constraints.positive)
        numpyro.sample("mu", dist.Normal(loc, scale))

    lecture = normal_known_variance
    tree = quiet(7, lecture.model, lecture.example(), bl.SVI(guide))
    assert abs(tree.attrs["elbo"] - evidence(lecture)) < 0.01 + 5 * tree.attrs["elbo_se"]


def test_map_is_the_mode_of_the_density_as_written() -> None:
    """The mode of a Beta, and modes of a precision and of a variance, which are not each other's inverse."""
    data = beta_binomial.example()
    a, b = 1 + np.sum(data["y"]), 1 + np.sum(data["trials"] - data["y"])
    data = data | {"alpha": 1.0, "beta": 1.0}
    mode = quiet(0, beta_binomial.model, data, bl.MAP())["posterior"]["p"].item()
    np.testing.assert_allclose(mode, (a - 1) / (a + b - 2), rtol=1e-6)
    data = normal_known_mean.example()
    inputs = {"mu": 0.5, "alpha": 3.0, "beta": 2.0}
    shape, rate = 3 + len(data["y"]) / 2, 2 + np.sum((data["y"] - 0.5) ** 2) / 2
    precise = quiet(0, normal_known_mean.model, data | inputs, bl.MAP())
    spread = quiet(0, inverse_gamma.model, data | inputs, bl.MAP())
    np.testing.assert_allclose(precise["posterior"]["tau"].item(), (shape - 1) / rate, rtol=1e-6)
    np.testing.assert_allclose(spread["posterior"]["variance"].item(), rate / (shape + 1), rtol=1e-6)
    assert precise.attrs["converged"] == spread.attrs["converged"] == 1


def in_order(y: Any) -> None:
    """Points of which one order is possible: one in 120 random starts."""
    points = numpyro.sample("points", dist.Normal(0.0, 2.0).expand([5]).to_event(1))
    numpyro.factor("in order", jnp.where((jnp.diff(points) > 0).all(), 0.0, -jnp.inf))
    numpyro.sample("y", dist.Normal(points, 1.0).to_event(1), obs=y)


def test_optimisers_look_for_a_start_that_is_possible() -> None:
    y = np.array([-4.0, -2.5, -1.0, 1.0, 2.0])
    tree = fit(0, in_order, {"y": y}, bl.MAP(num_starts=4), progress=False)
    np.testing.assert_allclose(tree["posterior"]["points"].values[0, 0], 0.8 * y, atol=1e-4)


def test_any_kernel_of_numpyro() -> None:
    method = bl.MCMC(BarkerMH, num_warmup=1000, num_samples=3000, thinning=2)
    tree = quiet(8, normal_known_variance.model, normal_known_variance.example(), method)
    assert tree["posterior"].sizes["draw"] == 3000
    assert gaps(exact(normal_known_variance), tree)["mu"] < 5


def test_single_precision_on_request() -> None:
    tree = quiet(9, normal_gamma.model, normal_gamma.example(), bl.NUTS(), dtype=jnp.float32)
    assert tree["posterior"]["mu"].dtype == np.float32
    assert all(gap < 5 for gap in gaps(exact(normal_gamma), tree).values())


def improper(x: Any) -> None:
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.real, (), ()))
    low = numpyro.sample("low", dist.Uniform(0.0, 1.0))
    high = numpyro.sample("high", dist.Uniform(low, 2.0))
    numpyro.deterministic("width", high - low)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(mu + x * (high - low), 1.0))


IMPROPER = {"x": np.linspace(-3, 3, 20), "y": 1.0 + 0.5 * np.linspace(-3, 3, 20)}


@pytest.mark.parametrize(
    "method", quick_ones([bl.NUTS(), bl.SVI(), bl.MAP(), bl.Laplace()], bl.NUTS(), bl.MAP()), ids=name_of
)
def test_improper_priors_and_moving_constraints(method: Any) -> None:
    tree = quiet(10, improper, IMPROPER, method)
    posterior = tree["posterior"].dataset
    assert ((posterior["high"] > posterior["low"]) & (posterior["high"] < 2)).all()
    np.testing.assert_allclose(posterior["width"], posterior["high"] - posterior["low"])
    np.testing.assert_allclose(posterior["mu"].mean(), 1.0, atol=0.1)
    assert "improper prior" in str(bl.explain(improper, IMPROPER))


@pytest.mark.parametrize(
    "method",
    quick_ones([bl.NUTS(), bl.SVI(bl.full_rank_normal()), bl.MAP(), bl.Laplace()], bl.NUTS(), bl.MAP()),
    ids=name_of,
)
def test_missing_entries_are_as_if_they_were_not_there(method: Any) -> None:
    lecture, data = linear_regression, linear_regression.example()
    gone = data | {"y": np.where(np.arange(10) % 3 == 1, np.nan, data["y"])}
    here = ~np.isnan(gone["y"])
    with_gaps = quiet(11, lecture.model, gone, method)
    without = quiet(12, lecture.model, {"x": data["x"][here], "y": data["y"][here]}, method)
    if with_gaps["posterior"].sizes["draw"] == 1:
        np.testing.assert_allclose(with_gaps["posterior"]["w"], without["posterior"]["w"], atol=1e-6)
    else:
        assert all(gap.max() < 5 for gap in gaps(with_gaps, without).values())
    np.testing.assert_array_equal(np.isnan(with_gaps["observed_data"]["y"]), ~here)


def discrete(n: int) -> None:
    z = numpyro.sample("z", dist.Bernoulli(0.5))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(z, 1.0))


def impossible(n: int) -> None:
    top = numpyro.sample("top", dist.Uniform(0.0, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Uniform(0.0, top))


def overflowing(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    numpyro.factor("penalty", jnp.log(-jnp.exp(mu)))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1.0))


def one(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1.0))


TWOS = {"n": 2, "y": np.full(2, 2.0)}
LECTURE = normal_gamma
WITH_GAP = LECTURE.example() | {"y": np.r_[np.nan, LECTURE.example()["y"][1:]]}
SMALL = bl.NUTS(num_warmup=5, num_samples=5, num_chains=1)

REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "nothing observed": (lambda: quiet(0, one, {"n": 2}), ValueError, r"nothing to learn from.*'mu', 'y'.*simulate"),
    "everything observed": (
        lambda: quiet(0, one, TWOS | {"mu": 0.0}),
        ValueError,
        "every site of the program is observed",
    ),
    "discrete alone": (lambda: quiet(0, discrete, TWOS, bl.NUTS()), ValueError, r"no site left to draw .*Exact\(\)"),
    "impossible, NUTS": (lambda: quiet(0, impossible, TWOS, SMALL), ValueError, "density of site 'y' is zero"),
    "impossible, SVI": (lambda: quiet(0, impossible, TWOS, bl.SVI()), ValueError, "density of site 'y' is zero"),
    "impossible, MAP": (lambda: quiet(0, impossible, TWOS, bl.MAP()), ValueError, "density of site 'y' is zero"),
    "not a number": (
        lambda: quiet(0, overflowing, TWOS, SMALL),
        ValueError,
        "factor 'penalty' is minus infinity or not",
    ),
    "a flow in one dimension": (
        lambda: quiet(0, one, TWOS, bl.SVI(bl.normalising_flow())),
        ValueError,
        "needs a posterior of two dimensions",
    ),
    "a guide of other sites": (
        lambda: quiet(0, one, TWOS, bl.SVI(lambda: numpyro.sample("nu", dist.Normal()))),
        ValueError,
        r"guide draws \['nu'\], but the latent sites are \['mu'\]",
    ),
    "a guide of other arguments": (
        lambda: quiet(0, one, TWOS, bl.SVI(lambda x: None)),
        ValueError,
        r"guide asks for \['x'\]",
    ),
    "a guide on a point": (
        lambda: quiet(0, one, TWOS, bl.SVI(lambda: numpyro.sample("mu", dist.Delta(numpyro.param("at", 0.5))))),
        ValueError,
        "all its mass of site 'mu' on a point",
    ),
    "Laplace as a guide": (
        lambda: quiet(0, one, TWOS, bl.SVI(partial(autoguide.AutoLaplaceApproximation))),
        TypeError,
        r"is a point, of which there is no bound; use Laplace\(\)",
    ),
    "a built guide": (lambda: quiet(0, one, TWOS, bl.SVI(autoguide.AutoNormal(one))), TypeError, "pass the class"),
    "a wrong posterior": (
        lambda: quiet(0, LECTURE.model, LECTURE.example(), Stated(wrong_posterior)),
        ValueError,
        "not the posterior of this program",
    ),
    "a posterior with gaps": (
        lambda: quiet(0, LECTURE.model, WITH_GAP, Stated(LECTURE.posterior)),
        ValueError,
        r"\['y'\] have missing values",
    ),
    "no draws": (
        lambda: bl.NUTS(num_samples=0),
        ValueError,
        "num_samples of NUTS must be a positive integer, but is 0",
    ),
    "half a chain": (lambda: bl.NUTS(num_chains=1.5), ValueError, "num_chains of NUTS"),  # type: ignore[arg-type]
    "an acceptance of 1": (lambda: bl.NUTS(target_accept_prob=1.0), ValueError, "between 0 and 1"),
    "a name for a method": (lambda: quiet(0, one, TWOS, "nuts"), TypeError, "method must be a method such as NUTS"),
    "a method without settings": (
        lambda: quiet(0, one, TWOS, bl.NUTS),
        TypeError,
        "method must be a method such as NUTS",
    ),  # type: ignore[arg-type]
    "a float for a key": (lambda: quiet(0.5, one, TWOS), TypeError, "key must be an int or a JAX random key"),  # type: ignore[arg-type]
}


def wrong_posterior(y: Any) -> None:
    numpyro.sample("tau", dist.Gamma(2.0, 2.0))
    numpyro.sample("mu", dist.Normal(jnp.mean(y), 1.0))


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_why(case: str) -> None:
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        call()


def test_one_observation_is_enough() -> None:
    tree = quiet(13, normal_gamma.model, {"num_rows": 1, "y": np.array([1.3])}, bl.NUTS())
    posterior = quiet(
        14, normal_gamma.model, {"num_rows": 1, "y": np.array([1.3])}, Stated(normal_gamma.posterior, 10_000)
    )
    assert all(gap < 5 for gap in gaps(posterior, tree).values())


def test_keys_of_any_kind_and_the_same_seed_give_the_same_draws() -> None:
    trees = [quiet(key, one, TWOS, SMALL) for key in (3, jax.random.key(3), jax.random.PRNGKey(3))]  # type: ignore[arg-type]
    for tree in trees[1:]:
        np.testing.assert_array_equal(tree["posterior"]["mu"], trees[0]["posterior"]["mu"])
