"""The program of a Gaussian process at the inputs of a fit and at new ones, with draws of what the process needs."""

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from numpyro.handlers import substitute, trace

from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.terms import Term, terms
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.prediction.known_sites import given_parameters
from bayeslab.prediction.new_groups import (
    bind_with_new_groups,
    refuse_other_axes,
    refuse_unused_categories,
    with_codes_of_fit,
)
from bayeslab.prediction.pointwise_likelihood import belongs_to_rows
from bayeslab.programs.binding import bind
from bayeslab.programs.data import read_entries
from bayeslab.programs.missing.names import whole_site
from bayeslab.programs.missing.observed_values import known_values
from bayeslab.programs.program import Bound, Data, Program, Values, raw_key
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.results.datatree import has_same_data, posterior_draws
from bayeslab.verification.findings import find_conditional

if TYPE_CHECKING:
    from xarray import DataTree


class PredictedProcess(NamedTuple):
    """The process that is predicted.

    rule: how it is eliminated, None where its draws are used. responses: its observed children. of: the terms of the
    log joint.
    """

    site: str
    rule: Rule | None
    responses: tuple[str, ...]
    of: tuple[Term, ...]


class ProcessDraws(NamedTuple):
    """Draws (draw, *site) of what the process depends on: at the fit, and of rows at the new inputs.

    new_rows: latent sites with an element for every row, drawn from their prior given the others.
    """

    fitted: Values
    new_rows: Values

    @property
    def there(self) -> Values:
        """The draws at the new inputs."""
        return self.fitted | self.new_rows

    @property
    def number(self) -> int:
        return len(next(iter(self.fitted.values()), ()))

    def at(self, place: int) -> "ProcessDraws":
        """One of them, counted from the first."""
        return jax.tree.map(lambda value: value[place], self)


def at_new_inputs(
    model: Program, data: Data, tree: "DataTree", new: Data, key: Array | int = 0, min_draws: int = 1
) -> tuple[Bound, Bound, ProcessDraws, PredictedProcess]:
    """The program at the inputs of the fit and at new ones, draws of what it needs, and the process.

    key: for latent sites of new rows. min_draws: draws, at least, where there are such sites; those of the fit are
    repeated.
    """
    posterior = posterior_draws(tree, "a prediction of a process")
    fit_bound = bind(model, data).plain
    if not has_same_data(tree, fit_bound):
        raise ValueError("the result is of other data than these")
    site = _process_of(fit_bound)
    of_rows = {whole_site(name) for name in fit_bound.observed.keys() - set(given_parameters(fit_bound))}
    given = {name: with_codes_of_fit(name, item, tree) for name, item in read_entries(new).items()}
    inputs = {name: item for name, item in read_entries(data).items() if name not in of_rows} | given
    new_bound = bind_with_new_groups(model, inputs, given, tree).plain
    finding = find_conditional(fit_bound, site)
    needed = [name for name in fit_bound.latent if name != site or finding.rule is None]
    if missing := [name for name in needed if name not in posterior]:
        raise ValueError(f"the result has no draws of {missing}, on which '{site}' depends")
    rows = [name for name in needed if name != site and belongs_to_rows(name, [*fit_bound.observed], fit_bound)]
    others = [name for name in needed if name not in (*rows, site)]
    refuse_unused_categories(given, tree, {name: fit_bound.sites[name].shape for name in others}, new_bound)
    refuse_other_axes(given, tree, new_bound, posterior[others])
    _refuse_other_shapes(fit_bound, new_bound, others)
    flat = {n: jnp.asarray(posterior[n].values).reshape(-1, *fit_bound.sites[n].shape) for n in needed}
    if rows and (times := -(-min_draws // len(flat[rows[0]]))) > 1:
        flat = {name: jnp.repeat(value, times, axis=0) for name, value in flat.items()}
    draws = ProcessDraws(flat, _draws_of_rows(raw_key(key), new_bound, flat, site, tuple(rows)))
    first = draws.at(0)
    fit_inputs, new_inputs = (
        prior_process(bound, values, site).x for bound, values in ((fit_bound, first.fitted), (new_bound, first.there))
    )
    if fit_inputs.shape[1:] != new_inputs.shape[1:]:
        raise ValueError(
            f"the new inputs have shape {new_inputs.shape}; expected {('row', *fit_inputs.shape[1:])} as in the fit"
        )
    is_last = finding.rule is not None and not {*finding.children} & {*rows}
    responses = tuple(name for name in finding.children if name in of_rows) if is_last else ()
    return fit_bound, new_bound, draws, PredictedProcess(site, finding.rule, responses, terms(fit_bound).terms)


def _refuse_other_shapes(fitted: Bound, new: Bound, names: Collection[str]) -> None:
    """Raises ValueError for a latent site that has another shape at the new inputs than in the result."""
    for name in names:
        if (shape := new.sites[name].shape) != fitted.sites[name].shape:
            raise ValueError(
                f"site '{name}' has shape {fitted.sites[name].shape} in the result, but {shape} for the new inputs"
            )


@partial(jax.jit, static_argnames=("site", "rows"))
def _draws_of_rows(key: Array, bound: Bound, values: Values, site: str, rows: tuple[str, ...]) -> Values:
    """Draws of latent sites of rows at the new inputs from their prior, one for every draw of the others."""
    others = {name: value for name, value in values.items() if name not in (*rows, site)}

    def drawn(at: tuple[Array, Values]) -> Values:
        sites = sites_at(bound, at[1], site, key=at[0])
        return {name: sites[name]["value"] for name in rows}

    return jax.lax.map(drawn, (jax.random.split(key, len(values[rows[0]])), others)) if rows else {}


def _process_of(bound: Bound) -> str:
    """The name of the Gaussian process; raises ValueError unless there is one."""
    names = [name for name in bound.latent if terms(bound).priors[name].kind is GaussianProcess]
    if len(names) != 1:
        raise ValueError(f"the program has the Gaussian processes {names}; expected one")
    return names[0]


def sites_at(bound: Bound, values: Values, site: str, at: ArrayLike = 0.0, key: Array | None = None) -> dict[str, Any]:
    """The sites of the program, run at one draw, with the process at 0 or another value in place of its draw."""
    known = known_values(bound) | values | {site: jnp.broadcast_to(jnp.asarray(at, float), bound.sites[site].shape)}
    model = substitute(bound.unconditioned(jax.random.PRNGKey(0) if key is None else key), data=known)
    return trace(model).get_trace(**bound.inputs)


def prior_process(bound: Bound, values: Values, site: str) -> GaussianProcess:
    """The prior of the process at one draw of its parameters."""
    return innermost_distribution(sites_at(bound, values, site)[site]["fn"])
