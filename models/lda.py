"""Latent Dirichlet allocation: every word of a document comes from one of the topics that the document mixes.

    phi_k    ~ Dirichlet(concentration, ..., concentration) over the V words,    topic k = 1..K
    theta_d  ~ Dirichlet(alpha, ..., alpha) over the K topics,                   document d = 1..D
    z_dn     ~ Categorical(theta_d),                                             token n = 1..N_d
    w_dn     ~ Categorical(phi_{z_dn})

Mukherjee, Probabilistic Machine Learning, 14, which remarks that the admixture model serves documents: this is
`structure_admixture` at a single locus, whose alleles are the words, with as many copies as a document has tokens.
D. Blei, A. Ng and M. Jordan (2003), Journal of Machine Learning Research 3:993. The sites are topics (phi), shares
(theta), z and word. Tokens of all documents follow each other, and `document` says which one each is of. Where alpha or
the concentration is not given it is drawn too:

    alpha, concentration ~ Gamma(1, 1)

Given z both kinds of probabilities are Dirichlet with the counts of z. With z summed out a token has the probabilities
sum_k theta_dk phi_kw. `align(tree, SITE_DIMS, LABELS)` gives the topics of all draws one order.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

SITE_DIMS = {"topics": "topic", "shares": "topic"}
LABELS = ("z",)


def model(
    document: Array,
    num_documents: int,
    num_words: int,
    num_topics: int,
    alpha: float | None = 0.1,
    concentration: float | None = 0.1,
) -> None:
    """Draw topics (topic, word), shares (document, topic), z (token,) and word (token,), and alpha and the
    concentration if they are None.

    document: (token,), the number of the document that a token is of, from 0.
    """
    if alpha is None:
        alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
    mixed(document, num_documents, num_words, jnp.full(num_topics, alpha), concentration)


def mixed(document: Array, num_documents: int, num_words: int, alpha: Array, concentration: float | None) -> None:
    """Draw topics, what documents mix, and the tokens. alpha: (topic,)."""
    if len(alpha) > num_words:
        raise ValueError(f"num_topics is {len(alpha)}, more than the {num_words} words")
    if concentration is None:
        concentration = numpyro.sample("concentration", dist.Gamma(1.0, 1.0))
    with numpyro.plate("topic", len(alpha)):
        words = dist.Dirichlet(jnp.full(num_words, concentration))
        topics = numpyro.sample("topics", words, infer={"event_dims": ["word"]})
    with numpyro.plate("document", num_documents):
        shares = numpyro.sample("shares", dist.Dirichlet(alpha), infer={"event_dims": ["topic"]})
    with numpyro.plate("token", len(document)):
        z = numpyro.sample("z", dist.Categorical(shares[document]))
        numpyro.sample("word", dist.Categorical(topics[z]))


def example() -> dict[str, Any]:
    """Nine tokens of three documents over three words."""
    document, word = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2]), np.array([0, 0, 1, 2, 2, 2, 1, 0, 2])
    sizes = {"num_documents": 3, "num_words": 3, "num_topics": 2}
    return {"document": document, **sizes, "alpha": 0.7, "concentration": 0.5, "word": word}


def data() -> dict[str, Any]:
    """Thirty simulated documents of thirty tokens each, over twenty words (the lecture has no data)."""
    from bayeslab.datasets import documents, simulated_documents

    return {**documents(simulated_documents(30, 30, 20, 2)["counts"]), "num_topics": 2}
