"""Priors on the scale of the data, for those who do not standardise them."""

import numpy as np
from numpy.typing import ArrayLike

from bayeslab.programs.data import values_and_presence

RATE_PER_VARIANCE = 0.5
"""The rate of the Gamma prior of precisions, in variances of the data: a group has a third to all of their spread."""


def scaled_prior(y: ArrayLike) -> dict[str, float]:
    """The mu0 and beta of `gaussian_mixture` and `gaussian_hmm` for data of any location and scale.

    They make the posterior that of standardised data under the defaults, in the units of y: mu0 is the mean of the
    data, beta half of their variance. A prior that looks at the data is wider than one that knows better.
    y: numbers of any shape; NaN and what is masked are missing. Raises ValueError where fewer than two different
    numbers are there, or infinite ones.
    """
    array, present = values_and_presence(y)
    if array.dtype.kind not in "iufb":
        raise ValueError(f"y must hold numbers, but holds {array.dtype}")
    values = array[present].astype(float)
    with np.errstate(all="ignore"):
        mean, variance = (float(values.mean()), float(values.var())) if values.size else (0.0, 0.0)
    if not (np.isfinite(mean) and np.isfinite(variance) and variance > 0):
        different = np.unique(values[np.isfinite(values)]).size
        raise ValueError(
            f"y has {different} different finite numbers; expected two at least, of a finite variance, not {variance:g}"
        )
    return {"mu0": mean, "beta": RATE_PER_VARIANCE * variance}
