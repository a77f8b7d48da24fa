"""What `align` asks of its arguments, each refused with one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.diagnostics.procrustes import NEAREST
from bayeslab.results.parameters import SAMPLE_DIMS

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import Dataset, DataTree

    Array = NDArray[Any]

MEAN_GROUPS = {"posterior_mean", "posterior_sd"}
"""Groups that have one value a chain."""


def checked_dims(site_dims: Any) -> dict[str, tuple[str, ...]]:
    """The dimensions of every site, as tuples; raises TypeError for another form."""
    if not isinstance(site_dims, Mapping):
        raise TypeError(f"site_dims maps sites to dimensions, as {{'mu': 'component'}}, but is {site_dims!r}.")
    for site, dims in site_dims.items():
        if not isinstance(dims, str | list | tuple) or not all(isinstance(dim, str) for dim in dims):
            raise TypeError(f"site_dims has {dims!r} for site {site!r}, where names of its dimensions are expected.")
    return {site: (dims,) if isinstance(dims, str) else tuple(dims) for site, dims in site_dims.items()}


def number_of_components(posterior: Dataset, dims: Mapping[str, tuple[str, ...]]) -> int:
    """The common size of the dimensions to permute; raises ValueError where there is none."""
    if not dims:
        raise ValueError("align needs at least one site and its dimension over components.")
    for site, names in dims.items():
        _check_site(posterior, site)
        if posterior[site].dtype.kind not in "fiub" or not np.isfinite(posterior[site]).all():
            raise ValueError(f"Site {site!r} has values that are not finite, and no draw can be aligned without them.")
        dimensions = [str(dim) for dim in posterior[site].dims if dim not in SAMPLE_DIMS]
        for name in names:
            if name not in dimensions:
                raise ValueError(f"Site {site!r} has no dimension {name!r}, only {dimensions}.")
        if len(names) not in (1, 2) or len(set(names)) < len(names):
            raise ValueError(f"Site {site!r} needs one or two different dimensions, got {list(names)}.")
    sizes = {f"{site}[{dim}]": posterior.sizes[dim] for site, names in dims.items() for dim in names}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"All dimensions over components must have one size, got {sizes}.")
    return next(iter(sizes.values()))


def conformed_reference(reference: Dataset, posterior: Dataset, dims: Mapping[str, tuple[str, ...]]) -> Dataset:
    """The reference with the axes and the positions of the tree."""
    number_of_components(reference, dims)
    components = {name for names in dims.values() for name in names}
    for site in dims:
        own, other = ({dim: each.sizes[dim] for dim in each.dims if dim not in SAMPLE_DIMS}
                      for each in (posterior[site], reference[site]))  # fmt: skip
        if own != other:
            raise ValueError(f"Site {site!r} has dimensions {own}, but {other} in the reference.")
        for dim in own.keys() - components:
            reference = reference.isel({dim: _label_positions(str(dim), posterior, reference)})
        reference = reference.assign({site: reference[site].transpose(*posterior[site].dims)})
    return reference


def _label_positions(dim: str, posterior: Dataset, reference: Dataset) -> Array:
    """The positions of the labels of the tree in the reference."""
    as_they_are = np.arange(posterior.sizes[dim])
    if dim not in posterior.indexes or dim not in reference.indexes:
        return as_they_are
    own, other = posterior.indexes[dim], reference.indexes[dim]
    if own.equals(other):
        return as_they_are
    if other.is_unique and own.is_unique and (places := other.get_indexer(own)).min() >= 0:
        return places
    if any(np.array_equal(labels, as_they_are) for labels in (own, other)):
        return as_they_are
    missing = own.difference(other, sort=False)
    what = f"has no {missing[0]!r}" if len(missing) else "repeats some labels"
    raise ValueError(f"Dimension {dim!r} of the reference {what}; expected the labels of the tree, in any order.")


def check_labels(posterior: Dataset, labels: Sequence[str], size: int, components: Set[str]) -> None:
    """Raises TypeError or ValueError for labels that are not sites of integers from 0 up to a size."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise TypeError(f"labels are a list of sites, as ['z'], not {labels!r}.")
    for site in labels:
        _check_site(posterior, site)
        values = posterior[site]
        if values.dtype.kind not in "iu":
            raise ValueError(f"Labels must be integers, but site {site!r} is {values.dtype}.")
        if taken := components & set(map(str, values.dims)):
            raise ValueError(
                f"Site {site!r} of labels has the dimension {min(taken)!r} of components; expected labels of other "
                "things, such as rows."
            )
        if values.size and not 0 <= values.min() <= values.max() < size:
            span = f"{int(values.min())} to {int(values.max())}"
            raise ValueError(f"Labels of {size} components are 0 to {size - 1}, site {site!r} has {span}.")


def check_order_by(
    posterior: Dataset, dims: Mapping[str, tuple[str, ...]], site: str | None, reference: DataTree | None
) -> None:
    """Raises ValueError for an order_by that gives no order, or that comes with a reference."""
    if site is None:
        return
    if reference is not None:
        raise ValueError("align takes the order of a reference or that of order_by, not both.")
    if site not in dims:
        raise ValueError(f"order_by names {site!r}, which is not among the sites to permute, {list(dims)}.")
    if set(posterior[site].dims) != {*SAMPLE_DIMS, dims[site][0]}:
        raise ValueError(
            f"order_by needs one number for each component, but {site!r} has {list(posterior[site].dims)}."
        )


def _check_site(posterior: Dataset, site: str) -> None:
    """Raises ValueError for a site that the posterior has no draws of."""
    if site not in posterior.data_vars:
        raise ValueError(f"The posterior has no site {site!r}, only {sorted(map(str, posterior.data_vars))}.")
    if not set(SAMPLE_DIMS) <= set(posterior[site].dims):
        raise ValueError(f"Site {site!r} has dimensions {list(posterior[site].dims)}, but draws have chain and draw.")


def check_turning(tree: DataTree, dims: Mapping[str, tuple[str, ...]], up_to: str, more: Sequence[str]) -> None:
    """Raises ValueError for what cannot be rotated."""
    if up_to not in NEAREST:
        raise ValueError(f"up_to is one of {['permutations', *NEAREST]}, but is {up_to!r}.")
    if more:
        raise ValueError(f"Labels and an order need whole components, so {more[0]!r} cannot be aligned up to {up_to}.")
    for site, names in dims.items():
        if len(names) > 1:
            raise ValueError(f"Site {site!r} has two dimensions of components; up to {up_to} a site has one.")
    for group in sorted(MEAN_GROUPS & tree.children.keys()):
        if taken := [str(name) for name, one in tree[group].data_vars.items() if dims.get(str(name), ())]:
            raise ValueError(f"Site {taken[0]!r} has its mean over draws alone, in {group}, which cannot be aligned.")
