"""Latent counts without a bound are summed over as far as they have mass: closed forms and sums by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import bayeslab as bl
from bayeslab.elimination.conditional import conditional
from bayeslab.elimination.sweep import feasible_point
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import precision_scope
from bayeslab.programs.tracing.count_limits import with_count_limits
from bayeslab.transforms.draw_checks import FalseConditional, require_within_limits
from bayeslab.verification.findings import find_conditional


def thinned(y: Any, rate: float = 20.0) -> None:
    """y ~ Poisson(0.3 rate)."""
    n = numpyro.sample("n", dist.Poisson(rate))
    numpyro.sample("y", dist.Binomial(n, 0.3), obs=y)


def captured(y: Any, p: float = 0.4) -> None:
    """Repeated counts of several sites (Royle 2004)."""
    with numpyro.plate("place", y.shape[1]):
        n = numpyro.sample("n", dist.Poisson(jnp.array([5.0, 30.0, 12.0])))
        with numpyro.plate("visit", y.shape[0], dim=-2):
            numpyro.sample("y", dist.Binomial(n, p), obs=y)


def waiting(y: Any) -> None:
    """Heavier tails: a geometric and a negative binomial count."""
    n = numpyro.sample("n", dist.GeometricProbs(0.2))
    m = numpyro.sample("m", dist.NegativeBinomial2(8.0, 3.0))
    numpyro.sample("y", dist.Normal(n, 2.0), obs=y)
    numpyro.sample("w", dist.Normal(m, 2.0), obs=y + 1.0)


def survivors(y: Any, rate: float = 12.0) -> None:
    """A Binomial of which the number is latent, and its result too: y ~ Poisson(0.4 rate)."""
    n = numpyro.sample("n", dist.Poisson(rate))
    s = numpyro.sample("s", dist.Binomial(n, 0.8))
    numpyro.sample("y", dist.Binomial(s, 0.5), obs=y)


def endless(y: Any) -> None:
    """Half of the mass is beyond a million."""
    n = numpyro.sample("n", dist.Poisson(1e6))
    numpyro.sample("y", dist.Normal(0.0 * n, 1.0), obs=y)


def log_evidence(model: Any, data: dict[str, Any], site: str) -> tuple[Any, Any]:
    with precision_scope():
        bound = bind(model, data)
        finding = find_conditional(bound, site)
        assert finding.rule is not None
        assert finding.rule.family.name == "Enumerated"
        values = {name: jnp.full(bound.sites[name].shape, 8) for name in bound.latent}
        parts = terms(bound).terms
        evidence = jax.jit(lambda at: conditional(finding.rule, parts, bound, at).log_evidence)(values)
        return bound, np.asarray(evidence)


def test_a_thinned_poisson_is_a_poisson() -> None:
    bound, evidence = log_evidence(thinned, {"y": 5}, "n")
    assert float(evidence) == pytest.approx(stats.poisson.logpmf(5, 6.0), abs=1e-12)
    [(name, limit)] = bound.limits
    assert name == "n"
    assert 64 <= limit <= 256
    larger, evidence = log_evidence(thinned, {"y": 150, "rate": 500.0}, "n")
    assert float(evidence) == pytest.approx(stats.poisson.logpmf(150, 150.0), abs=1e-11)
    assert larger.limits[0][1] > limit  # as far as these data need


def test_repeated_counts_are_those_of_sums_by_hand() -> None:
    y = np.array([[2, 11, 6], [1, 14, 3]])
    _, evidence = log_evidence(captured, {"y": y}, "n")
    counts = np.arange(400)
    terms_by_hand = stats.binom.logpmf(y[:, :, None], counts, 0.4).sum(0)
    priors = stats.poisson.logpmf(counts, np.array([5.0, 30.0, 12.0])[:, None])
    np.testing.assert_allclose(evidence, logsumexp(priors + terms_by_hand, axis=-1), atol=1e-11)


def test_heavier_tails() -> None:
    counts = np.arange(2000)
    _, evidence = log_evidence(waiting, {"y": 3.5}, "n")
    right = logsumexp(stats.geom.logpmf(counts + 1, 0.2) + stats.norm.logpdf(3.5, counts, 2.0))
    assert float(evidence) == pytest.approx(right, abs=1e-11)
    _, evidence = log_evidence(waiting, {"y": 3.5}, "m")
    right = logsumexp(stats.nbinom.logpmf(counts, 3, 3 / 11) + stats.norm.logpdf(4.5, counts, 2.0))
    assert float(evidence) == pytest.approx(right, abs=1e-6)  # NumPyro's own probabilities have so many digits


def test_draws_near_a_limit_and_counts_without_any() -> None:
    with precision_scope():
        bound = bind(thinned, {"y": 5})
        limit = bound.limits[0][1]
        require_within_limits(bound, {"n": np.array([[10, limit // 2]])})
        with pytest.raises(FalseConditional, match="draws reach"):
            require_within_limits(bound, {"n": np.array([[10, limit - 1]])})
        assert with_count_limits(bind(endless, {"y": 0.0})).limits == ()


@pytest.mark.slow
def test_exact_sums_over_a_number_and_what_is_left_of_it() -> None:
    tree = bl.fit(0, survivors, {"y": 5}, bl.Exact(4000), progress=False)
    assert tree.attrs["log_evidence"] == pytest.approx(stats.poisson.logpmf(5, 4.8), abs=1e-11)
    assert tree.attrs["summed_up_to"] == "n: 64, s: 64"
    mean = float(tree.posterior["n"].mean())
    assert mean == pytest.approx(5 + 12 * 0.6, abs=5 * (12 * 0.6 / 4000) ** 0.5)
    assert "summed over up to 64" in str(bl.explain(survivors, {"y": 5}))


def test_chains_start_at_counts_of_the_type_of_the_site() -> None:
    """Those of a Geometric are floats in NumPyro, those of a NegativeBinomial integers."""
    with precision_scope():
        found = bind(waiting, {"y": np.array(4.0)})
        start = feasible_point(jax.random.PRNGKey(0), found)
        assert {name: value.dtype for name, value in start.items()} == {n: found.sites[n].dtype for n in ("n", "m")}
    drawn = bl.fit(0, waiting, {"y": np.array(4.0)}, bl.Gibbs(num_samples=500, num_warmup=50), progress=False)
    counts = np.arange(200)
    density = stats.geom(0.2, loc=-1).pmf(counts) * stats.norm(counts, 2.0).pdf(4.0)
    n = drawn["posterior"]["n"].values
    assert n.mean() == pytest.approx(counts @ density / density.sum(), abs=4 * n.std() / n.size**0.5)
