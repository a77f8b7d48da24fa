"""The exchange algorithm against posteriors by quadrature, and wrong ones that the same test refuses."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.distributions import MarkovRandomField
from bayeslab.graphical_models import Exchange
from bayeslab.graphical_models.exchange import ExchangeSampler
from bayeslab.models import markov_random_field, rbm
from bayeslab.models.markov_random_field import SPINS, grid
from bayeslab.programs.program import Bound, precision_scope
from bayeslab.sampling.protocols import Sampler
from bayeslab.transforms.analysis import Analysis
from ranks import LEVEL, smallest_p

RING = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
X = np.array([[1, 1, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]])


def ising(num_rows: int, num_nodes: int, edges: Any) -> None:
    """One coupling for all edges and one field for all nodes."""
    coupling = numpyro.sample("coupling", dist.Normal(0.0, 0.7))
    field = numpyro.sample("field", dist.Normal(0.0, 0.7))
    pairs = jnp.broadcast_to(coupling * np.outer(SPINS, SPINS), (len(edges), 2, 2))
    with numpyro.plate("row", num_rows):
        nodes = jnp.broadcast_to(field * SPINS, (num_nodes, 2))
        numpyro.sample("x", MarkovRandomField(nodes, pairs, edges))


DATA = {"num_rows": 6, "num_nodes": 4, "edges": RING, "x": X}


def quadrature() -> np.ndarray:
    """Means, then standard deviations, of coupling and field; all 16 configurations are enumerated."""
    coupling, field = (each[..., None] for each in np.meshgrid(*[np.linspace(-3, 3, 301)] * 2, indexing="ij"))
    spins = 2.0 * np.array(list(np.ndindex(2, 2, 2, 2))) - 1
    data = 2.0 * X - 1
    alike = [(each[:, RING[:, 0]] * each[:, RING[:, 1]]).sum(1) for each in (spins, data)]
    log_z = np.logaddexp.reduce(coupling * alike[0] + field * spins.sum(1), axis=-1)
    log_likelihood = (coupling * alike[1] + field * data.sum(1)).sum(-1) - len(X) * log_z
    density = np.exp(log_likelihood - (coupling[..., 0] ** 2 + field[..., 0] ** 2) / (2 * 0.7**2))
    density /= density.sum()
    values = np.stack([coupling[..., 0], field[..., 0]])
    means = (density * values).sum((1, 2))
    return np.concatenate([means, np.sqrt((density * values**2).sum((1, 2)) - means**2)])


def errors(method: Any) -> np.ndarray:
    """How far means and standard deviations are from the quadrature, in standard deviations of the posterior."""
    tree = bl.fit(0, ising, DATA, method, progress=False)
    draws = np.stack([tree["posterior"][name].values.ravel() for name in ("coupling", "field")])
    found, truth = np.concatenate([draws.mean(1), draws.std(1)]), quadrature()
    return np.abs(found - truth) / np.tile(truth[2:], 2)


CHAINS = {"num_warmup": 500, "num_samples": 4000, "num_chains": 2}
TOLERANCE = 0.2
"""Four Monte Carlo errors: about one draw in twenty counts, since a ratio with an auxiliary field refuses more."""


@pytest.mark.parametrize("num_sweeps", [None, 20])
def test_the_posterior_is_that_of_quadrature(num_sweeps: int | None) -> None:
    assert errors(Exchange(num_sweeps, **CHAINS)).max() < TOLERANCE


class WithoutAuxiliary(ExchangeSampler):
    """Takes the ratio of weights for that of probabilities."""

    def log_ratio(self, key: Any, bound: Bound, old: Any, new: Any) -> Any:
        return self._at(bound, new).log_density - self._at(bound, old).log_density


class FromOldWeights(ExchangeSampler):
    """Draws the auxiliary field from the weights that are there, not from the proposed ones."""

    def log_ratio(self, key: Any, bound: Bound, old: Any, new: Any) -> Any:
        there, here = self._at(bound, new), self._at(bound, old)
        auxiliary = self.auxiliary(key, bound, here)
        return there.log_density - here.log_density + here.log_weight(auxiliary) - there.log_weight(auxiliary)


@dataclass(frozen=True)
class Wrong(Exchange):
    kind: type[ExchangeSampler] = WithoutAuxiliary

    def plan(self, analysis: Analysis) -> Sampler:
        right: Any = super().plan(analysis)
        return self.kind(right.sites, right.num_sweeps, right.num_warmup)


@pytest.mark.parametrize("kind", [WithoutAuxiliary, FromOldWeights])
def test_wrong_ratios_fail(kind: type[ExchangeSampler]) -> None:
    assert errors(Wrong(kind=kind, **CHAINS)).max() > 2 * TOLERANCE


def test_a_field_whose_partition_function_is_out_of_reach() -> None:
    """A grid of 20 x 20 drawn with the coupling 0.3, which NUTS cannot fit."""
    edges = grid(20, 20)
    with precision_scope():
        pairs = jnp.broadcast_to(0.3 * np.outer(SPINS, SPINS), (len(edges), 2, 2))
        field = MarkovRandomField(jnp.zeros((400, 2)), pairs, edges)
        sweep = jax.jit(lambda x, keys: jax.lax.scan(lambda x, key: (field.gibbs_step(key, x), None), x, keys)[0])
        x = sweep(jnp.zeros((1, 400), int), jax.random.split(jax.random.key(0), 200))
    data = {"num_rows": 1, "num_nodes": 400, "edges": edges, "x": np.asarray(x)}
    with pytest.raises(ValueError, match="too wide to sum over; use bl"):
        bl.fit(0, ising, data, bl.NUTS())
    with pytest.raises(ValueError, match="num_sweeps=100"):
        bl.fit(0, ising, data, Exchange())
    method = Exchange(20, num_warmup=150, num_samples=200, num_chains=1)
    tree = bl.fit(0, ising, data, method, progress=False)
    assert abs(float(tree["posterior"]["coupling"].mean()) - 0.3) < 0.1
    assert abs(float(tree["posterior"]["field"].mean())) < 0.1


@pytest.mark.slow
def test_a_boltzmann_machine_with_its_hidden_units() -> None:
    """Hidden units are summed over and drawn: agrees with NUTS."""
    v = np.array([[1, 1], [0, 0], [1, 1], [1, 0], [0, 0], [1, 1]])
    data = {"num_rows": 6, "num_visible": 2, "num_hidden": 1, "tau": 0.8, "v": v}
    exchanged = bl.fit(0, rbm.model, data, Exchange(num_warmup=2000, num_samples=20_000), progress=False)["posterior"]
    exact = bl.fit(0, rbm.model, data, bl.NUTS(300, 1000, 2), progress=False)["posterior"]
    assert set(exchanged) == set(exact)
    for name in exact:
        first, second = (posterior[name].mean(("chain", "draw")) for posterior in (exchanged, exact))
        assert abs(first - second).max() < 0.12
        assert abs(exchanged[name].std() / exact[name].std() - 1) < 0.1


PAIR = {"num_rows": 5, "num_nodes": 2, "edges": np.array([[0, 1]]), "tau": 0.8, "x": np.zeros((5, 2), int)}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "data"), [(ising, DATA), (markov_random_field.model, PAIR)], ids=["ring", "pair"])
@pytest.mark.parametrize("num_sweeps", [None, 20])
def test_calibrated(model: Any, data: Any, num_sweeps: int | None) -> None:
    method = Exchange(num_sweeps, num_warmup=1000, num_samples=39, num_chains=1, thinning=60)
    assert smallest_p(bl.sbc(0, model, data, method, 500, progress=False)) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("kind", [WithoutAuxiliary, FromOldWeights])
def test_wrong_ratios_are_not_calibrated(kind: type[ExchangeSampler]) -> None:
    method = Wrong(None, num_warmup=200, num_samples=39, num_chains=1, thinning=20, kind=kind)
    assert smallest_p(bl.sbc(0, ising, DATA, method, 200, progress=False)) < LEVEL


def test_what_is_refused() -> None:
    example = markov_random_field.example()
    with pytest.raises(ValueError, match="of which there is none; use NUTS"):
        bl.fit(0, bl.models.normal_gamma.model, bl.models.normal_gamma.example(), Exchange())
    hidden = {name: value for name, value in example.items() if name != "x"}
    with pytest.raises(ValueError, match="all values of every field"):
        bl.fit(0, markov_random_field.model, hidden, Exchange())
    with pytest.raises(ValueError, match="num_sweeps"):
        Exchange(0)
