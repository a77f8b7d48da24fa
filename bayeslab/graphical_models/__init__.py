"""Graphical models: queries without draws, messages on graphs, Boltzmann machines, pictures of programs."""

import numpyro  # noqa: F401  as a whole, before parts of it: ArviZ may have left a half, to be loaded when it is used

from bayeslab.graphical_models.annealing import LogPartition, annealed_log_partition
from bayeslab.graphical_models.boltzmann import (
    Learned,
    Weights,
    contrastive_divergence,
    contrastive_gradient,
    log_likelihood_gradient,
    sample_layers,
)
from bayeslab.graphical_models.exchange import Exchange
from bayeslab.graphical_models.factor_graphs import factor_graph
from bayeslab.graphical_models.messages import Beliefs, belief_propagation
from bayeslab.graphical_models.networks import BayesNet, bayes_net_from_networkx, bayes_net_to_networkx
from bayeslab.graphical_models.queries import most_probable_explanation, query
from bayeslab.program_graphs.drawing import ProgramGraph, graph

__all__ = [
    "BayesNet",
    "Beliefs",
    "Exchange",
    "Learned",
    "LogPartition",
    "ProgramGraph",
    "Weights",
    "annealed_log_partition",
    "bayes_net_from_networkx",
    "bayes_net_to_networkx",
    "belief_propagation",
    "contrastive_divergence",
    "contrastive_gradient",
    "factor_graph",
    "graph",
    "log_likelihood_gradient",
    "most_probable_explanation",
    "query",
    "sample_layers",
]
