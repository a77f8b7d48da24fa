"""Population structure, after a fit: ancestry, divergence, numbers of populations."""

from bayeslab.populations.ancestry import ancestry_summary, divergence, match_populations, q_table, write_q
from bayeslab.populations.choice import choose_populations, evanno
from bayeslab.populations.known_origins import ancestry_prior

__all__ = [
    "ancestry_prior",
    "ancestry_summary",
    "choose_populations",
    "divergence",
    "evanno",
    "match_populations",
    "q_table",
    "write_q",
]
