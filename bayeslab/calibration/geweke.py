"""Geweke's test of a Gibbs sampler: does a sweep leave the joint distribution of parameters and data alone?

There are two ways to draw from p(z, y): z from its prior; and a chain that takes a sweep from z to z' given y, and new
data y' from p(y | z'). If the sweep has the invariant distribution p(z | y) for all y, both have the same distribution
of z (Geweke 2004, doi:10.1198/016214504000001132). Unlike simulation-based calibration this needs no chain that
converges on every data set, and errors of single sweeps add up until they are seen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax import Array
from scipy.special import ndtr

from bayeslab.calibration.plan_for_simulated import plan_for_simulated
from bayeslab.calibration.sbc import refuse_mixed_data
from bayeslab.methods.gibbs import Gibbs
from bayeslab.mixed_membership import methods as mixed_membership
from bayeslab.prediction.known_sites import pairs_of_dependence
from bayeslab.prediction.prior_draws import require_joint_draws
from bayeslab.programs.binding import bind
from bayeslab.programs.data import read_entries
from bayeslab.programs.missing.imputation import whole_sites
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope, raw_key
from bayeslab.results.datatree import to_datatree
from bayeslab.results.parameters import SAMPLE_DIMS, stacked_parameters
from bayeslab.sampling.executables import strongly_typed
from bayeslab.sampling.protocols import State

if TYPE_CHECKING:
    from xarray import DataArray, Dataset

SIGNIFICANCE_LEVEL = 0.01
"""The probability that a right sampler fails the test."""


def joint_distribution_test(
    key: Array | int,
    model: Program,
    data: Data,
    method: Gibbs | mixed_membership.Gibbs,
    level: float = SIGNIFICANCE_LEVEL,
) -> Dataset:
    """Where the draws of the chain lie among draws of the prior, one row a scalar parameter.

    data: fixes the inputs and says which sites are observed; their values are simulated.
    method: numbers of draws, of sweeps between them (thinning) and of chains; warm-up forgets where chains began.
    level: the probability that a right sampler fails somewhere.
    place (parameter,): the mean of the draws' places in the distribution function of the prior, 0.5 if all is right.
    spread (parameter,): their mean squared distance from the middle, over that of the prior's own, 1 if all is right.
    place_z, spread_z (parameter,): by how many standard errors they are off. ess (parameter,): of the chains.
    attrs: p_value of the largest of them (Bonferroni), and passes (1 or 0).
    Raises TypeError for another method, ValueError for programs without a proper prior or without observed sites.
    """
    from xarray import Dataset

    if not isinstance(method, Gibbs | mixed_membership.Gibbs):
        raise TypeError(f"joint_distribution_test needs Gibbs(), whose sweeps suit any data, not {method!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must be a probability between 0 and 1, got {level}")
    with precision_scope():
        bound = bind(model, data)
        refuse_mixed_data(bound)
        require_joint_draws(bound, "joint_distribution_test")
        _require_data_after_latent_sites(bound)
        prior, chain = _prior_and_chain_draws(raw_key(key), method, bound)
        # a group "posterior" would have the given elements of the data, which are drawn here
        trees = [to_datatree({"prior": draws}, bound, read_entries(data)) for draws in (prior, chain)]
    prior_places, chain_places = _places_in_prior(*(tree["prior"].to_dataset() for tree in trees))
    table = Dataset({"ess": chain_places.azstats.ess(method="bulk")})
    for name, reference, values in (
        ("place", prior_places, chain_places),
        ("spread", (prior_places - 0.5) ** 2, (chain_places - 0.5) ** 2),
    ):
        mean, expected = values.mean(SAMPLE_DIMS), reference.mean(SAMPLE_DIMS)
        error = np.hypot(
            values.azstats.mcse(method="mean"), reference.std(SAMPLE_DIMS) / np.sqrt(reference[..., 0].size)
        )
        table[name] = mean if name == "place" else mean / expected
        table[f"{name}_z"] = (mean - expected) / error
    z = np.abs([table["place_z"].values, table["spread_z"].values])
    p_value = min(1.0, float(2 * ndtr(-z.max()) * z.size))
    return table.assign_attrs(p_value=p_value, passes=int(p_value > level), level=level)


def _require_data_after_latent_sites(bound: Bound) -> None:
    """Raises ValueError where the prior of a latent site depends on an observed one, which no run of the program draws
    given the latent sites."""
    for parent, site in pairs_of_dependence(bound):
        if site in bound.latent:
            raise ValueError(
                f"joint_distribution_test draws the data given latent sites, but the prior of '{site}' depends on the "
                f"observed site '{parent}'; make what is known an argument of the program"
            )


def _prior_and_chain_draws(key: Array, method: Gibbs | mixed_membership.Gibbs, bound: Bound) -> tuple[Values, Values]:
    """Draws (chain, draw, *site) of the latent sites: from the prior, and of chains of sweeps and new data."""
    sampler, latent = plan_for_simulated(bound, method, bound.observed).sampler, bound.latent

    def simulated(key: Array, bound: Bound, values: Values) -> tuple[Bound, Values]:
        num_draws = {name: site["value"] for name, site in bound.prior_draw(key, values=values).items()}
        return replace(bound, observed={name: num_draws[name] for name in bound.observed}), num_draws

    def sweep(carry: tuple[State, Bound], key: Array) -> tuple[tuple[State, Bound], Values]:
        state, draws = sampler.advance(carry[0], sampler.prepare(carry[1]))
        kept = {name: draws.samples[name] for name in latent if name in draws.samples}
        new = simulated(key, carry[1], kept)[0]
        return (strongly_typed(state), new), whole_sites(new, kept)

    def draw(carry: tuple[State, Bound], key: Array) -> tuple[tuple[State, Bound], Values]:
        carry, kept = jax.lax.scan(sweep, carry, jax.random.split(key, method.thinning))
        return carry, {name: values[-1] for name, values in kept.items()}

    def chain(key: Array, bound: Bound) -> Values:
        keys = jax.random.split(key, 4)
        simulated_bound, _ = simulated(keys[0], bound, {})
        carry = (strongly_typed(sampler.start(keys[1], sampler.prepare(simulated_bound))), simulated_bound)
        carry, _ = jax.lax.scan(sweep, carry, jax.random.split(keys[2], method.num_warmup))
        return jax.lax.scan(draw, carry, jax.random.split(keys[3], method.num_samples))[1]

    @jax.jit
    def both(keys: Array, bound: Bound) -> tuple[Values, Values]:
        chain_draws = jax.lax.map(lambda key: chain(key, bound), keys[0])
        prior_draws = jax.lax.map(lambda key: whole_sites(bound, simulated(key, bound, {})[1]), keys[1])
        return {name: prior_draws[name] for name in chain_draws}, chain_draws

    num_draws = method.num_chains * method.num_samples
    keys = jax.random.split(key)
    prior, chain_draws = jax.device_get(
        both((jax.random.split(keys[0], method.num_chains), jax.random.split(keys[1], num_draws)), bound)
    )
    return {name: value[None] for name, value in prior.items()}, chain_draws


def _places_in_prior(prior: Dataset, chain: Dataset) -> tuple[DataArray, DataArray]:
    """The values of the empirical distribution function of the prior's draws at those draws and at the chain's, ties in
    the middle, each (chain, draw, parameter)."""
    prior_draws, chain_draws = (stacked_parameters(each).astype(float) for each in (prior, chain))
    varies = (prior_draws.max(SAMPLE_DIMS) > prior_draws.min(SAMPLE_DIMS)).values
    prior_draws, chain_draws = prior_draws[..., varies], chain_draws[..., varies]
    ordered = np.sort(prior_draws.values.reshape(-1, prior_draws.sizes["parameter"]), axis=0)

    def place(draws: DataArray) -> DataArray:
        columns = zip(ordered.T, np.moveaxis(draws.values, 2, 0), strict=True)
        sides = ([np.searchsorted(column, values, side) for side in ("left", "right")] for column, values in columns)
        return draws.copy(data=np.stack([sum(counts) / (2 * len(ordered)) for counts in sides], axis=-1))

    return place(prior_draws), place(chain_draws)
