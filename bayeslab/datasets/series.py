"""Published series, from matplotlib or typed in."""
# ruff: noqa: RUF001

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

COMPANIES = {
    "S&P 500": "^GSPC",
    "IBM": "IBM",
    "Apple": "AAPL",
    "Microsoft": "MSFT",
    "Xerox": "XRX",
}
"""The ticker of every company, and of the index."""


def earthquakes() -> xr.DataArray:
    """Numbers (year,) of earthquakes of magnitude 7 or more in the world, 1900 to 2006.

    U.S. Geological Survey; W. Zucchini, I. L. MacDonald and R. Langrock (2016), Hidden Markov Models for Time Series,
    table 1.1.
    """
    counts = [
        13, 14, 8, 10, 16, 26, 32, 27, 18, 32, 36, 24, 22, 23, 22, 18, 25, 21, 21, 14, 8, 11, 14, 23, 18, 17, 19, 20,
        22, 19, 13, 26, 13, 14, 22, 24, 21, 22, 26, 21, 23, 24, 27, 41, 31, 27, 35, 26, 28, 36, 39, 21, 17, 22, 17, 19,
        15, 34, 10, 15, 22, 18, 15, 20, 15, 22, 19, 16, 30, 27, 29, 23, 20, 16, 21, 21, 25, 16, 18, 15, 18, 14, 10, 15,
        8, 15, 6, 11, 8, 7, 18, 16, 13, 12, 13, 20, 15, 16, 12, 18, 15, 16, 13, 15, 16, 11, 11,
    ]  # fmt: skip
    return xr.DataArray(counts, {"year": np.arange(1900, 2007)})


def monthly_returns() -> xr.DataArray:
    """Returns (month, company) of an index of shares and four companies, February 1990 to June 2022.

    100 times differences of log prices of the first days of months. Yahoo Finance; the copy in matplotlib.
    """
    from matplotlib.cbook import get_sample_data

    table = pd.read_csv(get_sample_data("Stocks.csv", asfileobj=False), comment="#", index_col="Date")
    prices = table.loc[table.index.str.endswith("-01"), list(COMPANIES.values())].dropna()
    returns = 100 * np.diff(np.log(prices.to_numpy()), axis=0)
    labels = {"month": prices.index[1:].str.removesuffix("-01").tolist(), "company": list(COMPANIES)}
    return xr.DataArray(returns, labels)


def google_days() -> xr.DataArray:
    """Log of highest over lowest price and log of volume (day, feature) of Google's shares, standardised.

    1,047 days of trading from August 2004 to October 2008; the copy in matplotlib.
    """
    from matplotlib.cbook import get_sample_data

    days: Any = get_sample_data("goog.npz")
    days = days["price_data"]
    both = np.stack([np.log(np.log(days["high"] / days["low"])), np.log(days["volume"])], axis=1)
    labels = {"day": days["date"].astype(str).tolist(), "feature": ["range", "volume"]}
    return xr.DataArray((both - both.mean(0)) / both.std(0), labels)


def co2_mauna_loa() -> xr.DataArray:
    """Carbon dioxide (time,) in the air at Mauna Loa, Hawaii, in parts per million, every week from 1958 to 2001.

    time: decimal years; NaN where a week was not measured. C. D. Keeling and T. P. Whorf, Scripps Institution of
    Oceanography; the copy in statsmodels. Raises ImportError without it.
    """
    try:
        from statsmodels.datasets import co2
    except ImportError as error:
        raise ImportError("these measurements are in the package statsmodels: pip install statsmodels.") from error

    weeks = co2.load_pandas().data["co2"]
    start = pd.to_datetime(weeks.index.year.astype(str))
    share = (weeks.index - start) / (start + pd.offsets.YearBegin() - start)
    return xr.DataArray(weeks.to_numpy(), {"time": weeks.index.year + share.to_numpy()}, name="co2")


def onegin_stanza() -> dict[str, np.ndarray]:
    """Vowels (1) and consonants (0) in the lines of the first stanza of Pushkin's Eugene Onegin, without the signs.

    A. A. Markov (1913) counted such letters, 20,000 of them, as the first example of his chains.
    """
    letters = {line: [letter for letter in line.lower() if letter.isalpha() and letter not in "ъь"] for line in _STANZA}
    return {
        line: np.array([int(letter in "аеёиоуыэюя") for letter in line_letters])
        for line, line_letters in letters.items()
    }


_STANZA = (
    "Мой дядя самых честных правил,",
    "Когда не в шутку занемог,",
    "Он уважать себя заставил",
    "И лучше выдумать не мог.",
    "Его пример другим наука;",
    "Но, боже мой, какая скука",
    "С больным сидеть и день и ночь,",
    "Не отходя ни шагу прочь!",
    "Какое низкое коварство",
    "Полуживого забавлять,",
    "Ему подушки поправлять,",
    "Печально подносить лекарство,",
    "Вздыхать и думать про себя:",
    "Когда же чёрт возьмёт тебя!",
)
