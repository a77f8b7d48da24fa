"""Regressions: modes along a penalty, and which covariates a posterior includes."""

from bayeslab.supervised.inclusion import inclusion_probabilities, model_probabilities
from bayeslab.supervised.penalty_path import penalty_path

__all__ = ["inclusion_probabilities", "model_probabilities", "penalty_path"]
