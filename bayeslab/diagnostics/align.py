"""Label switching: every draw of a mixture gets the same order of components.

The posterior of a mixture does not change when its components change places, so draws of "component
1" may belong to different clusters. Each draw is permuted to be nearest to a reference, the mean of
the permuted draws, until no permutation changes (Stephens 2000, doi:10.1111/1467-9868.00265, with
independent Normal features; the assignment itself is the Hungarian algorithm).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.diagnostics import procrustes
from bayeslab.diagnostics.alignment_checks import (
    MEAN_GROUPS,
    check_labels,
    check_order_by,
    check_turning,
    checked_dims,
    conformed_reference,
    number_of_components,
)
from bayeslab.results.datatree import posterior_draws
from bayeslab.results.parameters import SAMPLE_DIMS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset, DataTree

    Dims = str | Sequence[str]
    Array = NDArray[Any]
    Permutations = NDArray[Any]

MAX_ROUNDS = 50
"""The largest number of rounds of Stephens's algorithm."""


def align(
    tree: DataTree,
    site_dims: Mapping[str, Dims],
    labels: Sequence[str] = (),
    reference: DataTree | None = None,
    order_by: str | None = None,
    up_to: str = "permutations",
) -> DataTree:
    """The tree with the components of every draw in one order; the input stays as it is.

    site_dims: the dimension over components of each site to permute, {"mu": "component"}; a
        transition matrix has two, {"a": ("state", "state_")}. All sites share one permutation.
    labels: integer sites whose values are components, such as the allocations of a mixture.
    reference: a tree whose order is kept, for trees that will be compared. Labels of its other dimensions, such as the
        names of individuals, may be in another order; where one of the two trees has plain numbers they do not count.
    order_by: a site with one number for each component, whose posterior means then increase, in place of a reference.
    up_to: how draws of one posterior may differ: "permutations" of components, "signed permutations", as of the sources
        of independent components, or "rotations", as of the factors of a factor model, reflections included. The last
        two are found from all sites of site_dims together (`bayeslab.diagnostics.procrustes`).
    Groups posterior_mean and posterior_sd, which have one value a chain, follow most draws of it.
    The group alignment holds permutation (chain, draw, component): the old place of each component; or rotation (chain,
    draw, component, component_): what the components of a draw were multiplied by.
    Raises ValueError for an unknown site or dimension, for dimensions of different sizes, for labels that are no
    components or are those of components, and for a reference with other dimensions or labels; for order_by with a
    reference, or of a site that gives no order; for sites with values that are not finite; for another word in up_to,
    and for labels, order_by and sites with two dimensions of components where that is not permutations. Raises
    TypeError for what is no tree, and for site_dims and labels of another form.
    """
    from xarray import DataArray, DataTree

    posterior = _posterior(tree)
    dims = checked_dims(site_dims)
    size = number_of_components(posterior, dims)
    if up_to != "permutations":
        check_turning(tree, dims, up_to, [*labels, *([] if order_by is None else [order_by])])
        return _turned(tree, {site: names[0] for site, names in dims.items()}, up_to, reference)
    check_labels(posterior, labels, size, {name for names in dims.values() for name in names})
    check_order_by(posterior, dims, order_by, reference)
    target = None if reference is None else conformed_reference(_posterior(reference), posterior, dims)

    features = _features(posterior, dims)
    order = _match_components(features, _best_draw(tree))
    if target is not None:
        order = _in_order_of_target(
            np.concatenate(_features(target, dims), axis=2), np.concatenate(features, axis=2), order
        )
    if order_by is not None:
        mean = np.take_along_axis(
            _component_features(posterior[order_by], *dims[order_by])[..., 0], order, axis=1
        ).mean(0)
        order = order[:, np.argsort(mean, kind="stable")]

    component = next(iter(dims.values()))[0]
    permutation = DataArray(
        order.reshape(*(posterior.sizes[dim] for dim in SAMPLE_DIMS), size),
        dims=(*SAMPLE_DIMS, component),
        coords={dim: posterior[dim] for dim in (*SAMPLE_DIMS, component) if dim in posterior.coords},
        name="permutation",
    )
    moved = {site: _permuted(posterior[site], dims[site], permutation.values) for site in dims}
    renamed = {site: _relabelled(posterior[site], permutation.values) for site in labels}
    aligned = tree.copy()
    aligned["posterior"].dataset = posterior.assign(moved | renamed)
    for group in MEAN_GROUPS & aligned.children.keys():
        aligned[group].dataset = _means_permuted(aligned[group].to_dataset(), dims, component, permutation.values)
    settings = {"site_dims": json.dumps(dims), "labels": json.dumps(list(labels))}
    aligned["alignment"] = DataTree(permutation.to_dataset().assign_attrs(settings))
    return aligned


def _turned(tree: DataTree, dims: dict[str, str], up_to: str, reference: DataTree | None) -> DataTree:
    """The tree with the components of every draw multiplied by an orthogonal matrix."""
    from xarray import DataArray, DataTree

    posterior = _posterior(tree)
    matrices = procrustes.orthogonal_matrices(posterior, dims, up_to, _best_draw(tree))
    if reference is not None:
        target = conformed_reference(_posterior(reference), posterior, {site: (dim,) for site, dim in dims.items()})
        matrices = matrices @ procrustes.matrix_to_reference(posterior, target, dims, up_to, matrices)
    component = next(iter(dims.values()))
    shape = *(posterior.sizes[dim] for dim in SAMPLE_DIMS), *matrices.shape[1:]
    rotation = DataArray(
        matrices.reshape(shape), dims=(*SAMPLE_DIMS, component, f"{component}_"), name="rotation",
        coords={dim: posterior[dim] for dim in (*SAMPLE_DIMS, component) if dim in posterior.coords},
    )  # fmt: skip
    aligned = tree.copy()
    moved = {site: procrustes.turned(posterior[site], dim, matrices) for site, dim in dims.items()}
    aligned["posterior"].dataset = posterior.assign(moved)
    settings = {"site_dims": json.dumps({site: [dim] for site, dim in dims.items()}), "labels": "[]", "up_to": up_to}
    aligned["alignment"] = DataTree(rotation.to_dataset().assign_attrs(settings))
    return aligned


def _match_components(parts: Sequence[Array], best: int) -> Permutations:
    """Permutations (draw, component) that bring features (draw, component, feature) together. parts: of every site.

    Stephens's algorithm starts from the permutations that are nearest to one draw, from the draws as they are, which
    have one order already where no components changed places, and from where each site alone leads. The end with the
    smallest loss is taken: many features that vary, as moves between states, can hide the one that decides.
    """
    features = np.concatenate(parts, axis=2)
    as_they_are = np.tile(np.arange(features.shape[1]), (len(features), 1))
    single_site_ends = (
        [_stephens_fixed_point(part, _nearest_to_draw(part, best)) for part in parts] if len(parts) > 1 else []
    )
    ends = [
        _stephens_fixed_point(features, order)
        for order in (_nearest_to_draw(features, best), as_they_are, *single_site_ends)
    ]
    scale = _feature_scale(features.reshape(-1, features.shape[2]))
    return min(ends, key=lambda order: round(_stephens_loss(features / scale, order), 6))


def _nearest_to_draw(features: Array, best: int) -> Permutations:
    """The permutations that bring all draws nearest to one draw."""
    scale = _feature_scale(features.reshape(-1, features.shape[2]))
    return _assign_components(features / scale, features[best] / scale)


def _stephens_fixed_point(features: Array, order: Permutations) -> Permutations:
    """The fixed point of Stephens's algorithm: permutations that bring all draws nearest to their own mean."""
    for _ in range(MAX_ROUNDS):
        moved = np.take_along_axis(features, order[..., None], axis=1)
        centre = moved.mean(0)
        scale = _feature_scale((moved - centre).reshape(-1, features.shape[2]))
        previous, order = order, _assign_components(features / scale, centre / scale)
        if np.array_equal(previous, order):
            break
    return order


def _stephens_loss(features: Array, order: Permutations) -> float:
    """The loss that Stephens's algorithm minimises: minus the log likelihood of Normal features, per draw."""
    moved = np.take_along_axis(features, order[..., None], axis=1)
    variance = ((moved - moved.mean(0)) ** 2).mean((0, 1))
    return float(np.log(variance + np.finfo(float).eps).sum() / 2)


def _assign_components(features: Array, centre: Array) -> Permutations:
    """For every draw, the permutation of its components with the least sum of squared distances."""
    from scipy.optimize import linear_sum_assignment

    similarity = np.einsum("kf,sjf->skj", centre, features)  # a permutation keeps the sum of squares
    return np.stack([linear_sum_assignment(gain, maximize=True)[1] for gain in similarity])


def _in_order_of_target(target: Array, features: Array, order: Permutations) -> Permutations:
    """The permutations followed by the one that brings their mean nearest to the mean of target."""
    moved = np.take_along_axis(features, order[..., None], axis=1)
    scale = _feature_scale(np.concatenate([x.reshape(-1, x.shape[2]) for x in (moved, target)]))
    return order[:, _assign_components(moved.mean(0, keepdims=True) / scale, target.mean(0) / scale)[0]]


def _feature_scale(features: Array) -> Array:
    """Standard deviation of each feature, one where it never varies."""
    sd = features.std(0)
    return np.where(sd > np.finfo(float).eps * np.abs(features).max(0), sd, 1.0)


def _features(posterior: Dataset, dims: Mapping[str, tuple[str, ...]]) -> list[Array]:
    """The features of every site that tell components apart, each (draw, component, feature)."""
    read: dict[int, Callable[..., Array]] = {1: _component_features, 2: _transition_features}
    return [read[len(names)](posterior[site], *names).astype(float) for site, names in dims.items()]


def _component_features(values: DataArray, dim: str) -> Array:
    """All values of a component, side by side: (draw, component, feature)."""
    stacked = values.transpose(*SAMPLE_DIMS, dim, ...).values
    return stacked.reshape(stacked.shape[0] * stacked.shape[1], stacked.shape[2], -1)


def _transition_features(values: DataArray, dim: str, other: str) -> Array:
    """Features (draw, component, feature) of a transition matrix that do not depend on the order of the other
    components: the diagonal, and sorted rows and columns."""
    stacked = values.transpose(*SAMPLE_DIMS, ..., dim, other).values
    matrices = stacked.reshape(stacked.shape[0] * stacked.shape[1], -1, *stacked.shape[-2:])
    diagonal = np.diagonal(matrices, axis1=2, axis2=3)[..., None]
    rows, columns = np.sort(matrices, axis=3), np.sort(np.swapaxes(matrices, 2, 3), axis=3)
    features = np.moveaxis(np.concatenate([diagonal, rows, columns], axis=3), 1, 2)
    return features.reshape(*features.shape[:2], -1)


def _permuted(values: DataArray, dims: tuple[str, ...], order: Permutations) -> DataArray:
    """The site with its components in the new order; labels of the dimension stay in place."""
    for dim in dims:
        moved = values.transpose(*SAMPLE_DIMS, dim, ...)
        index = order.reshape(*order.shape, *[1] * (moved.ndim - 3))
        moved = moved.copy(data=np.take_along_axis(moved.values, index, axis=2))
        values = moved.transpose(*values.dims)
    return values


def _means_permuted(
    means: Dataset, dims: Mapping[str, tuple[str, ...]], component: str, order: Permutations
) -> Dataset:
    """The means, with components in the order that most draws of a chain have."""
    moved = {}
    most_common = np.stack([_most_common(permutations) for permutations in order])[:, None]
    for name, values in means.data_vars.items():
        axes = dims.get(str(name), (component,) if component in values.dims else ())
        if axes:
            moved[name] = _permuted(values.expand_dims("draw", 1), axes, most_common).squeeze("draw")
    return means.assign(moved)


def _most_common(order: Permutations) -> Array:
    """The most frequent row of an array."""
    rows, counts = np.unique(order, axis=0, return_counts=True)
    return rows[counts.argmax()]


def _relabelled(values: DataArray, order: Permutations) -> DataArray:
    """The integer site with every old component replaced by its new place."""
    flat = values.transpose(*SAMPLE_DIMS, ...)
    new_numbers = np.argsort(order, axis=2)
    old_numbers = flat.values.reshape(*new_numbers.shape[:2], -1)
    new = np.take_along_axis(new_numbers, old_numbers.astype(int), axis=2).astype(values.dtype)
    return flat.copy(data=new.reshape(flat.shape)).transpose(*values.dims)


def _best_draw(tree: DataTree) -> int:
    """The position of the draw with the highest log joint, the first where none is recorded."""
    if "sample_stats" not in tree.children or "lp" not in tree["sample_stats"]:
        return 0
    if set(tree["sample_stats"]["lp"].dims) != set(SAMPLE_DIMS):
        return 0
    lp = tree["sample_stats"]["lp"].transpose(*SAMPLE_DIMS).values.ravel()
    return int(np.argmax(np.where(np.isnan(lp), -np.inf, lp)))


def _posterior(tree: DataTree) -> Dataset:
    """The posterior of a result; raises TypeError or ValueError for a tree without one."""
    posterior_draws(tree, "align")
    return tree["posterior"].to_dataset()
