"""Words, stability and completion of topics: against sums by hand, with and without draws of topics."""

from types import SimpleNamespace
from typing import Any

import arviz_base
import numpy as np
import pytest
import xarray as xr
from scipy import stats

import bayeslab as bl
from bayeslab.models import lda, linear_regression
from bayeslab.topics import completion
from bayeslab.topics import summaries as topics
from bayeslab.topics.completion import choose_topics, document_completion
from bayeslab.topics.summaries import match_topics, top_words
from compilations import counted_compilations

Array = np.ndarray[Any, Any]
WORDS = ["of", "cell", "gene", "star", "moon", "sun"]
TOPICS = np.array(
    [[0.3, 0.4, 0.2, 0.05, 0.03, 0.02], [0.3, 0.02, 0.03, 0.35, 0.2, 0.1], [0.25, 0.05, 0.3, 0.05, 0.05, 0.3]]
)
SHARES = np.array([[0.8, 0.1, 0.1], [0.1, 0.7, 0.2], [0.2, 0.2, 0.6], [0.3, 0.6, 0.1]])
DOCUMENT = np.repeat(np.arange(4), [5, 1, 2, 8])
DIMS = {"topics": ["topic", "word"], "shares": ["document", "topic"], "document": ["token"]}


def tree(found: Array, shares: Array | None = None, words: Any = WORDS, lp: Array | None = None) -> xr.DataTree:
    """Of topics (chain, draw, topic, word) and shares (chain, draw, document, topic)."""
    groups: dict[str, Any] = {"posterior": {"topics": found} | ({} if shares is None else {"shares": shares})}
    groups["constant_data"] = {"document": DOCUMENT}
    if lp is not None:
        groups["sample_stats"] = {"lp": lp}
    coords = {"word": words, "topic": np.arange(found.shape[2])}
    result = arviz_base.from_dict(groups, dims=DIMS, coords=coords)
    result.attrs["method"] = "Gibbs"
    return result


def drawn(seed: int, chains: int = 2, draws: int = 40, switched: bool = True) -> tuple[Array, Array]:
    """Topics and shares around TOPICS and SHARES, and their labels in another order in every chain."""
    rng = np.random.default_rng(seed)
    found = np.stack([rng.dirichlet(400 * row, (chains, draws)) for row in TOPICS], 2)
    shares = np.stack([rng.dirichlet(100 * row, (chains, draws)) for row in SHARES], 2)
    for chain in range(1, chains) if switched else ():
        order = np.roll(np.arange(3), chain)
        found[chain], shares[chain] = found[chain][:, order], shares[chain][:, :, order]
    return found, shares


def averaged(given: xr.DataTree) -> xr.DataTree:
    """As fit keeps many topics: their means and standard deviations."""
    found = given["posterior"]["topics"]
    groups: dict[str, Any] = {name: group.to_dataset() for name, group in given.children.items()}
    groups["posterior"] = groups["posterior"].drop_vars(["topics", "word"])
    for name, values in {"mean": found.mean("draw"), "sd": found.std("draw")}.items():
        groups[f"posterior_{name}"] = values.to_dataset(name="topics")
    result = xr.DataTree.from_dict(groups)
    result.attrs = given.attrs
    return result


@pytest.mark.parametrize("few", [50_000, 0])
def test_top_words_are_those_of_aligned_draws(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether shares help to align topics, or are too many."""
    monkeypatch.setattr(topics, "MAX_SHARES_FOR_ALIGNMENT", few)
    plain, shares = drawn(0, switched=False)
    found = top_words(tree(*drawn(0)), 3)
    draws = plain.reshape(-1, *TOPICS.shape)
    best = np.argsort(-draws.mean(0), axis=1)[:, :3]
    assert found["word"].values.tolist() == [[WORDS[w] for w in row] for row in best]
    for name, expected in {
        "mean": draws.mean(0),
        "sd": draws.std(0),
        "low": np.quantile(draws, 0.05, axis=0),
        "high": np.quantile(draws, 0.95, axis=0),
        "in_top": (np.argsort(np.argsort(-draws, axis=2), axis=2) < 3).mean(0),
    }.items():
        np.testing.assert_allclose(found[name], np.take_along_axis(expected, best, 1), rtol=1e-12, err_msg=name)
    tokens = np.bincount(DOCUMENT)
    np.testing.assert_allclose(found["share"], tokens @ shares.mean((0, 1)) / tokens.sum())
    assert found["share"].attrs == {"of": "tokens"}
    assert (found["rank"].values.tolist(), found["topic"].values.tolist()) == ([1, 2, 3], [0, 1, 2])


def test_topics_have_the_order_of_align() -> None:
    rng = np.random.default_rng(1)
    found, shares = (rng.permuted(values, axis=axis) for values, axis in zip(drawn(1), (1, 1), strict=True))
    aligned = bl.align(tree(found[:, :, ::-1], shares[..., ::-1]), lda.SITE_DIMS)
    first = aligned["posterior"]["topics"].mean(("chain", "draw"))
    again = top_words(aligned, 6)
    for place, row in enumerate(first.values):
        np.testing.assert_allclose(again["mean"][place], np.sort(row)[::-1])
    xr.testing.assert_allclose(again, top_words(tree(found[:, :, ::-1], shares[..., ::-1]), 6))


@pytest.mark.parametrize("weight", [0.0, 0.4, 1.0])
def test_relevance_prefers_words_of_one_topic(weight: float) -> None:
    given = tree(*drawn(2))
    found = top_words(given, 6, weight=weight)
    plain, shares = drawn(2, switched=False)
    mean, tokens = plain.mean((0, 1)), np.bincount(DOCUMENT)
    common = tokens @ shares.mean((0, 1)) / tokens.sum() @ mean
    relevance = weight * np.log(mean) + (1 - weight) * np.log(mean / common)
    assert found["word"].values.tolist() == [[WORDS[w] for w in row] for row in np.argsort(-relevance, axis=1)]
    assert (found["in_top"] == 1).all()
    assert found["word"].values[1, 0] == "star"
    assert (found["word"].values[0, 1] == "of") == (weight == 1)


def test_of_means_the_interval_is_that_of_a_beta_distribution() -> None:
    given = tree(*drawn(3))
    whole, found = top_words(given, 4), top_words(averaged(given), 4)
    for name in ("word", "mean", "sd", "share"):
        xr.testing.assert_allclose(found[name], whole[name])
    mean, variance = found["mean"].values, found["sd"].values ** 2
    size = mean * (1 - mean) / variance - 1
    for name, quantile in {"low": 0.05, "high": 0.95}.items():
        np.testing.assert_allclose(found[name], stats.beta.ppf(quantile, mean * size, (1 - mean) * size))
        np.testing.assert_allclose(found[name], whole[name], rtol=0.15, atol=0.01)
        assert "Beta" in found[name].attrs["interval"]
    assert np.isnan(found["in_top"]).all()
    assert "not kept" in found["in_top"].attrs["reason"]


def test_a_point_has_no_interval() -> None:
    given = tree(TOPICS[None, None], SHARES[None, None])
    for point in (given, averaged(given)):
        found = top_words(point, 2)
        assert found["word"].values.tolist() == [["cell", "of"], ["star", "of"], ["gene", "sun"]]
        for name in ("low", "high"):
            np.testing.assert_allclose(found[name], found["mean"])
        assert (found["sd"] == 0).all()


def test_shares_may_be_unknown() -> None:
    found = top_words(tree(TOPICS[None, None]), 1, weight=0.0)
    assert found["word"].values[:, 0].tolist() == ["cell", "star", "sun"]
    assert np.isnan(found["share"]).all()
    assert "no site 'shares'" in found["share"].attrs["reason"]
    without = tree(TOPICS[None, None], SHARES[None, None])
    del without["constant_data"]
    found = top_words(without, 1)["share"]
    np.testing.assert_allclose(found, SHARES.mean(0))
    assert found.attrs == {"of": "documents"}


@pytest.mark.parametrize("kept", [True, False])
def test_permuted_copies_are_stable(kept: bool) -> None:
    given = tree(*drawn(4, chains=3))
    found = match_topics(given if kept else averaged(given), given)
    assert found["similarity"].dims == found["partner"].dims == ("run", "topic")
    assert (found["similarity"] > 0.95).all()
    assert (found["stability"] == 1).all()
    assert found["stable"] == 1
    assert (found["tree"].values.tolist(), found["chain"].values.tolist()) == ([0, 0, 0, 1, 1, 1], [0, 1, 2] * 2)
    for run, chain in enumerate(found["chain"].values):
        np.testing.assert_array_equal(np.roll(np.arange(3), chain)[found["partner"][run]], [0, 1, 2])


def test_switching_within_a_chain_is_undone() -> None:
    values, shares = drawn(5, chains=1)
    values[:, 1::2], shares[:, 1::2] = values[:, 1::2, ::-1], shares[:, 1::2, :, ::-1]
    found = match_topics(tree(values, shares), tree(TOPICS[None, None]))
    assert (found["similarity"] > 0.95).all()


def test_similarities_are_those_of_hellinger() -> None:
    first = np.array([[0.5, 0.5, 0.0], [0.1, 0.0, 0.9]])
    second = np.array([[0.0, 0.2, 0.8], [0.9, 0.1, 0.0]])
    found = match_topics(tree(first[None, None], words=[0, 1, 2]), tree(second[None, None], words=[0, 1, 2]))
    np.testing.assert_array_equal(found["partner"], [[0, 1], [1, 0]])
    distances = [np.sqrt(((np.sqrt(a) - np.sqrt(b)) ** 2).sum() / 2) for a, b in zip(first, second[::-1], strict=True)]
    np.testing.assert_allclose(found["similarity"], [[1, 1], 1 - np.array(distances)], atol=1e-7)
    limit = found["similarity"].values[1].mean()
    strict = match_topics(
        tree(first[None, None], words=[0, 1, 2]), tree(second[None, None], words=[0, 1, 2]), minimum=limit
    )
    assert sorted(strict["stability"].values) == [0, 1]
    assert strict["stable"] == 0.5


def test_unrelated_topics_have_no_partner() -> None:
    """Also where half of all tokens are of words that all topics share."""
    rng = np.random.default_rng(6)
    runs = np.concatenate([np.full((2, 1, 5, 10), 0.05), rng.dirichlet(np.full(200, 0.1), (2, 1, 5)) / 2], axis=3)
    found = match_topics(tree(runs.repeat(2, axis=1), words=np.arange(210)))
    assert found["similarity"][1].max() < 0.7
    assert (found["stability"] == 0).all()
    assert found["stable"] == 0


def test_runs_may_have_more_topics() -> None:
    found = match_topics(tree(TOPICS[None, None]), tree(TOPICS[None, None, 1:]), tree(TOPICS[None, None, ::-1]))
    np.testing.assert_array_equal(found["partner"], [[0, 1, 2], [-1, 0, 1], [2, 1, 0]])
    assert np.isnan(found["similarity"][1, 0])
    np.testing.assert_array_equal(found["stability"], [0.5, 1, 1])
    np.testing.assert_allclose(found["stable"], (2 * 2 + 2 * 3 + 2 * 2) / (5 + 6 + 5))


def test_the_reference_has_the_highest_log_joint_that_compares() -> None:
    def one(lp: float, number: int = 3, method: str = "Gibbs") -> xr.DataTree:
        result = tree(TOPICS[None, None, :number], lp=np.full((1, 1), lp))
        result.attrs["method"] = method
        return result

    assert match_topics(one(-9), one(-4), one(-7)).attrs["reference"] == 1
    assert match_topics(one(-9), one(-4, number=2), one(-3, method="MAP"), one(-8)).attrs["reference"] == 3
    assert match_topics(tree(TOPICS[None, None]), one(-4)).attrs["reference"] == 1
    assert match_topics(*[tree(TOPICS[None, None])] * 2).attrs["reference"] == 0
    assert match_topics(one(-9, number=2), one(-4)).sizes["topic"] == 2


@pytest.fixture(scope="module")
def completed() -> SimpleNamespace:
    """A completion, and the fit behind it."""
    trees: list[xr.DataTree] = []

    def recorded(*arguments: Any, **named: Any) -> xr.DataTree:
        trees.append(bl.fit(*arguments, **named))
        return trees[-1]

    data, method = lda.example(), bl.Gibbs(num_warmup=20, num_samples=50, num_chains=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completion, "fit", recorded)
        scores = document_completion(0, lda.model, data, method, share=0.4)
    return SimpleNamespace(data=data, method=method, scores=scores, tree=trees[0])


def test_completion_is_the_mean_over_draws(completed: SimpleNamespace) -> None:
    hidden = np.isnan(completed.tree["observed_data"]["word"].values)
    document, word = completed.data["document"], completed.data["word"]
    assert np.bincount(document[hidden], minlength=3).tolist() == [1, 2, 1]
    draws = completed.tree["posterior"]
    each = np.einsum("cdik,cdkw->iw", draws["shares"].values, draws["topics"].values) / 100
    density = np.bincount(document[hidden], np.log(each[document[hidden], word[hidden]]), 3)
    found = completed.scores
    np.testing.assert_allclose(found["log_density"], density)
    assert found["tokens"].values.tolist() == [1, 2, 1]
    np.testing.assert_allclose(found["log_score"], density.sum())
    np.testing.assert_allclose(found["log_score_se"], np.sqrt(3) * density.std(ddof=1))
    np.testing.assert_allclose(found["perplexity"], np.exp(-density.sum() / 4))
    residual = density - density.sum() / 4 * np.array([1, 2, 1])
    expected = found["perplexity"] * np.sqrt(3) * residual.std(ddof=1) / 4
    np.testing.assert_allclose(found["perplexity_se"], expected)
    assert found.attrs["mean"] == "over draws"


def test_other_hidden_tokens_compile_nothing(completed: SimpleNamespace) -> None:
    """After one call, since other tests may have filled the cache of executables in between."""
    document_completion(4, lda.model, completed.data, completed.method, share=0.4)
    with counted_compilations() as seen:
        again = document_completion(5, lda.model, completed.data, completed.method, share=0.4)
    assert seen == []
    assert again["log_score"] != completed.scores["log_score"]


class Fitted:
    """In place of fit: topics and shares that depend on the number of topics only; keeps the words that it is given."""

    def __init__(self, keeps: bool = True, sharp: bool = False) -> None:
        self.words: list[Array] = []
        self.trees: list[xr.DataTree] = []
        self.keeps, self.sharp = keeps, sharp

    def __call__(self, key: Any, model: Any, data: Any, method: Any, progress: bool) -> xr.DataTree:
        rng = np.random.default_rng(data["num_topics"])
        found = rng.dirichlet(np.ones(6), (2, 5, data["num_topics"]))
        if self.sharp:
            found = np.where(np.arange(6) == 0, 1.0, 0.0) * np.ones_like(found)
        result = tree(found, rng.dirichlet(np.ones(data["num_topics"]), (2, 5, 4)))
        self.words.append(data["word"])
        self.trees.append(result)
        return result if self.keeps else averaged(result)


def data(**more: Any) -> dict[str, Any]:
    word = np.random.default_rng(9).integers(0, 6, len(DOCUMENT))
    return {"document": DOCUMENT, "num_documents": 4, "num_words": 6, "num_topics": 3, "word": word} | more


@pytest.mark.parametrize(
    ("share", "numbers"), [(0.2, [1, 0, 1, 2]), (0.01, [1, 0, 1, 1]), (0.5, [2, 0, 1, 4]), (0.99, [4, 0, 1, 7])]
)
def test_a_share_of_every_document_is_hidden(share: float, numbers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one token of two, never all."""
    monkeypatch.setattr(completion, "fit", fitted := Fitted())
    found = document_completion(1, lda.model, data(), bl.MAP(), share)
    assert found["tokens"].values.tolist() == numbers
    assert np.bincount(DOCUMENT[np.isnan(fitted.words[0])], minlength=4).tolist() == numbers
    assert found["log_density"][1] == 0
    some = found["log_density"].values[[0, 2, 3]]
    np.testing.assert_allclose(found["log_score_se"], np.sqrt(3) * some.std(ddof=1))


def test_missing_tokens_stay_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "fit", fitted := Fitted())
    word = data()["word"].astype(float)
    word[[8, 9, 10]] = np.nan
    found = document_completion(1, lda.model, data(word=word), bl.MAP(), 0.5)
    assert found["tokens"].values.tolist() == [2, 0, 1, 2]
    assert np.isnan(fitted.words[0])[[8, 9, 10]].all()
    assert np.isnan(fitted.words[0]).sum() == 3 + 5


def test_without_draws_of_topics_means_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "fit", fitted := Fitted(keeps=False))
    found = document_completion(1, lda.model, data(), bl.MAP())
    hidden, draws = np.isnan(fitted.words[0]), fitted.trees[0]["posterior"]
    shares, means = (draws[name].mean("draw").values for name in ("shares", "topics"))
    each = (shares @ means).mean(0)[DOCUMENT[hidden], data()["word"][hidden]]
    np.testing.assert_allclose(found["log_density"], np.bincount(DOCUMENT[hidden], np.log(each), 4))
    assert "mean topics" in found.attrs["mean"]


def test_impossible_words_have_no_perplexity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "fit", Fitted(sharp=True))
    found = choose_topics(1, lda.model, data(), [2, 3], bl.MAP())
    assert (found["perplexity"] == np.inf).all()
    assert np.isnan(found["perplexity_se"]).all()


def test_numbers_of_topics_are_compared_on_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "fit", fitted := Fitted())
    found = choose_topics(2, lda.model, data(), range(1, 5), bl.MAP(), 0.3)
    assert found["num_topics"].values.tolist() == [1, 2, 3, 4]
    for words in fitted.words:
        np.testing.assert_array_equal(words, fitted.words[0])
    best = int(found["log_score"].values.argmax())
    assert found.attrs["best"] == best + 1
    gaps = (found["log_density"] - found["log_density"][best]).values[:, [0, 2, 3]]
    np.testing.assert_allclose(found["difference"], gaps.sum(1))
    np.testing.assert_allclose(found["difference_se"], np.sqrt(3) * gaps.std(1, ddof=1))
    np.testing.assert_allclose(found["difference"], found["log_score"] - found["log_score"].max(), atol=1e-12)
    assert found["tokens"].dims == ("document",)


GIVEN = tree(TOPICS[None, None], SHARES[None, None])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: top_words(GIVEN, site="phi"), "no site 'phi', only ['shares', 'topics']"),
        (lambda: top_words(GIVEN, 0), "number is 0; expected 1 to 6"),
        (lambda: top_words(GIVEN, 7), "number is 7; expected 1 to 6, the number of words"),
        (lambda: top_words(GIVEN, 2, weight=1.5), "weight is 1.5; expected 0 to 1"),
        (lambda: top_words(tree(TOPICS[None, None, :, :, None])), "dimensions ['topic', 'word', 'topics_dim_0']"),
        (lambda: match_topics(GIVEN), "there is only one"),
        (lambda: match_topics(GIVEN, GIVEN, site="phi"), "no site 'phi'"),
        (lambda: match_topics(GIVEN, GIVEN, minimum=0.0), "minimum is 0.0"),
        (
            lambda: match_topics(GIVEN, tree(TOPICS[None, None], words=[*WORDS[:4], "dog", "cat"])),
            "word 4 is 'moon' in tree 0, but 'dog' in tree 1",
        ),
        (
            lambda: match_topics(GIVEN, tree(TOPICS[None, None, :, :5], words=WORDS[:5])),
            "word 5 is 'sun' in tree 0, but 'none' in tree 1",
        ),
        (lambda: document_completion(0, lda.model, data(), bl.MAP(), 1.0), "share is 1.0; expected"),
        (lambda: document_completion(0, lda.model, data(), bl.MAP(), 0.0), "share is 0.0; expected"),
        (
            lambda: document_completion(0, lda.model, data(), bl.MAP(), site="z"),
            "no value to site 'z'; the observed sites are ['word']",
        ),
        (
            lambda: document_completion(0, lda.model, data(document=np.arange(16) % 15, num_documents=15), bl.MAP()),
            "documents with two tokens or more is 1; expected at least 2",
        ),
        (
            lambda: document_completion(0, linear_regression.model, linear_regression.example(), bl.MAP(), site="y"),
            "no argument 'document'",
        ),
        (
            lambda: document_completion(0, lda.model, data(topics=TOPICS / TOPICS.sum(1, keepdims=True)), bl.MAP()),
            "no latent site 'topics', only ['shares', 'z']",
        ),
        (lambda: choose_topics(0, lda.model, data(), [], bl.MAP()), "numbers of topics to choose from, got none"),
        (
            lambda: choose_topics(0, linear_regression.model, {}, [1], bl.MAP()),
            "'num_topics' is no argument of the program; these are ['x'",
        ),
        (lambda: choose_topics(0, lda.model, data(), [2, 9], bl.MAP()), "num_topics is 9, more than the 6 words"),
        (lambda: choose_topics(0, lda.model, data(), [2], bl.MAP(), share=-1), "share is -1"),
    ],
)
def test_wrong_calls(call: Any, words: str) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value), error.value
