"""Reads what users give as data: values, which of them are there, and the names that pandas and xarray carry."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

FILL = "_FillValue"
"""The attribute of integers of xarray that says which of them stands for what is missing, as in netCDF."""

MISSING = -1
"""The integer that genotypes have for it."""


class Entry(NamedTuple):
    """One entry of the data.

    value: an array, or anything else that a program takes.
    present: which elements are there, where the container says so (NaN is looked at later); None for all.
    dims: a name for every axis that has one.
    labels: axis -> the names of its positions.
    categories: what integer codes stand for, where they were made from categories or text.
    """

    value: Any
    present: np.ndarray | None = None
    dims: tuple[str | None, ...] = ()
    labels: Mapping[int, Sequence[Hashable]] = {}
    categories: Sequence[Hashable] = ()


def read(data: Any) -> dict[str, Entry]:
    """The entries of a dict, a pandas DataFrame (its columns) or an xarray Dataset (its variables).

    Raises TypeError for anything else and for names that are not text.
    """
    if not isinstance(data, Mapping) and not hasattr(data, "columns"):
        raise TypeError(f"data must be a dict, a pandas DataFrame or an xarray Dataset, not {type(data).__name__}")
    named = {name: data[name] for name in (data.columns if hasattr(data, "columns") else data)}
    for name in named:
        if not isinstance(name, str):
            raise TypeError(f"entries of data are named by text, but one is named {name!r}")
    return {name: entry(value) for name, value in named.items()}


def entry(value: Any) -> Entry:
    """One entry from an array, a list of numbers, a masked array, or an object of pandas or xarray."""
    library = type(value).__module__.split(".")[0]
    if library == "xarray":
        return _from_xarray(value)
    if library == "pandas":
        return _from_pandas(value)
    if isinstance(value, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(value)
        return Entry(_filled(np.asarray(value.data), ~mask), ~mask)
    if isinstance(value, list) and value and _is_numeric(value):
        return Entry(np.asarray(value))
    return Entry(value)


def numbers(value: Any) -> tuple[np.ndarray, np.ndarray]:
    """An entry as an array, and which of its elements are there: neither left out by the container nor NaN."""
    found = entry(value if hasattr(value, "shape") else np.asarray(value))
    present = np.ones(found.value.shape, bool) if found.present is None else found.present
    return found.value, present & ~np.isnan(found.value) if found.value.dtype.kind == "f" else present


def _from_xarray(value: Any) -> Entry:
    labels = {axis: value.indexes[dim].tolist() for axis, dim in enumerate(value.dims) if dim in value.indexes}
    array, present = np.asarray(value.values), None
    if array.dtype.kind in "iu" and FILL in value.attrs:
        present = array != value.attrs[FILL]
        array, present = _filled(array, present), None if present.all() else present
    return Entry(array, present, tuple(map(str, value.dims)), labels)


def _from_pandas(value: Any) -> Entry:
    import pandas

    if isinstance(value, pandas.Series):
        array, present, categories = _column(value)
        name = None if value.index.name is None else str(value.index.name)
        labels = {} if isinstance(value.index, pandas.RangeIndex) else {0: value.index.tolist()}
        return Entry(array, present, (name,), labels, categories)
    if isinstance(value, pandas.DataFrame):
        columns = [_column(series)[:2] for series in _with_common_categories(value)]
        array = np.stack([column for column, _ in columns], axis=1) if columns else np.zeros((len(value), 0))
        masks = [np.ones(len(value), bool) if mask is None else mask for _, mask in columns]
        whole = all(mask is None for _, mask in columns)
        axes = (value.index, value.columns)
        dims = tuple(None if axis.name is None else str(axis.name) for axis in axes)
        labels = {i: a.tolist() for i, a in enumerate(axes) if not isinstance(a, pandas.RangeIndex)}
        categories = _column(_with_common_categories(value)[0])[2] if columns else ()
        return Entry(array, None if whole else np.stack(masks, axis=1), dims, labels, categories)
    return Entry(np.asarray(value)) if isinstance(value, pandas.Index) else Entry(value)


def _with_common_categories(frame: Any) -> list[Any]:
    """The columns, with the same codes for the same text in all of them."""
    import pandas

    columns = [frame[name] for name in frame.columns]
    coded = [isinstance(c.dtype, pandas.CategoricalDtype) or pandas.api.types.is_string_dtype(c.dtype) for c in columns]
    if not any(coded):
        return columns
    if not all(coded):
        numeric = next(c.name for c, is_coded in zip(columns, coded, strict=True) if not is_coded)
        raise TypeError(f"a frame of text has a column of numbers, '{numeric}'; give it as an entry of its own")
    levels = sorted({level for c in columns for level in pandas.Categorical(c).categories})
    return [pandas.Series(pandas.Categorical(c, categories=levels), name=c.name, index=c.index) for c in columns]


def _column(series: Any) -> tuple[np.ndarray, np.ndarray | None, Sequence[Hashable]]:
    """A column as numbers, which of them are there, and the categories that its codes stand for."""
    import pandas

    kind = series.dtype
    if isinstance(kind, pandas.CategoricalDtype) or pandas.api.types.is_string_dtype(kind):
        coded = pandas.Categorical(series)
        present = coded.codes >= 0
        codes = np.where(present, coded.codes, 0).astype(np.int64)
        return codes, None if present.all() else present, coded.categories.tolist()
    if not pandas.api.types.is_numeric_dtype(kind):
        raise TypeError(f"column '{series.name}' holds {kind}, where numbers, categories or text are expected")
    if isinstance(kind, np.dtype):
        return series.to_numpy(), None, ()
    present = series.notna().to_numpy()
    array = series.to_numpy(dtype=kind.numpy_dtype, na_value=kind.numpy_dtype.type(0))
    return array, None if present.all() else present, ()


def _filled(array: np.ndarray, present: np.ndarray) -> np.ndarray:
    return np.where(present, array, np.zeros((), array.dtype))


def _is_numeric(value: Any) -> bool:
    """Whether a list, nested or not, holds nothing but numbers."""
    if isinstance(value, list):
        return all(map(_is_numeric, value))
    return isinstance(value, bool | int | float | np.number | np.bool_)
