"""Naive Bayes with counts of words: every word of a mail is drawn from the vocabulary of its class.

    share           ~ Dirichlet(concentration, ..., concentration)
    p_k             ~ Dirichlet(alpha, ..., alpha),    class k = 1..K
    y_i | share     ~ Categorical(share)
    x_i | y_i = k   ~ Multinomial(length_i, p_k),    row i = 1..n

CS229, 4.2.2, with the counts of words in place of the words. Smoothing, (1 + number of times that the class has the
word) / (size of the vocabulary + number of words of the class), is the mean of the posterior for alpha = 1. Words are
exchangeable, not independent: what is known of p makes the probability of a new mail a Dirichlet-multinomial, not the
product of smoothed frequencies.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array


def model(
    length: Array, vocabulary_size: int, num_classes: int, alpha: float = 1.0, concentration: float = 1.0
) -> None:
    """Draw share (class,), p (class, word), y (row,) and x (row, word) for numbers of words length (row,)."""
    share = dist.Dirichlet(jnp.full(num_classes, concentration))
    share = numpyro.sample("share", share, infer={"event_dims": ["class"]})
    with numpyro.plate("class", num_classes):
        p = numpyro.sample("p", dist.Dirichlet(jnp.full(vocabulary_size, alpha)), infer={"event_dims": ["word"]})
    with numpyro.plate("row", len(length)):
        y = numpyro.sample("y", dist.Categorical(share))
        numpyro.sample("x", dist.Multinomial(length, p[y]), infer={"event_dims": ["word"]})


def example() -> dict[str, Any]:
    """Five mails of three words; one word is in no mail of the first class."""
    x = np.array([[3, 1, 0], [2, 2, 0], [1, 3, 4], [0, 1, 5], [4, 0, 2]])
    return {"length": x.sum(1), "vocabulary_size": 3, "num_classes": 2, "x": x, "y": np.array([0, 0, 1, 1, 1])}


def data() -> dict[str, Any]:
    """300 simulated mails, spam, personal and work, by how often they have each of twelve words."""
    from bayeslab.datasets import simulated_mails

    mails = simulated_mails(300)
    sizes = {"length": mails["x"].sum("word"), "vocabulary_size": 12, "num_classes": 3}
    return {**sizes, "x": mails["x"], "y": mails["y"]}
