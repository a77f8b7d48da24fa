"""A laboratory for Bayesian models written as NumPyro programs."""

from importlib import import_module
from typing import Any

import numpyro  # noqa: F401  (as a whole: ArviZ may have left a half of it, to be loaded when it is used)

from bayeslab import distributions, mixed_membership, populations, states, topics
from bayeslab.calibration.geweke import joint_distribution_test
from bayeslab.calibration.rank_uniformity import calibration_verdict
from bayeslab.calibration.sbc import sbc
from bayeslab.diagnostics.align import align
from bayeslab.diagnostics.compare import compare_posteriors
from bayeslab.diagnostics.diagnose import diagnose
from bayeslab.diagnostics.modes import modes
from bayeslab.distributions import LinearGaussianChain, MarkovChain
from bayeslab.explaining import explain
from bayeslab.fitting import fit
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.methods.em import EM
from bayeslab.methods.exact import Exact
from bayeslab.methods.gibbs import Gibbs
from bayeslab.methods.laplace import MAP, Laplace
from bayeslab.methods.mcmc import MCMC, NUTS
from bayeslab.methods.mean_field import MeanField
from bayeslab.methods.svi import SVI, full_rank_normal, low_rank_normal, mean_field_normal, normalising_flow
from bayeslab.prediction.gaussian_process import process_at, process_components, process_draws
from bayeslab.prediction.predict import predict, simulate
from bayeslab.programs.binding import bind
from bayeslab.reports.comparison_card import comparison_card
from bayeslab.states.cross_validation import choose, held_out
from bayeslab.transforms.augment import augment
from bayeslab.transforms.collapse import collapse
from bayeslab.transforms.compress import compress
from bayeslab.transforms.draw_checks import FalseConditional
from bayeslab.transforms.recover import recover

LOADED_WHEN_USED = {
    "datasets": "bayeslab.datasets",
    "kernels": "bayeslab.gaussian_processes.kernels",
    "models": "bayeslab.models",
    "plots": "bayeslab.plots",
    "solvers": "bayeslab.gaussian_processes.solvers",
}
"""Modules for users that no fit needs: they bring tinygp, matplotlib or data."""

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
    "augment",
    "bind",
    "calibration_verdict",
    "choose",
    "collapse",
    "compare_posteriors",
    "comparison_card",
    "compress",
    "datasets",
    "diagnose",
    "distributions",
    "explain",
    "fit",
    "full_rank_normal",
    "held_out",
    "joint_distribution_test",
    "kernels",
    "low_rank_normal",
    "mean_field_normal",
    "mixed_membership",
    "models",
    "modes",
    "normalising_flow",
    "plots",
    "populations",
    "predict",
    "process_at",
    "process_components",
    "process_draws",
    "recover",
    "sbc",
    "simulate",
    "solvers",
    "states",
    "topics",
]


def __getattr__(name: str) -> Any:
    """Modules that are loaded when they are used."""
    if name in LOADED_WHEN_USED:
        return import_module(LOADED_WHEN_USED[name])
    raise AttributeError(f"module 'bayeslab' has no attribute '{name}'")


def __dir__() -> list[str]:
    """What users need; folders of the engine are found by their paths."""
    return sorted(__all__)
