"""Regressions and classifiers: modes along a penalty, covariates that a posterior includes, scores of classifiers."""

from bayeslab.supervised.class_probability_draws import class_probability_draws
from bayeslab.supervised.class_scores import class_scores
from bayeslab.supervised.inclusion import inclusion_probabilities, model_probabilities
from bayeslab.supervised.penalty_path import penalty_path

__all__ = ["class_probability_draws", "class_scores", "inclusion_probabilities", "model_probabilities", "penalty_path"]
