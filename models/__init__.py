"""The lecture models, one module each: `model`, the stated `posterior` and `evidence`, `example`, `data`."""

from . import (
    beta_binomial,
    dirichlet_multinomial,
    inverse_gamma,
    linear_regression,
    linear_regression_known_noise,
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
)
