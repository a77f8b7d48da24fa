"""Discrete sites whose elements meet: everything is compared with the sum over all their values."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy.special import logsumexp

from bayeslab.distributions.factor_distribution import FactorDistribution, log_partition
from bayeslab.distributions.factor_graph import elimination_plan
from bayeslab.elimination.discrete.element_draws import draw_elements
from bayeslab.elimination.discrete.field_search import find_field
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.discrete.joint import joint_conditional
from bayeslab.elimination.discrete.table_reading import reading_of
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.verification.probe_points import Point, generic_points

RNG = np.random.default_rng(3)
PIXELS = np.array([[1, 1, 0], [1, 0, 0]]) + 0.8 * RNG.normal(size=(2, 3))
WEIGHTS = RNG.normal(size=(3, 2))
X = RNG.normal(size=(12, 4))
Y = 1.5 * X[:, 0] + RNG.normal(size=12)


def grid(pixels: Any) -> None:
    """A grid of hidden pixels, neighbours alike."""
    with numpyro.plate("row", pixels.shape[0], dim=-2), numpyro.plate("column", pixels.shape[1], dim=-1):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("pixel", dist.Normal(1.0 * z, 0.8), obs=pixels)
    s = 2.0 * z - 1.0
    numpyro.factor("neighbours", 0.6 * ((s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()))


def boltzmann(w: Any) -> None:
    """A restricted Boltzmann machine: a sum of products of sums."""
    with numpyro.plate("hidden", w.shape[0]):
        h = numpyro.sample("h", dist.Bernoulli(0.5))
    with numpyro.plate("visible", w.shape[1]):
        v = numpyro.sample("v", dist.Bernoulli(0.4))
    numpyro.factor("energy", h @ w @ v)


def graph(couplings: Any) -> None:
    """A quadratic form with a sparse matrix."""
    with numpyro.plate("node", len(couplings)):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.2, 0.5, 0.3])))
    numpyro.factor("energy", z @ couplings @ z)


def tree(parent: Any, strength: Any) -> None:
    """Nodes that agree with their parents, by indices."""
    with numpyro.plate("node", len(parent)):
        z = numpyro.sample("z", dist.Bernoulli(0.4))
    numpyro.factor("edges", (strength * (z[1:] == z[parent[1:]])).sum())


def network() -> None:
    """Tables that are looked up by several labels, other choices than 0, 1, ..., and a triple that meets."""
    a = numpyro.sample("a", dist.Bernoulli(0.3))
    b = numpyro.sample("b", dist.Categorical(jnp.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])[a]))
    c = numpyro.sample("c", dist.DiscreteUniform(2, 4))
    table = jnp.arange(18.0).reshape(2, 3, 3) % 5 + 1
    d = numpyro.sample("d", dist.Categorical(table[a, b] / table[a, b].sum()))
    numpyro.factor("triple", jnp.sin(1.0 * a * c + d) + jnp.where(b == c - 2, 0.5, 0.0))


def regression(x: Any) -> None:
    """Indicators in a regression whose coefficients are known."""
    with numpyro.plate("feature", x.shape[1]):
        inside = numpyro.sample("inside", dist.Bernoulli(0.3))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ (inside * jnp.arange(1.0, 1.0 + x.shape[1])), 1.0), obs=Y)


def excluded() -> None:
    """Neighbours that must differ."""
    with numpyro.plate("node", 4):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
    numpyro.factor("differ", jnp.where(z[1:] == z[:-1], -jnp.inf, 0.0).sum())


def steps() -> None:
    """A chain in a loop over densities."""
    with numpyro.plate("node", 5):
        z = numpyro.sample("z", dist.Bernoulli(0.4))

    def step(before: Any, now: Any) -> Any:
        return now, jnp.where(before == now, 0.7, -0.2) * (1 + before)

    _, parts = jax.lax.scan(step, z[0], z[1:])
    numpyro.factor("chain", parts.sum())


PROGRAMS: dict[str, tuple[Any, dict[str, Any], tuple[str, ...], int]] = {
    "grid": (grid, {"pixels": PIXELS}, ("z",), 2),
    "boltzmann": (boltzmann, {"w": WEIGHTS}, ("h", "v"), 2),
    "graph": (graph, {"couplings": np.diag([0.4, -0.3, 0.2, 0.5], 1)}, ("z",), 2),
    "tree": (tree, {"parent": np.array([0, 0, 0, 1, 1, 2, 4]), "strength": np.linspace(-1, 2, 6)}, ("z",), 2),
    "network": (network, {}, ("a", "b", "c", "d"), 4),
    "regression": (regression, {"x": X}, ("inside",), 4),
    "excluded": (excluded, {}, ("z",), 2),
    "steps": (steps, {}, ("z",), 2),
}


def found(name: str) -> tuple[Field, Any, Point]:
    program, data, sites, _ = PROGRAMS[name]
    bound = bind(program, data)
    point = generic_points(bound)[1]
    parts = terms(bound)
    return find_field(parts.terms, parts.priors, sites, *point), parts.terms, point


def enumerated(field: Field, point: Point) -> tuple[np.ndarray, np.ndarray]:
    """All configurations (configuration, element), and the log joint at each, from the program itself."""
    every = np.array(list(product(*(range(card) for card in field.cards))))

    def log_joint(indices: Any) -> Any:
        return log_density(point[0].program, (), {}, field.named(indices))[0]

    return every, np.asarray(jax.jit(jax.vmap(log_joint))(jnp.asarray(every, jnp.int32)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_and_draws_are_those_over_all_values(name: str) -> None:
    """Evidence and probabilities to rounding; a sweep leaves the posterior as it is."""
    with precision_scope():
        field, log_joint_terms, (bound, values) = found(name)
        every, log_joint = enumerated(field, (bound, values))
        assert len(set(field.colours.tolist())) == PROGRAMS[name][3]
        number = 20_000

        @jax.jit
        def conditional(values: Any) -> Any:
            joint, log_evidence = joint_conditional(field, log_joint_terms, bound, values)
            draws = joint.sample(jax.random.PRNGKey(0), (number,))
            return joint.log_prob(jnp.asarray(every)), log_evidence, joint.mode(), draws

        own_log_probs, log_evidence, mode, draws = conditional(values)
        np.testing.assert_allclose(log_evidence, logsumexp(log_joint), rtol=0, atol=1e-12)
        log_probs = log_joint - logsumexp(log_joint)
        np.testing.assert_allclose(own_log_probs, log_probs, atol=1e-11)
        assert log_probs[(every == np.asarray(mode)).all(-1)] == pytest.approx(log_probs.max(), abs=1e-12)
        sweep = jax.vmap(lambda key, x: draw_elements(key, field, log_joint_terms, bound, values, x))
        swept = jax.jit(sweep)(jax.random.split(jax.random.PRNGKey(1), number), draws)
        codes = np.ravel_multi_index(every.T, tuple(field.cards))
        probs = np.zeros(len(every))
        probs[codes] = np.exp(log_probs)
        for sample in (draws, swept):
            counts = np.bincount(np.ravel_multi_index(np.asarray(sample).T, tuple(field.cards)), minlength=len(every))
            assert (abs(counts / number - probs) <= 5.5 * np.sqrt(probs * (1 - probs) / number) + 1e-12).all()


def test_gradients_are_probabilities_and_ties_in_a_loop_change_nothing() -> None:
    """A chain that is longer than what is written out, with other numbers of values and impossible ones."""
    cards = tuple([2, 3] * 15)
    scopes = (*((place,) for place in range(30)), *((place, place + 1) for place in range(29)), (0, 3), (0, 2, 5))
    plan = elimination_plan(cards, scopes)
    assert plan.loop is not None
    with precision_scope():
        tables = np.random.default_rng(0).normal(size=plan.num_numbers)
        tables[-7] = -np.inf
        value, slope = jax.jit(jax.value_and_grad(lambda t: log_partition(plan, t)))(jnp.asarray(tables))
        parts = np.split(tables, plan.table_starts[1:-1] - 1)
        letters = [parts[place].reshape([cards[each] for each in scope]) for place, scope in enumerate(scopes)]
        operands = [
            piece for table, scope in zip(letters, scopes, strict=True) for piece in (np.exp(table), list(scope))
        ]
        assert float(value) == pytest.approx(np.log(np.einsum(*operands, [], optimize="greedy")), abs=1e-11)
        sample = jax.jit(lambda key, t: FactorDistribution(t, plan).sample(key, (4000,)))
        draws = np.asarray(sample(jax.random.PRNGKey(0), jnp.asarray(tables)))
        np.testing.assert_allclose(np.asarray(slope)[1::5][:15], (draws[:, ::2] == 1).mean(0), atol=0.04)


def test_too_large_a_table_is_refused_with_its_size() -> None:
    with precision_scope():
        bound = bind(grid, {"pixels": np.zeros((24, 24))})
        parts = terms(bound)
        field = find_field(parts.terms, parts.priors, ("z",), *generic_points(bound)[1])
        with pytest.raises(ValueError, match=r"a table of .* numbers, more than 262144"):
            reading_of(field)
        assert set(field.colours.tolist()) == {0, 1}
