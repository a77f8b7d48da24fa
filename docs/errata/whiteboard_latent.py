"""Whiteboard notes: EM, mixtures and variational inference."""

import numpy as np
from scipy import stats
from scipy.optimize import minimize_scalar

from errata.erratum import Erratum, Shown

JOINT = np.array([[0.10, 0.25], [0.30, 0.05]])  # p(x, z_1, z_2) at the x that was seen


def lower_bound() -> Shown:
    posterior = JOINT / JOINT.sum()
    entropy = -float((posterior * np.log(posterior)).sum())
    return Shown(
        "lower bound at $q = p(z \\mid x)$, four values of $z$",
        printed=float((posterior * JOINT).sum()) + entropy,
        right=float((posterior * np.log(JOINT)).sum()) + entropy,
        truth=float(np.log(JOINT.sum())),
        by="$\\log p(x)$, which the bound touches there",
    )


def multiplier() -> Shown:
    responsibilities = np.random.default_rng(0).dirichlet([1.0, 2.0, 3.0], size=20)
    best = responsibilities.mean(0)

    def objective(scale: float) -> float:
        return float((responsibilities * np.log(scale * best)).sum())

    return Shown(
        "$\\lambda$ at the best weights of three components for 20 points",
        printed=-float((responsibilities / best).sum()),
        right=-float(responsibilities.sum()),
        truth=-(objective(1 + 1e-6) - objective(1 - 1e-6)) / 2e-6,
        by="finite differences",
        tolerance=1e-4,
    )


def normalised_factor() -> Shown:
    other = np.array([0.7, 0.3])
    unnormalised = np.exp(np.log(JOINT) @ other)

    def loss(share: float) -> float:
        q = np.outer([share, 1 - share], other)
        return float((q * (np.log(q) - np.log(JOINT))).sum())

    return Shown(
        "$q_1(z_1 = 1)$ beside $q_2 = (0.7, 0.3)$",
        printed=float(unnormalised[0]),
        right=float(unnormalised[0] / unnormalised.sum()),
        truth=float(minimize_scalar(loss, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-9}).x),
        by="maximisation of the lower bound",
        tolerance=1e-6,
    )


def derivative_of_a_draw() -> Shown:
    noise, mean, spread, step = 0.7, 0.3, 0.8, 1e-6

    def difference(s: float) -> float:
        """log p - log q at the draw, p a Student distribution."""
        z = mean + s * noise
        return float(stats.t.logpdf(z, 3) - stats.norm.logpdf(z, mean, s))

    z = mean + spread * noise
    path = (-4 * z / (3 + z**2) + (z - mean) / spread**2) * noise
    explicit = ((z - mean) ** 2 / spread**2 - 1) / spread  # of log q in s at a fixed z
    return Shown(
        "$\\nabla_s [\\log p(z) - \\log q_s(z)]$ of one draw $z = 0.3 + 0.7 s$, $q_s = N(0.3, s^2)$, $s = 0.8$, $p$ a"
        " Student distribution",
        printed=path,
        right=path - explicit,
        truth=(difference(spread + step) - difference(spread - step)) / (2 * step),
        by="finite differences",
        tolerance=1e-7,
    )


ERRATA = (
    Erratum(
        "W20",
        "EM",
        r"$\text{ELBO} = E_q[p(x, z)] + H(q)$; $\mathrm{KL}(p, q)$; the M-step $= E[\log p]$; the E-step maximises over"
        r" $q$ at $q^t$",
        r"$\text{ELBO} = E_q[\log p(x, z)] + H(q)$; $\mathrm{KL}(q \Vert p)$; $\arg\max_\theta E[\log p]$; $q^{t+1}$ is"
        r" the maximiser",
        shown=lower_bound,
    ),
    Erratum(
        "W21",
        "Gaussian mixtures",
        r"$\sum_k \sum_i \frac{1}{p_k} p(z_i = k \mid x_i) + \lambda \sum_k p_k = 0$; $E[p(x, z \mid \theta)]$;"
        r" $\sum_{z_2, \dots, z_K}$",
        r"$\sum_k \sum_i p(z_i = k \mid x_i) + \lambda \sum_k p_k = 0$; $E[\log p(x, z \mid \theta)]$;"
        r" $\sum_{z_2, \dots, z_N}$",
        "The line comes from a multiplication by $p_k$.",
        multiplier,
    ),
    Erratum(
        "W22",
        "variational inference",
        r"$q_j(Z_j) = \hat p(X, Z_j)$",
        r"$q_j(Z_j) \propto \hat p(X, Z_j)$",
        shown=normalised_factor,
    ),
    Erratum(
        "W23",
        "stochastic gradient variational inference",
        r"$\nabla_\varphi [\log p(x, z) - \log q_\varphi(z)] = \nabla_z [\log p(x, z) - \log q_\varphi(z)]\,"
        r" \nabla_\varphi z$",
        r"$\nabla_\varphi [\log p(x, z) - \log q_\varphi(z)] = \nabla_z [\log p(x, z) - \log q_\varphi(z)]\,"
        r" \nabla_\varphi z - \frac{\partial}{\partial \varphi} \log q_\varphi(z)$",
        "The last term has expectation zero, so the gradient estimated from the printed form is unbiased all the same.",
        derivative_of_a_draw,
    ),
)
