"""Particle methods for programs with a scan over latent states: filters with estimates of the evidence, paths by
backward simulation, and two Markov chains over parameters and paths, particle Gibbs and particle marginal
Metropolis-Hastings. All but `filter` are methods of `fit`.
"""

import numpyro  # noqa: F401  as a whole, before parts of it: ArviZ may have left a half, to be loaded when it is used

from bayeslab.particles.backward_simulation import BackwardSimulation
from bayeslab.particles.filtering import filter
from bayeslab.particles.particle_filter import ParticleFilter, multinomial, residual, stratified, systematic
from bayeslab.particles.particle_gibbs import ParticleGibbs
from bayeslab.particles.particle_metropolis import ParticleMarginalMetropolisHastings

__all__ = [
    "BackwardSimulation",
    "ParticleFilter",
    "ParticleGibbs",
    "ParticleMarginalMetropolisHastings",
    "filter",
    "multinomial",
    "residual",
    "stratified",
    "systematic",
]
