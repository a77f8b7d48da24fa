"""Where methods for topics start: expected counts by turns, with more topics than are wanted."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from bayeslab.datasets import documents, simulated_documents
from bayeslab.distributions.processor import as_on_accelerator, on_cpu
from bayeslab.mixed_membership.counts import Counts
from bayeslab.mixed_membership.tokens.alternating_start import _log_gamma, alternating_start
from bayeslab.mixed_membership.tokens.document_word_pairs import Pairs, expected_topic_counts, find_pairs
from bayeslab.mixed_membership.tokens.topic_counts import TokenShape, draw_token_counts, pack_tokens
from bayeslab.programs.program import precision_scope
from quick_cases import quick_ones

SIZES = [(1, 1, 1, 1), (3, 4, 2, 9), (40, 30, 7, 3000), (300, 9, 45, 20_000)]


@pytest.mark.parametrize(
    ("size", "sorted_"),
    quick_ones(product(SIZES, [True, False]), *((size, True) for size in SIZES), (SIZES[1], False)),
    ids=str,
)
@pytest.mark.parametrize("accelerated", [False, True])
def test_counts_are_those_that_both_sides_expect(size: tuple[int, ...], sorted_: bool, accelerated: bool) -> None:
    """Against sums over all documents and words; a seventh of the tokens pads."""
    documents, words, topics, tokens = size
    rng = np.random.default_rng(tokens)
    document, word = rng.integers(0, documents, tokens), rng.integers(0, words, tokens)
    if sorted_:
        document.sort()
    pads = rng.random(tokens) < 1 / 7
    number = np.zeros((documents, words))
    np.add.at(number, (document[~pads], word[~pads]), 1)
    document, word = np.where(pads, documents, document), np.where(pads, words, word)
    q, p = rng.dirichlet(np.ones(topics), documents), rng.dirichlet(np.ones(words), topics).T
    with as_on_accelerator() if accelerated else on_cpu(True):
        both = jax.jit(find_pairs, static_argnums=(2, 3))(jnp.asarray(document), jnp.asarray(word), documents, words)
    assert isinstance(both[0], Pairs) != accelerated
    ratio = number / (q @ p.T)
    for mine, others, pairs, table in ((q, p, both[0], ratio), (p, q, both[1], ratio.T)):
        given = jnp.asarray(mine, jnp.float32), jnp.asarray(others, jnp.float32), pairs
        with precision_scope():
            found = jax.jit(expected_topic_counts)(*given)
        np.testing.assert_allclose(found, mine * (table @ others), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("topics", [3, 45])
def test_an_accelerator_draws_the_same_origins_in_one_step(topics: int) -> None:
    rng = np.random.default_rng(topics)
    word, document = (jnp.asarray(rng.integers(0, size, 40_000)) for size in (30, 20))
    shape = TokenShape(20, 40_000, 30, topics)
    tokens = pack_tokens(word, None, document, shape)
    shares, words = (
        jnp.asarray(rng.dirichlet(np.ones(size), number), jnp.float32) for size, number in ((topics, 20), (30, topics))
    )

    def drawn(shares: jax.Array) -> Counts:
        return draw_token_counts(jnp.array([1, 2], jnp.uint32), shares, words[:, None], tokens, shape)

    with on_cpu(True):
        expected = jax.device_get(jax.jit(drawn)(shares))
    with as_on_accelerator():
        found = jax.jit(lambda x: drawn(x))(shares)
        assert "length=1\n" in str(jax.make_jaxpr(lambda x: drawn(x))(shares))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_series_of_the_log_gamma_function_is_near() -> None:
    x = np.geomspace(1e-3, 1e6, 1000)
    with jax.enable_x64(True):
        np.testing.assert_allclose(_log_gamma(jnp.asarray(x)), gammaln(x), atol=1e-3)


@pytest.mark.parametrize("topics", quick_ones([1, 2, 41], 1, 41))
def test_a_start_has_probabilities_that_add_up(topics: int) -> None:
    rng = np.random.default_rng(0)
    document, word = rng.integers(0, 6, 200), rng.integers(0, 11, 200)
    shape = TokenShape(7, 200, 12, topics)  # a document and a word without tokens
    found = alternating_start(
        jnp.array([0, 1], jnp.uint32), pack_tokens(jnp.asarray(word), None, jnp.asarray(document), shape), shape
    )
    assert [one.shape for one in found] == [(7, topics), (topics, 1, 12)]
    for one in found:
        assert (np.asarray(one) > 0).all()
        np.testing.assert_allclose(one.sum(-1), 1, rtol=1e-5)


def test_a_start_has_every_topic() -> None:
    """Five of five starts find all of ten topics, which samplers from random origins often do not."""
    truth = simulated_documents(200, 60, 300, 10, seed=3, concentration=0.05)
    data = documents(truth["counts"])
    document, word = (jnp.asarray(data[name].cat.codes.to_numpy()) for name in ("document", "word"))
    shape = TokenShape(200, len(word), 300, 10)
    packed_once = pack_tokens(word, None, document, shape)
    start = jax.jit(lambda key: alternating_start(key, packed_once, shape, jnp.ones((1, 300), bool)))
    for seed in range(5):
        _, topics = start(jnp.array([0, seed], jnp.uint32))
        overlap = np.sqrt(np.asarray(topics)[:, 0]) @ np.sqrt(truth["topics"].values).T
        assert overlap[linear_sum_assignment(-overlap)].min() > 0.8
