"""Chains that cannot go from every state to every other, with evidence of any size: beside a recursion in logarithms."""

from collections.abc import Iterator
from functools import lru_cache
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
from bayeslab.distributions import MarkovChain, markov_inference, markov_parallel
from bayeslab.distributions import markov_recursions as steps

STEPS, CHAINS = 500, 200


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def in_logarithms(initial: Any, transition: Any, evidence: Any) -> tuple[Any, Any]:
    """The evidence (chain,) and p(z_t | all evidence) (chain, step, K), with the largest taken out at every step."""
    with np.errstate(divide="ignore"):
        first, moves = np.log(initial), np.log(transition)
    length = evidence.shape[1]
    forward, backward = np.empty_like(evidence), np.zeros_like(evidence)
    total, here = np.zeros(len(evidence)), first + evidence[:, 0]
    for t in range(length):
        if t:
            here = logsumexp(here[..., None] + moves, axis=1) + evidence[:, t]
        top = here.max(-1, keepdims=True)
        total, here = total + top[:, 0], here - top
        forward[:, t] = here
    for t in range(length - 2, -1, -1):
        backward[:, t] = logsumexp(moves + (evidence[:, t + 1] + backward[:, t + 1])[:, None], axis=-1)
        backward[:, t] -= backward[:, t].max(-1, keepdims=True)
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


@lru_cache(maxsize=1)
def expected(states: int) -> list[tuple[Any, Any]]:
    initial, transition, evidence, lengths = chains(states)
    return [in_logarithms(initial[n, None], transition[n, None], evidence[n, None, : lengths[n]]) for n in range(CHAINS)]


@jax.jit
def both(initial: Any, transition: Any, evidence: Any, lengths: Any) -> tuple[Any, Any]:
    chain = MarkovChain(initial, transition, STEPS, lengths=lengths, validate_args=False)
    given = jnp.where(jnp.arange(STEPS)[:, None] < lengths[..., None, None], evidence, 0.0)
    return jax.value_and_grad(lambda given: chain.log_marginal(given).sum())(given)


@pytest.mark.parametrize(("states", "together"), [(states, number) for states in range(2, 7) for number in (1, 20)])
def test_random_chains_are_those_in_logarithms(states: int, together: int) -> None:
    """One by one, which is cut into blocks of time, and in batches. A thousand of them each, of 1 to 500 steps."""
    every, known, apart = chains(states), expected(states), 0.0
    for place in np.argsort(every[-1]).reshape(-1, together):
        value, visits = both(*(one[place if together > 1 else place[0]] for one in every))
        np.testing.assert_allclose(value, sum(known[n][0] for n in place).item(), rtol=1e-10)
        for n, visit in zip(place, np.reshape(visits, (together, STEPS, states)), strict=True):
            apart = max(apart, np.abs(visit[: every[-1][n]] - known[n][1]).max())
    assert apart < 1e-9


def test_products_on_accelerators_are_those_in_logarithms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markov_inference, "_recursions", lambda: markov_parallel)
    monkeypatch.setattr(markov_inference, "in_lanes", lambda *_: False)
    initial, transition, evidence, _ = (one[:20] for one in chains(3))
    value, (_, _, states) = markov_inference._stepwise_counts(initial, transition[:, None], evidence, None)
    right, smoothed = in_logarithms(initial, transition, evidence)
    np.testing.assert_allclose(value, right, rtol=1e-10)
    np.testing.assert_allclose(states, smoothed, atol=1e-9)
