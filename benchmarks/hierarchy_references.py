"""Posterior means of the hierarchical models in `tests/catalogue/hierarchies.py`, without bayeslab.

    python benchmarks/hierarchy_references.py [names] >> tests/catalogue/hierarchy_references.py

Where the coefficients are jointly Normal given some scales, y ~ Normal(X c, noise) with c ~ Normal(m, V(scales)), they
are integrated out by dense algebra, and the scales by the trapezoidal rule over their logarithms. Else NumPyro's NUTS
runs for long on a program in which Normal sites are standardised. For every model an entry of the table is printed:
quantity -> mean, standard deviation, Monte Carlo error of the mean.
"""

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import betaln, gammaln

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "catalogue"))

import hierarchies
from hierarchies import HIERARCHIES
from linear_cubature import (
    Linear,
    LogPrior,
    Moments,
    exponential,
    gamma,
    given_scales,
    half_cauchy,
    half_normal,
    mixed,
    moments_of,
    one_of,
    require_inside,
    uniform,
    variances,
)
from tables import note


def curves(name: str, y: Any, t: Any, group: Any, groups: int, logs: Any, means: Any, sds: Any) -> Linear:
    """Intercepts and slopes of groups, as deviations from their means."""
    own = np.eye(groups)[group]
    design = np.concatenate([np.ones((len(t), 1)), t[:, None], own, own * t[:, None]], 1)
    size = design.shape[1]
    read = {"mean_a": one_of(0, size), "mean_b": one_of(1, size), "sd": 2, "sd_a": 0, "sd_b": 1}
    read |= {"a[0]": one_of(0, size) + one_of(2, size), "b[5]": one_of(1, size) + one_of(2 + groups + 5, size)}
    spread = variances((None, sds[0], 1), (None, sds[1], 1), (0, 1, groups), (1, 1, groups))
    return Linear(y, design, np.r_[means, np.zeros(2 * groups)], spread, lambda s: s[2], logs, read)


def components(data: Any, sd: float, within: LogPrior, between: LogPrior, ends: Any) -> Linear:
    """Batches of five. ends: of the logarithms of the deviations between and within."""
    design = np.tile(np.concatenate([np.ones((6, 1)), np.eye(6)], 1), (5, 1))
    read = {"mu": one_of(0, 7), "between": 0, "within": 1} | {
        f"a[{i}]": one_of(0, 7) + one_of(1 + i, 7) for i in (0, 4)
    }
    logs = [(np.linspace(*ends[0], 400), between), (np.linspace(*ends[1], 60), within)]
    return Linear(
        data["y"].ravel(), design, np.zeros(7), variances((None, sd, 1), (0, 1, 6)), lambda s: s[1], logs, read
    )


def schools(data: Any, sd: float, prior: LogPrior) -> Linear:
    """Known standard errors."""
    design = np.concatenate([np.ones((8, 1)), np.eye(8)], 1)
    read = {"mu": one_of(0, 9), "tau": 0} | {f"theta[{i}]": one_of(0, 9) + one_of(1 + i, 9) for i in (0, 4)}
    logs = [(np.linspace(-14, 6.9, 2000), prior)]
    spread = variances((None, sd, 1), (0, 1, 8))
    return Linear(data["y"], design, np.zeros(9), spread, lambda s: data["sigma"], logs, read)


def radon(data: Any, sd: float, prior: LogPrior) -> Linear:
    """Houses in counties."""
    own = np.eye(30)[data["county"]]
    rows = len(own)
    design = np.concatenate([np.ones((rows, 1)), (own @ data["uranium"])[:, None], data["floor"][:, None], own], 1)
    size = design.shape[1]
    first = one_of(0, size) + data["uranium"][0] * one_of(1, size) + one_of(3, size)
    read = {
        "gamma[0]": one_of(0, size),
        "gamma[1]": one_of(1, size),
        "slope": one_of(2, size),
        "sd_county": 0,
        "sd": 1,
        "a[0]": first,
    }
    logs = [(np.linspace(-14, 1.5, 200), prior), (np.linspace(-1, 0.6, 60), prior)]
    return Linear(data["y"], design, np.zeros(size), variances((None, sd, 3), (0, 1, 30)), lambda s: s[1], logs, read)


def crossed(data: Any, prior: LogPrior) -> Linear:
    """Raters and items."""
    rater, item = (grid.ravel() for grid in np.indices((10, 12)))
    design = np.concatenate([np.ones((120, 1)), np.eye(10)[rater], np.eye(12)[item]], 1)
    read = {"mu": one_of(0, 23), "sd[0]": 0, "sd[1]": 1, "sd[2]": 2, "a[0,0]": one_of(1, 23), "b[3]": one_of(14, 23)}
    logs = [(np.linspace(*ends, 45), prior) for ends in ((-2.2, 2.6), (-4.5, 1.8), (-0.9, 0.5))]
    spread = variances((None, 10, 1), (0, 1, 10), (1, 1, 12))
    return Linear(data["y"].ravel(), design, np.zeros(23), spread, lambda s: s[2], logs, read)


def nested(data: Any) -> Linear:
    """Classes in schools, as deviations."""
    _, of_class, school = (grid.ravel() for grid in np.indices((5, 4, 8)))
    own = np.eye(32)[of_class * 8 + school]
    design = np.concatenate([np.ones((160, 1)), np.eye(8)[school], own], 1)
    unit = np.eye(41)
    read = {"mu": unit[0], "sd_school": 0, "sd_class": 1, "sd": 2, "a[0]": unit[0] + unit[1]}
    read |= {"b[1,2]": unit[0] + unit[3] + unit[9 + 10]}
    logs = [(np.linspace(*ends), half_normal(1.0)) for ends in ((-13, 2, 70), (-13, 1, 65), (-0.6, 0.6, 30))]
    spread = variances((None, 5, 1), (0, 1, 8), (1, 1, 32))
    return Linear(data["y"].ravel(), design, np.zeros(41), spread, lambda s: s[2], logs, read)


def repeated(data: Any) -> Linear:
    """Persons at times, without the missing cells."""
    person, time = np.nonzero(~np.isnan(data["y"]))
    design = np.concatenate([np.eye(5)[time], np.eye(15)[person]], 1)
    read = {"sd_person": 0, "sd": 1, "m[0]": one_of(0, 20), "m[4]": one_of(4, 20), "a[2,0]": one_of(7, 20)}
    logs = [(np.linspace(-9, 2.5, 150), half_normal(2.0)), (np.linspace(-1.5, 0.8, 60), half_normal(2.0))]
    spread = variances((None, 5, 5), (0, 1, 15))
    return Linear(data["y"][person, time], design, np.zeros(20), spread, lambda s: s[1], logs, read)


def known(data: Any) -> Linear:
    """All variances are known."""
    design = np.tile(np.concatenate([np.ones((8, 1)), np.eye(8)], 1), (4, 1))
    read = {"mu": one_of(0, 9), "a[0]": one_of(0, 9) + one_of(1, 9), "a[7]": one_of(0, 9) + one_of(8, 9)}
    spread = variances((None, 10, 1), (None, 2, 8))
    return Linear(data["y"].ravel(), design, np.zeros(9), spread, lambda s: np.full(32, 1.5), [], read)


def walk(data: Any) -> Linear:
    """A level and the steps of a random walk."""
    sums = np.tril(np.ones((40, 40)))
    design = np.concatenate([np.ones((40, 1)), sums], 1)
    paths = {f"path[{index}]": np.r_[0.0, sums[index]] for index in (0, 20)}
    logs = [(np.linspace(-12, 1.5, 140), half_normal(1.0)), (np.linspace(-12, 1.5, 140), half_normal(1.0))]
    read = {"step": 0, "sd": 1, "level": one_of(0, 41)} | paths
    return Linear(data["y"], design, np.zeros(41), variances((None, 5, 1), (0, 1, 40)), lambda s: s[1], logs, read)


def trend(data: Any) -> Linear:
    """Noise of the level and of the slope."""
    sums = np.tril(np.ones((40, 40)))
    design = np.concatenate([sums, sums @ sums], 1)
    ends = ((-9.5, 1.6, 0.25, 1.0), (-9.5, 1.0, 0.25, 0.5), (-9.5, 1.6, 0.25, 1.0))
    logs = [(np.arange(low, high, step), half_normal(scale)) for low, high, step, scale in ends]
    read = {"sd_level": 0, "sd_slope": 1, "sd": 2, "e[0]": one_of(0, 80), "u[20]": one_of(60, 80)}
    return Linear(data["y"], design, np.zeros(80), variances((0, 1, 40), (1, 1, 40)), lambda s: s[2], logs, read)


def regression(y: Any, design: Any, means: Any, sds: Any, names: Any, sigma: str, log: Any) -> Linear:
    """One scale, that of the noise."""
    size = len(names)
    read = {name: one_of(place, size) for place, name in enumerate(names)}
    spread = variances(*((None, sd, 1) for sd in sds))
    return Linear(y, design, np.asarray(means), spread, lambda s: s[0], [log], read | {sigma: 0})


def chain(data: Any) -> Linear:
    """A start and the steps of a random walk."""
    design = np.tril(np.ones((8, 8)))
    read = {"step": 0} | {f"x_{index}": design[index] for index in (0, 3, 7)}
    logs = [(np.linspace(-14, 1.8, 1000), half_normal(1.0))]
    noise = np.full(8, 0.5)
    return Linear(data["y"], design, np.zeros(8), variances((None, 2, 1), (0, 1, 7)), lambda s: noise, logs, read)


def polynomial(data: Any) -> Moments:
    """The logarithm of the deviation is the site."""
    names = ("a", "b[0]", "b[1]", "b[2]", "b[3]")
    design = data["x"][:, None] ** np.arange(5.0)
    logs = np.linspace(-9, 4, 2000), lambda log: -(log**2) / 2
    model = regression(data["y"], design, [0.5, 0, 0, 0, 0], [1, 10, 10, 10, 10], names, "sigma", logs)
    moments = moments_of(model)
    del moments["sigma"]
    log, _, _ = given_scales(model, [np.exp(logs[0])], np.zeros((5, 0)))
    log = log + logs[1](logs[0])
    weight = np.exp(log - log.max())
    return moments | {"log_sigma": mixed(weight / weight.sum(), logs[0], 0.0)}


def pumps(data: Any) -> Moments:
    """Shape and rate on a grid of their logarithms; the rates of pumps integrated out."""
    log_a, log_b = np.meshgrid(np.linspace(-5, 3, 300), np.linspace(-14, 4, 400), indexing="ij")
    a, b = np.exp(log_a), np.exp(log_b)
    log = log_a - a + 0.1 * log_b - b
    for count, hours in zip(data["failures"], data["hours"], strict=True):
        log += gammaln(a + count) - gammaln(a) + a * log_b - (a + count) * np.log(b + hours)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    require_inside(weight)
    moments = {"alpha": mixed(weight, a, 0.0), "beta": mixed(weight, b, 0.0)}
    for index in (0, 6):
        shape, rate = a + data["failures"][index], b + data["hours"][index]
        moments[f"theta[{index}]"] = mixed(weight, shape / rate, shape / rate**2)
    return moments


def tumours(data: Any) -> Moments:
    """Mean and log concentration on a grid; the probabilities integrated out."""
    mean, log_c = np.meshgrid((np.arange(1000) + 0.5) / 1000, np.linspace(-5, 12, 400), indexing="ij")
    a, b = mean * np.exp(log_c), (1 - mean) * np.exp(log_c)
    log = -((log_c - 2) ** 2) / 2
    for count, total in zip(data["tumours"], data["total"], strict=True):
        log += betaln(a + count, b + total - count) - betaln(a, b)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    require_inside(weight)
    moments = {"mean": mixed(weight, mean, 0.0), "concentration": mixed(weight, np.exp(log_c), 0.0)}
    for index in (0, 29):
        whole = a + b + data["total"][index]
        p = (a + data["tumours"][index]) / whole
        moments[f"p[{index}]"] = mixed(weight, p, p * (1 - p) / (whole + 1))
    return moments


def change_point(data: Any) -> Moments:
    """Between two times the density of the change does not depend on it."""
    t, y = data["t"], data["y"]
    ends = np.r_[0.0, t[(t > 0) & (t < 1)], 1.0]
    logs, means, variances = [], [], []
    for low, high in itertools.pairwise(ends):
        early = t < (low + high) / 2
        parts = [(part.sum() / (len(part) + 0.04), 1 / (len(part) + 0.04), part) for part in (y[early], y[~early])]
        logs.append(
            np.log(high - low) + sum(np.log(v) / 2 - (part**2).sum() / 2 + m**2 / v / 2 for m, v, part in parts)
        )
        means.append([(low + high) / 2, *(m for m, _, _ in parts)])
        variances.append([(high - low) ** 2 / 12, *(v for _, v, _ in parts)])
    weight = np.exp(np.array(logs) - max(logs))
    weight /= weight.sum()
    columns = zip(("s", "before", "after"), np.transpose(means), np.transpose(variances), strict=True)
    return {name: mixed(weight, mean, variance) for name, mean, variance in columns}


def dose(data: Any) -> Moments:
    """Intercept and slope on a grid; the noise of rows by Gauss-Hermite quadrature."""
    a, b = np.meshgrid(np.linspace(2.0, 3.8, 201), np.linspace(-0.0015, 0.0035, 201), indexing="ij")
    at, weights = np.polynomial.hermite_e.hermegauss(31)
    log, noise = -(a**2 + b**2) / 2e6, {}
    for row, (x, count) in enumerate(zip(data["x"], data["y"], strict=True)):
        eta = a[..., None] + b[..., None] * x + 0.1 * at
        each = np.exp(count * eta - np.exp(eta) - gammaln(count + 1)) * weights
        log += np.log(each.sum(-1))
        if row == 0:
            noise = [(each * (0.1 * at) ** power).sum(-1) / each.sum(-1) for power in (1, 2)]
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    require_inside(weight)
    first, second = noise
    moments = {"intercept": mixed(weight, a, 0.0), "slope": mixed(weight, b, 0.0)}
    return moments | {"noise[0]": mixed(weight, first, second - first**2)}


def by_cubature(name: str) -> Moments | None:
    """The moments of a model, where there is a formula for it."""
    data = HIERARCHIES[name].data
    if name.startswith("growth_curves"):
        time, group = (grid.ravel() for grid in np.indices((5, 24)))
        ends = ((1.7, 3.7, 50), (-5.5, 0.8, 90), (1.4, 2.5, 30))
        rates = data["rates"][[1, 2, 0]]
        logs = [(np.linspace(*end), gamma(data["shape"], rate)) for end, rate in zip(ends, rates, strict=True)]
        return moments_of(curves(name, data["y"].ravel(), data["t"][time], group, 24, logs, [0, 0], [100, 100]))
    if name == "slopes":
        ends = ((-5, 5.2, 60), (0.0, 3.2, 40), (2.8, 3.6, 25))
        logs = [(np.linspace(*end), half_normal(sd)) for end, sd in zip(ends, (50, 10, 50), strict=True)]
        return moments_of(curves(name, data["y"], data["day"], data["person"], 18, logs, [250, 0], [50, 20]))
    makers: dict[str, Callable[[], Linear]] = {
        "components_vague": lambda: components(data, 1000, gamma(0.001, 0.001), gamma(0.001, 0.001), ((-6, 9), (3, 5))),
        "components_near_zero": lambda: components(
            data, 1000, gamma(0.001, 0.001), gamma(0.001, 0.001), ((-6, 5), (0, 1.6))
        ),
        "components": lambda: components(data, 10, half_normal(2), half_normal(2), ((-14, 3), (-0.5, 1.6))),
        "schools": lambda: schools(data, 5, half_cauchy(5)),
        "schools_vague": lambda: schools(data, 1000, uniform(1000)),
        "radon": lambda: radon(data, 2, exponential(1)),
        "radon_vague": lambda: radon(data, 100, uniform(100)),
        "crossed": lambda: crossed(data, gamma(2, 1)),
        "crossed_vague": lambda: crossed(data, gamma(0.001, 0.001)),
        "nested": lambda: nested(data),
        "repeated_measures": lambda: repeated(data),
        "known_variances": lambda: known(data),
        "random_walk": lambda: walk(data),
        "trend": lambda: trend(data),
        "chain_of_sites": lambda: chain(data),
        "legs": lambda: regression(
            data["y"],
            np.stack([np.ones(100), data["left"], data["right"]], 1),
            [10, 2, 2],
            [100, 10, 10],
            ("a", "b_left", "b_right"),
            "sigma",
            (np.linspace(-2, 2, 400), exponential(1)),
        ),
    }
    if name in makers:
        return moments_of(makers[name]())
    direct = {"polynomial": polynomial, "pumps": pumps, "tumours": tumours, "change_point": change_point, "dose": dose}
    return direct[name](data) if name in direct else None


STANDARDISED = {
    "meta_analysis": ["delta"],
    "meta_analysis_vague": ["delta"],
    "counts": ["e"],
    "seeds": ["b"],
    "tanks": ["a"],
    "own_variances": ["a"],
    "t_errors": ["a"],
    "levers": ["a", "g"],
}
"""Sites that the reference runs draw as multiples of their standard deviation."""


def standard_counts_in_space(expected: Any) -> None:
    """The random walk as sums of standard steps."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    step = numpyro.sample("step", dist.HalfNormal(1.0))
    level = numpyro.sample("level", dist.Normal(0.0, 2.0))
    moves = numpyro.sample("moves", dist.Normal(0.0, 1.0).expand([len(expected)]).to_event(1))
    path = numpyro.deterministic("path", step * jnp.cumsum(moves))
    numpyro.sample("y", dist.Poisson(expected * jnp.exp(level + path)).to_event(1))


STANDARD_PROGRAMS = {"counts_in_space": standard_counts_in_space}
"""Programs with the same posterior, for which that is not enough."""


def by_nuts(name: str, draws: int) -> dict[str, tuple[float, float, float]]:
    """Means, deviations and Monte Carlo errors by NumPyro's NUTS."""
    import jax
    import numpyro
    from arviz_stats import ess, rhat
    from numpyro.handlers import condition, reparam
    from numpyro.infer import MCMC, NUTS
    from numpyro.infer.reparam import LocScaleReparam

    numpyro.enable_x64()
    entry = HIERARCHIES[name]
    program = STANDARD_PROGRAMS.get(name, entry.program)
    program = condition(program, {n: v for n, v in entry.data.items() if n not in _arguments(entry.program)})
    program = reparam(program, {site: LocScaleReparam(0) for site in STANDARDISED.get(name, [])})
    kernel = NUTS(program, target_accept_prob=0.95)
    mcmc = MCMC(kernel, num_warmup=2000, num_samples=draws, num_chains=4, chain_method="sequential", progress_bar=False)
    mcmc.run(jax.random.key(1), **{n: v for n, v in entry.data.items() if n in _arguments(entry.program)})
    samples = mcmc.get_samples(group_by_chain=True)
    result, worst = {}, 0.0
    for quantity in entry.quantities:
        values = hierarchies.values_of(samples, quantity)
        worst = max(worst, float(rhat(values)))
        result[quantity] = values.mean(), values.std(), values.std() / np.sqrt(float(ess(values, method="mean")))
    note(f"{name}: R-hat up to {worst:.4f}, {int(mcmc.get_extra_fields()['diverging'].sum())} divergences")
    return result


def _arguments(program: Callable[..., None]) -> Sequence[str]:
    return program.__code__.co_varnames[: program.__code__.co_argcount]


def main() -> None:
    for name in sys.argv[1].split(",") if len(sys.argv) > 1 else HIERARCHIES:
        try:
            exact = by_cubature(name)
        except AssertionError as error:
            note(name, error)
            continue
        moments = by_nuts(name, 10_000) if exact is None else {each: (*both, 0.0) for each, both in exact.items()}
        print(f"    {name!r}: {{", flush=True)
        for quantity in HIERARCHIES[name].quantities:
            print(f"        {quantity!r}: ({', '.join(f'{value:.6g}' for value in moments[quantity])}),", flush=True)
        print("    },", flush=True)


if __name__ == "__main__":
    main()
