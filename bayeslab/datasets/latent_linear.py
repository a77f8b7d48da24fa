"""Data in which few numbers that nobody saw explain many that were measured."""

from typing import Any

import numpy as np
import xarray as xr

from bayeslab.datasets.arguments import as_integer, as_number, axis_lengths
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


def simulated_cocktail_party(
    *, num_times: int = 400, num_microphones: int = 2, noise: float = 0.0, seed: int = 0
) -> xr.Dataset:
    """The cocktail party of CS229, 13: two speakers, and microphones that record both at once.

    Speakers stand at 0 and 1 along a wall, one step in front of it; microphones hang along the wall, from 0 to 1, and
    record a speaker with a gain of 1 / distance^2. What is said is logistic with scale 1, at every time anew.
    noise: the standard deviation of what microphones add.
    Returns y (row, feature), a row for every time and a feature for every microphone, each centred; sources (row,
    source); and the gains a (feature, source). Raises ValueError and TypeError for arguments of another kind.
    """
    num_times, num_microphones = axis_lengths(num_times=num_times, num_microphones=num_microphones)
    noise = as_number("noise", noise, "a number from 0 to 1e+100", lambda value: 0 <= value <= 1e100)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    places = np.linspace(0.0, 1.0, num_microphones)
    a = 1 / (1 + (places[:, None] - np.array([0.0, 1.0])) ** 2)
    sources = rng.logistic(size=(num_times, 2))
    y = sources @ a.T + noise * rng.normal(size=(num_times, num_microphones))
    sources, y = sources - sources.mean(0), y - y.mean(0)
    return xr.Dataset(
        {"y": (("row", "feature"), y), "sources": (("row", "source"), sources), "a": (("feature", "source"), a)},
        {"row": np.arange(num_times), "feature": [f"microphone {number + 1}" for number in range(num_microphones)]},
    )


def handwritten_digits() -> xr.DataArray:
    """1797 handwritten digits of 8 by 8 pixels (row, feature), the brightness of each from 0 to 1, read row by row.

    Alpaydin and Kaynak (1998), UCI Machine Learning Repository, doi:10.24432/C50P49; scikit-learn carries them. Which
    digit a row is is its coordinate `digit`.
    """
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    names = [f"{up},{across}" for up in range(8) for across in range(8)]
    return xr.DataArray(
        images / 16, {"row": np.arange(len(images)), "feature": names, "digit": ("row", digits)}, ("row", "feature")
    )
