"""The posterior as prior times likelihood: what importance weights, tempering and rejection need apart."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.infer.util import compute_log_probs

from bayeslab.elimination.terms import terms
from bayeslab.methods.wrappers.collapsed import without_discrete_sites
from bayeslab.prediction.prior_draws import require_latent_draws
from bayeslab.programs.missing.observed_values import known_values
from bayeslab.programs.program import Bound, Values, evaluate
from bayeslab.programs.unconstrained import constrain_flat, flat_log_posterior, flat_position, number_or_zero_mass
from bayeslab.transforms.analysis import Analysis


class LogDensities(NamedTuple):
    """The two parts of the log joint at a point: of the latent sites, and of everything else given them."""

    prior: Array
    likelihood: Array


def densities(bound: Bound, latent: Values) -> LogDensities:
    """Log prior and log likelihood, factors included, in the space that the sites are written in."""
    log_probs, _ = compute_log_probs(evaluate, (bound,), {}, latent)
    prior = sum((log_probs[name] for name in bound.latent), jnp.zeros(()))
    others = [value for name, value in log_probs.items() if name not in bound.latent]
    return LogDensities(prior, number_or_zero_mass(sum(others, jnp.zeros(()))))


def flat_densities(bound: Bound, flat: Array) -> LogDensities:
    """Log prior, with the Jacobian, and log likelihood at flat unconstrained coordinates."""
    values = constrain_flat(bound, flat)
    likelihood = densities(bound, {name: values[name] for name in bound.latent}).likelihood
    return LogDensities(number_or_zero_mass(flat_log_posterior(bound, flat) - likelihood), likelihood)


def log_likelihoods(bound: Bound, positions: Array) -> Array:
    """Log likelihoods (particle,) at flat unconstrained coordinates (particle, coordinate)."""
    return jax.vmap(lambda flat: flat_densities(bound, flat).likelihood)(positions)


def flat_prior_draw(key: Array, bound: Bound) -> Array:
    """A draw from the prior, in flat unconstrained coordinates."""
    return flat_position(bound, prior_values(key, bound))


def prior_values(key: Array, bound: Bound) -> Values:
    """A draw of the latent sites of a program, which may have sites integrated out, from their prior given what is
    observed of sites that they depend on."""
    sites = bound.plain.prior_draw(key, known_values(bound))
    return {name: jnp.asarray(sites[name]["value"]) for name in bound.latent}


def tempered_target(analysis: Analysis, method: object) -> Bound:
    """The program with its discrete sites integrated out, for methods that go from its prior to its posterior.

    Raises ValueError where the prior of what is left cannot be drawn by itself.
    """
    name, bound = type(method).__name__, without_discrete_sites(analysis, method)
    require_drawn_prior(bound, name)
    require_prior_of_its_own(bound, name)
    return bound


def require_prior_of_its_own(bound: Bound, name: str) -> None:
    """Raises ValueError where the prior of a latent site depends on one that is integrated out. name: of the method."""
    if unlike := depends_on_eliminated(bound):
        site, parent = unlike
        raise ValueError(
            f"{name} draws from the prior, but that of site '{site}' depends on '{parent}', which is integrated out"
        )


def require_drawn_prior(bound: Bound, name: str) -> None:
    """Raises ValueError where the prior of the latent sites cannot be drawn. name: of the method."""
    require_latent_draws(bound, name)
    if split := sorted(set(bound.imputed) - set(bound.gaps)):
        raise ValueError(f"{name} draws from the prior, but elements of {split} are given and depend on the others")


def depends_on_eliminated(bound: Bound) -> tuple[str, str] | None:
    """A latent site whose prior depends on a site that is integrated out, and that site; None where there is none."""
    if bound.transform is None:
        return None
    priors = terms(bound.plain).priors
    pairs = [(name, parent) for name in bound.latent for parent in sorted(priors[name].depends - set(bound.latent))]
    return pairs[0] if pairs else None
