"""A hidden Markov chain with Normal emissions and K = 3 states as NumPyro programs, with states and without.

initial, moves_k ~ Dirichlet(1, 1, 1)
tau_k            ~ Gamma(2, 1)
mu_k | tau       ~ Normal(0, 1 / (0.1 tau_k)),    state k
z_1              ~ Categorical(initial),    z_t+1 ~ Categorical(moves_{z_t})
y_t              ~ Normal(mu_{z_t}, 1 / tau_{z_t}),    step t
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array


def with_states(num_steps: int) -> None:
    """Draw initial (state,), moves (state, state_), tau and mu (state,), z and y (step,)."""
    from bayeslab import MarkovChain

    initial, moves, tau, mu = parameters()
    z = numpyro.sample("z", MarkovChain(initial, moves, num_steps))
    with numpyro.plate("step", num_steps):
        numpyro.sample("y", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])))


def without_states(log_marginal: Callable[[Array, Array, Array], Array], y: Array) -> None:
    """The same without z. log_marginal: of initial, moves and what every state says of y (step, state)."""
    initial, moves, tau, mu = parameters()
    numpyro.factor("y", log_marginal(initial, moves, dist.Normal(mu, 1 / jnp.sqrt(tau)).log_prob(y[:, None])))


def by_scan(initial: Array, moves: Array, evidence: Array) -> Array:
    """The forward recursion in log space, as tutorials write it."""

    def step(message: Array, evidence: Array) -> tuple[Array, None]:
        return jax.nn.logsumexp(message[:, None] + jnp.log(moves), axis=0) + evidence, None

    return jax.nn.logsumexp(jax.lax.scan(step, jnp.log(initial) + evidence[0], evidence[1:])[0])


def by_dynamax(initial: Array, moves: Array, evidence: Array) -> Array:
    from dynamax.hidden_markov_model import hmm_filter

    return hmm_filter(initial, moves, evidence).marginal_loglik


def parameters() -> tuple[Array, Array, Array, Array]:
    """What all programs share."""
    initial = numpyro.sample("initial", dist.Dirichlet(jnp.ones(3)))
    with numpyro.plate("state", 3):
        moves = numpyro.sample("moves", dist.Dirichlet(jnp.ones(3)))
        tau = numpyro.sample("tau", dist.Gamma(2.0, 1.0))
        mu = numpyro.sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(0.1 * tau)))
    return initial, moves, tau, mu
