"""Discrete sites whose elements meet: everything is compared with the sum over all their values."""

import os
import time
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
from scipy.stats import multivariate_normal, norm

import bayeslab as bl
from bayeslab.distributions.factor_graphs.factor_distribution import FactorDistribution, log_partition
from bayeslab.distributions.factor_graphs.factor_graph import elimination_plan
from bayeslab.elimination.discrete.chains.recognition import chain_layout
from bayeslab.elimination.discrete.element_draws import draw_elements
from bayeslab.elimination.discrete.field_search import find_field
from bayeslab.elimination.discrete.fields import Field
from bayeslab.elimination.discrete.joint import joint_conditional
from bayeslab.elimination.discrete.table_reading import reading_of
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis
from bayeslab.verification.points.probe_points import Point, generic_points
from discrete_graphs import grid, six_rows, thousand_nodes, tree
from quick_cases import quick_ones

RNG = np.random.default_rng(3)
PIXELS = np.array([[1, 1, 0], [1, 0, 0]]) + 0.8 * RNG.normal(size=(2, 3))
WEIGHTS = RNG.normal(size=(3, 2))
X = RNG.normal(size=(12, 4))
Y = 1.5 * X[:, 0] + RNG.normal(size=12)


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
    """Neighbours in a ring that must differ."""
    with numpyro.plate("node", 4):
        z = numpyro.sample("z", dist.Categorical(jnp.array([0.5, 0.3, 0.2])))
    numpyro.factor("differ", jnp.where(z == jnp.roll(z, 1), -jnp.inf, 0.0).sum())


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


@pytest.mark.parametrize("name", quick_ones(PROGRAMS, "boltzmann", "tree", "network", "excluded", "steps"))
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


def spike_and_slab(x: Any) -> None:
    """Which coefficients are in a regression."""
    with numpyro.plate("feature", x.shape[1]):
        inside = numpyro.sample("inside", dist.Bernoulli(0.3))
        slab = numpyro.sample("slab", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(x @ (inside * slab), 1.0))


def inclusion(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The log evidence and the probability of every feature, from all subsets."""
    subsets = np.array(list(product((0, 1), repeat=x.shape[1])))
    log_joint = [
        multivariate_normal.logpdf(y, np.zeros(len(y)), np.eye(len(y)) + 4 * (x * subset) @ x.T)
        + np.log(np.where(subset, 0.3, 0.7)).sum()
        for subset in subsets
    ]
    return logsumexp(log_joint), np.exp(log_joint - logsumexp(log_joint)) @ subsets


@pytest.mark.parametrize("method", [None, bl.Gibbs(num_samples=1000, num_chains=2)], ids=["default", "gibbs"])
def test_indicators_of_coefficients(method: Any) -> None:
    log_evidence, probs = inclusion(X, Y)
    tree = bl.fit(0, spike_and_slab, {"x": X, "y": Y}, method, progress=False)
    np.testing.assert_allclose(tree["posterior"]["inside"].mean(("chain", "draw")), probs, atol=0.06)
    assert tree.attrs["method"] == ("Exact" if method is None else "Gibbs")
    if method is None:
        assert tree.attrs["log_evidence"] == pytest.approx(log_evidence, abs=1e-10)


def test_elements_that_exclude_each_other_are_not_drawn_one_after_another() -> None:
    """Where some configurations cannot be reached from others, only the joint draw is right."""
    with precision_scope():
        [found_sites] = Analysis(bind(excluded, {})).discrete_fields
    assert found_sites.jointly.rule is not None
    assert "exclude values of others" in found_sites.by_element.reason


def test_sites_of_different_widths_are_no_chain() -> None:
    """Items and the guesses of their annotators have as many steps, and meet in scopes of two."""
    scopes = tuple((item, 2 + 3 * item + position) for item in range(2) for position in range(3))
    choices = ((0, 1, 2), (0, 1))
    assert chain_layout(Field(("c", "guesses"), ((2, 1), (2, 3)), choices, scopes, (), ())) is None
    same = Field(("c", "guesses"), ((2, 1), (2, 1)), choices, ((0, 2), (1, 3), (0, 1)), (), ())
    assert chain_layout(same) is not None


def annotators(who: Any, annotations: Any) -> None:
    """What an item is, and who of its annotators guessed."""
    with numpyro.plate("annotator", 3):
        care = numpyro.sample("care", dist.Beta(2.0, 1.0))
    with numpyro.plate("item", len(annotations), dim=-2):
        c = numpyro.sample("c", dist.DiscreteUniform(0, 2))
        with numpyro.plate("position", annotations.shape[1]):
            guesses = numpyro.sample("guesses", dist.Bernoulli(1 - care[who]))
            probs = jnp.where(guesses[..., None] == 0, jnp.eye(3)[c], jnp.full(3, 1 / 3))
            numpyro.sample("annotation", dist.Categorical(probs), obs=annotations)


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, bl.Gibbs(), bl.NUTS()], ids=["default", "gibbs", "nuts"])
def test_sites_that_nearly_exclude_each_other_are_drawn_at_once(method: Any) -> None:
    """Items and guesses, each given the other, would hardly ever move."""
    seen = np.array([[0, 0, 0], [1, 1, 2], [0, 1, 0], [2, 0, 2]])
    care = np.random.default_rng(0).beta(2.0, 1.0, (100_000, 3))
    like = np.stack([np.prod((1 - care[:, None]) / 3 + care[:, None] * (seen == k), axis=-1) for k in range(3)], -1)
    weight = np.prod(like.mean(-1), axis=1)
    right = ((like / like.sum(-1, keepdims=True)) * weight[:, None, None]).sum(0) / weight.sum()
    tree = bl.fit(0, annotators, {"who": np.arange(3), "annotations": seen}, method, progress=False)
    c = tree["posterior"]["c"].values[..., 0]
    np.testing.assert_allclose(np.stack([(c == k).mean((0, 1)) for k in range(3)], -1), right, atol=0.03)


@pytest.mark.slow
def test_a_tree_of_a_thousand_nodes() -> None:
    data, right = thousand_nodes()
    tree_of_draws = bl.fit(0, tree, data, progress=False)
    assert tree_of_draws.attrs["log_evidence"] == pytest.approx(right, rel=1e-12)


@pytest.mark.slow
def test_a_grid_of_six_rows() -> None:
    data, right = six_rows()
    result = bl.fit(0, grid, data, progress=False)
    assert result.attrs["log_evidence"] == pytest.approx(right, rel=1e-12)
    single = bl.fit(0, grid, data, bl.Gibbs(num_samples=500), progress=False, dtype=jnp.float32)
    means = [each["posterior"]["z"].mean(("chain", "draw")).values for each in (result, single)]
    assert np.abs(means[0] - means[1]).max() < 0.1


def test_a_quotient_of_integers_is_cut() -> None:
    """Pairs of states by one number: all rows have the same divisor."""
    y = np.array([-1.2, 0.8, 0.9])

    def pairs(y: Any) -> None:
        with numpyro.plate("row", len(y)):
            state = numpyro.sample("state", dist.Categorical(jnp.arange(1.0, 7.0) / 21))
            first, second = jnp.divmod(state, 3)
            numpyro.sample("y", dist.Normal(2.0 * first - 1.0 + 0.1 * second, 1.0), obs=y)

    means = 2.0 * (np.arange(6) // 3) - 1.0 + 0.1 * (np.arange(6) % 3)
    right = np.log(norm.pdf(y[:, None], means, 1.0) @ (np.arange(1, 7) / 21)).sum()
    assert bl.fit(0, pairs, {"y": y}, progress=False).attrs["log_evidence"] == pytest.approx(right, abs=1e-12)


@pytest.mark.slow
@pytest.mark.skipif("optimization_level=0" in os.environ.get("XLA_FLAGS", ""), reason="code is not optimised")
def test_a_chessboard_sweep_takes_about_as_long_as_by_hand() -> None:
    """At most five times NumPy, for 64 x 64 pixels."""
    pixels = np.random.default_rng(1).normal(size=(64, 64))
    method = bl.Gibbs(num_warmup=100, num_samples=400, num_chains=1)
    bl.fit(0, grid, {"pixels": pixels}, method, progress=False)
    result = bl.fit(1, grid, {"pixels": pixels}, method, progress=False)
    rng, field = np.random.default_rng(0), (pixels - 0.5) / 0.64
    spins = rng.choice([-1.0, 1.0], pixels.shape)
    colour = np.indices(pixels.shape).sum(0) % 2
    start, ours = time.perf_counter(), result.attrs["sampling_seconds"] / (400 + 100 + 40)
    for _ in range(200):
        for chosen in (0, 1):
            near = np.zeros_like(spins)
            near[1:] += spins[:-1]
            near[:-1] += spins[1:]
            near[:, 1:] += spins[:, :-1]
            near[:, :-1] += spins[:, 1:]
            up = rng.random(pixels.shape) < 1 / (1 + np.exp(-field - 1.2 * near))
            spins = np.where(colour == chosen, np.where(up, 1.0, -1.0), spins)
    assert ours < 5 * (time.perf_counter() - start) / 200
