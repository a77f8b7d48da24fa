"""Regressions and classifiers: modes along a penalty, covariates that a posterior includes, scores of classifiers."""

from bayeslab.supervised.inclusion import inclusion_probabilities, model_probabilities
from bayeslab.supervised.paths import penalty_path
from bayeslab.supervised.probability_draws import class_probability_draws
from bayeslab.supervised.scores import class_scores

__all__ = ["class_probability_draws", "class_scores", "inclusion_probabilities", "model_probabilities", "penalty_path"]
