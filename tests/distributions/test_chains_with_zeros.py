"""Chains with zeros in their moves and evidence of any size, beside a recursion in logarithms."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import bayeslab as bl
from bayeslab.distributions import MarkovChain
from bayeslab.distributions.markov import expected_counts, sequential
from bayeslab.distributions.markov import inference as markov_inference
from bayeslab.distributions.processor import as_on_accelerator

STEPS, CHAINS = 500, 200


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def in_logarithms(initial: Any, transition: Any, evidence: Any, lengths: Any = STEPS) -> tuple[Any, Any]:
    """The evidence (chain,) and p(z_t | all evidence) (chain, step, K), with the largest taken out at every step."""
    with np.errstate(divide="ignore"):
        first, moves = np.log(initial), np.log(transition)
    length, lengths = evidence.shape[1], np.broadcast_to(lengths, len(evidence))[:, None]
    forward, backward = np.empty_like(evidence), np.zeros_like(evidence)
    total, here = np.zeros(len(evidence)), first + evidence[:, 0]
    for t in range(length):
        if t:
            here = np.where(t < lengths, logsumexp(here[..., None] + moves, axis=1) + evidence[:, t], here)
        top = here.max(-1, keepdims=True)
        total, here = total + top[:, 0], here - top
        forward[:, t] = here
    for t in range(length - 2, -1, -1):
        back = logsumexp(moves + (evidence[:, t + 1] + backward[:, t + 1])[:, None], axis=-1)
        backward[:, t] = np.where(t + 1 < lengths, back - back.max(-1, keepdims=True), 0.0)
    states = forward + backward
    return total + logsumexp(here, axis=-1), np.exp(states - logsumexp(states, axis=-1, keepdims=True))


def with_zeros(random: Any, shape: tuple[int, ...], states: int, share: Any) -> Any:
    """Probabilities of which a share is zero, one at least is not."""
    kept = random.dirichlet(np.ones(states), shape) * (random.random((*shape, states)) >= share)
    some = np.eye(states)[random.integers(states, size=shape)]
    kept = np.where(kept.sum(-1, keepdims=True) == 0, some, kept)
    return kept / kept.sum(-1, keepdims=True)


def chains(states: int, number: int = CHAINS) -> tuple[Any, ...]:
    """initial, transition, evidence, lengths: zeros with probability 0 to 0.9, residuals on scales 1 to 1e3."""
    random = np.random.default_rng(states)
    share, scale = random.uniform(0, 0.9, number), 10 ** random.uniform(0, 3, number)
    lengths = np.floor((STEPS + 1) ** random.random(number)).astype(int)
    lengths[:20] = STEPS
    initial = with_zeros(random, (number,), states, share[:, None])
    transition = with_zeros(random, (number, states), states, share[:, None, None])
    evidence = norm.logpdf(scale[:, None, None] * random.normal(size=(number, STEPS, states)))
    return initial, transition, evidence, lengths


@jax.jit
def both(initial: Any, transition: Any, evidence: Any, lengths: Any) -> tuple[Any, Any]:
    chain = MarkovChain(initial, transition, STEPS, lengths=lengths, validate_args=False)
    given = jnp.where(jnp.arange(STEPS)[:, None] < lengths[..., None, None], evidence, 0.0)
    return jax.value_and_grad(lambda given: chain.log_marginal(given).sum())(given)


@pytest.mark.parametrize("states", [2, 3, 4, 5, 6])
def test_random_chains_are_those_in_logarithms(states: int) -> None:
    """One by one, which is cut into blocks of time, and in batches. A thousand of them in all, of 1 to 500 steps."""
    every = chains(states)
    right, smoothed = in_logarithms(*every)
    inside = np.arange(STEPS) < every[-1][:, None]
    for together in (1, 20):
        for place in np.argsort(every[-1]).reshape(-1, together):
            value, visits = both(*(one[place if together > 1 else place[0]] for one in every))
            np.testing.assert_allclose(value, right[place].sum(), rtol=1e-10)
            apart = np.abs(np.reshape(visits, (together, STEPS, states)) - smoothed[place])
            assert apart[inside[place]].max() < 1e-9


def test_blocks_on_accelerators_are_those_in_logarithms() -> None:
    initial, transition, evidence, _ = (one[:20] for one in chains(3))
    with as_on_accelerator():
        value, (_, _, states) = markov_inference.stepwise_counts(initial, transition[:, None], evidence, None)
    right, smoothed = in_logarithms(initial, transition, evidence)
    np.testing.assert_allclose(value, right, rtol=1e-10)
    np.testing.assert_allclose(states, smoothed, atol=1e-9)


MOVES = {
    "cyclic": np.roll(np.eye(3), 1, axis=1),
    "left to right": np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]]),
    "absorbing": np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "blocks": np.array([[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7], [0.0, 0.0, 0.7, 0.3]]),
}


@pytest.mark.parametrize("spacing", [5, 60])
@pytest.mark.parametrize("name", MOVES)
def test_observations_far_from_what_the_moves_allow(name: str, spacing: float) -> None:
    """From a path without the moves: what is alone possible in the end was unlikely for long."""
    random, moves = np.random.default_rng(0), MOVES[name]
    states = len(moves)
    means = spacing * np.arange(states)
    y = means[random.integers(states, size=(20, STEPS))] + random.normal(size=(20, STEPS))
    evidence, initial = norm.logpdf(y[..., None], means), np.ones(states) / states
    right, smoothed = in_logarithms(initial, moves, evidence)
    for some in (slice(None), slice(1)):
        chain = MarkovChain(initial, moves, STEPS)
        np.testing.assert_allclose(chain.log_marginal(evidence[some]), right[some], rtol=1e-10)
        np.testing.assert_allclose(chain.smoothed(evidence[some]), smoothed[some], atol=1e-9)
    posterior = chain.condition(evidence)
    for paths in (chain.most_probable_path(evidence), posterior.sample(jax.random.key(0))):
        assert np.isfinite(chain.log_prob(paths)).all()
    best = chain.log_prob(path := chain.most_probable_path(evidence))
    best += np.take_along_axis(evidence, np.asarray(path)[..., None], -1).sum((-1, -2))
    assert (best <= right + 1e-9 * abs(right)).all()
    narrow = MarkovChain(np.float32(initial), np.float32(moves), STEPS, validate_args=False)
    np.testing.assert_allclose(narrow.log_marginal(np.float32(evidence)), right, rtol=1e-5)


def test_states_that_are_never_reached_keep_their_moves() -> None:
    chain = MarkovChain([1.0, 0.0, 0.0], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]], 4)
    evidence = np.where(np.arange(3) == 2, -np.inf, 0.0) * np.ones((4, 1)) + np.log([[0.2, 0.7, 1.0]])
    posterior = chain.condition(evidence)
    assert np.isfinite(posterior.transition_probs).all()
    np.testing.assert_allclose(posterior.transition_probs.sum(-1), 1)
    assert (posterior.marginals()[:, 2] == 0).all()
    gradient = jax.grad(lambda moves: MarkovChain(chain.initial_probs, moves, 4).log_marginal(evidence))
    assert np.isfinite(gradient(chain.transition_probs[0])).all()


def steps_of(num_steps: int, means: Any) -> None:
    with numpyro.plate("sequence", 2):
        z = numpyro.sample("z", bl.MarkovChain(np.ones(3) / 3, MOVES["cyclic"], num_steps))
        numpyro.sample("y", dist.Normal(means[z], 1.0).to_event(1))


def test_a_cycle_in_a_program_has_its_evidence() -> None:
    means = np.array([0.0, 30.0, 60.0])
    random = np.random.default_rng(10)
    y = means[random.integers(0, 3, (2, 10))] + random.normal(size=(2, 10))
    tree = bl.fit(0, steps_of, {"num_steps": 10, "means": means, "y": y}, bl.Exact(10), progress=False)
    right, _ = in_logarithms(np.ones(3) / 3, MOVES["cyclic"], norm.logpdf(y[..., None], means))
    assert tree.attrs["log_evidence"] == pytest.approx(right.sum(), rel=1e-10)


def left_to_right(num_steps: int) -> None:
    stay = numpyro.sample("stay", dist.Beta(np.ones(2), 1.0).to_event(1))
    moves = jnp.diag(jnp.append(stay, 1.0)) + jnp.diag(1 - stay, 1)
    with numpyro.plate("state", 3):
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    with numpyro.plate("sequence", 1):
        z = numpyro.sample("z", bl.MarkovChain(np.array([1.0, 0.0, 0.0]), moves, num_steps))
        numpyro.sample("y", dist.Normal(mu[z], 1.0).to_event(1))


@pytest.mark.slow
def test_a_long_chain_that_cannot_go_back_is_fitted() -> None:
    random = np.random.default_rng(0)
    y = np.concatenate([random.normal(mean, 1, 100) for mean in (0, 4, -3)])[None]
    data = {"num_steps": 300, "y": y}
    assert "MarkovChain" in str(bl.explain(left_to_right, data))
    tree = bl.fit(0, left_to_right, data, bl.EM(num_starts=3), progress=False)
    np.testing.assert_allclose(tree.posterior["mu"].values.ravel(), [0, 4, -3], atol=0.4)


def seen(num_steps: int) -> None:
    with numpyro.plate("sequence", 2):
        z = numpyro.sample("z", bl.MarkovChain(np.ones(3) / 3, MOVES["cyclic"], num_steps))
        numpyro.sample("y", dist.Categorical(probs=jnp.eye(3)[z]).to_event(1))


def test_impossible_data_are_named_with_their_step() -> None:
    y = np.array([[0, 1, 2, 0, 1], [1, 2, 0, 1, 2]])
    fitted = bl.fit(0, seen, {"num_steps": 5, "y": y}, bl.Exact(3), progress=False)
    assert fitted.attrs["log_evidence"] == pytest.approx(2 * np.log(1 / 3))
    y[1, 3] = 0
    with pytest.raises(
        ValueError, match=r"impossible, so the log evidence is -inf: no path of 'z' \(1,\) up to step 3"
    ):
        bl.fit(0, seen, {"num_steps": 5, "y": y}, bl.Exact(3), progress=False)


@pytest.mark.parametrize("moves", ["always", "sometimes"])
def test_counts_added_up_on_the_way_back_are_those_of_all_messages(moves: str) -> None:
    """Left-to-right chains far from their observations, whose states need exponents of their own."""
    rng = np.random.default_rng(8)
    transition = np.triu(rng.dirichlet(np.ones(4), 4))[None, None]
    transition /= transition.sum(-1, keepdims=True)
    likelihood = jnp.asarray(100 * rng.normal(size=(3, 30, 4)))
    active = None if moves == "always" else jnp.asarray(rng.random((3, 29)) < 0.7)
    predicted, filtered, _ = sequential.forward(np.eye(4)[:1], transition, likelihood, active)
    added = expected_counts._adding_up(predicted, transition, likelihood, active)
    separate = expected_counts._all_messages(predicted, filtered, transition, likelihood, active)
    for one, other in zip(added, separate, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-300)
