"""Design matrices: columns of numbers that the right side of a formula makes of a table, by formulaic.

A design keeps what it has learnt from its table (levels, knots, means), so that other rows get the same columns. It is
kept as plain numbers and text, in the form that results hold.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from formulaic import Formula, ModelSpec
from formulaic.errors import DataMismatchWarning, FormulaicError
from formulaic.parser.types import Factor

from bayeslab.formulas.parsing import names_in
from bayeslab.formulas.tables import centre_and_scale, numbers_of, refuse_rows, require_columns, suggestion

RANK_TOLERANCE = 1e-9
"""The share of a column, by length, that has to be no combination of those before it."""

_LEVELS_OF_COLUMN = re.compile(r"^C\((?:`([^`]*)`|(\w+))(?:,.*)?\)$")
"""C(column), also with contrasts."""


class Design(NamedTuple):
    """How columns are made.

    formula: the right side of one. columns: those of the table that it names. names, centre and scale: of each column
    of the matrix, whose values are (raw - centre) / scale.
    transforms: what functions as bs have learnt. levels: expression of a factor -> its levels, for categories.
    """

    formula: str
    columns: tuple[str, ...]
    names: tuple[str, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    transforms: Mapping[str, Any]
    levels: Mapping[str, tuple[Any, ...]]

    def matrix(self, frame: pd.DataFrame) -> np.ndarray:
        """The columns (row, column) for the rows of a table. Raises ValueError for rows that it cannot code."""
        parsed = _formula(self.formula)
        for name in self.columns:
            _refuse_gaps(frame[name])
            if name in {f.expr for term in parsed for f in term.factors} and name not in self.levels:
                _require_numbers(frame[name])
        self._refuse_unknown_levels(frame)
        categories = {
            expression: (Factor.Kind.CATEGORICAL, {"categories": list(levels)})
            for expression, levels in self.levels.items()
        }
        spec = ModelSpec(formula=parsed, transform_state=deepcopy({**self.transforms}), encoder_state=categories)
        raw = _model_matrix(spec, frame)
        if tuple(map(_column_name, raw.columns)) != self.names:
            raise ValueError(
                f"the formula makes columns {list(raw.columns)} of these rows, but the fit had {self.names}."
            )
        return (raw.to_numpy(float) - self.centre) / self.scale

    def _refuse_unknown_levels(self, frame: pd.DataFrame) -> None:
        for expression, levels in self.levels.items():
            name = expression if expression in self.columns else _LEVELS_OF_COLUMN.sub(r"\1\2", expression)
            if name not in self.columns:
                continue  # levels of something computed: formulaic warns, which is an error here
            if (unknown := ~frame[name].isin(list(levels)).to_numpy()).any():
                row, level = frame.index[int(unknown.argmax())], frame[name][unknown].iloc[0]
                hint = suggestion(str(level), [str(known) for known in levels])
                raise ValueError(f"column {name!r} has the unknown level {level!r} in row {row!r}{hint}")


def design_of(formula: str, frame: pd.DataFrame, standardise: bool) -> Design:
    """The design that the right side of a formula makes of a table.

    standardise: give columns that are not made of levels alone standard deviation 1, and, beside an intercept, mean 0.
    Raises ValueError for a formula that cannot be computed, and for columns that are constant or a combination of
    others.
    """
    parsed = _formula(formula)
    columns = tuple(dict.fromkeys(name for term in parsed for f in term.factors for name in _names_in_factor(f)))
    require_columns(frame, columns, "")
    for name in columns:
        _refuse_gaps(frame[name])
    raw = _model_matrix(ModelSpec(formula=parsed), frame)
    spec = raw.model_spec
    if raw.shape[1] == 0:
        raise ValueError(f"formula {formula!r} has no term that rows share: keep the intercept.")
    levels = {
        expression: tuple(_plain_level(expression, level) for level in state["categories"])
        for expression, (kind, state) in spec.encoder_state.items()
        if kind is Factor.Kind.CATEGORICAL
    }
    truth_values = {name for name in frame.columns if pd.api.types.is_bool_dtype(frame[name])}
    of_levels = {
        column: all(f.expr in levels or f.expr in truth_values or f.expr == "1" for f in structure.term.factors)
        for structure in spec.structure
        for column in structure.columns
    }
    names = tuple(map(_column_name, raw.columns))
    has_intercept = "intercept" in names
    centres, scales = [], []
    for column, name in zip(raw.columns, names, strict=True):
        values = raw[column].to_numpy(float)
        if name != "intercept" and (has_intercept or not values.any()):
            _refuse_constant(values, name, of_levels[column])
        keep = of_levels[column] or not standardise
        centre, scale = (0.0, 1.0) if keep else centre_and_scale(values, f"column {name!r}", True)
        centres.append(centre if has_intercept else 0.0)
        scales.append(scale)
    design = Design(formula, columns, names, tuple(centres), tuple(scales), spec.transform_state, levels)
    _refuse_collinear((raw.to_numpy(float) - design.centre) / design.scale, names)
    return design


def response_values(expression: str, frame: pd.DataFrame) -> np.ndarray:
    """The numbers (row,) that the left side of a formula makes of a table, NaN where something is missing."""
    raw = _model_matrix(ModelSpec(formula=_formula(f"0 + {{{expression}}}")), frame, check=False)
    if raw.shape[1] != 1:
        raise ValueError(f"the response {expression!r} has {raw.shape[1]} columns; expected one of numbers.")
    return raw.to_numpy(float)[:, 0]


def _formula(text: str) -> Any:
    """The right side of a formula as formulaic reads it, terms in the order in which they are written.

    Raises ValueError for expressions that are not permitted: formulas may come from a file.
    """
    parsed = _explained(lambda: Formula(text, _ordering="none"), f"formula {text!r} is not understood")
    if not hasattr(parsed, "__iter__") or any(not hasattr(term, "factors") for term in parsed):
        raise ValueError(f"formula {text!r} has several parts; expected the terms of one.")
    for term in parsed:
        for factor in term.factors:
            _names_in_factor(factor)
    return parsed


def _names_in_factor(factor: Factor) -> list[str]:
    """The names of columns in a factor of a term."""
    if factor.eval_method is Factor.EvalMethod.LITERAL:
        return []
    return [factor.expr] if factor.eval_method is Factor.EvalMethod.LOOKUP else names_in(factor.expr)


def _model_matrix(spec: ModelSpec, frame: pd.DataFrame, check: bool = True) -> Any:
    """The columns of a specification for the rows of a table. Raises ValueError for values that are not finite."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error", DataMismatchWarning)
        spec = spec.update(na_action="ignore", output="pandas")
        raw = _explained(lambda: spec.get_model_matrix(frame, context={}), "the formula cannot be computed")
    for column in raw.columns if check else ():
        if (bad := ~np.isfinite(raw[column].to_numpy(float))).any():
            row = frame.index[int(bad.argmax())]
            raise ValueError(
                f"formula term {_column_name(column)!r} is {raw[column].iloc[int(bad.argmax())]} in row {row!r}."
            )
    return raw


def _explained(compute: Callable[[], Any], what: str) -> Any:
    """What a call of formulaic returns; its errors, which are of many kinds, as ValueError with one line."""
    try:
        return compute()
    except (FormulaicError, DataMismatchWarning, ValueError, TypeError, NameError, AttributeError, IndexError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{what}: {reason}") from None


def _column_name(name: str) -> str:
    """The name of a column, as formulaic writes it, as results have it."""
    return "intercept" if name == "Intercept" else str(name).replace("[T.", "[")


def _plain_level(expression: str, level: Any) -> Any:
    """A level as text, a number or a truth value."""
    level = level.item() if isinstance(level, np.generic) else level
    if not isinstance(level, str | int | float):
        raise ValueError(f"formula term {expression!r} has {level!r} as a level; expected text or numbers.")
    return level


def _refuse_gaps(column: pd.Series) -> None:
    refuse_rows(column.isna().to_numpy(), column, "is missing")
    if pd.api.types.is_float_dtype(column):
        refuse_rows(np.isinf(column.to_numpy(float)), column, "is infinite")


def _require_numbers(column: pd.Series) -> None:
    if not pd.api.types.is_bool_dtype(column):
        numbers_of(column, "column")


def _refuse_constant(values: np.ndarray, name: str, of_levels: bool) -> None:
    if np.ptp(values) <= 8 * np.finfo(float).eps * np.abs(values).max():
        reason = "its level never occurs, or always" if of_levels else f"all its rows are {values[0]:g}"
        raise ValueError(f"column {name!r} of the formula is constant: {reason}; drop it.")


def _refuse_collinear(matrix: np.ndarray, names: tuple[str, ...]) -> None:
    """Raises ValueError for a column that is a combination of those before it, while there are fewer than rows."""
    basis = np.zeros((len(matrix), 0))
    for position, name in enumerate(names[: len(matrix)]):
        column = matrix[:, position] / np.linalg.norm(matrix[:, position])
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)
        if (length := np.linalg.norm(rest)) <= RANK_TOLERANCE:
            raise ValueError(
                f"column {name!r} of the formula is a combination of those before it "
                f"({', '.join(names[:position])}): drop one."
            )
        basis = np.column_stack([basis, rest / length])
