"""Small published tables, from scikit-learn or typed in."""

import numpy as np
import pandas as pd
import xarray as xr

from bayeslab.datasets.arguments import MAX_MAGNITUDE, as_integer, as_number, axis_lengths


def diabetes() -> pd.DataFrame:
    """442 patients: age, sex, bmi, bp, six blood serum values, and progression of diabetes after a year.

    B. Efron, T. Hastie, I. Johnstone and R. Tibshirani (2004), Least angle regression, Annals of
    Statistics 32, 407-499; the copy in scikit-learn, in the original units.
    """
    from sklearn.datasets import load_diabetes

    return load_diabetes(scaled=False, as_frame=True).frame.rename(columns={"target": "progression"})


def iris_setosa() -> xr.DataArray:
    """Lengths and widths (row, feature) in cm of sepal and petal of 50 flowers of Iris setosa.

    R. A. Fisher (1936), The use of multiple measurements in taxonomic problems, Annals of Eugenics 7,
    179-188; the copy in scikit-learn.
    """
    from sklearn.datasets import load_iris

    iris = load_iris()
    features = [name.removesuffix(" (cm)") for name in iris.feature_names]
    setosa = iris.data[iris.target == 0]
    return xr.DataArray(setosa, {"row": np.arange(len(setosa)), "feature": features})


def mendel_peas() -> xr.Dataset:
    """Dominant and recessive (experiment,) seeds or plants in Mendel's seven experiments with peas.

    G. Mendel (1866), Versuche über Pflanzen-Hybriden, the first generation from hybrids.
    """
    counts = {
        "round seeds": (5474, 1850),
        "yellow seeds": (6022, 2001),
        "coloured flowers": (705, 224),
        "inflated pods": (882, 299),
        "green pods": (428, 152),
        "axial flowers": (651, 207),
        "long stems": (787, 277),
    }
    dominant, recessive = zip(*counts.values(), strict=True)
    return xr.Dataset(
        {"dominant": ("experiment", list(dominant)), "recessive": ("experiment", list(recessive))},
        coords={"experiment": list(counts)},
    )


def portland_houses() -> pd.DataFrame:
    """47 houses in Portland: area in square feet, bedrooms, and price in 1000 dollars.

    The example of CS229 (introduction and 1.1), which prints five of the rows.
    """
    area = [
        2104, 1600, 2400, 1416, 3000, 1985, 1534, 1427, 1380, 1494, 1940, 2000, 1890, 4478, 1268, 2300,
        1320, 1236, 2609, 3031, 1767, 1888, 1604, 1962, 3890, 1100, 1458, 2526, 2200, 2637, 1839, 1000,
        2040, 3137, 1811, 1437, 1239, 2132, 4215, 2162, 1664, 2238, 2567, 1200, 852, 1852, 1203,
    ]  # fmt: skip
    bedrooms = [int(digit) for digit in "33324433334335342344323433333321434334442343243"]
    price = [
        399.9, 329.9, 369, 232, 539.9, 299.9, 314.9, 198.999, 212, 242.5, 239.999, 347, 329.999, 699.9,
        259.9, 449.9, 299.9, 199.9, 499.998, 599, 252.9, 255, 242.9, 259.9, 573.9, 249.9, 464.5, 469,
        475, 299.9, 349.9, 169.9, 314.9, 579.9, 285.9, 249.9, 229.9, 345, 549, 287, 368.5, 329.9, 314,
        299, 179.9, 299.9, 239.5,
    ]  # fmt: skip
    return pd.DataFrame({"area": area, "bedrooms": bedrooms, "price": price})


def portland_inputs() -> xr.Dataset:
    """The houses of `portland_houses` as x (row, input) and y (row,).

    x is the area in 1000 square feet and the number of bedrooms, y the price in 1000 dollars.
    """
    houses = portland_houses()
    x = np.stack([houses["area"] / 1000, houses["bedrooms"]], axis=1)
    coords = {"row": np.arange(len(houses)), "input": ["area", "bedrooms"]}
    return xr.Dataset({"x": (("row", "input"), x), "y": ("row", houses["price"])}, coords)


def half_moons(num_rows: int, noise: float = 0.25, seed: int = 0) -> xr.Dataset:
    """Points x (row, input) of two half-moons that interlock, and which of the two, y (row,), 0 or 1.

    noise: standard deviation of the points about their moons, whose radius is 1. Simulated by scikit-learn.
    Raises ValueError for fewer rows than moons, noise below 0 and seeds from 2^32, TypeError for what is no number.
    """
    from sklearn.datasets import make_moons

    (num_rows,) = axis_lengths(num_rows=as_integer("num_rows", num_rows, 2))
    noise = as_number("noise", noise, f"a number from 0 to {MAX_MAGNITUDE:g}", lambda x: 0 <= x <= MAX_MAGNITUDE)
    x, y = make_moons(num_rows, noise=noise, random_state=as_integer("seed", seed, 0, 2**32 - 1))
    coords = {"row": np.arange(num_rows), "input": ["across", "up"]}
    return xr.Dataset({"x": (("row", "input"), x), "y": ("row", y)}, coords)


def batting_averages() -> pd.DataFrame:
    """18 players of baseball in 1970: averages in their first 45 at bats, and in all later ones of the season.

    B. Efron and C. Morris (1975), Data analysis using Stein's estimator and its generalizations, Journal of the
    American Statistical Association 70, 311-319, table 1.
    """
    names = "Clemente, F Robinson, F Howard, Johnstone, Berry, Spencer, Kessinger, Alvarado, Santo, Swoboda, Unser, "
    names += "Williams, Scott, Petrocelli, E Rodriguez, Campaneris, Munson, Alvis"
    hits = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 10, 10, 10, 10, 9, 8, 7])
    later = [346, 298, 276, 222, 273, 270, 263, 210, 269, 230, 264, 256, 303, 264, 226, 285, 316, 200]
    return pd.DataFrame({"first": hits / 45, "later": np.array(later) / 1000}, names.split(", "))


def at_bats() -> pd.DataFrame:
    """The first 45 at bats of the 18 players of `batting_averages`, a row each: player and hit, True or False."""
    averages = batting_averages()["first"]
    players = np.repeat(averages.index.to_numpy(str), 45)
    hits = [np.arange(45) < round(45 * average) for average in averages]
    return pd.DataFrame({"player": players, "hit": np.concatenate(hits)})


def blood_groups() -> xr.DataArray:
    """Alleles M and N, as 0 and 1, of 1,029 people in Hong Kong in 1937, (individual, locus, copy).

    342 people were of group M, 500 of MN and 187 of N. J. A. Rice (1995), Mathematical Statistics and Data Analysis,
    second edition, 8.5.1, after earlier publications.
    """
    genotypes = np.repeat([[0, 0], [0, 1], [1, 1]], [342, 500, 187], axis=0)
    coords = {"individual": np.arange(len(genotypes)), "locus": ["MN"], "copy": [0, 1]}
    return xr.DataArray(genotypes[:, None], coords)


def shop_visitors(num_hours: int, *, seed: int = 0) -> xr.Dataset:
    """Numbers of visitors of a shop y (row,) in single hours, and x (row, feature): an intercept and four covariates.

    The example of CS229, 3.2. Simulated: log rates are 1.5 + 0.4 advertising + 0.6 promotion - 0.3 rain + 0.5 weekend,
    where advertising is standard normal and the others are 0 or 1.
    Raises ValueError for a number below 1 and a seed below 0, TypeError for what is no integer.
    """
    (num_hours,) = axis_lengths(num_hours=num_hours)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    flags = rng.random((num_hours, 3)) < [0.3, 0.4, 2 / 7]
    x = np.column_stack([np.ones(num_hours), rng.normal(size=num_hours), flags])
    y = rng.poisson(np.exp(x @ [1.5, 0.4, 0.6, -0.3, 0.5]))
    features = ["intercept", "advertising", "promotion", "rain", "weekend"]
    coords = {"row": np.arange(num_hours), "feature": features}
    return xr.Dataset({"x": (("row", "feature"), x), "y": ("row", y)}, coords)
