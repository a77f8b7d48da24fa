"""Programs of the zoo with variables given which something else is Normal."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import bayeslab as bl
from bayeslab.distributions import BernoulliProbit, PolyaGamma, hinge_factor
from zoo_programs import X

sample, plate = numpyro.sample, numpyro.plate


def laplace_scale() -> None:
    with plate("feature", 2):
        variance = sample("variance", dist.Exponential(2.0))
        w = sample("w", dist.Normal(0.0, jnp.sqrt(variance)))
    with plate("row", 5):
        sample("y", dist.Normal(X @ w, 0.7))


def logits() -> None:
    with plate("feature", 2):
        w = sample("w", dist.Normal(0.0, 1.0))
    with plate("row", 5):
        sample("y", dist.Bernoulli(logits=X @ w))


def probits() -> None:
    w = sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with plate("row", 5):
        sample("y", BernoulliProbit(X @ w))


def quantiles() -> None:
    scale = sample("scale", dist.InverseGamma(2.0, 1.0))
    w = sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with plate("row", 5):
        sample("y", dist.AsymmetricLaplaceQuantile(X @ w, scale, 0.7))


def hinges() -> None:
    w = sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with plate("row", 5):
        hinge_factor("loss", X @ w, 1.5)


quantiles_augmented = bl.augment(quantiles)
hinges_augmented = bl.augment(hinges)
logits_augmented = bl.augment(logits)
probits_augmented = bl.augment(probits)


def root_of_polya_gamma() -> None:
    """A misprint: the variable is no precision of a Normal, whose density has its log."""
    omega = sample("omega", PolyaGamma(1.0, 0.5))
    with plate("row", 5):
        sample("y", dist.Normal(0.0, 1 / jnp.sqrt(omega)))


def scale_for_variance() -> None:
    """A misprint: a variance in the place of a standard deviation."""
    with plate("feature", 2):
        variance = sample("variance", dist.Exponential(2.0))
        w = sample("w", dist.Normal(0.0, variance))
    with plate("row", 5):
        sample("y", dist.Normal(X @ w, 0.7))


def drift_in_the_spread() -> None:
    """A misprint of quantile regression: the standard deviation has the variable without its root."""
    mixing = sample("mixing", dist.Exponential(1.0))
    with plate("row", 5):
        sample("y", dist.Normal(0.8 * mixing, 1.3 * mixing))


def hinge_of_a_square() -> None:
    """A misprint of the hinge: its variable is the variance, and not the standard deviation, of a Normal."""
    w = sample("w", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    with plate("row", 5):
        mixing = sample("mixing", dist.Gamma(0.5, 0.5))
        numpyro.factor("loss", -((1 + mixing - X @ w) ** 2) / (2 * mixing**2))
