"""States and observations after the end of a series."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.prediction.predict import simulate_draws
from bayeslab.programs.binding import bind
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Bound, Data, Program, precision_scope, raw_key
from bayeslab.results.datatree import constant_data, to_datatree
from bayeslab.states.chain_in_result import ChainInResult, chain_distribution, read_chain
from bayeslab.states.longer_series import lengthen, new_steps
from bayeslab.transforms.collapse import marginal
from bayeslab.transforms.recover import recovered_draws

if TYPE_CHECKING:
    from xarray import DataTree


def forecast(
    key: Array | int,
    model: Program,
    data: Data,
    tree: "DataTree",
    changes: Data,
    site: str | None = None,
    num_samples: int = 1,
) -> "DataTree":
    """The result with group predictions: states and observations of the steps to come.

    model, data: those of the fit. tree: what any method returns; draws of the chain are not needed.
    changes: entries with new values, {"num_steps": 112} and longer covariates where the program has some. Observed
    series that it does not name go on with missing entries.
    site: the chain, where the program has several. num_samples: series for every draw; many for a point estimate.
    For each draw the states are drawn given the data, over the longer series, and observations given the states. What
    predictions hold begins after the last step of `data`; quantiles over draws are intervals.
    Raises ValueError for a program without chain, or with several and no `site`, for a result of other data, where the
    changes make nothing longer, and for other latent sites that grow, such as a second chain.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be positive, but is {num_samples}")
    with precision_scope():
        chain_fit = read_chain(model, data, tree, site)
        if chain_fit.of_given is not None:
            raise ValueError(f"some states of '{chain_fit.site}' are given; forecasts are of chains of which none is")
        entries = lengthen(model, data, changes)
        bound = bind(model, entries).plain
        old_shapes = _grown_sites(chain_fit, bound)
        collapsed = marginal(bound, (chain_fit.site,))
        chains, draws = (tree["posterior"].sizes[n] for n in ("chain", "draw"))
        flat = {name: jnp.repeat(value, num_samples, axis=0) for name, value in chain_fit.draws.items()}
        keys = [jax.random.split(now, chains * draws * num_samples) for now in jax.random.split(raw_key(key))]
        states = {chain_fit.site: recovered_draws(keys[0], collapsed, flat)[chain_fit.site]}
        _refuse_ended_sequences(chain_distribution(collapsed, flat), chain_fit.chain.num_steps)
        fixed = tuple(n for n in bound.observed if n not in (*old_shapes, *bound.present, *bound.computed))
        simulations = jax.device_get(simulate_draws(keys[1], bound, flat | states, tuple(flat), fixed))
        new_draws = {
            n: v.reshape(chains, draws * num_samples, *v.shape[1:]) for n, v in simulations.items() if n in old_shapes
        }
        groups = {"predictions": new_draws, "predictions_constant_data": constant_data(bound)}
        added = to_datatree(groups, bound, read_entries(entries))
    result = tree.copy()
    result["predictions"] = new_steps(added["predictions"].to_dataset(), old_shapes)
    result["predictions_constant_data"] = added["predictions_constant_data"]
    return result


def _grown_sites(met: ChainInResult, bound: Bound) -> dict[str, tuple[int, ...]]:
    """The old shapes of the sites that are longer than they were. Raises ValueError where these are the wrong ones."""
    before = met.left.plain.sites
    for name, site in bound.sites.items():
        if name not in before or len(site.shape) != len(before[name].shape):
            raise ValueError(f"changes give the program another site '{name}'; they may only make series longer")
        shorter = any(new < old for new, old in zip(site.shape, before[name].shape, strict=True))
        if shorter or (name in met.draws and site.shape != before[name].shape):
            raise ValueError(
                f"changes give site '{name}' shape {site.shape} in place of {before[name].shape}; they may only make "
                f"the series of '{met.site}' longer"
            )
    steps = len(before[met.site].shape) - before[met.site].event_dim
    if bound.sites[met.site].shape[steps] == before[met.site].shape[steps]:
        raise ValueError(f"changes leave the {before[met.site].shape[steps]} steps of site '{met.site}' as they are")
    return {name: before[name].shape for name, site in bound.sites.items() if site.shape != before[name].shape}


def _refuse_ended_sequences(chain: Any, num_steps: int) -> None:
    """Raises ValueError where sequences end before the steps to come."""
    lengths = getattr(chain, "lengths", None)
    if lengths is not None and (np.asarray(lengths) <= num_steps).any():
        raise ValueError(
            f"sequences end at lengths {np.asarray(lengths).tolist()}, so there is nothing after step {num_steps}; "
            "give lengths beyond it in changes"
        )
