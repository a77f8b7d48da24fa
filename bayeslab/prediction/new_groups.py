"""Predictions for groups that were not fitted, beside those that were: their effects are drawn from the prior."""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind_new_rows
from bayeslab.programs.data import Entry, are_positions, as_entry, first_true, with_nested_entries
from bayeslab.programs.program import Bound, Program, Site, Values
from bayeslab.programs.validation import listed_sites
from bayeslab.programs.wrapped_distributions import innermost_distribution
from bayeslab.results.datatree import argument_recipes, categories_of, observed_data

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree


def data_of_fit(tree: "DataTree") -> dict[str, "DataArray"]:
    """The arguments and observed values of a fit, by name."""
    groups = [tree[name].data_vars for name in ("constant_data", "observed_data") if name in tree.children]
    return {str(name): value for group in groups for name, value in group.items()}


def unchanged_sites(tree: "DataTree", bound: Bound) -> set[str]:
    """The observed sites that have the values of the fit."""
    fitted, current = data_of_fit(tree), observed_data(bound)
    return {
        name
        for name, value in current.items()
        if name in fitted and np.array_equal(fitted[name].values, value, equal_nan=value.dtype.kind == "f")
    }


def warn_of_shared_plates(tree: "DataTree", bound: Bound, latent: Collection[str]) -> None:
    """Warn where latent vectors that keep their draws, as factors and loadings, lie in different plates of one observed
    site whose values have changed: the program does not say which of these plates have new elements.

    latent: the sites that keep their draws.
    """
    plates = {name: {plate.name for plate in site.plates} for name, site in bound.sites.items()}
    unchanged = unchanged_sites(tree, bound)
    for observed in (name for name in bound.observed if name not in unchanged):
        vectors = [name for name in latent if plates[name] - plates[observed] or bound.sites[name].event_dim]
        shared = {name: plates[name] & plates[observed] for name in vectors}
        kinds = {frozenset(common) for common in shared.values() if common and common < plates[observed]}
        if len(kinds) > 1:
            names = listed_sites([name for name, common in shared.items() if common])
            known = ", ".join(repr(name) for name in sorted(set().union(*kinds)))
            warnings.warn(
                f"{names} keep the draws of the fit, though '{observed}' has other values; where the elements of one "
                f"of the plates {known} are new, name it in predict(..., new_plates=[...])",
                stacklevel=3,
            )


def with_codes_of_fit(name: str, item: Entry, tree: "DataTree") -> Entry:
    """An entry with the codes of the fit, and further ones for categories that it does not know."""
    if type(item.value) is dict:
        parts = with_nested_entries({name: item})
        return item._replace(value={key: _part(parts, f"{name}.{key}", v, tree) for key, v in item.value.items()})
    levels, known = [str(level) for level in item.categories], categories_of(tree, name)
    if not levels and _are_other_numbers(known):
        raise ValueError(
            f"entry '{name}' holds numbers, but the fit had the categories {shorten(', '.join(known), 60)}; give "
            "categories again, as pandas.Series(...).astype('category'), since numbers would be positions among these"
        )
    if not levels or levels == known:
        return item
    if not known:
        if name in data_of_fit(tree) and argument_recipes(tree):
            raise ValueError(f"entry '{name}' holds categories, but the fit had numbers in it; give the same numbers")
        return item
    codes = {level: code for code, level in enumerate(known)}
    new = [level for level in levels if level not in codes]
    codes |= {level: len(known) + place for place, level in enumerate(new)}
    value = np.array([codes[level] for level in levels])[item.value]
    if item.present is not None:
        value = np.where(item.present, value, 0)
    return item._replace(value=value, categories=[*known, *new])


def _are_other_numbers(labels: Sequence[str]) -> bool:
    """Whether labels are whole numbers, but not their positions."""
    whole = bool(labels) and all(label.removeprefix("-").isdecimal() for label in labels)
    return whole and [int(label) for label in labels] != [*range(len(labels))]


def _part(parts: Mapping[str, Entry], path: str, value: Any, tree: "DataTree") -> Any:
    """What stands in a dict, with the codes of the fit where it holds categories."""
    if path not in parts or not parts[path].categories:
        return value
    from pandas import Categorical, Index

    item = with_codes_of_fit(path, parts[path], tree)
    codes = item.value if item.present is None else np.where(item.present, item.value, -1)
    return Categorical.from_codes(np.asarray(codes, int), Index([str(level) for level in item.categories]))


def numbers_of_groups(entries: Mapping[str, Entry], tree: "DataTree") -> set[tuple[int, int]]:
    """Numbers of groups, at the fit and now, that have grown: of categories with new names, and integer arguments.

    More columns of a matrix are no groups: they would silently get coefficients from the prior.
    """
    recipes = argument_recipes(tree)
    constants: Mapping[Any, DataArray] = tree["constant_data"].data_vars if "constant_data" in tree.children else {}
    grown = set()
    for name, item, recipe in _with_recipes(entries, recipes):
        before: Any = recipe.get("value")
        if "array" in recipe and recipe["array"] in constants and constants[recipe["array"]].ndim == 0:
            before = constants[recipe["array"]].item()
        pairs = [(len(categories_of(tree, name)), len(item.categories))]
        if _is_integer(before) and np.ndim(item.value) == 0 and _is_integer(np.asarray(item.value).item()):
            pairs.append((int(before), int(np.asarray(item.value).item())))
        grown |= {pair for pair in pairs if 0 < pair[0] < pair[1]}
    return grown


def _with_recipes(
    entries: Mapping[str, Entry], recipes: Mapping[str, Any]
) -> Iterator[tuple[str, Entry, Mapping[str, Any]]]:
    """The entries, and what stands in dicts among them, with how they were made at the fit."""
    for name, item in entries.items():
        recipe = recipes.get(name, {})
        yield name, item, recipe
        if type(item.value) is dict and type(recipe.get("dict")) is dict:
            for key, value in item.value.items():
                yield f"{name}.{key}", as_entry(value, name), recipe["dict"].get(key, {})


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer | float) and not isinstance(value, bool) and value == int(value)


def has_more_groups(fitted: tuple[int, ...], site: Site, grown: set[tuple[int, int]]) -> bool:
    """Whether a site has the shape that it had at the fit but for plates with more groups.

    grown: from `numbers_of_groups`.
    """
    if len(fitted) != len(site.shape):
        return False
    plates = {len(site.shape) - site.event_dim + plate.dim for plate in site.plates}
    pairs = list(zip(fitted, site.shape, strict=True))
    return all(old == new or (axis in plates and (old, new) in grown) for axis, (old, new) in enumerate(pairs))


def value_with_new_groups(values: Values, site: Mapping[str, Any]) -> Array | None:
    """The value of a traced site of which some groups are given: a draw of it, and their values at their positions.

    None for other sites.
    """
    if site["type"] != "sample" or site["name"] not in values:
        return None
    given, fn = values[site["name"]], site["fn"]
    drawn = jnp.asarray(fn(rng_key=site["kwargs"]["rng_key"], sample_shape=site["kwargs"]["sample_shape"]))
    return drawn.at[tuple(slice(0, size) for size in given.shape)].set(given)


def with_grown_sizes(fitted: Mapping[str, Entry], given: Mapping[str, Entry], tree: "DataTree") -> dict[str, Entry]:
    """Arguments of the fit that were left out, with the number of groups of those that have new names.

    The only integer argument that is the number of categories at the fit is that of the groups; where there are several
    or none, nothing grows.
    """
    grown = dict(fitted)
    for name, item in given.items():
        before, now = len(categories_of(tree, name)), len(item.categories)
        sizes = [other for other, entry in fitted.items() if _is_size(entry.value, before)]
        if 0 < before < now and len(sizes) == 1:
            grown[sizes[0]] = grown[sizes[0]]._replace(value=np.asarray(now).astype(int).item())
    return grown


def _is_size(value: Any, number: int) -> bool:
    """Whether an argument is this number."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) == number


def bind_with_new_groups(
    program: Program, entries: Mapping[str, Entry], given: Mapping[str, Entry], tree: "DataTree"
) -> Bound:
    """The program with its entries; raises ValueError, with the new category, where there is no room for it.

    given: the entries of the user.
    """
    try:
        return bind_new_rows(program, entries)
    except ValueError as reason:
        for name, item in with_nested_entries(given).items():
            if new := _first_new_category(item, len(categories_of(tree, name))):
                sizes = [other for other, size in given.items() if _is_size(size.value, len(categories_of(tree, name)))]
                way_out = f"; leave out '{sizes[0]}', which grows with new names" if len(sizes) == 1 else ""
                raise ValueError(
                    f"entry '{name}' has {new}; as a new group it does not fit: {reason}{way_out}"
                ) from None
        raise


def refuse_unused_categories(
    given: Mapping[str, Entry], tree: "DataTree", fitted: Mapping[str, tuple[int, ...]], bound: Bound
) -> None:
    """Raises ValueError for a category that the fit does not know where no site has a position for it.

    fitted: the shapes of latent sites in the result.
    """
    for name, item in with_nested_entries(given).items():
        before, now = len(categories_of(tree, name)), len(item.categories)
        has_place = any(
            old == before and new >= now
            for site, shape in fitted.items()
            for old, new in zip(shape, bound.sites[site].shape, strict=False)
        )
        if not has_place and (new_category := _first_new_category(item, before)):
            raise ValueError(f"entry '{name}' has {new_category}, and no site has a position for a new group")


def new_group_names(given: Mapping[str, Entry], tree: "DataTree") -> list[str]:
    """The categories of all entries that the fit does not know, in the order of their codes."""
    names: list[str] = []
    for name, item in with_nested_entries(given).items():
        known = len(categories_of(tree, name))
        names += [str(level) for level in item.categories[known:]] if known else []
    return names


def _first_new_category(item: Entry, known: int) -> str:
    """The first category beyond those of the fit, in words; empty where there is none."""
    unknown = np.asarray(item.value) >= known if 0 < known < len(item.categories) else np.zeros(1, bool)
    if not unknown.any():
        return ""
    position = first_true(unknown)
    category = item.categories[item.value[position]]
    names = shorten(", ".join(map(str, item.categories[:known])), 200)
    return f"category '{category}' at position {position}, which the fit does not know; it knows {names}"


def elements_of_fit(shape: tuple[int, ...], site: Site) -> np.ndarray:
    """Which elements (*site) were those of the fit, where the site had a shape: the first ones of every axis."""
    first = np.zeros(site.shape, bool)
    first[tuple(map(slice, shape))] = True
    return first


def refuse_other_axes(given: Mapping[str, Entry], tree: "DataTree", bound: Bound, latent: "Dataset") -> None:
    """Raises ValueError where an axis that is not of new rows has other labels or another position than at the fit.

    latent: the draws that are taken from the result.
    """
    fitted = {name: as_entry(value, name) for name, value in data_of_fit(tree).items()}
    observed = {*bound.observed, *fitted} & set(bound.sites)
    rows = {plate.name for name in observed for plate in bound.sites[name].plates} - set(latent.dims)
    of_latent = [list(index) for index in latent.indexes.values()]
    for name, item in given.items():
        before = fitted.get(name, Entry(None))
        for axis, dim in enumerate(item.dims):
            if dim in before.dims and before.dims[axis : axis + 1] != (dim,):
                raise ValueError(f"entry '{name}' has '{dim}' as axis {axis}, but not so at the fit; transpose it")
        for axis, labels in item.labels.items():
            known = before.labels.get(axis, [])
            same = len(known) > len(labels) or [*map(str, known)] == [*map(str, labels[: len(known)])]
            if same or are_positions(known) or are_positions(labels) or before.dims[axis] in rows:
                continue
            has_more = len(labels) > len(known)
            if (axis and not has_more) or before.dims[axis] in latent.dims or known in of_latent:
                position = next(
                    i for i, pair in enumerate(zip(known, labels, strict=False)) if len({*map(str, pair)}) > 1
                )
                raise ValueError(
                    f"entry '{name}' has '{labels[position]}' at position {position} of axis {axis}, where the fit had "
                    f"'{known[position]}'; give what it had, in its order: {shorten(', '.join(map(str, known)), 200)}"
                )


def refuse_other_inputs(
    program: Program, entries: Mapping[str, Entry], tree: "DataTree", bound: Bound, latent: Mapping[str, np.ndarray]
) -> None:
    """Raises ValueError for a process of which the result has draws at other inputs than those of the data: a Gaussian
    process, or a Normal vector with an element for every row whose covariance is another one.

    latent: (chain, draw, *site), of the sites that keep their draws.
    """
    num_rows = {site.shape[-1:] for name, site in bound.sites.items() if name not in latent}
    processes = [
        name
        for name in latent
        if bound.sites[name].family == "GaussianProcess"
        or (bound.sites[name].family == "MultivariateNormal" and bound.sites[name].shape[-1:] in num_rows)
    ]
    fitted = {name: as_entry(value, name) for name, value in data_of_fit(tree).items() if name in entries}
    before = {name: item for name, item in fitted.items() if np.shape(item.value) == np.shape(entries[name].value)}
    if not processes or not before:
        return
    values = {name: jnp.asarray(value[0, 0]) for name, value in latent.items()}
    half_new = {name: _half_new(entries[name], item) for name, item in before.items()}  # a shift of all keeps distances
    bounds = [bind_new_rows(program, {**entries, **given}).plain for given in (before, half_new)]
    for name in processes:
        then, *others = (_inputs_of_process(name, at, values) for at in (*bounds, bound))
        if any(now.shape != then.shape or not np.allclose(now, then) for now in others):
            way_out = "" if bound.sites[name].family == "GaussianProcess" else "write it as a GaussianProcess, which "
            raise ValueError(
                f"site '{name}' has draws at the inputs of the fit, and these are others; {way_out}process_at and "
                f"process_draws take{' it' * (not way_out)} to new inputs"
            )


def _half_new(now: Entry, then: Entry) -> Entry:
    """An entry with every other value of two."""
    new, old = np.asarray(now.value), np.asarray(then.value)
    return then._replace(value=np.where(np.arange(new.size).reshape(new.shape) % 2, new, old).astype(old.dtype))


def _inputs_of_process(name: str, bound: Bound, values: Values) -> np.ndarray:
    """The inputs of a Gaussian process, or the covariance of a Normal vector."""
    prior = innermost_distribution(terms(bound).priors[name].distribution(bound, values))
    return np.asarray(prior.x if hasattr(prior, "x") else prior.covariance_matrix)
