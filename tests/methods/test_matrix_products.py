"""Products of matrices in single precision have all of its digits on a GPU, which leaves three of them by default."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bayeslab as bl
from bayeslab.distributions.processor import as_on_accelerator
from bayeslab.models import gaussian_hmm, gp_regression, lda, linear_regression, structure_admixture
from bayeslab.programs.program import compilation_signature, precision_scope
from bayeslab.sampling.executables import compile_sampler
from bayeslab.sampling.placement import ONE_DEVICE, Placement
from bayeslab.transforms.analysis import Analysis
from operations import lowered_for_cuda
from quick_cases import quick_ones

FITS = {
    "topics": (lda, bl.mixed_membership.MeanField(num_starts=2)),
    "structure": (structure_admixture, bl.mixed_membership.MeanField(num_starts=2)),
    "states": (gaussian_hmm, bl.EM(num_starts=2)),
    "Normal blocks": (linear_regression, bl.Gibbs(num_chains=2)),
    "Gaussian process": (gp_regression, bl.NUTS(num_chains=2)),
}


def imprecise_products(program: str) -> list[str]:
    """The products of a lowered program whose operands are in single precision, but for those in highest precision."""
    products = re.findall(r"stablehlo\.(?:dot_general|convolution|dot) .*", program)
    return [each for each in products if "f32>" in each and each.count("HIGHEST") < 2]


def programs_of_a_fit(model: Any, data: Any, method: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a fit in single precision compiles of its sampler, all chains at once, lowered for CUDA."""

    def lower(_: Any, function: Any, *arguments: Any, out_layout: Any = None) -> str:
        return jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()

    monkeypatch.setattr(Placement, "lower", lower)
    with precision_scope(np.float32), as_on_accelerator():
        bound = bl.bind(model, data)
        sampler = method.plan(Analysis(bound))
        code = compile_sampler.__wrapped__(sampler, compilation_signature(bound), method.num_chains, ONE_DEVICE)
        return [make() for make in code.lowered.values()]


@pytest.mark.parametrize("name", quick_ones(FITS, "topics", "Normal blocks"))
def test_products_of_a_fit_have_all_digits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lecture, method = FITS[name]
    programs = programs_of_a_fit(lecture.model, lecture.example(), method, monkeypatch)
    assert any("stablehlo.dot_general" in program for program in programs)
    assert [each for program in programs for each in imprecise_products(program)] == []


def test_a_product_with_three_digits_is_found() -> None:
    x = jnp.ones((4, 4), jnp.float32)
    assert imprecise_products(lowered_for_cuda(jnp.matmul, x, x))
    with precision_scope():
        assert not imprecise_products(lowered_for_cuda(jnp.matmul, x, x))
        assert imprecise_products(lowered_for_cuda(lambda x: jnp.matmul(x, x, precision="default"), x))
