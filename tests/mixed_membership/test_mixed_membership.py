"""Mixed membership with origins kept as counts: the counts, and all methods beside enumeration and the engine."""

import os
import subprocess
import sys
from itertools import product

import arviz_stats as azs
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr
from jax.extend.random import threefry_2x32
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import chi2, kstest

import bayeslab as bl
from bayeslab.datasets import genotypes, simulated_genotypes
from bayeslab.distributions.threefry import threefry, uniforms
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape, draw_counts, expected_counts, pack
from bayeslab.mixed_membership.recognition import find_membership
from bayeslab.models import structure, structure_admixture, structure_correlated
from bayeslab.programs.program import precision_scope
from memberships import SHAPES, Array, log_dirichlet_multinomial, log_joint_of_origins, shared_ancestry, simulated

EXAMPLE = structure_admixture.example()


def test_bits_are_those_of_threefry() -> None:
    key, counters = jnp.array([3, 2**31 + 7], jnp.uint32), jnp.arange(100, dtype=jnp.uint32) * 10**7
    both = threefry(key, counters[:50], counters[50:])
    np.testing.assert_array_equal(np.concatenate(both), threefry_2x32(key, counters))
    u, v = uniforms(key, counters, counters)
    assert all(0 < one.min() <= one.max() < 1 for one in (u, v))


def responsibilities(y: Array, present: Array, q: Array, p: Array) -> tuple[Array, Array]:
    """Probabilities of origins (population, individual, locus, copy), 0 where nothing is shown; the log likelihood."""
    each = q.T[:, :, None, None] * p[:, np.arange(p.shape[1])[:, None], y]
    total = each.sum(0)
    return np.where(present, each / total, 0.0), np.log(total[present]).sum()


def of_alleles(values: Array, y: Array, alleles: int) -> Array:
    """Sums (population, locus, allele)."""
    return np.stack([np.where(y == j, values, 0.0).sum((1, 3)) for j in range(alleles)], -1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_counts_are_expected_and_drawn(shape: GenotypeShape) -> None:
    y, present, q, p = simulated(shape)
    r, log_likelihood = responsibilities(y, present, q, p)
    with precision_scope():
        data = pack(jnp.asarray(y), jnp.asarray(present), shape)
        expected, found = expected_counts(q, p, data, shape)
        drawn = draw_counts(jnp.array([1, 2], jnp.uint32), q, p, data, shape)
    np.testing.assert_allclose(found, log_likelihood, atol=1e-6 * present.sum() + 1e-4)
    means = r.sum((2, 3)).T, of_alleles(r, y, shape.alleles)
    variances = (r * (1 - r)).sum((2, 3)).T, of_alleles(r * (1 - r), y, shape.alleles)
    for mean, variance, one, other in zip(
        means, variances, map(np.asarray, expected), map(np.asarray, drawn), strict=True
    ):
        np.testing.assert_allclose(one, mean, rtol=1e-4, atol=1e-4)
        assert other.sum() == present.sum()
        large = variance > 5
        if large.any():
            assert np.abs((other - mean)[large] / np.sqrt(variance[large])).max() < 5.5


def test_a_million_origins_have_their_probabilities() -> None:
    """Chi-square of origins by individual and allele, against q_ik p_kj over its sum."""
    shape = GenotypeShape(individuals=5, loci=100_000, copies=2, alleles=2, populations=4)
    rng = np.random.default_rng(1)
    q, table = rng.dirichlet(np.ones(4), 5), rng.dirichlet(np.ones(2), 4)
    y = np.broadcast_to(rng.integers(0, 2, (5, 1, 2)), shape[:3])
    p = np.broadcast_to(table[:, None], (4, 100_000, 2))
    counted = draw_counts(jnp.array([5, 6], jnp.uint32), q, p, pack(jnp.asarray(y), None, shape), shape).individuals
    expected = (q[:, :, None] * table)[np.arange(5)[:, None], :, y[:, 0]]  # (individual, copy, population)
    expected = 100_000 * (expected / expected.sum(-1, keepdims=True)).sum(1)
    statistic = ((np.asarray(counted) - expected) ** 2 / expected).sum()
    assert 1e-4 < chi2.sf(statistic, 5 * 3) < 1 - 1e-4


def test_gibbs_with_counts_is_the_posterior() -> None:
    method = bl.mixed_membership.Gibbs(num_samples=20_000, num_chains=2)
    tree = bl.fit(1, structure_admixture.model, EXAMPLE, method, progress=False)
    assert "z" not in tree["posterior"]
    q = tree["posterior"]["ancestry"].values
    rows, columns = np.triu_indices(q.shape[2], 1)
    found = xr.Dataset({"shared": (("chain", "draw", "pair"), (q[:, :, rows] * q[:, :, columns]).sum(-1))})
    error = azs.mcse(found, method="mean")["shared"].values
    gap = found["shared"].mean(("chain", "draw")).values - shared_ancestry(EXAMPLE)
    assert np.abs(gap / error).max() < 4.5
    p = tree["posterior"]["frequencies"].values
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-5)
    assert (p[..., [0, 2], 2] == 0).all()  # loci of two alleles


@pytest.mark.slow
def test_the_log_joint_is_that_of_origins_drawn_with_it() -> None:
    """`lp` is the joint of counts and probabilities: its mean is that of the engine, which keeps all origins."""
    both = [
        bl.fit(
            2,
            structure_admixture.model,
            EXAMPLE,
            gibbs(num_samples=8000, num_chains=2),
            progress=False,
        )
        for gibbs in (bl.mixed_membership.Gibbs, bl.Gibbs)
    ]
    lp = [tree["sample_stats"]["lp"] for tree in both]
    error = np.hypot(*(float(azs.mcse(one.to_dataset(), method="mean")["lp"]) for one in lp))
    assert abs(float(lp[0].mean() - lp[1].mean())) < 4.5 * error


@pytest.mark.slow
def test_hyperparameters_are_drawn_with_counts() -> None:
    """The mean of alpha is that of enumeration and quadrature under its prior, Uniform(0, 10)."""
    alphas = np.linspace(0, 10, 202)[1:-1]
    log_joint, mine = log_joint_of_origins(EXAMPLE)
    log_joint -= log_dirichlet_multinomial(mine, EXAMPLE["alpha"]).sum(1)
    kinds, which = np.unique(mine.reshape(len(mine), -1), axis=0, return_inverse=True)
    kinds, rest = (
        kinds.reshape(-1, *mine.shape[1:]),
        np.array([logsumexp(log_joint[which == k]) for k in range(len(kinds))]),
    )
    log_evidence = np.array([logsumexp(rest + log_dirichlet_multinomial(kinds, alpha).sum(1)) for alpha in alphas])
    weight = np.exp(log_evidence - log_evidence.max())
    method = bl.mixed_membership.Gibbs(num_samples=5000)
    tree = bl.fit(3, structure_admixture.model, EXAMPLE | {"alpha": None}, method, progress=False)
    found = tree["posterior"].to_dataset()[["alpha"]]
    error = float(azs.mcse(found, method="mean")["alpha"])
    assert abs(float(found["alpha"].mean()) - weight @ alphas / weight.sum()) < 4.5 * error


@pytest.mark.slow
def test_new_individuals_have_their_ancestry_at_known_frequencies() -> None:
    """E[q] of two individuals, by enumeration of the origins of each."""
    rng = np.random.default_rng(4)
    p, y = rng.dirichlet(np.ones(2), (2, 4)), rng.integers(0, 2, (2, 4, 2))
    data = {"num_individuals": 2, "num_alleles": np.full(4, 2), "num_populations": 2, "frequencies": p, "y": y}
    method = bl.mixed_membership.Gibbs(num_samples=10_000, num_chains=2)
    tree = bl.fit(1, structure_admixture.model, data, method, progress=False)
    assert list(tree["posterior"].data_vars) == ["ancestry"]
    error = azs.mcse(tree["posterior"].to_dataset(), method="mean")["ancestry"].values
    origins = np.array(list(product(range(2), repeat=8)))
    counts = np.stack([(origins == k).sum(1) for k in range(2)], -1)
    for individual, found in enumerate(tree["posterior"]["ancestry"].mean(("chain", "draw")).values):
        shown = p[:, np.repeat(np.arange(4), 2), y[individual].ravel()]  # (population, copy)
        weight = np.prod(shown[origins, np.arange(8)], 1) * np.exp(log_dirichlet_multinomial(counts, 1.0))
        mean = weight / weight.sum() @ ((counts + 1) / 10)
        assert np.abs((found - mean) / error[individual]).max() < 4.5


@pytest.mark.slow
def test_a_concentration_far_below_one_is_that_of_quadrature() -> None:
    """Individuals of one population each, at frequencies that leave no doubt: alpha is near 0.002."""
    rare, of = 1e-9, np.arange(60) % 3
    p = np.full((3, 20, 3), rare)
    p[np.arange(3), :, np.arange(3)] = 1 - 2 * rare
    y = np.repeat(of[:, None, None], 20, 1)
    sizes = {"num_individuals": 60, "num_alleles": np.full(20, 3), "num_populations": 3, "ploidy": 1, "alpha": None}
    alpha = np.exp(np.linspace(np.log(1e-7), np.log(10), 20_001))
    counts = np.tile([20.0, 0.0, 0.0], (len(alpha), 1))
    each = (gammaln(alpha[:, None] + counts) - gammaln(alpha)[:, None]).sum(1)
    log_p = 60 * (each + gammaln(3 * alpha) - gammaln(3 * alpha + 20)) + np.log(alpha)
    method = bl.mixed_membership.Gibbs(num_warmup=300, num_samples=4000, num_chains=1)
    tree = bl.fit(1, structure_admixture.model, sizes | {"frequencies": p, "y": y}, method, progress=False)
    found = tree["posterior"].to_dataset()[["alpha"]]
    assert abs(found["alpha"].mean() - alpha @ softmax(log_p)) < 4.5 * azs.mcse(found, method="mean")["alpha"]


@pytest.mark.slow
def test_hyperparameters_are_calibrated() -> None:
    """Ranks of alpha, which has no labels, are uniform; origins have no draws, so they have no ranks."""
    sizes = {"num_individuals": 6, "num_alleles": np.array([2, 3, 2, 2]), "num_populations": 2, "alpha": None}
    data = sizes | {"y": np.zeros((6, 4, 2), int)}
    method = bl.mixed_membership.Gibbs(num_warmup=100, num_samples=99, thinning=10, num_chains=1)
    ranks = bl.sbc(1, structure_admixture.model, data, method, num_simulations=1000, progress=False)["prior_sbc"]
    assert "z" not in ranks
    assert kstest(ranks["alpha"].values.ravel(), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("method", [pytest.param(one, marks=pytest.mark.slow) for one in ("MAP", "EM")])
def test_the_maximum_is_that_of_the_engine(method: str) -> None:
    data = structure_admixture.data() | {"alpha": 1.5, "concentration": 1.2}
    trees = [
        bl.fit(0, structure_admixture.model, data, getattr(methods, method)(num_starts=2), progress=False)
        for methods in (bl.mixed_membership, bl)
    ]
    lp = [float(tree["sample_stats"]["lp"].squeeze()) for tree in trees]
    assert lp[0] > lp[1] - 0.1
    assert trees[0].attrs["converged"] == 1


def test_from_the_maximum_nothing_is_gained() -> None:
    """By EM in double precision, on few genotypes of populations that are close."""
    data = {**genotypes(simulated_genotypes(30, 60, 3, seed=3, fst=0.05, missing=0.1)["y"]), "num_populations": 3}
    tree = bl.fit(0, structure_admixture.model, data, bl.mixed_membership.MAP(), progress=False)
    q, p = (tree["posterior"][name].values[0, 0].astype(float) for name in ("ancestry", "frequencies"))
    counts = np.stack([(data["y"].values == j).sum(2) for j in range(2)], -1)
    reached = []
    for _ in range(1000):
        mean = np.einsum("ik,klj->ilj", q, p)
        reached.append((counts * np.log(mean)).sum())
        q, p = q * np.einsum("ilj,klj->ik", counts / mean, p), p * np.einsum("ilj,ik->klj", counts / mean, q)
        q, p = q / q.sum(1, keepdims=True), p / p.sum(2, keepdims=True)
    assert reached[-1] - reached[0] < 0.05


@pytest.mark.slow
def test_the_bound_is_that_of_the_engine() -> None:
    data = structure_admixture.data()
    bounds = [
        bl.fit(0, structure_admixture.model, data, methods.MeanField(num_starts=2), progress=False).attrs["elbo"]
        for methods in (bl.mixed_membership, bl)
    ]
    np.testing.assert_allclose(bounds[0], bounds[1], atol=0.1)


@pytest.mark.slow
def test_moments_are_kept_of_many_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where draws of the components are many, their means and standard deviations over the same draws are kept."""
    method = bl.mixed_membership.Gibbs(num_samples=200, num_chains=2)
    whole = bl.fit(5, structure_admixture.model, EXAMPLE, method, progress=False)
    monkeypatch.setattr("bayeslab.mixed_membership.samplers.base.MAX_COMPONENTS_KEPT", 0)
    tree = bl.fit(5, structure_admixture.model, EXAMPLE, method, progress=False)
    assert "frequencies" not in tree["posterior"]
    draws = whole["posterior"]["frequencies"]
    assert tree["posterior_mean"]["frequencies"].dims == ("chain", *draws.dims[2:])
    np.testing.assert_array_equal(tree["posterior"]["ancestry"], whole["posterior"]["ancestry"])
    for site in ("frequencies", "ancestry"):  # means and mean squares given the counts of each draw have less noise
        draws = whole["posterior"][site]
        scale = draws.std("draw") / np.sqrt(draws.sizes["draw"])
        assert (np.abs(tree["posterior_mean"][site] - draws.mean("draw")) <= 6 * scale + 1e-6).all()
        assert (np.abs(tree["posterior_sd"][site] / draws.std("draw") - 1) <= 0.5).where(scale > 0, True).all()


def test_draws_go_on() -> None:
    short, long = (bl.mixed_membership.Gibbs(num_samples=n, num_chains=2) for n in (15, 30))
    half = bl.fit(7, structure_admixture.model, EXAMPLE, short, progress=False)
    whole = bl.fit(7, structure_admixture.model, EXAMPLE, long, progress=False)
    twice = bl.fit(7, structure_admixture.model, EXAMPLE, short, previous=half, progress=False)
    np.testing.assert_array_equal(twice["posterior"]["ancestry"], whole["posterior"]["ancestry"])


def test_one_population_and_one_individual() -> None:
    tree = bl.fit(
        0,
        structure_admixture.model,
        EXAMPLE | {"num_populations": 1},
        bl.mixed_membership.Gibbs(10, 20, 1),
        progress=False,
    )
    np.testing.assert_array_equal(tree["posterior"]["ancestry"], 1.0)
    one = {
        "num_individuals": 1,
        "num_alleles": np.array([2, 2]),
        "num_populations": 1,
        "y": np.array([[[0, 1], [1, 1]]]),
    }
    assert bl.fit(0, structure_admixture.model, one, bl.mixed_membership.MAP(), progress=False)["posterior"]


def wrong_origins(num_individuals: int, num_loci: int, num_populations: int) -> None:
    with numpyro.plate("population", num_populations, dim=-2), numpyro.plate("locus", num_loci, dim=-1):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(2)))
    with numpyro.plate("individual", num_individuals):
        q = numpyro.sample("q", dist.Dirichlet(jnp.ones(num_populations)))
    with (
        numpyro.plate("individual", num_individuals, dim=-3),
        numpyro.plate("locus", num_loci, dim=-2),
        numpyro.plate("copy", 2, dim=-1),
    ):
        z = numpyro.sample("z", dist.Categorical(q[:, None, None]))
        neighbour = jnp.roll(z, 1, axis=1)
        numpyro.sample("y", dist.Categorical(p[neighbour, np.arange(num_loci)[:, None]]))


EIGHT_DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from bayeslab.mixed_membership.genotypes.allele_counts import GenotypeShape, draw_counts, expected_counts, pack
from bayeslab.mixed_membership.devices import devices_from_mesh

assert len(jax.devices()) == 8
jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(0)
y = rng.integers(0, 3, (30, 50, 3))
q, p = rng.dirichlet(np.ones(4), 30), rng.dirichlet(np.ones(3), (4, 50))
key, one = jnp.array([1, 2], jnp.uint32), GenotypeShape(30, 50, 3, 3, 4)
drawn, expected = [], []
for shape in (one, one._replace(devices=devices_from_mesh(jax.make_mesh((8,), ("individual",))))):
    data = jax.jit(pack, static_argnums=2)(jnp.asarray(y), jnp.asarray(y < 3), shape)
    drawn.append(jax.jit(draw_counts, static_argnums=4)(key, q, p, data, shape))
    expected.append(jax.jit(expected_counts, static_argnums=3)(q, p, data, shape))
jax.tree.map(np.testing.assert_array_equal, *drawn)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), *expected)
"""

FIT_ON_EIGHT_DEVICES = """
import jax
import numpy as np
import bayeslab as bl
from bayeslab.models import structure_admixture as lecture

gibbs = bl.mixed_membership.Gibbs
draws = [
    bl.fit(0, lecture.model, lecture.example(), gibbs(3, 5, 2, mesh=mesh), progress=False)["posterior"]
    for mesh in (None, jax.make_mesh((8,), ("individual",)))
]
for site in ("ancestry", "frequencies"):
    np.testing.assert_array_equal(*(draw[site] for draw in draws))
"""


STATES_ON_EIGHT_DEVICES = """
import jax
import numpy as np
import bayeslab as bl
from bayeslab.datasets import genotypes, simulated_genotypes
from bayeslab.models import structure_admixture as lecture

data = genotypes(simulated_genotypes(40, 80, 3, seed=3)["y"]) | {"num_populations": 3}
alone, spread = (
    bl.fit(1, lecture.model, data, bl.mixed_membership.Gibbs(4, 6, 1, mesh=mesh), progress=False)["posterior"]
    for mesh in (None, jax.make_mesh((8,), ("individual",)))
)
np.testing.assert_allclose(alone["ancestry"], spread["ancestry"], atol=1e-4)
"""


@pytest.mark.parametrize(
    "script",
    [
        EIGHT_DEVICES,
        *(pytest.param(s, marks=pytest.mark.slow) for s in (FIT_ON_EIGHT_DEVICES, STATES_ON_EIGHT_DEVICES)),
    ],
    ids=["counts", "draws", "individuals that devices share evenly"],
)
def test_draws_are_the_same_on_eight_devices(script: str) -> None:
    """Thirty individuals, five on every device but two; and few with more than two alleles."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, "-c", script], env=os.environ | flags, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_mesh_without_individuals_is_refused() -> None:
    mesh = jax.make_mesh((1,), ("chain",))
    with pytest.raises(ValueError, match=r"mesh has axes \['chain'\]; expected one named 'individual'"):
        bl.fit(0, structure_admixture.model, EXAMPLE, bl.mixed_membership.Gibbs(mesh=mesh), progress=False)


WRONG = {
    "neighbours": (
        wrong_origins,
        {"num_individuals": 3, "num_loci": 4, "num_populations": 2, "y": np.zeros((3, 4, 2), int)},
    ),
    "one origin of an individual": (structure.model, structure.example()),
}


@pytest.mark.parametrize("case", WRONG)
def test_other_programs_are_refused(case: str) -> None:
    model, data = WRONG[case]
    with pytest.raises(ValueError, match=r"origins cannot be kept as counts: .*; use bl.Gibbs\(\)"):
        bl.fit(0, model, data, bl.mixed_membership.Gibbs(), progress=False)


def test_the_names_of_sites_do_not_matter() -> None:
    with precision_scope():
        found = find_membership(bl.bind(structure_correlated.model, structure_correlated.example() | {"alpha": None}))
    assert found[:4] == ("ancestry", "frequencies", "z", "y")
    assert set(found.others) == {"alpha", "ancestral", "drift"}


def test_a_density_without_maximum_is_refused() -> None:
    for method in (bl.mixed_membership.MAP(), bl.mixed_membership.EM()):
        with pytest.raises(ValueError, match=r"site 'ancestry' has a concentration of 0.7: below 1"):
            bl.fit(0, structure_admixture.model, EXAMPLE, method, progress=False)
        with pytest.raises(ValueError, match=r"with \['alpha'\] latent the density has no maximum"):
            bl.fit(0, structure_admixture.model, EXAMPLE | {"alpha": None}, method, progress=False)
    with pytest.raises(ValueError, match=r"sites \['alpha'\] have no factor in closed form"):
        bl.fit(0, structure_admixture.model, EXAMPLE | {"alpha": None}, bl.mixed_membership.MeanField(), progress=False)
