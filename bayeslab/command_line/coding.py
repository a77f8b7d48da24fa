"""How a file became the data of a fit, kept in its result, so that new files are read the same and numbers find their
way back to the units of the file."""

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bayeslab.command_line.columns import Reading

if TYPE_CHECKING:
    from xarray import DataArray, Dataset, DataTree

ATTRIBUTE = "table_coding"
"""The attribute of a result that has the coding as JSON."""


@dataclass(frozen=True)
class FileCoding:
    """How the columns of a file became the data of a model.

    reading: what was said of the columns. columns: of arguments and sites. target: of a regression, empty elsewhere.
    features: of x, the fields of `bayeslab.datasets.regression.Feature`. y_centre, y_scale: of the target; y in the
    fit is (y - y_centre) / y_scale. classes: of the target, by their codes. signed: whether the codes are -1 and 1.
    is_vector: x has no axis of features.
    """

    table: str
    reading: Reading
    columns: dict[str, str] = field(default_factory=dict)
    target: str = ""
    features: tuple[tuple[Any, ...], ...] = ()
    y_centre: float = 0.0
    y_scale: float = 1.0
    classes: tuple[str, ...] = ()
    signed: bool = False
    is_vector: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def names(self) -> list[str]:
        """The names of features."""
        from bayeslab.datasets.regression import Feature

        return [Feature(*feature).name for feature in self.features]

    @property
    def covariates(self) -> list[str]:
        """The columns that x is made of."""
        return list(dict.fromkeys(feature[1] for feature in self.features if feature[0] != "intercept"))

    @property
    def is_standardised(self) -> bool:
        """Whether a number of the fit is another one in the file."""
        features = any((feature[4], feature[5]) != (0.0, 1.0) for feature in self.features)
        return features or (self.y_centre, self.y_scale) != (0.0, 1.0)

    def coded_data(self) -> dict[str, "DataArray"]:
        """What `bayeslab.datasets.new_rows` takes as the data of the fit."""
        from xarray import DataArray

        from bayeslab.datasets.regression import Feature

        fields = zip(*self.features, strict=True)
        coords = {name: ("feature", list(values)) for name, values in zip(Feature._fields, fields, strict=True)}
        scales = {"y_centre": self.y_centre, "y_scale": self.y_scale}
        x = DataArray(
            np.zeros((0, len(self.features))), {"feature": self.names, **coords, **scales}, dims=("row", "feature")
        )
        return {"x": x}


def file_coding_of(tree: "DataTree") -> FileCoding | None:
    """The coding that a result holds, None where it has none."""
    if ATTRIBUTE not in tree.attrs:
        return None
    saved = json.loads(tree.attrs[ATTRIBUTE])
    reading = saved.pop("reading")
    lists = {name: tuple(reading[name]) for name in ("missing", "categorical", "drop")}
    saved["features"] = tuple(map(tuple, saved["features"]))
    return FileCoding(**saved | {"reading": Reading(**reading | lists), "classes": tuple(saved["classes"])})


def in_original_units(posterior: "Dataset", coding: FileCoding) -> "Dataset | None":
    """The coefficients, and the standard deviation of the noise, in the units of the file.

    w (..., feature) of a linear predictor, with what takes up the shift of columns: the intercept among features, the
    site intercept, the cuts of an ordered regression, or an intercept of its own. None where nothing was standardised,
    or the posterior has no such coefficients.
    """
    from xarray import Dataset

    from bayeslab.datasets.regression import Feature, coefficients_in_units

    names = coding.names
    if not coding.is_standardised or "w" not in posterior or "feature" not in posterior["w"].dims:
        return None
    w = posterior["w"]
    if w["feature"].values.tolist() != names:
        return None
    features = [Feature(*feature) for feature in coding.features]
    slopes, shift = coefficients_in_units(w, features, coding.y_centre, coding.y_scale)
    result: dict[str, Any] = {"w": slopes}
    has_intercept = any(feature.is_intercept for feature in features)
    if not has_intercept and "cuts" in posterior:
        result["cuts"] = posterior["cuts"] - shift
    elif not has_intercept:
        own = posterior["intercept"] * coding.y_scale if "intercept" in posterior else 0.0
        result["intercept"] = own + shift
    if "tau" in posterior and posterior["tau"].dims == ("chain", "draw"):
        result["sigma"] = coding.y_scale / np.sqrt(posterior["tau"])
    return Dataset(result)
