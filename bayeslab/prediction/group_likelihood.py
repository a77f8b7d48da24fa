"""Log likelihoods of whole groups, with what belongs to a group integrated out: for leaving out one group at a time."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.ops import segment_sum

from bayeslab.distributions import JointNormal
from bayeslab.distributions.block_normal import BlockNormal
from bayeslab.elimination.terms import terms
from bayeslab.prediction.fitted_arguments import fitted_arguments
from bayeslab.prediction.group_elements import elements_of_groups, masks_of_groups
from bayeslab.prediction.new_groups import with_codes_of_fit
from bayeslab.prediction.pointwise_likelihood import checked_draws, present_in_rows
from bayeslab.prediction.prior_draws import require_own_densities, without_weights
from bayeslab.prediction.row_quadrature import RowQuadrature, with_groups_integrated
from bayeslab.programs.binding import bind, unwrap_partial
from bayeslab.programs.data import Entry, read_entries
from bayeslab.programs.program import Bound, Data, Program, Values, precision_scope
from bayeslab.results.datatree import categories_of, coordinates, has_same_data, posterior_draws
from bayeslab.results.draw_batches import map_draws
from bayeslab.transforms.collapse import Marginal, at_modes_of_eliminated, marginal
from bayeslab.transforms.masked import finest_masks

if TYPE_CHECKING:
    from xarray import DataTree


HIDDEN_TOLERANCE = 1e-9
"""The share of a log likelihood that is rounding, when groups are hidden."""


class Groups(NamedTuple):
    """Groups of rows. name: of their dimension. labels: of the groups. codes: by observed site, that of every row."""

    name: str
    labels: list[str]
    codes: dict[str, np.ndarray]


def log_likelihood(model: Program, data: Data, tree: "DataTree", groups: str) -> "DataTree":
    """The result with the log likelihood of whole groups in place of that of rows, as `az.loo` leaves groups out.

    data: those that were fitted. groups: the name of a plate, or of an entry of the data with the group of every row.
    Latent sites whose elements belong to one group each are integrated out of it given each draw of the others, in
    closed form where that is proven, as factors of rows and labels, else, up to three numbers a group, by adaptive
    quadrature; attrs of the group log_likelihood name them. Groups without entries are left out.
    Raises ValueError where a group has more numbers of its own or discrete ones, and no closed form, where quadrature
    does not settle, for other data than those of the fit, and where the name is neither of a plate of all observed
    sites nor of such an entry.
    """
    posterior = posterior_draws(tree, "log_likelihood")
    program, given = unwrap_partial(model, read_entries(data))
    given = {name: with_codes_of_fit(name, item, tree) for name, item in given.items()}
    with precision_scope():
        entries = fitted_arguments(program, given, tree) | given
        bound = bind(program, entries).plain
        if not has_same_data(tree, bound):
            raise ValueError("log_likelihood is of the data that were fitted, and these are others; predict takes them")
        if not bound.observed:
            raise ValueError("log_likelihood needs an observed site; write the data as numpyro.sample(..., obs=y)")
        require_own_densities(bound, "log_likelihood takes the density of")
        bound = without_weights(bound)
        grouping = _groups(bound, entries, tree, groups)
        latent = {name: jnp.asarray(posterior[name].values) for name in bound.latent if name in posterior}
        if not latent:
            raise ValueError(f"the result has none of the latent sites {list(bound.latent)} of this program")
        lead = next(iter(latent.values())).shape[:2]
        flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in latent.items()}
        integrated = _with_groups_integrated(bound, grouping, flat)
        own = integrated.transform.sites if isinstance(integrated.transform, Marginal) else ()
        if missing := [name for name in bound.latent if name not in flat and name not in own]:
            raise ValueError(f"the result has no draws of {missing}; if they were integrated out, recover() draws them")
        kept = {name: value for name, value in flat.items() if name not in own}
        codes = {name: jnp.asarray(code) for name, code in grouping.codes.items()}
        values = np.asarray(_of_groups(integrated, kept, codes, len(grouping.labels), _plates_of(bound, grouping)))
        seen = _have_entries(bound, grouping)
    seen_groups = grouping._replace(
        labels=[label for label, is_seen in zip(grouping.labels, seen, strict=True) if is_seen]
    )
    values = np.broadcast_to(values, (prod(lead), len(seen))).reshape(*lead, -1)[..., seen]
    return _with_group_likelihood(tree, seen_groups, values, own, ", ".join(bound.observed))


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
            if axes:
                outside = next(site for site in shapes if site not in axes)
                raise ValueError(f"groups='{name}' is a plate that observed site '{outside}' is not in; all have to be")
            plates = set.intersection(*({plate.name for plate in bound.sites[site].plates} for site in shapes))
            known = sorted(plates | {each for each in entries if {*shapes.values()} == {np.shape(entries[each].value)}})
            raise ValueError(
                f"groups='{name}' is neither a plate of all observed sites nor an entry of the data with their shape; "
                f"known are {known}"
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


def _have_entries(bound: Bound, groups: Groups) -> np.ndarray:
    """Which groups have an entry of an observed site."""
    seen = np.zeros(len(groups.labels), bool)
    for name, codes in groups.codes.items():
        present = np.asarray(bound.present.get(name, True))
        is_present = np.broadcast_to(present.any(tuple(range(codes.ndim, present.ndim))), codes.shape)
        seen[codes[is_present]] = True
    return seen


def _with_groups_integrated(bound: Bound, groups: Groups, latent: Values) -> Bound:
    """The program with what belongs to groups integrated out; raises ValueError where that cannot be done."""
    number = len(groups.labels)
    if (closed_form := _closed_form(bound, groups, latent)) is not None:
        return closed_form
    discrete = [name for name in bound.latent if bound.sites[name].is_discrete]
    if any(bound.sites[name].shape for name in discrete):
        raise ValueError(f"site '{discrete[0]}' is discrete, and those of groups are not summed over")
    draws = checked_draws(bound, latent)
    if missing := [name for name in bound.latent if name not in draws[0]]:
        raise ValueError(f"the result has no draws of {missing}, whose priors cannot be drawn from")
    own = elements_of_groups(bound, draws, groups.codes)
    if own is None:
        return bound
    return with_groups_integrated(bound, own, np.arange(number), (number,), draws)


def _closed_form(bound: Bound, groups: Groups, latent: Values) -> Bound | None:
    """The program with the sites in a plate of the groups integrated out in closed form; None where there is none.

    Without some groups, the likelihood has to be less by theirs: of those that have a bit in their position, for every
    bit. The sites are eliminated with a group hidden: where all have the same entries they may share a precision.
    """
    number, plates = len(groups.labels), _plates_of(bound, groups)
    own = [name for name in bound.latent if _axis_of_groups(bound, name, plates) is not None]
    others = {name: latent[name][0] for name in bound.latent if name not in own and name in latent}
    if not own or bound.imputed or len(own) + len(others) < len(bound.latent):
        return None
    masked = replace(bound, present=finest_masks(bound))
    codes = {name: jnp.asarray(code) for name, code in groups.codes.items()}
    reached = {term.name for term in terms(bound).terms if not term.depends.isdisjoint(own)}
    if not reached <= {*own, *codes, *_factors_of(bound, own)}:
        return None
    try:
        transform = marginal(_without_groups(masked, codes, jnp.arange(number) == 0), own).transform
    except ValueError:
        return None
    assert isinstance(transform, Marginal)
    if any(rule.field is not None for rule in transform.rules):
        return None
    integrated = replace(masked, transform=transform)
    hidden = np.concatenate([np.zeros((1, number), bool), masks_of_groups(number)])
    try:
        parts = np.asarray(_of_groups(integrated, {n: v[None] for n, v in others.items()}, codes, number, plates))[0]
    except ValueError:  # a density has no axis of groups
        return None
    whole, *rest = np.asarray(_log_joint_without_groups(integrated, others, codes, jnp.asarray(hidden)))
    less = [whole - parts[mask].sum() for mask in hidden[1:]]
    return integrated if np.allclose(rest, less, HIDDEN_TOLERANCE, HIDDEN_TOLERANCE * max(1.0, abs(whole))) else None


def _plates_of(bound: Bound, groups: Groups) -> tuple[str, ...]:
    """The plates of latent sites that may be the groups: the one of their name, or else those of as many elements."""
    sizes = {plate.name: plate.size for name in bound.latent for plate in bound.sites[name].plates}
    sizes = {groups.name: sizes[groups.name]} if groups.name in sizes else sizes
    return tuple(sorted(name for name, size in sizes.items() if size == len(groups.labels)))


def _axis_of_groups(bound: Bound, name: str, plates: tuple[str, ...]) -> int | None:
    """The axis of the batch shape of a site that is one of some plates; None where it is in none of them."""
    site = bound.sites[name]
    return next((len(site.batch_shape) + plate.dim for plate in site.plates if plate.name in plates), None)


def _without_groups(bound: Bound, codes: Values, hidden: Array) -> Bound:
    """The program with the entries of some groups (group,) missing."""
    shown = {name: present_in_rows(bound, name, ~hidden[groups]) for name, groups in codes.items()}
    return replace(bound, present=bound.present | shown)


@jax.jit
def _log_joint_without_groups(bound: Bound, values: Values, codes: Values, hidden: Array) -> Array:
    """The log joint (mask,) with the groups of each mask (mask, group) hidden."""
    return jax.lax.map(lambda mask: _without_groups(bound, codes, mask).log_joint(values), hidden)


@partial(jax.jit, static_argnames=("number", "plates"))
def _of_groups(bound: Bound, latent: Values, codes: Values, number: int, plates: tuple[str, ...]) -> Array:
    """The log likelihood (draw, group) of all observed sites. plates: of sites that are integrated out.

    Factors of these are a part of their prior: what it comes to with all groups hidden is taken off.
    """
    hidden = _without_groups(bound, codes, jnp.ones(number, bool))

    def run(values: Values) -> Array:
        if not (isinstance(bound.transform, Marginal) and _factors_of(bound.plain, bound.transform.sites)):
            return _log_weights(bound, values, codes, number, plates)
        return _log_weights(bound, values, codes, number, plates) - _log_weights(hidden, values, codes, number, plates)

    return map_draws(run, latent) if latent else run({})[None]  # all sites belong to groups


def _log_weights(bound: Bound, values: Values, codes: Values, number: int, plates: tuple[str, ...]) -> Array:
    """The log density (group,) of what is observed of groups, and of factors of what is integrated out of them."""
    plain, transform = bound.plain, bound.transform
    total, parts = jnp.zeros(number), terms(plain).terms
    if isinstance(transform, RowQuadrature):
        parts = transform.terms(plain)
        total += transform.integral(plain).density(plain, values)
    elif isinstance(transform, Marginal):
        values, log_conditional = _with_modes(bound, values)
        for name, log_density in log_conditional.items():
            total -= _sum_by_group(plain, name, log_density, plates)
        for term in parts:
            if term.name in log_conditional or term.name in _factors_of(plain, transform.sites):
                total += _sum_by_group(plain, term.name, term.density(plain, values), plates)
    for term in parts:
        if term.name in codes:
            density, groups = term.density(plain, values), codes[term.name]
            rows = density.reshape(*groups.shape, -1).sum(-1)
            total += segment_sum(rows.ravel(), groups.ravel(), number)
    return total


def _factors_of(bound: Bound, names: Collection[str]) -> list[str]:
    """The factors that some sites reach."""
    reached = [term.name for term in terms(bound).terms if not term.depends.isdisjoint(names)]
    return [name for name in reached if bound.sites[name].role == "factor"]


def _with_modes(bound: Bound, values: Values) -> tuple[Values, Values]:
    """Values of all latent sites, those that are integrated out at their modes given the others, and the log density of
    the latter there, by site: p(y) = p(y, z) / p(z | y) at any z."""
    log_conditional: Values = {}
    values, conditionals = at_modes_of_eliminated(bound, values)
    for rule, q, mode in conditionals:
        is_joint = isinstance(q, BlockNormal | JointNormal)
        elements = rule.named(q.log_prob_of_elements(mode)) if is_joint else dict.fromkeys(rule.sites, q.log_prob(mode))
        log_conditional |= elements
    return values, log_conditional


def _sum_by_group(bound: Bound, name: str, log_density: Array, plates: tuple[str, ...]) -> Array:
    """The sum (group,) of log densities (*batch, ...) of a site in a plate of the groups."""
    axis, batch = _axis_of_groups(bound, name, plates), bound.sites[name].batch_shape
    if axis is None or log_density.shape[: len(batch)] != batch:
        raise ValueError(f"the density of site '{name}' has the axes {log_density.shape}, not {batch} with the groups")
    return jnp.moveaxis(log_density, axis, 0).reshape(batch[axis], -1).sum(-1)


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
