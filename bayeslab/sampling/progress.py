"""One progress bar for all methods."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bayeslab.sampling.protocols import Method

if TYPE_CHECKING:
    from xarray import DataTree

ProgressReport = Callable[[int, int, dict[str, float]], None]
"""A function that is told the steps done, the steps to do and what is known."""


@contextmanager
def progress_bar(name: str, show: bool) -> Iterator[ProgressReport | None]:
    """The scope of a progress bar: gives the function that updates it, None when nothing is shown."""
    if not show:
        yield None
        return
    from tqdm import tqdm

    with tqdm(desc=name, unit="it", unit_scale=True, dynamic_ncols=True, mininterval=0.2) as line:

        def report(done: int, total: int, news: dict[str, float]) -> None:
            line.total = total
            line.set_postfix({key: f"{value:.6g}" for key, value in news.items()}, refresh=False)
            line.update(done - line.n)

        yield report
        line.refresh()


def whole_fit_report(report: ProgressReport, method: Method, number: int, tree: "DataTree | None") -> ProgressReport:
    """A function that passes reports of one portion on as reports of the whole fit."""
    num_earlier = 0 if tree is None else tree["posterior"].sizes["draw"]

    def report_all(done: int, total: int, news: dict[str, float]) -> None:
        tracks = total // (method.num_warmup + number)
        report(done + tracks * num_earlier, tracks * (method.num_warmup + method.num_samples), news)

    return report_all
