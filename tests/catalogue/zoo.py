"""Small programs, one idea each: what elimination must find, and what it must refuse.

Every entry: the program, its data, and for every latent site the family of its conditional, or None where it has none.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import zoo_matrices as x
import zoo_mixing as m
import zoo_programs as p
import zoo_states as s
from zoo_programs import COUNTS, FLAGS, GROUP, STICKY, Y

__all__ = ["ALIKE", "CASES", "STICKY", "Case"]


class Case(NamedTuple):
    program: Callable[..., None]
    data: dict[str, Any]
    families: dict[str, str | None]


NORMALS = np.stack([Y, Y[::-1]], axis=1)
COUNTED = {"y": COUNTS}
REAL = {"y": Y}

CASES = {
    "normal_mean": Case(p.normal_mean, REAL, {"mu": "Normal"}),
    "normal_precision": Case(p.normal_precision, REAL, {"tau": "Gamma"}),
    "normal_variance": Case(p.normal_variance, REAL, {"variance": "InverseGamma"}),
    "vague_precision": Case(p.vague_precision, REAL, {"tau": "Gamma"}),
    "sd_has_no_family": Case(p.sd_has_no_family, REAL, {"sigma": None}),
    "poisson_rate": Case(p.poisson_rate, COUNTED, {"rate": "Gamma"}),
    "exponential_prior": Case(p.exponential_prior, COUNTED, {"rate": "Gamma"}),
    "chi2_prior": Case(p.chi2_prior, {"y": np.abs(Y)}, {"rate": "Gamma"}),
    "gamma_gamma": Case(p.gamma_gamma, {"y": np.abs(Y)}, {"rate": "Gamma"}),
    "bernoulli_probability": Case(p.bernoulli_probability, {"y": FLAGS}, {"p": "Beta"}),
    "bernoulli_all_ones": Case(p.bernoulli_probability, {"y": np.ones(5, int)}, {"p": "Beta"}),
    "binomial_probability": Case(p.binomial_probability, COUNTED, {"p": "Beta"}),
    "geometric_probability": Case(p.geometric_probability, COUNTED, {"p": "Beta"}),
    "categorical_probabilities": Case(p.categorical_probabilities, {"y": GROUP}, {"p": "Dirichlet"}),
    "multinomial_probabilities": Case(p.multinomial_probabilities, {"y": np.array([2, 3, 4])}, {"p": "Dirichlet"}),
    "rows_of_probabilities": Case(p.rows_of_probabilities, {"y": GROUP}, {"p": "Dirichlet"}),
    "wishart": Case(p.wishart, {"y": NORMALS}, {"precision": "Wishart"}),
    "inverse_wishart": Case(p.inverse_wishart, {"y": NORMALS}, {"covariance": "InverseWishart"}),
    "wishart_cholesky": Case(p.wishart_cholesky, {"y": NORMALS}, {"factor": "WishartCholesky"}),
    "regression": Case(p.regression, REAL, {"tau": "Gamma", "w": "Normal"}),
    "regression_event": Case(p.regression_event, REAL, {"w": "Normal"}),
    "regression_expanded": Case(p.regression_expanded, REAL, {"w": "Normal"}),
    "matrix_regression": Case(p.matrix_regression, {"y": np.stack([Y, -Y, 2 * Y], axis=1)}, {"w": "Normal"}),
    "matrix_normal_wishart": Case(x.matrix_normal_wishart, {"y": x.AFTER}, {"precision": "Wishart", "theta": "Normal"}),
    "matrix_normal_inverse_wishart": Case(
        x.matrix_normal_inverse_wishart, {"y": x.AFTER}, {"covariance": "InverseWishart", "theta": "Normal"}
    ),
    "precision_as_covariance": Case(x.precision_as_covariance, {"y": x.AFTER}, {"precision": None, "theta": "Normal"}),
    "nonlinear_dynamics": Case(x.nonlinear_dynamics, {"y": x.AFTER}, {"theta": None}),
    "many_regressions": Case(p.many_regressions, {"y": np.stack([Y, -Y, 2 * Y], axis=1)}, {"w": "Normal"}),
    "random_effects": Case(p.random_effects, REAL, {"spread": "Gamma", "a": "Normal"}),
    "nested_plates": Case(p.nested_plates, {"y": np.stack([Y, -Y, 2 * Y])}, {"mu": "Normal", "theta": "Normal"}),
    "crossed_effects": Case(p.crossed_effects, {"y": np.stack([Y, -Y, 2 * Y])}, {"a": "Normal", "b": "Normal"}),
    "through_deterministic": Case(p.through_deterministic, REAL, {"mu": "Normal"}),
    "two_children": Case(p.two_children, {"n": COUNTS, "y": Y}, {"rate": "Gamma"}),
    "log_normal_child": Case(p.log_normal_child, {"y": np.exp(Y)}, {"mu": "Normal"}),
    "transformed_child": Case(p.transformed_child, REAL, {"mu": "Normal"}),
    "half_normal_mean": Case(p.half_normal_mean, REAL, {"mu": "TruncatedNormal"}),
    "truncated_mean": Case(p.truncated_mean, REAL, {"mu": "TruncatedNormal"}),
    "uniform_mean": Case(p.uniform_mean, REAL, {"mu": "TruncatedNormal"}),
    "uniform_probability": Case(p.uniform_probability, {"y": FLAGS}, {"p": "Beta"}),
    "flat_mean": Case(p.flat_mean, REAL, {"mu": "Normal"}),
    "mixture": Case(p.mixture, REAL, {"weight": "Dirichlet", "mu": "Normal", "tau": "Gamma", "z": "Enumerated"}),
    "switch": Case(p.switch, REAL, {"on": "Enumerated", "w": "Normal"}),
    "change_point": Case(p.change_point, COUNTED, {"when": "Enumerated", "early": "Gamma", "late": "Gamma"}),
    "hidden_count": Case(p.hidden_count, REAL, {"n": "Enumerated"}),
    "scaled_rows": Case(p.scaled_rows, REAL, {"mu": "Normal"}),
    "masked_rows": Case(p.masked_rows, REAL, {"mu": "Normal"}),
    "logits_and_probs": Case(p.logits_and_probs, {"y": FLAGS}, {"p": "Beta"}),
    "negative_binomial": Case(p.negative_binomial, COUNTED, {"p": "Beta"}),
    "covariance_matrix": Case(p.covariance_matrix, {"y": NORMALS}, {"mu": "Normal"}),
    "log_rate": Case(p.log_rate, COUNTED, {"rate": "Gamma"}),
    "hidden_chain": Case(p.hidden_chain, REAL, {"z": "MarkovChain"}),
    "learned_chain": Case(p.learned_chain, REAL, {"moves": "Dirichlet", "mu": "Normal", "z": "MarkovChain"}),
    "left_to_right": Case(p.left_to_right, REAL, {"z": "MarkovChain"}),
    "many_chains": Case(p.many_chains, {"y": np.stack([Y, -Y])}, {"z": "MarkovChain"}),
    "coupled_chain": Case(p.coupled_chain, {"y": Y[:4]}, {"z": None}),
    "learned_states": Case(
        s.learned_states,
        {"y": s.LEVELS},
        {"pull": "Normal", "moves": "Gamma", "z": "LinearGaussianChain", "noise": "Gamma"},
    ),
    "many_states": Case(s.many_states, {"y": s.PAIRS}, {"z": "LinearGaussianChain"}),
    "coupled_states": Case(s.coupled_states, {"y": s.LEVELS}, {"z": None}),
    "labels_by_scores": Case(s.labels_by_scores, {"y": s.PAIRS[0, :2, [0, 1, 2, 0]].T}, {"z": "LinearChainCRF"}),
    "coupled_scores": Case(s.coupled_scores, {"y": s.LEVELS[[0, 2, 3]]}, {"z": None}),
    "robust_level": Case(s.robust_level, {"y": s.LEVELS}, {"z": None}),
    "own_distribution": Case(p.own_distribution, REAL, {"root": "RootGamma"}),
    "laplace_scale": Case(m.laplace_scale, REAL, {"variance": "GeneralisedInverseGaussian", "w": "Normal"}),
    "logits_augmented": Case(m.logits_augmented, {"y": FLAGS}, {"w": "Normal", "y_omega": "PolyaGamma"}),
    "probits_augmented": Case(m.probits_augmented, {"y": FLAGS}, {"w": "Normal", "y_utility": "TruncatedNormal"}),
    "quantiles_augmented": Case(
        m.quantiles_augmented,
        REAL,
        {"scale": "InverseGamma", "w": "Normal", "y_mixing": "GeneralisedInverseGaussian"},
    ),
    "hinges_augmented": Case(m.hinges_augmented, {}, {"w": "Normal", "loss_mixing": "GeneralisedInverseGaussian"}),
    "hinges": Case(m.hinges, {}, {"w": None}),
    "drift_in_the_spread": Case(m.drift_in_the_spread, REAL, {"mixing": None}),
    "hinge_of_a_square": Case(m.hinge_of_a_square, {}, {"w": "Normal", "mixing": None}),
    "root_of_polya_gamma": Case(m.root_of_polya_gamma, REAL, {"omega": None}),
    "scale_for_variance": Case(m.scale_for_variance, REAL, {"variance": None, "w": "Normal"}),
    "student_200": Case(p.student_200, REAL, {"mu": None}),
    "logistic": Case(p.logistic, {"y": FLAGS}, {"w": None}),
    "concentration": Case(p.concentration, {"y": np.full((4, 3), 1 / 3)}, {"alpha": None}),
    "quadratic_mean": Case(p.quadratic_mean, REAL, {"mu": None}),
    "coupled_labels": Case(p.coupled_labels, REAL, {"z": None}),
    "coupled_rates": Case(p.coupled_rates, COUNTED, {"rate": None}),
    "logistic_scale": Case(p.logistic_scale, REAL, {"mu": None}),
    "cauchy_prior": Case(p.cauchy_prior, REAL, {"mu": None}),
}

ALIKE = """
    vague_precision exponential_prior chi2_prior gamma_gamma bernoulli_all_ones geometric_probability
    multinomial_probabilities binomial_probability inverse_wishart many_regressions matrix_normal_inverse_wishart
    log_normal_child uniform_mean half_normal_mean scaled_rows masked_rows logits_and_probs log_rate left_to_right
    many_chains many_states coupled_states robust_level coupled_scores probits_augmented quantiles_augmented
    hinge_of_a_square coupled_rates quadratic_mean regression_event logistic_scale
    nonlinear_dynamics random_effects
"""
"""Cases whose families others have in programs that are alike."""
