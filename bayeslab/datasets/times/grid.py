"""The regular grid that times are on: years, months, weeks, working days, or a constant step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    Times = pd.Index[Any]

MAX_STEPS_PER_TIME = 25
"""The most steps of a grid, for every time that is on it: with more of them the times are hardly those of a grid."""
MAX_STEPS_ALWAYS = 1000
"""The number of steps up to which a grid may be emptier than that."""
MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
"""Months as pandas has them in names of frequencies."""
PERIODS = {
    "YS-JAN": "Y",
    "YE-DEC": "Y",
    "QS-JAN": "Q",
    "QE-DEC": "Q",
    "MS": "M",
    "ME": "M",
    **{name: name for name in ("D", "h", "min", "s")},
    **{f"W-{day}": f"W-{day}" for day in ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")},
}
"""The periods that times may be put into, by the frequency that is given."""
DAY_NAMES = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
"""Days of the week as pandas has them in names of frequencies."""


def regular_grid(times: Times, freq: str | None) -> tuple[Times, Times]:
    """The grid from the first to the last time, and the place on it of every time: itself, or the period it is in.

    times: sorted, none twice, integers or without a time zone. freq: a frequency of pandas, such as "D" or "MS"; by
    default the coarsest of years, quarters, months, weeks and working days that has all times, else their greatest
    common step.
    Raises ValueError for a frequency that there is not, and for times that are on no grid.
    """
    import pandas as pd

    if not isinstance(times, pd.DatetimeIndex):
        if freq is not None:
            raise ValueError(f"freq is {freq!r}, but times are whole numbers, whose step is found; leave it out")
        step = int(np.gcd.reduce(np.diff(times.to_numpy().astype(np.int64)))) if len(times) > 1 else 1
        _refuse_empty_grid(times, (int(times[-1]) - int(times[0])) // step + 1)
        return pd.RangeIndex(int(times[0]), int(times[-1]) + 1, step), times
    if freq is not None:
        return _given_grid(times, freq)
    if (calendar := calendar_step(times)) is not None:
        return pd.date_range(times[0], times[-1], freq=calendar), times
    moments = times.to_numpy().astype("datetime64[ns]").astype(np.int64)
    step = int(np.gcd.reduce(np.diff(moments))) if len(times) > 1 else 1
    _refuse_empty_grid(times, int(moments[-1] - moments[0]) // step + 1)
    return pd.date_range(times[0], times[-1], freq=pd.Timedelta(step, "ns")), times


def calendar_step(times: pd.DatetimeIndex) -> Any:
    """The coarsest step of the calendar on whose grid all times are, a frequency of pandas or an offset; or None."""
    import pandas as pd

    for candidate in _candidates(times):
        grid = pd.date_range(times[0], times[-1], freq=candidate)
        if len(grid) and times.isin(grid).all():
            return candidate
    return None


def _given_grid(times: pd.DatetimeIndex, freq: str) -> tuple[Times, Times]:
    """The grid of a frequency that is given."""
    import pandas as pd

    try:
        grid = pd.date_range(times[0], times[-1], freq=freq)
    except ValueError as error:
        raise ValueError(f"freq is {freq!r}; expected one of pandas, such as 'D', 'h' or 'MS' ({error})") from None
    if len(grid) and times.isin(grid).all():
        return grid, times
    period = PERIODS.get(str(grid.freqstr))
    if period is None:
        off = times[~times.isin(grid)][0]
        raise ValueError(f"time {off} is not on the grid of freq {freq!r} from {times[0]}; expected all on it")
    periods = times.to_period(period)
    return pd.period_range(periods[0], periods[-1]).to_timestamp(), periods.to_timestamp()


def _candidates(times: pd.DatetimeIndex) -> list[Any]:
    """Frequencies of the calendar that the times could have, the coarsest first."""
    if (times != times.normalize()).any() or len(times) < 2:
        return []
    month = MONTH_NAMES[times[0].month - 1]
    ends = {"S": bool((times.day == 1).all()), "E": bool(times.is_month_end.all())}
    aliases = [f"{unit}{end}" for unit in ("Y", "Q", "M") for end in ends if ends[end]]
    aliases = [name if name.startswith("M") else f"{name}-{month}" for name in aliases]
    steps: list[Any] = [*aliases, *_same_days(times)]
    if (times.day_of_week == times[0].day_of_week).all():
        steps.append(f"W-{DAY_NAMES[times[0].day_of_week]}")
    if (times.day_of_week < 5).all() and (times[-1] - times[0]).days >= 7:
        steps.append("B")
    return steps


def _same_days(times: pd.DatetimeIndex) -> list[pd.DateOffset]:
    """Years, half years, quarters and months where all times have the same day of the month, which every month has."""
    import pandas as pd

    if len(times) < 3 or times[0].day > 28 or (times.day != times[0].day).any():
        return []
    return [pd.DateOffset(months=months) for months in (12, 6, 3, 1)]


def _refuse_empty_grid(times: Times, num_steps: int) -> None:
    """Raise ValueError where hardly a step of a grid has a time."""
    if num_steps > max(MAX_STEPS_ALWAYS, MAX_STEPS_PER_TIME * len(times)):
        raise ValueError(
            f"the {len(times)} times from {times[0]} to {times[-1]} are on no regular grid of fewer than {num_steps:,} "
            "steps; give freq, such as 'MS' for months, or take process_data, for irregular times"
        )
