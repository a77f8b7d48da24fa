"""Origins drawn in blocks of words: how tokens are laid out, and the distribution that sweeps leave as it is."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import kstest

import bayeslab as bl
from bayeslab.mixed_membership.dirichlet import draw_dirichlet
from bayeslab.mixed_membership.tokens import block_gibbs as blocks
from bayeslab.mixed_membership.tokens.block_gibbs import (
    WordBlocks,
    block_sizes,
    initial_origins,
    lay_out_blocks,
    sweep_blocks,
)
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape
from bayeslab.models import lda

SHAPES = [
    TokenShape(individuals=3, tokens=9, alleles=4, populations=2),
    TokenShape(individuals=40, tokens=3000, alleles=300, populations=7),
    TokenShape(individuals=5, tokens=700, alleles=2, populations=3),
    TokenShape(individuals=20, tokens=2000, alleles=50, populations=1),
]


def simulated(shape: TokenShape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Few frequent words and many rare ones, in any order, some missing."""
    rng = np.random.default_rng(0)
    often = 1 / (1 + np.arange(shape.alleles))
    word = rng.choice(shape.alleles, shape.tokens, p=often / often.sum())
    return word, rng.random(shape.tokens) > 0.1, rng.integers(0, shape.individuals, shape.tokens)


def laid(shape: TokenShape) -> WordBlocks:
    word, present, document = map(jnp.asarray, simulated(shape))
    return jax.jit(lay_out_blocks, static_argnums=3)(word, present, document, shape)


def pairs(document: np.ndarray, word: np.ndarray) -> list[tuple[int, int]]:
    return sorted(zip(document.tolist(), word.tolist(), strict=True))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_token_is_in_a_lane_of_its_word(shape: TokenShape) -> None:
    word, present, document = simulated(shape)
    found = jax.tree.map(np.asarray, laid(shape))
    assert found.first[-1] * blocks.NUM_STEPS_UNROLLED <= len(found.documents)
    rows = np.repeat(np.arange(len(found.words)), np.diff(found.first) * blocks.NUM_STEPS_UNROLLED)
    words, documents = found.words[rows], found.documents[: len(rows)]
    there = documents < shape.individuals
    assert (found.documents[len(rows) :] == shape.individuals).all()
    assert pairs(documents[there], words[there]) == pairs(document[present], word[present])
    few = block_sizes(shape).rows[0]
    alone, shared = found.words[:few], found.words[few:]
    alone, pieces = alone[alone < shape.alleles], found.piece[alone < shape.alleles]
    np.testing.assert_array_equal(found.alone[pieces], alone)
    each = found.alone[found.alone < shape.alleles]
    assert sorted([*each, *shared[shared < shape.alleles]]) == [*range(shape.alleles)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_counts_are_those_of_the_origins(shape: TokenShape) -> None:
    word, present, document = simulated(shape)
    rng = np.random.default_rng(1)
    q = jnp.asarray(rng.dirichlet(np.ones(shape.populations), shape.individuals), jnp.float32)
    p = jnp.asarray(rng.dirichlet(np.ones(shape.alleles), shape.populations)[:, None], jnp.float32)
    given, drawn = laid(shape), jax.jit(sweep_blocks, static_argnums=5)
    origins = initial_origins(jnp.array([1, 2], jnp.uint32), q, p, given, shape)
    for seed in range(3):
        key = jnp.array([seed, 3], jnp.uint32)
        found = jax.tree.map(np.asarray, origins)
        np.testing.assert_array_equal(
            found.counts.individuals.sum(1), np.bincount(document[present], minlength=shape.individuals)
        )
        np.testing.assert_array_equal(
            found.counts.alleles[:, 0].sum(0), np.bincount(word[present], minlength=shape.alleles)
        )
        np.testing.assert_array_equal(found.counts.individuals.sum(0), found.counts.alleles.sum((1, 2)))
        concentration = 0.3 * jnp.ones_like(p)
        origins = drawn(key, q, (jnp.ones_like(q), concentration), given, origins, shape)


@pytest.mark.parametrize(("large", "alone"), [pytest.param(1, 0, marks=pytest.mark.slow), (4, 1)])
def test_sweeps_leave_the_posterior_of_origins(large: int, alone: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the sum over all origins, words that share a block and words that are alone."""
    monkeypatch.setattr(blocks, "MIN_LANES", 2)
    monkeypatch.setattr(blocks, "MAX_LANES", 2)
    monkeypatch.setattr(blocks, "LANE_PARTS_PER_LONE_WORD", large)
    monkeypatch.setattr(blocks, "NUM_STEPS_UNROLLED", 2)
    word = np.array([0, 0, 0, 0, 1, 1, 2, 2, 3, 4])
    document = np.array([0, 1, 0, 1, 0, 1, 1, 1, 0, 0])
    shape = TokenShape(individuals=2, tokens=len(word), alleles=6, populations=2)
    prior = np.array([[1.4, 0.6], [0.3, 1.2]])
    concentration = np.array([[0.2, 0.5, 0.1, 0.4, 0.3, 0.6], [0.5, 0.1, 0.3, 0.2, 0.2, 0.4]])
    origins = np.array(list(product(range(2), repeat=len(word))))
    counts = np.zeros((len(origins), 2, shape.alleles))
    for token, one in enumerate(word):
        counts[np.arange(len(origins)), origins[:, token], one] += 1
    of_documents = np.stack([[(origins[:, document == d] == k).sum(1) for k in range(2)] for d in range(2)])
    log_joint = gammaln(of_documents + prior[:, :, None]).sum((0, 1)) + gammaln(counts + concentration).sum((1, 2))
    log_joint -= gammaln((counts + concentration).sum(2)).sum(1)
    weight = np.exp(log_joint - log_joint.max())
    weight /= weight.sum()
    expected = np.concatenate([counts[:, 0], (counts[:, 0, :, None] * counts[:, 0, None, :]).reshape(-1, 36)], 1)

    given = lay_out_blocks(jnp.asarray(word), None, jnp.asarray(document), shape)
    assert (np.asarray(given.alone) < shape.alleles).sum() == alone
    p = jnp.full((2, 1, shape.alleles), 1 / shape.alleles, jnp.float32)
    prior, concentration = jnp.asarray(prior, jnp.float32), jnp.asarray(concentration[:, None], jnp.float32)

    @jax.jit
    def run(first: jax.Array) -> jax.Array:
        def step(state: blocks.TokenOrigins, key: jax.Array) -> tuple[blocks.TokenOrigins, jax.Array]:
            first, second = jax.random.split(key)
            shares = draw_dirichlet(first, prior + state.counts.individuals, jnp.array(True))
            state = sweep_blocks(second, shares, (prior, concentration), given, state, shape)
            return state, state.counts.alleles[0, 0]

        start = initial_origins(first, prior / prior.sum(1, keepdims=True), p, given, shape)
        return jax.lax.scan(step, start, jax.random.bits(first, (100_000, 2), jnp.uint32))[1]

    drawn = np.asarray(run(jnp.array([large, 7], jnp.uint32)), float)
    drawn = np.concatenate([drawn, (drawn[:, :, None] * drawn[:, None, :]).reshape(-1, 36)], 1)
    batches = drawn.reshape(200, -1, drawn.shape[1]).mean(1)
    error = batches.std(0, ddof=1) / np.sqrt(len(batches))
    gap = batches.mean(0) - weight @ expected
    assert np.abs(gap[error > 0] / error[error > 0]).max() < 4.5
    assert np.abs(gap[error == 0]).max(initial=0.0) < 1e-12


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of several words, of few tokens too."""
    for name, value in {"MIN_TOKENS_FOR_BLOCKS": 0, "MIN_LANES": 2, "MAX_LANES": 2, "NUM_STEPS_UNROLLED": 2}.items():
        monkeypatch.setattr(blocks, name, value)


DATA = {
    "document": np.array([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2]),
    "word": np.array([0, 0, 1, 2, 3, 0, 0, 1, 2, 0, 3]),
    "num_documents": 3,
    "num_words": 5,
    "num_topics": 2,
}
COUNTED = bl.mixed_membership.Gibbs(num_warmup=100, num_samples=20, num_chains=1, thinning=20)


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_fits_in_blocks_are_calibrated_whatever_topics_are_called() -> None:
    """Topics that documents share, and probabilities of words in them, with both concentrations drawn."""
    quantities = {
        "shared": lambda values: (values["shares"] @ values["shares"].T)[np.triu_indices(3, 1)],
        "words": lambda values: (values["shares"] @ values["topics"])[:, :3],
    }
    data = DATA | {"alpha": None, "concentration": None}
    tree = bl.sbc(3, lda.model, data, COUNTED, 200, quantities=quantities, progress=False)
    for site in ("alpha", "concentration", "shared", "words"):
        ranks = tree["prior_sbc"][site].values[0].reshape(200, -1)
        assert min(kstest(column, "uniform").pvalue for column in ranks.T) > 1e-3 / ranks.shape[1]


@pytest.mark.usefixtures("always")
def test_fits_in_blocks_go_on() -> None:
    """With the draws of an uninterrupted one: origins are kept from sweep to sweep, and in the state."""
    short = bl.mixed_membership.Gibbs(num_warmup=10, num_samples=5, num_chains=2)
    data = DATA | {"word": DATA["word"][::-1]}
    whole = bl.fit(1, lda.model, data, bl.mixed_membership.Gibbs(10, 10, 2), progress=False)
    parts = bl.fit(
        1, lda.model, data, short, previous=bl.fit(1, lda.model, data, short, progress=False), progress=False
    )
    np.testing.assert_array_equal(whole["posterior"]["shares"], parts["posterior"]["shares"])
