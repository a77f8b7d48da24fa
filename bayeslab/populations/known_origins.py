"""Individuals whose population is known, as a prior of their ancestry."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from bayeslab.datasets.arguments import as_integer, as_positive, short_repr

CERTAIN = 1e6
"""The strength at which an origin counts as known."""


def ancestry_prior(
    origins: Sequence[Hashable | None],
    num_populations: int | None = None,
    *,
    alpha: float = 1.0,
    strength: float = CERTAIN,
) -> np.ndarray[Any, Any]:
    """The argument alpha (individual, population) of `structure_admixture` where some individuals are of known origin.

    origins: the label of the population of every individual, None, NaN or "" where it is not known. Populations have
        the order in which labels first appear, and come first.
    num_populations: more than there are labels where others are looked for; by default their number.
    alpha: of all others. strength: the prior of a known individual is as if it had been seen to have so many copies
        more, all of its own population. The default leaves other populations a share of about a millionth; a
        strength of ten says that it is likely of its population, and may have ancestors of others, which is what
        STRUCTURE's USEPOPINFO with its MIGRPRIOR says in another form.
    Raises ValueError where nobody's origin is known, and for fewer populations than labels.
    """
    alpha, strength = as_positive("alpha", alpha), as_positive("strength", strength)
    labels = list(dict.fromkeys(label for label in origins if not _is_unknown(label)))
    if not labels:
        raise ValueError(f"no individual has a known origin among {short_repr(list(origins))}; expected labels")
    number = len(labels) if num_populations is None else as_integer("num_populations", num_populations, 1)
    if number < len(labels):
        raise ValueError(f"num_populations is {number}, but {len(labels)} populations are known: {short_repr(labels)}")
    prior = np.full((len(origins), number), alpha)
    for individual, label in enumerate(origins):
        if not _is_unknown(label):
            prior[individual, labels.index(label)] += strength
    return prior


def _is_unknown(label: Any) -> bool:
    """Whether a label says nothing."""
    return label is None or label == "" or label != label
