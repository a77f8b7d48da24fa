"""Hierarchical models with data of our own, and what is right about each: means and standard deviations of quantities.

References are by cubature or from long runs of NumPyro's NUTS on non-centred programs;
`benchmarks/hierarchy_references.py` makes them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import hierarchy_programs as p
from hierarchy_references import REFERENCES

__all__ = ["HIERARCHIES", "Hierarchy", "Right", "values_of"]


class Right(NamedTuple):
    """Posterior mean and standard deviation of a quantity, and the Monte Carlo error of the mean, 0 of cubature."""

    mean: float
    sd: float
    error: float


class Hierarchy(NamedTuple):
    """A program and its data. quantities: names of scalars such as "mu" or "a[3]", whose reference is known."""

    name: str
    program: Callable[..., None]
    data: dict[str, Any]
    quantities: tuple[str, ...]

    @property
    def right(self) -> dict[str, Right]:
        """The reference of every quantity."""
        return {quantity: Right(*REFERENCES[self.name][quantity]) for quantity in self.quantities}


def values_of(draws: Any, quantity: str) -> np.ndarray:
    """The draws of a quantity, (chain, draw). draws: a mapping of arrays (chain, draw, *site)."""
    name, _, index = quantity.partition("[")
    values = np.asarray(draws[name])
    return values[(..., *map(int, index[:-1].split(",")))] if index else values


def _growth() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    t = np.array([-14.0, -7.0, 0.0, 7.0, 14.0])
    a, b = 240 + 14 * rng.normal(size=24), 6 + 0.5 * rng.normal(size=24)
    return {"t": t, "groups": 24, "y": a + b * t[:, None] + 6 * rng.normal(size=(5, 24))}


def _components(seed: int, mean: float, between: float, within: float) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"batches": 6, "y": mean + between * rng.normal(size=6) + within * rng.normal(size=(5, 6))}


def _schools() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    return {"sigma": sigma, "y": np.round(8 + 5 * rng.normal(size=8) + sigma * rng.normal(size=8))}


def _radon() -> dict[str, Any]:
    rng = np.random.default_rng(11)
    county = np.repeat(np.arange(30), rng.integers(1, 9, 30))
    uranium, floor = rng.normal(0, 0.4, 30), rng.binomial(1, 0.2, len(county)).astype(float)
    a = 1.5 + 0.7 * uranium + 0.2 * rng.normal(size=30)
    y = a[county] - 0.65 * floor + 0.75 * rng.normal(size=len(county))
    return {"county": county, "floor": floor, "uranium": uranium, "y": y}


def _crossed() -> dict[str, Any]:
    rng = np.random.default_rng(12)
    scores = rng.normal(size=(10, 1)) + 0.5 * rng.normal(size=12) + 0.8 * rng.normal(size=(10, 12))
    return {"raters": 10, "items": 12, "y": 3 + scores}


def _nested() -> dict[str, Any]:
    rng = np.random.default_rng(13)
    a = 1 + 0.6 * rng.normal(size=8)
    b = a + 0.4 * rng.normal(size=(4, 8))
    return {"schools": 8, "classes": 4, "pupils": 5, "y": b + rng.normal(size=(5, 4, 8))}


def _slopes() -> dict[str, Any]:
    rng = np.random.default_rng(14)
    person, day = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    a, b = 250 + 25 * rng.normal(size=18), 10 + 6 * rng.normal(size=18)
    return {"person": person, "day": day, "persons": 18, "y": a[person] + b[person] * day + 25 * rng.normal(size=180)}


def _cafes() -> dict[str, Any]:
    rng = np.random.default_rng(15)
    cafe, afternoon = np.repeat(np.arange(20), 10), np.tile(np.arange(10) % 2.0, 20)
    pair = rng.multivariate_normal([3.5, -1.0], [[1.0, -0.35], [-0.35, 0.25]], 20)
    y = pair[cafe, 0] + pair[cafe, 1] * afternoon + 0.5 * rng.normal(size=200)
    return {"cafe": cafe, "afternoon": afternoon, "cafes": 20, "y": y}


def _trials() -> dict[str, Any]:
    rng = np.random.default_rng(16)
    control, treated = rng.integers(40, 800, 22), rng.integers(40, 800, 22)
    mu, delta = -2.2 + 0.4 * rng.normal(size=22), -0.25 + 0.15 * rng.normal(size=22)
    deaths, more = rng.binomial(control, 1 / (1 + np.exp(-mu))), rng.binomial(treated, 1 / (1 + np.exp(-mu - delta)))
    return {"control": control, "treated": treated, "deaths": deaths, "deaths_treated": more}


def _counts() -> dict[str, Any]:
    rng = np.random.default_rng(17)
    x = np.linspace(-1.5, 1.5, 40)
    return {"x": x, "y": rng.poisson(np.exp(1.2 + 0.5 * x + 0.5 * rng.normal(size=40)))}


def _seeds() -> dict[str, Any]:
    rng = np.random.default_rng(18)
    total, seed, extract = rng.integers(4, 80, 21), np.repeat([0.0, 1.0], [11, 10]), np.arange(21) % 2.0
    logits = -0.5 + 0.1 * seed + 1.3 * extract - 0.8 * seed * extract + 0.3 * rng.normal(size=21)
    return {
        "total": total,
        "seed": seed,
        "extract": extract,
        "germinated": rng.binomial(total, 1 / (1 + np.exp(-logits))),
    }


def _repeated() -> dict[str, Any]:
    rng = np.random.default_rng(19)
    y = np.array([2.0, 2.5, 2.8, 3.0, 3.1]) + rng.normal(size=(15, 1)) + 0.6 * rng.normal(size=(15, 5))
    y[rng.random((15, 5)) < 0.25] = np.nan
    return {"persons": 15, "times": 5, "y": y}


def _tanks() -> dict[str, Any]:
    rng = np.random.default_rng(20)
    total = rng.integers(4, 12, 100)
    return {"total": total, "survived": rng.binomial(total, 1 / (1 + np.exp(-0.8 - 1.2 * rng.normal(size=100))))}


def _groups(seed: int, within: np.ndarray | float, repeats: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"groups": 8, "y": 4 + 2 * rng.normal(size=8) + within * rng.normal(size=(repeats, 8))}


def _heavy_tails() -> dict[str, Any]:
    rng = np.random.default_rng(23)
    group, x = np.repeat(np.arange(10), 8), rng.normal(size=80)
    y = 1 + 0.8 * rng.normal(size=10)[group] + 0.5 * x + 0.5 * rng.standard_t(4, 80)
    return {"group": group, "x": x, "groups": 10, "y": y}


def _change() -> dict[str, Any]:
    rng = np.random.default_rng(24)
    t = np.linspace(0, 1, 30)
    return {"t": t, "y": np.where(t < 0.62, 0.0, 1.7) + rng.normal(size=30)}


def _answers() -> dict[str, Any]:
    rng = np.random.default_rng(25)
    ability, difficulty, discrimination = (
        rng.normal(size=(200, 1)),
        rng.normal(size=8),
        np.exp(0.3 * rng.normal(size=8)),
    )
    p_right = 1 / (1 + np.exp(-discrimination * (ability - difficulty)))
    return {"persons": 200, "items": 8, "y": rng.binomial(1, p_right)}


def _pumps() -> dict[str, Any]:
    rng = np.random.default_rng(26)
    hours = np.array([94.0, 16.0, 63.0, 126.0, 5.0, 31.0, 1.0, 1.0, 2.0, 10.0])
    return {"hours": hours, "failures": rng.poisson(rng.gamma(0.8, 1.0, 10) * hours)}


def _tumours() -> dict[str, Any]:
    rng = np.random.default_rng(27)
    total = rng.integers(10, 40, 30)
    return {"total": total, "tumours": rng.binomial(total, rng.beta(2.0, 11.0, 30))}


def _walk() -> dict[str, Any]:
    rng = np.random.default_rng(28)
    return {"sites": 40, "y": 1 + np.cumsum(0.4 * rng.normal(size=40)) + 0.7 * rng.normal(size=40)}


def _risks() -> dict[str, Any]:
    rng = np.random.default_rng(29)
    expected = rng.gamma(3.0, 2.0, 40)
    return {"expected": expected, "y": rng.poisson(expected * np.exp(np.cumsum(0.2 * rng.normal(size=40))))}


def _brains() -> dict[str, Any]:
    rng = np.random.default_rng(30)
    x = np.array([-0.8, -0.6, -0.55, 0.05, 0.3, 0.9, 1.6])
    return {"x": x, "y": 0.5 + 0.2 * x + 0.1 * rng.normal(size=7)}


def _legs() -> dict[str, Any]:
    rng = np.random.default_rng(31)
    height = rng.normal(10, 2, 100)
    length = height * rng.uniform(0.4, 0.5, 100)
    left, right = length + rng.normal(0, 0.02, 100), length + rng.normal(0, 0.02, 100)
    return {"left": left, "right": right, "y": height}


def _dose() -> dict[str, Any]:
    x = np.repeat([0.0, 20.0, 60.0, 200.0, 500.0, 900.0], 2)
    rng = np.random.default_rng(32)
    return {"x": x, "y": rng.poisson(np.exp(2.9 + 0.001 * x + 0.1 * rng.normal(size=12)))}


def _trend() -> dict[str, Any]:
    rng = np.random.default_rng(33)
    e, u = 0.4 * rng.normal(size=40), 0.15 * rng.normal(size=40)
    return {"steps": 40, "y": np.cumsum(e + np.cumsum(u)) + 0.6 * rng.normal(size=40)}


def _levers() -> dict[str, Any]:
    rng = np.random.default_rng(34)
    actor, treatment = np.repeat(np.arange(7), 72), np.tile(np.arange(4), 126)
    block = np.tile(np.repeat(np.arange(6), 12), 7)
    a, g = 0.5 + 1.5 * rng.normal(size=7), 0.2 * rng.normal(size=6)
    logits = a[actor] + g[block] + np.array([-0.1, 0.4, -0.4, 0.3])[treatment]
    pulls = rng.binomial(1, 1 / (1 + np.exp(-logits)))
    return {"actor": actor, "block": block, "treatment": treatment, "actors": 7, "blocks": 6, "y": pulls}


def _chain() -> dict[str, Any]:
    rng = np.random.default_rng(35)
    return {"y": np.cumsum(0.7 * rng.normal(size=8)) + 0.5 * rng.normal(size=8)}


CURVES, SDS = ("mean_a", "mean_b", "sd", "sd_a", "sd_b", "a[0]", "b[5]"), ("mu", "between", "within", "a[0]", "a[4]")
VAGUE = {"shape": 0.001, "rate": 0.001}

_ALL = [
    Hierarchy("growth_curves", p.growth_curves, _growth() | {"shape": 0.001, "rates": np.full(3, 0.001)}, CURVES),
    Hierarchy(
        "growth_curves_sensible",
        p.growth_curves,
        _growth() | {"shape": 2.0, "rates": np.array([60.0, 300.0, 0.4])},
        CURVES,
    ),
    Hierarchy("components_vague", p.components_by_precision, _components(5, 1500, 40, 50) | VAGUE, SDS),
    Hierarchy("components_near_zero", p.components_by_precision, _components(9, 5, 0.3, 2) | VAGUE, SDS),
    Hierarchy("components", p.components_by_deviation, _components(7, 3, 1, 1.5), SDS),
    Hierarchy("schools", p.schools_half_cauchy, _schools(), ("mu", "tau", "theta[0]", "theta[4]")),
    Hierarchy("schools_vague", p.schools_uniform, _schools(), ("mu", "tau", "theta[0]", "theta[4]")),
    Hierarchy("radon", p.radon, _radon(), ("gamma[0]", "gamma[1]", "slope", "sd_county", "sd", "a[0]")),
    Hierarchy("radon_vague", p.radon_vague, _radon(), ("gamma[0]", "gamma[1]", "slope", "sd_county", "sd", "a[0]")),
    Hierarchy(
        "crossed",
        p.crossed,
        _crossed() | {"shape": 2.0, "rate": 1.0},
        ("mu", "sd[0]", "sd[1]", "sd[2]", "a[0,0]", "b[3]"),
    ),
    Hierarchy("crossed_vague", p.crossed, _crossed() | VAGUE, ("mu", "sd[0]", "sd[1]", "sd[2]", "a[0,0]", "b[3]")),
    Hierarchy("nested", p.nested, _nested(), ("mu", "sd_school", "sd_class", "sd", "a[0]", "b[1,2]")),
    Hierarchy("slopes", p.slopes, _slopes(), CURVES),
    Hierarchy(
        "correlated_slopes",
        p.correlated_slopes,
        _cafes(),
        ("mean[0]", "mean[1]", "scale[0]", "scale[1]", "correlation", "sd", "pair[0,1]"),
    ),
    Hierarchy(
        "meta_analysis", p.meta_analysis, _trials() | {"shape": 2.0, "rate": 0.1}, ("d", "spread", "delta[0]", "mu[3]")
    ),
    Hierarchy("meta_analysis_vague", p.meta_analysis, _trials() | VAGUE, ("d", "spread", "delta[0]", "mu[3]")),
    Hierarchy("counts", p.counts, _counts(), ("b[0]", "b[1]", "spread", "e[0]", "e[39]")),
    Hierarchy("seeds", p.seeds, _seeds(), ("alpha[0]", "alpha[2]", "alpha[3]", "spread", "b[0]")),
    Hierarchy("repeated_measures", p.repeated_measures, _repeated(), ("sd_person", "sd", "m[0]", "m[4]", "a[2,0]")),
    Hierarchy("tanks", p.tanks, _tanks(), ("mean", "spread", "a[0]", "a[50]")),
    Hierarchy("known_variances", p.known_variances, _groups(21, 1.5, 4), ("mu", "a[0]", "a[7]")),
    Hierarchy(
        "own_variances",
        p.own_variances,
        _groups(22, np.array([0.5, 0.7, 1, 1, 1, 1.2, 1.5, 2]), 6),
        ("mu", "between", "a[0]", "a[7]", "tau[0]", "tau[7]"),
    ),
    Hierarchy("t_errors", p.t_errors, _heavy_tails(), ("mu", "slope", "between", "sd", "a[0]")),
    Hierarchy("change_point", p.change_point, _change(), ("s", "before", "after")),
    Hierarchy(
        "item_response", p.item_response, _answers(), ("spread", "difficulty[0]", "discrimination[0]", "ability[0,0]")
    ),
    Hierarchy("pumps", p.pumps, _pumps(), ("alpha", "beta", "theta[0]", "theta[6]")),
    Hierarchy("tumours", p.tumours, _tumours(), ("mean", "concentration", "p[0]", "p[29]")),
    Hierarchy("random_walk", p.random_walk, _walk(), ("step", "sd", "level", "path[0]", "path[20]")),
    Hierarchy("counts_in_space", p.counts_in_space, _risks(), ("step", "level", "path[0]", "path[20]")),
    Hierarchy("polynomial", p.polynomial, _brains(), ("a", "b[0]", "b[1]", "b[2]", "b[3]", "log_sigma")),
    Hierarchy("legs", p.legs, _legs(), ("a", "b_left", "b_right", "sigma")),
    Hierarchy("dose", p.dose, _dose(), ("intercept", "slope", "noise[0]")),
    Hierarchy("trend", p.trend, _trend(), ("sd_level", "sd_slope", "sd", "e[0]", "u[20]")),
    Hierarchy("levers", p.levers, _levers(), ("b[0]", "mean", "sd_actor", "sd_block", "a[0]", "g[0]")),
    Hierarchy("chain_of_sites", p.chain_of_sites, _chain(), ("step", "x_0", "x_3", "x_7")),
]
HIERARCHIES = {entry.name: entry for entry in _ALL}
