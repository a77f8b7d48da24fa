"""Programs of mixed membership at size: topics of documents, population structure with admixture.

Methods of the same names as those of any program, which count origins and forget them, or sum over them.
"""

import numpyro  # noqa: F401  as a whole, before parts of it: ArviZ may have left a half, to be loaded when it is used

from bayeslab.mixed_membership.methods import EM, MAP, Gibbs, MeanField

__all__ = ["EM", "MAP", "Gibbs", "MeanField"]
