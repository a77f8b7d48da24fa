"""explain(): what a puzzled user reads first."""

import numpy as np

from bayeslab import explain
from bayeslab.models import linear_regression, normal_wishart


def test_every_site_has_a_row() -> None:
    data = linear_regression.example()
    shown = explain(linear_regression.model, data | {"y": np.where(data["y"] > 2, np.nan, data["y"])})
    assert str(shown).splitlines()[0].startswith("linear_regression.model(x=array (10, 2), shrinkage=0.1")
    rows = {row[0]: row for row in shown.rows}
    assert rows["tau"][1:4] == ("latent", "Gamma", "positive")
    assert rows["w"][4] == "feature 2"
    assert rows["y"][1] == "observed, 3 of 10 missing"


def test_notebooks_show_a_table() -> None:
    html = explain(normal_wishart.model, normal_wishart.example())._repr_html_()
    assert html.count("<tr>") == 4
    assert "positive definite" in html


def test_columns_line_up() -> None:
    shown = explain(normal_wishart.model, normal_wishart.example())
    _, _, head, rule, *lines = str(shown).splitlines()
    starts = [0] + [place + 2 for place in range(len(rule)) if rule[place : place + 2] == "  "]
    for cells, line in zip(shown.rows, lines, strict=False):
        assert all(line[start:].startswith(cell) for start, cell in zip(starts, cells, strict=True))
    assert all(head[start] != " " for start in starts)
