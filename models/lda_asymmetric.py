"""Latent Dirichlet allocation whose topics need not be equally common: each has a concentration of its own.

    alpha_k ~ Gamma(1, 1),    topic k = 1..K
    theta_d ~ Dirichlet(alpha_1, ..., alpha_K)

and topics, z and words as in `lda`. H. Wallach, D. Mimno and A. McCallum (2009), Advances in Neural Information
Processing Systems 22, found that such a prior of documents, with a symmetric one of topics, keeps words of little
meaning together and makes the fit depend less on the number of topics. `align(tree, SITE_DIMS, LABELS)` gives the
topics of all draws one order.
"""

from typing import Any

import numpyro
import numpyro.distributions as dist
from jax import Array

from bayeslab.models import lda
from bayeslab.models.lda import mixed

SITE_DIMS = {"topics": "topic", "shares": "topic", "alpha": "topic"}
LABELS = ("z",)


def model(
    document: Array, num_documents: int, num_words: int, num_topics: int, concentration: float | None = 0.1
) -> None:
    """Draw alpha (topic,), topics (topic, word), shares (document, topic), z (token,) and word (token,), and the
    concentration if it is None.

    document: (token,), the number of the document that a token is of, from 0.
    """
    with numpyro.plate("topic", num_topics):
        alpha = numpyro.sample("alpha", dist.Gamma(1.0, 1.0))
    mixed(document, num_documents, num_words, alpha, concentration)


def example() -> dict[str, Any]:
    """The tokens of `lda`."""
    return {name: value for name, value in lda.example().items() if name != "alpha"}


def data() -> dict[str, Any]:
    """The documents of `lda`."""
    return lda.data()
