"""How well the rest of a document is predicted from a part of it, and the number of topics by that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from jax import Array

from bayeslab.diagnostics.score_tables import standard_error, with_differences
from bayeslab.fitting import fit
from bayeslab.programs.arguments import parameters
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Data, Program, precision_scope, raw_key
from bayeslab.sampling.protocols import Method
from bayeslab.topics.summaries import flat_draws, read_topics

if TYPE_CHECKING:
    from xarray import Dataset


class Tokens(NamedTuple):
    """The tokens of all documents. site: whose values the words are. document, word and present: (token,)."""

    site: str
    document: np.ndarray
    word: np.ndarray
    present: np.ndarray


def document_completion(
    key: Array | int, model: Program, data: Data, method: Method, share: float = 0.2, site: str = "word"
) -> Dataset:
    """Held-out perplexity: how well the words of a part of every document predict its other words.

    A random share of the tokens of every document is hidden, at least one of two and never all; the program is fitted
    with them missing, and a hidden token has the log of the mean over all draws of sum_k shares[d, k] topics[k, w]:
    H. Wallach, I. Murray, R. Salakhutdinov and D. Mimno (2009), International Conference on Machine Learning, page
    1105, section 5. With a point estimate the mean is that of the point.
    model: a program with the argument document (token,) and sites topics and shares, whose tokens have these
    probabilities, as `lda`. site: of the tokens. method: for the fit; what is compiled for it serves other tokens too.
    Returns a Dataset with log_density and tokens (document,), how many were hidden; the sum log_score and perplexity,
    exp(-log_score / tokens), with standard errors log_score_se and perplexity_se (delta method), which take documents
    for independent. attrs["mean"] says whether the mean is over draws, or over chains with their mean topics and mean
    shares, where draws of topics are not kept.
    Raises ValueError for a program without these, for a share outside of 0 to 1, and where fewer than two documents
    have two tokens.
    """
    keys, tokens = jax.random.split(raw_key(key)), _tokens(model, data, site)
    return _completion_scores(keys[1], model, data, method, tokens, _choose_hidden(keys[0], tokens, share))


def choose_topics(
    key: Array | int, model: Program, data: Data, values: Iterable[int], method: Method, share: float = 0.2
) -> Dataset:
    """Scores of `document_completion` for several values of num_topics, all of the same hidden tokens.

    values: range(5, 30, 5), for example. method, share: as for `document_completion`.
    Returns a Dataset with a row for every value: what `document_completion` returns, and difference and difference_se
    from the best log_score, paired by document. attrs["best"] is its number of topics.
    Raises ValueError for no value, for a program without the argument num_topics, and as `document_completion` does.
    """
    from xarray import concat

    values = list(values)
    if not values:
        raise ValueError("choose_topics needs numbers of topics to choose from, got none")
    if "num_topics" not in parameters(model):
        raise ValueError(f"'num_topics' is no argument of the program; these are {list(parameters(model))}")
    data_of_values = [dict(data) | {"num_topics": value} for value in values]
    tokens, *_ = [_tokens(model, data_of_value) for data_of_value in data_of_values]
    keys = jax.random.split(raw_key(key), len(values) + 1)
    hidden = _choose_hidden(keys[0], tokens, share)
    rows = [
        _completion_scores(fit_key, model, data_of_value, method, tokens, hidden)
        for fit_key, data_of_value in zip(keys[1:], data_of_values, strict=True)
    ]
    table = concat([row.drop_vars("tokens") for row in rows], dim="num_topics").assign_coords(num_topics=values)
    table = with_differences(table, "num_topics", rows[0]["tokens"].values > 0)
    return table.assign(tokens=rows[0]["tokens"]).assign_attrs(method=type(method).__name__)


def _tokens(model: Program, data: Data, site: str = "word") -> Tokens:
    """The tokens that a program is given. Raises ValueError for a program that is none of topics and documents."""
    with precision_scope():
        bound = bind(model, data).plain
        inputs, sites = bound.inputs, bound.sites
    if site not in bound.observed:
        raise ValueError(f"data give no value to site '{site}'; the observed sites are {list(bound.observed)}")
    if "document" not in inputs:
        raise ValueError(f"the program has no argument 'document' that says what a token is of, only {list(inputs)}")
    for name in ("topics", "shares"):
        if name not in sites or sites[name].role == "observed":
            raise ValueError(f"the program has no latent site '{name}', only {list(bound.latent)}")
    word = np.asarray(bound.observed[site])
    present = np.broadcast_to(bound.present.get(site, True), word.shape)
    return Tokens(site, np.asarray(inputs["document"]), word, present)


def _choose_hidden(key: Array, tokens: Tokens, share: float) -> np.ndarray:
    """Which tokens (token,) to hide: the first ones of every document in a random order."""
    if not 0 < share < 1:
        raise ValueError(f"share is {share}; expected a share of tokens to hide, between 0 and 1")
    with precision_scope():
        priority = np.where(tokens.present, jax.random.uniform(key, tokens.word.shape), np.inf)
    sizes = np.bincount(tokens.document[tokens.present], minlength=tokens.document.max() + 1)
    if (sizes > 1).sum() < 2:
        raise ValueError(f"the number of documents with two tokens or more is {(sizes > 1).sum()}; expected at least 2")
    number = np.where(sizes > 1, np.clip(np.round(share * sizes), 1, sizes - 1), 0)
    order = np.lexsort((priority, tokens.document))
    documents, hidden = tokens.document[order], np.empty(len(order), bool)
    hidden[order] = np.arange(len(documents)) - np.searchsorted(documents, documents) < number[documents]
    return hidden


def _completion_scores(
    key: Array, model: Program, data: Data, method: Method, tokens: Tokens, hidden: np.ndarray
) -> Dataset:
    """The scores of hidden tokens after a fit without them."""
    from xarray import Dataset

    training_words = {tokens.site: np.where(tokens.present & ~hidden, tokens.word, np.nan)}
    fitted = read_topics(fit(key, model, dict(data) | training_words, method, progress=False), "topics")
    document, size = tokens.document[hidden], fitted.sizes["document"]
    density = np.bincount(document, _log_density(fitted, document, tokens.word[hidden]), size)
    num_tokens = np.bincount(document, minlength=size)
    rate = density.sum() / len(document)
    with np.errstate(invalid="ignore"):  # minus infinity has no standard error
        errors = [standard_error(scores[num_tokens > 0]) for scores in (density, density - rate * num_tokens)]
    variables: dict[str, Any] = {"log_density": ("document", density), "tokens": ("document", num_tokens)}
    variables |= {"log_score": density.sum(), "log_score_se": errors[0]}
    variables |= {"perplexity": np.exp(-rate), "perplexity_se": np.exp(-rate) * errors[1] / len(document)}
    mean = "over chains, of mean topics and mean shares" if "sd" in fitted else "over draws"
    return Dataset(variables, {"document": fitted["document"].values}, {"mean": mean})


def _log_density(posterior: Dataset, document: np.ndarray, word: np.ndarray) -> np.ndarray:
    """The log of the mean over draws of the probability of every token (token,), summed one draw after the other."""
    topics, total = flat_draws(posterior["topics"]), np.zeros(len(word))
    for shares, table in zip(flat_draws(posterior["shares"]), topics, strict=True):
        word_rows = np.ascontiguousarray(table.T)
        total += np.einsum("nk,nk->n", np.take(shares, document, axis=0), np.take(word_rows, word, axis=0))
    with np.errstate(divide="ignore"):  # a point may have probabilities of zero
        return np.log(total / len(topics))
