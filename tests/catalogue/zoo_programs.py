"""The programs of the zoo."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.handlers import mask, scale

from bayeslab.distributions import MarkovChain
from root_gamma import RootGamma

sample, plate = numpyro.sample, numpyro.plate
Y = np.array([0.3, -1.2, 2.2, 0.9, 1.5])
X = np.stack([np.ones(5), np.array([-1.0, -0.5, 0.2, 0.6, 1.1])], axis=1)
COUNTS = np.array([2, 0, 3, 1, 4])
FLAGS = np.array([1, 0, 1, 1, 0])
GROUP = np.array([0, 1, 2, 1, 0])


def normal_mean() -> None:
    mu = sample("mu", dist.Normal(1.0, 2.0))
    with plate("row", 5):
        sample("y", dist.Normal(mu, 0.7))


def normal_precision() -> None:
    tau = sample("tau", dist.Gamma(2.0, 3.0))
    with plate("row", 5):
        sample("y", dist.Normal(0.5, 1 / jnp.sqrt(tau)))


def normal_variance() -> None:
    variance = sample("variance", dist.InverseGamma(2.0, 3.0))
    with plate("row", 5):
        sample("y", dist.Normal(0.5, jnp.sqrt(variance)))


def vague_precision() -> None:
    tau = sample("tau", dist.Gamma(0.001, 0.001))
    with plate("row", 5):
        sample("y", dist.Normal(0.5, 1 / jnp.sqrt(tau)))


def sd_has_no_family() -> None:
    sigma = sample("sigma", dist.Gamma(2.0, 3.0))
    with plate("row", 5):
        sample("y", dist.Normal(0.5, sigma))


def poisson_rate() -> None:
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Poisson(3.0 * rate))


def exponential_prior() -> None:
    rate = sample("rate", dist.Exponential(0.5))
    with plate("row", 5):
        sample("y", dist.Poisson(rate))


def chi2_prior() -> None:
    rate = sample("rate", dist.Chi2(3.0))
    with plate("row", 5):
        sample("y", dist.Exponential(rate))


def gamma_gamma() -> None:
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Gamma(1.5, rate))


def bernoulli_probability() -> None:
    p = sample("p", dist.Beta(2.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Bernoulli(p))


def binomial_probability() -> None:
    p = sample("p", dist.Beta(0.5, 0.5))
    with plate("row", 5):
        sample("y", dist.Binomial(6, p))


def geometric_probability() -> None:
    p = sample("p", dist.Beta(2.0, 2.0))
    with plate("row", 5):
        sample("y", dist.GeometricProbs(p))


def categorical_probabilities() -> None:
    p = sample("p", dist.Dirichlet(jnp.array([1.0, 2.0, 0.5])))
    with plate("row", 5):
        sample("y", dist.Categorical(p))


def multinomial_probabilities() -> None:
    p = sample("p", dist.Dirichlet(jnp.ones(3)))
    sample("y", dist.Multinomial(9, p))


def rows_of_probabilities() -> None:
    with plate("group", 3):
        p = sample("p", dist.Dirichlet(jnp.ones(3)))
    with plate("row", 5):
        sample("y", dist.Categorical(p[GROUP]))


def wishart() -> None:
    precision = sample("precision", dist.Wishart(4.0, jnp.eye(2)))
    with plate("row", 5):
        sample("y", dist.MultivariateNormal(jnp.zeros(2), precision_matrix=precision))


def inverse_wishart() -> None:
    covariance = sample("covariance", dist.InverseWishart(5.0, jnp.eye(2)))
    with plate("row", 5):
        sample("y", dist.MultivariateNormal(jnp.zeros(2), covariance_matrix=covariance))


def wishart_cholesky() -> None:
    factor = sample("factor", dist.WishartCholesky(4.0, jnp.eye(2)))
    with plate("row", 5):
        sample("y", dist.MultivariateNormal(jnp.zeros(2), precision_matrix=factor @ factor.T))


def regression() -> None:
    tau = sample("tau", dist.Gamma(2.0, 1.0))
    with plate("feature", 2):
        w = sample("w", dist.Normal(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Normal(X @ w, 1 / jnp.sqrt(tau)))


def regression_event() -> None:
    w = sample("w", dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.3], [0.3, 2.0]])))
    sample("y", dist.Normal(X @ w, 0.5).to_event(1))


def regression_expanded() -> None:
    w = sample("w", dist.Normal(0.0, 1.0).expand([2]))
    sample("y", dist.Normal(X @ w, 0.5))


def matrix_regression() -> None:
    w = sample("w", dist.Normal(0.0, 1.0).expand([2, 3]).to_event(2))
    sample("y", dist.Normal(X @ w, 0.5).to_event(2))


def many_regressions() -> None:
    with plate("group", 3, dim=-1):
        w = sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with plate("row", 5, dim=-2):
            sample("y", dist.Normal(jnp.einsum("rf,gf->rg", X, w), 0.5))


def random_effects() -> None:
    spread = sample("spread", dist.Gamma(2.0, 1.0))
    with plate("group", 3):
        a = sample("a", dist.Normal(1.0, 1 / jnp.sqrt(spread)))
    with plate("row", 5):
        sample("y", dist.Normal(a[GROUP], 0.5))


def nested_plates() -> None:
    with plate("group", 3, dim=-2):
        mu = sample("mu", dist.Normal(0.0, 1.0))
        with plate("row", 5, dim=-1):
            theta = sample("theta", dist.Normal(mu, 0.6))
            sample("y", dist.Normal(theta, 0.4))


def crossed_effects() -> None:
    with plate("left", 3):
        a = sample("a", dist.Normal(0.0, 1.0))
    with plate("right", 5):
        b = sample("b", dist.Normal(0.0, 1.0))
    sample("y", dist.Normal(a[:, None] + b, 0.5).to_event(2))


def through_deterministic() -> None:
    mu = sample("mu", dist.Normal(0.0, 1.0))
    line = numpyro.deterministic("line", 2.0 * mu + jnp.arange(5.0))
    with plate("row", 5):
        sample("y", dist.Normal(line, 0.7))


def two_children() -> None:
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with plate("row", 5):
        sample("n", dist.Poisson(rate))
        sample("y", dist.Normal(0.0, 1 / jnp.sqrt(rate)))


def log_normal_child() -> None:
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.LogNormal(mu, 0.5))


def transformed_child() -> None:
    mu = sample("mu", dist.Normal(0.0, 1.0))
    shift = dist.transforms.AffineTransform(1.0, 2.0)
    with plate("row", 5):
        sample("y", dist.TransformedDistribution(dist.Normal(mu, 0.5), shift))


def half_normal_mean() -> None:
    mu = sample("mu", dist.HalfNormal(2.0))
    with plate("row", 5):
        sample("y", dist.Normal(mu, 0.7))


def truncated_mean() -> None:
    mu = sample("mu", dist.TruncatedNormal(0.3, 2.0, low=-0.5, high=1.5))
    with plate("row", 5):
        sample("y", dist.Normal(mu, 0.7))


def uniform_mean() -> None:
    mu = sample("mu", dist.Uniform(-1.0, 3.0))
    with plate("row", 5):
        sample("y", dist.Normal(mu, 0.7))


def uniform_probability() -> None:
    p = sample("p", dist.Uniform(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Bernoulli(p))


def flat_mean() -> None:
    mu = sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    with plate("row", 5):
        sample("y", dist.Normal(mu, 0.7))


def mixture() -> None:
    weight = sample("weight", dist.Dirichlet(jnp.ones(3)))
    with plate("component", 3):
        mu = sample("mu", dist.Normal(0.0, 2.0))
        tau = sample("tau", dist.Gamma(2.0, 1.0))
    with plate("row", 5):
        z = sample("z", dist.Categorical(weight))
        sample("y", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])))


def switch() -> None:
    on = sample("on", dist.Bernoulli(0.3))
    w = sample("w", dist.Normal(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Normal(on * w * X[:, 1], 0.5))


def change_point() -> None:
    when = sample("when", dist.DiscreteUniform(1, 4))
    early, late = sample("early", dist.Gamma(2.0, 1.0)), sample("late", dist.Gamma(2.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Poisson(jnp.where(jnp.arange(5) < when, early, late)))


def hidden_count() -> None:
    with plate("row", 5):
        n = sample("n", dist.Binomial(4, 0.4))
        sample("y", dist.Normal(1.0 * n, 0.5))


def scaled_rows() -> None:
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with plate("row", 5), scale(scale=3.0):
        sample("y", dist.Normal(mu, 0.7))


def masked_rows() -> None:
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with plate("row", 5), mask(mask=jnp.array([True, False, True, True, False])):
        sample("y", dist.Normal(mu, 0.7))


def student_200() -> None:
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.StudentT(200.0, mu, 1.0))


def logistic() -> None:
    w = sample("w", dist.Normal(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Bernoulli(logits=w * X[:, 1]))


def concentration() -> None:
    alpha = sample("alpha", dist.Gamma(2.0, 1.0))
    with plate("row", 4):
        sample("y", dist.Dirichlet(alpha * jnp.ones(3)))


def quadratic_mean() -> None:
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Normal(mu + 0.01 * mu**2, 1.0))


def coupled_labels() -> None:
    with plate("row", 5):
        z = sample("z", dist.Bernoulli(0.4))
        sample("y", dist.Normal(jnp.array([0.0, 2.0])[z] + z[jnp.array([1, 2, 3, 4, 0])], 1.0))


def coupled_rates() -> None:
    rate = sample("rate", dist.Gamma(2.0, 1.0).expand([3]).to_event(1))
    with plate("row", 5):
        sample("y", dist.Poisson(rate.sum()))


def logistic_scale() -> None:
    mu = sample("mu", dist.Normal(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Normal(0.0, jnp.exp(mu)))


def cauchy_prior() -> None:
    mu = sample("mu", dist.Cauchy(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Normal(mu, 1.0))


def logits_and_probs() -> None:
    p = sample("p", dist.Beta(2.0, 3.0))
    with plate("row", 5):
        sample("y", dist.Bernoulli(logits=jnp.log(p) - jnp.log1p(-p)))


def negative_binomial() -> None:
    p = sample("p", dist.Beta(2.0, 3.0))
    with plate("row", 5):
        sample("y", dist.NegativeBinomialProbs(3.0, p))


def covariance_matrix() -> None:
    mu = sample("mu", dist.MultivariateNormal(jnp.zeros(2), jnp.array([[1.0, 0.3], [0.3, 2.0]])))
    with plate("row", 5):
        sample("y", dist.MultivariateNormal(mu, scale_tril=jnp.array([[0.5, 0.0], [0.2, 0.7]])))


def log_rate() -> None:
    rate = sample("rate", dist.Gamma(2.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Poisson(jnp.exp(jnp.log(rate) + X[:, 1])))


def hidden_chain() -> None:
    z = sample("z", MarkovChain(np.array([0.5, 0.3, 0.2]), STICKY, 5))
    with plate("step", 5):
        sample("y", dist.Normal(jnp.array([-1.0, 0.5, 3.0])[z], 0.7))


def learned_chain() -> None:
    with plate("state", 3):
        moves = sample("moves", dist.Dirichlet(jnp.ones(3)))
        mu = sample("mu", dist.Normal(0.0, 2.0))
    z = sample("z", MarkovChain(np.array([0.5, 0.3, 0.2]), moves, 5))
    with plate("step", 5):
        sample("y", dist.Normal(mu[z], 0.7))


def left_to_right() -> None:
    z = sample("z", MarkovChain(jnp.array([1.0, 0.0]), jnp.array([[0.7, 0.3], [0.0, 1.0]]), 5))
    sample("y", dist.Normal(2.0 * z, 1.0).to_event(1))


def many_chains() -> None:
    with plate("sequence", 2):
        z = sample("z", MarkovChain(np.array([0.5, 0.3, 0.2]), STICKY, 5))
        sample("y", dist.Normal(jnp.array([-1.0, 0.5, 3.0])[z], 0.7).to_event(1))


def coupled_chain() -> None:
    z = sample("z", MarkovChain(np.array([0.5, 0.3, 0.2]), STICKY, 5))
    sample("y", dist.Normal(1.0 * z[1:] * z[:-1], 0.7).to_event(1))


def own_distribution() -> None:
    root = sample("root", RootGamma(2.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Normal(0.3, 1 / root))


STICKY = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
