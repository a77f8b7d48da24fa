"""Programs as NumPyro's tutorials write them have the density that NumPyro gives them, and are fitted and predicted."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from catalogue.idioms import IDIOMS, Idiom, X, Y, autoregression, imputed, plain_objects, repetitions
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density
from scipy import stats

import bayeslab as bl
from bayeslab.programs.program import init_inside_support, precision_scope
from bayeslab.results.datatree import has_same_data


@pytest.mark.parametrize("idiom", IDIOMS, ids=lambda idiom: idiom.program.__name__)
def test_density_is_that_of_numpyro(idiom: Idiom) -> None:
    with precision_scope():
        arguments = {name: _in_own_width(value) for name, value in idiom.arguments.items()}
        bound = bl.bind(idiom.program, idiom.arguments | idiom.sites)
        model = handlers.condition(idiom.program, data=idiom.sites) if idiom.sites else idiom.program
        start = handlers.substitute(handlers.seed(bound.program, 0), substitute_fn=init_inside_support)
        values = handlers.trace(start).get_trace()
        latent = {name: values[name]["value"] for name in bound.latent}
        expected = log_density(handlers.seed(model, 0), (), arguments, latent)[0]
        np.testing.assert_allclose(bound.log_joint(latent), expected, rtol=1e-12)


def _in_own_width(value: Any) -> Any:
    """Integers in the width that they have in double precision, in which NumPyro computes with them."""
    return value.astype(int) if getattr(value, "dtype", None) == jnp.int32 else value


def test_repetitions_are_a_dimension_with_the_names_of_rows() -> None:
    """A vector without a plate has the posterior of a plate, in closed form, and the labels of its Series."""
    data = {"y": pd.Series(Y, index=pd.Index([f"plot {i}" for i in range(12)], name="plot"))}
    tree = bl.predict(1, repetitions, data, bl.fit(0, repetitions, data, bl.Exact(num_samples=4000), progress=False))
    precision = 12 / 1.5**2 + 1 / 100
    mu = tree["posterior"]["mu"].values
    posterior = stats.norm(Y.sum() / 1.5**2 / precision, precision**-0.5)
    assert stats.kstest(mu[0], posterior.cdf).pvalue > 1e-3
    expected = stats.norm(mu[..., None], 1.5).logpdf(Y)
    np.testing.assert_allclose(tree["log_likelihood"]["obs"], expected)
    assert list(tree["posterior_predictive"]["obs"].coords["plot"].values) == list(data["y"].index)
    assert bl.predict(0, repetitions, {"y": None}, tree)["predictions"]["obs"].dims == ("chain", "draw")


def test_scans_are_replicated_step_by_step() -> None:
    """Replicated steps follow replicated ones: the variance of an autoregression grows."""
    data = {"y": jnp.concatenate([jnp.zeros(1), 10 + jnp.zeros(3)])}
    with precision_scope():
        bound = bl.bind(autoregression, data)
        keys = jax.random.split(jax.random.key(0), 4000)
        values = jax.vmap(lambda key: bound.prior_draw(key, {"a": jnp.array(2.0)})["y"]["value"])(keys)
    scales = 1 + 0.1 * np.arange(3)
    expected = [sum((4.0 ** (t - s)) * scales[s] ** 2 for s in range(t + 1)) for t in range(3)]
    np.testing.assert_allclose(np.asarray(values).var(0), expected, rtol=0.1)


def test_what_python_looks_at_becomes_a_constant() -> None:
    def looking(x: Any, y: Any) -> None:
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        numpyro.sample("residual", dist.Normal(0.0, 1.0), obs=y - b * (2 if int(jnp.max(x)) > 0 else 1))

    explanation = str(bl.explain(looking, {"x": jnp.asarray(X + 1), "y": Y}))
    assert "argument 'x': the program needs its values to run" in explanation
    assert "argument 'y'" not in explanation
    assert "residual  factor, of values computed from latent sites" in explanation


def test_objects_are_known_by_what_they_hold() -> None:
    """A namespace that has changed is another data set, and its arrays are data."""
    with precision_scope():
        config = SimpleNamespace(scale=2.0, size=3, link=jnp.tanh, x=X)
        tree = bl.fit(0, plain_objects, {"config": config, "y": Y}, bl.MAP(), progress=False)
        bound = bl.bind(plain_objects, {"config": config, "y": Y})
        assert set(bound.arrays) == {"config.scale", "config.x", "y"}
        assert has_same_data(tree, bound)
        config.x = X + 1
        assert not has_same_data(tree, bl.bind(plain_objects, {"config": config, "y": Y}))


def test_computed_values_are_no_data_to_simulate() -> None:
    with pytest.raises(ValueError, match="factor 'x' changes it"):
        bl.simulate(0, imputed, {"x": np.where(X > 0, X, np.nan), "y": Y})


def test_substituted_sites_are_refused() -> None:
    def substituted(y: Any) -> None:
        with handlers.substitute(data={"mu": 1.0}):
            mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    with pytest.raises(ValueError, match=r"site 'mu' has a value from handlers.substitute, .*use handlers.condition"):
        bl.bind(substituted, {"y": Y})


def test_values_of_some_steps_of_a_scan_are_refused() -> None:
    """NumPyro draws the others where it has a key, and has none while it infers."""

    def smoothing(y: Any, future: int) -> None:
        share = numpyro.sample("share", dist.Beta(1.0, 1.0))

        def step(level: Any, t: Any) -> tuple[Any, Any]:
            new = numpyro.sample("y", dist.Normal(level, 1.0))
            return share * new + (1 - share) * level, None

        with handlers.condition(data={"y": y}):
            scan(step, jnp.zeros(()), jnp.arange(len(y) + future))

    assert bl.bind(smoothing, {"y": Y, "future": 0}).latent == ("share",)
    with pytest.raises(ValueError, match="site 'y' has values for a part of the steps of a scan"):
        bl.bind(smoothing, {"y": Y, "future": 3})


def test_names_of_the_dimensions_of_results_get_an_underscore() -> None:
    """A plate may be called "chain", as that of factorial chains is, and a site "draw"."""

    def program(y: Any) -> None:
        draw = numpyro.sample("draw", dist.Normal(0.0, 1.0))
        with numpyro.plate("chain", 3):
            numpyro.sample("y", dist.Normal(draw, 1.0), obs=y)

    tree = bl.fit(0, program, {"y": Y[:3]}, bl.Exact(4), progress=False)
    assert tree["posterior"]["draw_"].dims == ("chain", "draw")
    assert tree["observed_data"]["y"].dims == ("chain_",)
    assert bl.bind(program, {"y": Y[:3], "draw": 0.5}).latent == ()


def test_a_delta_is_what_the_program_computes() -> None:
    def program(y: Any) -> None:
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        with numpyro.plate("row", len(y)):
            twice = numpyro.sample("twice", dist.Delta(2 * a))
            numpyro.sample("y", dist.Normal(twice, 1.0), obs=y)

    tree = bl.fit(0, program, {"y": Y}, bl.Exact(4), progress=False)
    posterior = tree["posterior"]
    np.testing.assert_allclose(posterior["twice"], 2 * posterior["a"].expand_dims(row=12, axis=-1))
    log_evidence = stats.multivariate_normal(np.zeros(12), np.eye(12) + 4).logpdf(Y)
    assert tree.attrs["log_evidence"] == pytest.approx(log_evidence, rel=1e-10)


def test_elements_of_a_scan_may_be_missing_where_they_are_observed() -> None:
    """As the observations of a local level: the evidence is that of the steps that were seen."""

    def program(y: Any) -> None:
        def step(level: Any, value: Any) -> tuple[Any, None]:
            level = numpyro.sample("level", dist.Normal(level, 1.0))
            numpyro.sample("y", dist.Normal(level, 1.0), obs=value)
            return level, None

        scan(step, 0.0, y)

    y = np.where(np.arange(5) == 2, np.nan, Y[:5])
    seen, steps = ~np.isnan(y), np.arange(1.0, 6.0)
    covariance = (np.minimum(steps, steps[:, None]) + np.eye(5))[seen][:, seen]
    tree = bl.fit(0, program, {"y": y}, bl.Exact(4), progress=False)
    log_evidence = stats.multivariate_normal(np.zeros(4), covariance).logpdf(y[seen])
    assert tree.attrs["log_evidence"] == pytest.approx(log_evidence, rel=1e-10)


def skills(answers: Any, needed: Any) -> None:
    """Who has which skill, from answers to questions that need one or several."""
    has = [numpyro.sample(f"skill_{number}", dist.Bernoulli(0.5)) for number in range(max(map(max, needed)) + 1)]
    for question, numbers in enumerate(needed):
        knows = jnp.array([has[number] for number in numbers]).prod()
        numpyro.sample(f"answer_{question}", dist.Bernoulli(jnp.where(knows == 1, 0.9, 0.2)), obs=answers[question])


def test_arguments_may_be_lists_of_unequal_lengths() -> None:
    answers, needed = np.array([1, 0, 1]), [[0], [1], [0, 1]]
    tree = bl.fit(0, skills, {"answers": answers, "needed": needed}, progress=False)
    found = tree.posterior.mean(("chain", "draw"))
    knows = np.array([[a, b, a * b] for a in (0, 1) for b in (0, 1)])
    right = np.where(knows == 1, 0.9, 0.2)
    weights = np.where(answers == 1, right, 1 - right).prod(1)
    exact = weights @ knows[:, :2] / weights.sum()
    assert np.allclose([found["skill_0"], found["skill_1"]], exact, atol=0.08)  # five standard errors of 1,000 draws


def test_lists_of_unequal_lengths_are_no_values_of_a_site() -> None:
    def one_site(y: Any) -> None:
        values = None if y is None else jnp.array(y)
        numpyro.sample("x", dist.Normal(numpyro.sample("mean", dist.Normal()), 1.0), obs=values)

    with pytest.raises(ValueError, match="'one_site' makes an array of a list of unequal lengths"):
        bl.fit(0, one_site, {"y": [[1.0, 2.0], [3.0]]}, progress=False)
    with pytest.raises(ValueError, match=r"entry 'x' .* list of unequal lengths"):
        bl.fit(0, lambda y: one_site(None), {"y": 0.0, "x": [[1.0, 2.0], [3.0]]}, progress=False)
