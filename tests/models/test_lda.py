"""Topics: tokens packed, counted and drawn, the posterior beside enumeration."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from typing import Any

import arviz_stats as azs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy.stats import chi2, kstest

import bayeslab as bl
from bayeslab.datasets import documents, genotypes, simulated_documents, simulated_genotypes
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape, expected_counts, pack
from bayeslab.mixed_membership.recognition import find_membership, individuals_of_tokens
from bayeslab.mixed_membership.tokens.topic_counts import (
    TokenShape,
    draw_token_counts,
    expected_token_counts,
    pack_tokens,
)
from bayeslab.models import lda, lda_asymmetric, structure_admixture
from bayeslab.programs.program import precision_scope
from memberships import log_dirichlet_multinomial

Array = np.ndarray[Any, Any]
EXAMPLE = lda.example()
SHAPES = [
    TokenShape(individuals=3, tokens=9, alleles=4, populations=2),
    TokenShape(individuals=40, tokens=3000, alleles=30, populations=7),
    TokenShape(individuals=11, tokens=70_000, alleles=8, populations=3),
    TokenShape(individuals=20, tokens=2000, alleles=50, populations=45),
]


def simulated(shape: TokenShape) -> tuple[Array, Array, Array, Array, Array]:
    """Tokens in any order, some of them missing."""
    rng = np.random.default_rng(0)
    document, word = (rng.integers(0, size, shape.tokens) for size in (shape.individuals, shape.alleles))
    q = rng.dirichlet(np.ones(shape.populations), shape.individuals)
    p = rng.dirichlet(np.ones(shape.alleles), shape.populations)
    return document, word, rng.random(shape.tokens) > 0.1, q, p


def counted(values: Array, of: Array, size: int) -> Array:
    """Sums (population, ...) of values (token, population)."""
    return np.stack([np.bincount(of, column, size) for column in values.T])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_counts_are_expected_and_drawn(shape: TokenShape) -> None:
    document, word, present, q, p = simulated(shape)
    each = q[document] * p[:, word].T
    r = np.where(present[:, None], each / each.sum(1, keepdims=True), 0.0)
    with precision_scope():
        data = pack_tokens(jnp.asarray(word), jnp.asarray(present), jnp.asarray(document), shape)
        expected, log_likelihood = expected_token_counts(q, p[:, None], data, shape)
        drawn = draw_token_counts(jnp.array([1, 2], jnp.uint32), q, p[:, None], data, shape)
    np.testing.assert_allclose(log_likelihood, np.log(each.sum(1)[present]).sum(), atol=1e-6 * present.sum() + 1e-4)
    for values, found in ((r, expected), (r * (1 - r), None)):
        of_documents, of_words = counted(values, document, shape.individuals).T, counted(values, word, shape.alleles)
        if found is not None:
            means = of_documents, of_words
            np.testing.assert_allclose(found.individuals, of_documents, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(found.alleles[:, 0], of_words, rtol=1e-4, atol=1e-4)
            continue
        for mean, variance, one in zip(
            means, (of_documents, of_words), (drawn.individuals, drawn.alleles[:, 0]), strict=True
        ):
            assert np.asarray(one).sum() == present.sum()
            large = variance > 5
            if large.any():
                assert np.abs((np.asarray(one) - mean)[large] / np.sqrt(variance[large])).max() < 5.5


@pytest.mark.parametrize("topics", [4, 60])
def test_a_million_origins_have_their_probabilities(topics: int) -> None:
    """Chi-square of origins by document and word, against q_ik p_kj over its sum; few topics, and blocks of many."""
    shape = TokenShape(individuals=2, tokens=1_000_000, alleles=3, populations=topics)
    rng = np.random.default_rng(topics)
    q, p = rng.dirichlet(np.ones(topics), 2), rng.dirichlet(np.ones(3), topics)
    document, word = (rng.integers(0, size, shape.tokens) for size in (2, 3))
    data = pack_tokens(jnp.asarray(word), None, jnp.asarray(document), shape)
    drawn = draw_token_counts(jnp.array([5, 6], jnp.uint32), q, p[:, None], data, shape)
    each = q[:, None] * p.T
    each /= each.sum(-1, keepdims=True)  # (document, word, topic)
    number = np.zeros((2, 3))
    np.add.at(number, (document, word), 1)
    for counts, expected in (
        (drawn.individuals, (each * number[..., None]).sum(1)),
        (drawn.alleles[:, 0].T, (each * number[..., None]).sum(0)),
    ):
        keep = expected > 5
        statistic = (np.square(counts - expected) / np.maximum(expected, 1e-9))[keep].sum()
        assert 1e-4 < chi2.sf(statistic, keep.sum() - len(expected)) < 1 - 1e-4


def test_documents_are_individuals_with_one_locus() -> None:
    """The same counts as genotypes: a document is an individual with a copy for every token, and missing ones."""
    shape = SHAPES[1]
    document, word, _, q, p = simulated(shape)
    lengths = np.bincount(document, minlength=shape.individuals)
    y = np.full((shape.individuals, 1, lengths.max()), -1)
    for individual in range(shape.individuals):
        y[individual, 0, : lengths[individual]] = word[document == individual]
    genotypes = GenotypeShape(shape.individuals, 1, int(lengths.max()), shape.alleles, shape.populations)
    with precision_scope():
        tokens = pack_tokens(jnp.asarray(word), None, jnp.asarray(document), shape)
        copies = pack(jnp.asarray(np.maximum(y, 0)), jnp.asarray(y >= 0), genotypes)
        mine, bound = expected_token_counts(q, p[:, None], tokens, shape)
        other, same_bound = expected_counts(q, p[:, None], copies, genotypes)
    np.testing.assert_allclose(bound, same_bound, rtol=1e-6)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4), mine, other)


def shared_topics(data: dict[str, Any]) -> Array:
    """E[sum_k q_ik q_jk] for pairs of documents, by enumeration of all origins."""
    states, document, word = data["num_topics"], data["document"], data["word"]
    origins = np.array(list(product(range(states), repeat=len(word))), np.int8)
    is_origin = (origins[:, :, None] == np.arange(states)).astype(np.int8)
    mine = np.stack([is_origin[:, document == one].sum(1) for one in range(data["num_documents"])], 1)
    shown = np.stack([is_origin[:, word == one].sum(1) for one in range(data["num_words"])], -1)
    log_joint = log_dirichlet_multinomial(mine, data["alpha"]).sum(1)
    log_joint += log_dirichlet_multinomial(shown, data["concentration"]).sum(1)
    weight = np.exp(log_joint - log_joint.max())
    mean = (mine + data["alpha"]) / (mine + data["alpha"]).sum(-1, keepdims=True)
    return np.einsum("a,aik,ajk->ij", weight / weight.sum(), mean, mean)[np.triu_indices(data["num_documents"], 1)]


@pytest.mark.parametrize("counts", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gibbs_is_the_posterior(counts: bool) -> None:
    """Of the automatic sampler, and of the one that counts."""
    method = (
        bl.mixed_membership.Gibbs(num_samples=20_000, num_chains=2)
        if counts
        else bl.Gibbs(num_samples=5000, num_chains=2)
    )
    tree = bl.fit(1, lda.model, EXAMPLE, method, progress=False)
    assert ("z" in tree["posterior"]) != counts
    q = tree["posterior"]["shares"].values
    rows, columns = np.triu_indices(q.shape[2], 1)
    found = xr.Dataset({"shared": (("chain", "draw", "pair"), (q[:, :, rows] * q[:, :, columns]).sum(-1))})
    gap = found["shared"].mean(("chain", "draw")).values - shared_topics(EXAMPLE)
    assert np.abs(gap / azs.mcse(found, method="mean")["shared"].values).max() < 4.5


@pytest.mark.slow
def test_structure_written_as_documents_has_the_same_posterior() -> None:
    """Mean field of both programs reaches the same bound, up to the origins that have one order here."""
    lengths = np.bincount(EXAMPLE["document"])
    y = np.ma.masked_all((3, 1, lengths.max()), int)
    for document, length in enumerate(lengths):
        y[document, 0, :length] = EXAMPLE["word"][EXAMPLE["document"] == document]
    sizes = {"num_individuals": 3, "num_alleles": np.array([3]), "num_populations": 2, "ploidy": int(lengths.max())}
    same = {name: EXAMPLE[name] for name in ("alpha", "concentration")}
    method = bl.mixed_membership.MeanField(num_starts=5, tolerance=1e-9)
    bounds = [
        bl.fit(2, model, data, method, progress=False).attrs["elbo"]
        for model, data in ((lda.model, EXAMPLE), (structure_admixture.model, {**sizes, **same, "y": y}))
    ]
    np.testing.assert_allclose(bounds[0], bounds[1], atol=1e-3)


def test_the_document_of_a_token_is_found() -> None:
    rng = np.random.default_rng(1)
    document = rng.integers(0, 1000, 5000)
    data = {"document": document, "num_documents": 1000, "num_words": 4, "num_topics": 3}
    with precision_scope():
        bound = bl.bind(lda.model, data | {"word": rng.integers(0, 4, 5000)})
        found = find_membership(bound)
        np.testing.assert_array_equal(individuals_of_tokens(found, bound), document)
    assert found[:4] == ("shares", "topics", "z", "word")


def test_what_priors_depend_on_may_be_data() -> None:
    with precision_scope():
        found = find_membership(
            bl.bind(lda_asymmetric.model, lda_asymmetric.example() | {"alpha": np.array([0.2, 0.3])})
        )
    assert found.others == ()


def test_a_maximum_in_the_softmax_basis() -> None:
    """Law: the likelihood times all probabilities to the power of their concentrations is flat in their logarithms."""
    data = documents(simulated_documents(20, 30, 15, 3, seed=4)["counts"]) | {"num_topics": 3}
    document, word = (data[name].cat.codes.to_numpy() for name in ("document", "word"))
    given = {"alpha": 0.3, "concentration": 0.6}
    method = bl.mixed_membership.MAP(num_steps=5000, basis="softmax")
    tree = bl.fit(0, lda.model, data | given, method, progress=False)
    assert tree.attrs["converged"]

    def density(shares: Array, topics: Array) -> Array:
        q, p = jax.nn.log_softmax(shares), jax.nn.log_softmax(topics)
        likelihood = jax.nn.logsumexp(q[document] + p[:, word].T, axis=1).sum()
        return likelihood + 0.3 * q.sum() + 0.6 * p.sum()

    at = [jnp.log(tree["posterior"][name].values[0, 0]) for name in ("shares", "topics")]
    assert max(float(jnp.abs(slope).max()) for slope in jax.grad(density, (0, 1))(*at)) < 0.05
    with pytest.raises(ValueError, match=r"basis of MAP must be one of \['sites', 'softmax'\], not 'logits'"):
        bl.mixed_membership.MAP(basis="logits")


@pytest.mark.slow
def test_concentrations_are_learned() -> None:
    truth = simulated_documents(150, 60, 100, 3, seed=1, alpha=0.3, concentration=0.2)
    data = documents(truth["counts"]) | {"num_topics": 3}
    method = bl.mixed_membership.Gibbs(300, 500, 1)
    free = {"alpha": None, "concentration": None}
    tree = bl.fit(0, lda.model, data | free, method, progress=False)
    for site, value in {"alpha": 0.3, "concentration": 0.2}.items():
        draws = tree["posterior"][site]
        assert abs(draws.mean() - value) < 4 * draws.std()
        assert 0.02 < draws.std() / value < 0.3


@pytest.mark.slow
def test_topics_have_concentrations_of_their_own() -> None:
    truth = simulated_documents(150, 60, 100, 3, seed=1, alpha=0.3, concentration=0.2)
    data = documents(truth["counts"]) | {"num_topics": 3}
    tree = bl.fit(0, lda_asymmetric.model, data, bl.mixed_membership.Gibbs(300, 500, 1), progress=False)
    own = tree["posterior"]["alpha"]
    assert (np.abs(own.mean(("chain", "draw")) - 0.3) < 5 * own.std(("chain", "draw"))).all()


@pytest.mark.slow
def test_gibbs_is_calibrated_whatever_topics_are_called() -> None:
    """Topics that documents share, and probabilities of words in them, with both concentrations drawn."""
    data = EXAMPLE | {"alpha": None, "concentration": None}
    quantities = {
        "shared": lambda values: (values["shares"] @ values["shares"].T)[np.triu_indices(3, 1)],
        "words": lambda values: values["shares"] @ values["topics"],
    }
    method = bl.mixed_membership.Gibbs(100, 30, 1, thinning=30)
    tree = bl.sbc(3, lda.model, data, method, 1000, quantities=quantities, progress=False)
    for site in ("alpha", "concentration", "shared", "words"):
        ranks = tree["prior_sbc"][site].values[0].reshape(1000, -1)
        assert min(kstest(column, "uniform").pvalue for column in ranks.T) > 1e-3 / ranks.shape[1]


def test_new_documents_have_shares_of_known_topics() -> None:
    """Against the sum over all origins of two tokens."""
    topics = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    data = {"document": np.array([0, 0]), "num_documents": 1, "num_words": 3, "num_topics": 2, "alpha": 0.5}
    data |= {"topics": topics, "word": np.array([0, 2])}
    tree = bl.fit(4, lda.model, data, bl.mixed_membership.Gibbs(num_samples=20_000, num_chains=2), progress=False)
    weight, mean = 0.0, 0.0
    for first, second in product(range(2), repeat=2):
        number = np.bincount([first, second], minlength=2)
        log_joint = log_dirichlet_multinomial(number, 0.5) + np.log(topics[first, 0] * topics[second, 2])
        weight, mean = weight + np.exp(log_joint), mean + np.exp(log_joint) * (number[0] + 0.5) / 3
    found = tree["posterior"].to_dataset()[["shares"]].isel(topic=0)
    error = azs.mcse(found, method="mean")["shares"].values
    assert np.abs(found["shares"].mean(("chain", "draw")).values - mean / weight) < 4.5 * error


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_batches_come_close_to_all_data(tokens: bool) -> None:
    """The bound is that of all data, so below its maximum; 31 individuals are no multiple of four."""
    if tokens:
        data = documents(simulated_documents(31, 60, 40, 2, seed=2)["counts"]) | {"num_topics": 2}
    else:
        data = genotypes(simulated_genotypes(31, 60, 2, seed=3, fst=0.2)["y"]) | {"num_populations": 2}
    lecture, site = (lda, "shares") if tokens else (structure_admixture, "ancestry")
    method = bl.mixed_membership.MeanField(num_starts=1, num_samples=100)
    whole = bl.fit(1, lecture.model, data, method, progress=False)
    tree = bl.fit(1, lecture.model, data, replace(method, batches=4, num_steps=400), progress=False)
    assert -30 < tree.attrs["elbo"] - whole.attrs["elbo"] < 0.01
    assert tree["posterior"][site].shape == (1, 100, 31, 2)
    means = [np.sort(each["posterior"][site].mean(("chain", "draw")), axis=-1) for each in (tree, whole)]
    assert np.abs(means[0] - means[1]).max() < 0.1


def test_more_batches_than_documents_are_refused() -> None:
    with pytest.raises(ValueError, match="batches is 4, more than the 3 individuals"):
        bl.fit(0, lda.model, EXAMPLE, bl.mixed_membership.MeanField(batches=4), progress=False)


EIGHT_DEVICES = """
import jax
import numpy as np
import bayeslab as bl
from bayeslab.mixed_membership.recognition import find_membership, spread_over_devices
from bayeslab.mixed_membership.packed_data import pack_data
from bayeslab.mixed_membership.layouts import layout
from bayeslab.models import lda

assert len(jax.devices()) == 8
jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
bound = bl.bind(lda.model, lda.data())
q, p = rng.dirichlet(np.ones(2), 30), rng.dirichlet(np.ones(20), (2, 1))
key, drawn, expected = np.array([1, 2], np.uint32), [], []
one = find_membership(bound)
for found in (one, spread_over_devices(one, bound, jax.make_mesh((8,), ("individual",)))):
    data = jax.jit(pack_data, static_argnums=0)(found, bound).packed
    passes = layout(found.shape)
    drawn.append(jax.jit(passes.drawn, static_argnums=4)(key, q, p, data, found.shape))
    expected.append(jax.jit(passes.expected, static_argnums=3)(q, p, data, found.shape))
jax.tree.map(np.testing.assert_array_equal, *drawn)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *expected)
"""

FIT_ON_EIGHT_DEVICES = """
import jax
import numpy as np
import bayeslab as bl
from bayeslab.models import lda

mesh = jax.make_mesh((8,), ("individual",))
tree = bl.fit(0, lda.model, lda.data(), bl.mixed_membership.Gibbs(100, 100, 1, mesh=mesh), progress=False)
alone = bl.fit(0, lda.model, lda.data(), bl.mixed_membership.Gibbs(100, 100, 1), progress=False)
one, two = (np.sort(each["posterior"]["shares"].mean(("chain", "draw")), axis=-1) for each in (tree, alone))
assert np.abs(one - two).mean() < 0.05
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [EIGHT_DEVICES, pytest.param(FIT_ON_EIGHT_DEVICES, marks=pytest.mark.slow)])
def test_counts_are_the_same_on_eight_devices(script: str) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | flags, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "topics": (
        {"num_topics": 4},
        "num_topics is 4, more than the 3 words",
    ),
    "document": (
        {"document": np.array([0, 0, 0, 1, 1, 1, 1, 2, 3])},
        r"argument 'document' at position \(8,\) is 3, but it is an index into 3 elements",
    ),
    "document below zero": (
        {"document": np.array([-4, 0, 0, 1, 1, 1, 1, 2, 2])},
        r"argument 'document' at position \(0,\) is -4, but it is an index into 3 elements",
    ),
    "word": (
        {"word": np.array([0, 0, 1, 2, 2, 2, 1, 0, 3])},
        r"entry 'word' at position \(8,\) is 3, which is outside the support",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_tokens_are_refused(case: str) -> None:
    change, words = REFUSED[case]
    with pytest.raises(ValueError, match=words):
        bl.bind(lda.model, EXAMPLE | change)


def test_one_topic() -> None:
    tree = bl.fit(0, lda.model, EXAMPLE | {"num_topics": 1}, bl.mixed_membership.Gibbs(5, 5, 1), progress=False)
    np.testing.assert_array_equal(tree["posterior"]["shares"], 1.0)
