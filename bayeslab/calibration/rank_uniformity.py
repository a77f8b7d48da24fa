"""Whether the ranks of a calibration are uniform, and which errors would have been seen.

The distribution function of n ranks is held against a simultaneous band: at t = 1/n, ..., (n - 1)/n the number of ranks
below t is binomial, and the band has the same pointwise probability everywhere (Säilynoja, Bürkner and Vehtari 2022,
doi:10.1007/s11222-022-10090-6; `az.plot_ecdf_pit` draws it). Its simultaneous probability is exact here, where a
simulation could not follow it into the tails that many sites at once need: ranks arrive like a Poisson process that has
n points, so the probability that the counts stay inside is a product of narrow convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import bdtr, bdtrc, bdtrik, betaln, gammaln, ndtr, ndtri, xlog1py, xlogy

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from xarray import Dataset, DataTree

    Array = NDArray[Any]

SIGNIFICANCE_LEVEL = 0.01
"""The probability that a right method fails."""
MIN_SIMULATIONS = 10
"""The smallest number of simulations that a verdict needs."""
DETECTION_PROBABILITY = 0.9
"""The probability with which the errors that are reported would have been seen."""
SHIFT_BOUNDS, SD_RATIO_BOUNDS = (0.0, 5.0), (0.02, 1.0, 50.0)
"""The ranges in which errors are searched for: of the mean, in posterior standard deviations, and of the standard
deviation, as ratios."""


def calibration_verdict(
    checks: DataTree, level: float = SIGNIFICANCE_LEVEL, var_names: Sequence[str] | None = None
) -> Dataset:
    """One row a site or quantity of `sbc`: its smallest p-value, and whether all of them pass together.

    level: the probability that a right method fails somewhere. var_names: sites and quantities to judge, all where not
    given; in mixtures those that do not depend on what components are called.
    p_value (quantity,): of its worst element, times the number of elements of all quantities (Bonferroni).
    worst (quantity,): that element, by position. middle, spread (quantity,): mean and standard deviation of the Normal
    scores of its ranks; a middle above 0 says that its draws are too low, a spread above 1 that they are too narrow.
    attrs: passes (1 or 0), and the errors that would have been seen with probability 0.9 in one element of a Normal
    posterior: shift_seen, of the mean, in posterior sd; narrow_seen and wide_seen, ratios of the sd.
    Elements whose value is the same in all simulations are left out.
    Raises ValueError for a tree without ranks.
    """
    from xarray import Dataset

    ranks = ranks_of(checks, var_names)
    if not 0 < level < 1:
        raise ValueError(f"level must be a probability between 0 and 1, got {level}.")
    if (simulations := checks["prior_sbc"].sizes["draw"]) < MIN_SIMULATIONS:
        raise ValueError(f"calibration_verdict needs at least {MIN_SIMULATIONS} simulations, got {simulations}.")
    num_elements = sum(is_varying(each).sum() for each in ranks.values())
    rows = {name: _worst_element(each) for name, each in ranks.items() if is_varying(each).any()}
    if not rows:
        raise ValueError("calibration_verdict got no ranks that vary, so there is nothing to judge.")
    p_value = np.minimum(1, num_elements * np.array([row["p_value"] for row in rows.values()]))
    columns = {name: ("quantity", [row[name] for row in rows.values()]) for name in ("worst", "middle", "spread")}
    table = Dataset({"p_value": ("quantity", p_value), **columns}, {"quantity": list(rows)})
    detectable = errors_seen(simulations, int(checks.attrs["num_draws"]), level / num_elements)
    return table.assign_attrs(dict(checks.attrs) | {"passes": int(p_value.min() > level), "level": level} | detectable)


def ranks_of(checks: DataTree, var_names: Sequence[str] | None) -> dict[str, Array]:
    """Ranks (simulation, element) of sites and quantities by name. Raises ValueError for a tree without them."""
    if "prior_sbc" not in (groups := getattr(checks, "children", ())) or "num_draws" not in checks.attrs:
        got = f"{type(checks).__name__} {sorted(groups)}"
        raise ValueError(f"a verdict needs the result of sbc, but got {got}.")
    sites = {str(name): values.values for name, values in checks["prior_sbc"].data_vars.items()}
    if unknown := [name for name in var_names or () if name not in sites]:
        raise ValueError(f"there are no ranks of {unknown}, only of {list(sites)}.")
    return {name: sites[name].reshape(sites[name].shape[0] * sites[name].shape[1], -1) for name in var_names or sites}


def is_varying(ranks: Array) -> Array:
    """Which elements of ranks (simulation, element) are not the same in all simulations."""
    return ranks.std(0) > 0


def p_value(ranks: Array) -> float:
    """The probability that uniform ranks leave the narrowest band that these leave; below 1e-12 it is rounding."""
    n = len(ranks)
    times = np.arange(1, n) / n
    counts = np.searchsorted(np.sort(ranks), times, side="right")
    tails = np.minimum(bdtr(counts, n, times), bdtrc(counts - 1.0, n, times))
    return _exit_probability(_pointwise_band(n, float(tails.min())), np.full(n, 1 / n))


@lru_cache(maxsize=64)
def errors_seen(num_simulations: int, num_draws: int, level: float) -> dict[str, float]:
    """The smallest errors of a Normal posterior that leave the band of this level with probability 0.9.

    shift_seen: of the mean, in sd; narrow_seen, wide_seen: of the sd, as a ratio. NaN where no error is seen so often.
    Draws are taken as independent.
    """
    n = num_simulations
    band = simultaneous_band(n, level)

    def missed(shift: float, ratio: float) -> float:
        return (
            _exit_probability(band, np.diff(rank_distribution(np.arange(n + 1) / n, num_draws, shift, ratio)))
            - DETECTION_PROBABILITY
        )

    return {
        "shift_seen": _monotone_root(lambda shift: missed(shift, 1.0), *SHIFT_BOUNDS),
        "narrow_seen": _monotone_root(lambda ratio: missed(0.0, ratio), 1.0, SD_RATIO_BOUNDS[0]),
        "wide_seen": _monotone_root(lambda ratio: missed(0.0, ratio), 1.0, SD_RATIO_BOUNDS[2]),
    }


@lru_cache(maxsize=64)
def simultaneous_band(number: int, level: float) -> tuple[Array, Array]:
    """Smallest and largest counts (number - 1,) of ranks below 1/number, 2/number, ... ; uniform ranks leave them
    somewhere with this probability."""

    def leaves(log_tail: float) -> float:
        return _exit_probability(_pointwise_band(number, np.exp(log_tail)), np.full(number, 1 / number)) - level

    return _pointwise_band(number, np.exp(_monotone_root(leaves, np.log(level / number) - 3, 0.0)))


def rank_distribution(times: Array, num_draws: int, shift: float, ratio: float) -> Array:
    """P(rank <= time) of a standard Normal truth among independent draws from Normal(shift, ratio)."""
    middles = (np.arange(2000) + 0.5) / 2000
    below = ndtr((ndtri(middles) - shift) / ratio)
    low = np.arange(num_draws + 1)[:, None]  # draws below the truth
    ranks = np.exp(betaln(1, num_draws + 1) - betaln(low + 1, num_draws - low + 1) + xlogy(low, below)
                   + xlog1py(num_draws - low, -below)).mean(1)  # fmt: skip
    edges = np.arange(num_draws + 2) / (num_draws + 1)
    return np.interp(times, edges, np.concatenate([[0.0], np.cumsum(ranks)]) / ranks.sum())


def _pointwise_band(n: int, tail: float) -> tuple[Array, Array]:
    """Smallest and largest counts at 1/n, ..., (n - 1)/n with more than this probability beyond them."""
    times = np.arange(1, n) / n
    low = np.ceil(np.nan_to_num(bdtrik(tail, n, times))).astype(int)
    low += bdtr(low, n, times) <= tail * (1 + 1e-9)
    return low, n - low[::-1]


def _exit_probability(band: tuple[Array, Array], shares: Array) -> float:
    """The probability that the counts of n points leave a band.

    shares: (n,) the probabilities of a point to lie between the times of the band.
    """
    n = len(shares)
    most = n * shares.max()
    steps = _poisson_probability(np.arange(int(most + 10 * np.sqrt(most)) + 20), n * shares[:, None])
    alive, first = steps[0], 0
    for low, high, step in zip(*band, steps[1:], strict=True):
        begin = max(low, first)
        alive, first = alive[begin - first : max(high + 1 - first, 0)], begin
        if not alive.any():
            return 1.0
        alive = np.convolve(alive, step)
    inside = alive[n - first] if n - first < len(alive) else 0.0
    return float(np.clip(1 - inside / _poisson_probability(n, n), 0, 1))


def _poisson_probability(count: Any, mean: Any) -> Array:
    """The probability of a count under a Poisson distribution."""
    return np.exp(xlogy(count, mean) - mean - gammaln(np.asarray(count) + 1.0))


def _monotone_root(function: Callable[[float], float], begin: float, end: float) -> float:
    """The root of a monotone function between two points, NaN where there is none."""
    from scipy.optimize import brentq

    return float(brentq(function, begin, end, xtol=1e-3)) if function(begin) * function(end) < 0 else np.nan


def _worst_element(ranks: Array) -> dict[str, float]:
    """The p-value, the position, and the mean and standard deviation of Normal scores, of the worst element of ranks
    (simulation, element)."""
    p_values = [
        p_value(column) if varies else np.inf for column, varies in zip(ranks.T, is_varying(ranks), strict=True)
    ]
    worst = int(np.argmin(p_values))
    scores = ndtri(ranks[:, worst])
    return {"p_value": p_values[worst], "worst": worst, "middle": scores.mean(), "spread": scores.std()}
