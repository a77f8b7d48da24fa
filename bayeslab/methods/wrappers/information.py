"""The curvature of a log posterior by the Fisher information of its observations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from numpyro.distributions import Distribution
from numpyro.handlers import block, seed, substitute, trace

from bayeslab.distributions.fisher_information import information_coordinates
from bayeslab.programs.program import Bound, evaluate
from bayeslab.programs.unconstrained import constrain_flat, log_posterior, random_position, unravel
from bayeslab.programs.wrapped_distributions import innermost_distribution


def gauss_newton_precision(bound: Bound, flat: Array) -> Array:
    """Minus the Hessian of the log density of the latent sites, plus the information that observations have about them.

    flat: unconstrained coordinates (coordinate,). The result is (coordinate, coordinate).
    """

    def prior(at: Array) -> Array:
        return log_posterior(bound, unravel(bound)(at), _without_observations)

    def coordinates(at: Array) -> Array:
        sites = observed_sites(bound, at)
        return jnp.concatenate([scaled_coordinates(site, information_coordinates).ravel() for site in sites.values()])

    jacobian = jax.jacfwd(coordinates)(flat)
    return jacobian.T @ jacobian - jax.hessian(prior)(flat)


def require_information(bound: Bound) -> None:
    """Raises ValueError where the observations of a program have no information in closed form."""
    if bound.transform is not None:
        raise ValueError("gauss_newton needs the likelihood as the program writes it, without sites integrated out")
    flat, _ = ravel_pytree(random_position(jax.random.PRNGKey(0), bound))
    families = {}

    def look(at: Array) -> None:
        for name, site in observed_sites(bound, at).items():
            if information_coordinates(site["fn"]) is None:
                families[name] = type(innermost_distribution(site["fn"])).__name__

    jax.eval_shape(look, flat)
    for name, family in families.items():
        raise ValueError(
            f"gauss_newton knows the information of Normal, Bernoulli, Binomial, Categorical and Poisson observations, "
            f"but '{name}' is {family}; leave gauss_newton out"
        )


def _without_observations(bound: Bound) -> Any:
    with block(hide_fn=lambda site: site["type"] == "sample" and site["is_observed"]):
        return evaluate(bound)


def observed_sites(bound: Bound, flat: Array) -> dict[str, dict[str, Any]]:
    """The observed sites of a run at flat unconstrained coordinates."""
    values = constrain_flat(bound, flat)
    latent = {name: values[name] for name in bound.latent}
    sites = trace(substitute(seed(bound.program, jax.random.PRNGKey(0)), data=latent)).get_trace()
    return {n: site for n, site in sites.items() if site["type"] == "sample" and site["is_observed"]}


def scaled_coordinates(site: dict[str, Any], read: Callable[[Distribution], Array | None]) -> Array:
    """The coordinates of a site, in which every element counts as often as a scale says. read: has some for it."""
    coordinates = read(site["fn"])
    assert coordinates is not None
    if site["scale"] is None:
        return coordinates
    scale = jnp.asarray(site["scale"])
    return coordinates * jnp.sqrt(scale).reshape(scale.shape + (1,) * (site["fn"].event_dim + 1))
