"""Topics of documents: their words, which of them other runs find as well, and how well documents are completed.

A result has topics (topic, word) and shares (document, topic), as those of the program `lda`. Of many topics and words
`fit` keeps means and standard deviations in place of draws; every chain then counts as one draw, that of its means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bayeslab.diagnostics.align import align
from bayeslab.results.parameters import SAMPLE_DIMS

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree

INTERVAL_PROBABILITIES = (0.05, 0.95)
"""The probabilities of the ends of an interval."""
MAX_SHARES_FOR_ALIGNMENT = 50_000
"""The largest number of shares in a draw that are used to align topics; with more, words alone tell topics apart."""


class TopicRun(NamedTuple):
    """One chain of a tree: mean topics (topic, word), and the mean lp, NaN where none is recorded."""

    means: DataArray
    lp: float
    tree: int
    method: str


def top_words(tree: DataTree, number: int = 10, site: str = "topics", weight: float = 1.0) -> Dataset:
    """The most probable words of every topic, with 90 % intervals, in the order of topics that `align` gives.

    weight: below 1 it puts words first that other topics seldom have, by the relevance of C. Sievert and K. Shirley
    (2014), Proceedings of the Workshop on Interactive Language Learning, Visualization, and Interfaces, page 63:
        weight log p(word | topic) + (1 - weight) log(p(word | topic) / p(word))
    Returns a Dataset with (topic, rank): word, the mean, sd, low and high of p(word | topic), and in_top, the share of
    draws in which the word is among the first `number` of its topic. share (topic,): of all tokens, on average; where
    the tree does not say which documents tokens are of, the mean share of documents.
    Where draws of topics are not kept, the interval is that of a Beta distribution with this mean and sd, and in_top is
    NaN, with the reason in its attrs.
    Raises ValueError for a tree without the site, and a number or a weight that cannot be.
    """
    from xarray import Dataset

    aligned = aligned_topics(tree, site)
    if not 1 <= number <= aligned.sizes["word"]:
        raise ValueError(f"number is {number}; expected 1 to {aligned.sizes['word']}, the number of words")
    if not 0 <= weight <= 1:
        raise ValueError(f"weight is {weight}; expected 0 to 1")
    mean, share = aligned["topics"].mean(SAMPLE_DIMS).values, _topic_shares(aligned, tree)
    common = np.nan_to_num(share[0], nan=1 / len(mean)) @ mean
    lift = np.divide(1.0, common, out=np.zeros_like(common), where=common > 0) ** (1 - weight)
    words = np.argsort(-mean * lift, axis=1, kind="stable")[:, :number]
    columns = {
        "word": (aligned["word"].values[words],),
        **_moments(aligned, words),
        "in_top": _in_top(aligned, words, lift),
    }
    variables = {name: (("topic", "rank"), *column) for name, column in columns.items()}
    coords = {"topic": aligned["topic"].values, "rank": np.arange(1, number + 1)}
    return Dataset(variables | {"share": ("topic", *share)}, coords, {"weight": weight})


def match_topics(tree: DataTree, *others: DataTree, minimum: float = 0.7, site: str = "topics") -> Dataset:
    """Which topics other runs find as well. Every chain of every tree is a run, with the means of its aligned draws.

    The topics of two runs are paired so that the sum of their similarities is largest. That is 1 - the Hellinger
    distance of the words: the words that all topics of a language share make unlike topics alike by their cosine, 0.8
    and more, and count less here. A. Hosseiny Marani and E. Baumer (2023), doi:10.1145/3623269, compare measures.
    minimum: the similarity from which on two topics are partners; 0.7 is that of a topic and its mixture with a sixth
    of other words.
    Runs are compared with a reference: that of the highest mean lp among those with the method and the number of topics
    of the first one, or the first one where none has an lp.
    Returns a Dataset with partner and similarity (run, topic): the place of the topic in the run that is paired with a
    topic of the reference, -1 and NaN where there is none left. stability (topic,): the share of other runs with a
    partner. stable: over all pairs of runs, the share of topics of both with a partner. Runs have coordinates tree and
    chain; attrs["reference"] is the run.
    Raises ValueError for a single run, a tree without the site, words that differ, and a minimum that cannot be.
    """
    from xarray import Dataset

    if not 0 < minimum <= 1:
        raise ValueError(f"minimum is {minimum}; expected a similarity above 0, up to 1")
    runs = [run for position, one_tree in enumerate((tree, *others)) for run in _runs(one_tree, position, site)]
    if len(runs) < 2:
        raise ValueError("match_topics compares runs, but there is only one; give it more chains or more trees")
    for run in runs:
        _refuse_other_words(runs[0], run)
    reference = _reference_run(runs)
    partner, similarity = zip(*(_pair_topics(runs[reference], run) for run in runs), strict=True)
    pairs = list(combinations(runs, 2))
    paired = sum(2 * (_pair_topics(*pair)[1] >= minimum).sum() for pair in pairs)
    stability = np.delete(np.stack(similarity) >= minimum, reference, axis=0).mean(0)
    return Dataset(
        {
            "partner": (("run", "topic"), np.stack(partner)),
            "similarity": (("run", "topic"), np.stack(similarity)),
            "stability": ("topic", stability),
            "stable": paired / sum(len(run.means) for pair in pairs for run in pair),
        },
        {
            "run": np.arange(len(runs)),
            "topic": runs[reference].means["topic"].values,
            "tree": ("run", [run.tree for run in runs]),
            "chain": ("run", [run.means["chain"].item() for run in runs]),
        },
        {"reference": reference, "minimum": minimum},
    )


def aligned_topics(tree: DataTree, site: str = "topics") -> Dataset:
    """Topics (chain, draw, topic, word), with those of all draws in one order, and mean shares (document, topic).

    Where draws are not kept, the only draw of a chain is its mean, and sd (chain, draw, topic, word) is that of topics.
    Raises ValueError for a tree without the site.
    """
    return _align_topics(read_topics(tree, site))


def read_topics(tree: DataTree, site: str) -> Dataset:
    """Topics and sd as `aligned_topics` returns them, in the order that they have, with shares and lp of all draws."""
    from xarray import Dataset

    draws, means, sds = (_group(tree, name) for name in ("posterior", "posterior_mean", "posterior_sd"))
    if site not in draws and site not in means:
        raise ValueError(f"the result has no site '{site}', only {sorted(map(str, {**draws, **means}))}")
    names = [name for name in (site, "shares") if name in draws or name in means]
    has_draws = all(name in draws for name in names)
    variables = {name: draws[name] if has_draws else _chain_means(draws, means, name) for name in names}
    sites = {"topics": _with_dims(variables[site], "topic", "word")}
    if "shares" in names:
        sites["shares"] = _with_dims(variables["shares"], "document", "topic")
    if not has_draws:
        sd = sds[site] if site in sds else draws[site].std("draw")
        sites["sd"] = _with_dims(sd.expand_dims("draw", 1), "topic", "word")
    if "lp" in (stats := _group(tree, "sample_stats")):
        sites["lp"] = stats["lp"] if has_draws else _chain_means(stats, {}, "lp")
    dataset = Dataset(sites)
    return dataset.assign_coords({dim: dataset[dim].values for dim in dataset.dims})


def _group(tree: DataTree, name: str) -> dict[Any, DataArray]:
    """The variables of a group, none where the tree does not have it."""
    return dict(tree[name].data_vars) if name in tree.children else {}


def _chain_means(draws: Mapping[Any, DataArray], means: Mapping[Any, DataArray], name: str) -> DataArray:
    """The mean of a site in every chain, as its only draw."""
    return (means[name] if name in means else draws[name].mean("draw")).expand_dims("draw", 1)


def _with_dims(values: DataArray, *names: str) -> DataArray:
    """Values with dimensions (chain, draw, *names), whatever the others were called before."""
    own = [dim for dim in values.dims if dim not in SAMPLE_DIMS]
    if len(own) != len(names):
        raise ValueError(f"site '{values.name}' has dimensions {own}; expected {len(names)}, as {list(names)}")
    return values.transpose(*SAMPLE_DIMS, *own).rename(dict(zip(own, names, strict=True)))


def _align_topics(posterior: Dataset) -> Dataset:
    """What `aligned_topics` returns, from what `read_topics` returns."""
    from xarray import DataTree

    use_shares = "shares" in posterior and posterior["shares"][0, 0].size <= MAX_SHARES_FOR_ALIGNMENT
    sites = ["topics", "shares"] if use_shares else ["topics"]
    groups = {"posterior": posterior[sites]} | ({"sample_stats": posterior[["lp"]]} if "lp" in posterior else {})
    tree = align(DataTree.from_dict(groups), dict.fromkeys(sites, "topic"))
    order = tree["alignment"].to_dataset()["permutation"]
    aligned = posterior.assign(topics=tree["posterior"].to_dataset()["topics"])
    if "sd" in posterior:
        aligned["sd"] = posterior["sd"].copy(
            data=np.take_along_axis(posterior["sd"].values, order.values[..., None], axis=2)
        )
    if "shares" in posterior:
        draws = flat_draws(posterior["shares"])
        moved = (draw[:, permutation] for draw, permutation in zip(draws, flat_draws(order), strict=True))
        aligned["shares"] = ("document", "topic"), sum(moved, np.zeros(draws[0].shape)) / len(draws)
    return aligned


def _topic_shares(posterior: Dataset, tree: DataTree) -> tuple[np.ndarray, dict[str, str]]:
    """The share of every topic (topic,), and attributes that say what it is a share of, or why it is NaN."""
    if "shares" not in posterior:
        return np.full(posterior.sizes["topic"], np.nan), {"reason": "the result has no site 'shares'"}
    shares, constants = posterior["shares"].values, _group(tree, "constant_data")
    if "document" not in constants:
        return shares.mean(0), {"of": "documents"}
    tokens = np.bincount(constants["document"].values, minlength=len(shares))
    return tokens @ shares / tokens.sum(), {"of": "tokens"}


def _moments(posterior: Dataset, words: np.ndarray) -> dict[str, tuple[Any, ...]]:
    """Mean, sd and interval (topic, rank) of the probabilities of words (topic, rank)."""
    draws = np.take_along_axis(flat_draws(posterior["topics"]), words[None], axis=2)
    mean, sd, how = draws.mean(0), draws.std(0), "quantiles of draws"
    low, high = np.quantile(draws, INTERVAL_PROBABILITIES, axis=0)
    if "sd" in posterior:
        within = np.take_along_axis(flat_draws(posterior["sd"]), words[None], axis=2) ** 2
        sd, how = np.sqrt(within.mean(0) + sd**2), "quantiles of a Beta distribution with this mean and sd"
        low, high = _beta_interval(mean, sd)
    return {"mean": (mean,), "sd": (sd,), "low": (low, {"interval": how}), "high": (high, {"interval": how})}


def _beta_interval(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Both ends of the interval of a Beta distribution, (end, *mean); the mean itself where sd is zero."""
    from scipy.stats import beta

    varies = sd > 0
    size = np.maximum(mean * (1 - mean) / np.where(varies, sd, 1.0) ** 2 - 1, 1e-6)
    shape = [np.where(varies, part * size, 1.0) for part in (mean, 1 - mean)]
    return np.where(varies, [beta.ppf(quantile, *shape) for quantile in INTERVAL_PROBABILITIES], mean)


def _in_top(posterior: Dataset, words: np.ndarray, lift: np.ndarray) -> tuple[Any, ...]:
    """The share of draws in which words (topic, rank) are among the first ones of their topic, as many as there are
    ranks, and attributes where it is NaN."""
    if "sd" in posterior:
        return np.full(words.shape, np.nan), {"reason": "draws of topics are not kept"}
    scores = flat_draws(posterior["topics"]) * lift
    thresholds = np.partition(scores, -words.shape[1], axis=2)[:, :, -words.shape[1], None]
    return ((np.take_along_axis(scores, words[None], axis=2) >= thresholds).mean(0),)


def _runs(tree: DataTree, place: int, site: str) -> list[TopicRun]:
    """The chains of a tree, each with the means of its aligned draws. place: of the tree among all."""
    topics, runs = read_topics(tree, site).drop_dims("document", errors="ignore"), []
    for chain in range(topics.sizes["chain"]):
        aligned = _align_topics(topics.isel(chain=[chain])).squeeze("chain")
        means = aligned["topics"].mean("draw")
        lp = float(aligned["lp"].mean()) if "lp" in aligned else np.nan
        runs.append(TopicRun(means / means.sum("word"), lp, place, str(tree.attrs.get("method"))))
    return runs


def _reference_run(runs: Sequence[TopicRun]) -> int:
    """The position of the run with the highest mean lp among those that are comparable with the first.

    Log joints of other methods, or of other numbers of topics, are not.
    """
    alike = [(run.method, len(run.means)) == (runs[0].method, len(runs[0].means)) for run in runs]
    return int(np.argmax(np.where(alike, np.nan_to_num([run.lp for run in runs], nan=-np.inf), -np.inf)))


def _refuse_other_words(first: TopicRun, other: TopicRun) -> None:
    """Raises ValueError where two runs have different words, compared as text."""
    first_words, other_words = (run.means["word"].values.astype(str).tolist() for run in (first, other))
    for position, (own, another) in enumerate(zip_longest(first_words, other_words, fillvalue="none")):
        if own != another:
            trees = f"is '{own}' in tree {first.tree}, but '{another}' in tree {other.tree}"
            raise ValueError(f"word {position} {trees}; expected the same words in the same order")


def _pair_topics(first: TopicRun, second: TopicRun) -> tuple[np.ndarray, np.ndarray]:
    """For every topic of the first run its partner in the second and their similarity, by the Hungarian algorithm; -1
    and NaN where no partner is left."""
    from scipy.optimize import linear_sum_assignment

    affinity = np.sqrt(first.means.values) @ np.sqrt(second.means.values).T
    similarity = 1 - np.sqrt(np.maximum(1 - affinity, 0.0))
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    partner, partner_similarity = np.full(len(affinity), -1), np.full(len(affinity), np.nan)
    partner[rows], partner_similarity[rows] = columns, similarity[rows, columns]
    return partner, partner_similarity


def flat_draws(values: DataArray) -> np.ndarray:
    """Values (draw, *site), the chains after each other."""
    return values.values.reshape(-1, *values.shape[2:])
