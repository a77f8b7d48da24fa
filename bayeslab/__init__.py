"""A laboratory for Bayesian models written as NumPyro programs."""

from bayeslab.alignment import align
from bayeslab.bind import bind
from bayeslab.calibration import sbc
from bayeslab.collapse import collapse
from bayeslab.comparison import compare_posteriors
from bayeslab.compress import compress
from bayeslab.diagnosis import diagnose
from bayeslab.distributions import MarkovChain
from bayeslab.explain import explain
from bayeslab.fit import fit
from bayeslab.methods.em import EM
from bayeslab.methods.exact import Exact
from bayeslab.methods.gibbs import Gibbs
from bayeslab.methods.laplace import MAP, Laplace
from bayeslab.methods.mcmc import MCMC, NUTS
from bayeslab.methods.mean_field import MeanField
from bayeslab.methods.svi import SVI, full_rank_normal, low_rank_normal, mean_field_normal, normalising_flow
from bayeslab.predict import predict, simulate
from bayeslab.recover import recover

__all__ = [
    "EM",
    "MAP",
    "MCMC",
    "NUTS",
    "SVI",
    "Exact",
    "Gibbs",
    "Laplace",
    "MarkovChain",
    "MeanField",
    "align",
    "bind",
    "collapse",
    "compare_posteriors",
    "compress",
    "diagnose",
    "explain",
    "fit",
    "full_rank_normal",
    "low_rank_normal",
    "mean_field_normal",
    "normalising_flow",
    "predict",
    "recover",
    "sbc",
    "simulate",
]
