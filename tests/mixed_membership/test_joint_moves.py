"""Ancestry and frequencies moved together: volumes, the way back, what is learned of the density, the posterior."""

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayeslab.mixed_membership.dirichlet import Priors
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape, pack
from bayeslab.mixed_membership.genotypes.ancestry_proposals import AncestryExpansion, expand_ancestry
from bayeslab.mixed_membership.genotypes.frequency_proposals import FrequencyExpansion, expand_frequencies
from bayeslab.mixed_membership.genotypes.joint_moves import (
    JointMoves,
    exchange_shares,
    expand_joint_moves,
    joint_metropolis_step,
)
from bayeslab.mixed_membership.genotypes.records import Genotypes, Position
from bayeslab.mixed_membership.genotypes.transport import proposal_curvatures, transport_points
from bayeslab.mixed_membership.genotypes.truncated_normal import MIN_FREE_DISTANCE, in_cube, on_simplex, overrelaxed
from bayeslab.programs.program import precision_scope
from proposals import in_the_middle, proposals, proposals_in_a_cube
from quick_cases import quick_ones

Array = np.ndarray[Any, Any]


def halves(size: int, scale: float = 0.05) -> tuple[Array, Array]:
    """Matrices whose columns sum to 1, and that take each other back."""
    shares = np.random.default_rng(5).normal(size=(size, size)) * scale
    np.fill_diagonal(shares, 0.0)
    shares -= np.diag(shares.sum(0))
    with precision_scope():
        return tuple(np.asarray(jax.scipy.linalg.expm(sign * jnp.asarray(shares))) for sign in (-1, 1))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "held"),
    quick_ones(
        product([proposals, proposals_in_a_cube], [False, True]), (proposals, True), (proposals_in_a_cube, False)
    ),
)
def test_points_are_carried_back_and_volumes_are_known(kind: Any, held: bool) -> None:
    """By automatic differentiation of what is free."""
    with precision_scope():
        proposal = kind()
        at, *_ = overrelaxed(jax.random.key(0), proposal, in_the_middle(proposal), jnp.zeros(()))
        if held:
            at = at.at[0].set(MIN_FREE_DISTANCE / 3)
            at = at.at[-1].add(1 - at.sum(0)) if proposal.simplex else at
        first, second = map(jnp.asarray, halves(len(proposal.order)))
        run = jax.jit(transport_points)
        new, shrunk, returns = run(proposal, (first, second), at)
        again, grown, _ = run(proposal, (second, first), new)
        assert returns.sum() >= 4  # one may come near to a side
        np.testing.assert_allclose(again[:, returns], at[:, returns], atol=1e-7)
        np.testing.assert_allclose(grown[returns], -shrunk[returns], atol=1e-5)
        drawn = proposal.order[-1] != 0 if proposal.simplex else np.ones(5, bool)
        np.testing.assert_array_equal((new[0] == at[0])[drawn], held)
        free = slice(1 if held else 0, len(at) - 1 if proposal.simplex else len(at))

        def along(x: Any) -> Any:
            whole = at.at[free].set(x)
            whole = whole.at[-1].set(1 - whole[:-1].sum(0)) if proposal.simplex else whole
            return transport_points(proposal, (first, second), whole)[0][free]

        moved = jnp.einsum("injn->nij", jax.jit(jax.jacfwd(along))(at[free]))
        volume = jnp.linalg.slogdet(moved)[1]
        known = jnp.isfinite(volume) & (drawn | (not held))  # what a side presses flat has no derivative
        assert known.sum() >= 3
        np.testing.assert_allclose(volume[known], -shrunk[known], atol=1e-6)


def test_points_inside_follow_the_matrix() -> None:
    at = np.array([[0.3, 0.3, 0.4], [0.2, 0.5, 0.3]]).T
    curvature = 1e5 * (np.eye(3) + 0.3)[:, :, None] * np.ones(2)
    first, second = halves(3, 0.002)
    points = at + np.array([[0.003, 0.001, -0.004], [-0.001, -0.002, 0.003]]).T
    with precision_scope():
        for proposal, there in (
            (on_simplex(jnp.asarray(at), jnp.asarray(curvature)), points),
            (in_cube(jnp.asarray(at), jnp.asarray(curvature)), points + 0.001),
        ):
            matrices = (first, second) if proposal.simplex else (second, first)
            new, shrunk, _ = jax.jit(transport_points)(proposal, matrices, jnp.asarray(there))
            np.testing.assert_allclose(new, np.linalg.solve(matrices[0], matrices[1] @ there), atol=1e-6)
            determinant = np.linalg.slogdet(matrices[1])[1] - np.linalg.slogdet(matrices[0])[1]
            np.testing.assert_allclose(shrunk, -determinant, atol=1e-6)
            whole, left = jax.jit(proposal_curvatures)(proposal, jnp.asarray(there))
            np.testing.assert_allclose(left, whole, atol=1e-4 * np.abs(whole).max())


def known_about(
    q: Any, p: Any, data: Any, shape: GenotypeShape, prior: Priors
) -> tuple[AncestryExpansion, FrequencyExpansion, JointMoves]:
    def found(q: Any, p: Any, data: Any, prior: Priors) -> tuple[AncestryExpansion, FrequencyExpansion, JointMoves]:
        about = expand_ancestry(q, p, data, shape, prior.weights)
        loci = expand_frequencies(p, q, data, shape, prior.components)
        return about, loci, expand_joint_moves(q, p, about, loci, prior.is_allele)

    return jax.jit(found)(q, p, data, prior)


def moves(y: Array, q: Array, p: Array, keys: range) -> tuple[JointMoves, list[tuple[Any, ...]]]:
    """From one place with these keys, which learn, about that place."""
    shape = GenotypeShape(*y.shape, alleles=2, populations=q.shape[1])
    with precision_scope():
        data = pack(jnp.asarray(y.astype(np.uint8)), jnp.ones(y.shape, bool), shape)
        ancestry, frequencies = jnp.asarray(q, jnp.float32), jnp.asarray(np.stack([1 - p, p], -1), jnp.float32)
        prior = Priors(jnp.ones_like(ancestry), jnp.ones_like(frequencies), jnp.ones((y.shape[1], 2), bool))
        about, loci, joint_moves = known_about(ancestry, frequencies, data, shape, prior)
        position, proposals = Position(ancestry, frequencies), (about.proposal, loci.proposal)
        of = proposals, Genotypes(data, shape), prior
        step = jax.jit(lambda key, joint_moves: joint_metropolis_step(key, position, joint_moves, *of))
        found = []
        for key in keys:
            (q_new, p_new), joint_moves, gained, taken = step(jax.random.key(key), joint_moves)
            found.append((np.asarray(q_new), np.asarray(p_new), float(gained), bool(taken)))
    return joint_moves, found


@pytest.mark.slow
def test_moves_gain_what_they_say_and_find_the_top() -> None:
    """The top of shares, as seen from one place, is the same from moves with other keys."""
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.full(3, 3.0), 100), rng.uniform(0.1, 0.9, (3, 1500))
    y = (rng.random((100, 1500, 2)) < (q @ p)[..., None]).astype(int)
    (joint_moves, found), (other, _) = (moves(y, q, p, keys) for keys in (range(60), range(60, 120)))
    number = y.sum(-1)

    def log_likelihood(q: Array, p: Array) -> float:
        mean = np.clip(q.astype(float) @ p, 1e-9, 1 - 1e-9)
        return float((number * np.log(mean) + (2 - number) * np.log1p(-mean)).sum())

    before = log_likelihood(q.astype(np.float32), p.astype(np.float32))
    taken = [one for one in found if one[3]]
    assert len(taken) > 5
    for new_q, new_p, gained, _ in taken[:5]:
        assert np.abs(new_q - q).max() > 1e-4
        assert log_likelihood(new_q, new_p[..., 1].astype(float)) - before == pytest.approx(gained, abs=0.02)
    variance = (np.diag(joint_moves.covariance) + np.diag(other.covariance))[joint_moves.slow]
    assert (np.abs(joint_moves.mode - other.mode)[joint_moves.slow] < 4.5 * np.sqrt(variance)).all()
    known = np.sqrt(np.diag(joint_moves.covariance))[joint_moves.slow]
    assert len(known) > 0
    assert (known < 1).all()  # of sqrt(10) before


def few(y: Array, there: Array, weights: float, components: tuple[float, float]) -> tuple[Any, ...]:
    """Data of few genotypes with two populations, Dirichlet parameters, and proposals as of all of them."""
    shape, rng = GenotypeShape(*y.shape, alleles=2, populations=2), np.random.default_rng(1)
    q, p = rng.dirichlet([2, 2], len(y)), rng.uniform(0.2, 0.8, (2, y.shape[1]))
    seen, some = (pack(jnp.asarray(y), jnp.asarray(one), shape) for one in (np.ones(y.shape, bool), there))
    alpha, beta = jnp.full(q.shape, weights, jnp.float32), jnp.full((*p.shape, 2), jnp.array(components, jnp.float32))
    prior = Priors(alpha, beta, jnp.ones((y.shape[1], 2), bool))
    middle = jnp.asarray(q, jnp.float32), jnp.asarray(np.stack([1 - p, p], -1), jnp.float32)
    return middle, *known_about(*middle, seen, shape, prior), some, shape, prior


def test_what_a_move_finds_is_the_log_posterior_and_the_volume() -> None:
    """The second by automatic differentiation."""
    y = np.random.default_rng(1).integers(0, 2, (4, 6, 2)).astype(np.uint8)
    with precision_scope():
        (q, p), about, loci, _, data, shape, prior = few(y, np.ones(y.shape, bool), 2.0, (2.0, 1.5))
        of = jnp.array([0.2, -0.1]), (about.proposal, loci.proposal), Genotypes(data, shape), prior

        def free(both: Any) -> Any:
            one, of_loci = both[:4, None], both[4:].reshape(2, 6)
            position = Position(jnp.concatenate([one, 1 - one], 1), jnp.stack([1 - of_loci, of_loci], -1))
            (q, p), *rest = exchange_shares(position, *of)
            return jnp.concatenate([q[:, 0], p[..., 1].ravel()]), (q, p, *rest)

        at = jnp.concatenate([q[:, 0], p[..., 1].ravel()])
        moved, (new_q, new_p, _, found) = jax.jit(jax.jacfwd(free, has_aux=True))(at)
    both = ((np.asarray(q), np.asarray(p)), (np.asarray(new_q), np.asarray(new_p)))
    second = y.sum(2)

    def log_posterior(q: Array, p: Array) -> float:
        mean = q.astype(float) @ p[..., 1].astype(float)
        powers = np.log(q).sum() + np.log(p[..., 0]).sum() + 0.5 * np.log(p[..., 1]).sum()
        return float((second * np.log(mean) + (2 - second) * np.log1p(-mean)).sum() + powers)

    volume = np.linalg.slogdet(np.asarray(moved, float))[1]
    assert abs(volume) > 0.1
    assert float(found) == pytest.approx(log_posterior(*both[1]) - log_posterior(*both[0]) + volume, abs=1e-3)


def test_moves_leave_the_prior_alone() -> None:
    """Draws of it, with proposals of other data, and their moves have the same moments, and no direction in time."""
    number, rng = 40_000, np.random.default_rng(1)
    y = rng.integers(0, 2, (4, 6, 2)).astype(np.uint8)
    q, p = rng.dirichlet([2, 2], (number, 4)), rng.beta(1.5, 2, (number, 2, 6))
    with precision_scope():
        _, about, loci, joint_moves, data, shape, prior = few(y, np.zeros(y.shape, bool), 2.0, (2.0, 1.5))
        joint_moves = joint_moves._replace(slow=jnp.ones(2, bool), mode=jnp.array([0.3, -0.4]), angle=jnp.array(0.3))
        given = joint_moves, (about.proposal, loci.proposal), Genotypes(data, shape), prior
        tables = jnp.asarray(np.stack([1 - p, p], -1), jnp.float32)
        each = jax.random.split(jax.random.key(2), number), Position(jnp.asarray(q, jnp.float32), tables)
        run = jax.jit(lambda each: jax.lax.map(lambda one: joint_metropolis_step(*one, *given), each))
        (new_q, new_p), _, _, taken = run(each)
    assert 0.2 < np.asarray(taken).mean() < 0.9
    old, new = (
        np.concatenate([a[..., 0], b[:, 0, :, 1], b[:, 1, :, 1]], 1).astype(float)
        for a, b in ((q, np.asarray(tables)), (np.asarray(new_q), np.asarray(new_p)))
    )

    def laws(one: Array) -> Array:
        return np.concatenate([one, one**2, one[:, :4] * one[:, 4:8], np.log(one), one**2 * one.mean(1)[:, None]], 1)

    for gap in (laws(new) - laws(old), old[:, :, None] * new[:, None] ** 2 - new[:, :, None] * old[:, None] ** 2):
        means, errors = gap.mean(0), gap.std(0) / np.sqrt(number)
        assert (np.abs(means) < 4.5 * errors).all()
