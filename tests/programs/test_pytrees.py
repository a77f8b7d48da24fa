"""States of samplers read the same in every process."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import bayeslab as bl
from bayeslab.programs.program import precision_scope
from bayeslab.programs.pytrees import Ordered, unwrap_distributions, wrap_distributions
from bayeslab.transforms.analysis import Analysis
from zoo import CASES


@pytest.mark.parametrize("backwards", [False, True])
def test_leaves_come_by_name(backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order in which NumPyro lists the fields, which changes from process to process."""
    names = dist.Gamma.gather_pytree_data_fields()
    order = tuple(sorted(names, reverse=backwards))
    monkeypatch.setattr(dist.Gamma, "gather_pytree_data_fields", classmethod(lambda cls: order))
    tree = wrap_distributions({"q": dist.Gamma(2.0, 3.0)})
    leaves, structure = jax.tree.flatten(tree)
    assert leaves == [2.0, 3.0]
    back = unwrap_distributions(jax.tree.unflatten(structure, [4.0, 5.0]))["q"]
    assert (back.concentration, back.rate) == (4.0, 5.0)


def test_nested_distributions_come_back_whole() -> None:
    q = dist.Independent(dist.MultivariateNormal(jnp.ones((3, 2)), precision_matrix=2 * jnp.eye(2)), 1)
    back = unwrap_distributions(jax.tree.map(lambda leaf: leaf, Ordered(q)))
    np.testing.assert_allclose(back.log_prob(jnp.zeros((3, 2))), q.log_prob(jnp.zeros((3, 2))))


METHODS: list[Any] = [bl.Exact(5), bl.Gibbs(num_samples=5), bl.MeanField(num_starts=1), bl.NUTS(num_samples=5)]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_no_state_holds_a_distribution_as_it_is(method: Any) -> None:
    with precision_scope():
        bound = bl.bind(CASES["normal_precision"].program, CASES["normal_precision"].data)
        sampler = method.plan(Analysis(bound))
        data = jax.eval_shape(sampler.prepare, bound)
        state = jax.eval_shape(sampler.start, jax.ShapeDtypeStruct((2,), np.uint32), data)
    found = jax.tree.leaves(state, is_leaf=lambda leaf: isinstance(leaf, dist.Distribution))
    assert not [leaf for leaf in found if isinstance(leaf, dist.Distribution)]
