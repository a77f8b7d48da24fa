"""Log likelihoods of whole groups, with what belongs to a group integrated out: for leaving out one group at a time."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ops import segment_sum

from bayeslab.elimination.terms import terms
from bayeslab.prediction.fitted_arguments import fitted_arguments
from bayeslab.prediction.group_elements import elements_of_groups
from bayeslab.prediction.new_groups import with_codes_of_fit
from bayeslab.prediction.pointwise_likelihood import checked_draws
from bayeslab.prediction.row_quadrature import RowQuadrature, with_groups_integrated
from bayeslab.programs.binding import bind, unwrap_partial
from bayeslab.programs.data import Entry, read_entries
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope
from bayeslab.results.datatree import categories_of, coordinates, has_same_data, posterior_draws
from bayeslab.results.draw_batches import map_draws

if TYPE_CHECKING:
    from xarray import DataTree


class Groups(NamedTuple):
    """Groups of rows. name: of their dimension. labels: of the groups. codes: by observed site, that of every row."""

    name: str
    labels: list[str]
    codes: dict[str, np.ndarray]


def log_likelihood(model: Program, data: Data, tree: "DataTree", groups: str) -> "DataTree":
    """The result with the log likelihood of whole groups in place of that of rows, as `az.loo` leaves groups out.

    data: those that were fitted. groups: the name of a plate, or of an entry of the data with the group of every row.
    Latent sites whose elements belong to one group each, up to three numbers a group, are integrated out of it by
    adaptive quadrature given each draw of the others; attrs of the group log_likelihood name them.
    Raises ValueError where a group has more numbers of its own or discrete ones, where quadrature does not settle, for
    other data than those of the fit, and where the name is neither of a plate of all observed sites nor of such an
    entry.
    """
    posterior = posterior_draws(tree, "log_likelihood")
    program, given = unwrap_partial(model, read_entries(data))
    given = {name: with_codes_of_fit(name, item, tree) for name, item in given.items()}
    with precision_scope():
        entries = fitted_arguments(program, given, tree) | given
        bound = bind(program, entries).plain
        if not has_same_data(tree, bound):
            raise ValueError("log_likelihood is of the data that were fitted, and these are others; predict takes them")
        grouping = _groups(bound, entries, tree, groups)
        latent = {name: jnp.asarray(posterior[name].values) for name in bound.latent if name in posterior}
        if not latent:
            raise ValueError(f"the result has none of the latent sites {list(bound.latent)} of this program")
        lead = next(iter(latent.values())).shape[:2]
        flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in latent.items()}
        integrated = _with_groups_integrated(bound, grouping, flat)
        own = integrated.transform.sites if isinstance(integrated.transform, RowQuadrature) else ()
        if missing := [name for name in bound.latent if name not in flat and name not in own]:
            raise ValueError(f"the result has no draws of {missing}; if they were integrated out, recover() draws them")
        kept = {name: value for name, value in flat.items() if name not in own}
        codes = {name: jnp.asarray(code) for name, code in grouping.codes.items()}
        values = np.asarray(_of_groups(integrated, kept, codes, len(grouping.labels)))
    return _with_group_likelihood(tree, grouping, values.reshape(*lead, -1), own, ", ".join(bound.observed))


def _groups(bound: Bound, entries: Mapping[str, Entry], tree: "DataTree", name: str) -> Groups:
    """The groups of all observed sites by the name of an entry or a plate."""
    if not isinstance(name, str):
        raise TypeError(f"groups must be the name of a plate or of an entry of the data, but is {name!r}")
    shapes = {site: bound.sites[site].batch_shape for site in bound.observed}
    if name in entries:
        value = np.asarray(entries[name].value)
        if other := next((site for site, shape in shapes.items() if value.shape != shape), ""):
            raise ValueError(
                f"groups='{name}' has shape {value.shape}, but rows of observed site '{other}' {shapes[other]}; give "
                "the group of every row"
            )
        levels, codes = np.unique(value, return_inverse=True)
        names = list(entries[name].categories) or categories_of(tree, name)
        labels = [str(names[int(level)]) if names else str(level) for level in levels]
        grouping = Groups(name, labels, dict.fromkeys(shapes, codes.reshape(value.shape)))
    else:
        axes = {
            site: len(shape) + plate.dim
            for site, shape in shapes.items()
            for plate in bound.sites[site].plates
            if plate.name == name
        }
        if set(axes) != set(shapes):
            known = sorted({plate.name for site in shapes for plate in bound.sites[site].plates} | set(entries))
            raise ValueError(
                f"groups='{name}' is neither a plate of all observed sites nor an entry of the data; known are {known}"
            )
        size = next(shape[axes[site]] for site, shape in shapes.items())
        given = coordinates(bound, entries).get(name, range(size))
        codes_of_sites = {
            site: np.broadcast_to(np.arange(size).reshape(-1, *(1 for _ in shape[axes[site] + 1 :])), shape)
            for site, shape in shapes.items()
        }
        grouping = Groups(name, [str(label) for label in given], codes_of_sites)
    if len(grouping.labels) < 2:
        raise ValueError(f"groups='{name}' is one group; leaving it out leaves nothing")
    return grouping


def _with_groups_integrated(bound: Bound, groups: Groups, latent: Values) -> Bound:
    """The program with what belongs to groups integrated out; raises ValueError where that cannot be done."""
    discrete = [name for name in bound.latent if bound.sites[name].is_discrete]
    if any(bound.sites[name].shape for name in discrete):
        raise ValueError(f"site '{discrete[0]}' is discrete, and those of groups are not summed over")
    draws = checked_draws(bound, latent)
    if missing := [name for name in bound.latent if name not in draws[0]]:
        raise ValueError(f"the result has no draws of {missing}, whose priors cannot be drawn from")
    own = elements_of_groups(bound, draws, groups.codes)
    if own is None:
        return bound
    number = len(groups.labels)
    return with_groups_integrated(bound, own, np.arange(number), (number,), draws)


@partial(jax.jit, static_argnames="number")
def _of_groups(bound: Bound, latent: Values, codes: Values, number: int) -> Array:
    """The log likelihood (draw, group) of all observed sites."""
    plain = bound.plain

    def run(values: Values) -> Array:
        total, parts = jnp.zeros(number), terms(plain).terms
        if isinstance(bound.transform, RowQuadrature):
            parts = bound.transform.terms(plain)
            total += bound.transform.integral(plain).density(plain, values)
        for term in parts:
            if term.name in codes:
                density, groups = term.density(plain, values), codes[term.name]
                rows = density.reshape(*groups.shape, -1).sum(-1)
                total += segment_sum(rows.ravel(), groups.ravel(), number)
        return total

    return map_draws(run, latent)


def _with_group_likelihood(
    tree: "DataTree", groups: Groups, values: np.ndarray, own: tuple[str, ...], name: str
) -> "DataTree":
    """The result with log likelihoods (chain, draw, group) as its group log_likelihood."""
    from xarray import DataArray, Dataset, DataTree

    posterior = tree["posterior"]
    coords = {dim: posterior[dim].values for dim in ("chain", "draw")}
    array = DataArray(values, coords | {groups.name: groups.labels}, ("chain", "draw", groups.name))
    result = tree.copy()
    result["log_likelihood"] = DataTree(Dataset({name: array}, attrs={"integrated_out": list(own)}))
    return result
