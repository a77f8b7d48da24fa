"""Methods for programs of mixed membership at size: origins are counted and forgotten, or summed over.

`fit` takes them in place of the methods of the same names beyond 2,000 origins; settings that only they have are set on
them.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

from jax.sharding import Mesh

from bayeslab.methods import em, gibbs, laplace, mean_field
from bayeslab.methods.setting_checks import require_count, require_positive
from bayeslab.methods.wrappers.multistart import best_of_starts
from bayeslab.mixed_membership.recognition import Membership, find_membership, spread_over_devices
from bayeslab.mixed_membership.samplers.base import keeps_components
from bayeslab.mixed_membership.samplers.gibbs import MembershipGibbs
from bayeslab.mixed_membership.samplers.mean_field import membership_mean_field
from bayeslab.mixed_membership.samplers.point import membership_point
from bayeslab.mixed_membership.samplers.stochastic_mean_field import membership_batches
from bayeslab.programs.program import compilation_signature
from bayeslab.sampling.placement import CHAIN_AXIS
from bayeslab.sampling.protocols import Method, Sampler
from bayeslab.transforms.analysis import Analysis

MIN_ORIGINS = 2000
"""Origins up to which `fit` keeps them, unless a method of this module is asked for."""
BASES = "sites", "softmax"
"""Bases in which `MAP` finds a maximum."""


@dataclass(frozen=True)
class Gibbs(Method):
    """Origins are drawn, counted and forgotten; weights and components are drawn given their counts, and where that
    mixes better with origins summed out; sites that priors depend on by NUTS. Chains start near a maximum of the
    likelihood.

    thinning: keep one draw in so many.
    mesh: devices with an axis "individual", over which individuals are spread; one by default.
    keep_origins: draw every origin as a site of the result instead, by `bl.Gibbs` as for any other program.
    """

    num_warmup: int = 200
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1
    mesh: Mesh | None = None
    keep_origins: bool = False

    def __post_init__(self) -> None:
        require_positive(self, "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")
        if self.keep_origins and self.mesh is not None:
            raise ValueError("origins that are kept are not spread over devices; leave out mesh or keep_origins")

    def plan(self, analysis: Analysis) -> Sampler:
        if self.keep_origins:
            return gibbs.Gibbs(self.num_warmup, self.num_samples, self.num_chains, self.thinning).plan(analysis)
        roles = _require_membership(analysis, "Gibbs", self.mesh)
        return MembershipGibbs(roles, compilation_signature(analysis.bound), self.num_warmup, keeps_components(roles))


@dataclass(frozen=True)
class MAP(Method):
    """The maximum of p(weights, components | observed), origins summed over, by Newton's steps.

    num_starts: random starts, run together; the best is the result, group `history` has all.
    basis: "sites" for the maximum of the density of the sites as they are written, or "softmax" for that of the
    logarithms that all probabilities are the softmax of (D. MacKay 1998, "Choice of basis for Laplace approximation").
    It has one for every positive concentration, at (n + a) / sum of (n + a) in place of (n + a - 1) / sum of
    (n + a - 1), n counts and a concentrations; `lp` is the log joint of the sites there.
    mesh: devices with an axis "individual", over which individuals are spread; one by default.
    Raises ValueError where the density has no maximum: with latent concentrations, and in the basis of the sites with
    concentrations below 1; and where the components are data (`bl.MAP` finds the weights then).
    """

    num_steps: int = 1000
    num_starts: int = 1
    basis: str = "sites"
    mesh: Mesh | None = None

    num_samples = 1
    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_starts")
        if self.basis not in BASES:
            raise ValueError(f"basis of MAP must be one of {list(BASES)}, not {self.basis!r}")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        roles = _require_latent_components(analysis, "MAP", self.mesh)
        return best_of_starts(membership_point(roles, analysis.bound, self.basis), self.num_starts, "log_joint")


@dataclass(frozen=True)
class EM(Method):
    """The point that `MAP` finds in the basis of the sites, by the same steps, from ten starts."""

    num_steps: int = 1000
    num_starts: int = 10
    mesh: Mesh | None = None

    num_samples = 1
    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_starts")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        roles = _require_latent_components(analysis, "EM", self.mesh)
        return best_of_starts(membership_point(roles, analysis.bound, "sites"), self.num_starts, "log_joint")


@dataclass(frozen=True)
class MeanField(Method):
    """Dirichlet factors of weights and components, and the best factor of every origin (Blei, Ng and Jordan 2003).

    tolerance: it has converged when a step gains less, in nats.
    num_starts: starts, run together; draws are of the one with the largest bound, group `history` has all.
    batches: parts that the individuals are split into, one of which is a step: more than 1 where a pass over all data
    is long. There are num_steps of them, and the bound at the end is that of all data.
    mesh: devices with an axis "individual", over which individuals are spread; one by default.
    """

    num_steps: int = 2000
    num_samples: int = 1000
    num_starts: int = 10
    tolerance: float = 1e-6
    batches: int = 1
    mesh: Mesh | None = None

    num_chains = 1
    thinning = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_steps", "num_samples", "num_starts", "batches")
        if not self.tolerance > 0:
            raise ValueError(f"tolerance of MeanField must be positive, but is {self.tolerance}")

    @property
    def num_warmup(self) -> int:
        return self.num_steps

    def plan(self, analysis: Analysis) -> Sampler:
        roles, bound = _require_latent_components(analysis, "MeanField", self.mesh), analysis.bound
        if self.batches > 1:
            return best_of_starts(
                membership_batches(roles, bound, self.batches, self.num_steps), self.num_starts, "elbo"
            )
        return best_of_starts(membership_mean_field(roles, bound, self.tolerance), self.num_starts, "elbo")


COUNTERPARTS: dict[type, Callable[..., Method]] = {
    gibbs.Gibbs: Gibbs,
    laplace.MAP: MAP,
    em.EM: EM,
    mean_field.MeanField: MeanField,
}


def counterpart(method: Any) -> Method | None:
    """The method of this module with the settings of the one of the same name, for any number of origins.

    None where there is none, or where settings ask for what only the given one does: joint blocks, sites to integrate
    out.
    """
    build = COUNTERPARTS.get(type(method))
    if build is None or getattr(method, "joint", False) or method.collapse:
        return None
    settings = {field.name: getattr(method, field.name) for field in fields(method)}
    return build(**{name: value for name, value in settings.items() if name not in ("joint", "collapse")})


def membership_at_size(analysis: Analysis) -> Membership | None:
    """The roles of sites in a program of mixed membership with more origins than `fit` keeps, None in any other."""
    bound = analysis.bound
    discrete = (bound.sites[name] for name in bound.latent if bound.sites[name].is_discrete)
    if sum(prod(site.shape) for site in discrete) <= MIN_ORIGINS:
        return None
    try:
        return analysis.ask(find_membership)
    except ValueError:
        return None


def method_at_size(analysis: Analysis, method: Method) -> Method:
    """The method that a fit takes: its counterpart for a program of mixed membership at size, else itself."""
    other = counterpart(method)
    roles = None if other is None else membership_at_size(analysis)
    if other is None or roles is None or (roles.known and not isinstance(other, Gibbs)):
        return method
    return other


def spread_method(method: Method, mesh: Mesh) -> Method:
    """The method with individuals spread over a mesh, where it is one of this module; with chains alone, as it is.

    Raises ValueError where the method has a mesh already, or individuals and chains are to be spread both.
    """
    if not hasattr(method, "mesh") or getattr(method, "keep_origins", False):
        return method
    if method.mesh is not None:
        raise ValueError("mesh is given to fit and to the method; give it to fit alone")
    if CHAIN_AXIS not in mesh.axis_names:
        return replace(method, mesh=mesh)  # type: ignore[type-var]
    if mesh.axis_names != (CHAIN_AXIS,):
        raise ValueError(f"mesh has axes {list(mesh.axis_names)}, but where origins are counted chains have one alone")
    return method


def _require_membership(analysis: Analysis, name: str, mesh: Mesh | None) -> Membership:
    """The roles of sites; raises ValueError with the reason where the program is none of mixed membership.

    name: of the method.
    """
    if not analysis.bound.latent:
        raise ValueError("every site of the program is observed: there is nothing to infer")
    try:
        roles = analysis.ask(find_membership)
    except ValueError as reason:
        raise ValueError(f"origins cannot be kept as counts: {reason}; use bl.{name}()") from None
    return roles if mesh is None else spread_over_devices(roles, analysis.bound, mesh)


def _require_latent_components(analysis: Analysis, name: str, mesh: Mesh | None) -> Membership:
    """The roles of sites in a program whose components are latent; raises ValueError where they are data."""
    roles = _require_membership(analysis, name, mesh)
    if roles.known:
        raise ValueError(f"site '{roles.components}' is data, so weights alone are unknown; use bl.{name}()")
    return roles
