"""Programs of which a conjugate rule holds at some points and nowhere else: what must be refused, and how.

Each has one continuous site whose conditional is asked for, and values of the others at which it is; what is right is
found by quadrature of the log joint that NumPyro computes. Beside them guards that never act, which must be accepted.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

Link = Callable[[Any], Any]


class Wrong(NamedTuple):
    """reason: words of the refusal. given: values of the other latent sites, at which the conditional is wrong."""

    program: Callable[..., None]
    data: dict[str, Any]
    site: str
    reason: str
    given: dict[str, Any] = {}


RNG = np.random.default_rng(7)
LEVELS = np.array([1.3, 0.4, 2.1, 1.8])
TABLE = np.array([0.3, 0.8, 1.1, 1.9, 2.4])


@jax.custom_jvp
def straight_through(x: Any) -> Any:
    return jnp.round(x)


straight_through.defjvp(lambda primals, tangents: (jnp.round(primals[0]), tangents[0]))


def counted(x: Any) -> Any:
    return jax.lax.while_loop(lambda total: total < x, lambda total: total + 0.25, jnp.zeros(()))


def scanned(x: Any) -> Any:
    return jax.lax.scan(lambda total, step: (jnp.where(step < x, total + 0.5, total), None), 0.1, jnp.arange(3.0))[0]


OPERATIONS: dict[str, tuple[str, Link]] = {
    "where": ("`where`", lambda x: jnp.where(x < 0.9, 2 * x, x + 0.9)),
    "select": ("`select`", lambda x: jnp.select([x < 0.3, x < 1.2], [0.5 * x, x], 1.2)),
    "step": ("`>`", lambda x: 0.2 + 1.5 * (x > 0.9)),
    "maximum": ("`maximum`", lambda x: jnp.maximum(x, 0.9)),
    "minimum": ("`minimum`", lambda x: jnp.minimum(x, 0.9)),
    "clip": ("`clip`", lambda x: jnp.clip(x, 0.3, 1.4)),
    "abs": ("`abs`", lambda x: 0.1 + jnp.abs(x - 0.9)),
    "sign": ("`sign`", lambda x: 1.2 + jnp.sign(x - 0.9)),
    "floor": ("`floor`", lambda x: 0.1 + jnp.floor(4 * x) / 4),
    "round": ("`round`", lambda x: 0.1 + jnp.round(4 * x) / 4),
    "remainder": ("`remainder`", lambda x: 0.1 + x % 0.7),
    "astype": ("`astype`", lambda x: 0.1 + (4 * x).astype(int) / 4),
    "sort": ("`sort`", lambda x: jnp.sort(jnp.stack([x, x * 0 + 0.9]))[1]),
    "argmax": ("`argmax`", lambda x: jnp.array([0.4, 1.6])[jnp.argmax(jnp.stack([x, x * 0 + 0.9]))]),
    "index": ("`digitize`", lambda x: jnp.asarray(TABLE)[jnp.digitize(x, jnp.array([0.3, 0.6, 0.9, 1.5]))]),
    "interp": ("`interp`", lambda x: jnp.interp(x, jnp.array([0.0, 0.5, 1.0, 9.0]), jnp.array([0.2, 0.3, 1.5, 1.6]))),
    "cond": ("`", lambda x: jax.lax.cond(x > 0.9, lambda: 1.7, lambda: 0.4)),
    "while": ("`while_loop`", lambda x: 0.2 + counted(jnp.clip(x, 0, 5))),
    "scan": ("`where`", scanned),
    "relu": ("`relu`", lambda x: 0.1 + jax.nn.relu(x - 0.6)),
    "straight through": ("`round`", lambda x: 0.1 + straight_through(2 * x) / 2),
    "root of a square": ("not ", lambda x: 0.1 + jnp.sqrt((x - 0.9) ** 2)),
    "steep sigmoid": ("not ", lambda x: 0.2 + 1.5 * jax.nn.sigmoid(200 * (x - 0.9))),
}


class Kind(NamedTuple):
    prior: dist.Distribution
    data: Callable[[Any], dist.Distribution]
    y: np.ndarray


KINDS = {
    "Normal": Kind(dist.Normal(0.0, 2.0), lambda x: dist.Normal(x, 0.5), LEVELS),
    "Gamma": Kind(dist.Gamma(2.0, 1.5), lambda x: dist.Exponential(x), LEVELS),
    "InverseGamma": Kind(dist.InverseGamma(3.0, 2.0), lambda x: dist.Normal(0.0, jnp.sqrt(x)), LEVELS),
    "HalfNormal": Kind(dist.HalfNormal(1.5), lambda x: dist.Normal(x, 0.5), LEVELS),
    "Beta": Kind(dist.Beta(1.5, 1.5), lambda x: dist.Binomial(20, x / 3), np.array([5, 3, 6, 4])),
}


def broken(kind: str, operation: str) -> Wrong:
    prior, data, y = KINDS[kind]
    reason, link = OPERATIONS[operation]

    def program(n: int) -> None:
        x = numpyro.sample("x", prior)
        with numpyro.plate("row", n):
            numpyro.sample("y", data(link(1.5 * x if kind == "Beta" else x)))

    return Wrong(program, {"n": len(y), "y": y}, "x", reason)


EVERYWHERE = {f"{kind}, {name}": broken(kind, name) for kind in ("Normal", "Gamma") for name in OPERATIONS}
SOME = ("where", "step", "maximum", "clip", "abs", "floor", "astype", "sort", "interp", "root of a square")
OTHER_KINDS = ("InverseGamma", "HalfNormal", "Beta")
EVERYWHERE |= {f"{kind}, {name}": broken(kind, name) for kind in OTHER_KINDS for name in SOME}

YEARS = np.arange(1900, 1990)
ACCIDENTS = np.where(YEARS < 1935, RNG.poisson(3.1, 90), RNG.poisson(0.9, 90))
DOSES = np.linspace(0, 10, 20)
RESPONSE = 2.0 * (DOSES > 4) + 0.3 * RNG.normal(size=20)


def change_point(t: Any) -> None:
    s = numpyro.sample("s", dist.Gamma(2.0, 0.001))
    with numpyro.plate("year", len(t)):
        numpyro.sample("y", dist.Poisson(jnp.where(t < s, 3.0, 1.0)))


def threshold(x: Any, scale: float = 1.0, far: float = 10.0) -> None:
    c = numpyro.sample("c", dist.Normal(0.0, far * scale))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(2.0 * (x > c), 0.3))


def vague_threshold(x: Any) -> None:
    c = numpyro.sample("c", dist.Gamma(0.001, 0.001))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(2.0 * (x > c), 0.3))


def flat_threshold(x: Any) -> None:
    c = numpyro.sample("c", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(2.0 * (x > c), 0.3))
    numpyro.sample("about", dist.Normal(c, 5.0))


def calendar(year: Any) -> None:
    """Sigmoids that are saturated wherever priors are."""
    a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(year)):
        numpyro.sample("y", dist.Bernoulli(logits=a + b * year))


def decay(t: Any) -> None:
    """An exponential that is nothing wherever the prior is."""
    r = numpyro.sample("r", dist.Exponential(1.0))
    with numpyro.plate("row", len(t)):
        numpyro.sample("y", dist.Poisson(100 * jnp.exp(-r * t) + 1.0))


def units(n: int) -> None:
    """Sums of squares of 1e9 beside a logit, where the precision is what its prior says."""
    tau = numpyro.sample("tau", dist.Gamma(0.001, 0.001))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1e6))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)))
    numpyro.sample("d", dist.Binomial(50, logits=(mu - 50000) / 3000.0))


def heavy_units(n: int) -> None:
    tau = numpyro.sample("tau", dist.Gamma(0.001, 0.001))
    mu = numpyro.sample("mu", dist.Normal(0.0, 1e6))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)))
    numpyro.sample("e", dist.StudentT(3.0, mu, 2000.0))


def bounded(n: int) -> None:
    top = numpyro.sample("top", dist.Gamma(12.0, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Uniform(0.0, top))


def bounded_latent(n: int) -> None:
    top = numpyro.sample("top", dist.Gamma(12.0, 1.0))
    with numpyro.plate("row", n):
        u = numpyro.sample("u", dist.Uniform(0.0, top))
        numpyro.sample("y", dist.Normal(u, 0.1))


def truncated(n: int) -> None:
    low = numpyro.sample("low", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.LeftTruncatedDistribution(dist.Normal(0.0, 1.0), low=low))


def near_zero(n: int) -> None:
    rate = numpyro.sample("rate", dist.Gamma(0.5, 1.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Poisson(jnp.maximum(rate, 0.05)))


def near_one(n: int) -> None:
    p = numpyro.sample("p", dist.Beta(5.0, 0.5))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Binomial(40, jnp.clip(p, 1e-5, 0.99)))


def laplace(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Laplace(mu, 1.0))


def student(n: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.StudentT(200.0, mu, 1.0))


def one_in_many(n: int) -> None:
    """One element of a large plate has a likelihood of another kind."""
    with numpyro.plate("row", n):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0))
    numpyro.factor("other", -jnp.log1p(jnp.exp(-mu[3])))


def large(n: int) -> None:
    """The same beside terms a million times as large."""
    with numpyro.plate("row", n):
        mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1e-3))
    numpyro.factor("other", 3.0 * jax.nn.sigmoid(1e3 * (mu[3] - 0.5)))


DOLLARS = RNG.normal(52000, 15000, 12).round()
AT_DATA = {"tau": np.array(1 / 15000.0**2)}
WORKS = np.arange(1950, 2021)
TOPS = np.array([9.5, 2.0])
OTHERS = {
    "change point": Wrong(change_point, {"t": YEARS, "y": ACCIDENTS}, "s", "`where` on 's' in 'y'"),
    "threshold": Wrong(threshold, {"x": DOSES, "y": RESPONSE}, "c", "`>` on 'c' in 'y'"),
    "a far prior": Wrong(threshold, {"x": DOSES, "y": RESPONSE, "far": 1e4}, "c", "`>` on 'c' in 'y'"),
    "small units": Wrong(threshold, {"x": 1e-6 * DOSES, "y": RESPONSE, "scale": 1e-6}, "c", "`>` on 'c' in 'y'"),
    "large units": Wrong(threshold, {"x": 1e6 * DOSES, "y": RESPONSE, "scale": 1e6}, "c", "`>` on 'c' in 'y'"),
    "vague threshold": Wrong(vague_threshold, {"x": DOSES, "y": RESPONSE}, "c", "`>` on 'c' in 'y'"),
    "flat threshold": Wrong(flat_threshold, {"x": DOSES, "y": RESPONSE, "about": 4.0}, "c", "`>` on 'c' in 'y'"),
    "calendar": Wrong(calendar, {"year": WORKS, "y": (WORKS > 1980).astype(int)}, "a", "not Normal", {"b": 1e-3}),
    "calendar slope": Wrong(calendar, {"year": WORKS, "y": (WORKS > 1980).astype(int)}, "b", "not Normal", {"a": 0.0}),
    "decay": Wrong(decay, {"t": np.linspace(50, 400, 15), "y": RNG.poisson(3.0, 15)}, "r", "not Gamma"),
    "units": Wrong(units, {"n": 12, "y": DOLLARS, "d": 25}, "mu", "not Normal", AT_DATA),
    "heavy units": Wrong(heavy_units, {"n": 12, "y": DOLLARS, "e": 40000.0}, "mu", "not Normal", AT_DATA),
    "bounded": Wrong(bounded, {"n": 3, "y": np.array([9.5, 2.0, 4.0])}, "top", "`where` on 'top' in 'y'"),
    "bounded latent": Wrong(bounded_latent, {"n": 2, "y": TOPS}, "top", "`where` on 'top' in 'u'", {"u": TOPS}),
    "truncated": Wrong(truncated, {"n": 3, "y": np.array([0.5, 1.0, 0.7])}, "low", "`where` on 'low' in 'y'"),
    "near zero": Wrong(near_zero, {"n": 2, "y": np.array([0, 0])}, "rate", "`maximum` on 'rate' in 'y'"),
    "near one": Wrong(near_one, {"n": 2, "y": np.array([40, 40])}, "p", "`clip` on 'p' in 'y'"),
    "laplace": Wrong(laplace, {"n": 4, "y": LEVELS}, "mu", "`abs` on 'mu' in 'y'"),
    "student": Wrong(student, {"n": 4, "y": LEVELS + 3}, "mu", "not Normal"),
}
WRONG = EVERYWHERE | OTHERS


def tied(n: int, strength: float = 2.0) -> None:
    """Two of many labels are tied."""
    with numpyro.plate("row", n):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(4.0 * z, 1.0))
    numpyro.factor("tie", strength * (z[0] == z[1]))


def linked(n: int) -> None:
    """The same beside sums of 1e9, where the variance is what its prior says."""
    v = numpyro.sample("v", dist.InverseGamma(0.01, 0.01))
    with numpyro.plate("row", n):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(jnp.where(z, 40000.0, 30000.0), jnp.sqrt(v)))
    numpyro.factor("link", 3.0 * (z[0] == z[1]))


ENDS = 4.0 * (np.arange(1000) % 2) + RNG.normal(size=1000)
SALARIES = np.where(RNG.integers(0, 2, 20), 40000, 30000) + RNG.normal(0, 6000, 20)
TIES = {
    "tied": (tied, {"n": 1000, "y": ENDS}),
    "hardly tied": (tied, {"n": 1000, "y": ENDS, "strength": 1e-3}),
    "tied in other units": (linked, {"n": 20, "y": SALARIES}),
}
MANY = {
    "one in many": (one_in_many, {"n": 500, "y": RNG.normal(size=500)}),
    "one beside large terms": (large, {"n": 500, "y": np.linspace(0.4995, 0.5005, 500)}),
}


def guarded(name: str, link: Link) -> Callable[..., None]:
    prior, data, _ = KINDS[name]

    def program(n: int) -> None:
        x = numpyro.sample("x", prior)
        with numpyro.plate("row", n):
            numpyro.sample("y", data(link(x)))

    return program


def of_scale(scale: float) -> Callable[..., None]:
    def program(n: int) -> None:
        tau = numpyro.sample("tau", dist.Gamma(2.0, scale**2))
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0 * scale))
        with numpyro.plate("row", n):
            numpyro.sample("y", dist.Normal(mu, 1 / jnp.sqrt(tau)))

    return program


def through_logits(n: int) -> None:
    p = numpyro.sample("p", dist.Beta(2.0, 2.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Binomial(20, logits=jnp.log(p) - jnp.log1p(-p)))


def rare(n: int) -> None:
    p = numpyro.sample("p", dist.Beta(0.01, 10.0))
    with numpyro.plate("row", n):
        numpyro.sample("y", dist.Binomial(20, p))


def unseen(group: Any) -> None:
    """A group without rows has its prior."""
    with numpyro.plate("group", 3):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", len(group)):
        numpyro.sample("y", dist.Normal(a[group], 1.0))


def offset(x: Any) -> None:
    """Selections by what is no site, and by the index of a row."""
    b = numpyro.sample("b", dist.Normal(0.0, 2.0))
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(jnp.where(x > 0, b * x, 0.5 * b), 1.0))


COUNTS = np.array([5, 3, 6, 4])
RIGHT: dict[str, tuple[Callable[..., None], dict[str, Any], dict[str, str]]] = {
    "rate above a tiny floor": (
        guarded("Gamma", lambda x: jnp.maximum(x, 1e-30)),
        {"n": 4, "y": LEVELS},
        {"x": "Gamma"},
    ),
    "rate that is positive": (guarded("Gamma", jnp.abs), {"n": 4, "y": LEVELS}, {"x": "Gamma"}),
    "root of a square": (guarded("Gamma", lambda x: jnp.sqrt(x * x)), {"n": 4, "y": LEVELS}, {"x": "Gamma"}),
    "no logarithm of zero": (
        guarded("InverseGamma", lambda x: jnp.where(x > 0, x, 1.0)),
        {"n": 4, "y": LEVELS},
        {"x": "InverseGamma"},
    ),
    "a number": (guarded("Normal", jnp.nan_to_num), {"n": 4, "y": LEVELS}, {"x": "Normal"}),
    "softplus of a logarithm": (
        guarded("Gamma", lambda x: jnp.expm1(jax.nn.softplus(jnp.log(x)))),
        {"n": 4, "y": LEVELS},
        {"x": "Gamma"},
    ),
    "logits": (through_logits, {"n": 4, "y": COUNTS}, {"p": "Beta"}),
    "a rare event": (rare, {"n": 2, "y": np.array([0, 0])}, {"p": "Beta"}),
    "a group without rows": (unseen, {"group": np.array([0, 0, 1]), "y": LEVELS[:3]}, {"a": "Normal"}),
    "selected by data": (offset, {"x": np.array([-1.0, 0.5, 2.0]), "y": LEVELS[:3]}, {"b": "Normal"}),
    **{
        f"scale {scale:g}": (of_scale(scale), {"n": 4, "y": scale * LEVELS}, {"tau": "Gamma", "mu": "Normal"})
        for scale in (1e-8, 1e-6, 1e-3, 1e3, 1e6, 1e8)
    },
}
