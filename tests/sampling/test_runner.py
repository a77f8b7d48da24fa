"""The runner: compiled once, interrupted and continued without losing or changing a draw."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import bayeslab as bl
from bayeslab import bind, fit
from bayeslab.methods.mcmc import MCMC
from bayeslab.methods.stated import Stated
from bayeslab.models import linear_regression, normal_gamma
from bayeslab.programs.program import precision_scope, raw_key
from bayeslab.sampling.continuation import state_arrays
from bayeslab.sampling.executables import SamplerExecutables
from bayeslab.sampling.placement import Placement
from bayeslab.sampling.runner import ChainStarts, Run, drive, whole_chain
from bayeslab.transforms.analysis import Analysis
from compilations import counted_compilations
from quick_cases import quick_ones

SHORT = bl.NUTS(num_warmup=100, num_samples=100, num_chains=2)
SVI = bl.SVI(num_steps=300, num_samples=50)
DATA = normal_gamma.example()


METHODS = [SHORT, SVI, bl.MAP(), bl.Laplace(), Stated(normal_gamma.posterior), bl.Exact(50), bl.Gibbs(10, 50, 2)]


@pytest.mark.parametrize("method", quick_ones(METHODS, SHORT, bl.Exact(50)), ids=lambda method: type(method).__name__)
def test_a_second_fit_with_other_data_of_the_same_shapes_compiles_nothing(method: Any) -> None:
    def program(num_rows: int, mu0: float, kappa0: float, alpha: float, beta: float) -> None:
        normal_gamma.model(num_rows, mu0, kappa0, alpha, beta)  # a program that no other test has compiled

    with counted_compilations() as first:
        fit(0, program, DATA, method, progress=False)
    with counted_compilations() as second:
        fit(1, program, DATA | {"y": DATA["y"] + 1.0, "beta": 3}, method, progress=False)
    assert first != []
    assert second == []


def test_numbers_of_draws_and_chains_compile_nothing() -> None:
    fit(0, normal_gamma.model, DATA, SHORT, progress=False)
    with counted_compilations() as seen:
        for other in (bl.NUTS(num_warmup=100, num_samples=250, num_chains=3, thinning=2), SHORT):
            tree = fit(0, normal_gamma.model, DATA, other, progress=False)
            assert dict(tree["posterior"].sizes) == {"chain": other.num_chains, "draw": other.num_samples}
    # splitting the key into another number of chains is all that is new
    assert len(seen) <= 3


def run(method: Any = SHORT, previous: Any = None, report: Any = None, vectorised: bool | None = None) -> Run:
    with precision_scope():
        bound = bind(linear_regression.model, linear_regression.example())
        starts, placement = ChainStarts(raw_key(6), previous), Placement(vectorised=vectorised)
        return drive(starts, method, method.plan(Analysis(bound)), bound, placement, report)


def test_the_runner_and_one_compiled_chain_make_the_same_draws() -> None:
    with precision_scope():
        bound = bind(linear_regression.model, linear_regression.example())
        method = bl.NUTS(num_warmup=20, num_samples=10, num_chains=1, thinning=2)
        sampler, key = method.plan(Analysis(bound)), raw_key(6)
        driven = drive(ChainStarts(key), method, sampler, bound).draws.samples["w"][0]
        chain = jax.random.split(key, 1)[0]
        mapped = jax.jit(lambda key: whole_chain(key, method, sampler, bound))(chain).samples["w"]
    np.testing.assert_allclose(driven, mapped, rtol=1e-6)  # rounding grows along a chain


def test_thinning_keeps_one_draw_in_so_many() -> None:
    all_draws = run(bl.NUTS(num_warmup=50, num_samples=60, num_chains=1)).draws.samples["tau"]
    kept = run(bl.NUTS(num_warmup=50, num_samples=20, num_chains=1, thinning=3)).draws.samples["tau"]
    np.testing.assert_array_equal(kept[0], all_draws[0, 2::3])


@pytest.mark.parametrize("method", [SHORT, pytest.param(SVI, marks=pytest.mark.slow)], ids=["NUTS", "SVI"])
def test_chains_together_are_chains_in_threads(method: Any) -> None:
    """What accelerators do: all chains as one."""
    short = bl.NUTS(num_warmup=10, num_samples=5, num_chains=3) if method is SHORT else method
    apart, together = run(short, vectorised=False), run(short, vectorised=True)
    for name, draws in apart.draws.samples.items():
        np.testing.assert_allclose(together.draws.samples[name], draws, rtol=1e-4)
    assert {k: v.shape for k, v in apart.history.items()} == {k: v.shape for k, v in together.history.items()}


class Interrupt:
    """Presses Ctrl-C at the first look at the run where `when` holds."""

    def __init__(self, when: float):
        self._when = when

    def __call__(self, done: int, total: int, news: dict[str, float]) -> None:
        if done >= self._when * total:
            raise KeyboardInterrupt


LONG = bl.NUTS(num_warmup=100, num_samples=200_000, num_chains=2)


def test_an_interruption_keeps_the_draws_and_a_state_to_go_on_from() -> None:
    """The draws are the first ones of an undisturbed run, and going on gives the next ones."""
    stopped = run(LONG, report=Interrupt(0.01))
    kept = stopped.draws.samples["w"].shape[1]
    assert stopped.interrupted
    assert 0 < kept < 200_000
    whole = run(bl.NUTS(num_warmup=100, num_samples=kept + 50, num_chains=2)).draws.samples["w"]
    np.testing.assert_array_equal(stopped.draws.samples["w"], whole[:, :kept])
    more = run(bl.NUTS(num_warmup=100, num_samples=50, num_chains=2), previous=stopped.state)
    np.testing.assert_array_equal(more.draws.samples["w"], whole[:, kept:])


def test_an_interruption_before_the_first_draw_has_nothing_to_keep() -> None:
    with pytest.raises(KeyboardInterrupt, match="before the first draw"):
        run(bl.NUTS(num_warmup=500_000, num_samples=10, num_chains=2), report=Interrupt(0.0))


def test_an_interrupted_optimiser_draws_from_where_it_is() -> None:
    stopped = run(bl.SVI(num_steps=1_000_000, window=100_000, num_samples=50), report=Interrupt(0.0))
    assert stopped.interrupted
    assert stopped.draws.samples["w"].shape[:2] == (1, 50)
    assert stopped.history["elbo"].shape[1] < 1_000_000


def test_a_failing_thread_raises_its_error() -> None:
    class Broken(Exception):
        pass

    def fail(*_: Any) -> None:
        raise Broken

    with pytest.raises(Broken):
        run(SHORT, report=fail)


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_result_survives_a_file(suffix: str, tmp_path: Path) -> None:
    tree = bl.predict(1, normal_gamma.model, DATA, fit(0, normal_gamma.model, DATA, SHORT, progress=False))
    path = tmp_path / f"tree.{suffix}"
    if suffix == "nc":
        tree.to_netcdf(path, engine="h5netcdf")
    else:
        tree.to_zarr(path, consolidated=False)
    kind: dict[str, Any] = {"engine": "h5netcdf"} if suffix == "nc" else {"engine": "zarr", "consolidated": False}
    loaded = xr.open_datatree(path, **kind)
    xr.testing.assert_equal(loaded, tree)
    assert loaded.attrs == tree.attrs
    loaded.close()


CONTINUE = """
import sys
import time
import xarray as xr
import bayeslab as bl
from bayeslab.models import normal_gamma

if __name__ == "__main__":
    previous = xr.load_datatree(sys.argv[1], engine="h5netcdf")
    method = bl.NUTS(num_warmup=100, num_samples=60, num_chains=2)
    tree = bl.fit(7, normal_gamma.model, normal_gamma.example(), method, previous=previous, progress=False)
    tree.to_netcdf(sys.argv[2])
"""


def test_another_process_goes_on_with_the_same_draws(tmp_path: Path) -> None:
    before, after, script = tmp_path / "before.nc", tmp_path / "after.nc", tmp_path / "go_on.py"
    first = fit(7, normal_gamma.model, DATA, bl.NUTS(num_warmup=100, num_samples=40, num_chains=2), progress=False)
    first.to_netcdf(before)
    script.write_text(CONTINUE)
    subprocess.run([sys.executable, script, before, after], check=True)
    whole = fit(7, normal_gamma.model, DATA, SHORT, progress=False)
    joined = xr.load_datatree(after, engine="h5netcdf")
    for group in ("posterior", "sample_stats"):
        xr.testing.assert_identical(joined[group].to_dataset().drop_attrs(), whole[group].to_dataset().drop_attrs())


def test_an_optimiser_goes_on_with_its_steps() -> None:
    half = fit(0, normal_gamma.model, DATA, bl.SVI(num_steps=100, num_samples=10), progress=False)
    assert half.attrs["converged"] == 0
    both = fit(0, normal_gamma.model, DATA, bl.SVI(num_steps=100, num_samples=10), previous=half, progress=False)
    assert both["history"].sizes["step"] == 200
    assert both["posterior"].sizes["draw"] == 10


def test_only_the_same_fit_is_continued() -> None:
    tree = fit(0, normal_gamma.model, DATA, SHORT, progress=False)
    other = MCMC(SHORT.plan(Analysis(bind(normal_gamma.model, DATA))).build, 100, 100, 2)
    for method, data, words in (
        (other, DATA, "previous was made by NUTS"),
        (SHORT, DATA | {"y": DATA["y"] + 1.0}, "previous is of other data"),
    ):
        with pytest.raises(ValueError, match=words):
            fit(0, normal_gamma.model, data, method, previous=tree, progress=False)
    with pytest.raises(ValueError, match="no group sampler_state"):
        fit(0, normal_gamma.model, DATA, SHORT, previous=tree.drop_nodes("sampler_state"), progress=False)


def test_a_state_holds_arrays_only() -> None:
    for leaf in state_arrays(run().state).values():
        assert leaf.dtype.kind in "fiub"


def test_progress_is_shown_and_silenced(capsys: pytest.CaptureFixture[str]) -> None:
    fit(0, normal_gamma.model, DATA, SHORT, progress=False)
    assert capsys.readouterr().err == ""
    fit(0, normal_gamma.model, DATA, SHORT)
    shown = capsys.readouterr().err
    assert "NUTS" in shown
    assert "divergences=0" in shown
    assert "400/400" in shown


def test_seconds_of_sampling_are_without_those_of_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SamplerExecutables.make_ready

    def slow(self: SamplerExecutables, *more: str) -> None:
        time.sleep(1.0)
        self.seconds += 1.0
        whole(self, *more)

    monkeypatch.setattr(SamplerExecutables, "make_ready", slow)
    lecture = normal_gamma
    tree = bl.fit(0, lecture.model, lecture.example(), bl.Exact(num_samples=10), progress=False)
    assert tree.attrs["sampling_seconds"] < 1.0 <= tree.attrs["compile_seconds"]
