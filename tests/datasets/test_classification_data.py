"""Tables with classes: codes, names and what is refused."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayeslab import datasets

FRAME = pd.DataFrame({"size": [1.0, 2.0, 4.0, 3.0], "kind": ["oak", "elm", "oak", "ash"]}, list("abcd"))


def test_classes_have_codes_in_the_order_of_their_names() -> None:
    data = datasets.classification_data(FRAME, "kind")
    assert data["y"].values.tolist() == [2, 1, 2, 0]
    assert data["y"].attrs["classes"] == ["ash", "elm", "oak"]
    assert data["x"].dims == ("row", "feature")
    assert data["feature"].values.tolist() == ["intercept", "size"]
    assert data["row"].values.tolist() == list("abcd")
    np.testing.assert_allclose(data["x"][:, 1].std(), 1)


def test_categories_keep_their_order_and_those_that_do_not_occur_are_told() -> None:
    kind = pd.Categorical(FRAME["kind"], ["oak", "yew", "elm", "ash"])
    with pytest.warns(UserWarning, match="target 'kind': yew occurs in no row and has no code"):
        data = datasets.classification_data(FRAME.assign(kind=kind), "kind", intercept=False)
    assert data["y"].values.tolist() == [0, 1, 0, 2]
    assert data["y"].attrs["classes"] == ["oak", "elm", "ash"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"kind": "oak"}, "target 'kind' has one class, 'oak'"),
        ({"kind": ["oak", None, "elm", "ash"]}, "target 'kind' is missing in row 'b'"),
        ({"kind": [0.0, 1.0, 0.5, 1.0]}, "no integers"),
        ({"size": [1.0, np.nan, 2.0, 3.0]}, "column 'size' is missing in row 'b'"),
    ],
)
def test_what_is_no_class_is_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        datasets.classification_data(FRAME.assign(**changed), "kind")


@pytest.mark.parametrize(
    ("name", "rows", "classes"), [("breast_cancer", 569, 2), ("irises", 150, 3), ("wines", 178, 3)]
)
def test_tables_of_scikit_learn_have_named_classes(name: str, rows: int, classes: int) -> None:
    frame = getattr(datasets, name)()
    target = frame.columns[-1]
    assert len(frame) == rows
    assert frame[target].nunique() == classes
    data = datasets.classification_data(frame, str(target))
    assert set(data["y"].values.tolist()) == set(range(classes))


def test_early_averages_are_hits_of_45() -> None:
    """Efron and Morris (1975): a mean of 0.265 early and of 0.265 later in the season."""
    players = datasets.batting_averages()
    assert len(players) == 18
    np.testing.assert_allclose((players["first"] * 45).round().sum(), 215)
    np.testing.assert_allclose(players.mean(), 0.265, atol=1e-3)
