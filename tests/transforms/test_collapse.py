"""Programs with sites integrated out: their log joint, what others make of them, what they refuse."""

import itertools
from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import stats
from scipy.integrate import quad

import bayeslab as bl
from bayeslab.diagnostics.compare import compare_parameters
from bayeslab.elimination.conditional import conditional
from bayeslab.elimination.sweep import feasible_point
from bayeslab.elimination.terms import terms
from bayeslab.models import gaussian_mixture, linear_regression, normal_gamma
from bayeslab.programs.program import Bound, precision_scope
from bayeslab.transforms.collapse import marginal
from quick_cases import quick_ones
from zoo import CASES

MIXTURE = gaussian_mixture.example()
AT = {"weights": np.array([0.3, 0.7]), "tau": np.array([1.0, 2.0]), "mu": np.array([-1.0, 2.0])}
SCHOOLS = {
    "sigma": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
    "y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
}
SAMPLE = ["chain", "draw"]


def schools(sigma: Any) -> None:
    """Effects in eight schools (Rubin 1981)."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("school", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.deterministic("twice", 2 * theta)
        numpyro.sample("y", dist.Normal(theta, sigma))


def labelled_effects(n: int) -> None:
    """Every row has a label and an effect."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    with numpyro.plate("row", n):
        z = numpyro.sample("z", dist.Bernoulli(0.3))
        effect = numpyro.sample("effect", dist.Normal(mu[z], 1.0))
        numpyro.sample("y", dist.Normal(effect, 0.5))
        numpyro.sample("x", dist.Normal(effect, 2.0))


def bound(model: Any, data: Any) -> Bound:
    with precision_scope():
        return bl.bind(model, data)


def log_joint(of: Bound, values: dict[str, Any]) -> float:
    with precision_scope():
        return float(of.log_joint({name: jnp.asarray(value) for name, value in values.items()}))


def test_labels_are_summed_over() -> None:
    """Against the sum over all 2^8 labellings."""
    plain, collapsed = bound(gaussian_mixture.model, MIXTURE), bound(bl.collapse(gaussian_mixture.model, "z"), MIXTURE)
    assert collapsed.latent == ("weights", "tau", "mu")
    every = [log_joint(plain, AT | {"z": np.array(z)}) for z in itertools.product([0, 1], repeat=8)]
    np.testing.assert_allclose(log_joint(collapsed, AT), np.logaddexp.reduce(every), rtol=1e-12)


def test_a_continuous_site_is_integrated_over() -> None:
    """Against quadrature, school by school."""
    collapsed = bound(bl.collapse(schools, "theta"), SCHOOLS)
    mu, tau = 3.0, 2.0
    by_hand = stats.norm.logpdf(mu, 0, 5) + stats.halfcauchy.logpdf(tau, 0, 5)
    for y, sigma in zip(SCHOOLS["y"], SCHOOLS["sigma"], strict=True):

        def density(theta: float, y: float = y, sigma: float = sigma) -> float:
            return float(stats.norm.pdf(theta, mu, tau) * stats.norm.pdf(y, theta, sigma))

        by_hand += np.log(quad(density, mu - 12 * tau, mu + 12 * tau, epsabs=0, epsrel=1e-12)[0])
    np.testing.assert_allclose(log_joint(collapsed, {"mu": mu, "tau": tau}), by_hand, rtol=1e-10)


def test_the_order_does_not_matter() -> None:
    """All ways of integrating out all sites give the closed-form evidence."""
    data = linear_regression.example()
    evidence = bl.fit(0, linear_regression.model, data, progress=False).attrs["log_evidence"]
    once = [bl.collapse(linear_regression.model, *sites) for sites in (("w", "tau"), ("tau", "w"))]
    twice = [bl.collapse(bl.collapse(linear_regression.model, "w"), "tau")]
    for program in once + twice:
        np.testing.assert_allclose(log_joint(bound(program, data), {}), evidence, rtol=1e-12)


LAWS = ["regression", "wishart", "rows_of_probabilities", "nested_plates", "truncated_mean", "switch", "learned_chain"]


@pytest.mark.parametrize("name", quick_ones(LAWS, "regression", "truncated_mean", "learned_chain"))
def test_log_joint_is_that_of_the_rest_and_of_the_conditional(name: str) -> None:
    """Law: log joint - log joint of the collapsed program is the log density of the conditional, for every value."""
    with precision_scope():
        plain = bl.bind(CASES[name].program, CASES[name].data)
        site = plain.latent[-1]
        left = marginal(plain, (site,))
        for gap, collapsed in np.asarray(_gaps(plain, left)):
            np.testing.assert_allclose(gap, collapsed, rtol=1e-10, atol=1e-10)


@jax.jit
def _gaps(plain: Bound, left: Bound) -> list[tuple[Any, Any]]:
    """Both sides, for three values of the site."""
    [rule] = left.transform.rules  # type: ignore[union-attr]
    values = feasible_point(jax.random.PRNGKey(1), plain)
    others = {name: value for name, value in values.items() if name != rule.site}
    q = conditional(rule, terms(plain).terms, plain, values).distribution
    drawn = [x.reshape(values[rule.site].shape) for x in q.sample(jax.random.PRNGKey(1), (3,))]
    gaps = [plain.log_joint(others | {rule.site: x}) - q.log_prob(x).sum() for x in drawn]
    return [(gap, left.log_joint(others)) for gap in gaps]


def test_equal_arguments_give_equal_programs() -> None:
    one, two = bl.collapse(schools, "theta"), bl.collapse(schools, "theta")
    assert one == two
    assert hash(one) == hash(two)
    assert bl.collapse(bl.collapse(schools, "theta"), "mu") == bl.collapse(schools, "theta", "mu")
    assert one != bl.collapse(schools, "mu")


def test_it_is_a_numpyro_program() -> None:
    """Called with its arguments, under NumPyro's own handlers; with arguments that are not concrete it says why not."""
    program = bl.collapse(schools, "theta")
    values = {"mu": 3.0, "tau": 2.0}
    with precision_scope():
        given = numpyro.handlers.condition(program, {"y": jnp.asarray(SCHOOLS["y"])})
        direct = log_density(given, (SCHOOLS["sigma"],), {}, values)[0]
        np.testing.assert_allclose(direct, log_joint(bound(program, SCHOOLS), values), rtol=1e-12)
        with pytest.raises(ValueError, match="concrete arguments"):
            jax.jit(lambda sigma: log_density(given, (sigma,), {}, values)[0])(SCHOOLS["sigma"])


def test_children_keep_their_places_and_what_is_computed_from_the_sites_goes() -> None:
    sites = bound(bl.collapse(schools, "theta"), SCHOOLS).sites
    assert list(sites) == ["mu", "tau", "y", "evidence of theta"]
    assert (sites["y"].role, sites["y"].shape, sites["y"].family) == ("observed", (8,), "Normal")
    assert sites["evidence of theta"].role == "factor"


def test_recover_draws_what_nuts_did_not() -> None:
    """Means and deviations of the effects, given each draw, are those of the conditional in closed form."""
    program = bl.collapse(schools, "theta")
    tree = bl.fit(0, program, SCHOOLS, bl.NUTS(num_samples=2000), progress=False)
    assert "theta" not in tree["posterior"]
    whole = bl.recover(1, program, SCHOOLS, tree)
    assert set(whole["posterior"].data_vars) == {"mu", "tau", "theta", "twice"}
    assert "theta" not in tree["posterior"]
    posterior = whole["posterior"]
    precise = 1 / posterior["tau"].values[..., None] ** 2 + 1 / SCHOOLS["sigma"] ** 2
    mean = posterior["mu"].values[..., None] / posterior["tau"].values[..., None] ** 2
    mean = (mean + SCHOOLS["y"] / SCHOOLS["sigma"] ** 2) / precise
    standard = (posterior["theta"].values - mean) * np.sqrt(precise)
    assert stats.kstest(standard.ravel(), "norm").pvalue > 1e-4
    np.testing.assert_array_equal(posterior["twice"], 2 * posterior["theta"])
    assert whole["posterior"]["theta"].dims == ("chain", "draw", "school")


def test_methods_sum_over_labels_and_draw_them_back() -> None:
    """The labels that NUTS draws have the probabilities that Gibbs finds, both after alignment."""
    nuts = bl.fit(0, gaussian_mixture.model, MIXTURE, bl.NUTS(), progress=False)
    gibbs = bl.fit(1, gaussian_mixture.model, MIXTURE, bl.Gibbs(num_samples=4000), progress=False)
    trees = [bl.align(tree, gaussian_mixture.SITE_DIMS, gaussian_mixture.LABELS) for tree in (nuts, gibbs)]
    table = compare_parameters({"NUTS": trees[0], "Gibbs": trees[1]})
    error = abs(table["mean_error"] / table["mean_error_mcse"]).sel(posterior="Gibbs")
    assert float(error.max()) < 5
    one, other = (abs(tree["posterior"]["z"].mean(SAMPLE).values - 0.5) for tree in trees)  # of either component
    np.testing.assert_allclose(one, other, atol=0.02)


@pytest.mark.parametrize(
    "method",
    quick_ones([bl.Laplace(), bl.MAP(), bl.SVI(bl.full_rank_normal())], bl.MAP()),
    ids=["Laplace", "MAP", "SVI"],
)
def test_every_continuous_method_takes_labels(method: Any) -> None:
    tree = bl.fit(0, gaussian_mixture.model, MIXTURE, method, progress=False)
    z, mu = tree["posterior"]["z"].values, tree["posterior"]["mu"].values
    high = np.argmax(mu, axis=-1)[..., None]
    assert ((z == high).mean((0, 1)) > 0.9).tolist() == [False] * 5 + [True] * 3


FROM_CONDITIONALS = (bl.Exact(4000), bl.Gibbs(10, 2000, 2), bl.MeanField(num_samples=4000))


@pytest.mark.parametrize(
    ("method", "rows"),
    quick_ones(product(FROM_CONDITIONALS, [3, 400]), (FROM_CONDITIONALS[0], 400), (FROM_CONDITIONALS[2], 3)),
    ids=str,
)
def test_methods_from_conditionals_draw_what_is_left(method: Any, rows: int) -> None:
    """The terms of a collapsed program are those of the marginal density, not those of the program as written."""
    data = {"num_rows": rows, "kappa0": 0.01, "y": np.random.default_rng(0).normal(2.0, 0.5, rows)}
    exact = bl.fit(0, normal_gamma.model, data, bl.Exact(20_000), progress=False)
    tree = bl.fit(1, bl.collapse(normal_gamma.model, "mu"), data, method, progress=False)
    assert list(tree["posterior"].data_vars) == ["tau"]
    draws, right = tree["posterior"]["tau"].values.ravel(), exact["posterior"]["tau"].values.ravel()
    assert abs(draws.mean() - right.mean()) < 4.5 * right.std() * (1 / len(draws) + 1 / len(right)) ** 0.5
    evidence = tree.attrs.get("log_evidence", tree.attrs.get("elbo"))
    if evidence is not None:  # one factor is the posterior
        assert abs(evidence - exact.attrs["log_evidence"]) < 1e-6


def test_rows_with_latents_of_their_own_have_marginal_likelihoods() -> None:
    """log p(y, x | mu) of a row with a label and an effect, against the sum of two bivariate Normals."""
    rng = np.random.default_rng(0)
    data = {"n": 5, "y": rng.normal(size=5), "x": rng.normal(size=5)}
    tree = bl.fit(0, labelled_effects, data, bl.Gibbs(num_samples=20, num_chains=1), progress=False)
    found = bl.predict(1, labelled_effects, data, tree)["log_likelihood"]
    assert set(found.attrs["integrated_out"]) == {"z", "effect"}
    covariance = np.array([[1.25, 1.0], [1.0, 5.0]])
    rows = np.stack([data["y"], data["x"]], axis=1)
    for draw, mu in enumerate(tree["posterior"]["mu"].values[0]):
        of = [stats.multivariate_normal([one, one], covariance).pdf(rows) for one in mu]
        np.testing.assert_allclose(found["y, x"].values[0, draw], np.log(0.7 * of[0] + 0.3 * of[1]), rtol=1e-10)
    assert found["y, x"].dims == ("chain", "draw", "row")


def test_predict_refuses_a_result_that_lacks_what_rows_share() -> None:
    data = linear_regression.example()
    program = bl.collapse(linear_regression.model, "w")
    tree = bl.fit(0, program, data, bl.NUTS(num_warmup=100, num_samples=10), progress=False)
    with pytest.raises(ValueError, match=r"no draws of \['w'\].*recover"):
        bl.predict(1, program, data, tree)
    whole = bl.predict(1, program, data, bl.recover(2, program, data, tree))
    assert whole["log_likelihood"]["y"].shape == (4, 10, 10)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no site": (lambda: bl.collapse(schools), ValueError, "needs the name of a site"),
    "twice": (lambda: bl.collapse(schools, "mu", "mu"), ValueError, "names site 'mu' twice"),
    "not a name": (lambda: bl.collapse(schools, 3), TypeError, "names of sites, not 3"),  # type: ignore[arg-type]
    "not a program": (lambda: bl.collapse("schools", "mu"), TypeError, "takes a program"),  # type: ignore[arg-type]
    "unknown": (lambda: bound(bl.collapse(schools, "thetta"), SCHOOLS), ValueError, "no site.*Did you mean 'theta'"),
    "observed": (lambda: bound(bl.collapse(schools, "y"), SCHOOLS), ValueError, "'y' is observed.*leave it out"),
    "computed": (lambda: bound(bl.collapse(schools, "twice"), SCHOOLS), ValueError, "'twice' is deterministic"),
    "no family": (lambda: bound(bl.collapse(schools, "tau"), SCHOOLS), ValueError, "'tau': a HalfCauchy has no family"),
    "a reason and the child": (
        lambda: bound(bl.collapse(gaussian_mixture.model, "mu", "z"), MIXTURE),
        ValueError,
        "'mu' and 'z' cannot be integrated out: site 'z': its elements meet in .* once 'mu' is eliminated",
    ),
    "data for it": (
        lambda: bound(bl.collapse(gaussian_mixture.model, "z"), MIXTURE | {"z": np.zeros(8, int)}),
        ValueError,
        "'z' is observed",
    ),
    "NUTS, unknown": (
        lambda: bl.fit(0, schools, SCHOOLS, bl.NUTS(collapse=("thetta",)), progress=False),
        ValueError,
        "Did you mean 'theta'",
    ),
    "NUTS, a word": (lambda: bl.NUTS(collapse="theta"), ValueError, "collapse of NUTS must be names"),  # type: ignore[arg-type]
    "nothing to recover": (
        lambda: bl.recover(0, normal_gamma.model, normal_gamma.example(), DRAWS()),
        ValueError,
        "nothing to recover",
    ),
    "recover, other data": (
        lambda: bl.recover(0, normal_gamma.model, normal_gamma.example() | {"kappa0": 9.0}, DRAWS()),
        ValueError,
        "of other data",
    ),
}


def DRAWS() -> Any:
    return bl.fit(0, normal_gamma.model, normal_gamma.example(), bl.Exact(5), progress=False)


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_why(case: str) -> None:
    call, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("transform", [lambda model: bl.collapse(model, "x"), bl.augment])
def test_a_transformed_program_has_the_module_of_its_model(transform: Any) -> None:
    """Checkpoints say by it which program they are of."""

    def model() -> None:
        numpyro.sample("x", dist.Normal(0.0, 1.0))

    assert transform(model).__module__ == model.__module__ == __name__
    assert type(transform(model)).__module__.startswith("bayeslab")
