"""Parts of a report as one HTML file that holds its figures: the page, tables, lists, pictures."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURE_DPI = 130
"""The resolution of figures, in dots per inch."""
STYLE = """
body { font-family: system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; line-height: 1.45; }
img { max-width: 100%; display: block; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.25rem 0.7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:last-child, td:last-child, th.text, td.text { text-align: left; }
table.numbers td:first-child { text-align: left; }
table.numbers th:last-child, table.numbers td:last-child { text-align: right; }
summary { font-size: 1.1rem; margin: 0.6rem 0; cursor: pointer; }
pre { overflow-x: auto; font-size: 0.85rem; background: #f6f6f6; padding: 0.6rem; }
.answer { font-size: 1.15rem; }
"""
"""The style sheet of all reports."""


def page_html(title: str, body: str) -> str:
    """A whole page. body: HTML below the title."""
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def table_html(headings: Iterable[str], rows: Iterable[Iterable[str]], style: str = "words") -> str:
    """A table; cells that are numbers are on the right, except those of the last column, unless style is "numbers"."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(map(_cell_html, row)) + "</tr>" for row in rows)
    return f'<table class="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def list_html(texts: Iterable[str]) -> str:
    """A list."""
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"


def image_html(png: bytes, description: str) -> str:
    """A figure, with what it shows in words for those who cannot see it."""
    return f'<img alt="{escape(description)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def figure_png(figure: Figure, dpi: int = FIGURE_DPI) -> bytes:
    """A figure as PNG; it is closed."""
    from matplotlib import pyplot

    file = BytesIO()
    figure.savefig(file, dpi=dpi)
    pyplot.close(figure)
    return file.getvalue()


def _cell_html(text: str) -> str:
    """A cell of a table; text that begins with a letter is on the left."""
    return f'<td class="text">{escape(text)}</td>' if text[:1].isalpha() else f"<td>{escape(text)}</td>"
