"""MarkovChain: every service equals a sum over all paths, and long chains a recursion in log space."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import Array
from jax.typing import ArrayLike
from numpyro.infer.util import log_density

from bayeslab.distributions import MarkovChain
from chains import CHAINS, all_paths, every_chain, evidence_for, left_to_right, random_chain, some_chains


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


# The oracles are NumPy: nothing of theirs is compiled.


def visited(paths: ArrayLike, states: int) -> np.ndarray:
    """1 where a path is in a state at a step, else 0: (..., step, state)."""
    return np.eye(states)[np.asarray(paths)]


def naive_log_prior(initial: np.ndarray, transition: np.ndarray, paths: np.ndarray) -> np.ndarray:
    """log p(path) (path,) of one chain, initial (K,) and transition (step, K, K), term by term."""
    probability = initial[paths[:, 0]]
    for t in range(paths.shape[1] - 1):
        probability = probability * transition[t][paths[:, t], paths[:, t + 1]]
    with np.errstate(divide="ignore"):
        return np.log(probability)


def path_evidence(log_likelihood: np.ndarray, paths: np.ndarray) -> np.ndarray:
    """The log likelihood of every path, (path, *batch)."""
    terms = np.where(visited(paths, log_likelihood.shape[-1]) > 0, log_likelihood, 0.0)
    return terms.sum((-2, -1))


@every_chain
def test_log_prob_is_that_of_the_definition(name: str) -> None:
    chain = CHAINS[name]()
    paths = all_paths(chain)
    log_prob = np.asarray(chain.log_prob(paths))
    assert log_prob.shape == (len(paths), *chain.batch_shape)
    np.testing.assert_allclose(np.exp(log_prob).sum(0), 1.0, rtol=1e-12)
    steps, states = chain.num_steps, chain.num_states
    initial = np.broadcast_to(chain.initial_probs, (*chain.batch_shape, states))
    transition = np.broadcast_to(chain.transition_probs, (*chain.batch_shape, steps - 1, states, states))
    for index in np.ndindex(chain.batch_shape):
        expected = naive_log_prior(initial[index], transition[index], paths.reshape(-1, steps))
        np.testing.assert_allclose(log_prob[(slice(None), *index)], expected, rtol=1e-12, atol=1e-12)


@some_chains
def test_marginals_are_sums_over_paths(name: str) -> None:
    chain = CHAINS[name]()
    paths = all_paths(chain)
    expected = (np.exp(chain.log_prob(paths))[..., None, None] * visited(paths, chain.num_states)).sum(0)
    np.testing.assert_allclose(chain.marginals(), expected, rtol=1e-12, atol=1e-15)


@every_chain
def test_evidence_and_posterior_are_exact_at_every_path(name: str) -> None:
    chain = CHAINS[name]()
    paths, evidence = all_paths(chain), evidence_for(chain)
    joint = np.asarray(chain.log_prob(paths)) + path_evidence(evidence, paths)
    log_marginal = np.asarray(chain.log_marginal(evidence))
    np.testing.assert_allclose(log_marginal, np.logaddexp.reduce(joint, 0), rtol=1e-12)
    posterior = chain.condition(evidence)
    assert (posterior.batch_shape, posterior.event_shape) == (chain.batch_shape, chain.event_shape)
    np.testing.assert_allclose(posterior.log_prob(paths), joint - log_marginal, rtol=1e-11, atol=1e-11)


def test_a_shift_of_the_evidence_changes_its_value_only() -> None:
    chain = CHAINS["batch_varying"]()
    evidence = evidence_for(chain)
    shift = 1e4 * np.arange(chain.num_steps)[:, None]
    shifted = chain.log_marginal(evidence + shift) - shift.sum()
    np.testing.assert_allclose(shifted, chain.log_marginal(evidence), atol=1e-9)
    one, other = (chain.condition(e) for e in (evidence, evidence + shift))
    for name in ("initial_probs", "transition_probs"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-12)


@some_chains
def test_gradients_are_those_of_the_sum_over_paths(name: str) -> None:
    """With respect to probabilities, also those that are 0, and to the evidence."""
    chain = CHAINS[name]()
    paths = all_paths(chain)
    parameters = (chain.initial_probs, chain.transition_probs, evidence_for(chain))

    def recursion(initial: Array, transition: Array, evidence: Array) -> Array:
        varying = transition.shape[-3] == chain.num_steps - 1
        matrices, steps = (transition, None) if varying else (transition[..., 0, :, :], chain.num_steps)
        one = MarkovChain(initial, matrices, steps, time_varying=varying, validate_args=False)
        return jnp.sin(one.log_marginal(evidence)).sum()

    def enumeration(initial: Array, transition: Array, evidence: Array) -> Array:
        visits = visited(paths, chain.num_states)
        start = (initial * visits[..., 0, :]).sum(-1)
        moves = jnp.einsum("...ti,...tij,...tj->...t", visits[..., :-1, :], transition, visits[..., 1:, :])
        weight = (visits * jnp.exp(evidence)).sum(-1).prod(-1)
        return jnp.sin(jnp.log((start * moves.prod(-1) * weight).sum(0))).sum()

    found, expected = (jax.jit(jax.grad(f, argnums=(0, 1, 2)))(*parameters) for f in (recursion, enumeration))
    for one, other in zip(found, expected, strict=True):
        assert bool(jnp.isfinite(one).all())
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_second_derivatives_are_exact() -> None:
    """Forward over reverse, as a Laplace approximation takes them."""
    chain = random_chain((), 2, 3, False)
    evidence, paths = evidence_for(chain), all_paths(chain)
    log_weights = np.asarray(chain.log_prob(paths)) + path_evidence(evidence, paths)
    weights, visits = np.exp(log_weights - np.logaddexp.reduce(log_weights)), visited(paths, 2)
    mean = np.einsum("p,pti->ti", weights, visits)
    covariance = np.einsum("p,pti,psj->tisj", weights, visits, visits) - np.multiply.outer(mean, mean)
    found = jax.jit(jax.hessian(chain.log_marginal))(evidence)
    np.testing.assert_allclose(found, covariance, atol=1e-12)


def naive_log_marginal(chain: MarkovChain, evidence: np.ndarray) -> np.ndarray:
    """The forward recursion in log space, one chain, one matrix."""
    with np.errstate(divide="ignore"):
        message, moves = np.log(chain.initial_probs) + evidence[0], np.log(chain.transition_probs[0])
    for one in evidence[1:]:
        message = np.logaddexp.reduce(message[:, None] + moves, 0) + one
    return np.logaddexp.reduce(message)


@pytest.mark.parametrize("chain", [lambda: random_chain((), 4, 2000, False), lambda: left_to_right(2000)])
def test_long_chains_equal_a_recursion_in_log_space(chain: Callable[[], MarkovChain]) -> None:
    one = chain()
    evidence = 3.0 * np.random.default_rng(2).normal(size=(2000, one.num_states))
    np.testing.assert_allclose(one.log_marginal(evidence), naive_log_marginal(one, evidence), rtol=1e-10)
    posterior = one.condition(evidence)
    path = np.asarray(posterior.sample(jax.random.key(3)))
    joint = one.log_prob(path) + evidence[np.arange(2000), path].sum()
    np.testing.assert_allclose(joint - posterior.log_prob(path), one.log_marginal(evidence), rtol=1e-10)


def test_many_states() -> None:
    """50 states and 1000 steps: posterior marginals are the derivative of the evidence."""
    chain = random_chain((), 50, 1000, False)
    evidence = 3.0 * np.random.default_rng(4).normal(size=(1000, 50))
    marginals = chain.condition(evidence).marginals()
    np.testing.assert_allclose(marginals, jax.grad(chain.log_marginal)(evidence), rtol=1e-9, atol=1e-15)


def test_states_out_of_reach_do_not_set_the_range() -> None:
    """The evidence favours the last state by 80,000 nats a step, long before it can be reached."""
    chain = left_to_right(3)
    evidence = np.array([[-8e4, -4e4, 0.0]] * 3)
    joint = np.asarray(chain.log_prob(all_paths(chain))) + path_evidence(evidence, all_paths(chain))
    np.testing.assert_allclose(chain.log_marginal(evidence), joint.max(), rtol=1e-12)
    np.testing.assert_allclose(chain.condition(evidence).marginals(), np.eye(3), atol=1e-300)
    gradients = jax.grad(log_marginal, argnums=(0, 1, 2))(chain.initial_probs, chain.transition_probs, evidence)
    assert all(bool(jnp.isfinite(one).all()) for one in gradients)


def log_marginal(initial: Array, transition: Array, evidence: Array) -> Array:
    """Of one chain whose steps share the only matrix of `transition`, summed over a batch."""
    return MarkovChain(initial, transition[..., 0, :, :], evidence.shape[-2]).log_marginal(evidence).sum()


def test_gradients_stay_finite_where_a_class_is_never_entered() -> None:
    """The second state would be likelier at every step, by any factor, but nothing leads there."""
    evidence = jnp.tile(jnp.array([0.0, 5.0]), (2000, 1))
    gradients = jax.grad(log_marginal, argnums=(0, 1, 2))(jnp.array([1.0, 0.0]), jnp.eye(2)[None], evidence)
    assert all(bool(jnp.isfinite(one).all()) for one in gradients)
    np.testing.assert_allclose(gradients[2], jnp.tile(jnp.array([1.0, 0.0]), (2000, 1)), rtol=1e-12)


def test_log_prob_of_impossible_paths() -> None:
    """It is -inf; derivatives are finite there too, hence also beside one in a batch."""
    chain = left_to_right(3)
    paths = jnp.array([[0, 0, 1], [0, 2, 2], [1, 1, 1]])

    def total(initial: Array, matrix: Array) -> Array:
        log_prob = MarkovChain(initial, matrix, 3).log_prob(paths)
        return jnp.where(jnp.isinf(log_prob), 0.0, log_prob).sum()

    np.testing.assert_array_equal(jnp.isneginf(chain.log_prob(paths)), [False, True, True])
    start, matrix = jax.grad(total, argnums=(0, 1))(chain.initial_probs, chain.transition_probs[0])
    np.testing.assert_allclose(start, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(matrix, [[1 / 0.6, 1 / 0.4, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("name", ["batch_varying", "left_to_right", "one_step"])
def test_impossible_evidence(name: str) -> None:
    """The evidence is -inf, its derivatives are finite, and the chain stays a chain."""
    chain = CHAINS[name]()
    evidence = evidence_for(chain)
    evidence[..., 0, :] = -np.inf
    assert bool(jnp.isneginf(chain.log_marginal(evidence)).all())
    assert bool(jnp.isfinite(jax.grad(lambda e: chain.log_marginal(e).sum())(jnp.asarray(evidence))).all())
    np.testing.assert_allclose(chain.condition(evidence).marginals().sum(-1), 1.0, rtol=1e-12)


def test_evidence_that_is_not_a_number_is_not_hidden() -> None:
    chain = MarkovChain([0.5, 0.5], jnp.eye(2), 3, validate_args=False)
    evidence = jnp.zeros((3, 2)).at[1, 0].set(jnp.nan)
    assert bool(jnp.isnan(chain.log_marginal(evidence)))
    assert bool(jnp.isnan(chain.condition(evidence).initial_probs).all())


@pytest.mark.parametrize("name", ["batch_varying", "shared_start", "shared_moves", "left_to_right"])
def test_frequencies_of_draws(name: str) -> None:
    """States and pairs of neighbours, within five standard errors; nothing impossible is ever drawn."""
    chain, draws = CHAINS[name](), 20_000
    paths = chain.sample(jax.random.key(5), (draws // 10, 10))
    assert paths.shape == (draws // 10, 10, *chain.batch_shape, *chain.event_shape)
    assert paths.dtype == jnp.int32
    assert bool(jnp.isfinite(chain.log_prob(paths)).all())
    visits = visited(np.reshape(paths, (draws, *chain.shape())), chain.num_states)
    marginals = np.asarray(chain.marginals())
    close_to(visits, marginals)
    pairs = visits[..., :-1, :, None] * visits[..., 1:, None, :]
    close_to(pairs, marginals[..., :-1, :, None] * np.asarray(chain.transition_probs))


def close_to(visits: np.ndarray, probability: np.ndarray) -> None:
    """The frequencies of independent draws are within five standard errors of their probabilities."""
    error = np.sqrt(np.clip(probability * (1 - probability), 0.0, None) / len(visits))
    np.testing.assert_array_less(np.abs(visits.mean(0) - probability), 5 * error + 1e-12)


def test_draws_given_evidence() -> None:
    chain = random_chain((2,), 3, 6, False)
    posterior = chain.condition(evidence_for(chain))
    close_to(visited(posterior.sample(jax.random.key(6), (20_000,)), 3), np.asarray(posterior.marginals()))


def test_single_precision() -> None:
    """Evidence, conditional and draws keep the precision of their arguments."""
    chain = random_chain((), 4, 500, False)
    narrow = MarkovChain(*(jnp.float32(x) for x in (chain.initial_probs, chain.transition_probs[0])), 500)
    evidence = 3.0 * jax.random.normal(jax.random.key(7), (500, 4))
    found = narrow.log_marginal(evidence.astype(jnp.float32))
    assert found.dtype == narrow.condition(evidence.astype(jnp.float32)).initial_probs.dtype == jnp.float32
    np.testing.assert_allclose(found, chain.log_marginal(evidence), rtol=1e-5)
    assert narrow.log_marginal(evidence).dtype == jnp.float64
    assert bool(jnp.isfinite(narrow.log_prob(narrow.sample(jax.random.key(8)))))


def test_evidence_may_extend_the_batch() -> None:
    """One chain, many series."""
    chain = random_chain((), 3, 4, False)
    evidence = jax.random.normal(jax.random.key(9), (5, 4, 3))
    posterior = chain.condition(evidence)
    assert posterior.batch_shape == chain.log_marginal(evidence).shape == (5,)
    one = chain.condition(evidence[2])
    np.testing.assert_allclose(posterior.transition_probs[2], one.transition_probs, rtol=1e-12)


@pytest.mark.parametrize("varying", [False, True])
def test_chains_are_pytrees(varying: bool) -> None:
    """A map over parameters makes a stack of chains, and a map over the stack uses them one by one."""
    batch = random_chain((4,), 3, 5, varying)
    evidence = evidence_for(batch)

    def one(initial: Array, transition: Array) -> MarkovChain:
        if varying:
            return MarkovChain(initial, transition, time_varying=True)
        return MarkovChain(initial, transition[0], 5)

    stack = jax.jit(jax.vmap(one))(batch.initial_probs, batch.transition_probs)
    assert (stack.batch_shape, stack.event_shape) == ((), (5,))
    posterior = jax.vmap(lambda chain, e: chain.condition(e))(stack, evidence)
    paths = jax.vmap(lambda chain, key: chain.sample(key))(posterior, jax.random.split(jax.random.key(10), 4))
    found = jax.vmap(lambda chain, path: chain.log_prob(path))(posterior, paths)
    np.testing.assert_allclose(found, batch.condition(evidence).log_prob(paths), rtol=1e-12)
    leaves, structure = jax.tree.flatten(batch)
    again = jax.tree.unflatten(structure, leaves)
    np.testing.assert_array_equal(again.log_prob(paths), batch.log_prob(paths))
    assert again.num_steps == 5


def test_in_a_program() -> None:
    """In plates, expanded, masked and as one event; the density of a program is the sum of the chains'."""
    chain = random_chain((), 3, 5, False)

    def model() -> None:
        with numpyro.plate("series", 4):
            z = numpyro.sample("z", chain)
            numpyro.sample("y", dist.Normal(z, 1.0).to_event(1))

    trace = numpyro.handlers.trace(numpyro.handlers.seed(model, 0)).get_trace()
    z, y = trace["z"]["value"], trace["y"]["value"]
    assert z.shape == (4, 5)
    expected = chain.log_prob(z).sum() + dist.Normal(z, 1.0).log_prob(y).sum()
    found = jax.jit(lambda z: log_density(model, (), {}, {"z": z, "y": y})[0])(z)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(chain.expand((4,)).log_prob(z), chain.log_prob(z), rtol=1e-12)
    np.testing.assert_allclose(chain.expand((4,)).to_event(1).log_prob(z), chain.log_prob(z).sum(), rtol=1e-12)
    masked = chain.expand((4,)).mask(jnp.arange(4) < 2).log_prob(z)
    np.testing.assert_allclose(masked, chain.log_prob(z) * (jnp.arange(4) < 2), rtol=1e-12)
    assert chain.support.is_discrete
    np.testing.assert_array_equal(chain.support(jnp.array([[0, 1, 2, 2, 0], [0, 1, 3, 2, 0]])), [True, False])


START, MATRIX = np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.2, 0.8]])
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "no_states": (lambda: MarkovChain(1.0, MATRIX, 3), r"initial_probs has shape \(\); expected \(\*batch, K\)"),
    "other_states": (lambda: MarkovChain(np.ones(3) / 3, MATRIX, 3), r"expected \(\*batch, 3, 3\)"),
    "not_square": (lambda: MarkovChain(START, MATRIX[:1], 3), r"shape \(1, 2\); expected \(\*batch, 2, 2\)"),
    "no_steps": (lambda: MarkovChain(START, MATRIX), "num_steps is missing; give it, or time_varying=True"),
    "no_length": (lambda: MarkovChain(START, MATRIX, 0), "num_steps is 0; expected at least 1"),
    "no_axis_of_steps": (
        lambda: MarkovChain(START, MATRIX, time_varying=True),
        r"expected \(\*batch, num_steps - 1, 2, 2\)",
    ),
    "other_length": (
        lambda: MarkovChain(START, np.stack([MATRIX] * 4), 4, time_varying=True),
        "matrices for 5 steps, not 4",
    ),
    "batches": (
        lambda: MarkovChain(np.stack([START] * 3), np.stack([MATRIX] * 2), 4),
        r"initial_probs and transition_probs have batch shapes \(3,\) and \(2,\)",
    ),
    "not_a_distribution": (lambda: MarkovChain(START, 2 * MATRIX, 4), "invalid transition_probs"),
    "negative": (lambda: MarkovChain([1.5, -0.5], MATRIX, 4), "invalid initial_probs"),
    "path": (lambda: MarkovChain(START, MATRIX, 4).log_prob(np.zeros(3, int)), r"shape \(3,\) .* expected \(..., 4\)"),
    "evidence": (lambda: MarkovChain(START, MATRIX, 4).condition(np.zeros((2, 4))), r"\(2, 4\); expected \(4, 2\)"),
    "evidence_batch": (
        lambda: MarkovChain(np.stack([START] * 3), MATRIX, 4).log_marginal(np.zeros((2, 4, 2))),
        r"the chain and log_likelihood have batch shapes \(3,\) and \(2,\)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_what_was_expected(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        call()
