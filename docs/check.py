"""Reads the built site as visitors do, in headless Chromium, at four widths of the window; `make docs-check` starts it.

    python docs/check.py docs/_build/html

Every page must fit into the window, with what is wider (tables, code, formulas) in a frame that scrolls; formulas must
be set; links must lead somewhere, pictures must say in words what they show; the search must find what the pages are
about. Prints a line for each fault and exits with 1 if there is one.
"""

import functools
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

from bs4 import BeautifulSoup
from playwright.sync_api import Page, sync_playwright

WIDTHS = (400, 800, 1100, 1600)  # pixels: a telephone, half a screen, a small and a large one
SEARCHES = {"Gibbs": "methods.html", "genotypes": "population_structure.html", "Kalman": "notebooks/kalman.html"}
"""A word -> a page that the search must find by it."""

FAULTS = """
() => {
    const window_width = document.documentElement.clientWidth;
    const faults = [];
    const name = element => `${element.tagName.toLowerCase()} "${element.textContent.trim().slice(0, 40)}"`;
    const scrolls = element => {
        for (let e = element; e && e.tagName !== "ARTICLE"; e = e.parentElement) {
            const style = getComputedStyle(e);
            if (style.display !== "inline" && ["auto", "scroll"].includes(style.overflowX)) return true;
        }
        return false;
    };
    if (document.documentElement.scrollWidth > window_width + 1)
        faults.push(`the page is ${document.documentElement.scrollWidth} pixels wide`);
    for (const e of document.querySelectorAll("article :is(p, li, h1, h2, h3, dt, table, pre, img), mjx-container")) {
        const box = e.getBoundingClientRect();
        if (box.width && (box.right > window_width + 1 || box.left < -1) && !scrolls(e))
            faults.push(`${name(e)} is cut off`);
    }
    for (const e of document.querySelectorAll("article p, article li, article pre"))
        if (["hidden", "clip"].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1)
            faults.push(`${name(e)} is cut off in its frame`);
    for (const e of document.querySelectorAll("mjx-merror, .mjx-merror"))
        faults.push(`formula not understood: ${name(e)}`);
    for (const e of document.querySelectorAll(".math"))
        if (!e.querySelector("mjx-container")) faults.push(`formula not set: ${name(e)}`);
    for (const e of document.images)
        if (e.complete && e.naturalWidth === 0) faults.push(`picture ${e.getAttribute("src")} is not there`);
    return faults;
}
"""


def main(site: Path) -> int:
    pages = {str(page.relative_to(site)): page for page in sorted(site.rglob("*.html"))}
    faults = list(broken(site, pages))
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page()
        address = f"http://127.0.0.1:{server.server_port}/"
        faults += seen(page, address, list(pages))
        faults += searched(page, address)
        browser.close()
        server.shutdown()
    print(*faults, sep="\n")
    print(f"{len(pages)} pages at {', '.join(map(str, WIDTHS))} pixels: {len(faults)} faults")
    return 1 if faults else 0


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Requests are not logged."""


def chromium() -> str | None:
    """The browser of the machine, or None for the one that playwright has installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def broken(site: Path, pages: dict[str, Path]) -> Iterator[str]:
    """Links within the site that lead nowhere, and pictures without words."""
    soups = {name: BeautifulSoup(page.read_text(), "html.parser") for name, page in pages.items()}
    anchors = {name: {tag["id"] for tag in soup.find_all(id=True)} for name, soup in soups.items()}
    for name, soup in soups.items():
        for link in soup.find_all("a", href=True):
            target, anchor = urldefrag(unquote(link["href"]))
            if ":" in target.split("/")[0]:
                continue  # another site
            file = (site / name).parent / target if target else site / name
            if not file.exists():
                yield f"{name}: no page for the link {link['href']}"
                continue
            held = str(file.resolve().relative_to(site.resolve()))
            if anchor and held in anchors and anchor not in anchors[held]:
                yield f"{name}: no place for the link {link['href']}"
        for picture in soup.select("article img"):
            words = picture.get("alt", "").strip()
            if not words or Path(words).suffix in {".png", ".svg"}:  # a name of a file says nothing
                yield f"{name}: no words for the picture {picture.get('src')}"


def seen(page: Page, address: str, names: list[str]) -> Iterator[str]:
    """What is wrong with a page in a window of each width."""
    for name in names:
        page.goto(address + name)
        page.wait_for_function("!document.querySelector('.math') || window.MathJax?.startup?.promise")
        page.evaluate("window.MathJax?.startup?.promise")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            faults = page.evaluate(FAULTS)
            if faults:
                more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
                yield f"{name} at {width}: {faults[0]}{more}"


def searched(page: Page, address: str) -> Iterator[str]:
    """Words that the search does not find."""
    for word, expected in SEARCHES.items():
        page.goto(f"{address}search.html?q={word}")
        page.wait_for_selector("#search-results li a, #search-results p.search-summary")
        page.wait_for_timeout(2000)  # results come one by one
        links = page.eval_on_selector_all("#search-results li a", "all => all.map(link => link.href)")
        if not any(expected in link for link in links):
            yield f"search: {word} finds {len(links)} pages, not {expected}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
