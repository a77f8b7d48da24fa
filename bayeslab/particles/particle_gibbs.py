"""Particle Gibbs: paths by a particle filter that keeps the last path, parameters as Gibbs sampling draws them."""

from dataclasses import dataclass

from jax import Array

from bayeslab.elimination.terms import Term
from bayeslab.methods.gibbs_samplers import BlockSampler, SweepSampler
from bayeslab.methods.setting_checks import require_count, require_positive
from bayeslab.particles.particle_filter import ParticleFilter
from bayeslab.particles.paths import conditional_path
from bayeslab.particles.scans import Guide
from bayeslab.particles.state_space import StateSpace, require_guide, require_memory, state_space
from bayeslab.programs.program import Bound, Values, compilation_signature
from bayeslab.programs.validation import listed_sites
from bayeslab.sampling.protocols import Method
from bayeslab.transforms.analysis import Analysis
from bayeslab.verification.findings import rules_of
from bayeslab.verification.ordering import blocks_in_program_order


@dataclass(frozen=True)
class ParticleGibbs(Method):
    """Particle Gibbs with ancestor sampling (Andrieu, Doucet and Holenstein 2010, JRSS B 72; Lindsten, Jordan and Schön
    2014, JMLR 15), for programs with a scan over latent states.

    A sweep draws the whole path of states at once given the parameters, by a particle filter that has the path from
    before among its particles, and then the parameters given the path: from their conditionals where these have a
    closed form, jointly Normal ones at once, else by a step of NUTS. The posterior is exact for any number of
    particles, two at least; with more the path forgets the one before sooner.
    guide: draws the states of a step, see `ParticleFilter`.
    thinning: keep one draw in so many.
    """

    num_particles: int = 100
    guide: Guide | None = None
    num_warmup: int = 200
    num_samples: int = 1000
    num_chains: int = 4
    thinning: int = 1

    def __post_init__(self) -> None:
        require_positive(self, "num_particles", "num_samples", "num_chains", "thinning")
        require_count(self, "num_warmup")
        if self.num_particles < 2:
            raise ValueError("num_particles of ParticleGibbs must be at least 2: one is the path from before")

    def plan(self, analysis: Analysis) -> SweepSampler | BlockSampler:
        bound, space = analysis.bound, analysis.ask(state_space)
        require_memory(space)
        if self.guide is not None:
            require_guide(bound, self.guide)
        path = PathStep(ParticleFilter(self.num_particles, guide=self.guide), space)
        findings = analysis.findings_of(space.parameters)
        rest = [finding.site for finding in findings if finding.rule is None]
        if set(bound.moving) & set(rest):  # whose coordinates depend on other parameters, which move with them
            rest = list(space.parameters)
        if discrete := [name for name in rest if bound.sites[name].is_discrete]:
            raise ValueError(f"{listed_sites(discrete)} is discrete and has no conditional that could be drawn from")
        rules = tuple(rule for rule in rules_of(findings) if rule.site not in rest)
        normal = [(rule,) for rule in rules_of(analysis.normal_blocks_of([rule.site for rule in rules]))]
        blocks = blocks_in_program_order(normal, rules)
        signature = compilation_signature(bound)
        if rest:
            return BlockSampler(blocks, tuple(rest), signature, self.num_warmup, (path,))
        is_discrete = any(bound.sites[name].is_discrete for name in bound.latent)
        return SweepSampler(blocks, rules, (), signature, (path,), is_discrete)


@dataclass(frozen=True)
class PathStep:
    """The draw of a whole path of states given the parameters, as one step of Gibbs sampling."""

    settings: ParticleFilter
    space: StateSpace

    @property
    def sites(self) -> tuple[str, ...]:
        return self.space.path

    def draw(self, key: Array, log_joint_terms: tuple[Term, ...], bound: Bound, values: Values) -> Values:
        """Values after a draw of the path."""
        return values | conditional_path(key, self.settings, self.space, bound, values)
