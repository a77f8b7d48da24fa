"""The probability of a class at every draw, of which `predict` has the mean: how sure a classifier is of it."""

from typing import TYPE_CHECKING

import numpy as np
from jax import Array

from bayeslab.prediction.class_probabilities import GIVEN_THE_REST
from bayeslab.prediction.predict import predict
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import Data, Program

if TYPE_CHECKING:
    from xarray import DataArray, DataTree


def class_probability_draws(
    key: Array | int, model: Program, data: Data, tree: "DataTree", site: str = "y", value: int = 1
) -> "DataArray":
    """The probability (chain, draw, row) that a class has a value, given the covariates of new rows, at every draw.

    data: new rows as for `predict`, without the site. tree: the result of a fit. site: the class, drawn by the program
    given covariates, or covariates given it. value: the code of the class.
    Raises ValueError where `predict` does, and for rows whose class `data` gives.
    """
    entries = read_entries(data)
    if site in entries:
        raise ValueError(f"data give '{site}', whose probability is asked for: leave it out")
    fitted = tree["observed_data"].data_vars if "observed_data" in tree.children else {}
    if site not in fitted or fitted[site].ndim != 1:
        raise ValueError(f"'{site}' is no observed site of the fit along rows, so nothing says of it what a class is")
    rows = _number_of_rows(entries, tree, site)
    predicted = predict(key, model, {**entries, site: np.full(rows, value)}, tree)["predictions_log_likelihood"]
    name = f"{site}{GIVEN_THE_REST}" if f"{site}{GIVEN_THE_REST}" in predicted else site
    log_probability = predicted[name].rename("probability")
    return log_probability.copy(data=np.exp(log_probability.values))


def _number_of_rows(entries: dict, tree: "DataTree", site: str) -> int:
    """The number of new rows: the length of what had, at the fit, as many rows as there were classes."""
    fitted = len(tree["observed_data"][site])
    groups = [tree[name].data_vars for name in ("observed_data", "constant_data") if name in tree.children]
    for name, item in entries.items():
        known = next((group[name] for group in groups if name in group), None)
        if known is not None and known.ndim and len(known) == fitted and np.ndim(item.value):
            return len(item.value)
    raise ValueError("data have no entry with a value for every row, such as covariates x (row, feature)")
