"""The law that guards every elimination, and what is tried before it is asked.

For two values x, y of a site, [g(x) - g(y)] - [log q(x) - log q(y)] = 0, where g is what the log joint says of the
site and q the conditional that was found. It is checked in float64, relative to the sum of the absolute terms, at
points drawn from q at a third of, once and ten times its spread, with the data of the fit and with other data, for
two draws of the other sites. What passes is checked again, less strictly, where discrete sites have other choices and
others have values as their priors have them. A family that fails is refused, never used.

A Student-t with 200 degrees of freedom in place of a Normal leaves 6e-4, a true Normal with a million rows 1e-11.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import (
    Beta,
    Dirichlet,
    Distribution,
    Gamma,
    InverseGamma,
    InverseWishart,
    Normal,
    Wishart,
    biject_to,
)

from bayeslab.compilation import evaluated
from bayeslab.distributions import JointNormal, LinearGaussianChain, MarkovChain
from bayeslab.elimination import ENUMERATED, NORMAL, Rule, candidates, conditional, typical
from bayeslab.points import Point, choices, noise, points, usual
from bayeslab.program import Bound, Values
from bayeslab.terms import Prior, Term, terms, total

TOLERANCE = 1e-8
LOOSE = 1e-5
"""Where values may be extreme. What is no number there says nothing."""
SPREADS = (1 / 3, 1.0, 10.0)
MANY_VALUES, MANY_ELEMENTS = 1024, 10**6
"""Of a discrete site that are compared, at most."""
BRIEF, LONG = 5, 10**5
"""Values of a site at which a law that holds is checked again, where all of them have more than so many elements."""


class Found(NamedTuple):
    """What was found for a site: a rule with the residual of the law, or None and the reason.

    children: the terms that the site reaches, its own prior apart.
    """

    site: str
    children: tuple[str, ...]
    rule: Rule | None
    residual: float
    reason: str


def rules_of(found: Iterable[Found]) -> tuple[Rule, ...]:
    """The rules of the sites that have one."""
    return tuple(one.rule for one in found if one.rule is not None)


def find(bound: Bound, site: str) -> Found:
    """The rule that eliminates one site. See `find_all`."""
    return find_all(bound, [site])[0]


def find_all(bound: Bound, sites: Sequence[str] | None = None) -> list[Found]:
    """For each site, the rule that eliminates it given all others, proven, or the reason why there is none.

    What is compiled for one site serves all others whose densities read the same.
    """
    with jax.enable_x64(True):
        wide = widened(bound)
        known = terms(wide)
        names = list(known.priors if sites is None else sites)
        return prove(wide, known.terms, names)


def widened(bound: Bound) -> Bound:
    """The same in double precision, in which the law is checked."""

    def widen(leaf: Array) -> Array:
        return jnp.asarray(leaf, dtype=jnp.float64) if leaf.dtype.kind == "f" else jnp.asarray(leaf)

    return jax.tree.map(widen, bound)


def prove(bound: Bound, of: tuple[Term, ...], names: Sequence[str]) -> list[Found]:
    """`find_all` under the sum of some terms, from which sites may have been integrated out already."""
    priors = terms(bound).priors
    families = {name: candidates(priors[name]) for name in names}
    normal = tuple(name for name in names if NORMAL in families[name])
    at, chosen = points(bound), choices(bound)
    meetings = [_coupled(of, name) for name in normal]
    met = zip(*(evaluated(meetings, point) for point in (at[0], *chosen)), strict=True)
    coupled = {name: np.any(each, axis=0) for name, each in zip(normal, met, strict=True)}
    rules, children = [], {}
    for name in names:
        axes = tuple(int(i) for i in np.flatnonzero(coupled[name])) if name in normal else ()
        children[name] = tuple(term.name for term in of if name in term.depends and term.name != name)
        rules += [Rule(name, family, axes, children[name]) for family in families[name]]
    laws = [law(of, rule) for rule in rules]
    residuals = np.max([evaluated(laws, (*point, False)) for point in at], axis=0)
    passed = [place for place in range(len(rules)) if residuals[place] <= TOLERANCE]
    for point in (*chosen, *usual(bound)):
        for place, residual in zip(passed, evaluated([laws[place] for place in passed], (*point, True)), strict=True):
            if residual > LOOSE:
                residuals[place] = max(residuals[place], residual)
    tried = list(zip(rules, residuals.tolist(), strict=True))
    return [_found(priors[n], children[n], [pair for pair in tried if pair[0].site == n]) for n in names]


def _found(prior: Prior, children: tuple[str, ...], tried: list[tuple[Rule, float]]) -> Found:
    """The first rule that the law lets pass, else why the last one does not."""
    for rule, residual in tried:
        if residual <= TOLERANCE:
            return Found(prior.name, children, rule, residual, "")
    if not tried:
        discrete = "has too many values to enumerate" if prior.discrete else "has no family"
        return Found(prior.name, children, None, np.nan, f"a {prior.kind.__name__} {discrete}")
    rule, residual = tried[-1]
    if rule.family == ENUMERATED:
        reason = f"its elements meet in {_listed(children)}"
    else:
        reason = f"not {rule.family} given {_listed(children)}"
    return Found(prior.name, children, None, residual, reason)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "its prior"


@lru_cache(maxsize=1024)
def _coupled(of: tuple[Term, ...], name: str) -> Callable[[Point], Array]:
    """For every axis of a site, whether elements at different places on it meet in the log joint.

    The gradient of a quadratic function is moved at half of the places, those with a given bit in their number, and
    compared at the others: any two places differ in some bit.
    """
    mine = [term for term in of if name in term.depends]

    def meetings(point: Point) -> Array:
        bound, values = point

        def density(x: Array) -> Array:
            return total(mine, bound, values | {name: x})

        at = values[name]
        axes, moved = halves(at.shape)
        step = 1.0 + jnp.sin(1.0 + jnp.arange(at.size)).reshape(at.shape) ** 2
        slope = jax.lax.map(jax.grad(density), jnp.concatenate([at[None], at + jnp.where(moved, step, 0.0)]))
        change = jnp.abs(slope[1:] - slope[0])
        own = tuple(range(1, at.ndim + 1))
        scale = change.max(own, keepdims=True) + jnp.abs(slope[0]).max()
        meets = (jnp.where(moved, 0.0, change) > 1e-10 * scale).any(own)
        return jnp.array([meets[np.array(axes) == axis].any() for axis in range(at.ndim)], dtype=bool)

    return meetings


def halves(shape: tuple[int, ...]) -> tuple[list[int], np.ndarray]:
    """For every axis and every bit of its places: the axis, and which elements are at a place with the bit."""
    axes, masks = [], [np.zeros((0, *shape), bool)]
    for axis, size in enumerate(shape):
        place = np.arange(size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
        for bit in range((size - 1).bit_length()):
            axes.append(axis)
            masks.append(np.broadcast_to((place >> bit) & 1 == 1, shape)[None])
    return axes, np.concatenate(masks)


@lru_cache(maxsize=1024)
def law(of: tuple[Term, ...], rule: Rule) -> Callable[[tuple[Bound, Values, bool | Array]], Array]:
    """The residual of the law for a rule at a point; the same function for the same arguments.

    The last part of its argument says whether a few values of the site are enough where they are many numbers.
    """
    return lambda given: _residual(of, rule, *given)


def _residual(of: Sequence[Term], rule: Rule, bound: Bound, values: Values, brief: bool | Array) -> Array:
    q = conditional(rule, of, bound, values).distribution
    mine = [term for term in of if rule.site in term.depends]
    prior = terms(bound).priors[rule.site]
    if rule.family == ENUMERATED:
        at = _everywhere(prior)
    elif prior.discrete:
        at = _draws(q, prior.distribution(bound, values))
    else:
        at = spread(q, both_ways=bool(bound.guarded))

    def densities(x: Array) -> tuple[Array, Array, Array]:
        parts = [term.density(bound, values | {rule.site: x}) for term in mine]
        log_q = q.log_prob(x).sum()
        return jnp.asarray(sum(d.sum() for d in parts)), log_q, sum(jnp.abs(d).sum() for d in parts) + jnp.abs(log_q)

    number = len(at) if at.size <= LONG else jnp.where(brief, min(len(at), BRIEF), len(at))
    g, log_q, size = _mapped(densities, at, number)
    best = jnp.argmax(jnp.where(jnp.isnan(g), -jnp.inf, g))  # the first choice of a discrete site may be impossible
    scale = size + size[best]  # zero for a simplex of one
    residuals = jnp.abs((g - g[best]) - (log_q - log_q[best])) / jnp.where(scale == 0, 1.0, scale)
    # q may hold probabilities, as those of a path, which are zero below the smallest float.
    unlikely = jnp.isneginf(g) | (g - g[best] < math.log(jnp.finfo(g.dtype).tiny))
    residual = jnp.where(unlikely & jnp.isneginf(log_q), 0.0, residuals).max()
    compared = jnp.isfinite(g) & jnp.isfinite(log_q)
    return jnp.where(compared[best] & (prior.discrete | (compared.sum() > 1)), residual, jnp.nan)


def _mapped(densities: Callable[[Array], tuple[Array, ...]], at: Array, number: int | Array) -> tuple[Array, ...]:
    """Of the first of some values; what is not looked at counts as impossible, of size 0."""
    if isinstance(number, int):
        return jax.lax.map(densities, at)
    kinds = jax.eval_shape(densities, at[0])
    start = tuple(
        jnp.full(len(at), fill, kind.dtype) for fill, kind in zip((-jnp.inf, -jnp.inf, 0.0), kinds, strict=True)
    )

    def step(place: Array, found: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(each.at[place].set(one) for each, one in zip(found, densities(at[place]), strict=True))

    return jax.lax.fori_loop(0, number, step, start)


def spread(q: Distribution, both_ways: bool = False) -> Array:
    """A likely value of q, and values a third of, once and ten times its spread from it, with fixed noise.

    both_ways: on the other side of it as well, and no element close to it, since a support may end anywhere.
    """
    sizes, least = ((0.0, *SPREADS, *(-size for size in SPREADS)), 1.0) if both_ways else ((0.0, *SPREADS), 0.0)
    if isinstance(q, Normal | JointNormal | LinearGaussianChain):
        scale = q.scale if isinstance(q, Normal) else q.conditional_scale
        near, away = noise("spread", (2, *q.shape()), 2.0)
        away = away + least * np.sign(away)
        return q.mean + scale * (near + jnp.stack([size * away for size in sizes]))
    transform = biject_to(q.support)
    if isinstance(q, Gamma | InverseGamma | Beta | Dirichlet | Wishart | InverseWishart):
        centre = transform.inv(typical(q, q.mean))
        radius = 0.3 if isinstance(q, Wishart | InverseWishart) else 1.0  # farther away matrices are all but singular
        move = jnp.asarray(noise("spread", centre.shape, radius))
    else:
        centre, other = transform.inv(q.sample(jax.random.PRNGKey(1), (2,)))
        move = other - centre
    move = move + least * jnp.sign(move)
    moves = jnp.stack([jnp.clip(size * move, -30.0, 30.0) for size in sizes])
    return transform(centre + moves)


def _draws(q: Distribution, prior: Distribution) -> Array:
    """Values of a discrete site with structure, likely ones first."""
    first, second = jax.random.split(jax.random.PRNGKey(1))
    drawn = jnp.concatenate([q.sample(first, (3,)), prior.sample(second, (4,))])
    if not isinstance(q, MarkovChain):
        return drawn
    paths = pairs_of_choices(q.shape(), q.num_states)
    if q.lengths is not None:  # after its length a path stays where it is
        at = jnp.minimum(jnp.arange(q.num_steps), q.lengths[..., None] - 1)
        paths = jnp.take_along_axis(paths, jnp.broadcast_to(at, paths.shape), -1)
    return jnp.concatenate([drawn, paths.astype(drawn.dtype)])


def _everywhere(prior: Prior) -> Array:
    """Values of a discrete site: the first choice, the last, and mixed ones, element by element."""
    choices = jnp.asarray(prior.choices)
    ends = jnp.stack([jnp.zeros(prior.shape, int), jnp.full(prior.shape, len(choices) - 1)])
    return choices[jnp.concatenate([ends, pairs_of_choices(prior.shape, len(choices))])]


def pairs_of_choices(shape: tuple[int, ...], choices: int) -> Array:
    """Numbers of choices (value, *shape), so that any two elements have every pair of different ones in some value.

    What two elements say together may be said of one pair of choices only. Where that takes too many values they are
    random.
    """
    number, size = choices * (choices - 1), max(math.prod(shape), 1)
    bits = sum((length - 1).bit_length() for length in shape)
    most = min(MANY_VALUES, MANY_ELEMENTS // size)
    if 0 < bits * number <= most:
        moved = halves(shape)[1]
        first, step = np.divmod(np.arange(number), choices - 1)
        along = [-1, *(1 for _ in range(moved.ndim))]
        both = first.reshape(along), step.reshape(along) + 1
        return jnp.asarray(((both[0] + both[1] * moved) % choices).reshape(-1, *shape))
    mixed = min(max(most, 4), 64) if bits else 4
    return jax.random.randint(jax.random.PRNGKey(1), (mixed, *shape), 0, choices)
