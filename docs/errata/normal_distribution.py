"""Conjugate analysis of the normal distribution."""

import numpy as np
from scipy import stats
from scipy.integrate import quad

from errata.erratum import Erratum, Shown


def weight_of_the_prior_mean() -> Shown:
    y, mu0, sigma0, sigma = np.array([2.1, 1.7, 3.2, 2.4, 1.9]), 0.5, 1.2, 0.8

    def density(mu: float) -> float:
        return float(stats.norm.pdf(mu, mu0, sigma0) * stats.norm.pdf(y, mu, sigma).prod())

    mass, moment = (quad(lambda mu, power=power: mu**power * density(mu), -5, 8, epsabs=0)[0] for power in (0, 1))
    spread, own = sigma**2 / len(y), sigma0**2 / (sigma**2 / len(y) + sigma0**2)
    return Shown(
        "posterior mean of $\\mu$ given five numbers, $\\mu_0 = 0.5$, $\\sigma_0 = 1.2$, $\\sigma = 0.8$",
        printed=sigma**2 / (spread + sigma0**2) * mu0 + own * y.mean(),
        right=spread / (spread + sigma0**2) * mu0 + own * y.mean(),
        truth=moment / mass,
        by="quadrature",
    )


ERRATA = (
    Erratum(
        "M10",
        "3.2.1.1",
        r"$E[\mu \mid x] = \frac{\sigma^2 \mu_0 + \sigma_0^2 \bar x}{\sigma^2/n + \sigma_0^2}$",
        r"$E[\mu \mid x] = \frac{(\sigma^2/n)\, \mu_0 + \sigma_0^2 \bar x}{\sigma^2/n + \sigma_0^2}$",
        "Weights of an average add up to one.",
        weight_of_the_prior_mean,
    ),
)
