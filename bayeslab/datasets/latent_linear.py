"""Data in which few numbers that nobody saw explain many that were measured."""

from typing import Any

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_integer
from bayeslab.datasets.classification import wines


def standardised_wines() -> xr.DataArray:
    """Thirteen chemical measurements of 178 wines (row, feature), each with mean 0 and standard deviation 1.

    See `bayeslab.datasets.wines`; the cultivars are left out.
    """
    table = wines().drop(columns="cultivar")
    y = (table - table.mean()) / table.std(ddof=0)
    return xr.DataArray(y.to_numpy(), {"row": np.arange(len(y)), "feature": list(y.columns)})


def simulated_tomogram(*, seed: int = 0) -> dict[str, Any]:
    """The data of `bayeslab.models.linear_gaussian`: an image by its sums along rows, columns and both diagonals.

    A disc of brightness 1 in a square of 5 by 5 pixels, which are the components, read row by row. Sums are off by
    N(0, 0.1^2). In the prior neighbours are alike: each pixel given all others is about the mean of its neighbours.
    Raises ValueError for a seed below 0, TypeError for what is no integer.
    """
    size, rng = 5, np.random.default_rng(as_integer("seed", seed, 0))
    row, column = np.divmod(np.arange(size**2), size)
    lines = {f"row {place}": row == place for place in range(size)}
    lines |= {f"column {place}": column == place for place in range(size)}
    lines |= {f"falling {place}": row - column == place for place in range(1 - size, size)}
    lines |= {f"rising {place}": row + column == place for place in range(2 * size - 1)}
    coords = {"direction": list(lines), "component": [f"{up},{across}" for up, across in zip(row, column, strict=True)]}
    a = xr.DataArray(np.array(list(lines.values()), float), coords)
    image = ((row - 2) ** 2 + (column - 1) ** 2 < 2).astype(float)
    near = (np.abs(row - row[:, None]) + np.abs(column - column[:, None]) == 1).astype(float)
    return {
        "mu": np.zeros(size**2),
        "precision": 3.0 * (np.diag(near.sum(1)) - near) + 0.1 * np.eye(size**2),
        "a": a,
        "noise_precision": np.eye(len(lines)) / 0.1**2,
        "y": xr.DataArray(a.values @ image + rng.normal(0.0, 0.1, len(lines)), {"direction": list(lines)}),
    }
