"""Families of conditionals, one row each: which sites have them, how their coefficients are read, what they build.

As a function of its value x, the log density of a conjugate site together with its children is eta . t(x) + constant.
Its gradient is linear in eta, so gradients at two points give eta: nobody does algebra. Whether the function has this
form at all is not decided here but proven in `bayeslab.verification.findings`.

To support a distribution of your own, give its class an attribute `family`, a `Family` with `read` and `build`;
`two_statistics_family` makes one from two scalar statistics.
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
    LinearChainCRF,
    LinearGaussianChain,
    MarkovChain,
    PaddedDirichlet,
    Wishart,
    WishartCholesky,
)
from bayeslab.distributions.mixing.truncated_normal import TruncatedNormal
from bayeslab.elimination import cubature
from bayeslab.elimination.around import (
    around_choices,
    around_joint,
    around_matrix,
    around_mean,
    around_middle,
    around_paths,
)
from bayeslab.elimination.chain_families import (
    chain_log_evidence,
    map_probabilities,
    read_chain,
    read_linear_gaussian_chain,
    read_process,
)
from bayeslab.elimination.family import Family, Local, gradients_at, two_statistics_family
from bayeslab.elimination.family_priors import FLAT_FAMILIES, NORMAL_PRIORS, TRUNCATED_NORMAL_PRIORS
from bayeslab.elimination.matrix_families import (
    MIN_MODE,
    build_inverse_wishart,
    build_wishart,
    inverse_wishart_mode,
    log_determinant,
    read_by_cholesky,
    read_inverse_wishart,
    read_wishart,
    wishart_cholesky_mode,
    wishart_mode,
)
from bayeslab.elimination.mixing.generalised_inverse_gaussian import GENERALISED_INVERSE_GAUSSIAN
from bayeslab.elimination.mixing.polya_gamma import POLYA_GAMMA
from bayeslab.elimination.terms import Prior
from bayeslab.gaussian_processes import GaussianProcess
from bayeslab.programs.wrapped_distributions import elementwise_constraint, innermost_distribution


def _read_dirichlet(local: Local, point: Array, prior: Distribution) -> Array:
    """The coefficients eta of log x: x_j dg/dx_j = eta_j + c x_j, where two points give c.

    c is what the program does off the simplex.
    """
    size, inner = point.shape[-1], innermost_distribution(prior)
    is_present = inner.real if isinstance(inner, PaddedDirichlet) else jnp.ones(size)
    tilt = is_present * (1 + 0.5 * (-1.0) ** jnp.arange(size) * jnp.linspace(0.5, 1.0, size))
    x, y = (jnp.broadcast_to(vector / vector.sum(-1, keepdims=True), point.shape) for vector in (is_present, tilt))
    gx, gy = gradients_at(local.density, x, y)
    hx, hy = x * gx, y * gy
    # hx - hy = c x - d y for unknown c, d: least squares over the event
    change = hx - hy
    xx, xy, yy = ((first * second).sum(-1, keepdims=True) for first, second in ((x, x), (x, y), (y, y)))
    right_x, right_y = ((change * vector).sum(-1, keepdims=True) for vector in (x, y))
    determinant = xx * yy - xy**2  # zero where there is one entry, which is 1
    c = jnp.where(determinant > 0, (right_x * yy - right_y * xy) / jnp.where(determinant > 0, determinant, 1.0), 0.0)
    return hx - c * x


def _build_beta(eta: tuple[Array, Array], prior: Distribution) -> Distribution:
    """A Beta; not a number where the prior is a Uniform over another interval than (0, 1)."""
    low, high = (getattr(prior.support, name, unit) for name, unit in (("lower_bound", 0.0), ("upper_bound", 1.0)))
    inside = (low == 0.0) & (high == 1.0)
    return Beta(jnp.where(inside, eta[0] + 1, jnp.nan), jnp.where(inside, eta[1] + 1, jnp.nan))


def _build_truncated_normal(eta: tuple[Array, Array], prior: Distribution) -> Distribution:
    """A Normal between the bounds of the prior's support."""
    linear, quadratic = eta
    precision = -2 * quadratic
    support = elementwise_constraint(prior.support)
    low, high = getattr(support, "lower_bound", None), getattr(support, "upper_bound", None)
    return TruncatedNormal(linear / precision, 1 / jnp.sqrt(precision), low=low, high=high)


def _gamma_mode(q: Any) -> Array:
    return jnp.maximum(q.concentration - 1, MIN_MODE) / q.rate


def _build_dirichlet(eta: Any, prior: Distribution) -> Dirichlet:
    inner = innermost_distribution(prior)
    return PaddedDirichlet(eta + 1, inner.sizes) if isinstance(inner, PaddedDirichlet) else Dirichlet(eta + 1)


def _dirichlet_mode(q: Any) -> Array:
    above = jnp.where(q.concentration > 0, jnp.maximum(q.concentration - 1, MIN_MODE), 0.0)
    return above / above.sum(-1, keepdims=True)


def _beta_mode(q: Any) -> Array:
    above, below = (jnp.maximum(concentration - 1, MIN_MODE) for concentration in (q.concentration1, q.concentration0))
    return above / (above + below)


def _normal_points(q: Any) -> Array:
    return cubature.of_normal(q) if isinstance(q, dist.Normal) else cubature.of_joint_normal(q)


def _normal_from_uniform(q: Any, uniform: Array) -> Array:
    normal = jax.scipy.special.ndtri(uniform)
    return q.mean + q.scale * normal if isinstance(q, dist.Normal) else q.from_noise(normal.reshape(q.loc.shape))


def _enumerated_from_uniform(q: Any, uniform: Array) -> Array:
    inner = innermost_distribution(q)
    return inner.from_uniform(uniform.reshape(inner.batch_shape))


def _enumerated_mode(q: Any) -> Array:
    inner = innermost_distribution(q)
    return inner.choices[jnp.argmax(inner.logits, axis=-1)]


def _positive_fields(value: Callable[[Any], Array]) -> dict[str, Any]:
    """Fields of a family of positive numbers. value: from a conditional to a typical value."""

    def typical(q: Any, otherwise: Array) -> Array:
        candidate = value(q)
        return jnp.where(jnp.isfinite(jnp.where(candidate > 0, candidate, jnp.nan)), candidate, otherwise)

    return {
        "typical": typical,
        "middle": lambda key, q, old: typical(q, old),
        "around": lambda q, current, steps, prior=None: around_middle(q, typical(q, q.mean), current, steps),
    }


def _positive_definite_fields(value: Callable[[Any], Array]) -> dict[str, Any]:
    """Fields of a family of positive definite matrices. value: from a conditional to a typical value."""

    def typical(q: Any, otherwise: Array) -> Array:
        candidate = value(q)
        is_valid = jnp.isfinite(jnp.linalg.cholesky(candidate)).all((-2, -1), keepdims=True)
        return jnp.where(is_valid, candidate, otherwise)

    return {
        "typical": typical,
        "middle": lambda key, q, old: typical(q, old),
        "around": lambda q, current, steps, prior=None: around_matrix(q, typical(q, q.mean), current, steps),
    }


SIMPLEX_FIELDS: dict[str, Any] = {
    "middle": lambda key, q, old: q.mean,
    "around": lambda q, current, steps, prior=None: around_middle(q, q.mean, current, steps),
}
"""Fields of families of probabilities."""

NORMAL = Family(
    "Normal",
    priors=NORMAL_PRIORS,
    mode=lambda q: q.mean,
    points=_normal_points,
    middle=lambda key, q, old: q.mean,
    from_uniform=_normal_from_uniform,
    around=around_mean,
    joint=True,
)
"""The log density is quadratic: gradients and a constant Hessian give the conditional."""

ENUMERATED = Family(
    "Enumerated",
    mode=_enumerated_mode,
    from_uniform=_enumerated_from_uniform,
    around=around_choices,
    enumerates=True,
)
"""Conditionals of discrete sites with a few values: their log probabilities are the log joint at each of them."""

JOINTLY_ENUMERATED = Family("Enumerated jointly", mode=lambda q: q.mode(), around=around_joint, tables=True)
"""The joint conditional of discrete elements that meet: they are summed over one after another."""

CHAIN_OF_STEPS = Family("Markov chain", mode=lambda q: q.mode(), around=around_joint, tables=True)
"""The joint conditional of discrete elements that meet from step to step, as in a scan: the recursions of chains."""

ELEMENT_BY_ELEMENT = Family("Enumerated, element by element")
"""Discrete elements that meet, each drawn given all others; there is no distribution of all of them."""

FAMILIES = (
    NORMAL,
    ENUMERATED,
    two_statistics_family(
        "Gamma",
        lambda x: (jnp.log(x), -x),
        lambda eta, _: Gamma(eta[0] + 1, eta[1]),
        priors=(dist.Gamma, dist.Exponential, dist.Chi2),
        mode=_gamma_mode,
        points=cubature.of_gamma,
        reach=(jnp.inf, 0.0),
        **_positive_fields(lambda q: q.concentration / q.rate),
    ),
    two_statistics_family(
        "InverseGamma",
        lambda x: (-jnp.log(x), -1 / x),
        lambda eta, _: InverseGamma(eta[0] - 1, eta[1]),
        priors=(dist.InverseGamma,),
        mode=lambda q: q.rate / (q.concentration + 1),
        points=cubature.of_inverse_gamma,
        reach=(0.0, -jnp.inf),
        **_positive_fields(lambda q: q.rate / (q.concentration + 1)),
    ),
    two_statistics_family(
        "Beta",
        lambda x: (jnp.log(x), jnp.log1p(-x)),
        _build_beta,
        priors=(dist.Beta, dist.Uniform),
        mode=_beta_mode,
        points=cubature.of_beta,
        reach=(0.0, 0.0),
        **SIMPLEX_FIELDS,
    ),
    Family(
        "Dirichlet",
        _read_dirichlet,
        _build_dirichlet,
        (dist.Dirichlet, PaddedDirichlet),
        lambda x: jnp.log(jnp.where(x > 0, x, 1.0)),
        _dirichlet_mode,
        cubature.of_dirichlet,
        **SIMPLEX_FIELDS,
    ),
    Family(
        "Wishart",
        read_wishart,
        lambda eta, _: build_wishart(eta, Wishart),
        (dist.Wishart,),
        lambda x: (log_determinant(x), -x),
        wishart_mode,
        cubature.of_wishart,
        **_positive_definite_fields(lambda q: q.mean),
    ),
    Family(
        "WishartCholesky",
        read_by_cholesky(read_wishart),
        lambda eta, _: build_wishart(eta, WishartCholesky),
        (dist.WishartCholesky,),
        mode=wishart_cholesky_mode,
        points=cubature.of_wishart_cholesky,
    ),
    Family(
        "InverseWishart",
        read_inverse_wishart,
        lambda eta, _: build_inverse_wishart(eta, dist.InverseWishart),
        (dist.InverseWishart,),
        lambda x: (-log_determinant(x), -jnp.linalg.inv(x)),
        inverse_wishart_mode,
        cubature.of_inverse_wishart,
        **_positive_definite_fields(inverse_wishart_mode),
    ),
    two_statistics_family(
        "TruncatedNormal",
        lambda x: (x, x**2),
        _build_truncated_normal,
        priors=TRUNCATED_NORMAL_PRIORS,
        mode=lambda q: q.mode,
        points=cubature.of_truncated_normal,
    ),
    Family(
        "MarkovChain",
        read_chain,
        lambda eta, prior: innermost_distribution(prior).condition(eta),
        (MarkovChain,),
        mode=lambda q: q.mode(),
        expected=lambda p, q: p.expected_log_prob(q),
        linear=(lambda p: map_probabilities(jnp.log, p), lambda logs: map_probabilities(jnp.exp, logs)),
        evidence=chain_log_evidence,
        around=around_paths,
    ),
    Family(
        "LinearChainCRF",
        read_chain,
        lambda eta, prior: innermost_distribution(prior).condition(eta),
        (LinearChainCRF,),
        mode=lambda q: q.mode(),
        expected=lambda p, q: p.expected_log_prob(q),
        linear=(lambda p: p.scores(), LinearChainCRF.from_scores),
        evidence=chain_log_evidence,
        around=around_paths,
    ),
    Family(
        "LinearGaussianChain",
        read_linear_gaussian_chain,
        lambda eta, prior: innermost_distribution(prior).condition(*eta),
        (LinearGaussianChain,),
        mode=lambda q: q.mode(),
        points=cubature.of_linear_gaussian_chain,
        linear=(lambda p: p.coefficients(), LinearGaussianChain.from_coefficients),
        typical=lambda q, otherwise: jnp.where(jnp.isfinite(mean := q.mean), mean, otherwise),
        around=around_mean,
        process=True,
    ),
    POLYA_GAMMA,
    GENERALISED_INVERSE_GAUSSIAN,
    Family(
        "GaussianProcess",
        read_process,
        lambda eta, prior: innermost_distribution(prior).condition(*eta[:2]),
        (GaussianProcess,),
        mode=lambda q: q.mean,
        evidence=lambda eta, prior: innermost_distribution(prior).log_marginal(*eta[:2]) + eta[2],
        process=True,
    ),
)


def families_of(prior: Prior) -> list[Family]:
    """The families whose members could be the conditional of a site, from its prior alone."""
    if prior.choices is not None:
        return [ENUMERATED]
    own = getattr(prior.kind, "family", None)
    if isinstance(own, Family):
        return [own]
    if prior.kind is dist.ImproperUniform:
        return [row for row in FAMILIES if row.name in FLAT_FAMILIES.get(prior.support, ())]
    return [row for row in FAMILIES if prior.kind in row.priors]


def wider_families_of(prior: Prior) -> list[Family]:
    """The families whose members could be the conditional of a site where those of `families_of` do not hold."""
    return [row for row in FAMILIES if prior.kind in row.wider]
