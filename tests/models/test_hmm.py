"""Hidden Markov models: against sums over all paths, a textbook, each other, and sequence by sequence."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise, product
from types import ModuleType
from typing import Any

import arviz_stats as azs
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.handlers import seed, substitute, trace
from scipy import special, stats
from xarray import Dataset

import bayeslab as bl
from bayeslab import MarkovChain
from bayeslab.datasets import earthquakes, sequences
from bayeslab.models import (
    diagonal_gaussian_hmm,
    gaussian_hmm,
    hmm,
    markov_chain,
    multivariate_gaussian_hmm,
    poisson_hmm,
    tied_gaussian_hmm,
)
from bayeslab.programs.data import read_entries
from bayeslab.programs.program import precision_scope
from bayeslab.results.datatree import to_datatree
from bayeslab.transforms.collapse import marginal
from bayeslab.verification.findings import find_conditionals
from quick_cases import quick_ones
from ranks import LEVEL, smallest_p

Array = np.ndarray[Any, Any]
sample, plate = numpyro.sample, numpyro.plate
HIDDEN = (hmm, gaussian_hmm, multivariate_gaussian_hmm, diagonal_gaussian_hmm, tied_gaussian_hmm, poisson_hmm)
SLOW = {"angles", "pairs", "outliers"}
every_hmm = pytest.mark.parametrize("lecture", HIDDEN, ids=lambda one: one.__name__.split(".")[-1])

INITIAL = np.array([0.5, 0.3, 0.2])
MOVES = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
LENGTHS = np.array([6, 4])
NAN = np.nan


def hidden(initial: Any, moves: Any, emission: Any, lengths: Any, num_steps: int = 6) -> None:
    """Any emission: a function of states."""
    with plate("sequence", len(lengths)):
        z = sample("z", MarkovChain(initial, moves, num_steps, lengths=lengths))
        sample("y", emission(z).to_event(1))


LOC = np.array([-2.0, 0.3, 1.7])
TABLE = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]])
CENTRES = np.array([[-1.0, 0.0], [0.5, 1.0], [1.0, -1.5]])
COVARIANCES = np.array([[[1.0, 0.4], [0.4, 0.7]], [[0.5, -0.2], [-0.2, 0.6]], [[1.2, 0.0], [0.0, 0.3]]])


def symbols(z: Any) -> dist.Distribution:
    return dist.Categorical(jnp.asarray(TABLE)[z])


def angles(z: Any) -> dist.Distribution:
    return dist.VonMises(jnp.asarray(LOC)[z], 4.0)


def counts(z: Any) -> dist.Distribution:
    return dist.ZeroInflatedPoisson(0.3, 3.0 + jnp.asarray(LOC)[z])


def outliers(z: Any) -> dist.Distribution:
    return dist.StudentT(3.0, jnp.asarray(LOC)[z], 0.6)


def pairs(z: Any) -> dist.Distribution:
    return dist.MultivariateNormal(jnp.asarray(CENTRES)[z], jnp.asarray(COVARIANCES)[z])


def zero_inflated(y: float, k: int) -> float:
    return float(np.log(0.3 * (y == 0) + 0.7 * stats.poisson(3 + LOC[k]).pmf(y)))


def pair(y: Array, k: int) -> float:
    """Of the entries that are there."""
    at = np.flatnonzero(~np.isnan(y))
    if not at.size:
        return 0.0
    return float(stats.multivariate_normal(CENTRES[k][at], COVARIANCES[k][np.ix_(at, at)]).logpdf(y[at]))


EMISSIONS: dict[str, tuple[Callable, Callable[[Any, int], float], Any]] = {
    "symbols": (symbols, lambda y, k: np.log(TABLE[k, int(y)]), [[0, 2, NAN, 1, 1, 2], [1, 1, 0, 2, NAN, NAN]]),
    "angles": (
        angles,
        lambda y, k: stats.vonmises(4.0, LOC[k]).logpdf(y),
        [[-2.1, NAN, 1.9, 0.2, -3.0, 3.0], [NAN, 0.4, 1.0, -1.0, NAN, NAN]],
    ),
    "zero-inflated counts": (counts, zero_inflated, [[0, 2, NAN, 5, 4, 0], [0, 0, 1, 7, NAN, NAN]]),
    "outliers": (
        outliers,
        lambda y, k: stats.t(3, LOC[k], 0.6).logpdf(y),
        [[-2.1, NAN, 1.9, 20.0, -3.0, 1.0], [NAN, 0.4, 1.0, -1.0, NAN, NAN]],
    ),
    "pairs": (
        pairs,
        pair,
        [
            [[-1.0, 0.2], [0.3, NAN], [NAN, NAN], [1.1, -1.0], [0.9, -2.0], [0.2, 1.1]],
            [[0.6, 1.2], [NAN, 0.1], [0.0, 0.0], [1.5, -1.0], [NAN, NAN], [NAN, NAN]],
        ],
    ),
}


def all_paths(initial: Array, moves: Array, evidence: Array) -> dict[tuple[int, ...], float]:
    """log p(path, y) of every path. evidence: log p(y_t | state), (step, state)."""

    def density(path: tuple[int, ...]) -> float:
        steps = sum(np.log(moves[i, j]) for i, j in pairwise(path))
        return float(np.log(initial[path[0]]) + steps + sum(evidence[t, k] for t, k in enumerate(path)))

    return {path: density(path) for path in product(range(len(initial)), repeat=len(evidence))}


@pytest.mark.parametrize("case", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in EMISSIONS])
def test_states_and_evidence_are_those_of_all_paths(case: str) -> None:
    """Any emission, with missing entries, and a sequence that ends early."""
    emission, log_p, values = EMISSIONS[case]
    y = np.array(values)
    data = {"initial": INITIAL, "moves": MOVES, "emission": emission, "lengths": LENGTHS, "y": y}
    tree = bl.fit(0, hidden, data, bl.Exact(200), progress=False)
    evidence, log_q = 0.0, np.zeros(200)
    draws = tree["posterior"]["z"].values[0]
    for row, length in enumerate(LENGTHS):
        here = [[0.0 if np.isnan(at).all() else log_p(at, k) for k in range(3)] for at in y[row, :length]]
        joint = all_paths(INITIAL, MOVES, np.array(here))
        total = special.logsumexp(list(joint.values()))
        evidence += total
        log_q += [joint[tuple(map(int, path))] - total for path in draws[:, row, :length]]
        assert (draws[:, row, length:] == draws[:, row, length - 1 : length]).all()
    np.testing.assert_allclose(tree.attrs["log_evidence"], evidence, rtol=1e-12)
    np.testing.assert_allclose(tree["sample_stats"]["log_q"].values[0], log_q, rtol=1e-9, atol=1e-10)
    with precision_scope():
        left = bl.bind(bl.collapse(hidden, "z"), data)
        np.testing.assert_allclose(left.log_joint({}), evidence, rtol=1e-12)


@pytest.mark.parametrize(
    "lecture",
    quick_ones(HIDDEN, hmm, gaussian_hmm, multivariate_gaussian_hmm),
    ids=lambda one: one.__name__.split(".")[-1],
)
def test_a_missing_entry_leaves_the_density_of_the_others(lecture: ModuleType) -> None:
    data = lecture.example()
    there = ~np.ma.getmaskarray(np.ma.masked_invalid(data["y"]))
    with precision_scope():
        bound = bl.bind(lecture.model, data)
        drawn = {name: site["value"] for name, site in bound.prior_draw(jax.random.PRNGKey(0)).items()}
        sites = trace(seed(substitute(lecture.model, drawn), 0)).get_trace(**bound.inputs)
        base = sites["y"]["fn"]
        while base.event_dim > there.ndim - 2 or hasattr(base, "reinterpreted_batch_ndims"):
            base = base.base_dist
        each = base.expand(there.shape[: there.ndim - base.event_dim]).log_prob(np.where(there, bound.observed["y"], 0))
        there = there.reshape(*each.shape, -1).all(-1)
        rest = sum(sites[name]["fn"].log_prob(drawn[name]).sum() for name in bound.latent)
        latent = {name: drawn[name] for name in bound.latent}
        np.testing.assert_allclose(bound.log_joint(latent), rest + each[there].sum(), rtol=1e-12)
    assert not there.all()


@pytest.mark.parametrize("unit", [1.0, pytest.param(100.0, marks=pytest.mark.slow), 1e4])
def test_states_are_found_in_any_unit(unit: float) -> None:
    """Far from the data, where the law is checked as well, all but a few paths have a probability of zero."""
    data = gaussian_hmm.data()
    with precision_scope():
        [found] = find_conditionals(bl.bind(gaussian_hmm.model, data | {"y": unit * data["y"]}), ["z"])
    assert found.rule is not None, found.reason


# Padded and one by one.

SERIES = [np.array([-1.0, -0.7, 2.2, 1.9, 2.1, -1.3, -0.8]), np.array([1.7, 2.4, -0.9])]


def one_by_one(series: Any, num_states: int) -> None:
    """`gaussian_hmm` with a site for every sequence, of its own length."""
    initial = sample("initial", dist.Dirichlet(jnp.ones(num_states)))
    with plate("state", num_states):
        moves = sample("moves", dist.Dirichlet(jnp.ones(num_states)))
        tau = sample("tau", dist.Gamma(2.0, 0.5))
        mu = sample("mu", dist.Normal(0.0, 1 / jnp.sqrt(0.1 * tau)))
    for place, y in enumerate(series):
        z = sample(f"z{place}", MarkovChain(initial, moves, len(y)))
        sample(f"y{place}", dist.Normal(mu[z], 1 / jnp.sqrt(tau[z])).to_event(1), obs=y)


APART = {"series": SERIES, "num_states": 2}
PADDED = {"num_states": 2, **sequences(SERIES)}


@pytest.mark.slow
def test_padding_adds_nothing() -> None:
    """The log joint, and with the states summed over its value and gradient, which are NUTS's."""
    rng = np.random.default_rng(0)
    rates = {"initial": rng.dirichlet([1, 1]), "moves": rng.dirichlet([1, 1], 2), "tau": rng.gamma(2, size=2)}
    z = rng.integers(0, 2, (2, 7))
    z[1, 3:] = z[1, 2]
    states = {f"z{place}": z[place, : len(y)] for place, y in enumerate(SERIES)}
    with precision_scope():
        values = {name: jnp.asarray(value) for name, value in (rates | {"mu": rng.normal(size=2)}).items()}
        padded, apart = bl.bind(gaussian_hmm.model, PADDED), bl.bind(one_by_one, APART)
        np.testing.assert_allclose(padded.log_joint(values | {"z": z}), apart.log_joint(values | states), rtol=1e-12)
        found = [
            jax.jit(jax.value_and_grad(left.log_joint))(values)
            for left in (marginal(padded, ["z"]), marginal(apart, list(states)))
        ]
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-10), *found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "best"),
    [
        (bl.EM(num_starts=3), lambda tree: tree["sample_stats"]["lp"]),
        (bl.MeanField(num_starts=3), lambda tree: tree.attrs["elbo"]),
    ],
    ids=["EM", "MeanField"],
)
def test_padding_changes_no_optimum(method: Any, best: Callable[[Any], Any]) -> None:
    one = bl.fit(1, gaussian_hmm.model, PADDED, method, progress=False)
    other = bl.fit(1, one_by_one, APART, method, progress=False)
    np.testing.assert_allclose(best(one), best(other), rtol=1e-8)


# A textbook.


@pytest.mark.slow
def test_em_finds_what_the_textbook_finds_from_every_start() -> None:
    """Zucchini, MacDonald and Langrock (2016), 4.3: with a flat prior the mode is their maximum of the likelihood.

    No climb ever falls. The prior density is beta of each rate, and 2 of each of four vectors of three probabilities.
    """
    flat = {"num_states": 3, "alpha": 1.0, "beta": 1e-6, "y": earthquakes().values[None]}
    data = {"num_sequences": 1, "num_steps": 107, **flat}
    tree = bl.fit(0, poisson_hmm.model, data, bl.EM(num_starts=100), progress=False)
    climbs = tree["history"]["log_joint"].values[0] - 3 * np.log(1e-6) - 4 * np.log(2)
    assert np.nanmin(np.diff(climbs, axis=0)) >= 0
    assert climbs.shape[1] == 100
    np.testing.assert_allclose(np.nanmax(climbs), -328.5275, atol=1e-3)
    order = np.argsort(tree["posterior"]["rate"].values[0, 0])
    np.testing.assert_allclose(tree["posterior"]["rate"].values[0, 0][order], [13.134, 19.713, 29.710], atol=2e-3)
    moves = tree["posterior"]["moves"].values[0, 0][np.ix_(order, order)]
    expected = [[0.9393, 0.0321, 0.0286], [0.0404, 0.9064, 0.0532], [0.0, 0.1903, 0.8097]]
    np.testing.assert_allclose(moves, expected, atol=2e-4)


# All methods.


def separated(lecture: ModuleType) -> dict[str, Any]:
    """Two sequences of eight steps in two states that no one mixes up, one entry missing."""
    z = np.array([[0, 0, 0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 1, 1, 1]])
    rng = np.random.default_rng(1)
    y = {
        hmm: lambda: np.where(rng.random(z.shape) < 0.1, 2, z).astype(float),
        poisson_hmm: lambda: rng.poisson(np.where(z, 40, 3)).astype(float),
        gaussian_hmm: lambda: rng.normal(6.0 * z - 3, 0.7),
    }.get(lecture, lambda: rng.normal((6.0 * z - 3)[..., None] * [1, -0.5], 0.7))()
    y[0, 2] = NAN
    data = {"num_sequences": 2, "num_steps": 8, "num_states": 2, "stickiness": 1.0, "y": y}
    if lecture is hmm:
        data |= {"num_symbols": 3, "emission_concentration": 2.0, "concentration": 2.0}
    if lecture is diagonal_gaussian_hmm:
        data |= {"num_features": 2}
    if lecture in (multivariate_gaussian_hmm, tied_gaussian_hmm):
        data |= {"mu0": np.zeros(2), "scale": np.eye(2), "n0": 5.0}
    return data


METHODS = {
    "NUTS": bl.NUTS(num_warmup=300, num_samples=500, num_chains=2),
    "EM": bl.EM(num_starts=5),
    "MeanField": bl.MeanField(num_starts=5),
    "SVI": bl.SVI(num_steps=3000),
}


@pytest.mark.slow
@every_hmm
def test_methods_agree(lecture: ModuleType) -> None:
    """NUTS has the means of Gibbs but for Monte Carlo error; approximations are near, in standard deviations."""
    data = separated(lecture)
    gibbs = bl.fit(2, lecture.model, data, bl.Gibbs(num_samples=2000, num_chains=2), progress=False)
    gibbs = bl.align(gibbs, lecture.SITE_DIMS, lecture.LABELS)
    exact = gibbs["posterior"].to_dataset()
    error, spread = azs.mcse(exact, method="mean"), exact.std(("chain", "draw"))
    for name, method in METHODS.items():
        tree = bl.fit(3, lecture.model, data, method, progress=False)
        found = bl.align(tree, lecture.SITE_DIMS, lecture.LABELS, gibbs)["posterior"].to_dataset()
        gap = abs(found.mean(("chain", "draw")) - exact.mean(("chain", "draw")))
        if name == "NUTS":
            scale = np.hypot(error, azs.mcse(found, method="mean"))
            assert largest(gap, scale) < 5
        else:
            assert largest(gap, spread) < {"EM": 1.5, "MeanField": 0.5, "SVI": 0.5}[name], name


def largest(gap: Dataset, scale: Dataset) -> float:
    """The largest ratio among all elements that vary."""
    return float((gap / scale.where(scale > 1e-3)).max().to_array().max())


# Calibration.


def labelled(lengths: Any) -> None:
    """Two states whose means have priors of their own, so that they are not exchanged."""
    initial = sample("initial", dist.Dirichlet(jnp.array([2.0, 1.0])))
    with plate("state", 2):
        moves = sample("moves", dist.Dirichlet(jnp.array([[3.0, 1.0], [1.0, 1.0]])))
        mu = sample("mu", dist.Normal(jnp.array([-1.0, 1.0]), 0.5))
    with plate("sequence", 3):
        z = sample("z", MarkovChain(initial, moves, 4, lengths=lengths))
        sample("y", dist.Normal(mu[z], 0.7).to_event(1))


UNEQUAL = {"lengths": np.array([4, 1, 3]), "y": np.array([[0, 0, NAN, 0], [0, NAN, NAN, NAN], [0, 0, 0, NAN]])}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "simulations"),
    [
        (bl.Gibbs(num_warmup=24, num_samples=39, num_chains=1, thinning=4), 500),
        pytest.param(bl.NUTS(num_warmup=200, num_samples=39, num_chains=1, thinning=3), 300, marks=pytest.mark.slow),
    ],
    ids=["Gibbs", "NUTS"],
)
def test_padded_sequences_are_calibrated(method: Any, simulations: int) -> None:
    assert smallest_p(bl.sbc(4, labelled, UNEQUAL, method, simulations, progress=False)) > LEVEL


# What has no entry.


@pytest.mark.slow
def test_a_sequence_without_entry_has_no_likelihood_and_one_state_is_enough() -> None:
    """The log likelihood of the others, with their states summed over, is that of Poisson counts."""
    y = np.array([[1, 0, 2], [NAN, NAN, NAN], [3, NAN, 1]])
    data = {"num_sequences": 3, "num_steps": 3, "num_states": 1, "y": y}
    tree = bl.fit(5, poisson_hmm.model, data, bl.Gibbs(num_samples=50, num_chains=1), progress=False)
    found = bl.predict(6, poisson_hmm.model, data, tree)["log_likelihood"]
    assert found.attrs["integrated_out"] == ["z"]
    rate = tree["posterior"]["rate"].values[..., None]
    expected = np.where(np.isnan(y), 0.0, stats.poisson(rate).logpmf(np.nan_to_num(y))).sum(-1)
    np.testing.assert_allclose(found["y"].values[..., [0, 2]], expected[..., [0, 2]])
    assert np.isnan(found["y"].values[..., 1]).all()


@pytest.mark.slow
def test_the_end_of_a_path_may_be_missing() -> None:
    """With lengths or without, and whatever fills it up: the counts of moves are those of what was seen."""
    seen = markov_chain.example()
    masked = seen | {"y": np.where(np.arange(7) < seen["lengths"][:, None], seen["y"], NAN)}
    tree = bl.fit(7, markov_chain.model, masked, bl.Exact(5), progress=False)
    inputs = {name: seen[name] for name in ("num_states", "lengths", "concentration", "stickiness")}
    with precision_scope():
        evidence = markov_chain.evidence(jnp.asarray(seen["y"]), **inputs)
        np.testing.assert_allclose(tree.attrs["log_evidence"], evidence, rtol=1e-12)
        bounds = [bl.bind(markov_chain.model, data) for data in (seen, masked, masked | {"lengths": None})]
        latent = {name: site["value"] for name, site in bounds[0].prior_draw(jax.random.PRNGKey(1)).items()}
        values = [bound.log_joint({name: latent[name] for name in bound.latent}) for bound in bounds]
    np.testing.assert_allclose(values, values[0], rtol=1e-12)


def test_steps_of_an_optimiser_are_not_those_of_the_series() -> None:
    data = gaussian_hmm.data()
    bound = bl.bind(gaussian_hmm.model, data)
    tree = to_datatree({"history": {"elbo": np.zeros((1, 7))}}, bound, read_entries(data))
    assert tree["history"].sizes == {"chain": 1, "step": 7}
