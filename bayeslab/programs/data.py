"""Reads what users give as data: values, which of them are present, and the labels that pandas and xarray carry."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

FILL_ATTRIBUTE = "_FillValue"
"""Name of the attribute of an xarray variable of integers that says which integer means missing, as in netCDF."""

FORMULA_ATTRIBUTE = "formula"
"""Name of the attribute of an xarray variable that says how a formula made it of a table."""

MISSING_COPY = -1
"""The integer that stands for a missing copy in genotypes."""

MAX_LIST_DEPTH = 32
"""Largest number of levels of nested lists."""

MAX_DENSE_ELEMENTS = 2**27
"""Largest number of elements of a sparse matrix that becomes an array."""

NUMERIC_OBJECT_KINDS = ("integer", "floating", "mixed-integer-float", "boolean")
"""What `pandas.api.types.infer_dtype` calls the columns of Python objects that are taken as numbers."""


class Entry(NamedTuple):
    """One entry of the data.

    value: an array, or anything else that a program takes.
    present: which elements are present, where the container says so (NaN is looked at later); None for all.
    dims: a name for every axis that has one.
    labels: axis -> the names of its positions. numbered: whether a table numbers the first axis from zero, in order.
    categories: what integer codes stand for, where they were made from categories or text.
    formula: how a formula made it of a table, in the form of `bayeslab.formulas`, which results keep.
    table: the object of pandas or xarray that it was, for programs that read it by its own methods.
    """

    value: Any
    present: np.ndarray | None = None
    dims: tuple[str | None, ...] = ()
    labels: Mapping[int, Sequence[Hashable]] = {}
    categories: Sequence[Hashable] = ()
    formula: str = ""
    table: Any = None
    numbered: bool = False


def read_entries(data: Any) -> dict[str, Entry]:
    """An Entry for each entry of a dict, column of a pandas DataFrame or variable of an xarray Dataset, by name.

    Raises TypeError for anything else, for names that are not text and for entries that hold no numbers, ValueError for
    a name that two columns have.
    """
    if not isinstance(data, Mapping) and not hasattr(data, "columns"):
        raise TypeError(f"data must be a dict, a pandas DataFrame or an xarray Dataset, not {type(data).__name__}")
    names = list(data.columns if hasattr(data, "columns") else data)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"entries of data are named by text, but one is named {name!r}")
        if names.count(name) > 1:
            raise ValueError(f"two columns of data are named '{name}'; rename one")
    return {name: as_entry(data[name], name) for name in names}


def with_nested_entries(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries, and those with labels or categories in dicts among them, named by their path, as "group.site"."""
    nested = {
        f"{name}.{key}": as_entry(part, f"{name}.{key}")
        for name, item in entries.items()
        if type(item.value) is dict
        for key, part in item.value.items()
        if isinstance(key, str) and can_mark_missing(part)
    }
    return {**entries, **nested}


def as_entry(value: Any, name: str) -> Entry:
    """One entry from an array, a list of numbers, a masked array, or an object of pandas or xarray."""
    if isinstance(value, Entry):
        return value
    library = type(value).__module__.split(".")[0]
    if library == "xarray":
        return _from_xarray(value, name)
    if library == "pandas":
        return _from_pandas(value, name)
    if isinstance(value, np.ma.MaskedArray):
        present = ~np.ma.getmaskarray(value)
        return Entry(zero_filled(_native_byte_order(value.data), present), None if present.all() else present)
    if isinstance(value, Iterator):
        raise TypeError(f"entry '{name}' is a {type(value).__name__}, which can be read only once; give a list of it")
    if hasattr(value, "toarray") and hasattr(value, "nnz"):
        return Entry(as_numpy_array(_dense(value, name), name))
    if hasattr(value, "__array__") and not isinstance(value, np.ndarray | np.generic | jax.Array):
        return Entry(as_numpy_array(value, name))  # of polars, Arrow or torch
    if isinstance(value, np.ndarray):
        return Entry(as_numpy_array(value, name))
    if isinstance(value, list) and value and _is_list_of_numbers(value, name):
        with suppress(ValueError):  # rows of unequal lengths are structure of the program
            return Entry(as_numpy_array(value, name))
    return Entry(value)


def _dense(value: Any, name: str) -> np.ndarray:
    """A sparse matrix of SciPy as an array; raises ValueError for one that is too large to be one."""
    if np.prod(value.shape, dtype=float) > MAX_DENSE_ELEMENTS:
        raise ValueError(
            f"entry '{name}' is sparse, of shape {value.shape}, too large for an array, and programs take arrays; of a "
            "corpus, bayeslab.datasets.documents makes words"
        )
    return value.toarray()


def refuse_conflicting_codes(entries: Mapping[str, Entry]) -> None:
    """Raises ValueError where two entries give one category different codes."""
    coded: dict[Hashable, tuple[str, int]] = {}
    for name, item in entries.items():
        for code, level in enumerate(item.categories):
            other, known = coded.setdefault(level, (name, code))
            if known != code:
                raise ValueError(
                    f"category '{level}' has code {known} in entry '{other}', but {code} in entry '{name}'; give both "
                    "the same pandas.CategoricalDtype, or integer codes of your own"
                )


def are_positions(labels: Sequence[Hashable]) -> bool:
    """Whether labels are 0, 1, 2, ..., as those of axes without labels."""
    return list(labels) == list(range(len(labels)))


def can_mark_missing(value: Any) -> bool:
    """Whether a value is a masked array or an object of pandas or xarray, which can mark elements as missing."""
    return isinstance(value, np.ma.MaskedArray) or type(value).__module__.split(".")[0] in ("pandas", "xarray")


def as_numpy_array(value: Any, name: str) -> np.ndarray:
    """A value as a NumPy array; raises ValueError for lists of unequal lengths, TypeError for unlike columns."""
    if hasattr(value, "columns"):
        return _matrix_of_columns(value, name).value
    try:
        return _native_byte_order(np.asarray(value))
    except (TypeError, ValueError):
        what = f"{type(value).__name__}{' of unequal lengths' * isinstance(value, list | tuple)}"
        raise ValueError(f"entry '{name}' must hold numbers, in rows of one length, but is a {what}") from None


def values_and_presence(value: Any, name: str = "y") -> tuple[np.ndarray, np.ndarray]:
    """An entry as an array, and which of its elements are present: neither marked as missing nor NaN."""
    item = as_entry(value, name)
    array = as_numpy_array(item.value, name)
    present = np.ones(array.shape, bool) if item.present is None else item.present
    return array, present & ~np.isnan(array) if array.dtype.kind == "f" else present


def with_nan(item: Entry) -> Any:
    """The value of an entry, in floats with NaN where elements are marked as missing."""
    return item.value if item.present is None else np.where(item.present, item.value, np.nan)


def cast_exactly(what: str, value: np.ndarray, dtype: Any) -> np.ndarray:
    """The value in another type, or as it is where that type holds all numbers of this one.

    Raises ValueError for a number that the other type cannot hold.
    """
    if np.can_cast(value.dtype, dtype):
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        converted = value.astype(dtype)
        if converted.dtype.kind == "f":
            wrong = np.isfinite(value) & ~np.isfinite(converted)
        else:
            wrong = (converted.astype(value.dtype) != value) | ((converted < 0) != (value < 0))
    if wrong.any():
        position = first_true(wrong)
        raise ValueError(f"{what} at position {position} is {value[position]}, which {converted.dtype} cannot hold")
    return converted


def as_array(name: str, leaf: Any, is_real: bool) -> Any:
    """A JAX array for a leaf that is data, None for one that is structure: sizes, flags, names, functions, keys."""
    if isinstance(leaf, bool | np.bool_):
        return None
    if isinstance(leaf, float | np.floating) or (is_real and isinstance(leaf, int | np.integer)):
        try:
            leaf = np.asarray(float(leaf))
        except OverflowError:
            raise ValueError(f"argument '{name}' is an integer that float64 cannot hold") from None
    if isinstance(leaf, int) and not -(2**63) <= leaf < 2**63:
        raise ValueError(f"argument '{name}' is an integer that int64 cannot hold")
    kind = getattr(getattr(leaf, "dtype", None), "kind", "other")
    if isinstance(leaf, complex | np.complexfloating):
        raise ValueError(f"argument '{name}' must hold numbers, but is {leaf}, which is complex")
    if not isinstance(leaf, np.ndarray | jax.Array) or kind in "SU" or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return None
    if kind not in "iub" and not jnp.issubdtype(leaf.dtype, jnp.floating):
        raise ValueError(f"argument '{name}' must hold numbers, but holds {leaf.dtype}")
    is_real = is_real or kind not in "iub"
    if leaf.ndim == 0 and not is_real:
        return None
    own = float if is_real else int if leaf.dtype == np.int32 else leaf.dtype
    dtype = jax.dtypes.canonicalize_dtype(own)
    safe = np.can_cast(leaf.dtype, dtype)
    return jnp.asarray(leaf if safe else cast_exactly(f"argument '{name}'", np.asarray(leaf), dtype), dtype=dtype)


def first_true(wrong: np.ndarray) -> tuple[int, ...]:
    """The position of the first true element; () for a scalar."""
    return tuple(int(i) for i in np.argwhere(wrong)[0]) if np.ndim(wrong) else ()


def _from_xarray(value: Any, name: str) -> Entry:
    from xarray import DataArray, Variable

    if not isinstance(value, DataArray | Variable):
        raise TypeError(f"entry '{name}' is a {type(value).__name__}; give its variables as entries of their own")
    dims = tuple(map(str, value.dims))
    for dim in dims:
        if dims.count(dim) > 1:
            raise ValueError(f"entry '{name}' has dimension '{dim}' twice; rename one")
    indexes = getattr(value, "indexes", {})
    labels = {axis: _axis_labels(indexes[dim]) for axis, dim in enumerate(value.dims) if dim in indexes}
    array, present = _native_byte_order(np.asarray(value.values)), None
    if array.dtype.kind in "iu" and FILL_ATTRIBUTE in value.attrs:
        if np.ndim(fill := value.attrs[FILL_ATTRIBUTE]) or np.asarray(fill).dtype.kind not in "iuf":
            raise ValueError(f"entry '{name}' has {fill!r} as attribute {FILL_ATTRIBUTE}; expected one number")
        present = array != fill
        array, present = zero_filled(array, present), None if present.all() else present
    formula = value.attrs.get(FORMULA_ATTRIBUTE, "")
    return Entry(array, present, dims, labels, (), formula if isinstance(formula, str) else "", value)


def _from_pandas(value: Any, name: str) -> Entry:
    import pandas

    if isinstance(value, pandas.MultiIndex):
        raise TypeError(f"entry '{name}' is a MultiIndex; give one of its levels")
    if isinstance(value, pandas.Index | pandas.api.extensions.ExtensionArray):
        value = pandas.Series(value)
    if isinstance(value, pandas.Series):
        array, present, categories = _column_values(value, f"entry '{name}'")
        index = None if value.index.name is None else str(value.index.name)
        numbered, labels = _is_numbered(value.index), {0: _axis_labels(value.index)}
        return Entry(array, present, (index,), {} if numbered else labels, categories, "", value, numbered)
    if isinstance(value, pandas.DataFrame):
        try:
            return _matrix_of_columns(value, name)
        except TypeError:  # columns of several kinds, which a program may read one by one
            return Entry(value, table=value)
    return Entry(value)


def zero_filled(array: np.ndarray, present: np.ndarray) -> np.ndarray:
    """An array with zeros in place of the elements that are not present."""
    return np.where(present, array, np.zeros((), array.dtype))


def _is_list_of_numbers(value: Any, name: str, depth: int = 0) -> bool:
    """Whether a value is a number, or a list, nested or not, of nothing but numbers."""
    if isinstance(value, list):
        if depth == MAX_LIST_DEPTH:
            raise ValueError(f"entry '{name}' is a list in which lists are more than {MAX_LIST_DEPTH} deep")
        return all(_is_list_of_numbers(each, name, depth + 1) for each in value)
    return isinstance(value, bool | int | float | np.number | np.bool_)


def _matrix_of_columns(frame: Any, name: str) -> Entry:
    """The columns of a table of pandas, side by side; raises TypeError for columns that are not of one kind."""
    series = _columns_of_one_kind(frame, name)
    columns = [_column_values(each, f"column '{each.name}' of entry '{name}'") for each in series]
    array = np.stack([column for column, _, _ in columns], axis=1) if columns else np.zeros((len(frame), 0))
    masks = [np.ones(len(frame), bool) if mask is None else mask for _, mask, _ in columns]
    present = None if all(mask is None for _, mask, _ in columns) else np.stack(masks, axis=1)
    axes = (frame.index, frame.columns)
    dims = tuple(None if axis.name is None else str(axis.name) for axis in axes)
    labels = {i: _axis_labels(a) for i, a in enumerate(axes) if not _is_numbered(a)}
    return Entry(array, present, dims, labels, columns[0][2] if columns else (), table=frame, numbered=0 not in labels)


def _columns_of_one_kind(frame: Any, name: str) -> list[Any]:
    """The columns of a frame; those of text share their categories, so that one text has one code in all of them."""
    import pandas

    columns = [frame.iloc[:, index] for index in range(frame.shape[1])]
    coded = [_is_categorical(column) for column in columns]
    if not any(coded):
        return columns
    if not all(coded):
        numeric = next(c.name for c, is_coded in zip(columns, coded, strict=True) if not is_coded)
        raise TypeError(
            f"entry '{name}' is a frame of text with a column of numbers, '{numeric}'; give it as an entry of its own"
        )
    levels = {level for c in columns for level in pandas.Categorical(c).categories}
    if len({isinstance(level, str) for level in levels}) > 1:
        raise TypeError(f"entry '{name}' is a frame whose columns have both text and numbers as categories")
    return [
        pandas.Series(pandas.Categorical(c, categories=sorted(levels)), name=c.name, index=c.index) for c in columns
    ]


def _is_categorical(series: Any) -> bool:
    """Whether a series holds categories or text."""
    import pandas

    if series.dtype == np.dtype(object):
        return pandas.api.types.infer_dtype(series, skipna=True) in ("string", "empty")
    return isinstance(series.dtype, pandas.CategoricalDtype) or pandas.api.types.is_string_dtype(series.dtype)


def _column_values(series: Any, what: str) -> tuple[np.ndarray, np.ndarray | None, Sequence[Hashable]]:
    """A column as numbers, which of them are present (None for all), and the categories that its codes stand for."""
    import pandas

    kind = series.dtype
    if _is_categorical(series):
        coded = pandas.Categorical(series)
        present = coded.codes >= 0
        codes = np.where(present, coded.codes, 0).astype(np.int64)
        return codes, None if present.all() else present, coded.categories.tolist()
    if kind == np.dtype(object) and pandas.api.types.infer_dtype(series, skipna=True) in NUMERIC_OBJECT_KINDS:
        return np.array(series.where(series.notna(), np.nan).tolist()), None, ()
    if not pandas.api.types.is_numeric_dtype(kind):
        raise TypeError(f"{what} holds {kind}, where numbers, categories or text are expected")
    if not hasattr(kind, "numpy_dtype"):
        return _native_byte_order(series.to_numpy()), None, ()
    present = series.notna().to_numpy()
    array = series.to_numpy(dtype=kind.numpy_dtype, na_value=kind.numpy_dtype.type(0))
    return array, None if present.all() else present, ()


def _is_numbered(index: Any) -> bool:
    """Whether an index of pandas is the one of a table that nobody gave another: numbers from zero on, in order."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _axis_labels(index: Any) -> list[Hashable]:
    """The labels of an axis in a form that files can hold: numbers, text and times as they are, others as text."""
    if isinstance(index.dtype, np.dtype) and index.dtype.kind in "biufmM":
        return index.tolist()
    labels = [", ".join(map(str, label)) if isinstance(label, tuple) else label for label in index.tolist()]
    return [label if label is None or isinstance(label, str | int | float) else str(label) for label in labels]


def _native_byte_order(array: np.ndarray) -> np.ndarray:
    """An array in the byte order of the machine, with bfloat16 of JAX as float32."""
    array = array.astype(np.float32) if array.dtype.name == "bfloat16" else np.asarray(array)
    return array.astype(array.dtype.newbyteorder("=")) if not array.dtype.isnative else array
