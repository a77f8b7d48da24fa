"""Tables with classes, from scikit-learn or simulated, and the data of a classifier from a table."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from bayeslab.datasets.arguments import as_integer, axis_lengths, require_flags
from bayeslab.datasets.regression import formula_data, refuse_no_intercept, regression_data
from bayeslab.formulas.coding import coding_of_classes
from bayeslab.formulas.parsing import is_formula
from bayeslab.formulas.tables import checked_frame, require_columns

MAIL_WORDS = (
    "buy",
    "price",
    "free",
    "offer",
    "love",
    "dinner",
    "weekend",
    "photo",
    "meeting",
    "report",
    "budget",
    "deadline",
)
"""The vocabulary of `simulated_mails`, four words of each class."""
MAIL_CLASSES = ("spam", "personal", "work")


def classification_data(frame: pd.DataFrame, target: str, *, intercept: bool = True, standardise: bool = True) -> Any:
    """The data of a classifier: covariates x (row, feature) and the codes y (row,) of the classes, from 0.

    frame: a table without missing values; its columns but the target are coded as in `regression_data`.
    target: the name of the column of classes, of text, categories, truth values or integers; or a formula with that
        column on its left, as for `regression_data`.
    y.attrs["classes"] has the names of the classes in the order of their codes, which is that of the categories or else
    sorted. Categories that occur in no row have no code, which a warning says. Raises TypeError for what is no
    DataFrame, ValueError for a target with fewer than two classes, with missing or broken numbers, and for a table that
    cannot be coded.
    """
    require_flags(intercept=intercept, standardise=standardise)
    frame, target = checked_frame(frame), str(target)
    if is_formula(target, frame.columns):
        refuse_no_intercept(intercept)
        return formula_data(coding_of_classes(target, frame, standardise), frame)
    require_columns(frame, [target], "target ")
    column = frame[target]
    if column.isna().any():
        raise ValueError(f"target {target!r} is missing in row {column.index[column.isna()][0]!r}: drop the row.")
    if pd.api.types.is_float_dtype(column) and (column % 1 != 0).any():
        raise ValueError(f"target {target!r} holds numbers that are no integers: they are no classes.")
    given = pd.Categorical(column)
    classes = given.remove_unused_categories()
    if absent := [str(name) for name in given.categories.difference(classes.categories, sort=False)]:
        warnings.warn(f"target {target!r}: {', '.join(absent)} occurs in no row and has no code.", stacklevel=2)
    if len(classes.categories) < 2:
        raise ValueError(f"target {target!r} has one class, {classes.categories[0]!r}; expected two at least.")
    codes = pd.Series(np.asarray(classes.codes, float), frame.index, name=target)
    coded = regression_data(frame.assign(**{target: codes}), target, intercept=intercept, standardise=standardise)
    names = [str(name) for name in classes.categories]
    y = coded["y"].copy(data=np.asarray(classes.codes, int)).assign_attrs(classes=names)
    return coded.drop_vars(["y_centre", "y_scale"]).assign(y=y.drop_vars(["y_centre", "y_scale"], errors="ignore"))


def breast_cancer() -> pd.DataFrame:
    """569 tumours of the breast: diagnosis, malignant or benign, and 30 measurements of the nuclei of cells.

    W. N. Street, W. H. Wolberg and O. L. Mangasarian (1993), Nuclear feature extraction for breast tumor diagnosis,
    SPIE 1905, 861-870; the copy in scikit-learn.
    """
    from sklearn.datasets import load_breast_cancer

    return _with_names(load_breast_cancer(as_frame=True), "diagnosis")


def irises() -> pd.DataFrame:
    """150 irises: species, and lengths and widths in cm of sepal and petal.

    R. A. Fisher (1936), The use of multiple measurements in taxonomic problems, Annals of Eugenics 7, 179-188; the
    copy in scikit-learn.
    """
    from sklearn.datasets import load_iris

    return _with_names(load_iris(as_frame=True), "species").rename(columns=lambda name: name.removesuffix(" (cm)"))


def wines() -> pd.DataFrame:
    """178 wines of three cultivars of a region of Italy, and 13 chemical measurements.

    M. Forina et al. (1988), PARVUS; the copy in scikit-learn.
    """
    from sklearn.datasets import load_wine

    return _with_names(load_wine(as_frame=True), "cultivar")


def simulated_mails(num_mails: int, *, seed: int = 0) -> xr.Dataset:
    """Counts x (row, word) of twelve words in mails, and what they are, y (row,): 0 spam, 1 personal, 2 work.

    The three kinds of mail of CS229, 2.3. A mail has ten words on average; half of them are of its own kind.
    Raises ValueError for a number below 1 and a seed below 0, TypeError for what is no integer.
    """
    (num_mails,) = axis_lengths(num_mails=num_mails)
    rng = np.random.default_rng(as_integer("seed", seed, 0))
    kinds, words = len(MAIL_CLASSES), len(MAIL_WORDS)
    own = np.repeat(np.eye(kinds), words // kinds, axis=1) * kinds / words
    frequencies = (own + 1 / words) / 2 * rng.gamma(4.0, size=(kinds, words))
    frequencies /= frequencies.sum(1, keepdims=True)
    y = rng.choice(kinds, num_mails, p=[0.5, 0.3, 0.2])
    length = 1 + rng.poisson(9.0, num_mails)
    x = np.stack([rng.multinomial(count, frequencies[kind]) for count, kind in zip(length, y, strict=True)])
    labels = {"row": np.arange(num_mails), "word": list(MAIL_WORDS)}
    return xr.Dataset({"x": (("row", "word"), x), "y": ("row", y, {"classes": list(MAIL_CLASSES)})}, labels)


def _with_names(loaded: Any, target: str) -> pd.DataFrame:
    """A table of scikit-learn whose classes have their names, in the order of its codes."""
    frame, names = loaded.frame, [str(name) for name in loaded.target_names]
    named = pd.Categorical.from_codes(frame["target"].to_numpy(int), pd.Index(names))
    return frame.drop(columns="target").assign(**{target: named})
