"""How a formula codes a table: what a fit remembers, so that it reads other tables in the same way."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bayeslab.formulas.design import Design, design_of, response_values
from bayeslab.formulas.parsing import names_in, parse_formula
from bayeslab.formulas.tables import (
    checked_frame,
    levels_of,
    numbers_of,
    refuse_rows,
    require_columns,
    row_labels,
    suggestion,
)


class Response(NamedTuple):
    """The left side of a formula: numbers (value - centre) / scale, or codes of classes."""

    expression: str
    centre: float = 0.0
    scale: float = 1.0
    classes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        return [self.expression] if self.classes else names_in(self.expression)

    def values(self, frame: pd.DataFrame) -> np.ndarray:
        """The response (row,), NaN where it is missing. Raises ValueError for an unknown class."""
        if not self.classes:
            return (_numbers(self.expression, frame) - self.centre) / self.scale
        column = frame[self.expression]
        text = column.astype(object).map(str)
        if (unknown := ~text.isin(self.classes).to_numpy() & column.notna().to_numpy()).any():
            row, level = column.index[int(unknown.argmax())], text[unknown].iloc[0]
            raise ValueError(
                f"column {column.name!r} has the unknown class {level!r} in row {row!r}"
                f"{suggestion(level, list(self.classes))}"
            )
        codes = np.asarray(pd.Categorical(text, categories=list(self.classes)).codes)
        return codes if (codes >= 0).all() else np.where(codes < 0, np.nan, codes)


class Grouping(NamedTuple):
    """A factor of groups. columns: those that make it. levels: of the fit. design: of what varies between groups."""

    columns: tuple[str, ...]
    levels: tuple[str, ...]
    design: Design

    def names(self, frame: pd.DataFrame) -> pd.Series:
        """The name of the group of every row."""
        first, *others = (levels_of(frame[name]) for name in self.columns)
        for other in others:
            first = first + ":" + other
        return first

    def groups(self, frame: pd.DataFrame) -> pd.Categorical:
        """The group of every row, in the codes of the fit, further ones for groups that it does not know."""
        names = self.names(frame)
        known = set(self.levels)
        new = [name for name in dict.fromkeys(names) if name not in known]
        return pd.Categorical(names, categories=[*self.levels, *new])


class Coding(NamedTuple):
    """How a formula codes a table."""

    formula: str
    response: Response
    fixed: Design
    groups: Mapping[str, Grouping]

    def as_text(self) -> str:
        return json.dumps(_plain(self))


def coding_of(formula: str, frame: pd.DataFrame, standardise: tuple[bool, bool]) -> Coding:
    """The coding that a formula learns from a table whose response is numeric.

    standardise: the columns; the response.
    """
    parsed = parse_formula(formula)
    fixed, groups = _designs(formula, frame, standardise[0])
    values = _numbers(parsed.response, frame)
    if np.isnan(values).all():
        raise ValueError(f"target {parsed.response!r} has no value: all its rows are missing.")
    centre, scale = float(np.nanmean(values)), float(np.nanstd(values))
    if scale <= 8 * np.finfo(float).eps * np.nanmax(np.abs(values)):
        raise ValueError(f"target {parsed.response!r} is constant: there is nothing to explain.")
    if not standardise[1]:
        centre, scale = 0.0, 1.0
    response = Response(parsed.response, centre if "intercept" in fixed.names else 0.0, scale)
    return Coding(formula, response, fixed, groups)


def coding_of_classes(formula: str, frame: pd.DataFrame, standardise: bool) -> Coding:
    """The coding that a formula learns from a table whose response is a column of classes."""
    target = parse_formula(formula).response.strip("`")
    require_columns(frame, [target], "target ")
    column = frame[target]
    refuse_rows(column.isna().to_numpy(), column, "is missing")
    if pd.api.types.is_float_dtype(column) and (column % 1 != 0).any():
        raise ValueError(f"target {target!r} holds numbers that are no integers: they are no classes.")
    classes = pd.Categorical(column)
    present = set(classes)
    if never := [level for level in classes.categories if level not in present]:
        raise ValueError(f"class {never[0]!r} of {target!r} never occurs: take it away, by remove_unused_categories().")
    if len(classes.categories) < 2:
        raise ValueError(f"target {target!r} has one class, {classes.categories[0]!r}; expected two at least.")
    fixed, groups = _designs(formula, frame, standardise)
    return Coding(formula, Response(target, classes=tuple(map(str, classes.categories))), fixed, groups)


def coding_from_text(text: str) -> Coding:
    """The coding that a result holds. Raises ValueError for a text that is none."""
    try:
        formula, response, fixed, groups = _from_plain(json.loads(text))
        expression, centre, scale, classes = response
        return Coding(
            formula,
            Response(expression, centre, scale, tuple(classes)),
            _design(fixed),
            {name: Grouping(tuple(c), tuple(levels), _design(design)) for name, (c, levels, design) in groups.items()},
        )
    except (ValueError, TypeError, AttributeError, KeyError):
        raise ValueError(
            "the result says of its formula what cannot be read; give arrays in place of a table."
        ) from None


def coded_rows(coding: Coding, frame: pd.DataFrame) -> dict[str, Any]:
    """The data of a program for the rows of a table.

    x (row, feature); y (row,), where the table has the response; with terms of groups, by factor, group (row,),
    num_groups and design (row, FACTOR_term). Raises ValueError for a missing column, a missing value and a level of a
    factor that the coding does not know; groups that it does not know get numbers of their own.
    """
    import xarray as xr

    frame = checked_frame(frame)
    designs = [coding.fixed, *(grouping.design for grouping in coding.groups.values())]
    require_columns(frame, dict.fromkeys(column for design in designs for column in design.columns), "")
    require_columns(frame, dict.fromkeys(name for g in coding.groups.values() for name in g.columns), "")
    rows = row_labels(frame)

    def labelled(design: Design, dim: str) -> Any:
        return xr.DataArray(design.matrix(frame), {"row": rows, dim: list(design.names)})

    data = {"x": labelled(coding.fixed, "feature").assign_attrs(formula=coding.as_text())}
    if all(name in frame for name in coding.response.columns):
        y = xr.DataArray(coding.response.values(frame), {"row": rows})
        data["y"] = y.assign_attrs(classes=list(coding.response.classes)) if coding.response.classes else y
    if not coding.groups:
        return data
    group = {name: pd.Series(g.groups(frame), pd.Index(rows, name="row")) for name, g in coding.groups.items()}
    return data | {
        "group": group,
        "num_groups": {name: len(codes.cat.categories) for name, codes in group.items()},
        "design": {name: labelled(g.design, f"{name}_term") for name, g in coding.groups.items()},
    }


def _designs(formula: str, frame: pd.DataFrame, standardise: bool) -> tuple[Design, dict[str, Grouping]]:
    """The designs of the terms that rows share, and of those of groups, by factor."""
    parsed = parse_formula(formula)
    if len(frame) < 2:
        raise ValueError("the table has one row; expected two at least.")
    groups = {}
    for term in parsed.groups:
        require_columns(frame, term.columns, "grouping ")
        grouping = Grouping(term.columns, (), design_of(term.effects, frame, standardise))
        names = grouping.names(frame)
        present = set(names)
        known = sorted(present) if len(term.columns) > 1 else pd.Categorical(frame[term.columns[0]]).categories
        order = [str(level) for level in known if str(level) in present]
        if len(order) < 2:
            raise ValueError(f"grouping {term.name!r} has one group, {order[0]!r}; expected two at least.")
        groups[term.name] = grouping._replace(levels=tuple(order))
    return design_of(parsed.fixed, frame, standardise), groups


def _numbers(expression: str, frame: pd.DataFrame) -> np.ndarray:
    """The numeric response, NaN where it is missing."""
    require_columns(frame, names_in(expression), "target ")
    if expression.strip("`") in frame:
        return numbers_of(frame[expression.strip("`")], "target")
    values = response_values(expression, frame)
    if np.isinf(values).any():
        raise ValueError(f"target {expression!r} is infinite in row {frame.index[int(np.isinf(values).argmax())]!r}.")
    return values


def _design(fields: list[Any]) -> Design:
    formula, columns, names, centre, scale, transforms, levels = fields
    levels = {expression: tuple(known) for expression, known in levels.items()}
    return Design(formula, tuple(columns), tuple(names), tuple(centre), tuple(scale), transforms, levels)


def _plain(value: Any) -> Any:
    """A value as JSON has it: a mapping as its pairs, because keys may be integers."""
    if isinstance(value, Mapping):
        return {"pairs": [[_plain(key), _plain(part)] for key, part in value.items()]}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    return value.item() if isinstance(value, np.generic) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        if "array" in value:
            return np.asarray(value["array"])
        return {_from_plain(key): _from_plain(part) for key, part in value["pairs"]}
    return [_from_plain(part) for part in value] if isinstance(value, list) else value
