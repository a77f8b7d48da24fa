"""Forward simulation: draws from the prior, replications of the data, predictions for new inputs."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.handlers import substitute, trace

from bayeslab.prediction.class_probabilities import (
    GIVEN_THE_REST,
    class_probabilities,
    class_probabilities_of_fit,
    probabilities_dataset,
)
from bayeslab.prediction.fitted_arguments import fitted_arguments, sites_of_fit
from bayeslab.prediction.known_sites import (
    continued_series,
    draws_given_known,
    given_parameters,
    known_of,
)
from bayeslab.prediction.new_groups import (
    bind_with_new_groups,
    elements_of_fit,
    has_more_groups,
    new_group_names,
    numbers_of_groups,
    refuse_other_axes,
    refuse_other_inputs,
    refuse_unused_categories,
    unchanged_sites,
    value_with_new_groups,
    warn_of_shared_plates,
    with_codes_of_fit,
    with_grown_sizes,
)
from bayeslab.prediction.pointwise_likelihood import PointwiseLikelihood, belongs_to_rows, log_likelihood
from bayeslab.prediction.prior_draws import (
    require_own_densities,
    require_prior_draws,
    require_samplers,
    said_of_sites_not_drawn,
    sites_without_sampler,
    without_weights,
)
from bayeslab.prediction.response_probabilities import response_probabilities
from bayeslab.programs.binding import bind, unwrap_partial
from bayeslab.programs.data import read_entries
from bayeslab.programs.missing.imputation import whole_sites
from bayeslab.programs.program import Bound, Data, Program, Site, Values, is_random, precision_scope, raw_key
from bayeslab.programs.tracing.compilation import OPTIMISED_OPTIONS
from bayeslab.results.datatree import (
    categories_of,
    constant_data,
    dimensions,
    formula_of,
    has_same_data,
    observed_data,
    posterior_draws,
    to_datatree,
)
from bayeslab.results.draw_batches import map_draws

if TYPE_CHECKING:
    from xarray import Dataset, DataTree


def simulate(key: Array | int, model: Program, data: Data, num_samples: int = 1000) -> "DataTree":
    """Draws from the prior, and of the observed sites given them.

    data: as for `fit`; the values of observed sites only say which sites those are, but for known parameters, see
        `predict`, which keep them.
    Returns a DataTree with groups prior, prior_predictive, observed_data and constant_data.
    Raises ValueError for a program whose prior is not what its sites draw: improper, weighted, or changed by a factor.
    """
    if not hasattr(num_samples, "__index__"):
        raise TypeError(f"num_samples must be an integer, but is {num_samples!r}")
    if num_samples < 1:
        raise ValueError(f"num_samples must be positive, but is {num_samples}")
    with precision_scope():
        bound = bind(model, data).plain
        require_prior_draws(bound, "simulate")
        keys = jax.random.split(raw_key(key), num_samples)
        drawn = jax.device_get(simulate_draws(keys, bound, {}, (), given_parameters(bound)))
        drawn |= {name: value for name, value in whole_sites(bound, drawn).items() if name in bound.latent}
        simulations = {name: np.asarray(value)[None] for name, value in drawn.items()}
        groups = {
            "prior": {name: value for name, value in simulations.items() if name not in bound.observed},
            "prior_predictive": {name: value for name, value in simulations.items() if name in bound.observed},
            "observed_data": observed_data(bound),
            "constant_data": constant_data(bound),
        }
        return to_datatree(groups, bound, read_entries(data))


def predict(
    key: Array | int, model: Program, data: Data, tree: "DataTree", new_plates: Collection[str] = ()
) -> "DataTree":
    """The result with what it predicts for `data`.

    For the data that were fitted: posterior_predictive, one replication a draw, missing entries included (observed
    sites on which others depend, but without their rows, as a known scale or table, keep their values; a vector
    is drawn as a whole, whatever is known of it; a censored site is drawn without its censoring; missing steps of a
    series whose steps follow from its own, in a scan or a chain, are drawn given the known ones), and log_likelihood,
    NaN at missing entries; latent sites that belong to a row, as labels of a mixture do, are integrated out of it where
    they can be, and its attrs name them, or say why not. An observed site whose distribution has no sampler has a log
    likelihood, whose attrs say so, and no draws.
    Discrete sites on which others depend, as labels, have `NAME given the rest` there, the log probability of their
    value given all else that is known of the row.
    For other data, with or without values of sites: predictions, predictions_constant_data, predictions_log_likelihood
    where there are values and what belongs to a row can be integrated out of it, and predictions_probabilities: for
    discrete sites of rows, as classes, the mean over draws of the probability of every value given all else that is
    known of the row, and the log score of values that are known. Latent sites with an entry for every new row (those in
    all plates of an observed site) are drawn given what is known, as are missing entries. Known values are used where
    others depend on them; those on which none does are predicted as if none of these were known. Effects of groups are
    those of the fit where data of their own are given as they were, and others observed elsewhere. Where a plate has
    more positions than at the fit, the others are new groups, drawn given each draw and their own rows; a new name
    among categories is such a group, named in the attrs of predictions, and a number of groups left out grows with it.
    These attrs also name the latent sites that keep the draws of the fit, as one of rows that is in no plate does.
    new_plates: plates whose elements are others than at the fit, though there may be as many, where that cannot be told
    from the program: the rows of a factor model, whose observed values are in a plate of rows and in one of features.
    Their latent sites are drawn given what is known of them.
    Where a formula made the data of the fit, as in `bayeslab.datasets.regression_data`, data may be a table with the
    columns of the formula, whose levels, knots and scales are those of the fit.
    Arguments that `data` leave out, hyperparameters for example, are those of the fit, but for those that are None by
    default and do nothing but hand over observed values. Categories have the codes of the fit.
    Raises ValueError where a latent site has another shape in the result, draws that are no numbers, or draws of a
    process at other inputs, for categories that the fit does not know and that are no new groups, labels that
    contradict those of the fit (other columns, or in another order), where sites cannot be drawn given what is known,
    or by no sampler, where `data` leave out what a result cannot keep, as a function that is not the default, and where
    the program draws nothing, because its data are in a factor.
    """
    posterior = posterior_draws(tree, "predict")
    program, given = unwrap_partial(model, read_entries(_rows_of_formula(data, tree)))
    given = {name: with_codes_of_fit(name, item, tree) for name, item in given.items()}
    with precision_scope():
        fitted = fitted_arguments(program, given, tree)
        entries = with_grown_sizes(fitted, given, tree) | given
        bound = bind_with_new_groups(program, entries, given, tree).plain
        require_own_densities(bound, "predict draws")
        bound = without_weights(bound)
        new_sites = _sites_of_plates(bound, new_plates)
        replicate = has_same_data(tree, bound) and not new_sites
        latent = _latent_draws(program, tree, posterior, bound, replicate, numbers_of_groups(entries, tree), new_sites)
        refuse_unused_categories(given, tree, {name: value.shape[2:] for name, value in latent.items()}, bound)
        if not replicate:
            refuse_other_axes(given, tree, bound, posterior[list(latent)])
            refuse_other_inputs(program, entries, tree, bound, latent)
            warn_of_shared_plates(tree, bound, latent)
        chains, num_draws = posterior.sizes["chain"], posterior.sizes["draw"]
        flat = {name: jnp.asarray(value).reshape(-1, *value.shape[2:]) for name, value in latent.items()}
        keys = jax.random.split(raw_key(key), chains * num_draws)
        grown = {n: value.shape[1:] for n, value in flat.items() if value.shape[1:] != bound.sites[n].shape}
        hidden = tuple(name for name in flat if name not in grown)
        parameters = given_parameters(bound) if replicate else ()
        undrawn = sites_without_sampler(bound)
        require_samplers(undrawn, "predict", [name for name in bound.latent if name not in hidden])
        undrawn = {name: reason for name, reason in undrawn.items() if name in bound.observed}
        left_out, simulations = "", dict[str, Any]()
        if replicate or grown or not bound.observed:
            simulations = jax.device_get(simulate_draws(keys, bound, flat, hidden, (*parameters, *undrawn)))
            flat |= {name: jnp.asarray(simulations[name]) for name in grown}
        if replicate:
            simulations |= continued_series(jax.random.fold_in(raw_key(key), 1), bound, flat, simulations)
        if bound.observed and not replicate:
            known = known_of(bound, flat, grown)._replace(undrawn=tuple(undrawn))
            drawn, left_out = draws_given_known(keys[0], known, flat, len(keys))
            simulations = jax.device_get({n: value for n, value in drawn.items() if n not in hidden})
            classes = class_probabilities(known, flat, len(keys))
        else:
            classes = class_probabilities_of_fit(bound, flat) if replicate else {}
        responses = response_probabilities(bound, flat, grown) if flat and not replicate else {}
        _require_predictions(simulations | undrawn, bound, replicate)
        kept = {} if replicate else {n: elements_of_fit(v.shape[2:], bound.sites[n]) for n, v in latent.items()}
        likelihood = log_likelihood(bound, flat, kept) if bound.observed else PointwiseLikelihood({}, {}, ())
        density = {n: value for n, value in jax.device_get(likelihood.values).items() if n not in parameters}
        scores = {n: c.log_probability for n, c in classes.items() if c.log_probability is not None}
        density |= {f"{name}{GIVEN_THE_REST}": score for name, score in scores.items()}
        dims_from = likelihood.dims_from | {f"{name}{GIVEN_THE_REST}": name for name in scores}

        def stacked(values: Values) -> dict[str, np.ndarray]:
            whole = {n: np.broadcast_to(value, (len(keys), *value.shape[1:])) for n, value in values.items()}
            return {n: value.reshape(chains, num_draws, *value.shape[1:]) for n, value in whole.items()}

        if replicate:
            chosen = {n: value for n, value in simulations.items() if n in bound.observed}
            groups = {"posterior_predictive": stacked(chosen), "log_likelihood": stacked(density)}
        else:
            groups = {"predictions": stacked(simulations), "predictions_log_likelihood": stacked(density)}
            groups["predictions_constant_data"] = constant_data(bound)
        added = to_datatree(groups, bound, entries, dims_from)
        if tables := {} if replicate else responses | classes:
            categories = {name: categories_of(tree, name) for name in tables}
            added["predictions_probabilities"] = probabilities_dataset(tables, dimensions(bound, entries), categories)
    if "predictions" in added.children:
        said = {"draws_of_the_fit": [*latent], "left_out": left_out, "new_groups": new_group_names(given, tree)}
        added["predictions"].attrs |= {name: what for name, what in said.items() if what}
    for name in ("log_likelihood", "predictions_log_likelihood"):
        if name in added.children:
            added[name].attrs |= {"not_drawn": said_of_sites_not_drawn(undrawn)} if undrawn else {}
            added[name].attrs["integrated_out"] = list(likelihood.integrated_out)
            if likelihood.reason:
                added[name].attrs["not_integrated_out"] = likelihood.reason
    result = tree.copy()
    for name, group in added.children.items():
        result[name] = group
    return result


def _rows_of_formula(data: Any, tree: "DataTree") -> Any:
    """The data; of a table, where a formula made the data of the fit, what this formula makes of it."""
    if not hasattr(data, "columns") or not (text := formula_of(tree)):
        return data
    from bayeslab.formulas.coding import coded_rows, coding_from_text

    return coded_rows(coding_from_text(text), data)


def _require_predictions(drawn: Mapping[str, Any], bound: Bound, replicate: bool) -> None:
    """Raises ValueError where there is nothing to predict."""
    if not (bound.observed if replicate else drawn):
        factors = [name for name, site in bound.sites.items() if site.role == "factor"]
        reason = f"what its data say is in factor {', '.join(map(repr, factors))}, which nothing draws from"
        raise ValueError(
            f"predict has nothing to draw: no site of the program is observed{'; ' + reason if factors else ''}; "
            "write the data as an observed site, numpyro.sample(..., obs=y)"
        )


def _latent_draws(
    program: Program,
    tree: "DataTree",
    posterior: "Dataset",
    bound: Bound,
    replicate: bool,
    grown: set[tuple[int, int]],
    new_sites: set[str],
) -> dict[str, np.ndarray]:
    """Posterior draws (chain, draw, *site) of the latent sites that `bound` shares with the result.

    grown: numbers of groups at the fit and now. new_sites: those of which the result has other elements.
    """
    kept = {str(name): drawn.values for name, drawn in posterior.items()}
    observed = [
        *bound.observed,
        *(tree["observed_data"].data_vars if "observed_data" in tree.children else ()),
    ]
    own = {
        name for name in bound.latent if name in observed or _is_of_new_rows(name, observed, tree, bound)
    } | new_sites
    latent = [name for name in bound.latent if name in kept and (replicate or name not in own)]
    missing = [name for name in bound.latent if name not in kept and name not in own]
    if missing and (at_the_fit := sites_of_fit(program, tree)):  # what the program draws with these data alone
        own |= set(missing) - at_the_fit
        missing = [name for name in missing if name in at_the_fit]
    if missing and any(name in kept for name in bound.latent):
        raise ValueError(
            f"the result has no draws of {missing}, on which the predictions depend; if they were integrated out, "
            "recover() draws them"
        )
    for name in latent:
        if kept[name].shape[2:] != bound.sites[name].shape and not (
            not replicate and has_more_groups(kept[name].shape[2:], bound.sites[name], grown)
        ):
            raise ValueError(
                f"site '{name}' has shape {kept[name].shape[2:]} in the result, but {bound.sites[name].shape} "
                f"for these data{_way_out_for_shapes(bound.sites[name], kept[name].shape[2:])}"
            )
        if kept[name].dtype.kind not in "fiub" or np.isnan(kept[name]).any():
            raise ValueError(f"the result has draws of site '{name}' that are no numbers, so nothing follows from them")
    if not latent and not {*kept} & own:
        raise ValueError(f"the result has none of the latent sites {list(bound.latent)} of this program")
    return {name: kept[name] for name in latent}


def _sites_of_plates(bound: Bound, plates: Collection[str]) -> set[str]:
    """The latent sites in some plates; raises ValueError for a plate that the program has not."""
    plates = [plates] if isinstance(plates, str) else plates
    known = {plate.name for site in bound.sites.values() for plate in site.plates}
    for name in plates:
        if name not in known:
            raise ValueError(f"new_plates has '{name}', which is no plate of the program; these are {sorted(known)}")
    return {name for name in bound.latent for plate in bound.sites[name].plates if plate.name in plates}


def _way_out_for_shapes(site: Site, fitted: tuple[int, ...]) -> str:
    """What to do where a latent site has another shape than at the fit, after a semicolon; may be empty."""
    if site.family == "GaussianProcess":
        return "; process_at and process_draws take it to new inputs"
    if len(fitted) == len(site.shape) and any(now < before for now, before in zip(site.shape, fitted, strict=True)):
        plates = ", ".join(repr(plate.name) for plate in site.plates)
        others = f", or name that of {plates} in new_plates whose elements are all others" if plates else ""
        return f"; give the groups of the fit with their data first, and new groups after them{others}"
    if len(fitted) == len(site.shape):
        groups = ", and where they are new groups, give codes as names, in a pandas.Series of text"
        return (
            "; where these are new steps or places, fit with them among the data, what is observed there missing (NaN)"
            f"{groups if site.plates else ''}"
        )
    return ""


def _is_of_new_rows(name: str, observed: list[str], tree: "DataTree", bound: Bound) -> bool:
    """Whether a latent site belongs to rows that are not those of the fit.

    Groups are those of the fit where what is observed of each is as it was, and more is observed elsewhere.
    """
    site_plates = {plate.name for plate in bound.sites[name].plates}
    if all({plate.name for plate in bound.sites[n].plates} <= site_plates for n in observed if n in bound.sites):
        return belongs_to_rows(name, observed, bound)
    unchanged = unchanged_sites(tree, bound)
    return belongs_to_rows(name, [n for n in observed if n not in unchanged], bound)


@partial(jax.jit, static_argnames=("hidden", "fixed"), compiler_options=OPTIMISED_OPTIONS)
def simulate_draws(
    keys: Array, bound: Bound, latent: Values, hidden: tuple[str, ...], fixed: tuple[str, ...] = ()
) -> Values:
    """One run of the program for every key: all sites but `hidden` and `fixed`, observed ones drawn like the others,
    except values given to a `numpyro.param`, which nothing draws. fixed: observed sites that keep their values."""
    given = {name: value for name, value in bound.observed.items() if bound.sites[name].learned or name in fixed}

    def run(at: tuple[Array, Values]) -> Values:
        key, values = at
        grown = {name: value for name, value in values.items() if value.shape != bound.sites[name].shape}
        fitted = given | {name: value for name, value in values.items() if name not in grown}
        model = substitute(bound.unconditioned(key), data=fitted)
        model = substitute(model, substitute_fn=partial(value_with_new_groups, grown)) if grown else model
        sites = trace(model).get_trace(**bound.inputs)
        return {
            name: jnp.asarray(site["value"])
            for name, site in sites.items()
            if name not in (*hidden, *given, *bound.computed) and (is_random(site) or site["type"] == "deterministic")
        }

    return map_draws(run, (keys, latent))
