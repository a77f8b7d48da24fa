"""The formulas of the lectures that are wrong in print, by lecture and chapter."""

from errata import normal_distribution
from errata.erratum import Erratum

LECTURES: dict[str, dict[str, tuple[Erratum, ...]]] = {
    "Mukherjee, Probabilistic Machine Learning": {
        "The normal distribution": normal_distribution.ERRATA,
    },
}
