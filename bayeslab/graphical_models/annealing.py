"""Partition functions by annealed importance sampling, where summing over all units would take too much.

Chains walk from the uniform distribution to the one that is asked for, along its powers, by steps of Gibbs; the product
of the ratios of weights on the way has the mean Z / Z_0, without bias (Neal 2001, Statistics and Computing 11:125;
Salakhutdinov and Murray 2008, ICML 25:872).
"""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.monte_carlo.importance import evidence_of_ratios
from bayeslab.programs.program import precision_scope, raw_key


class Annealable(Protocol):
    """A distribution over discrete units with a power, such as MarkovRandomField and RestrictedBoltzmann."""

    event_shape: tuple[int, ...]
    batch_shape: tuple[int, ...]

    @property
    def log_num_configurations(self) -> float: ...

    def log_weight(self, value: Array) -> Array: ...

    def gibbs_step(self, key: Array, value: Array) -> Array: ...

    def tempered(self, power: Array) -> "Annealable": ...


class LogPartition(NamedTuple):
    """An estimate of log Z. standard_error: of it, from the spread of the chains. ess: effective number of chains."""

    log_partition: float
    standard_error: float
    ess: float


def annealed_log_partition(
    key: Array | int, distribution: Annealable, num_temperatures: int = 500, num_chains: int = 200
) -> LogPartition:
    """log Z of a MarkovRandomField or a RestrictedBoltzmann, by annealed importance sampling.

    The estimate of Z has no bias; that of log Z is low by about half its squared standard error, and the error is told
    well where `ess` is not small beside num_chains: otherwise take more temperatures.
    """
    if distribution.batch_shape:
        raise ValueError(f"annealed_log_partition takes one distribution, not a batch {distribution.batch_shape}")
    if num_temperatures < 1 or num_chains < 2:
        raise ValueError("num_temperatures must be at least one, and num_chains two")
    with precision_scope():
        powers = jnp.linspace(0.0, 1.0, num_temperatures + 1)
        log_weights = np.asarray(_log_weights(raw_key(key), distribution, powers, num_chains))
    log_mean, error = evidence_of_ratios(log_weights)
    ratios = np.exp(log_weights - log_weights.max())
    ess = float(ratios.sum() ** 2 / (ratios**2).sum())
    return LogPartition(distribution.log_num_configurations + log_mean, error, ess)


def _log_weights(key: Array, distribution: Annealable, powers: Array, num_chains: int) -> Array:
    """The log weights of all chains, (chain,)."""

    def step(state: tuple[Array, Array], at: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], None]:
        value, log_weight = state
        before, power, key = at
        now = distribution.tempered(power)
        log_weight = log_weight + now.log_weight(value) - distribution.tempered(before).log_weight(value)
        return (now.gibbs_step(key, value), log_weight), None

    def chain(key: Array) -> Array:
        start_key, key = jax.random.split(key)
        # a sweep at power zero draws units that are uniform, whatever it began with
        start = distribution.tempered(jnp.zeros(())).gibbs_step(
            start_key, jnp.zeros(distribution.event_shape, jnp.int32)
        )
        keys = jax.random.split(key, len(powers) - 1)
        (_, log_weight), _ = jax.lax.scan(step, (start, jnp.zeros(())), (powers[:-1], powers[1:], keys))
        return log_weight

    return jax.jit(jax.vmap(chain))(jax.random.split(key, num_chains))
