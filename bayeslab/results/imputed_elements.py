"""How a result holds sites that are missing in part: whole, with what was imputed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jax import Array

from bayeslab.programs.missing.imputation import whole_sites
from bayeslab.programs.missing.names import given_part, whole_site
from bayeslab.programs.program import Bound

if TYPE_CHECKING:
    from xarray import DataTree

IMPUTED_GROUP = "imputed"
"""Name of the group that tells which elements of sites are not given by the data."""


def by_whole_site(
    group_name: str, group: Mapping[str, Array | np.ndarray], bound: Bound
) -> Mapping[str, Array | np.ndarray]:
    """A group with the names that the data have for sites, which in a posterior are whole."""
    if not bound.imputed or group_name == "sampler_state":
        return group
    if group_name in ("posterior", "posterior_mean"):
        group = whole_sites(bound, group)
    return {whole_site(name): np.asarray(value) for name, value in group.items()}


def tell_imputed(tree: "DataTree", bound: Bound, dims: Mapping[str, list[str]]) -> None:
    """Add a group that tells which elements of sites in the posterior are imputed, and how many to their attributes."""
    from xarray import Dataset

    missing = {n: ~np.asarray(bound.present[given_part(n)]) for n in bound.imputed if n in tree["posterior"]}
    for name, value in missing.items():
        tree["posterior"][name].attrs["imputed"] = f"{value.sum()} of {value.size}, those in group {IMPUTED_GROUP}"
    if missing:
        tree[IMPUTED_GROUP] = Dataset({name: (dims[name][: value.ndim], value) for name, value in missing.items()})
