"""Conjugate analysis of the normal distribution."""

import numpy as np
from scipy import stats
from scipy.integrate import dblquad, quad
from scipy.special import factorial

from bayeslab.models import normal_gamma, normal_wishart
from errata.erratum import Erratum, Shown


def exponential_family_is_normalised_once() -> Shown:
    theta, x = np.log(1.5), 2
    log_partition = np.exp(theta)
    density = np.exp(theta * x - log_partition) / factorial(x)
    return Shown(
        r"$P(x = 2)$ of a Poisson variable of mean 1.5, $g = e^{-A}$",
        printed=np.exp(-log_partition) * density,
        right=density,
        truth=stats.poisson.pmf(x, 1.5),
        by="SciPy",
    )


def normaliser_of_the_prior() -> Shown:
    tau0, features = 0.7, 3
    factor = quad(lambda x: np.exp(-(x**2) / (2 * tau0**2)), -np.inf, np.inf)[0]
    return Shown(
        r"integral of $e^{-\beta'\beta/(2\tau_0^2)}$ over three coefficients, $\tau_0 = 0.7$",
        printed=(2 * np.pi) ** (features / 2) * tau0**0.5,
        right=(2 * np.pi) ** (features / 2) * tau0**features,
        truth=factor**features,
        by="quadrature",
        tolerance=1e-6,
    )


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


def rate_of_the_precision() -> Shown:
    data = normal_gamma.example()
    y, mu0, kappa0, alpha, beta = (data[name] for name in ("y", "mu0", "kappa0", "alpha", "beta"))
    n, centre, squares = len(y), y.mean(), ((y - y.mean()) ** 2).sum()

    def density(mu: float, tau: float) -> float:
        exponent = beta + (kappa0 * (mu - mu0) ** 2 + ((y - mu) ** 2).sum()) / 2
        return float(tau ** (alpha + (n - 1) / 2) * np.exp(-tau * exponent))

    mass, moment = (
        dblquad(lambda mu, tau, power=power: tau**power * density(mu, tau), 0, 8, -6, 8, epsabs=1e-12)[0]
        for power in (0, 1)
    )

    def mean(weight: float) -> float:
        return (alpha + n / 2) / (beta + squares / 2 + weight * (centre - mu0) ** 2 / 2)

    return Shown(
        r"posterior mean of $\tau$, data of `normal_gamma.example()` ($n = 6$, $\kappa_0 = 0.3$)",
        printed=mean(n / (n + 1)),
        right=mean(kappa0 * n / (kappa0 + n)),
        truth=moment / mass,
        by="quadrature",
        tolerance=1e-5,
    )


def posterior_of_the_precision_matrix() -> Shown:
    data = normal_wishart.example()
    y, mu0, scale, n0, kappa0 = (data[name] for name in ("y", "mu0", "scale", "n0", "kappa0"))
    n, distance = len(y), y.mean(0) - mu0
    scatter = (y - y.mean(0)).T @ (y - y.mean(0))
    outer = np.outer(distance, distance)
    rng = np.random.default_rng(0)
    points = [(precision, rng.normal(size=2)) for precision in stats.wishart.rvs(5, scale, 50, rng)]

    def log_density(precision: np.ndarray, mu: np.ndarray, wishart, centre: np.ndarray, weight: float) -> float:
        covariance = np.linalg.inv(weight * precision)
        return wishart.logpdf(precision) + stats.multivariate_normal.logpdf(mu, centre, covariance)

    def log_joint(precision: np.ndarray, mu: np.ndarray) -> float:
        prior = log_density(precision, mu, stats.wishart(n0, scale), mu0, kappa0)
        return prior + stats.multivariate_normal.logpdf(y, mu, np.linalg.inv(precision)).sum()

    def spread(wishart) -> float:
        centre, weight = (kappa0 * mu0 + n * y.mean(0)) / (kappa0 + n), kappa0 + n
        return float(np.std([log_joint(*point) - log_density(*point, wishart, centre, weight) for point in points]))

    rate = np.linalg.inv(scale) + scatter + kappa0 * n / (kappa0 + n) * outer
    return Shown(
        r"standard deviation of log joint minus log posterior over 50 random $(\mu, \Lambda)$,"
        r" data of `normal_wishart.example()`, $\bar\Sigma$ read as $S$",
        printed=spread(stats.wishart(n0 + n / 2, scale + (scatter + kappa0 / (kappa0 + n) * outer) / 2)),
        right=spread(stats.wishart(n0 + n, np.linalg.inv(rate))),
        truth=0.0,
        by="Bayes' rule: the difference is the log evidence everywhere",
    )


ERRATA = (
    Erratum(
        "M7",
        "3.2",
        r"$f(x \mid \theta) = h(x)\, g(\theta) \exp(\eta(\theta)' T(x) - A(\theta))$",
        r"$f(x \mid \theta) = h(x) \exp(\eta(\theta)' T(x) - A(\theta))$, or $A = 0$ and $g$ the normaliser",
        r"It is normalised twice. Later in 3.2 and in 3.4 the symbol $g$ stands for $A$, in the exponent.",
        exponential_family_is_normalised_once,
    ),
    Erratum(
        "M8",
        "3.3, 4.2",
        r"$p(\beta) = (2\pi)^{-p/2}\, \tau_0^{-1/2} \exp(-\beta'\beta / (2\tau_0^2))$, in 3.3 with $\gamma^{-1/2}$",
        r"$p(\beta) = (2\pi)^{-p/2}\, \tau_0^{-p} \exp(-\beta'\beta / (2\tau_0^2))$",
        "The posterior is the same, the evidence is not.",
        normaliser_of_the_prior,
    ),
    Erratum(
        "M9",
        "3.4",
        "only exponential families have conjugate priors",
        r"so it is where the support does not move; a uniform $x$ on $(0, \theta)$, with a Pareto prior on $\theta$"
        r" that starts at $m$ with shape $a$, has a Pareto posterior that starts at $\max(m, x_1, \ldots, x_n)$ with"
        r" shape $a + n$",
    ),
    Erratum(
        "M10",
        "3.2.1.1",
        r"$E[\mu \mid x] = \frac{\sigma^2 \mu_0 + \sigma_0^2 \bar x}{\sigma^2/n + \sigma_0^2}$",
        r"$E[\mu \mid x] = \frac{(\sigma^2/n)\, \mu_0 + \sigma_0^2 \bar x}{\sigma^2/n + \sigma_0^2}$",
        "Weights of an average add up to one. The variance of the prior is also written "
        r"$\sigma^2$ where it should be $\sigma_0^2$.",
        weight_of_the_prior_mean,
    ),
    Erratum(
        "M11",
        "3.2.1.3",
        r"$\tau \mid x \sim \mathrm{Ga}\left(\alpha + \frac{n}{2},\;"
        r" \beta + \frac{S}{2} + \frac{n}{n + 1} \frac{(\bar x - \mu_0)^2}{2}\right)$",
        r"$\tau \mid x \sim \mathrm{Ga}\left(\alpha + \frac{n}{2},\;"
        r" \beta + \frac{S}{2} + \frac{\kappa_0 n}{\kappa_0 + n} \frac{(\bar x - \mu_0)^2}{2}\right)$",
        r"The printed rate holds for $\kappa_0 = 1$ only. $S = \sum_i (x_i - \bar x)^2$.",
        rate_of_the_precision,
    ),
    Erratum(
        "M12",
        "3.2.2",
        r"$\Lambda \mid x \sim \mathrm{Wi}\left(n_0 + \frac{n}{2},\; \Lambda_0 + \frac12 \left[\bar\Sigma +"
        r" \frac{\kappa_0}{\kappa_0 + n} (\bar x - \mu_0)(\bar x - \mu_0)'\right]\right)$",
        r"$\Lambda \mid x \sim \mathrm{Wi}(V_n, n_0 + n)$ with $V_n^{-1} = \Lambda_0^{-1} + S +"
        r" \frac{\kappa_0 n}{\kappa_0 + n} (\bar x - \mu_0)(\bar x - \mu_0)'$",
        r"The $n/2$, the $\frac12$, a lost $n$, and a scale $\Lambda_0$ (so the density of the prior has it) added to"
        r" inverse scales. $S = \sum_i (x_i - \bar x)(x_i - \bar x)'$.",
        posterior_of_the_precision_matrix,
    ),
    Erratum(
        "M13",
        "3.2.2",
        r"dimension $d$ in the Wishart density; a scale and then degrees of freedom in the prior, the reverse in the"
        r" posterior",
        r"dimension $p$, as in the text; one order throughout, such as $\mathrm{Wi}(\Lambda_0, n_0)$",
    ),
)
