"""Small programs, one idea each: what elimination must find, and what it must refuse.

Every entry: the program, its data, and for every latent site the family of its conditional, or None where it has none.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.handlers import mask, scale

from bayeslab.distributions import MarkovChain
from bayeslab.families import two

sample, plate = numpyro.sample, numpyro.plate
Y = np.array([0.3, -1.2, 2.2, 0.9, 1.5])
X = np.stack([np.ones(5), np.array([-1.0, -0.5, 0.2, 0.6, 1.1])], axis=1)
COUNTS = np.array([2, 0, 3, 1, 4])
FLAGS = np.array([1, 0, 1, 1, 0])
GROUP = np.array([0, 1, 2, 1, 0])


class Case(NamedTuple):
    program: Callable[..., None]
    data: dict[str, Any]
    families: dict[str, str | None]


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


class RootGamma(dist.Distribution):
    """The root of a Gamma variate: a prior on 1 / sd. Its class names its own family."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    pytree_data_fields = ("concentration", "rate")
    family = two("RootGamma", lambda x: (jnp.log(x), -(x**2)), lambda eta, _: RootGamma((eta[0] + 1) / 2, eta[1]))

    def __init__(self, concentration: Any, rate: Any, *, validate_args: bool | None = None):
        self.concentration, self.rate = jnp.asarray(concentration), jnp.asarray(rate)
        super().__init__(jnp.broadcast_shapes(self.concentration.shape, self.rate.shape), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        return jnp.sqrt(dist.Gamma(self.concentration, self.rate).sample(key, sample_shape))

    def log_prob(self, value: Array) -> Array:
        return dist.Gamma(self.concentration, self.rate).log_prob(value**2) + jnp.log(2 * value)


def own_distribution() -> None:
    root = sample("root", RootGamma(2.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Normal(0.3, 1 / root))


STICKY = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
NORMALS = np.stack([Y, Y[::-1]], axis=1)
COUNTED = {"y": COUNTS}
REAL = {"y": Y}

CASES = {
    "normal_mean": Case(normal_mean, REAL, {"mu": "Normal"}),
    "normal_precision": Case(normal_precision, REAL, {"tau": "Gamma"}),
    "normal_variance": Case(normal_variance, REAL, {"variance": "InverseGamma"}),
    "vague_precision": Case(vague_precision, REAL, {"tau": "Gamma"}),
    "sd_has_no_family": Case(sd_has_no_family, REAL, {"sigma": None}),
    "poisson_rate": Case(poisson_rate, COUNTED, {"rate": "Gamma"}),
    "exponential_prior": Case(exponential_prior, COUNTED, {"rate": "Gamma"}),
    "chi2_prior": Case(chi2_prior, {"y": np.abs(Y)}, {"rate": "Gamma"}),
    "gamma_gamma": Case(gamma_gamma, {"y": np.abs(Y)}, {"rate": "Gamma"}),
    "bernoulli_probability": Case(bernoulli_probability, {"y": FLAGS}, {"p": "Beta"}),
    "bernoulli_all_ones": Case(bernoulli_probability, {"y": np.ones(5, int)}, {"p": "Beta"}),
    "binomial_probability": Case(binomial_probability, COUNTED, {"p": "Beta"}),
    "geometric_probability": Case(geometric_probability, COUNTED, {"p": "Beta"}),
    "categorical_probabilities": Case(categorical_probabilities, {"y": GROUP}, {"p": "Dirichlet"}),
    "multinomial_probabilities": Case(multinomial_probabilities, {"y": np.array([2, 3, 4])}, {"p": "Dirichlet"}),
    "rows_of_probabilities": Case(rows_of_probabilities, {"y": GROUP}, {"p": "Dirichlet"}),
    "wishart": Case(wishart, {"y": NORMALS}, {"precision": "Wishart"}),
    "inverse_wishart": Case(inverse_wishart, {"y": NORMALS}, {"covariance": "InverseWishart"}),
    "wishart_cholesky": Case(wishart_cholesky, {"y": NORMALS}, {"factor": "WishartCholesky"}),
    "regression": Case(regression, REAL, {"tau": "Gamma", "w": "Normal"}),
    "regression_event": Case(regression_event, REAL, {"w": "Normal"}),
    "regression_expanded": Case(regression_expanded, REAL, {"w": "Normal"}),
    "matrix_regression": Case(matrix_regression, {"y": np.stack([Y, -Y, 2 * Y], axis=1)}, {"w": "Normal"}),
    "many_regressions": Case(many_regressions, {"y": np.stack([Y, -Y, 2 * Y], axis=1)}, {"w": "Normal"}),
    "random_effects": Case(random_effects, REAL, {"spread": "Gamma", "a": "Normal"}),
    "nested_plates": Case(nested_plates, {"y": np.stack([Y, -Y, 2 * Y])}, {"mu": "Normal", "theta": "Normal"}),
    "crossed_effects": Case(crossed_effects, {"y": np.stack([Y, -Y, 2 * Y])}, {"a": "Normal", "b": "Normal"}),
    "through_deterministic": Case(through_deterministic, REAL, {"mu": "Normal"}),
    "two_children": Case(two_children, {"n": COUNTS, "y": Y}, {"rate": "Gamma"}),
    "log_normal_child": Case(log_normal_child, {"y": np.exp(Y)}, {"mu": "Normal"}),
    "transformed_child": Case(transformed_child, REAL, {"mu": "Normal"}),
    "half_normal_mean": Case(half_normal_mean, REAL, {"mu": "TruncatedNormal"}),
    "truncated_mean": Case(truncated_mean, REAL, {"mu": "TruncatedNormal"}),
    "uniform_mean": Case(uniform_mean, REAL, {"mu": "TruncatedNormal"}),
    "uniform_probability": Case(uniform_probability, {"y": FLAGS}, {"p": "Beta"}),
    "flat_mean": Case(flat_mean, REAL, {"mu": "Normal"}),
    "mixture": Case(mixture, REAL, {"weight": "Dirichlet", "mu": "Normal", "tau": "Gamma", "z": "Enumerated"}),
    "switch": Case(switch, REAL, {"on": "Enumerated", "w": "Normal"}),
    "change_point": Case(change_point, COUNTED, {"when": "Enumerated", "early": "Gamma", "late": "Gamma"}),
    "hidden_count": Case(hidden_count, REAL, {"n": "Enumerated"}),
    "scaled_rows": Case(scaled_rows, REAL, {"mu": "Normal"}),
    "masked_rows": Case(masked_rows, REAL, {"mu": "Normal"}),
    "logits_and_probs": Case(logits_and_probs, {"y": FLAGS}, {"p": "Beta"}),
    "negative_binomial": Case(negative_binomial, COUNTED, {"p": "Beta"}),
    "covariance_matrix": Case(covariance_matrix, {"y": NORMALS}, {"mu": "Normal"}),
    "log_rate": Case(log_rate, COUNTED, {"rate": "Gamma"}),
    "hidden_chain": Case(hidden_chain, REAL, {"z": "MarkovChain"}),
    "learned_chain": Case(learned_chain, REAL, {"moves": "Dirichlet", "mu": "Normal", "z": "MarkovChain"}),
    "left_to_right": Case(left_to_right, REAL, {"z": "MarkovChain"}),
    "many_chains": Case(many_chains, {"y": np.stack([Y, -Y])}, {"z": "MarkovChain"}),
    "coupled_chain": Case(coupled_chain, {"y": Y[:4]}, {"z": None}),
    "own_distribution": Case(own_distribution, REAL, {"root": "RootGamma"}),
    "student_200": Case(student_200, REAL, {"mu": None}),
    "logistic": Case(logistic, {"y": FLAGS}, {"w": None}),
    "concentration": Case(concentration, {"y": np.full((4, 3), 1 / 3)}, {"alpha": None}),
    "quadratic_mean": Case(quadratic_mean, REAL, {"mu": None}),
    "coupled_labels": Case(coupled_labels, REAL, {"z": None}),
    "coupled_rates": Case(coupled_rates, COUNTED, {"rate": None}),
    "logistic_scale": Case(logistic_scale, REAL, {"mu": None}),
    "cauchy_prior": Case(cauchy_prior, REAL, {"mu": None}),
}
