"""The formulas of the lectures that are wrong in print, by lecture and chapter."""

from errata import (
    baum_welch,
    blog,
    boosting_and_bounds,
    cs229,
    cs229_control,
    dirichlet,
    hidden_markov_models,
    kernels,
    lasso_and_kernels,
    markov_chains,
    mixtures,
    normal_distribution,
    regression,
    structure,
    whiteboard_classification,
    whiteboard_graphs,
    whiteboard_latent,
    whiteboard_processes,
    whiteboard_regression,
    whiteboard_sequences,
)
from errata.erratum import Erratum

LECTURES: dict[str, dict[str, tuple[Erratum, ...]]] = {
    "Mukherjee, Probabilistic Machine Learning": {
        "The Dirichlet distribution": dirichlet.ERRATA,
        "Regression": regression.ERRATA,
        "The normal distribution": normal_distribution.ERRATA,
        "Kernels and Gaussian processes": kernels.ERRATA,
        "Boosting and bounds": boosting_and_bounds.ERRATA,
        "Mixtures": mixtures.ERRATA,
        "Population structure": structure.ERRATA,
        "Markov chain Monte Carlo": markov_chains.ERRATA,
        "Hidden Markov models": hidden_markov_models.ERRATA,
        "The algorithm of Baum and Welch": baum_welch.ERRATA,
    },
    "Whiteboard notes": {
        "Basics and linear regression": whiteboard_regression.ERRATA,
        "Classification and dimension reduction": whiteboard_classification.ERRATA,
        "Graphical models": whiteboard_graphs.ERRATA,
        "Latent variables": whiteboard_latent.ERRATA,
        "Sequences": whiteboard_sequences.ERRATA,
        "Processes and partition functions": whiteboard_processes.ERRATA,
    },
    "CS229": {
        "Learning": cs229.ERRATA,
        "Control": cs229_control.ERRATA,
    },
    "Ke, Lecture 2": {
        "Lasso and kernels": lasso_and_kernels.ERRATA,
    },
    "Learning-theory blog": {
        "Complexity and model choice": blog.ERRATA,
    },
}
