"""A laboratory for Bayesian models written as NumPyro programs."""

import numpyro  # noqa: F401  (as a whole: ArviZ may have left a half of it, to be loaded when it is used)

from bayeslab.alignment import align
from bayeslab.ancestry import ancestry_summary, divergence, match_populations, q_table, write_q
from bayeslab.bind import bind
from bayeslab.calibration import sbc
from bayeslab.card import comparison_card
from bayeslab.collapse import collapse
from bayeslab.comparison import compare_posteriors
from bayeslab.compress import compress
from bayeslab.diagnosis import diagnose
from bayeslab.distributions import GaussianProcess, LinearGaussianChain, MarkovChain
from bayeslab.explain import explain
from bayeslab.fit import fit
from bayeslab.held_out import choose, held_out
from bayeslab.hidden_states import filtered_states, forecast, most_probable_path, smoothed_states
from bayeslab.joint_distribution import joint_distribution_test
from bayeslab.membership import methods as mixed_membership
from bayeslab.methods.em import EM
from bayeslab.methods.exact import Exact
from bayeslab.methods.gibbs import Gibbs
from bayeslab.methods.laplace import MAP, Laplace
from bayeslab.methods.mcmc import MCMC, NUTS
from bayeslab.methods.mean_field import MeanField
from bayeslab.methods.svi import SVI, full_rank_normal, low_rank_normal, mean_field_normal, normalising_flow
from bayeslab.modes import modes
from bayeslab.populations import choose_populations, evanno
from bayeslab.predict import predict, simulate
from bayeslab.process_predictions import process_at, process_components, process_draws
from bayeslab.recover import recover
from bayeslab.topics import choose_topics, document_completion, match_topics, top_words
from bayeslab.uniformity import calibration_verdict
from bayeslab.watch import FalseConditional

__all__ = [
    "EM",
    "MAP",
    "MCMC",
    "NUTS",
    "SVI",
    "Exact",
    "FalseConditional",
    "GaussianProcess",
    "Gibbs",
    "Laplace",
    "LinearGaussianChain",
    "MarkovChain",
    "MeanField",
    "align",
    "ancestry_summary",
    "bind",
    "calibration_verdict",
    "choose",
    "choose_populations",
    "choose_topics",
    "collapse",
    "compare_posteriors",
    "comparison_card",
    "compress",
    "diagnose",
    "divergence",
    "document_completion",
    "evanno",
    "explain",
    "filtered_states",
    "fit",
    "forecast",
    "full_rank_normal",
    "held_out",
    "joint_distribution_test",
    "low_rank_normal",
    "match_populations",
    "match_topics",
    "mean_field_normal",
    "mixed_membership",
    "modes",
    "most_probable_path",
    "normalising_flow",
    "predict",
    "process_at",
    "process_components",
    "process_draws",
    "q_table",
    "recover",
    "sbc",
    "simulate",
    "smoothed_states",
    "top_words",
    "write_q",
]
