"""Programs that nobody wrote: a few sites with random links, smooth or broken, on random scales; and what is right.

A program is a record, so that the same record is the same program. Every conditional that elimination finds in one is
held against the log joint that NumPyro computes: over a grid for a continuous site, over all values for a discrete one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from hypothesis import strategies as st

from bayeslab.elimination.conditional import conditional
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import Bound, precision_scope
from bayeslab.programs.tracing.compilation import UNOPTIMISED_OPTIONS
from bayeslab.verification.findings import find_conditionals

SMOOTH: dict[str, Callable[[Any, float], Any]] = {
    "same": lambda x, at: x,
    "linear": lambda x, at: 2.0 * x - at,
    "square": lambda x, at: x * x / (1 + abs(at)),
    "tanh": lambda x, at: jnp.tanh(x - at),
    "exp": lambda x, at: jnp.exp(-x / (1 + abs(at))),
    "root": lambda x, at: jnp.sqrt(1 + (x - at) ** 2),
}
BROKEN: dict[str, Callable[[Any, float], Any]] = {
    "where": lambda x, at: jnp.where(x > at, x, 2 * at - x),
    "step": lambda x, at: 1.5 * (x > at),
    "maximum": lambda x, at: jnp.maximum(x, at),
    "clip": lambda x, at: jnp.clip(x, at - 1, at + 1),
    "abs": lambda x, at: jnp.abs(x - at),
    "floor": lambda x, at: jnp.floor(x / (1 + abs(at))),
    "remainder": lambda x, at: x % (1 + abs(at)),
    "distance": lambda x, at: jnp.sqrt((x - at) ** 2),
    "sigmoid": lambda x, at: jax.nn.sigmoid(50 * (x - at)),
    "sort": lambda x, at: jnp.sort(jnp.stack([x, x * 0 + at]))[0],
}
LINKS = SMOOTH | BROKEN
PRIORS: dict[str, Callable[[Any, float], dist.Distribution]] = {
    "Normal": lambda mean, scale: dist.Normal(mean, scale),
    "Gamma": lambda mean, scale: dist.Gamma(2.0, 2.0 / (scale * jnp.exp(jnp.tanh(mean / scale)))),
    "vague": lambda mean, scale: dist.Gamma(0.1, 0.1 / scale),
    "InverseGamma": lambda mean, scale: dist.InverseGamma(3.0, scale * jnp.exp(jnp.tanh(mean / scale))),
    "Exponential": lambda mean, scale: dist.Exponential(1 / scale),
    "Beta": lambda mean, scale: dist.Beta(1.5, 2.0),
    "HalfNormal": lambda mean, scale: dist.HalfNormal(scale),
    "Bernoulli": lambda mean, scale: dist.Bernoulli(logits=jnp.tanh(mean / scale)),
    "Categorical": lambda mean, scale: dist.Categorical(jnp.array([0.2, 0.5, 0.3])),
}
POSITIVE = ("Gamma", "vague", "InverseGamma", "Exponential", "HalfNormal")
DATA: dict[str, Callable[[Any, Any, float], dist.Distribution]] = {
    "mean": lambda x, size, scale: dist.Normal(x, scale),
    "precision": lambda x, size, scale: dist.Normal(0.0, 1 / jnp.sqrt(size)),
    "variance": lambda x, size, scale: dist.Normal(0.0, jnp.sqrt(size)),
    "count": lambda x, size, scale: dist.Poisson(size),
    "waiting": lambda x, size, scale: dist.Exponential(size),
    "flag": lambda x, size, scale: dist.Bernoulli(logits=x / scale),
}


class Latent(NamedTuple):
    """scale: of its prior, a power of ten. parent: place of another latent site before it; its mean, through a link."""

    prior: str
    scale: float
    parent: int | None
    link: str
    at: float


class Observed(NamedTuple):
    """The places of the latent sites it depends on, each through a link at so many scales of the site."""

    data: str
    parents: tuple[tuple[int, str, float], ...]
    rows: int


class Program(NamedTuple):
    latent: tuple[Latent, ...]
    observed: tuple[Observed, ...]
    seed: int

    @property
    def __name__(self) -> str:
        return "random"

    def __call__(self) -> None:
        values: list[Any] = []
        for place, site in enumerate(self.latent):
            mean = 0.0 if site.parent is None else self._through(values, site.parent, site.link, site.at) * site.scale
            values.append(numpyro.sample(f"x{place}", PRIORS[site.prior](mean, site.scale)))
        for place, site in enumerate(self.observed):
            total = sum(self._through(values, *parent) for parent in site.parents)
            with numpyro.plate(f"row{place}", site.rows):
                numpyro.sample(f"y{place}", DATA[site.data](total, jnp.abs(total) + 1e-3 * self._broken(site), 1.0))

    def _broken(self, site: Observed) -> float:
        """Sizes of what may be negative are kept away from zero."""
        plain = all(self.latent[place].prior in POSITIVE and link == "same" for place, link, _ in site.parents)
        return 0.0 if plain else 1.0

    def _through(self, values: list[Any], place: int, link: str, at: float) -> Any:
        scale = self.latent[place].scale
        return LINKS[link](values[place] / scale, at)


@st.composite
def programs(draw: Any) -> Program:
    number = draw(st.integers(1, 4))
    latent: list[Latent] = []
    for place in range(number):
        parent = draw(st.none() | st.integers(0, place - 1)) if place else None
        scale = 10.0 ** draw(st.sampled_from([0, 0, 0, -6, -3, -1, 1, 3, 6]))
        prior = draw(st.sampled_from([*PRIORS]))
        scale = 1.0 if prior in ("Beta", "Bernoulli", "Categorical") else scale
        latent.append(Latent(prior, scale, parent, _link(draw), _at(draw)))
    observed = []
    for _ in range(draw(st.integers(1, 2))):
        places = draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=2, unique=True))
        parents = tuple((place, _link(draw), _at(draw)) for place in places)
        observed.append(Observed(draw(st.sampled_from([*DATA])), parents, draw(st.integers(1, 6))))
    return Program(tuple(latent), tuple(observed), draw(st.integers(0, 10**6)))


def _link(draw: Any) -> str:
    """Half of them leave the site as it is: most others have no conditional in closed form."""
    return draw(st.sampled_from(["same"] * 8 + ["linear"] * 4 + [*SMOOTH] + [*BROKEN]))


def _at(draw: Any) -> float:
    return draw(st.sampled_from([0.0, 0.5, -0.5, 2.0, -3.0, 5.0]))


class Closed(NamedTuple):
    """What was found for a site of a program, and how far it is from right, in total variation."""

    site: str
    family: str
    distance: float


def checked(program: Program, places: int = 3) -> list[Closed]:
    """Every conditional in closed form, at a few points of the other sites, with data that the program makes."""
    with precision_scope():
        random = np.random.default_rng(program.seed)
        draw = jax.jit(_draw, compiler_options=UNOPTIMISED_OPTIONS, static_argnums=0)
        keys = [jax.random.PRNGKey(int(each)) for each in random.integers(2**31, size=1 + places)]
        first = draw(program, keys[0])
        bound = bind(program, {name: np.asarray(value) for name, value in first.items() if name.startswith("y")})
        closed = [one.rule for one in find_conditionals(bound) if one.rule is not None]
        worst = dict.fromkeys(closed, 0.0)
        for rule in closed:
            distance = jax.jit(partial(_distance, rule), compiler_options=UNOPTIMISED_OPTIONS)
            for key in keys[1:]:
                values = {name: value for name, value in draw(program, key).items() if name in bound.latent}
                worst[rule] = max(worst[rule], float(distance(bound, values)))
        return [Closed(rule.site, rule.family.name, worst[rule]) for rule in closed]


def _draw(program: Program, key: Any) -> dict[str, Any]:
    """Values of all sites from the prior."""
    sites = numpyro.handlers.trace(numpyro.handlers.seed(program, key)).get_trace()
    return {name: jnp.asarray(site["value"]) for name, site in sites.items() if site["type"] == "sample"}


def _distance(rule: Any, bound: Bound, values: dict[str, Any]) -> Any:
    """Between the conditional and the normalised joint density over the site, in total variation."""
    q = conditional(rule, terms(bound).terms, bound, values).distribution
    prior = terms(bound).priors[rule.site].distribution(bound, values)
    grid = _grid(q, prior)

    def densities(x: Any) -> tuple[Any, Any]:
        given = values | {rule.site: x.astype(bound.sites[rule.site].dtype)}
        return bound.log_joint(given), q.log_prob(given[rule.site])

    joint, log_q = jax.vmap(densities)(grid)
    width = jnp.ones(len(grid)) if prior.support.is_discrete else jnp.gradient(grid)
    usable = jnp.isfinite(log_q) & ~jnp.isnan(joint)
    right, found = (_normalised(jnp.where(usable, each, -jnp.inf), width) for each in (joint, log_q))
    return 0.5 * jnp.abs(right - found).sum()


def _normalised(log: Any, width: Any) -> Any:
    weights = jnp.exp(log - jnp.max(log, initial=-1e300)) * width
    return weights / jnp.where(weights.sum() > 0, weights.sum(), 1.0)


def _grid(q: dist.Distribution, prior: dist.Distribution) -> Any:
    """Values on the scale of the conditional and of the prior, many times as wide as both, in order."""
    if prior.support.is_discrete:
        return prior.enumerate_support().ravel()
    steps, found = jnp.linspace(-1, 1, 2001), []
    for each in (q, prior):
        mean, sd = jnp.asarray(each.mean), jnp.sqrt(each.variance)
        mean, sd = (jnp.where(jnp.isfinite(one) & (one != 0), one, 1.0) for one in (mean, sd))
        if prior.support is dist.constraints.real:
            found.append(mean + 12 * sd * steps)
        elif prior.support is dist.constraints.unit_interval:
            found.append(jax.nn.sigmoid(25 * steps))
        else:
            found += [jnp.exp(jnp.log(mean) + 14 * steps), mean * (1 + steps) + 12 * sd * (1 + steps) + 1e-300]
    return jnp.sort(jnp.concatenate(found))
