"""The law of hostile inputs, small programs with long names, and the forms in which users give numbers."""

import datetime
import traceback
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import xarray as xr
from hypothesis import strategies as st

import bayeslab

PACKAGE = Path(bayeslab.__file__).parent
LONGEST = 400
PAIRS = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1), ("b", 2)])


def line(inputs: Any, width: float = 1.0) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, width))
    with numpyro.plate("row", inputs.shape[0]):
        numpyro.sample("output", dist.Normal(slope * inputs, 1.0))


def counts(size: int, rate: float = 1.0) -> None:
    level = numpyro.sample("level", dist.Gamma(2.0, rate))
    with numpyro.plate("row", size):
        numpyro.sample("output", dist.Poisson(level))


def shares(size: int, kinds: int = 3) -> None:
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(kinds)))
    with numpyro.plate("row", size):
        numpyro.sample("output", dist.Categorical(share))


def table(size: int) -> None:
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", size, dim=-2), numpyro.plate("column", size, dim=-1):
        numpyro.sample("output", dist.Normal(centre, 1.0))


def lawful(call: Callable[[], Any], *words: str) -> Any:
    """What a call returns, or None where it refuses, in one sentence of the package with one of the words.

    Everything else is a failure, warnings too, which are errors here.
    """
    try:
        return call()
    except (TypeError, ValueError) as error:
        message, place = str(error), traceback.extract_tb(error.__traceback__)[-1]
        assert PACKAGE in Path(place.filename).parents, f"{place.filename}:{place.lineno}: {message}"
        assert "\n" not in message
        assert len(message) <= LONGEST
        assert any(word in message for word in words), message
        return None


def refused(call: Callable[[], Any], *words: str) -> None:
    """The same for what has to be refused."""
    assert lawful(lambda: [call()], *words) is None, "this was not refused"


def fingerprint(value: Any) -> Any:
    """What a call may not change of its arguments."""
    if isinstance(value, np.ma.MaskedArray):
        return fingerprint(value.data), fingerprint(np.ma.getmaskarray(value))
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.strides, value.flags.writeable, repr(value.tolist())
    if isinstance(value, Mapping) and not isinstance(value, xr.Dataset):
        return [(repr(name), fingerprint(each)) for name, each in value.items()]
    if isinstance(value, xr.DataTree):
        return [(path, fingerprint(node.to_dataset())) for path, node in value.subtree_with_keys]
    if isinstance(value, xr.Dataset):
        return [(str(name), each.dims, fingerprint(each.values)) for name, each in value.variables.items()], value.attrs
    return repr(value)


def strided(numbers: list[int]) -> np.ndarray:
    return np.repeat(np.array(numbers, float), 2)[::2]


def frozen(numbers: list[int]) -> np.ndarray:
    array = np.array(numbers, float)
    array.flags.writeable = False
    return array


FORMS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "list of floats": lambda numbers: [float(number) for number in numbers],
    "list of NumPy's": lambda numbers: [np.float32(number) for number in numbers],
    **{kind: lambda numbers, kind=kind: np.array(numbers, kind) for kind in ("f2", "f4", "i1", "u1", "i8", "u8")},
    "long double": lambda numbers: np.array(numbers, np.longdouble),
    "other byte order": lambda numbers: np.array(numbers, ">i4"),
    "other floats": lambda numbers: np.array(numbers, ">f8"),
    "read-only": frozen,
    "strided": strided,
    "backwards": lambda numbers: np.array(numbers[::-1], float)[::-1],
    "masked nowhere": lambda numbers: np.ma.masked_array(np.array(numbers, float), [False] * len(numbers)),
    "JAX": lambda numbers: jnp.asarray(numbers, float),
    "bfloat16": lambda numbers: jnp.asarray(numbers, jnp.bfloat16),
    "series": lambda numbers: pd.Series(numbers),
    "repeated labels": lambda numbers: pd.Series(numbers, index=[0] * len(numbers)),
    "pairs": lambda numbers: pd.Series(numbers, index=PAIRS[: len(numbers)]),
    "periods": lambda numbers: pd.Series(numbers, index=pd.period_range("2020", periods=len(numbers), freq="M")),
    "nullable": lambda numbers: pd.Series(numbers, dtype="Int64"),
    "nullable floats": lambda numbers: pd.Series(numbers, dtype="Float64"),
    "extension": lambda numbers: pd.array(numbers, "Int64"),
    "sparse": lambda numbers: pd.Series(pd.arrays.SparseArray(np.array(numbers, float))),
    "objects": lambda numbers: pd.Series(numbers, dtype=object),
    "index": lambda numbers: pd.Index(numbers),
    "DataArray": lambda numbers: xr.DataArray(np.array(numbers, float), dims="unit"),
    "labelled pairs": lambda numbers: xr.DataArray(numbers, {"unit": PAIRS[: len(numbers)]}, ["unit"]),
    "variable": lambda numbers: xr.Variable("unit", np.array(numbers, float)),
    "fill value elsewhere": lambda numbers: xr.DataArray(np.array(numbers), dims="unit", attrs={"_FillValue": -1}),
}

GAPS: dict[str, Callable[[list[int], list[bool]], Any]] = {
    "NaN": lambda numbers, gone: np.where(gone, np.nan, numbers),
    "list": lambda numbers, gone: [np.nan if g else n for n, g in zip(numbers, gone, strict=True)],
    "masked": lambda numbers, gone: np.ma.masked_array(np.array(numbers), gone),
    "masked NaN": lambda numbers, gone: np.ma.masked_array(np.where(gone, np.nan, numbers), gone),
    "nullable": lambda numbers, gone: pd.Series(numbers, dtype="Int64").mask(pd.Series(gone)),
    "objects": lambda numbers, gone: pd.Series(
        [None if g else n for n, g in zip(numbers, gone, strict=True)], dtype=object
    ),
    "DataArray": lambda numbers, gone: xr.DataArray(np.where(gone, np.nan, numbers), dims="unit"),
    "fill value": lambda numbers, gone: xr.DataArray(
        np.where(gone, -1, numbers), dims="unit", attrs={"_FillValue": -1}
    ),
}


def _deep(levels: int = 70) -> list[Any]:
    return [1.0] if levels == 0 else [_deep(levels - 1)]


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


SCALARS = [
    *(None, True, -1, 0, 10**30, 10**400, 1.5, -1.0, np.nan, np.inf, 1j, "abc", "", b"abc", np.str_("a"), len, int),
    *(Decimal(1), datetime.datetime(2020, 1, 1), pd.NA, pd.NaT, pd.Timestamp("2020"), np.ma.masked, range(3)),
    *(np.float16(2.0), np.int8(3), np.datetime64("2020"), np.array(3), np.array(2.5), np.zeros((0, 3)), {}, set(), ()),
]

ODD: dict[str, Callable[[], Any]] = {
    "ragged": lambda: [[1.0], [2.0, 3.0], [1.0]],
    "gap in a list": lambda: [1.0, None, 2.0],
    "list of nothing": lambda: [[[]]],
    "deep": _deep,
    "endless": _endless,
    "generator": lambda: (number for number in range(3)),
    "key": lambda: jax.random.key(0),
    "complex JAX": lambda: jnp.ones(3) * 1j,
    "records": lambda: np.array([(1, 2.0)] * 3, "i4,f8"),
    "all masked": lambda: np.ma.masked_all(3),
    "masked text": lambda: np.ma.masked_array(["a", "b", "c"], [True, False, False]),
    "keys of two kinds": lambda: {1: np.ones(3), "a": np.ones(3)},
    "times": lambda: pd.Series(pd.date_range("2020", periods=3)),
    "spans": lambda: pd.Series(pd.to_timedelta([1, 2, 3])),
    "intervals": lambda: pd.Series(pd.interval_range(0, 3)),
    "mixed objects": lambda: pd.Series([1.0, None, "a"], dtype=object),
    "categories with gaps": lambda: pd.Series(pd.Categorical(["a", None, "b"])),
    "no categories": lambda: pd.Series(pd.Categorical([None, None, None])),
    "pairs": lambda: PAIRS,
    "text index": lambda: pd.Index(["a", "b", "c"]),
    "columns twice": lambda: pd.DataFrame(np.ones((3, 2)), columns=["a", "a"]),
    "columns in pairs": lambda: pd.DataFrame(np.ones((3, 4)), columns=PAIRS),
    "text beside numbers": lambda: pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["a", "b", "c"]}),
    "two kinds of categories": lambda: pd.DataFrame(
        {"a": pd.Categorical(["a", "b", "a"]), "b": pd.Categorical([1, 2, 1])}
    ),
    "empty frame": pd.DataFrame,
    "Dataset": lambda: xr.Dataset({"a": ("unit", np.ones(3))}),
    "DataTree": xr.DataTree,
    "objects of xarray": lambda: xr.DataArray(np.array([1, None, 2], object)),
    "fill value of text": lambda: xr.DataArray(np.arange(3), attrs={"_FillValue": "none"}),
    "fill values": lambda: xr.DataArray(np.arange(3), attrs={"_FillValue": [1, 2]}),
}

_DTYPES = st.one_of(
    st.sampled_from(["f2", "f4", "f8", ">f8", "i1", "u1", ">i4", "i8", "u8", "?", "c8", "c16", "O", "S3", "U3"]),
    st.sampled_from(["M8[D]", "M8[ns]", "m8[s]"]),
).map(np.dtype)
_NUMBERS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(max_size=3))


def arrays() -> st.SearchStrategy[Any]:
    """Of any type and of up to three axes, some of them empty."""
    shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4) | st.just((3,))
    plain = _DTYPES.filter(lambda dtype: dtype.kind != "O").flatmap(lambda dtype: hnp.arrays(dtype, shapes))
    return plain | hnp.arrays(np.dtype("O"), shapes, elements=_NUMBERS, fill=st.nothing())


def anything() -> st.SearchStrategy[Any]:
    """A value that no entry expects, or one that some do."""
    lists = st.recursive(_NUMBERS, lambda inner: st.lists(inner, max_size=4), max_leaves=8)
    odd = st.sampled_from(sorted(ODD)).map(lambda name: ODD[name]())
    return st.one_of(st.sampled_from(SCALARS), odd, arrays(), lists)
