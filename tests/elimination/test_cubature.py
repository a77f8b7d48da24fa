"""Points whose mean statistics are the expected ones, and the modes, of every family."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import InverseWishart
from scipy import stats
from scipy.integrate import quad
from scipy.special import digamma

from bayeslab.distributions import (
    Beta,
    Dirichlet,
    Gamma,
    GeneralisedInverseGaussian,
    InverseGamma,
    JointNormal,
    MarkovChain,
    PolyaGamma,
    TruncatedNormal,
    Wishart,
    WishartCholesky,
)
from bayeslab.elimination import cubature
from bayeslab.elimination.families import FAMILIES
from bayeslab.programs.program import precision_scope

ROW = {family.name: family for family in FAMILIES}
SCALE = np.array([[2.0, 0.5], [0.5, 1.0]])


def mean_of(density: Callable[[float], float], low: float, high: float) -> Callable[[Callable[[float], float]], float]:
    """Expectations by quadrature."""
    return lambda f: quad(lambda x: density(x) * f(x), low, high, epsabs=1e-13, epsrel=1e-12, limit=200)[0]


GAMMA, BETA = stats.gamma(2.5, scale=1 / 1.5), stats.beta(3.0, 0.8)
TRUNCATED = stats.truncnorm(1.0, np.inf, loc=-1.0, scale=1.0)
BOUNDED = stats.truncnorm(-0.5, 0.5, loc=0.5, scale=1.0)
TAIL_MASS = quad(lambda x: np.exp(-50 * x - x**2 / 2), 0, 1, epsabs=0, epsrel=1e-13)[0]
LOG_DETERMINANT = digamma(5 / 2) + digamma(4 / 2) + 2 * np.log(2) + np.log(np.linalg.det(SCALE))
INVERSE = stats.geninvgauss(0.5, np.sqrt(3.0), scale=np.sqrt(0.75)).pdf
DIRICHLET = np.array([3.0, 0.4, 10.0, 1.0])


def far_tail(x: float) -> float:
    """The density of a standard normal variable above 50, at 50 + x."""
    return np.exp(-50 * x - x**2 / 2) / TAIL_MASS


# The family, its member, the statistics, what they are expected to be.
CASES: dict[str, tuple[str, Callable[[], Any], list[Callable[[Any], Any]], list[Any]]] = {
    "Gamma": ("Gamma", lambda: Gamma(2.5, 1.5), [np.log, np.asarray], [mean_of(GAMMA.pdf, 0, 60)(np.log), 2.5 / 1.5]),
    "InverseGamma": (
        "InverseGamma",
        lambda: InverseGamma(2.5, 1.5),
        [np.log, lambda x: 1 / x],
        [-mean_of(GAMMA.pdf, 0, 60)(np.log), 2.5 / 1.5],
    ),
    "Beta": (
        "Beta",
        lambda: Beta(3.0, 0.8),
        [np.log, np.log1p, lambda x: np.log(1 - x)],
        [mean_of(BETA.pdf, 0, 1)(np.log), None, digamma(0.8) - digamma(3.8)],
    ),
    "Dirichlet": ("Dirichlet", lambda: Dirichlet(DIRICHLET), [np.log], [digamma(DIRICHLET) - digamma(DIRICHLET.sum())]),
    "Dirichlet of one": ("Dirichlet", lambda: Dirichlet(np.array([2.0])), [np.log], [np.zeros(1)]),
    "Wishart": (
        "Wishart",
        lambda: Wishart(5.0, scale_matrix=SCALE),
        [lambda x: np.linalg.slogdet(x)[1], np.asarray],
        [LOG_DETERMINANT, 5 * SCALE],
    ),
    "WishartCholesky": (
        "WishartCholesky",
        lambda: WishartCholesky(5.0, scale_matrix=SCALE),
        [lambda x: 2 * np.linalg.slogdet(x)[1], lambda x: x @ np.swapaxes(x, -1, -2)],
        [LOG_DETERMINANT, 5 * SCALE],
    ),
    "InverseWishart": (
        "InverseWishart",
        lambda: InverseWishart(5.0, scale_matrix=np.linalg.inv(SCALE)),
        [lambda x: np.linalg.slogdet(x)[1], np.linalg.inv],
        [-LOG_DETERMINANT, 5 * SCALE],
    ),
    "TruncatedNormal": (
        "TruncatedNormal",
        lambda: TruncatedNormal(-1.0, 1.0, low=0.0),
        [np.asarray, np.square],
        [mean_of(TRUNCATED.pdf, 0, 12)(lambda x: x), mean_of(TRUNCATED.pdf, 0, 12)(np.square)],
    ),
    "between bounds": (
        "TruncatedNormal",
        lambda: TruncatedNormal(0.5, 1.0, low=0.0, high=1.0),
        [np.asarray, np.square],
        [mean_of(BOUNDED.pdf, 0, 1)(lambda x: x), mean_of(BOUNDED.pdf, 0, 1)(np.square)],
    ),
    "far in a tail": (
        "TruncatedNormal",
        lambda: TruncatedNormal(0.0, 1.0, low=50.0),
        [lambda x: x - 50, lambda x: (x - 50) ** 2],
        [mean_of(far_tail, 0, 1)(lambda x: x), mean_of(far_tail, 0, 1)(np.square)],
    ),
    "GeneralisedInverseGaussian": (
        "GeneralisedInverseGaussian",
        lambda: GeneralisedInverseGaussian(0.5, 2.0, 1.5),
        [np.asarray, lambda x: 1 / x],
        [mean_of(INVERSE, 0, 80)(lambda x: x), mean_of(INVERSE, 0, 80)(lambda x: 1 / x)],
    ),
    "PolyaGamma": ("PolyaGamma", lambda: PolyaGamma(1.0, 3.0), [np.asarray], [np.tanh(1.5) / 6]),
}


@pytest.mark.parametrize("case", CASES)
def test_points_have_the_expected_statistics(case: str) -> None:
    name, build, statistics, expected = CASES[case]
    with precision_scope():
        q = build()
        points = np.asarray(ROW[name].points(q))  # type: ignore[misc]
        assert np.all(q.support(points))
    for statistic, value in zip(statistics, expected, strict=True):
        if value is not None:
            np.testing.assert_allclose(statistic(points).mean(0), value, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_modes_are_maxima(case: str) -> None:
    """No value nearby inside the support is more probable."""
    name, build, *_ = CASES[case]
    with precision_scope():
        q = build()
        if ROW[name].mode is None:
            return
        mode = ROW[name].mode(q)  # type: ignore[misc]
        if case in ("Beta", "Dirichlet", "Dirichlet of one"):  # some parameters are below 1: the density is unbounded
            return
        for point in ROW[name].points(q):  # type: ignore[misc]
            for step in (1e-3, 0.1, 1.0):
                assert q.log_prob(mode) >= q.log_prob((1 - step) * mode + step * point) - 1e-12


def test_modes_of_probabilities() -> None:
    with precision_scope():
        np.testing.assert_allclose(
            ROW["Dirichlet"].mode(Dirichlet(np.array([3.0, 2.0, 1.0]))), [2 / 3, 1 / 3, 0], atol=1e-12
        )  # type: ignore[misc]
        np.testing.assert_allclose(ROW["Beta"].mode(Beta(3.0, 2.0)), 2 / 3)  # type: ignore[misc]


def test_points_of_a_joint_normal_have_its_mean_and_covariance() -> None:
    """Rows of three correlated elements, the axes in an unusual order."""
    rng = np.random.default_rng(0)
    factors = np.linalg.cholesky(np.eye(3) + np.einsum("rij,rkj->rik", *[rng.normal(size=(2, 3, 3))] * 2))
    with precision_scope():
        q = JointNormal(jnp.asarray(rng.normal(size=(2, 3))), jnp.asarray(factors), (0,), (3, 2))
        points = np.asarray(cubature.of_joint_normal(q))
        np.testing.assert_allclose(points.mean(0), q.mean, rtol=1e-12)
        for row in range(2):
            covariance = np.cov(points[:, :, row].T, bias=True)
            np.testing.assert_allclose(covariance, np.linalg.inv(factors[row] @ factors[row].T), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_paths_of_a_chain(steps: int) -> None:
    """The most probable one, and the mean log density of another chain, against all paths."""
    rng = np.random.default_rng(steps)
    paths = np.array(np.meshgrid(*[range(3)] * steps)).reshape(steps, -1).T
    with precision_scope():
        one = MarkovChain(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3), steps)
        one = one.condition(rng.normal(size=(steps, 3)))
        other = MarkovChain(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3), steps)
        log_prob = np.asarray(jax.vmap(one.log_prob)(paths))
        np.testing.assert_array_equal(one.mode(), paths[log_prob.argmax()])
        mean = (np.exp(log_prob) * np.asarray(jax.vmap(other.log_prob)(paths))).sum()
        np.testing.assert_allclose(other.expected_log_prob(one), mean, rtol=1e-12)


def test_an_impossible_path_is_no_mode() -> None:
    """Left to right, with a first state that is certain; a batch of two."""
    with precision_scope():
        chain = MarkovChain(np.array([1.0, 0.0]), np.array([[[0.6, 0.4], [0.0, 1.0]], [[0.1, 0.9], [0.0, 1.0]]]), 3)
        np.testing.assert_array_equal(chain.mode(), [[0, 1, 1], [0, 1, 1]])
        assert np.isneginf(chain.expected_log_prob(MarkovChain(np.array([0.5, 0.5]), np.eye(2), 3))).all()
