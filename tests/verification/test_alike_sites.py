"""Scalar sites under one test: each gets the verdict of its own test, and wrong rules are refused all the same."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import multivariate_normal

import bayeslab as bl
from bayeslab.elimination.conditional import Rule
from bayeslab.elimination.families import families_of
from bayeslab.elimination.terms import terms
from bayeslab.programs.binding import bind
from bayeslab.programs.program import compilation_signature, precision_scope
from bayeslab.programs.tracing.compilation import evaluate_all
from bayeslab.verification.identity import (
    ALL_PROBES,
    NO_PROBES,
    RESIDUAL_TOLERANCE,
    check_identity,
    identity_check,
    probe_noise,
)
from bayeslab.verification.points.probe_points import generic_points
from bayeslab.verification.scalars import alike_sites
from bayeslab.verification.scalars.alike_sites import _groups_of_alike_sites, verdicts_on

NUM_STATES = 8


def normals(bend: float) -> None:
    """Normals in a chain. bend: how much is said of the fourth power of the second."""
    level = jnp.zeros(())
    for index in range(4):
        level = numpyro.sample(f"level{index}", dist.Normal(level, 1.0 + index))
        numpyro.factor(f"seen{index}", -((level - 0.5 * index) ** 2) - (bend * level**4 if index == 1 else 0.0))


def rates(bend: float) -> None:
    """Gammas of counts, of different shapes. bend: the weight of the logarithm of two rates' sum."""
    rate = [numpyro.sample(f"rate{index}", dist.Gamma(2.0 + index, 1.0)) for index in range(3)]
    for index in range(3):
        numpyro.sample(f"count{index}", dist.Poisson(rate[index] * (1.0 + index)))
    numpyro.factor("both", bend * jnp.log(rate[0] + rate[1]))


def shares(bend: float) -> None:
    """Betas of counts. bend: the weight of the square of the second."""
    share = [numpyro.sample(f"share{index}", dist.Beta(1.0 + index, 2.0)) for index in range(3)]
    for index in range(3):
        numpyro.sample(f"count{index}", dist.Binomial(5, share[index]))
    numpyro.factor("square", bend * share[1] ** 2)


def signs(bend: float) -> None:
    """Binary sites, which hold whatever is said of them."""
    sign = [numpyro.sample(f"sign{index}", dist.Bernoulli(0.2 + 0.2 * index)) for index in range(3)]
    numpyro.sample("y", dist.Normal(sign[0] + 2.0 * sign[1] * sign[2] + bend * sign[0], 1.0))


COUNTS = {f"count{index}": 2 + index for index in range(3)}


@pytest.mark.parametrize("bend", [0.0, 1e-3])
@pytest.mark.parametrize(
    ("program", "data", "refused"),
    [
        (normals, {}, {"level1"}),
        (rates, COUNTS, {"rate0", "rate1"}),
        (shares, COUNTS, {"share1"}),
        (signs, {"y": 1.5}, set()),
    ],
)
def test_the_verdict_on_each_is_that_of_its_own_test(
    program: Any, data: dict[str, Any], refused: set[str], bend: float
) -> None:
    with precision_scope():
        bound = bind(program, {"bend": bend, **data})
        all_terms = terms(bound).terms
        rules = [Rule(name, families_of(prior)[0], (), ()) for name, prior in terms(bound).priors.items()]
        arguments = (*generic_points(bound)[1], probe_noise(bound), ALL_PROBES)
        together = verdicts_on(all_terms, rules, arguments)
        apart = evaluate_all([identity_check(all_terms, rule) for rule in rules], arguments)
    for rule, one, other in zip(rules, together, apart, strict=True):
        passes = bend == 0 or rule.site not in refused
        assert (one.residual <= RESIDUAL_TOLERANCE) == (other.residual <= RESIDUAL_TOLERANCE) == passes
        for field in ("middle", "possible"):
            assert getattr(one, field) == pytest.approx(getattr(other, field), rel=1e-6, abs=1e-9)
        if not passes:
            assert one.residual == pytest.approx(other.residual, rel=1e-3)


def chain(noise: float) -> None:
    """States that are seen, written as a loop."""
    state = jnp.zeros(())
    for index in range(NUM_STATES):
        state = numpyro.sample(f"state{index}", dist.Normal(state, 1.0))
        numpyro.sample(f"seen{index}", dist.Normal(state, noise))


def test_many_named_states_are_one_matrix() -> None:
    """The evidence of a chain of named states is the density of its data, and their means are those of the smoother."""
    seen = np.sin(np.arange(NUM_STATES))
    tree = bl.fit(0, chain, {"noise": 0.5, **{f"seen{i}": x for i, x in enumerate(seen)}}, bl.Exact(num_samples=500))
    steps = np.arange(1, NUM_STATES + 1)
    covariance = np.minimum.outer(steps, steps)
    of_data = covariance + 0.25 * np.eye(NUM_STATES)
    assert tree.attrs["log_evidence"] == pytest.approx(multivariate_normal(np.zeros(NUM_STATES), of_data).logpdf(seen))
    gain = covariance @ np.linalg.inv(of_data)
    deviation = np.sqrt(np.diag(covariance - gain @ covariance) / 500)
    means = [float(tree.posterior[f"state{index}"].mean()) for index in range(NUM_STATES)]
    assert np.all(np.abs(means - gain @ seen) < 5 * deviation)


def test_sites_of_other_layouts_are_apart() -> None:
    """Sites with other choices, and too few of a kind, are not tested together."""

    def program() -> None:
        die = [numpyro.sample(f"die{k}", dist.Categorical(jnp.ones(3) / 3)) for k in range(3)]
        coin = [numpyro.sample(f"coin{k}", dist.Bernoulli(0.5)) for k in range(2)]
        rate = numpyro.sample("rate", dist.Gamma(1.0, 1.0))
        numpyro.sample("y", dist.Normal(sum(die) + sum(coin), rate))

    with precision_scope():
        bound = bind(program, {"y": 1.0})
        groups = _groups_of_alike_sites(terms(bound).terms, compilation_signature(bound))
    assert [group.names for group in groups] == [("die0", "die1", "die2")]


def test_without_probes_there_is_a_middle_and_no_verdict() -> None:
    """What is asked for no more than the middle of a conditional passes for no proof."""
    with precision_scope():
        bound = bind(normals, {"bend": 0.0})
        all_terms, noise = terms(bound).terms, probe_noise(bound)
        rule = Rule("level0", families_of(terms(bound).priors["level0"])[0], (), ())
        point = generic_points(bound)[1]
        [proven], [asked] = (
            evaluate_all([identity_check(all_terms, rule)], (*point, noise, number))
            for number in (ALL_PROBES, NO_PROBES)
        )
    assert proven.residual <= RESIDUAL_TOLERANCE
    assert np.isnan(asked.residual)
    assert asked.middle == proven.middle


def test_a_test_of_alike_sites_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing takes longer than running it; the shapes of the verdict used to be traced for themselves."""
    calls = []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return check_identity(*arguments)

    monkeypatch.setattr(alike_sites, "check_identity", counted)
    with precision_scope():
        bound = bind(normals, {"bend": 0.25})
        rules = [Rule(name, families_of(prior)[0], (), ()) for name, prior in terms(bound).priors.items()]
        alike_sites._check_of_alike_sites.cache_clear()
        verdicts = verdicts_on(terms(bound).terms, rules, (*generic_points(bound)[1], probe_noise(bound), ALL_PROBES))
    assert len(verdicts) == 4
    assert len(calls) == 1
