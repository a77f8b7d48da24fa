"""Which elements of latent sites belong to one row of the data, or to one group of rows, and to no other.

An effect that is written in a plate of the rows, one that is looked up by a code, and one without plates are the same
here: what counts is which densities change with an element. Any two groups differ in some bit of their positions, so
two runs for every bit, one with the groups that have it and one with the others, tell all elements apart.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import biject_to

from bayeslab.elimination.around import bit_masks
from bayeslab.elimination.terms import Term, terms
from bayeslab.programs.program import Bound, Values

MAX_NUMBERS = 3
"""Numbers of a group that are integrated out, at most."""
NO_GROUP, SEVERAL = -1, -2
"""What stands for the group of an element that no row sees, and of one that rows of several groups see."""


class GroupElements(NamedTuple):
    """What belongs to each of a number of groups.

    elements: by latent site, the flat positions (group, number) of its elements. outputs: by term that these reach, the
    group (flat output,) that each of its elements belongs to; the number of groups for those that belong to none.
    kept: by site, the elements (*site) that keep their values. Of a group that has no element of such a site a position
    is the size of the site.
    """

    elements: dict[str, Array]
    outputs: dict[str, Array]
    kept: dict[str, Array]


def elements_of_groups(
    bound: Bound, values: list[Values], codes: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray] | None = None
) -> GroupElements | None:
    """The latent sites all of whose elements belong to one group each; None where there are none.

    values: draws of all sites, at which this is proven. codes: by observed site, the group (*batch) of every row, minus
    one for those that are missing; what other observed sites see of an element makes it shared.
    kept: by site, which elements (*site) keep their values, as those of groups of the fit, whoever sees them.
    Raises ValueError where a site has more elements in a group than are integrated out, or not the same number in all,
    and where priors or densities connect groups.
    """
    num_groups = 1 + max(int(groups.max()) for groups in codes.values())
    sites, kept = bound.sites, kept or {}
    candidates = [
        name
        for name in bound.latent
        if not sites[name].is_discrete
        and not sites[name].scanned
        and (np.prod(_density_shape(bound, name), dtype=int) >= num_groups > 1 or name in kept)
        and not (name in kept and kept[name].all())
    ]
    if not candidates:
        return None
    reached_groups = [
        _reached_groups(bound, draw, codes, num_groups, tuple(candidates)) for draw in (values[0], values[-1])
    ]
    elements = {}
    for name in candidates:
        first, last = (reached[name] for reached in reached_groups)
        group = np.where(first == last, first, np.where(first == NO_GROUP, last, first))
        group = _with_unseen_of_events(group, _event_size(bound, name))
        if name in kept:
            group = np.where(kept[name].ravel(), NO_GROUP, group)
        if (group == SEVERAL).any() or (group == NO_GROUP).all():
            continue
        counts = np.bincount(group[group >= 0], minlength=num_groups)
        has_some = counts > 0 if name in kept else np.ones(num_groups, bool)
        fewest = counts[has_some].min()
        if fewest != counts.max() or counts.max() > MAX_NUMBERS:
            raise ValueError(
                f"site '{name}' has {fewest} to {counts.max()} elements in a group; at most {MAX_NUMBERS}, as "
                "many in all of them, are integrated out"
            )
        order = np.argsort(np.where(group < 0, num_groups, group), kind="stable")
        positions = np.full((num_groups, counts.max()), group.size)
        positions[has_some] = order[: has_some.sum() * counts.max()].reshape(-1, counts.max())
        elements[name] = jnp.asarray(positions)
    if sum(positions.shape[1] for positions in elements.values()) > MAX_NUMBERS:
        raise ValueError(f"a group has more than {MAX_NUMBERS} numbers of its own, in sites {', '.join(elements)}")
    if not elements:
        return None
    outputs = [_groups_of_outputs(bound, draw, codes, num_groups, elements) for draw in (values[0], values[-1])]
    if any((outputs[0][name] != outputs[1][name]).any() for name in outputs[0]):
        raise ValueError("which rows see which elements depends on the draw")
    fixed = {name: jnp.asarray(kept[name]) for name in elements if name in kept}
    return GroupElements(elements, {name: jnp.asarray(group) for name, group in outputs[0].items()}, fixed)


def _with_unseen_of_events(group: np.ndarray, event_size: int) -> np.ndarray:
    """The groups of elements, where those of an event that no row sees belong to the only group that sees others of
    it, as the slope of a person at whom only the intercept was looked at."""
    events = group.reshape(-1, event_size)
    owner = events.max(1, keepdims=True)
    is_alone = ((events == owner) | (events == NO_GROUP)).all(1, keepdims=True)
    return np.where(is_alone, owner, events).ravel()


def _event_size(bound: Bound, name: str) -> int:
    """Elements of a site that one number of its density belongs to."""
    outputs = np.prod(_density_shape(bound, name), dtype=int)
    size = np.prod(bound.sites[name].shape, dtype=int)
    return int(size // outputs) if outputs and size % outputs == 0 else 1


def reached_terms(log_joint_terms: tuple[Term, ...], sites: Mapping[str, Array]) -> list[Term]:
    """The terms that some sites reach."""
    return [term for term in log_joint_terms if not term.depends.isdisjoint(sites)]


def _density_shape(bound: Bound, name: str) -> tuple[int, ...]:
    [term] = [term for term in terms(bound).terms if term.name == name]
    return jax.eval_shape(term.density, bound, bound.latent_shapes).shape


def masks_of_groups(num_groups: int) -> np.ndarray:
    """The groups that have a bit, for every bit, then those that have it not (mask, group)."""
    masks = bit_masks((num_groups,))[1]
    return np.concatenate([masks, ~masks])


def _group_of_masks(in_mask: np.ndarray) -> np.ndarray:
    """The group of every element, from which masks of groups it changes with (mask, element)."""
    having, lacking = np.split(in_mask, 2)
    bits = np.arange(len(having))[:, None]
    group = (having.astype(int) << bits).sum(0)
    group = np.where((having & lacking).any(0), SEVERAL, group)
    return np.where(in_mask.any(0), group, NO_GROUP)


def _reached_groups(
    bound: Bound, values: Values, codes: Mapping[str, np.ndarray], num_groups: int, names: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """The group of the rows that see each element of some sites, flat: those whose densities have derivatives."""
    masks = np.concatenate([masks_of_groups(num_groups), np.zeros((1, num_groups), bool)])
    others = np.arange(len(masks)) == len(masks) - 1  # observed sites that have no groups, last
    seen = jax.device_get(_derivatives(bound, values, names, dict(codes), jnp.asarray(masks), jnp.asarray(others)))
    groups = {}
    for name, derivative in seen.items():
        is_seen = derivative.reshape(len(masks), -1) != 0.0
        groups[name] = np.where(is_seen[-1], SEVERAL, _group_of_masks(is_seen[:-1]))
    return groups


@partial(jax.jit, static_argnames="names")
def _derivatives(
    bound: Bound, values: Values, names: tuple[str, ...], codes: Values, masks: Array, others: Array
) -> Values:
    """Derivatives of weighted densities of rows in the elements of sites, (mask, *site)."""
    observed = [term for term in terms(bound).terms if term.name in bound.observed]

    def weighted(own: Values, mask: Array, is_other: Array) -> Array:
        total = jnp.zeros(())
        for term in observed:
            density = term.density(bound, values | own)
            shown = is_other
            if term.name in codes:
                groups = codes[term.name]
                shown = mask[groups] & (groups != NO_GROUP)
                shown = shown.reshape(groups.shape + (1,) * (density.ndim - groups.ndim))
            weights = 1.0 + jax.random.uniform(jax.random.PRNGKey(0), density.shape)
            total += jnp.where(shown, weights * density, 0.0).sum()
        return total

    own = {name: values[name] for name in names}
    return jax.lax.map(lambda pair: jax.grad(weighted)(own, *pair), (masks, others))


def _groups_of_outputs(
    bound: Bound, values: Values, codes: Mapping[str, np.ndarray], num_groups: int, elements: Mapping[str, Array]
) -> dict[str, np.ndarray]:
    """By term, the group whose elements each part of it changes with; raises ValueError where it is several."""
    masks = np.concatenate([np.zeros((1, num_groups), bool), masks_of_groups(num_groups)])
    densities = jax.device_get(_densities_of_moved_groups(bound, values, dict(elements), jnp.asarray(masks)))
    groups = {}
    for name, density in densities.items():
        if name not in elements and name not in bound.observed:
            raise ValueError(f"site '{name}' depends on what belongs to a group, and is not observed")
        flat = density.reshape(len(masks), -1)
        same = (flat == flat[0]) | (np.isnan(flat) & np.isnan(flat[0]))
        group = _group_of_masks(~same[1:])
        if name in elements:
            group = np.where(group == NO_GROUP, _groups_of_own_outputs(bound, name, elements[name], len(group)), group)
        if (group == SEVERAL).any():
            raise ValueError(f"'{name}' connects several groups")
        if name in codes:
            rows = codes[name].reshape(codes[name].shape + (1,) * (density.ndim - 1 - codes[name].ndim))
            rows = np.broadcast_to(rows, density.shape[1:]).ravel()
            if ((group != rows) & (group != NO_GROUP)).any():
                raise ValueError(f"'{name}' sees elements of groups that are not its own")
            group = rows
        groups[name] = np.where(group == NO_GROUP, num_groups, group)
    return groups


def _groups_of_own_outputs(bound: Bound, name: str, positions: Array, num_outputs: int) -> np.ndarray:
    """The group (output,) of the elements that each number of a prior density is of, by their positions: a constant
    density does not change with them."""
    own, event_size = np.full(num_outputs, NO_GROUP), _event_size(bound, name)
    if num_outputs * event_size != np.prod(bound.sites[name].shape, dtype=int):
        return own
    for group, places in enumerate(np.asarray(positions)):
        own[places[places < num_outputs * event_size] // event_size] = group
    return own


@jax.jit
def _densities_of_moved_groups(bound: Bound, values: Values, elements: Values, masks: Array) -> Values:
    """The terms that elements of groups reach, (mask, *term), with those of some groups moved."""
    priors = terms(bound).priors
    reached = reached_terms(terms(bound).terms, elements)

    def densities(mask: Array) -> Values:
        all_values = dict(values)
        for index, name in enumerate(name for name in bound.latent if name in elements):
            positions = elements[name]
            transform = biject_to(priors[name].distribution(bound, all_values).support)
            free = transform.inv(all_values[name])
            steps = jax.random.normal(jax.random.fold_in(jax.random.PRNGKey(1), index), free.shape).ravel()
            moved = (
                jnp.zeros(free.size)
                .at[positions]
                .set(jnp.where(mask[:, None], steps[jnp.minimum(positions, free.size - 1)], 0.0), mode="drop")
            )
            all_values[name] = transform(free + moved.reshape(free.shape))
        return {term.name: term.density(bound, all_values) for term in reached}

    return jax.lax.map(densities, masks)
