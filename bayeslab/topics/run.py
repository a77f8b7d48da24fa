"""From documents to topics: choose their number where several are given, fit, and read the chain to be read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from bayeslab.fitting import fit
from bayeslab.mixed_membership.methods import MAP, Gibbs, MeanField
from bayeslab.programs.program import Data, Program, raw_key
from bayeslab.sampling.protocols import Method
from bayeslab.topics.completion import choose_topics
from bayeslab.topics.documents import document_table
from bayeslab.topics.summaries import match_topics, top_words
from bayeslab.topics.word_coherence import coherence

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import Dataset, DataTree

WORD_WEIGHT = 0.6
"""The weight of `top_words` by which words are ordered, as readers of topics found best (Sievert and Shirley 2014)."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    numbers: of topics; of several, the one that predicts hidden words best is fitted. method: a name of METHODS.
    alpha, concentration: of the Dirichlet distributions of shares and topics; None to learn it. share: of words that
    are hidden to choose. ordered: whether the words of documents are in the order of the text.
    """

    numbers: tuple[int, ...] = (10,)
    method: str = "gibbs"
    seed: int = 0
    chains: int = 4
    warmup: int = 300
    draws: int = 200
    thinning: int = 5
    num_words: int = 12
    alpha: float | None = 0.1
    concentration: float | None = 0.1
    share: float = 0.2
    ordered: bool = True

    def __post_init__(self) -> None:
        if self.method != "gibbs" and None in (self.alpha, self.concentration):
            raise ValueError(f"the method {self.method} does not learn alpha and concentration; expected numbers")


class Results(NamedTuple):
    """The results of a run.

    tree: of all chains. chain: the one that is read. words: its first words. documents: the table of documents.
    matched: which topics other chains find too, None for one chain. choice: the scores of several numbers of topics,
    None for one number. coherence: (topic,) by measure, empty without gensim. seconds: that each step took.
    """

    data: Data
    tree: DataTree
    chain: int
    words: Dataset
    documents: DataFrame
    matched: Dataset | None
    choice: Dataset | None
    coherence: dict[str, Any]
    seconds: dict[str, float]

    @property
    def reading(self) -> DataTree:
        """The result of the chain that is read."""
        return self.tree.isel(chain=[self.chain])


def run_topics(
    model: Program, data: Data, settings: Settings, say: Callable[[str], None], progress: bool = False
) -> Results:
    """Choose, fit and summarise. model: the program `lda`. say: is told what is done.

    Raises ValueError for more topics than words, and as `choose_topics` and `fit` do.
    """
    if max(settings.numbers) > data["num_words"]:
        raise ValueError(f"{max(settings.numbers)} topics are more than the {data['num_words']} words; expected fewer")
    data = dict(data) | {"alpha": settings.alpha, "concentration": settings.concentration}
    method, seconds = METHODS[settings.method](settings), {}
    keys = jax.random.split(raw_key(settings.seed))
    number, choice = settings.numbers[0], None
    if len(settings.numbers) > 1:
        say(f"predicting hidden words with {', '.join(map(str, settings.numbers))} topics")
        start = time.perf_counter()
        choice = choose_topics(keys[0], model, data, settings.numbers, method, settings.share)
        number, seconds["choosing the number of topics"] = choice.attrs["best"], time.perf_counter() - start
    data["num_topics"] = number
    say(f"fitting {number} topics by {settings.method}")
    start = time.perf_counter()
    tree = fit(keys[1], model, data, method, progress=progress)
    seconds["fitting"] = time.perf_counter() - start
    if tree.attrs["interrupted"]:
        raise KeyboardInterrupt
    say("reading topics")
    start = time.perf_counter()
    matched = match_topics(tree) if tree["posterior"].sizes["chain"] > 1 else None
    chain = 0 if matched is None else int(matched.attrs["reference"])
    chosen = tree.isel(chain=[chain])
    words = top_words(chosen, min(settings.num_words, data["num_words"]), weight=WORD_WEIGHT)
    measured = _coherence(words, data, settings.ordered)
    table = document_table(chosen)
    seconds["reading topics"] = time.perf_counter() - start
    return Results(data, tree, chain, words, table, matched, choice, measured, seconds)


def _coherence(words: Dataset, data: Data, ordered: bool) -> dict[str, np.ndarray]:
    """The coherence of topics by measure, nothing where gensim is not there."""
    try:
        return {name: coherence(words, data, name).values for name in ("u_mass", *(["c_v"] if ordered else []))}
    except ModuleNotFoundError:
        return {}


def _gibbs(settings: Settings) -> Method:
    return Gibbs(settings.warmup, settings.draws, settings.chains, thinning=settings.thinning)


def _mean_field(settings: Settings) -> Method:
    return MeanField(num_starts=settings.chains, num_samples=settings.draws, tolerance=0.01)


def _map(settings: Settings) -> Method:
    return MAP(num_starts=settings.chains, basis="softmax")


METHODS: dict[str, Callable[[Settings], Method]] = {"gibbs": _gibbs, "mean-field": _mean_field, "map": _map}
"""The methods by their names, made from the settings of a run; chains are starts where there is a best one."""
