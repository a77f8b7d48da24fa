"""The lecture models, one module each: `model`, the stated `posterior` and `evidence`, `example`, `data`."""

from . import (
    beta_binomial,
    dirichlet_multinomial,
    gaussian_mixture,
    inverse_gamma,
    linear_regression,
    linear_regression_known_noise,
    multivariate_gaussian_mixture,
    normal_gamma,
    normal_known_mean,
    normal_known_variance,
    normal_wishart,
    weight_matrix,
)

LECTURES = (
    dirichlet_multinomial,
    weight_matrix,
    beta_binomial,
    normal_known_variance,
    normal_known_mean,
    inverse_gamma,
    normal_gamma,
    normal_wishart,
    linear_regression_known_noise,
    linear_regression,
    gaussian_mixture,
    multivariate_gaussian_mixture,
)
