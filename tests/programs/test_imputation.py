"""Sites that are missing in part and that others depend on: as if the missing elements were in a plate of their own."""

from itertools import product
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from catalogue.missing_parts import (
    COVARIANCE,
    GAPS,
    PARTS,
    VECTOR_GAPS,
    Part,
    X,
    Y,
    covariate,
    exposure,
    vector,
    with_gaps,
)
from numpyro import handlers
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import logsumexp

import bayeslab as bl
from bayeslab.methods.wrappers.imputed import gaps_of
from bayeslab.programs.missing.gaps import with_given_elements, without_given_elements
from bayeslab.programs.missing.imputation import whole_sites
from bayeslab.programs.program import Bound, compilation_signature, init_inside_support, precision_scope
from quick_cases import quick_ones

OWN_LOG_DENSITIES: dict[str, Any] = {
    "Bernoulli": stats.bernoulli(0.5).logpmf,
    "Binomial": stats.binom(4, 0.5).logpmf,
    "Categorical": lambda value: np.full(np.shape(value), -np.log(3)),
    "Gamma": stats.gamma(2, scale=0.5).logpdf,
    "Guarded": stats.binom(4, 0.5).logpmf,  # a Binomial that is asked for its support
    "MultivariateNormal": stats.norm.logpdf,
    "Normal": stats.norm(0.0, 2.0).logpdf,
    "StudentT": stats.t(2.0, 0.0, 2.0).logpdf,
    "Uniform": stats.uniform(-3.0, 6.0).logpdf,
}
"""What elements of a latent part that are given have as a density, by family: a proper one, which no site reaches."""


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.program.__name__)
def test_the_density_is_that_of_complete_data(part: Part) -> None:
    """That of NumPyro for the program on complete data, missing elements at any value, given ones apart."""
    with precision_scope():
        bound = bl.bind(part.program, with_gaps(part))
        gaps = gaps_of(bound, ())
        for form in (bound, without_given_elements(bound, gaps)):
            latent = _some_values(form)
            raw = with_given_elements(form, latent)
            complete = {n: value for n, value in whole_sites(bound, raw).items() if n in bound.latent}
            for name in bound.imputed:
                np.testing.assert_array_equal(np.asarray(complete[name])[~part.missing[name]], _given(part, name))
            expected = _complete_log_density(part, bound, complete)
            for name in set(bound.imputed) - set(form.gaps):
                density = OWN_LOG_DENSITIES[bound.sites[name].family](np.asarray(raw[name]))
                expected += np.where(part.missing[name], 0.0, density).sum()
            np.testing.assert_allclose(form.log_joint(latent), expected, rtol=1e-9)
        part_of_vector = part.missing.get("v") is VECTOR_GAPS and part.program is vector
        continuous = {name for name in bound.imputed if not bound.sites[name].is_discrete}
        assert {one.site for one in gaps} == (set() if part_of_vector else continuous)


def _some_values(bound: Bound) -> dict[str, Any]:
    run = handlers.substitute(handlers.seed(bound.program, 3), substitute_fn=init_inside_support)
    return {name: site["value"] for name, site in handlers.trace(run).get_trace().items() if name in bound.latent}


def _given(part: Part, name: str) -> np.ndarray:
    return np.asarray(part.sites[name])[~part.missing[name]]


def _complete_log_density(part: Part, bound: Bound, complete: dict[str, Any]) -> Any:
    """The log density of NumPyro: missing elements that nothing depends on are left out, hidden ones have their own."""

    class Leaves(numpyro.primitives.Messenger):
        def process_message(self, msg: dict[str, Any]) -> None:
            if msg["type"] == "sample" and msg["name"] in set(part.missing) - set(bound.imputed):
                msg["fn"] = msg["fn"].mask(~part.missing[msg["name"]])
            if msg["type"] == "sample" and msg["name"] in bound.unmasked:
                msg["fn"] = msg["fn"].base_dist.mask(msg["fn"]._mask | part.missing[msg["name"]])

    def program(**arguments: Any) -> None:
        with Leaves():
            handlers.condition(part.program, data=part.sites | complete)(**arguments)

    arguments = part.arguments or part.sites
    return log_density(program, (), arguments, {})[0]


def fixed_covariate(n: int) -> None:
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.Normal(0.5, 1.5))
        numpyro.sample("b", dist.Normal(0.8 * a, 0.5))


def fixed_labels(n: int) -> None:
    with numpyro.plate("row", n):
        k = numpyro.sample("k", dist.Categorical(np.array([0.2, 0.3, 0.5])))
        numpyro.sample("y", dist.Normal(1.0 * k, 1.0))


def test_the_evidence_is_exact() -> None:
    """Of a Normal covariate, a gamma rate, labels and parts of vectors, against closed forms."""
    missing = np.where(GAPS, np.nan, 1.0)
    normal = bl.fit(0, fixed_covariate, {"n": 8, "a": missing * X, "b": Y}, bl.Exact(4), progress=False)
    expected = stats.norm(0.5, 1.5).logpdf(X[~GAPS]).sum() + stats.norm(0.8 * X, 0.5).logpdf(Y)[~GAPS].sum()
    expected += stats.norm(0.4, np.hypot(0.8 * 1.5, 0.5)).logpdf(Y[GAPS]).sum()
    assert normal.attrs["log_evidence"] == pytest.approx(expected, rel=1e-10)
    rate, count = np.exp(X), np.arange(8)
    gamma = bl.fit(0, exposure, {"n": 8, "a": missing * rate, "count": count}, bl.Exact(4), progress=False)
    expected = stats.gamma(2, scale=1 / 1.5).logpdf(rate[~GAPS]).sum() + stats.poisson(rate).logpmf(count)[~GAPS].sum()
    expected += stats.nbinom(2, 1.5 / 2.5).logpmf(count[GAPS]).sum()
    assert gamma.attrs["log_evidence"] == pytest.approx(expected, rel=1e-10)
    k, probs = np.arange(8) % 3, np.array([0.2, 0.3, 0.5])
    labels = bl.fit(0, fixed_labels, {"n": 8, "k": missing * k, "y": Y}, bl.Exact(4), progress=False)
    joint = probs * stats.norm(np.arange(3.0), 1).pdf(Y[:, None])
    expected = np.log(np.where(GAPS, joint.sum(1), joint[np.arange(8), k])).sum()
    assert labels.attrs["log_evidence"] == pytest.approx(expected, rel=1e-10)
    assert labels["posterior"]["k"].dtype.kind == "i"


def grid(pixels: Any) -> None:
    with numpyro.plate("row", 2, dim=-2), numpyro.plate("column", 3, dim=-1):
        z = numpyro.sample("z", dist.Bernoulli(0.5))
        numpyro.sample("pixel", dist.Normal(1.0 * z, 0.8), obs=pixels)
    s = 2.0 * z - 1.0
    numpyro.factor("neighbours", 0.6 * ((s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()))


def annotators(confusion: Any, item: Any, y: Any) -> None:
    with numpyro.plate("item", 4):
        z = numpyro.sample("z", dist.Categorical(np.array([0.2, 0.3, 0.5])))
    with numpyro.plate("annotation", len(y)):
        numpyro.sample("y", dist.Categorical(confusion[z[item]]), obs=y)


def test_discrete_elements_that_meet_or_are_looked_up() -> None:
    """Evidence with some pixels of a grid, and some gold labels of annotated items, against enumeration."""
    pixels, known = X[:6].reshape(2, 3), np.array([[1, np.nan, np.nan], [np.nan, np.nan, 0]])
    tree = bl.fit(0, grid, {"pixels": pixels, "z": known}, bl.Exact(4), progress=False)
    log_joint = []
    for bits in product((0, 1), repeat=6):
        z = np.array(bits).reshape(2, 3)
        if (np.isnan(known) | (z == known)).all():
            s = 2 * z - 1
            neighbours = (s[1:] * s[:-1]).sum() + (s[:, 1:] * s[:, :-1]).sum()
            log_joint.append(6 * np.log(0.5) + stats.norm(z, 0.8).logpdf(pixels).sum() + 0.6 * neighbours)
    assert tree.attrs["log_evidence"] == pytest.approx(logsumexp(log_joint), rel=1e-10)
    item, y, gold = np.arange(8) % 4, np.arange(8) % 3, np.array([np.nan, 2.0, np.nan, 0.0])
    confusion = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    data = {"confusion": confusion, "item": item, "y": y, "z": gold}
    tree = bl.fit(0, annotators, data, bl.Exact(4), progress=False)
    joint = np.array([0.2, 0.3, 0.5]) * np.stack([confusion[:, y[item == i]].prod(-1) for i in range(4)])
    expected = np.log([joint[i].sum() if np.isnan(v) else joint[i, int(v)] for i, v in enumerate(gold)]).sum()
    assert tree.attrs["log_evidence"] == pytest.approx(expected, rel=1e-10)


def test_parts_of_a_vector_are_imputed_given_its_others() -> None:
    """All sites are jointly Normal: the posterior and the evidence of the values that are given, in closed form."""
    [part] = [one for one in PARTS if one.missing.get("v") is VECTOR_GAPS and one.program is vector]
    tree = bl.fit(0, vector, with_gaps(part), bl.Exact(4000), progress=False)
    n, draw = len(Y), np.kron(np.ones((8, 1)), np.eye(3))  # each vector holds the mean
    v_cov = 4.0 * draw @ draw.T + np.kron(np.eye(n), COVARIANCE)
    total = np.kron(np.eye(n), np.ones((1, 3)))
    joint = np.block([[v_cov, v_cov @ total.T], [total @ v_cov, total @ v_cov @ total.T + np.eye(n)]])
    known = np.concatenate([~VECTOR_GAPS.ravel(), np.ones(n, bool)])
    value = np.concatenate([part.sites["v"].ravel(), Y])
    s_kk, s_mk = joint[np.ix_(known, known)], joint[np.ix_(~known, known)]
    assert tree.attrs["log_evidence"] == pytest.approx(
        stats.multivariate_normal(cov=s_kk).logpdf(value[known]), rel=1e-9
    )
    mean = s_mk @ np.linalg.solve(s_kk, value[known])
    sd = np.sqrt(np.diag(joint[np.ix_(~known, ~known)] - s_mk @ np.linalg.solve(s_kk, s_mk.T)))
    drawn = tree["posterior"]["v"].values[0].reshape(4000, -1)
    np.testing.assert_array_equal(drawn[:, known[:-n]], np.tile(value[:-n][known[:-n]], (4000, 1)))
    imputed = drawn[:, ~known[:-n]]
    np.testing.assert_allclose(imputed.mean(0), mean, atol=5 * sd.max() / np.sqrt(4000))
    np.testing.assert_allclose(imputed.std(0), sd, rtol=0.08)
    assert tree["imputed"]["v"].values.sum() == VECTOR_GAPS.sum()
    assert tree["posterior"]["v"].attrs["imputed"] == "4 of 24, those in group imputed"
    assert np.isnan(tree["observed_data"]["v"].values[VECTOR_GAPS]).all()


METHODS: dict[str, Any] = {
    "Gibbs": bl.Gibbs(num_chains=2),
    "NUTS": bl.NUTS(num_warmup=300, num_chains=2),
    "MeanField": bl.MeanField(),
    "Laplace": bl.Laplace(),
    "EM": bl.EM(),
    "MAP": bl.MAP(),
}


@pytest.mark.parametrize("method", quick_ones(METHODS, "Gibbs", "NUTS", "EM"))
def test_methods_agree_with_the_closed_form(method: str) -> None:
    """A regression with a covariate that is missing in some rows, all of it jointly Normal."""
    a = np.where(GAPS, np.nan, X)
    tree = bl.fit(0, covariate, {"n": 8, "a": a, "b": Y}, METHODS[method], progress=False)
    spread = np.where(GAPS, np.hypot(1.0, 0.5 / 0.8), 1.0)  # of what a row says about m
    weight, said = 1 / spread**2, np.where(GAPS, Y / 0.8, X)
    precision = 1 + weight.sum()
    mean = (weight * said).sum() / precision
    assert float(tree["posterior"]["m"].mean()) == pytest.approx(
        mean, abs=0.06 if tree["posterior"].sizes["draw"] > 1 else 1e-5
    )
    if method not in ("EM", "MAP", "MeanField"):  # factors have less spread
        assert float(tree["posterior"]["m"].std()) == pytest.approx(precision**-0.5, rel=0.1)
    imputed = (mean + 0.8 / 0.25 * Y) / (1 + 0.64 / 0.25)
    drawn = tree["posterior"]["a"].mean(("chain", "draw")).values
    np.testing.assert_allclose(
        drawn, np.where(GAPS, imputed, X), atol=0.1 if tree["posterior"].sizes["draw"] > 1 else 1e-4
    )


@pytest.mark.slow
def test_labels_of_some_rows_are_kept() -> None:
    """By Gibbs sampling, and by NUTS with the labels summed over: the same, and given labels as they are."""
    x = np.array([-3.0, -2.5, 0.1, 2.8, 3.2, 3.1, -2.9, 0.2])
    label = pd.array([0, None, None, 1, None, 1, 0, None], dtype="Int64")
    trees = [
        bl.fit(0, two_classes, {"x": x, "label": label}, method, progress=False)
        for method in (bl.Gibbs(num_samples=2000, num_chains=2), bl.NUTS(num_warmup=300, num_chains=2))
    ]
    for tree in trees:
        drawn = tree["posterior"]["label"]
        assert drawn.dtype.kind == "i"
        np.testing.assert_array_equal(tree["imputed"]["label"], label.isna())
        assert (drawn.values[..., ~label.isna()] == np.array([0, 1, 1, 0])).all()
        assert bl.diagnose(tree) == ""
    first, second = (tree["posterior"].mean(("chain", "draw")) for tree in trees)
    np.testing.assert_allclose(first["label"], second["label"], atol=0.06)
    np.testing.assert_allclose(first["mu"], second["mu"], atol=0.1)


def two_classes(x: Any) -> None:
    share = numpyro.sample("share", dist.Beta(1.0, 1.0))
    with numpyro.plate("class", 2):
        mu = numpyro.sample("mu", dist.Normal(0.0, 3.0))
    with numpyro.plate("row", len(x)):
        label = numpyro.sample("label", dist.Bernoulli(share))
        numpyro.sample("x", dist.Normal(mu[label], 1.0), obs=x)


def own_mask(n: int, a: Any, known: Any, b: Any) -> None:
    m = numpyro.sample("m", dist.Normal(0.0, 1.0))
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.Normal(m, 1.0), obs=a, obs_mask=known)
        numpyro.sample("b", dist.Normal(0.8 * a, 0.5), obs=b)


def test_a_mask_of_the_program_says_the_same() -> None:
    data = {"n": 8, "a": np.where(GAPS, 0.0, X), "known": ~GAPS, "b": Y}
    tree = bl.fit(0, own_mask, data, bl.Exact(1000), progress=False)
    expected = bl.fit(0, covariate, {"n": 8, "a": np.where(GAPS, np.nan, X), "b": Y}, bl.Exact(4), progress=False)
    assert tree.attrs["log_evidence"] == pytest.approx(expected.attrs["log_evidence"], rel=1e-9)
    np.testing.assert_array_equal(tree["posterior"]["a"].values[..., ~GAPS][0, 0], X[~GAPS])


def test_a_site_without_any_value_is_latent() -> None:
    with precision_scope():
        bound = bl.bind(covariate, {"n": 8, "a": np.full(8, np.nan), "b": Y})
        assert bound.latent == ("m", "a")
        assert list(bound.observed) == ["b"]
        complete = bl.bind(covariate, {"n": 8, "a": X, "b": Y})
        assert not complete.imputed
        assert complete.latent == ("m",)


def moving(n: int) -> None:
    top = numpyro.sample("top", dist.Gamma(2.0, 1.0))
    with numpyro.plate("row", n):
        a = numpyro.sample("a", dist.Uniform(0.0, top))
        numpyro.sample("b", dist.Normal(a, 1.0))


def mixed(n: int) -> None:
    with numpyro.plate("row", n):
        parts = dist.MixtureSameFamily(dist.Categorical(np.ones(2) / 2), dist.Normal(np.array([-1.0, 1.0]), 1.0))
        a = numpyro.sample("a", parts)
        numpyro.sample("b", dist.Normal(a, 1.0))


@pytest.mark.parametrize(
    ("program", "data", "words"),
    [
        (moving, {"a": np.where(GAPS, np.nan, 1.0), "b": Y}, "support of its site depends on site 'top'"),
        (mixed, {"a": np.where(GAPS, np.nan, X), "b": Y}, "MixtureSameFamily cannot be imputed"),
        (covariate, {"a": X[:5], "b": Y}, "has shape (5,)"),
        (covariate, {"a": X, "b": np.full(8, np.nan)}, "entry 'b' has no value"),
        (exposure, {"a": np.where(GAPS, np.nan, -1.0), "count": np.arange(8)}, "entry 'a' at position (0,) is -1.0"),
    ],
)
def test_refusals_say_why(program: Any, data: Any, words: str) -> None:
    with pytest.raises(ValueError) as refused:
        bl.explain(program, {"n": 8} | data)
    assert words in str(refused.value)


def test_other_gaps_compile_nothing_new() -> None:
    """Compiled code does not depend on which elements are missing."""
    x = np.array([-3.0, -2.5, 2.8, 3.2])
    data = [{"x": x, "label": np.array(label)} for label in ([0.0, np.nan, 1.0, np.nan], [0.0, 0.0, np.nan, np.nan])]
    with precision_scope():
        first, second = (bl.bind(two_classes, one) for one in data)
    assert compilation_signature(first) == compilation_signature(second)


def test_simulations_and_replications_hold_the_site_whole() -> None:
    data = {"n": 8, "a": np.where(GAPS, np.nan, X), "b": Y}
    prior = bl.simulate(0, covariate, data, num_samples=200)
    assert prior["prior"]["a"].shape == (1, 200, 8)
    assert prior["prior_predictive"]["b"].shape == (1, 200, 8)
    left = prior["prior_predictive"]["b"].values - 0.8 * prior["prior"]["a"].values
    assert stats.kstest(left.ravel() / 0.5, "norm").pvalue > 1e-4
    tree = bl.predict(1, covariate, data, bl.fit(0, covariate, data, bl.Exact(100), progress=False))
    assert set(tree["posterior_predictive"].data_vars) == {"a", "b"}
    assert np.isnan(tree["log_likelihood"]["a"].values[..., GAPS]).all()


def measured(y: Any) -> None:
    """A covariate of unknown scale, in a plate, that the responses follow."""
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    with numpyro.plate("row", len(y)):
        x = numpyro.sample("x", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(x, 0.5), obs=y)


def test_a_covariate_of_unknown_scale_is_imputed_by_nuts() -> None:
    """The scale on a grid: its missing elements are Normal given it."""
    x, y = np.array([1.2, -0.4, np.nan, 0.8, np.nan]), np.array([1.0, -0.1, 2.0, 1.1, -0.5])
    scale = np.linspace(1e-3, 30.0, 30_001)
    gaps = np.isnan(x)
    mass = np.exp(-scale) * stats.norm.pdf(x[~gaps, None], 0, scale).prod(0)
    mass *= stats.norm.pdf(y[gaps, None], 0, np.sqrt(scale**2 + 0.25)).prod(0)
    shrinkage = (mass @ (scale**2 / (scale**2 + 0.25))) / mass.sum()
    tree = bl.fit(0, measured, {"x": x, "y": y}, bl.NUTS(num_samples=500, num_chains=2), progress=False)
    drawn = tree["posterior"]["x"].values[..., gaps]
    np.testing.assert_allclose(drawn.mean((0, 1)), shrinkage * y[gaps], atol=5 * 0.5 / np.sqrt(300))


def level_in_a_loop(y: Any) -> None:
    level = numpyro.sample("level_0", dist.Normal(0.0, 1.0))
    for step in range(len(y)):
        if step:
            level = numpyro.sample(f"level_{step}", dist.Normal(level, 0.5))
        numpyro.sample(f"y_{step}", dist.Normal(level, 0.3), obs=y[step])


def test_a_number_of_a_loop_may_be_missing() -> None:
    y = np.array([0.4, np.nan, -0.2, 1.1])
    steps = np.arange(4)
    covariance = 1.0 + 0.25 * np.minimum(steps[:, None], steps) + 0.09 * np.eye(4)
    seen = np.flatnonzero(~np.isnan(y))
    right = stats.multivariate_normal.logpdf(y[seen], np.zeros(3), covariance[np.ix_(seen, seen)])
    tree = bl.fit(0, level_in_a_loop, {"y": y}, bl.Exact(num_samples=20), progress=False)
    assert tree.attrs["log_evidence"] == pytest.approx(right, abs=1e-10)
    predicted = bl.predict(1, level_in_a_loop, {"y": y}, tree)
    assert np.isnan(predicted["log_likelihood"]["y_1"]).all()
    assert np.isfinite(predicted["posterior_predictive"]["y_1"]).all()
    with pytest.raises(ValueError, match="has no value"):
        bl.fit(0, level_in_a_loop, {"y": np.full(4, np.nan)}, progress=False)
