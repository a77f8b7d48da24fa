"""Simulation-based calibration of an inference method on a model.

Draw z ~ p(z), then y ~ p(y | z), then L posterior draws given y. If the method is right,
the rank of z among them is uniform (Talts et al. 2018, arXiv:1804.06788).
"""

import os
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from threadpoolctl import threadpool_limits

from bayeslab.calibration.plan_for_simulated import plan_for_simulated
from bayeslab.elimination.terms import sum_of_terms, terms
from bayeslab.prediction.prior_draws import require_joint_draws
from bayeslab.programs.binding import bind
from bayeslab.programs.data import read_entries
from bayeslab.programs.missing.imputation import whole_sites
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope, raw_key
from bayeslab.programs.tracing.provenance import trace_data_flow
from bayeslab.results.datatree import has_same_data, posterior_draws, to_datatree
from bayeslab.results.draw_batches import map_draws
from bayeslab.sampling.progress import progress_bar
from bayeslab.sampling.protocols import Method, require_method
from bayeslab.sampling.runner import whole_chain
from bayeslab.transforms.draw_checks import require_identity
from bayeslab.transforms.replication import name_of_copy, replicate_data

if TYPE_CHECKING:
    from xarray import DataTree

SIMULATIONS_PER_BATCH = 10
"""The number of simulations that one thread runs together."""
EXCESS_KEY = "excess of the identity"
"""The name under which the excess of exact draws travels; it is checked and not ranked."""


def sbc(
    key: Array | int,
    model: Program,
    data: Data,
    method: Method,
    num_simulations: int = 200,
    *,
    quantities: Mapping[str, Callable[[Values], Array]] | None = None,
    given: "DataTree | None" = None,
    progress: bool = True,
) -> "DataTree":
    """Rank every latent value among the draws of `method` for the data it generated; log joint and likelihood as well.

    The log joint density and the log likelihood depend on the data: a posterior that ignores some of them, or all, as
    the prior does, has uniform ranks of every latent site, but not of these (Modrák et al. 2023, arXiv:2211.02383).
    They are left out where a site or a quantity has their name, or where draws lack a site.

    data: fixes the inputs and says which sites are observed, and which of their entries are missing; their values
    are simulated.
    method: its draws should be nearly independent, so thin a Markov chain. One chain is run for a simulation.
    quantities: functions of one draw, of the values of latent and observed sites by name, that are ranked as well: what
        does not depend on the order of components, for example.
    given: a result for these data. True values are then its draws in place of the prior's, and the method gets the
        data and a simulated copy of them: is the posterior right near these data, of which a vague prior knows
        nothing (Säilynoja, Schmitt, Bürkner and Vehtari 2025, arXiv:2502.03279)? The result has to be right, and its
        draws nearly independent: `Exact`, or a long chain. In a quantity, observed sites have their simulated values.
    Returns a DataTree with group prior_sbc: ranks scaled to (0, 1), ties broken at random, for `az.plot_ecdf_pit`.
    Interrupted from the keyboard it returns the simulations that are finished.
    Raises ValueError for a program with an improper prior (but not with `given`), without an observed site, or whose
    observed values also reach it as an argument, so that simulated values would not.
    """
    require_method(method)
    if not isinstance(num_simulations, int | np.integer) or num_simulations < 1:
        raise ValueError(f"num_simulations must be positive, but is {num_simulations}")
    extra_quantities = dict(quantities or {})
    with precision_scope():
        bound = bind(model, data)
        refuse_mixed_data(bound)
        if taken := [name for name in extra_quantities if name in bound.sites]:
            raise ValueError(f"quantities are named {taken}, as sites of the program are; give them other names")
        simulated = {name: name for name in bound.observed}  # by the names that quantities use
        truths: Values = {}
        if given is None:
            require_joint_draws(bound, "sbc")
        else:
            truths = _evenly_spaced_draws(given, bound, num_simulations)
            simulated = {name: name_of_copy(name) for name in simulated}
            bound = replicate_data(model, data, bound)
        method, sampler, _ = plan_for_simulated(bound, method, simulated.values(), truths)
        densities = _ranked_densities(bound, extra_quantities)

        def pit(key: Array, truth: Values, bound: Bound) -> Values:
            key_prior, key_run, key_tie = jax.random.split(key, 3)
            truth = {name: site["value"] for name, site in bound.prior_draw(key_prior, values=truth).items()}
            new = {name: truth[name] for name in simulated.values()}
            simulated_bound = replace(bound, observed=bound.observed | new)
            draws, stats, _ = whole_chain(key_run, method, sampler, simulated_bound)
            truth |= whole_sites(simulated_bound, {name: truth[name] for name in bound.latent})
            draws = whole_sites(simulated_bound, draws)
            kept = [name for name in bound.latent if name in draws]  # sites that are counted only have no draws
            true, drawn = {name: truth[name] for name in kept}, {name: draws[name] for name in kept}
            seen = {name: new[copy] for name, copy in simulated.items()}
            for name, quantity in extra_quantities.items():
                true[name] = jnp.asarray(quantity({n: truth[n] for n in kept} | seen))
                drawn[name] = jax.vmap(lambda one: jnp.asarray(quantity(one | seen)))({n: draws[n] for n in kept})  # noqa: B023
            if len(kept) == len(bound.latent):
                for name, density in densities.items():
                    of_data = partial(density, simulated_bound)
                    true[name] = of_data({n: truth[n] for n in kept})
                    drawn[name] = map_draws(of_data, {n: draws[n] for n in kept})
            ties = jax.random.split(key_tie, len(true))
            ranks = {name: _rank(tie, true[name], drawn[name]) for name, tie in zip(true, ties, strict=True)}
            return ranks | {EXCESS_KEY: stats["excess"].max()} if "excess" in stats else ranks

        keys = np.asarray(jax.random.split(raw_key(key), num_simulations))
        count = min(SIMULATIONS_PER_BATCH, num_simulations)
        code = (
            jax.jit(lambda keys, truths, bound: jax.lax.map(lambda each: pit(each[0], each[1], bound), (keys, truths)))
            .lower(keys[:count], {name: value[:count] for name, value in truths.items()}, bound)
            .compile()
        )
        with progress_bar("sbc", progress) as report:
            parts = _run_in_batches(code, keys, truths, bound, count, report)
        values = {name: np.concatenate([part[name] for part in parts])[None] for name in parts[0]}
        require_identity(values.pop(EXCESS_KEY, np.zeros(0)))
        tree = to_datatree({"prior_sbc": values}, bound, read_entries(data))
    tree.attrs = {
        "method": type(method).__name__,
        "num_simulations": len(next(iter(values.values()))[0]),
        "num_draws": method.num_samples,
        "given_data": int(given is not None),
    }
    return tree


def _ranked_densities(bound: Bound, taken: Collection[str]) -> dict[str, Callable[[Bound, Values], Array]]:
    """The log joint and, of a program without sites integrated out, the log likelihood, as functions of data and of all
    latent sites, without those whose names are taken by sites or by quantities."""

    def log_likelihood(bound: Bound, latent: Values) -> Array:
        return sum_of_terms([term for term in terms(bound).terms if term.name in bound.observed], bound, latent)

    densities = {"log_joint": Bound.log_joint} | ({"log_likelihood": log_likelihood} if bound.transform is None else {})
    return {name: density for name, density in densities.items() if name not in bound.sites and name not in taken}


def _rank(key: Array, truth: Array, draws: Array) -> Array:
    """The rank of the truth among the draws, ties and the gap broken at random: uniform on (0, 1)."""
    below, equal = (draws < truth).sum(0), (draws == truth).sum(0)
    return (below + jax.random.uniform(key, jnp.shape(truth)) * (equal + 1)) / (len(draws) + 1)


def _evenly_spaced_draws(given: "DataTree", bound: Bound, number: int) -> Values:
    """Some draws (draw, *site) of all latent sites, spread evenly over those of a result. number: how many."""
    posterior = posterior_draws(given, "sbc (given)")
    if not has_same_data(given, bound):
        raise ValueError("given must be a result of fit() for these data, but is of other data")
    if missing := [name for name in bound.latent if name not in posterior]:
        raise ValueError(f"given has no draws of {missing}; if they were integrated out, recover() draws them")
    flat = {name: posterior[name].values for name in bound.latent}
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in flat.items()}
    if (num_available := len(next(iter(flat.values())))) < number:
        raise ValueError(
            f"given has {num_available} draws, fewer than the {number} simulations; fit with more num_samples"
        )
    return {name: values[np.linspace(0, num_available - 1, number).astype(int)] for name, values in flat.items()}


def _run_in_batches(
    code: Any, keys: np.ndarray, truths: Values, bound: Bound, count: int, report: Any
) -> list[dict[str, np.ndarray]]:
    """The results of all keys, a batch a thread; when the keyboard interrupts, those that are finished."""
    starts = [min(first, len(keys) - count) for first in range(0, len(keys), count)]

    def run(place: int) -> dict[str, np.ndarray]:
        overlap = place * count - starts[place]  # the last batch overlaps the one before
        own = slice(starts[place], starts[place] + count)
        with precision_scope():
            results = code(keys[own], {name: value[own] for name, value in truths.items()}, bound)
            return {name: np.asarray(value)[overlap:] for name, value in results.items()}

    finished: dict[int, dict[str, np.ndarray]] = {}
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(os.cpu_count()) as pool:  # these threads take the cores
        running = {pool.submit(run, batch): batch for batch in range(len(starts))}
        try:
            for future in as_completed(running):
                finished[running[future]] = future.result()
                if report is not None:
                    report(min(len(finished) * count, len(keys)), len(keys), {})
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            if not finished:
                raise
    return [finished[batch] for batch in sorted(finished)]


def refuse_mixed_data(bound: Bound) -> None:
    """Raises ValueError where nothing is observed, or where observed values reach the program as arguments as well."""
    if not bound.observed:
        raise ValueError(f"data give no value to any sample site of {list(bound.sites)}, so nothing is observed")
    facts = trace_data_flow(bound, bound.latent_shapes)
    used = {name for fact in facts.of("density") for name in fact.reached_by("argument")}
    for fact in facts.of("written"):
        for name in fact.reached_by("argument"):
            if name in used:
                raise ValueError(
                    f"argument '{name}' gives site '{fact.site}' its value and reaches the program another way as "
                    "well, so data simulated for the site would not; calibrate a program that draws it instead"
                )
