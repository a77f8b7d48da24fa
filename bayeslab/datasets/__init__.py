"""Real data for the lectures, and the functions that turn tables into the data of a model."""

from .motifs import motif_data, rox1_sites
from .regression import new_rows, original_scale, regression_data
from .tables import diabetes, iris_setosa, mendel_peas, portland_houses

__all__ = [
    "diabetes",
    "iris_setosa",
    "mendel_peas",
    "motif_data",
    "new_rows",
    "original_scale",
    "portland_houses",
    "regression_data",
    "rox1_sites",
]
