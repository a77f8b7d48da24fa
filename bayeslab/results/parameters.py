"""The posterior of a result as one array of scalar parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import DataArray, Dataset

    Samples = NDArray[Any]

SAMPLE_DIMS = ["chain", "draw"]
"""Dimensions of draws."""


def stacked_parameters(posterior: Dataset) -> DataArray:
    """All scalar parameters side by side, (chain, draw, parameter), named like "w[bmi]"."""
    import arviz_stats  # noqa: F401  (registers the accessor azstats)
    from arviz_base import dataset_to_dataarray

    apart = {dim: f"{dim} of the program" for dim in posterior.dims if dim not in SAMPLE_DIMS}  # ArviZ has its own
    stacked = dataset_to_dataarray(posterior.rename(apart), sample_dims=SAMPLE_DIMS, new_dim="parameter")
    stacked = stacked.transpose(*SAMPLE_DIMS, "parameter")
    other = [name for name in stacked.coords if name not in (*SAMPLE_DIMS, "parameter")]
    return stacked.drop_vars(other)
