"""Forward simulation: draws from the prior, replications of the data, predictions for new inputs."""

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import seed, substitute, trace, uncondition

from bayeslab.bind import bind, parameters
from bayeslab.entries import posterior_of, read
from bayeslab.likelihood import Likelihood, belongs_to_rows, log_likelihood
from bayeslab.program import Bound, Data, Program, Values, is_random, precision, raw_key
from bayeslab.tree import constant_data, observed_data, same_data, to_datatree

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

BATCH = 64
"""Draws that are simulated at once."""


def simulate(key: Array | int, model: Program, data: Data, num_samples: int = 1000) -> "DataTree":
    """Draws from the prior, and of the observed sites given them.

    data: as for `fit`; the values of observed sites only say which sites those are.
    Returns a DataTree with groups prior, prior_predictive, observed_data and constant_data.
    Raises ValueError for a program with an improper prior, which draws nothing.
    """
    if not hasattr(num_samples, "__index__"):
        raise TypeError(f"num_samples must be an integer, but is {num_samples!r}")
    if num_samples < 1:
        raise ValueError(f"num_samples must be positive, but is {num_samples}")
    with precision():
        bound = bind(model, data).plain
        refuse_improper(bound, "simulate")
        keys = jax.random.split(raw_key(key), num_samples)
        drawn = {name: value[None] for name, value in jax.device_get(simulated(keys, bound, {}, ())).items()}
        groups = {
            "prior": {name: value for name, value in drawn.items() if name not in bound.observed},
            "prior_predictive": {name: value for name, value in drawn.items() if name in bound.observed},
            "observed_data": observed_data(bound),
            "constant_data": constant_data(bound),
        }
        return to_datatree(groups, bound, read(data))


def predict(key: Array | int, model: Program, data: Data, tree: "DataTree") -> "DataTree":
    """The result with what it predicts for `data`.

    For the data that were fitted: posterior_predictive, one replication a draw, missing entries included (a vector
    is drawn as a whole, whatever is known of it), and log_likelihood, NaN at missing entries; latent sites that
    belong to a row, as labels of a mixture do, are integrated out of it where they can be, and its attrs name
    them. For other data, with or without values of the observed sites: predictions, predictions_constant_data and,
    where there are values and what belongs to a row can be integrated out of it, predictions_log_likelihood. Latent
    sites with an entry for every new row (those in all plates of an observed site) are then drawn anew.
    Arguments that `data` leave out, hyperparameters for example, are those of the fit.
    Raises ValueError where a latent site has another shape in the result, or draws that are no numbers.
    """
    posterior = posterior_of(tree, "predict")
    data = _fitted_arguments(model, tree) | {name: data[name] for name in read(data)}
    entries = read(data)
    with precision():
        bound = bind(model, data).plain
        replicate = same_data(tree, bound)
        latent = _latent_draws(tree, posterior, bound, replicate)
        chains, number = next(iter(latent.values())).shape[:2]
        flat = {name: jnp.asarray(value).reshape(-1, *value.shape[2:]) for name, value in latent.items()}
        keys = jax.random.split(raw_key(key), chains * number)
        hidden = tuple(flat)
        drawn = jax.device_get(simulated(keys, bound, flat, hidden))
        likelihood = log_likelihood(bound, flat) if bound.observed and hidden else Likelihood({}, {}, ())
        density = jax.device_get(likelihood.values)

        def stacked(values: Values) -> dict[str, np.ndarray]:
            return {name: np.asarray(value).reshape(chains, number, *value.shape[1:]) for name, value in values.items()}

        if replicate:
            chosen = {name: value for name, value in drawn.items() if name in bound.observed}
            groups = {"posterior_predictive": stacked(chosen), "log_likelihood": stacked(density)}
        else:
            groups = {
                "predictions": stacked(drawn),
                "predictions_log_likelihood": stacked(density),
                "predictions_constant_data": constant_data(bound),
            }
        added = to_datatree(groups, bound, entries, likelihood.like)
    for name in ("log_likelihood", "predictions_log_likelihood"):
        if name in added.children:
            added[name].attrs["integrated_out"] = list(likelihood.integrated_out)
    result = tree.copy()
    for name, group in added.children.items():
        result[name] = group
    return result


def _fitted_arguments(model: Program, tree: "DataTree") -> dict[str, Any]:
    """The numeric arguments of the fit, but for those that hand over data and may be None."""
    if "constant_data" not in tree.children:
        return {}
    constants = tree["constant_data"].data_vars
    observed = tree["observed_data"].data_vars if "observed_data" in tree.children else {}
    names = [n for n, p in parameters(model).items() if n in constants and n not in observed and p.default is not None]
    return {name: constants[name] if constants[name].ndim else constants[name].item() for name in names}


def refuse_improper(bound: Bound, verb: str) -> None:
    """Raises ValueError for a program that has no prior draws."""
    for site in bound.sites.values():
        if site.improper:
            raise ValueError(
                f"{verb} needs draws from the prior, but site '{site.name}' has an improper one ({site.family})"
            )


def _latent_draws(tree: "DataTree", posterior: "Dataset", bound: Bound, replicate: bool) -> dict[str, np.ndarray]:
    """Posterior draws (chain, draw, *site) of the latent sites that `bound` shares with the result."""
    kept = {str(name): drawn.values for name, drawn in posterior.items()}
    observed = [
        *bound.observed,
        *(tree["observed_data"].data_vars if "observed_data" in tree.children else ()),
    ]
    own = {name for name in bound.latent if belongs_to_rows(name, observed, bound)}
    latent = [name for name in bound.latent if name in kept and (replicate or name not in own)]
    if any(name in kept for name in bound.latent) and (
        lost := [name for name in bound.latent if name not in kept and name not in own]
    ):
        raise ValueError(
            f"the result has no draws of {lost}, on which the predictions depend; if they were integrated out, "
            "recover() draws them"
        )
    for name in latent:
        if kept[name].shape[2:] != bound.sites[name].shape:
            process = bound.sites[name].family == "GaussianProcess"
            raise ValueError(
                f"site '{name}' has shape {kept[name].shape[2:]} in the result, but {bound.sites[name].shape} "
                "for these data" + "; process_at and process_draws take it to new inputs" * process
            )
        if kept[name].dtype.kind not in "fiub" or np.isnan(kept[name]).any():
            raise ValueError(f"the result has draws of site '{name}' that are no numbers, so nothing follows from them")
    if not latent:
        raise ValueError(f"the result has none of the latent sites {list(bound.latent)} of this program")
    return {name: kept[name] for name in latent}


@partial(jax.jit, static_argnames="hidden")
def simulated(keys: Array, bound: Bound, latent: Values, hidden: tuple[str, ...]) -> Values:
    """One run of the program for every key: all sites but `hidden`, observed ones drawn like the others."""

    def run(at: tuple[Array, Values]) -> Values:
        key, values = at
        model = substitute(uncondition(seed(bound.source, key)), data=values)
        sites = trace(model).get_trace(**bound.inputs)
        return {
            name: jnp.asarray(site["value"])
            for name, site in sites.items()
            if name not in hidden and (is_random(site) or site["type"] == "deterministic")
        }

    return jax.lax.map(run, (keys, latent), batch_size=BATCH)
