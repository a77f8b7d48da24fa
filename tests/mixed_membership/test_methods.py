"""Which methods a program of mixed membership has: those that count origins at size, the others where asked for."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bayeslab as bl
from bayeslab.mixed_membership.methods import counterpart, method_at_size
from bayeslab.models import lda, normal_gamma, structure_admixture
from bayeslab.planning import plan
from bayeslab.programs.program import precision_scope
from bayeslab.transforms.analysis import Analysis

EXAMPLE = lda.example()
SHORT = {"num_warmup": 2, "num_samples": 3, "num_chains": 1}


@pytest.fixture
def at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayeslab.mixed_membership.methods.MIN_ORIGINS", 0)


@pytest.fixture(autouse=True)
def in_double_precision() -> Iterator[None]:
    with precision_scope():
        yield


def analysis_of(model: Any, data: Any) -> Analysis:
    return Analysis(bl.bind(model, data))


def test_methods_of_the_laboratory_have_counterparts_with_their_settings() -> None:
    assert counterpart(bl.Gibbs(1, 2, 3, 4)) == bl.mixed_membership.Gibbs(1, 2, 3, 4)
    assert counterpart(bl.MAP(5, 6)) == bl.mixed_membership.MAP(5, 6)
    assert counterpart(bl.EM(5, 6)) == bl.mixed_membership.EM(5, 6)
    assert counterpart(bl.MeanField(5, 6, 7, 0.5)) == bl.mixed_membership.MeanField(5, 6, 7, 0.5)


@pytest.mark.parametrize(
    "method",
    [
        bl.Gibbs(joint=(("z",),)),
        bl.MAP(collapse=("shares",)),
        bl.EM(collapse=("shares",)),
        bl.MeanField(joint=(("shares",),)),
        bl.NUTS(),
        bl.Exact(),
        bl.mixed_membership.Gibbs(),
    ],
    ids=repr,
)
@pytest.mark.usefixtures("at_any_size")
def test_what_only_one_method_does_is_done_by_it(method: Any) -> None:
    """Joint blocks and sites to integrate out are of the methods that take them."""
    assert method_at_size(analysis_of(lda.model, EXAMPLE), method) is method


@pytest.mark.parametrize("name", ["Gibbs", "MAP", "EM", "MeanField"])
@pytest.mark.usefixtures("at_any_size")
def test_at_size_origins_are_counted_without_a_word(name: str) -> None:
    analysis = analysis_of(lda.model, EXAMPLE)
    assert method_at_size(analysis, getattr(bl, name)()) == getattr(bl.mixed_membership, name)()
    assert (
        method_at_size(analysis_of(normal_gamma.model, normal_gamma.example()), getattr(bl, name)())
        == getattr(bl, name)()
    )


def test_few_origins_are_kept() -> None:
    assert method_at_size(analysis_of(lda.model, EXAMPLE), bl.Gibbs()) == bl.Gibbs()


@pytest.mark.usefixtures("at_any_size")
def test_origins_that_are_to_be_kept_are_sites_of_the_result() -> None:
    method = bl.mixed_membership.Gibbs(**SHORT, keep_origins=True)
    kept = bl.fit(0, lda.model, EXAMPLE, method, progress=False)
    counted = bl.fit(0, lda.model, EXAMPLE, bl.Gibbs(**SHORT), progress=False)
    assert "z" in kept["posterior"]
    assert "z" not in counted["posterior"]
    assert plan(analysis_of(lda.model, EXAMPLE)).method == bl.mixed_membership.Gibbs()


@pytest.mark.usefixtures("at_any_size")
def test_known_components_leave_the_weights_to_the_laboratory() -> None:
    """Gibbs counts origins with them as well; for the others only the weights are unknown."""
    data = structure_admixture.example()
    alleles = np.asarray(data["num_alleles"])
    even = (np.arange(alleles.max()) < alleles[:, None]) / alleles[:, None]
    data = data | {"frequencies": np.tile(even, (data["num_populations"], 1, 1))}
    analysis = analysis_of(structure_admixture.model, data)
    assert method_at_size(analysis, bl.Gibbs()) == bl.mixed_membership.Gibbs()
    assert method_at_size(analysis, bl.MeanField()) == bl.MeanField()
    with pytest.raises(ValueError, match="site 'frequencies' is data, so weights alone are unknown"):
        bl.mixed_membership.MeanField().plan(analysis)


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("Gibbs", {"num_samples": 0}, "num_samples of Gibbs must be a positive integer"),
        ("Gibbs", {"mesh": 1, "keep_origins": True}, "leave out mesh or keep_origins"),
        ("MAP", {"basis": "logits"}, "basis of MAP must be one of"),
        ("EM", {"num_starts": 0}, "num_starts of EM must be a positive integer"),
        ("MeanField", {"batches": 0}, "batches of MeanField must be a positive integer"),
        ("MeanField", {"tolerance": 0.0}, "tolerance of MeanField must be positive"),
    ],
)
def test_wrong_settings_are_refused(method: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        getattr(bl.mixed_membership, method)(**settings)


@pytest.mark.parametrize("name", ["Gibbs", "MAP", "EM", "MeanField"])
def test_other_programs_are_refused_with_the_way_out(name: str) -> None:
    method = getattr(bl.mixed_membership, name)()
    with pytest.raises(ValueError, match=rf"origins cannot be kept as counts: .*; use bl.{name}\(\)"):
        bl.fit(0, normal_gamma.model, normal_gamma.example(), method, progress=False)
