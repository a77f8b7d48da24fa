"""Reports of results: right numbers, nothing of a user's that is read as HTML, and nothing from elsewhere."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arviz_base import from_dict
from arviz_stats import summary
from xarray import DataTree

import bayeslab as bl

HOSTILE = ["<script>alert(1)</script>", "a/b & $\\frac{", "twice", "twice"]
RNG = np.random.default_rng(0)


class Page(HTMLParser):
    """The tags, attributes and text of a page; every tag that is opened has to be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.tags, self.attributes, self.text = list[str](), list[str](), list[tuple[str, Any]](), ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def tree(sites: dict[str, Any], **attrs: Any) -> DataTree:
    made = from_dict({"posterior": sites}, dims={"w": ["feature"]}, coords={"feature": HOSTILE})
    made.attrs |= attrs
    return made


def draws(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


def rows(text: str) -> dict[str, list[str]]:
    """The cells after a label without spaces."""
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}


def test_names_of_users_are_no_html_and_the_page_needs_nothing_else(tmp_path: Path) -> None:
    result = tree({"w": draws(2, 200, 4), "<table>": draws(2, 200)}, model="m.<b>", method="NUTS", note="<i>&")
    shown = bl.report(result, tmp_path / "fit.html")
    for html in (shown._repr_html_(), (tmp_path / "fit.html").read_text(encoding="utf-8")):
        page = Page(html)
        assert {"script", "i", "link"}.isdisjoint(page.tags)
        assert all(name in page.text for name in (*HOSTILE, "<table>", "<b> by NUTS"))
        sources = [value for name, value in page.attributes if name in ("src", "href")]
        assert len(sources) == 1
        assert sources[0].startswith("data:image/png;base64,")
        [alt] = [value for name, value in page.attributes if name == "alt"]
        assert "w[twice], <table>" in alt or "w[twice], w[twice], <table>" in alt
        assert page.text.count("w[twice]") == 2
    assert "<i>&" in page.text


def test_numbers_are_those_of_arviz() -> None:
    result = tree({"w": draws(4, 100, 4), "s": draws(4, 100)})
    expected = summary(result, round_to="none")
    found = rows(str(bl.report(result)))
    assert found["mean"] == [str(column) for column in expected.columns[1:]]
    np.testing.assert_allclose([float(cell) for cell in found["s"]], expected.loc["s"], rtol=0.05)
    assert float(found["s"][0]) == pytest.approx(float(result["posterior"]["s"].mean()), rel=1e-3)


def test_what_diagnose_says_comes_first_and_what_it_cannot_see_is_told() -> None:
    apart = draws(4, 100) + 9 * np.arange(4)[:, None]
    assert str(bl.report(tree({"s": apart}))).splitlines()[2].startswith("Chains disagree")
    one = str(bl.report(tree({"s": draws(1, 1000)})))
    assert "nothing wrong" in one
    assert "one chain" in one
    assert "r_hat" not in one
    independent = str(bl.report(tree({"s": draws(1, 1000)}, method="Exact", log_evidence=-1.5)))
    assert "one chain" not in independent
    assert "log evidence -1.50" in independent


@pytest.mark.filterwarnings("ignore:Found chain dimension to be longer")
def test_points_and_single_draws() -> None:
    point = str(bl.report(tree({"s": np.full((1, 1), 2.5)}, method="MAP", converged=1)))
    assert "a point estimate" in point
    assert "how uncertain" in point
    assert rows(point)["s"] == ["2.5"]
    single = str(bl.report(tree({"s": np.arange(4.0)[:, None]})))
    assert "4 chains of 1 draw\n" in single
    assert "too few draws" in single
    assert float(rows(single)["s"][0]) == 1.5


def test_of_discrete_sites_the_most_frequent_value() -> None:
    labels = np.array([[[3, 0], [3, 1], [7, 0], [3, 2]]])
    text = str(bl.report(tree({"z": labels, "on": labels[..., 1] > 0})))
    assert rows(text)["z[0]"] == ["3", "0.75", "2"]
    assert rows(text)["on"] == ["False", "0.50", "2"]
    assert "of which there are none" in str(bl.report(tree({"on": labels[..., 1] > 0})))


def test_large_sites_leave_room_for_small_ones() -> None:
    text = str(bl.report(tree({"a": draws(2, 5, 10, 5), "s": draws(2, 5), "w": draws(2, 5, 4)})))
    found = rows(text)
    assert "12 of 55 numbers; az.summary has all." in text
    assert "s" in found
    assert sum(name.startswith("w[") for name in (line.split()[0] for line in text.splitlines() if line)) == 4
    assert sum(line.startswith("a[") for line in text.splitlines()) == 7


def test_what_is_no_result_is_refused_and_odd_ones_are_not(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="report takes a DataTree"):
        bl.report({"s": 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no group posterior"):
        bl.report(from_dict({"prior": {"s": draws(1, 5)}}))
    with pytest.raises(OSError, match="no folder"):
        bl.report(tree({"s": draws(1, 5)}), tmp_path / "nowhere" / "fit.html")
    odd = tree({"s": np.full((1, 5), np.nan), "none": draws(1, 5, 0), "same": np.ones((1, 5))})
    assert "img" not in Page(bl.report(odd)._repr_html_()).tags
