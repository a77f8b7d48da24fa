"""Factors that turn, change places or change signs from draw to draw are brought back."""

from typing import Any

import arviz_base
import arviz_stats
import numpy as np
import pytest
import xarray as xr
from scipy.stats import ortho_group

from bayeslab.diagnostics.align import align
from bayeslab.diagnostics.compare import compare_posteriors

SITES = {"w": "factor", "z": "factor"}


def factors(seed: int, up_to: str) -> tuple[xr.DataTree, np.ndarray[Any, Any]]:
    """Draws of loadings and factors about one place, each moved by its own orthogonal matrix; and the product w z'."""
    rng = np.random.default_rng(seed)
    chains, draws, size = 2, 100, 3
    w = np.linspace(-2, 2, 15).reshape(5, 3) ** 2 + 0.1 * rng.normal(size=(chains, draws, 5, size))
    z = np.random.default_rng(1).normal(size=(8, size)) + 0.1 * rng.normal(size=(chains, draws, 8, size))
    moves = ortho_group.rvs(size, chains * draws, random_state=seed)
    if up_to == "signed permutations":
        order = rng.permuted(np.tile(np.arange(size), (chains * draws, 1)), axis=1)
        moves = np.eye(size)[order] * rng.choice([-1.0, 1.0], (chains * draws, 1, size))
    moves = moves.reshape(chains, draws, size, size)
    dims = {"w": ["feature", "factor"], "z": ["row", "factor"]}
    return arviz_base.from_dict({"posterior": {"w": w @ moves, "z": z @ moves}}, dims=dims), w @ np.swapaxes(z, 2, 3)


@pytest.mark.parametrize("up_to", ["rotations", "signed permutations"])
def test_draws_are_brought_together(up_to: str) -> None:
    tree, product = factors(0, up_to)
    aligned = align(tree, SITES, up_to=up_to)
    w, z = (aligned["posterior"][name] for name in ("w", "z"))
    np.testing.assert_allclose(w.values @ np.swapaxes(z.values, 2, 3), product, atol=1e-12)
    assert float(tree["posterior"]["w"].std(("chain", "draw")).max()) > 1
    assert float(w.std(("chain", "draw")).max()) < 0.2
    assert float(arviz_stats.rhat(aligned["posterior"].to_dataset())["w"].max()) < 1.05
    rotation = aligned["alignment/rotation"]
    assert rotation.dims == ("chain", "draw", "factor", "factor_")
    np.testing.assert_allclose(tree["posterior"]["w"].values @ rotation.values, w.values, atol=1e-12)


@pytest.mark.parametrize("up_to", ["rotations", "signed permutations"])
def test_a_reference_is_kept_and_comparisons_align_all(up_to: str) -> None:
    first, second = factors(0, up_to)[0], factors(5, up_to)[0]
    reference = align(first, SITES, up_to=up_to)
    found = align(second, SITES, reference=reference, up_to=up_to)
    difference = found["posterior"]["w"].mean(("chain", "draw")) - reference["posterior"]["w"].mean(("chain", "draw"))
    assert float(abs(difference).max()) < 0.05
    for tree in (reference, second):
        tree.attrs |= {"method": "Gibbs"}
    table = compare_posteriors({"first": reference, "second": second})
    assert float(table["mean_error_max"].max()) < 1


def test_a_signed_permutation_has_one_entry_in_every_row() -> None:
    tree, _ = factors(2, "signed permutations")
    rotation = align(tree, SITES, up_to="signed permutations")["alignment/rotation"].values
    np.testing.assert_array_equal(np.abs(rotation).sum(2), 1)
    np.testing.assert_array_equal(np.abs(rotation).max(3), 1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"up_to": "reflections"}, "up_to is one of"),
        ({"up_to": "rotations", "order_by": "w"}, "need whole components"),
        ({"up_to": "rotations", "labels": ["z"]}, "need whole components|dimension 'factor'"),
        ({"up_to": "rotations", "site_dims": {"w": ("factor", "feature")}}, "one size|two dimensions"),
    ],
)
def test_what_cannot_be_rotated_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        align(factors(0, "rotations")[0], **{"site_dims": SITES, **more})
