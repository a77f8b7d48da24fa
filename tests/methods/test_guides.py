"""Draws of guides are computed once, and are those that NumPyro would make; every guide of NumPyro's is one here."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from numpyro.handlers import block, scale, seed, substitute, trace
from numpyro.infer import autoguide

import bayeslab as bl
from bayeslab.methods.guides.automatic import DrawnOnce


def guide() -> None:
    scale = numpyro.param("scale", 2.0)
    level = numpyro.sample("level", dist.Normal(0, scale))
    with numpyro.plate("row", 3):
        numpyro.sample("effect", dist.LogNormal(level, 1))
    numpyro.sample("pair", dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)), sample_shape=(4,))
    numpyro.sample("given", dist.Normal(level, 1), obs=0.5)
    numpyro.sample("count", dist.Poisson(3.0))


def run(program: Callable[[], None], key: Any = 0, **data: Any) -> dict[str, dict[str, Any]]:
    with trace() as sites:
        substitute(seed(program, key), data=data)()
    return sites


def density_and_slope(program: Callable[[], None]) -> tuple[Array, Array]:
    """The log density of draws of a guide, and its derivative by the scale, for four keys at once."""

    def density(scale: float, key: Array) -> Array:
        sites = run(program, key, scale=scale)
        return sum(
            site["fn"].log_prob(site["value"], site["intermediates"]).sum()
            if site["intermediates"]
            else site["fn"].log_prob(site["value"]).sum()
            for name, site in sites.items()
            if name in ("level", "effect", "pair")
        )

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    return jax.jit(jax.vmap(jax.value_and_grad(density), (None, 0)))(1.5, keys)


def test_draws_are_those_of_numpyro() -> None:
    once, plain = run(DrawnOnce(guide)), run(guide)
    assert once.keys() == plain.keys()
    for name, site in plain.items():
        np.testing.assert_array_equal(once[name]["value"], site["value"], err_msg=name)
    np.testing.assert_array_equal(once["effect"]["intermediates"][0][0], plain["effect"]["intermediates"][0][0])


def test_gradients_pass_through_draws() -> None:
    for once, plain in zip(density_and_slope(DrawnOnce(guide)), density_and_slope(guide), strict=True):
        np.testing.assert_allclose(once, plain, rtol=1e-12)
    assert np.abs(density_and_slope(guide)[1]).min() > 0


def test_no_draw_is_computed_in_what_reads_it() -> None:
    code = str(jax.make_jaxpr(lambda: [site["value"] for site in run(DrawnOnce(guide)).values()])())
    assert code.count("optimization_barrier") == 4  # one for each site that is drawn


X = np.random.default_rng(0).normal(1.0, 1.0, 30)
Y = 1 + 2 * X + np.random.default_rng(1).normal(size=30)


def line(x: Any, y: Any = None) -> None:
    """Two coefficients that are correlated in the posterior, which is Normal."""
    a = numpyro.sample("a", dist.Normal(0, 3))
    b = numpyro.sample("b", dist.Normal(0, 3))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(a + b * x, 1.0), obs=y)


def some_rows() -> None:
    """The program for steps of a guide: a fifth of the rows, with weights that are learned."""
    weight = numpyro.param("weight", 5.0, constraint=dist.constraints.positive)
    with scale(scale=weight):
        line(X[::5], Y[::5])


def list_of_guides() -> autoguide.AutoGuideList:
    guide = autoguide.AutoGuideList(line)
    guide.append(autoguide.AutoNormal(block(line, expose=["a"])))
    guide.append(autoguide.AutoNormal(block(line, expose=["b"])))
    return guide


def bound_of(guide: Any, model: Any = line, **data: Any) -> float:
    data = data or {"x": X, "y": Y}
    tree = bl.fit(0, model, data, bl.SVI(guide, num_steps=2000, num_samples=4000), progress=False)
    ratio = (tree["sample_stats"]["lp"] - tree["sample_stats"]["log_q"]).values
    return float(ratio.mean())


@pytest.fixture(scope="module")
def evidence() -> float:
    tree = bl.fit(0, line, {"x": X, "y": Y}, bl.Exact(num_samples=10), progress=False)
    return float(tree.attrs["log_evidence"])


@pytest.fixture(scope="module")
def mean_field() -> float:
    """The best bound of independent Normals."""
    design = np.stack([np.ones_like(X), X], axis=1)
    precision = design.T @ design + np.eye(2) / 9
    return float(-0.5 * np.log(np.diag(precision).prod()) + 0.5 * np.log(np.linalg.det(precision)))


@pytest.mark.parametrize(
    "guide",
    [partial(autoguide.AutoDAIS, K=8), partial(autoguide.AutoSurrogateLikelihoodDAIS, surrogate_model=some_rows, K=8)],
    ids=["DAIS", "surrogate"],
)
def test_annealed_guides_know_the_program(guide: Any, evidence: float, mean_field: float) -> None:
    """They start at independent Normals, and come closer than any of these by steps along the gradient."""
    gap = bound_of(guide) - evidence
    assert mean_field + 0.1 < gap < 0.05


def test_lists_of_guides_are_guides(evidence: float, mean_field: float) -> None:
    assert bound_of(list_of_guides()) - evidence == pytest.approx(mean_field, abs=0.05)


@pytest.mark.parametrize(
    "build", [autoguide.AutoBatchedMultivariateNormal, autoguide.AutoBatchedLowRankMultivariateNormal]
)
def test_batched_guides_have_independent_parts(build: Any) -> None:
    """Three lines, each with its own data: the parts are independent, so the bound is the evidence."""

    def lines(x: Any, y: Any) -> None:
        with numpyro.plate("line", 3):
            w = numpyro.sample("w", dist.Normal(0, 3).expand([2]).to_event(1))
            with numpyro.plate("row", len(x), dim=-2):
                numpyro.sample("y", dist.Normal(w[:, 0] + w[:, 1] * x[:, None], 1.0), obs=y)

    y = Y[:, None] + np.arange(3.0)
    exact = bl.fit(0, lines, {"x": X, "y": y}, bl.Exact(num_samples=10), progress=False).attrs["log_evidence"]
    assert bound_of(build, lines, x=X, y=y) == pytest.approx(exact, abs=0.1)


def test_guides_that_need_more_say_what() -> None:
    for build, match in (
        (autoguide.AutoGuideList, "give it one that you have built"),
        (autoguide.AutoSurrogateLikelihoodDAIS, r"use partial\(AutoSurrogateLikelihoodDAIS, surrogate_model=...\)"),
    ):
        with pytest.raises(TypeError, match=match):
            bl.fit(0, line, {"x": X, "y": Y}, bl.SVI(build), progress=False)


def many_effects(y: Any) -> None:
    with numpyro.plate("row", len(y)):
        effect = numpyro.sample("effect", dist.StudentT(4.0))
        numpyro.sample("y", dist.StudentT(4.0, effect), obs=y)


@pytest.mark.parametrize("guide", [bl.normalising_flow(num_flows=1), partial(autoguide.AutoIAFNormal, num_flows=1)])
def test_flows_have_as_many_units_as_dimensions(guide: Any) -> None:
    tree = bl.fit(0, many_effects, {"y": np.zeros(40)}, bl.SVI(guide, num_steps=20, num_samples=50), progress=False)
    assert np.isfinite(tree.attrs["elbo"])
    assert tree.posterior["effect"].shape == (1, 50, 40)


def test_a_flow_with_too_few_units_is_refused() -> None:
    method = bl.SVI(bl.normalising_flow(hidden=(64, 32)))
    with pytest.raises(ValueError, match=r"as the posterior has dimensions, 40, but hidden layers of 32 were asked"):
        bl.fit(0, many_effects, {"y": np.zeros(40)}, method, progress=False)


def one_mean(y: Any) -> None:
    numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal(0, 1)), 1.0), obs=y)


@pytest.mark.parametrize(
    ("drawn", "reason"),
    [
        (dist.Poisson(1e-9), r"of site 'mu' and what the guide draws for it, one is discrete"),
        (dist.Normal(jnp.zeros(2), 1.0), r"the guide draws site 'mu' of shape \(2,\); expected \(\)"),
        (dist.Normal(jnp.zeros(1), 1.0), r"the guide draws site 'mu' of shape \(1,\); expected \(\)"),
    ],
)
def test_a_guide_draws_what_the_model_does(drawn: Any, reason: str) -> None:
    def guide(y: Any) -> None:
        numpyro.sample("mu", drawn)

    with pytest.raises(ValueError, match=reason):
        bl.fit(0, one_mean, {"y": np.zeros(3)}, bl.SVI(guide=guide), progress=False)
