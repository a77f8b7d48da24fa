"""Exponential families, one row each: which sites have them, how their coefficients are read, what they build.

As a function of its value x, the log density of a conjugate site together with its children is eta . t(x) + constant.
Its gradient is linear in eta, so gradients at two points give eta: nobody does algebra. Whether the function has this
form at all is not decided here but proven in `proof.py`.

To support a distribution of your own, give its class an attribute `family`, a `Family` with `read` and `build`; `two`
makes one from two scalar statistics.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from bayeslab.distributions import (
    Beta,
    Dirichlet,
    Gamma,
    InverseGamma,
    LinearGaussianChain,
    MarkovChain,
    PaddedDirichlet,
    Wishart,
    WishartCholesky,
)
from bayeslab.distributions.markov.log_likelihoods import Evidence, ProductEvidence
from bayeslab.elimination import cubature
from bayeslab.elimination.family import Family, Local, gradients_at, two
from bayeslab.elimination.matrix_families import (
    TINY,
    inverse_wishart,
    inverse_wishart_mode,
    log_determinant,
    of_cholesky,
    read_inverse_wishart,
    read_wishart,
    symmetric,
    wishart,
    wishart_cholesky_mode,
    wishart_mode,
)
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.programs.program import of_elements, unwrapped


def _read_chain(local: Local, at: Array, prior: Distribution) -> Evidence:
    """What the children say of every state at every step, (*batch, step, state)."""
    if isinstance(local.known, ProductEvidence):
        return local.known
    shape, states = prior.shape(), jnp.arange(unwrapped(prior).num_states)
    found = jax.vmap(lambda state: local.likelihood(jnp.full(shape, state)), out_axes=-1)(states)
    return found if local.known is None else found + local.known


def _chain_evidence(eta: Evidence, prior: Distribution) -> Array:
    """A masked prior is 1 for every path. What it leaves is a chain only where all paths are equally likely."""
    chain = unwrapped(prior)
    found = chain.log_marginal(eta)
    while isinstance(prior, dist.ExpandedDistribution | dist.Independent):
        prior = prior.base_dist
    if not isinstance(prior, dist.MaskedDistribution):
        return found
    anywhere = jnp.zeros(prior.shape(), int)
    return found - jnp.where(prior._mask, 0.0, jax.tree.map(jnp.asarray, chain).log_prob(anywhere))


def _of_probabilities(change: Callable[[Array], Array], chain: Any) -> Any:
    """A chain with its probabilities changed, and not its integers."""
    return jax.tree.map(lambda leaf: change(leaf) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, chain)


def _read_linear_gaussian_chain(local: Local, at: Array, prior: Distribution) -> tuple[Array, Array]:
    """J (*batch, step, d, d) and h (*batch, step, d) of the children: their Hessian has a block for every step."""
    slope, change = jax.linearize(jax.grad(lambda x: local.likelihood(x).sum()), at)
    units = jnp.eye(at.shape[-1], dtype=at.dtype)
    precision = -jax.vmap(lambda unit: change(jnp.broadcast_to(unit, at.shape)), out_axes=-1)(units)
    return symmetric(precision), slope + (precision @ at[..., None])[..., 0]


def _read_process(local: Local, at: Array, prior: Distribution) -> tuple[Array, Array, Array]:
    """Of what the children say of every value by itself: precision, linear coefficient (*batch, row), sum at its peak.

    At the peak nothing cancels, however precise the children are.
    """
    slope, curvature = jax.jvp(jax.grad(lambda x: local.likelihood(x).sum()), (at,), (jnp.ones_like(at),))
    known = curvature < 0
    peak = jnp.where(known, at - slope / jnp.where(known, curvature, 1.0), at)
    return -curvature, slope - curvature * at, local.likelihood(peak).sum(-1)


TRUNCATED = (
    dist.HalfNormal,
    dist.LeftTruncatedDistribution,
    dist.RightTruncatedDistribution,
    dist.TwoSidedTruncatedDistribution,
    dist.Uniform,
)


def _read_dirichlet(local: Local, at: Array, prior: Distribution) -> Array:
    """x_j dg/dx_j = eta_j + c x_j, where c is what the program does off the simplex; two points give c."""
    size, inner = at.shape[-1], unwrapped(prior)
    real = inner.real if isinstance(inner, PaddedDirichlet) else jnp.ones(size)
    tilt = real * (1 + 0.5 * (-1.0) ** jnp.arange(size) * jnp.linspace(0.5, 1.0, size))
    x, y = (jnp.broadcast_to(one / one.sum(-1, keepdims=True), at.shape) for one in (real, tilt))
    gx, gy = gradients_at(local.density, x, y)
    hx, hy = x * gx, y * gy
    # hx - hy = c x - d y for unknown c, d: least squares over the event
    change = hx - hy
    xx, xy, yy = ((one * other).sum(-1, keepdims=True) for one, other in ((x, x), (x, y), (y, y)))
    right_x, right_y = ((change * one).sum(-1, keepdims=True) for one in (x, y))
    c = (right_x * yy - right_y * xy) / (xx * yy - xy**2) if size > 1 else jnp.zeros_like(at)
    return hx - c * x


def _beta(eta: tuple[Array, Array], prior: Distribution) -> Distribution:
    """A Beta, unless the prior is a Uniform over another interval."""
    low, high = (getattr(prior.support, name, unit) for name, unit in (("lower_bound", 0.0), ("upper_bound", 1.0)))
    inside = (low == 0.0) & (high == 1.0)
    return Beta(jnp.where(inside, eta[0] + 1, jnp.nan), jnp.where(inside, eta[1] + 1, jnp.nan))


def _truncated(eta: tuple[Array, Array], prior: Distribution) -> Distribution:
    """A Normal between the bounds of the prior's support."""
    linear, quadratic = eta
    precision = -2 * quadratic
    support = of_elements(prior.support)
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    return dist.TruncatedNormal(linear / precision, 1 / jnp.sqrt(precision), low=low, high=high)


def _gamma_mode(q: Any) -> Array:
    return jnp.maximum(q.concentration - 1, TINY) / q.rate


def _dirichlet(eta: Any, prior: Distribution) -> Dirichlet:
    inner = unwrapped(prior)
    return PaddedDirichlet(eta + 1, inner.sizes) if isinstance(inner, PaddedDirichlet) else Dirichlet(eta + 1)


def _dirichlet_mode(q: Any) -> Array:
    above = jnp.where(q.concentration > 0, jnp.maximum(q.concentration - 1, TINY), 0.0)
    return above / above.sum(-1, keepdims=True)


def _beta_mode(q: Any) -> Array:
    above, below = (jnp.maximum(one - 1, TINY) for one in (q.concentration1, q.concentration0))
    return above / (above + below)


def _truncated_mode(q: Any) -> Array:
    low, high = (getattr(q.support, name, None) for name in ("lower_bound", "upper_bound"))
    return jnp.clip(q.base_dist.loc, low, high)


FAMILIES = (
    two(
        "Gamma",
        lambda x: (jnp.log(x), -x),
        lambda eta, _: Gamma(eta[0] + 1, eta[1]),
        (dist.Gamma, dist.Exponential, dist.Chi2),
        _gamma_mode,
        cubature.of_gamma,
    ),
    two(
        "InverseGamma",
        lambda x: (-jnp.log(x), -1 / x),
        lambda eta, _: InverseGamma(eta[0] - 1, eta[1]),
        (dist.InverseGamma,),
        lambda q: q.rate / (q.concentration + 1),
        cubature.of_inverse_gamma,
    ),
    two(
        "Beta",
        lambda x: (jnp.log(x), jnp.log1p(-x)),
        _beta,
        (dist.Beta, dist.Uniform),
        _beta_mode,
        cubature.of_beta,
    ),
    Family(
        "Dirichlet",
        _read_dirichlet,
        _dirichlet,
        (dist.Dirichlet, PaddedDirichlet),
        lambda x: jnp.log(jnp.where(x > 0, x, 1.0)),
        _dirichlet_mode,
        cubature.of_dirichlet,
    ),
    Family(
        "Wishart",
        read_wishart,
        lambda eta, _: wishart(eta, Wishart),
        (dist.Wishart,),
        lambda x: (log_determinant(x), -x),
        wishart_mode,
        cubature.of_wishart,
    ),
    Family(
        "WishartCholesky",
        of_cholesky(read_wishart),
        lambda eta, _: wishart(eta, WishartCholesky),
        (dist.WishartCholesky,),
        mode=wishart_cholesky_mode,
        points=cubature.of_wishart_cholesky,
    ),
    Family(
        "InverseWishart",
        read_inverse_wishart,
        lambda eta, _: inverse_wishart(eta, dist.InverseWishart),
        (dist.InverseWishart,),
        lambda x: (-log_determinant(x), -jnp.linalg.inv(x)),
        inverse_wishart_mode,
        cubature.of_inverse_wishart,
    ),
    two("TruncatedNormal", lambda x: (x, x**2), _truncated, TRUNCATED, _truncated_mode, cubature.of_truncated_normal),
    Family(
        "MarkovChain",
        _read_chain,
        lambda eta, prior: unwrapped(prior).condition(eta),
        (MarkovChain,),
        mode=lambda q: q.mode(),
        expected=lambda p, q: p.expected_log_prob(q),
        linear=(lambda p: _of_probabilities(jnp.log, p), lambda logs: _of_probabilities(jnp.exp, logs)),
        evidence=_chain_evidence,
    ),
    Family(
        "LinearGaussianChain",
        _read_linear_gaussian_chain,
        lambda eta, prior: unwrapped(prior).condition(*eta),
        (LinearGaussianChain,),
        mode=lambda q: q.mode(),
        points=cubature.of_linear_gaussian_chain,
        linear=(lambda p: p.coefficients(), LinearGaussianChain.from_coefficients),
    ),
    Family(
        "GaussianProcess",
        _read_process,
        lambda eta, prior: unwrapped(prior).condition(*eta[:2]),
        (GaussianProcess,),
        mode=lambda q: q.mean,
        evidence=lambda eta, prior: unwrapped(prior).log_marginal(*eta[:2]) + eta[2],
    ),
)
