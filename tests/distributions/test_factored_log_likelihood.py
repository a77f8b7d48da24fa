"""Evidence about states that is a product: all that an array of it gives, with nothing written out."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayeslab.distributions import FactoredLogLikelihood, MarkovChain

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


class Case(NamedTuple):
    """rows: (*batch, T, column). parameters: (*batch, K, column)."""

    initial: Any
    transition: Any
    rows: Any
    parameters: Any
    lengths: Any = None


def case(batch: tuple[int, ...], steps: int, states: int, own: bool = False, lengths: Any = None) -> Case:
    """own: every sequence has parameters of its own. Some rows are missing."""
    x = 2.0 * RNG.normal(size=(*batch, steps))
    rows = np.stack([np.ones_like(x), x, x**2], -1) * (RNG.random((*batch, steps, 1)) < 0.9)
    lead = batch if own else ()
    parameters = RNG.normal(size=(*lead, states, 3)) - [0.0, 0.0, 1.5]
    transition = RNG.dirichlet(np.ones(states), (*lead, states))
    return Case(RNG.dirichlet(np.ones(states), lead), transition, rows, parameters, lengths)


CASES = {
    "one long": case((), 1000, 3),
    "many": case((20,), 101, 4),
    "of different length, with their own parameters": case((3,), 500, 2, own=True, lengths=np.array([500, 77, 1])),
    "the same rows for all": case((3,), 500, 2, own=True)._replace(rows=case((), 500, 2).rows),
    "the same rows for some": case((2, 3), 90, 2, own=True)._replace(rows=case((2, 1), 90, 2).rows),
    "one state": case((), 200, 1),
    "short": case((2,), 7, 3),
}
FEW = ("one long", "of different length, with their own parameters")
every_case = pytest.mark.parametrize(
    "name", [n if n in FEW else pytest.param(n, marks=pytest.mark.slow) for n in CASES]
)


def chain_of(initial: Any, transition: Any, one: Case) -> MarkovChain:
    return MarkovChain(initial, transition, one.rows.shape[-2], lengths=one.lengths, validate_args=False)


def as_array(rows: Any, parameters: Any) -> Any:
    return jnp.einsum("...tc,...kc->...tk", rows, parameters)


WAYS = (FactoredLogLikelihood.of, as_array)
"""Evidence from rows and parameters."""


def log_marginal(one: Case, way: Any, initial: Any, transition: Any, rows: Any, parameters: Any) -> Any:
    found = chain_of(initial, transition, one).log_marginal(way(rows, parameters))
    return (found * jnp.arange(1.0, found.size + 1).reshape(found.shape)).sum()


def require_equal(found: Any, expected: Any, rtol: float = 1e-10, atol: float = 1e-11) -> None:
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


@every_case
def test_values_and_derivatives_are_those_of_an_array(name: str) -> None:
    """With respect to rows as well."""
    one = CASES[name]
    both = [jax.jit(jax.value_and_grad(partial(log_marginal, one, way), range(4)))(*one[:4]) for way in WAYS]
    require_equal(*both, atol=1e-9)


@pytest.mark.parametrize("name", [FEW[1], pytest.param(FEW[0], marks=pytest.mark.slow)])
def test_second_derivatives_are_those_of_an_array(name: str) -> None:
    one = CASES[name]

    def curved(way: Any) -> Any:
        def gradient(*given: Any) -> Any:
            initial, transition, parameters = given
            return jax.grad(partial(log_marginal, one, way), (0, 1, 3))(initial, transition, one.rows, parameters)

        given = one.initial, one.transition, one.parameters
        return jax.jit(lambda *given: jax.jvp(gradient, given, given)[1])(*given)

    require_equal(*map(curved, WAYS), rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("name", [FEW[1], *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if n != FEW[1])])
def test_what_it_says_of_states_is_that_of_an_array(name: str) -> None:
    one = CASES[name]
    chain = chain_of(one.initial, one.transition, one)

    @jax.jit
    def said(evidence: Any) -> Any:
        q = chain.condition(evidence)
        drawn = q.sample(jax.random.PRNGKey(0)), q.sample(jax.random.PRNGKey(0), (2,))
        averages = (
            q.marginals(),
            q.entropy(),
            chain.expected_log_prob(q),
            chain.expected_log_prob(q.with_cached_expectations()),
        )
        states = chain.smoothed(evidence), chain.filtered(evidence), chain.predicted(evidence)
        return states, chain.most_probable_path(evidence), averages, drawn

    require_equal(*(said(way(one.rows, one.parameters)) for way in WAYS))


@every_case
def test_expected_rows_are_sums_over_smoothed_states(name: str) -> None:
    one = CASES[name]
    chain, evidence = chain_of(one.initial, one.transition, one), FactoredLogLikelihood.of(one.rows, one.parameters)
    q = chain.condition(evidence)
    expected = jnp.einsum("...tk,...tc->...kc", chain.smoothed(evidence.array()), one.rows)
    require_equal(q.expected_rows(), expected)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("lead", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_rows_are_shared_by_what_is_mapped(lead: int) -> None:
    """Several chains, and several data sets, laid out before they are mapped, or while."""
    one = case((), 300, 3)
    parameters, rows = RNG.normal(size=(lead, 3, 3)) - [0.0, 0.0, 1.5], RNG.normal(size=(lead, 300, 3))

    def value(evidence: FactoredLogLikelihood, parameters: Any) -> Any:
        chain = chain_of(one.initial, one.transition, one)
        slope = jax.value_and_grad(lambda p: chain.log_marginal(evidence.with_parameters(p)))(parameters)
        return slope, chain.smoothed(evidence.with_parameters(parameters))

    def expected(rows: Any, parameters: Any) -> Any:
        return value(FactoredLogLikelihood.of(rows, parameters), parameters)

    shared = FactoredLogLikelihood.of(one.rows, parameters[0])
    one_by_one = [expected(one.rows, each) for each in parameters]
    require_equal(
        jax.jit(jax.vmap(value, (None, 0)))(shared, parameters), jax.tree.map(lambda *x: np.stack(x), *one_by_one)
    )
    one_by_one = [expected(*each) for each in zip(rows, parameters, strict=True)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *one_by_one)
    require_equal(jax.jit(jax.vmap(expected))(rows, parameters), stacked)
    laid = jax.vmap(FactoredLogLikelihood.of)(rows, parameters)
    require_equal(jax.jit(jax.vmap(value))(laid, parameters), stacked)
    one_by_one = [expected(each, parameters[0]) for each in rows]
    require_equal(
        jax.jit(jax.vmap(expected, (0, None)))(rows, parameters[0]), jax.tree.map(lambda *x: np.stack(x), *one_by_one)
    )


def test_numbers_out_of_range_are_found_step_by_step() -> None:
    """The evidence is for states that cannot be reached, by any factor."""
    chain = MarkovChain([1.0, 0.0, 0.0], [[1.0, 0.0, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]], 100)
    evidence = FactoredLogLikelihood.of(np.ones((100, 1)), [[-300.0], [-200.0], [0.0]])
    np.testing.assert_allclose(chain.log_marginal(evidence), -300.0 * 100, rtol=1e-12)
    q = chain.condition(evidence)
    np.testing.assert_allclose(q.expected_rows(), [[100.0], [0.0], [0.0]], rtol=1e-12)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(q.sample(jax.random.PRNGKey(0)), 0)
    gradient = jax.grad(lambda p: chain.log_marginal(evidence.with_parameters(p)))(evidence.parameters)
    np.testing.assert_allclose(gradient, [[100.0], [0.0], [0.0]], rtol=1e-12)


def test_the_evidence_of_a_long_series_in_single_precision() -> None:
    one = case((), 100_000, 4)

    def value(dtype: Any) -> Any:
        initial, transition, rows, parameters = (np.asarray(x, dtype) for x in one[:4])
        chain, evidence = chain_of(initial, transition, one), FactoredLogLikelihood.of(rows, parameters)
        return jax.value_and_grad(lambda p: chain.log_marginal(evidence.with_parameters(p)))(parameters)

    found, exact = value(np.float32), value(np.float64)
    assert all(leaf.dtype == np.float32 for leaf in found)
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], exact[1], rtol=1e-5, atol=1.0)


def test_evidence_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"log_likelihood has shape \(5, 3\); expected \(5, 2\)"):
        MarkovChain(np.ones(2) / 2, np.ones((2, 2)) / 2, 5).log_marginal(
            FactoredLogLikelihood.of(np.ones((5, 1)), np.ones((3, 1)))
        )
