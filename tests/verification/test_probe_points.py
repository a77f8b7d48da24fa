"""A conditional has to hold at every choice of discrete sites, and where priors have their values."""

from collections.abc import Callable
from itertools import product

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array

import bayeslab as bl
from bayeslab.models import gaussian_mixture
from bayeslab.programs.program import precision_scope
from bayeslab.verification.findings import find_conditional
from bayeslab.verification.points.probe_points import choice_points, prior_scale_points

EFFECTS: tuple[Callable[[Array], Array], ...] = (jnp.zeros_like, lambda b: b, lambda b: 2 * b, lambda b: -b, jnp.exp)
Y = np.array([2.2, 2.6, 1.9])


def hypotheses(name: str, number: int) -> None:
    which = numpyro.sample(name, dist.Categorical(jnp.ones(number) / number))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    mean = jnp.stack([effect(b) for effect in EFFECTS[-number:]])[which]
    with numpyro.plate("row", 3):
        numpyro.sample("y", dist.Normal(mean, 1.0))


def factorial(first: str, second: str) -> None:
    one, two = (numpyro.sample(name, dist.Bernoulli(0.5)) for name in (first, second))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", 3):
        numpyro.sample("y", dist.Normal(jnp.where(one * two == 1, jnp.exp(b), one * b + two), 1.0))


def ceiling(x: Array) -> None:
    a = numpyro.sample("a", dist.Normal(50.0, 20.0))
    b = numpyro.sample("b", dist.Normal(0.0, 10.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(jnp.minimum(a + b * x, 100.0), 5.0))


def switched(n: int) -> None:
    which = numpyro.sample("which", dist.Bernoulli(0.3))
    b = numpyro.sample("b", dist.Normal(0.0, 1e6))
    precision = numpyro.sample("precision", dist.Gamma(1e-3, 1e-3))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(jnp.where(which == 1, b, -b), precision**-0.5))


@pytest.mark.parametrize("name", ["h", "k", "model"])
@pytest.mark.parametrize("number", [pytest.param(3, marks=pytest.mark.slow), 5])
def test_one_choice_of_many_refutes_a_conditional(name: str, number: int) -> None:
    with precision_scope():
        assert find_conditional(bl.bind(hypotheses, {"name": name, "number": number, "y": Y}), "b").rule is None


@pytest.mark.parametrize("names", [("u", "v"), ("treated", "dosed"), ("a", "c")])
def test_two_choices_together_refute_it(names: tuple[str, str]) -> None:
    with precision_scope():
        assert find_conditional(bl.bind(factorial, {"first": names[0], "second": names[1], "y": Y}), "b").rule is None


def test_values_of_the_prior_refute_it() -> None:
    x = np.linspace(0.0, 10.0, 12)
    with precision_scope():
        assert find_conditional(bl.bind(ceiling, {"x": x, "y": np.minimum(30 + 12 * x, 100)}), "a").rule is None


def test_what_holds_for_every_choice_and_a_vague_prior_stays() -> None:
    with precision_scope():
        bound = bl.bind(switched, {"n": 3, "y": Y})
        assert all(find_conditional(bound, name).rule is not None for name in bound.latent)


def test_few_choices_are_all_there() -> None:
    with precision_scope():
        bound = bl.bind(factorial, {"first": "u", "second": "v", "y": Y})
        found = {(int(values["u"]), int(values["v"])) for _, values in choice_points(bound)}
    assert found == set(product((0, 1), repeat=2))


def test_large_data_are_tried_at_few_points() -> None:
    """Of 80,000 labels each takes two choices of three; a proof of them costs seconds at every further point."""
    y = np.random.default_rng(0).normal(size=80_000)
    with precision_scope():
        bound = bl.bind(gaussian_mixture.model, {"num_rows": len(y), "num_components": 3, "y": y})
        tried = [values["z"] for _, values in choice_points(bound)]
        assert len(prior_scale_points(bound)) == 2
    assert len(tried) == 2
    assert bool((tried[0] != tried[1]).all())
    assert all(set(np.unique(each)) == {0, 1, 2} for each in tried)


def of_kinds(y: Array) -> None:
    kind = numpyro.sample("kind", dist.Categorical(jnp.ones(7) / 7))
    with numpyro.plate("row", len(y)):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(jnp.where(z == 1, kind, 0.0), 1.0), obs=y)


def test_a_site_of_few_elements_takes_all_its_choices_beside_large_data() -> None:
    with precision_scope():
        tried = choice_points(bl.bind(of_kinds, {"y": np.zeros(200_000)}))
    assert {int(values["kind"]) for _, values in tried} == set(range(7))


def indicators(x: Array) -> None:
    """The first and the last of seven meet in b: one pair of choices of 128 values refutes its Normal conditional."""
    on = numpyro.sample("on", dist.Bernoulli(0.5).expand([7]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(jnp.where(on[0] * on[6] == 1, jnp.exp(b), b) * x + on.sum(), 1.0))


def test_pairs_of_indicators_are_tried_beside_large_data() -> None:
    x = np.linspace(0.0, 1.0, 100_000)
    with precision_scope():
        bound = bl.bind(indicators, {"x": x, "y": x})
        assert find_conditional(bound, "b").rule is None
        tried = np.stack([values["on"] for _, values in choice_points(bound)])
    pairs = {(i, j): {*map(tuple, tried[:, [i, j]].tolist())} for i in range(7) for j in range(i)}
    assert all(found == set(product((0, 1), repeat=2)) for found in pairs.values())
