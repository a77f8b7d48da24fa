"""Whatever is found about a Bound is searched for once, however many methods and verbs ask."""

import pytest

import bayeslab as bl
from bayeslab.models import gaussian_mixture, linear_regression, normal_gamma
from bayeslab.programs.program import precision_scope
from bayeslab.transforms import analysis
from bayeslab.transforms.analysis import Analysis
from quick_cases import quick_ones


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The searches that are made, by what is searched for."""
    made: list[str] = []
    for name in ("find_conditionals", "elimination_order", "compressible"):
        search = getattr(analysis, name)
        monkeypatch.setattr(
            analysis, name, lambda *given, s=search, n=name, **more: (made.append(n), s(*given, **more))[1]
        )
    return made


@pytest.mark.parametrize(
    "lecture",
    quick_ones([normal_gamma, linear_regression, gaussian_mixture], linear_regression, gaussian_mixture),
    ids=lambda m: m.__name__,
)
def test_a_fit_and_explain_search_once(lecture: object, searches: list[str]) -> None:
    bl.fit(0, lecture.model, lecture.example(), progress=False)  # type: ignore[attr-defined]
    assert searches.count("find_conditionals") == 1
    assert searches.count("compressible") <= 1
    assert searches.count("elimination_order") <= 2
    searches.clear()
    bl.explain(lecture.model, lecture.example())  # type: ignore[attr-defined]
    assert searches.count("find_conditionals") == 1
    assert searches.count("compressible") <= 1


def test_an_order_that_there_is_not_is_looked_for_once(searches: list[str]) -> None:
    with precision_scope():
        one = Analysis(bl.bind(gaussian_mixture.model, gaussian_mixture.example()))
        reasons = []
        for _ in range(2):
            with pytest.raises(ValueError, match="once") as refusal:
                one.order(one.bound.latent)
            reasons.append(str(refusal.value))
        assert reasons[0] == reasons[1]
        assert searches.count("elimination_order") == 1
        assert one.plain is one
        assert one.ask(id) == one.ask(id) == id(one.bound)
