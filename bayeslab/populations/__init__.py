"""Population structure, after a fit: ancestry, divergence, numbers of populations."""

from bayeslab.populations.admixture_files import admixture_start, compare_ancestry, read_frequencies, read_q
from bayeslab.populations.ancestry import ancestry_summary, divergence, match_populations, q_table, write_q
from bayeslab.populations.choice import choose_populations, evanno
from bayeslab.populations.known_origins import ancestry_prior, read_origins

__all__ = [
    "admixture_start",
    "ancestry_prior",
    "ancestry_summary",
    "choose_populations",
    "compare_ancestry",
    "divergence",
    "evanno",
    "match_populations",
    "q_table",
    "read_frequencies",
    "read_origins",
    "read_q",
    "write_q",
]
