"""Scans: distributed over all steps, their discrete sites eliminated as chains; compared with sums over all values."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.extend.core import jaxpr_as_fun
from numpyro.contrib.control_flow import scan
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import logsumexp

import bayeslab as bl
from bayeslab.distributions import MarkovChain
from bayeslab.elimination.conditional import Rule, conditional
from bayeslab.elimination.discrete.chains.readings import readings_of
from bayeslab.elimination.discrete.field_parts import field_parts
from bayeslab.elimination.discrete.field_search import find_field
from bayeslab.elimination.discrete.first_steps import EqualRows, Pieces
from bayeslab.elimination.families import CHAIN_OF_STEPS, JOINTLY_ENUMERATED
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.programs.tracing.loops.loop_distribution import distribute_loops
from bayeslab.transforms.analysis import Analysis
from bayeslab.verification.points.probe_points import generic_points
from quick_cases import quick_ones
from scan_programs import SCANS

NUM_DRAWS = 20_000


def successes(y: Any, trials: Any) -> None:
    """Two sites a step; probabilities of zero and one, with data that they explain, and logarithms of both."""
    with numpyro.plate("state", 2):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.ones(2)))
        prob = numpyro.sample("prob", dist.Beta(1.0, 1.0))

    def step(last: Any, seen: Any) -> Any:
        z = numpyro.sample("z", dist.Categorical(rows[last]))
        w = numpyro.sample("w", dist.Bernoulli(0.3))
        numpyro.sample("y", dist.Binomial(seen[1], jnp.where(w == 1, 0.9, prob[z])), obs=seen[0])
        return z, None

    scan(step, 0, (y, trials))


def chain_by_steps(z: Any, log_rows: Any, log_likelihoods: Any) -> Any:
    """The log of the sum over all paths (forward algorithm), as an oracle for chains that are too long to enumerate."""
    message = log_rows[z] + log_likelihoods[0]
    for row in log_likelihoods[1:]:
        message = logsumexp(message[:, None] + log_rows, axis=0) + row
    return logsumexp(message)


@pytest.mark.parametrize(
    "name",
    quick_ones(
        (name for name in SCANS if name != "long_counts"),
        "first_state",
        "coupled",
        "covariates",
        "sequences",
        "second_order",
        "closed",
    ),
)
def test_sums_draws_and_modes_are_those_over_all_values(name: str) -> None:
    model, data, shared = SCANS[name]
    with precision_scope():
        bound = bind(model, data)
        log_joint, (_, values) = terms(bound), generic_points(bound)[1]
        field = find_field(log_joint.terms, log_joint.priors, bound.latent, bound, values)
        assert (field.chain is not None) == (shared is not None)
        if shared is not None:
            assert sum(is_shared for part in readings_of(field) for _, is_shared in part.patterns) == shared
        rule = Rule("", CHAIN_OF_STEPS if field.chain else JOINTLY_ENUMERATED, (), (), None, field)
        every = np.array(list(product(*(range(card) for card in field.cards))))

        @jax.jit
        def answers(values: Any) -> Any:
            joint, log_evidence = conditional(rule, log_joint.terms, bound, values)
            draws = joint.sample(jax.random.PRNGKey(0), (NUM_DRAWS,))
            return joint.log_prob(jnp.asarray(every)), log_evidence, draws, joint.mode()

        log_probs, log_evidence, draws, mode = map(np.asarray, answers(values))
        densities = jax.vmap(lambda indices: log_density(bound.program, (), {}, field.named(indices))[0])
        right = np.asarray(jax.jit(densities)(jnp.asarray(every, jnp.int32)))
    tolerance = 1e-6 if name == "counts" else 1e-10
    assert log_evidence == pytest.approx(logsumexp(right), abs=tolerance)
    possible = np.isfinite(right)
    np.testing.assert_allclose(log_probs[possible], (right - logsumexp(right))[possible], atol=tolerance)
    assert right[(every == mode).all(1)] == pytest.approx(right.max(), abs=tolerance)
    means = np.exp(right - logsumexp(right)) @ every
    np.testing.assert_allclose(draws.mean(0), means, atol=5 * draws.std(0).max() / NUM_DRAWS**0.5)


def test_a_function_that_all_steps_share_is_read_once() -> None:
    """More steps than there are pairs of states: one configuration shows all transitions."""
    model, data, shared = SCANS["long_counts"]
    with precision_scope():
        bound = bind(model, data)
        log_joint, (_, values) = terms(bound), generic_points(bound)[1]
        field = find_field(log_joint.terms, log_joint.priors, ("z",), bound, values)
        assert sum(is_shared for part in readings_of(field) for _, is_shared in part.patterns) == shared
        rule = Rule("z", CHAIN_OF_STEPS, (), (), None, field)
        joint, log_evidence = jax.jit(lambda values: conditional(rule, log_joint.terms, bound, values))(values)
        assert joint.moves.shape == (1, 1, 3, 3)
    rows = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]]))
    likelihoods = np.asarray(dist.Poisson(np.array([1.0, 4.0, 9.0])).log_prob(data["y"][:, None]))
    assert float(log_evidence) == pytest.approx(chain_by_steps(0, rows, likelihoods), abs=1e-4)


def test_loops_are_distributed_and_the_same_functions() -> None:
    """A counter, values of two steps before, a recursion that stays a loop, and what depends on it; both directions."""

    def loop(z: Any, y: Any, rows: Any, reverse: bool) -> Any:
        def step(carry: Any, now: Any) -> Any:
            number, last, variance, before, fixed = carry
            state = z[number]
            variance = 0.5 * variance + now**2
            output = jnp.log(rows[last, state]) * fixed, variance * before
            return (number + 1, state, variance, last, fixed), output

        return jax.lax.scan(step, (0, jnp.array(1), jnp.array(0.3), 0, 2.0), y, reverse=reverse)

    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        arguments = jnp.asarray(rng.integers(0, 3, 7)), jnp.asarray(rng.normal(size=7)), jnp.asarray(rng.random((3, 3)))
        for reverse in (False, True):
            traced = jax.make_jaxpr(lambda *given, reverse=reverse: loop(*given, reverse))(*arguments)
            distributed = distribute_loops(traced)
            [left] = [equation for equation in distributed.jaxpr.eqns if equation.primitive.name == "scan"]
            assert len(left.params["jaxpr"].jaxpr.eqns) == 3
            outputs = zip(jaxpr_as_fun(traced)(*arguments), jaxpr_as_fun(distributed)(*arguments), strict=True)
            for before, after in outputs:
                assert before.dtype == after.dtype
                np.testing.assert_allclose(before, after, rtol=1e-14)


def unknown(y: Any) -> None:
    with numpyro.plate("state", 2):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.array([3.0, 2.0])))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))

    def step(last: Any, value: Any) -> Any:
        z = numpyro.sample("z", dist.Categorical(rows[last]), infer={"enumerate": "parallel"})
        numpyro.sample("y", dist.Poisson(rate[z]), obs=value)
        return z, None

    scan(step, jnp.array(0, jnp.int32), y)


def unknown_markov_chain(y: Any) -> None:
    with numpyro.plate("state", 2):
        rows = numpyro.sample("rows", dist.Dirichlet(jnp.array([3.0, 2.0])))
        rate = numpyro.sample("rate", dist.Gamma(2.0, 0.5))
    z = numpyro.sample("z", MarkovChain(rows[0], rows, len(y)))
    numpyro.sample("y", dist.Poisson(rate[z]).to_event(1), obs=y)


def test_a_scan_has_the_log_joint_of_a_markov_chain() -> None:
    """With its states summed over, and its derivatives: what NUTS is given."""
    y = np.random.default_rng(0).poisson(np.where(np.arange(60) // 20 % 2, 6.0, 1.0))
    with precision_scope():
        results = []
        for model in (unknown, unknown_markov_chain):
            bound = bind(bl.collapse(model, "z"), {"y": y})
            values = {"rows": jnp.array([[0.8, 0.2], [0.3, 0.7]]), "rate": jnp.array([1.5, 5.0])}

            def density(values: Any, bound: Any = bound) -> Any:
                return log_density(bound.program, (), {}, values)[0]

            results.append(jax.jit(jax.value_and_grad(density))(values))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), *results)


@pytest.mark.slow
def test_explain_and_methods_see_a_chain() -> None:
    """EM climbs to a point of the same log joint, and its path is the most probable one there."""
    y = np.random.default_rng(0).poisson(np.where(np.arange(60) // 20 % 2, 6.0, 1.0))
    with precision_scope():
        [found] = Analysis(bind(unknown, {"y": y})).discrete_fields
    assert found.jointly.rule is not None
    assert found.jointly.rule.family.name == "Markov chain"
    trees = [bl.fit(0, model, {"y": y}, bl.EM(), progress=False) for model in (unknown, unknown_markov_chain)]
    rates = [np.sort(tree.posterior["rate"].values.ravel()) for tree in trees]
    np.testing.assert_allclose(*rates, rtol=1e-4)
    assert ((trees[0].posterior["z"].values.ravel() == 0) == (trees[1].posterior["z"].values.ravel() == 0)).mean() in (
        0,
        1,
    )


@pytest.mark.parametrize("prob", [pytest.param([0.2, 0.7], marks=pytest.mark.slow), [0.0, 1.0]])
def test_one_row_stands_for_equal_ones(prob: list[float]) -> None:
    """Tables, and their derivatives, are those of arrays that are written out."""
    y, trials = np.array([0, 2, 3, 0, 3, 1, 0]), np.array([2, 2, 3, 1, 3, 4, 5])
    with precision_scope():
        analysis = Analysis(bind(successes, {"y": y, "trials": trials}))
        [found] = analysis.discrete_fields
        assert found.jointly.rule is not None
        assert found.jointly.rule.field is not None
        field, bound = found.jointly.rule.field, analysis.bound
        values = {"rows": jnp.array([[0.6, 0.4], [0.1, 0.9]]), "prob": jnp.array(prob)}
        reached = [term for term in terms(bound).terms if not term.depends.isdisjoint(field.names)]
        taken = field_parts(field, reached, bound, values)
        equal = Pieces(tuple(EqualRows(jnp.array([1], jnp.int32), size) for size in field.sizes))
        for part, weight in enumerate(taken.weights):
            if weight.ndim:
                for count in (1, 3, weight.shape[0]):
                    short, long = (taken.first_rows(each, part, count) for each in (equal, equal.whole()))
                    np.testing.assert_allclose(short, long, rtol=1e-13)

        def weighted_sum(prob: Any, configuration: Any) -> Any:
            parts = field_parts(field, reached, bound, values | {"prob": prob})
            shown = [(w, parts.first_rows(configuration, p, w.shape[0])) for p, w in enumerate(parts.weights) if w.ndim]
            return sum((jnp.where(weight == 0, 0.0, weight * part).sum() for weight, part in shown), jnp.zeros(()))

        if min(prob) > 0:  # else there is none on either side
            slopes = [jax.grad(weighted_sum)(values["prob"], each) for each in (equal, equal.whole())]
            np.testing.assert_allclose(*slopes, rtol=1e-12)


def test_places_in_pieces() -> None:
    pieces = Pieces((EqualRows(np.array([7]), 3), np.arange(4)))
    assert isinstance(pieces.between(1, 3), EqualRows)
    assert pieces.between(1, 3).number == 2
    np.testing.assert_array_equal(pieces.between(3, 6), [0, 1, 2])
    np.testing.assert_array_equal(pieces.between(2, 5), [7, 0, 1])
    np.testing.assert_array_equal(pieces.whole(), [7, 7, 7, 0, 1, 2, 3])


def test_a_collapsed_chain_is_a_program_of_numpyro() -> None:
    """Called by itself, with values that are computed at once, as its docstring says."""

    def chain(y: Any) -> None:
        stay = numpyro.sample("stay", dist.Beta(5.0, 2.0))

        def step(last: Any, value: Any) -> Any:
            z = numpyro.sample("z", dist.Bernoulli(jnp.where(last == 1, stay, 1 - stay)))
            numpyro.sample("y", dist.Normal(1.0 * z, 0.5), obs=value)
            return z, None

        scan(step, 0, y)

    y = np.linspace(0, 1, 9)
    found = log_density(bl.collapse(chain, "z"), (), {"y": y}, {"stay": 0.7})[0]
    moves, forward = np.array([[0.7, 0.3], [0.3, 0.7]]), np.array([1.0, 0.0])
    for value in y:
        forward = forward @ moves * stats.norm.pdf(value, [0, 1], 0.5)
    assert float(found) == pytest.approx(np.log(forward.sum()) + stats.beta.logpdf(0.7, 5, 2), rel=1e-5)
