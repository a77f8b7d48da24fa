"""The hierarchical models of the catalogue, as a textbook writes them: centred, with one line for every level.

Hyperparameters of scales are arguments where an entry with vague priors stands beside one with sensible ones.
"""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

sample, plate, deterministic = numpyro.sample, numpyro.plate, numpyro.deterministic


def growth_curves(t: Array, groups: int, shape: float, rates: Array) -> None:
    """Intercepts and slopes of every group; Gamma priors of all precisions."""
    tau = sample("tau", dist.Gamma(shape, rates[0]))
    tau_a = sample("tau_a", dist.Gamma(shape, rates[1]))
    tau_b = sample("tau_b", dist.Gamma(shape, rates[2]))
    for name, precision in (("sd", tau), ("sd_a", tau_a), ("sd_b", tau_b)):
        deterministic(name, 1 / jnp.sqrt(precision))
    mean_a = sample("mean_a", dist.Normal(0.0, 100.0))
    mean_b = sample("mean_b", dist.Normal(0.0, 100.0))
    with plate("group", groups):
        a = sample("a", dist.Normal(mean_a, 1 / jnp.sqrt(tau_a)))
        b = sample("b", dist.Normal(mean_b, 1 / jnp.sqrt(tau_b)))
        with plate("time", len(t)):
            sample("y", dist.Normal(a + b * t[:, None], 1 / jnp.sqrt(tau)))


def components_by_precision(batches: int, shape: float, rate: float) -> None:
    """Variance components, with Gamma priors of precisions."""
    mu = sample("mu", dist.Normal(0.0, 1000.0))
    tau_between = sample("tau_between", dist.Gamma(shape, rate))
    tau = sample("tau", dist.Gamma(shape, rate))
    between = deterministic("between", 1 / jnp.sqrt(tau_between))
    within = deterministic("within", 1 / jnp.sqrt(tau))
    with plate("batch", batches):
        a = sample("a", dist.Normal(mu, between))
        with plate("repeat", 5):
            sample("y", dist.Normal(a, within))


def components_by_deviation(batches: int) -> None:
    """Variance components, with half-Normal priors of standard deviations."""
    mu = sample("mu", dist.Normal(0.0, 10.0))
    between = sample("between", dist.HalfNormal(2.0))
    within = sample("within", dist.HalfNormal(2.0))
    with plate("batch", batches):
        a = sample("a", dist.Normal(mu, between))
        with plate("repeat", 5):
            sample("y", dist.Normal(a, within))


def schools_half_cauchy(sigma: Array) -> None:
    """Effects in eight schools with known standard errors."""
    mu = sample("mu", dist.Normal(0.0, 5.0))
    tau = sample("tau", dist.HalfCauchy(5.0))
    with plate("school", len(sigma)):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("y", dist.Normal(theta, sigma))


def schools_uniform(sigma: Array) -> None:
    """The same with flat priors over long intervals."""
    mu = sample("mu", dist.Normal(0.0, 1000.0))
    tau = sample("tau", dist.Uniform(0.0, 1000.0))
    with plate("school", len(sigma)):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("y", dist.Normal(theta, sigma))


def radon(county: Array, floor: Array, uranium: Array) -> None:
    """Houses in counties; a predictor of each level."""
    gamma = sample("gamma", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    slope = sample("slope", dist.Normal(0.0, 2.0))
    sd_county = sample("sd_county", dist.Exponential(1.0))
    sd = sample("sd", dist.Exponential(1.0))
    with plate("county", len(uranium)):
        a = sample("a", dist.Normal(gamma[0] + gamma[1] * uranium, sd_county))
    with plate("house", len(floor)):
        sample("y", dist.Normal(a[county] + slope * floor, sd))


def radon_vague(county: Array, floor: Array, uranium: Array) -> None:
    """The same with vague priors throughout."""
    gamma = sample("gamma", dist.Normal(0.0, 100.0).expand([2]).to_event(1))
    slope = sample("slope", dist.Normal(0.0, 100.0))
    sd_county = sample("sd_county", dist.Uniform(0.0, 100.0))
    sd = sample("sd", dist.Uniform(0.0, 100.0))
    with plate("county", len(uranium)):
        a = sample("a", dist.Normal(gamma[0] + gamma[1] * uranium, sd_county))
    with plate("house", len(floor)):
        sample("y", dist.Normal(a[county] + slope * floor, sd))


def crossed(raters: int, items: int, shape: float, rate: float) -> None:
    """Effects of raters and of items on every score."""
    mu = sample("mu", dist.Normal(0.0, 10.0))
    tau = sample("tau", dist.Gamma(shape, rate).expand([3]).to_event(1))
    sd = deterministic("sd", 1 / jnp.sqrt(tau))
    with plate("rater", raters, dim=-2):
        a = sample("a", dist.Normal(0.0, sd[0]))
    with plate("item", items, dim=-1):
        b = sample("b", dist.Normal(0.0, sd[1]))
    with plate("rater", raters, dim=-2), plate("item", items, dim=-1):
        sample("y", dist.Normal(mu + a + b, sd[2]))


def nested(schools: int, classes: int, pupils: int) -> None:
    """Pupils in classes in schools."""
    mu = sample("mu", dist.Normal(0.0, 5.0))
    sd_school = sample("sd_school", dist.HalfNormal(1.0))
    sd_class = sample("sd_class", dist.HalfNormal(1.0))
    sd = sample("sd", dist.HalfNormal(1.0))
    with plate("school", schools):
        a = sample("a", dist.Normal(mu, sd_school))
        with plate("class", classes):
            b = sample("b", dist.Normal(a, sd_class))
            with plate("pupil", pupils):
                sample("y", dist.Normal(b, sd))


def slopes(person: Array, day: Array, persons: int) -> None:
    """Reaction times of persons from day to day: intercepts and slopes, independent."""
    mean_a = sample("mean_a", dist.Normal(250.0, 50.0))
    mean_b = sample("mean_b", dist.Normal(0.0, 20.0))
    sd_a = sample("sd_a", dist.HalfNormal(50.0))
    sd_b = sample("sd_b", dist.HalfNormal(10.0))
    sd = sample("sd", dist.HalfNormal(50.0))
    with plate("person", persons):
        a = sample("a", dist.Normal(mean_a, sd_a))
        b = sample("b", dist.Normal(mean_b, sd_b))
    with plate("row", len(day)):
        sample("y", dist.Normal(a[person] + b[person] * day, sd))


def correlated_slopes(cafe: Array, afternoon: Array, cafes: int) -> None:
    """Waiting times in cafes: pairs of intercept and slope with a covariance of their own."""
    mean = sample("mean", dist.Normal(jnp.array([5.0, -1.0]), jnp.array([2.0, 0.5])).to_event(1))
    scale = sample("scale", dist.Exponential(1.0).expand([2]).to_event(1))
    factor = sample("factor", dist.LKJCholesky(2, 2.0))
    sd = sample("sd", dist.Exponential(1.0))
    deterministic("correlation", factor[1, 0])
    with plate("cafe", cafes):
        pair = sample("pair", dist.MultivariateNormal(mean, scale_tril=scale[:, None] * factor))
    with plate("visit", len(afternoon)):
        sample("y", dist.Normal(pair[cafe, 0] + pair[cafe, 1] * afternoon, sd))


def meta_analysis(control: Array, treated: Array, shape: float, rate: float) -> None:
    """Deaths in trials: log odds of every control group, log odds ratios of treatments. control, treated: patients."""
    d = sample("d", dist.Normal(0.0, 100.0))
    tau = sample("tau", dist.Gamma(shape, rate))
    spread = deterministic("spread", 1 / jnp.sqrt(tau))
    with plate("trial", len(control)):
        mu = sample("mu", dist.Normal(0.0, 100.0))
        delta = sample("delta", dist.Normal(d, spread))
        sample("deaths", dist.Binomial(control, logits=mu))
        sample("deaths_treated", dist.Binomial(treated, logits=mu + delta))


def counts(x: Array) -> None:
    """Overdispersed counts: a log-linear model with a Normal effect of every row."""
    b = sample("b", dist.Normal(0.0, 2.0).expand([2]).to_event(1))
    spread = sample("spread", dist.HalfNormal(1.0))
    with plate("row", len(x)):
        e = sample("e", dist.Normal(0.0, spread))
        sample("y", dist.Poisson(jnp.exp(b[0] + b[1] * x + e)))


def seeds(total: Array, seed: Array, extract: Array) -> None:
    """Overdispersed binomials: germination on plates of two seeds and two extracts, vague priors."""
    alpha = sample("alpha", dist.Normal(0.0, 1000.0).expand([4]).to_event(1))
    tau = sample("tau", dist.Gamma(0.001, 0.001))
    spread = deterministic("spread", 1 / jnp.sqrt(tau))
    with plate("dish", len(total)):
        b = sample("b", dist.Normal(0.0, spread))
        logits = alpha[0] + alpha[1] * seed + alpha[2] * extract + alpha[3] * seed * extract + b
        sample("germinated", dist.Binomial(total, logits=logits))


def repeated_measures(persons: int, times: int) -> None:
    """Scores of persons at times: effects of both; some cells are missing."""
    sd_person = sample("sd_person", dist.HalfNormal(2.0))
    sd = sample("sd", dist.HalfNormal(2.0))
    with plate("time", times, dim=-1):
        m = sample("m", dist.Normal(0.0, 5.0))
    with plate("person", persons, dim=-2):
        a = sample("a", dist.Normal(0.0, sd_person))
    with plate("person", persons, dim=-2), plate("time", times, dim=-1):
        sample("y", dist.Normal(m + a, sd))


def tanks(total: Array) -> None:
    """Survivors in many groups: a logistic model with an intercept of every group."""
    mean = sample("mean", dist.Normal(0.0, 1.5))
    spread = sample("spread", dist.Exponential(1.0))
    with plate("tank", len(total)):
        a = sample("a", dist.Normal(mean, spread))
        sample("survived", dist.Binomial(total, logits=a))


def known_variances(groups: int) -> None:
    """All variances are known."""
    mu = sample("mu", dist.Normal(0.0, 10.0))
    with plate("group", groups):
        a = sample("a", dist.Normal(mu, 2.0))
        with plate("repeat", 4):
            sample("y", dist.Normal(a, 1.5))


def own_variances(groups: int) -> None:
    """Every group has a mean and a precision of its own."""
    mu = sample("mu", dist.Normal(0.0, 10.0))
    between = sample("between", dist.HalfNormal(3.0))
    with plate("group", groups):
        a = sample("a", dist.Normal(mu, between))
        tau = sample("tau", dist.Gamma(2.0, 2.0))
        with plate("repeat", 6):
            sample("y", dist.Normal(a, 1 / jnp.sqrt(tau)))


def t_errors(group: Array, x: Array, groups: int) -> None:
    """Group effects and a slope, with errors that have Student's t distribution with four degrees of freedom."""
    mu = sample("mu", dist.Normal(0.0, 5.0))
    slope = sample("slope", dist.Normal(0.0, 5.0))
    between = sample("between", dist.HalfNormal(2.0))
    sd = sample("sd", dist.HalfNormal(2.0))
    with plate("group", groups):
        a = sample("a", dist.Normal(mu, between))
    with plate("row", len(x)):
        sample("y", dist.StudentT(4.0, a[group] + slope * x, sd))


def change_point(t: Array) -> None:
    """The mean of a series changes at an unknown time; variances are known."""
    s = sample("s", dist.Uniform(0.0, 1.0))
    before = sample("before", dist.Normal(0.0, 5.0))
    after = sample("after", dist.Normal(0.0, 5.0))
    with plate("time", len(t)):
        sample("y", dist.Normal(jnp.where(t < s, before, after), 1.0))


def item_response(persons: int, items: int) -> None:
    """Answers of persons to items: abilities, difficulties and discriminations."""
    spread = sample("spread", dist.HalfNormal(2.0))
    with plate("item", items, dim=-1):
        difficulty = sample("difficulty", dist.Normal(0.0, spread))
        discrimination = sample("discrimination", dist.LogNormal(0.0, 0.5))
    with plate("person", persons, dim=-2):
        ability = sample("ability", dist.Normal(0.0, 1.0))
    with plate("person", persons, dim=-2), plate("item", items, dim=-1):
        sample("y", dist.Bernoulli(logits=discrimination * (ability - difficulty)))


def pumps(hours: Array) -> None:
    """Failures of pumps: rates have a Gamma distribution with unknown shape and rate."""
    alpha = sample("alpha", dist.Exponential(1.0))
    beta = sample("beta", dist.Gamma(0.1, 1.0))
    with plate("pump", len(hours)):
        theta = sample("theta", dist.Gamma(alpha, beta))
        sample("failures", dist.Poisson(theta * hours))


def tumours(total: Array) -> None:
    """Tumours in groups of rats: probabilities have a Beta distribution with unknown mean and concentration."""
    mean = sample("mean", dist.Uniform(0.0, 1.0))
    concentration = sample("concentration", dist.LogNormal(2.0, 1.0))
    with plate("trial", len(total)):
        p = sample("p", dist.Beta(mean * concentration, (1 - mean) * concentration))
        sample("tumours", dist.Binomial(total, p))


def random_walk(sites: int) -> None:
    """Measurements along a transect, whose mean is a random walk."""
    step = sample("step", dist.HalfNormal(1.0))
    sd = sample("sd", dist.HalfNormal(1.0))
    level = sample("level", dist.Normal(0.0, 5.0))
    path = sample("path", dist.GaussianRandomWalk(step, sites))
    with plate("site", sites):
        sample("y", dist.Normal(level + path, sd))


def counts_in_space(expected: Array) -> None:
    """Counts along a transect, whose log relative risk is a random walk."""
    step = sample("step", dist.HalfNormal(1.0))
    level = sample("level", dist.Normal(0.0, 2.0))
    path = sample("path", dist.GaussianRandomWalk(step, len(expected)))
    with plate("site", len(expected)):
        sample("y", dist.Poisson(expected * jnp.exp(level + path)))


def polynomial(x: Array) -> None:
    """Brain volumes of seven species: a polynomial of the fourth degree."""
    a = sample("a", dist.Normal(0.5, 1.0))
    b = sample("b", dist.Normal(0.0, 10.0).expand([4]).to_event(1))
    log_sigma = sample("log_sigma", dist.Normal(0.0, 1.0))
    with plate("species", len(x)):
        sample("y", dist.Normal(a + sum(b[power] * x ** (power + 1) for power in range(4)), jnp.exp(log_sigma)))


def legs(left: Array, right: Array) -> None:
    """Heights and the lengths of both legs, which are nearly equal."""
    a = sample("a", dist.Normal(10.0, 100.0))
    b_left = sample("b_left", dist.Normal(2.0, 10.0))
    b_right = sample("b_right", dist.Normal(2.0, 10.0))
    sigma = sample("sigma", dist.Exponential(1.0))
    with plate("person", len(left)):
        sample("y", dist.Normal(a + b_left * left + b_right * right, sigma))


def dose(x: Array) -> None:
    """A log-linear model with vague priors, of a covariate as it was measured."""
    intercept = sample("intercept", dist.Normal(0.0, 1000.0))
    slope = sample("slope", dist.Normal(0.0, 1000.0))
    with plate("row", len(x)):
        noise = sample("noise", dist.Normal(0.0, 0.1))
        sample("y", dist.Poisson(jnp.exp(intercept + slope * x + noise)))


def trend(steps: int) -> None:
    """A local linear trend: the slope is a random walk, the level its sum with noise, observed with noise."""
    sd_level = sample("sd_level", dist.HalfNormal(1.0))
    sd_slope = sample("sd_slope", dist.HalfNormal(0.5))
    sd = sample("sd", dist.HalfNormal(1.0))
    with plate("step", steps):
        e = sample("e", dist.Normal(0.0, sd_level))
        u = sample("u", dist.Normal(0.0, sd_slope))
        level = jnp.cumsum(e + jnp.cumsum(u))
        sample("y", dist.Normal(level, sd))


def levers(actor: Array, block: Array, treatment: Array, actors: int, blocks: int) -> None:
    """Levers that actors pull in blocks: a logistic model with crossed effects."""
    b = sample("b", dist.Normal(0.0, 0.5).expand([4]).to_event(1))
    mean = sample("mean", dist.Normal(0.0, 1.5))
    sd_actor = sample("sd_actor", dist.Exponential(1.0))
    sd_block = sample("sd_block", dist.Exponential(1.0))
    with plate("actor", actors):
        a = sample("a", dist.Normal(mean, sd_actor))
    with plate("block", blocks):
        g = sample("g", dist.Normal(0.0, sd_block))
    with plate("pull", len(actor)):
        sample("y", dist.Bernoulli(logits=a[actor] + g[block] + b[treatment]))


def chain_of_sites(y: np.ndarray) -> None:
    """A random walk written as a loop, one site for every step; the first argument has its observations."""
    step = sample("step", dist.HalfNormal(1.0))
    state = sample("x_0", dist.Normal(0.0, 2.0))
    for index in range(len(y)):
        if index:
            state = sample(f"x_{index}", dist.Normal(state, step))
        sample(f"y_{index}", dist.Normal(state, 0.5), obs=y[index])
