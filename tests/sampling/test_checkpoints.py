"""Fits that are killed lose no finished draw, and files are whole or as they were."""

import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import xarray as xr

import bayeslab as bl
from bayeslab import kernels
from bayeslab.models import gaussian_mixture, normal_gamma
from bayeslab.programs.binding import bind
from bayeslab.results.datatree import SETTINGS_ATTRIBUTE, has_same_data
from bayeslab.results.saving import save
from bayeslab.sampling import checkpoints

LECTURE, DATA = gaussian_mixture, gaussian_mixture.example()
METHOD = bl.Gibbs(num_warmup=20, num_samples=60, num_chains=2)
METHODS = [METHOD, bl.NUTS(num_warmup=50, num_samples=40, num_chains=2), bl.Exact(num_samples=50)]


def same(a: xr.DataTree, b: xr.DataTree) -> None:
    for group in ("posterior", "sample_stats", "sampler_state"):
        xr.testing.assert_identical(a[group].to_dataset().drop_attrs(), b[group].to_dataset().drop_attrs())


@pytest.fixture(autouse=True)
def _every_portion_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "MIN_SECONDS_BETWEEN_WRITES", 0.0)
    monkeypatch.setattr(checkpoints, "FIRST_PORTION_SHARE", 0.1)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_draws_in_portions_are_those_of_one_run(method: Any, tmp_path: Path) -> None:
    lecture = normal_gamma
    whole = bl.fit(0, lecture.model, lecture.example(), method, progress=False)
    path = tmp_path / "fit.nc"
    same(bl.fit(0, lecture.model, lecture.example(), method, checkpoint=path, progress=False), whole)
    same(xr.load_datatree(path), whole)


def test_a_complete_checkpoint_is_returned_and_a_longer_fit_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fit.nc"
    longer = bl.Gibbs(num_warmup=20, num_samples=80, num_chains=2)
    whole = bl.fit(0, LECTURE.model, DATA, longer, progress=False)
    short = bl.fit(0, LECTURE.model, DATA, METHOD, checkpoint=path, progress=False)
    written = path.stat().st_mtime_ns
    same(bl.fit(0, LECTURE.model, DATA, METHOD, checkpoint=path, progress=False), short)
    assert path.stat().st_mtime_ns == written
    same(bl.fit(0, LECTURE.model, DATA, longer, checkpoint=path, progress=False), whole)


def test_an_optimiser_is_written_once_it_has_finished(tmp_path: Path) -> None:
    path, lecture = tmp_path / "fit.nc", normal_gamma
    first = bl.fit(0, lecture.model, lecture.example(), bl.Laplace(num_samples=20), checkpoint=path, progress=False)
    same(
        bl.fit(0, lecture.model, lecture.example(), bl.Laplace(num_samples=20), checkpoint=path, progress=False), first
    )


def test_interrupted_between_portions_it_returns_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, calls = tmp_path / "fit.nc", []
    written = checkpoints.save

    def interrupted(tree: xr.DataTree, path: Path) -> None:
        written(tree, path)
        calls.append(tree.posterior.sizes["draw"])
        if len(calls) == 1:
            monkeypatch.setattr(import_module("bayeslab.fitting"), "drive", _keyboard)

    monkeypatch.setattr(checkpoints, "save", interrupted)
    tree = bl.fit(0, LECTURE.model, DATA, METHOD, checkpoint=path, progress=False)
    assert tree.attrs["interrupted"] == 1
    assert tree.posterior.sizes["draw"] == calls[-1] < METHOD.num_samples
    monkeypatch.undo()
    whole = bl.fit(0, LECTURE.model, DATA, METHOD, progress=False)
    same(bl.fit(0, LECTURE.model, DATA, METHOD, checkpoint=path, progress=False), whole)


def _keyboard(*arguments: Any, **settings: Any) -> None:
    raise KeyboardInterrupt


KILLED = """
import sys
import bayeslab as bl
from bayeslab.sampling import checkpoints
from bayeslab.models import gaussian_mixture as lecture

checkpoints.MIN_SECONDS_BETWEEN_WRITES, checkpoints.FIRST_PORTION_SHARE = 0.0, 0.001
print("ready", flush=True)
method = bl.Gibbs(num_warmup=20, num_samples=int(sys.argv[2]), num_chains=2)
bl.fit(0, lecture.model, lecture.example(), method, checkpoint=sys.argv[1], progress=False)
"""


@pytest.mark.parametrize("wait", [0.05, pytest.param(0.4, marks=pytest.mark.slow)])
def test_what_was_killed_goes_on(wait: float, tmp_path: Path) -> None:
    """SIGKILL at a moment of its own choice, after the first write; no draw in the file is drawn again."""
    path, number = tmp_path / "fit.nc", 3000
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path), str(number)], stdout=subprocess.PIPE)
    try:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(wait)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finished = xr.load_datatree(path)
    assert 0 < finished.posterior.sizes["draw"] < number
    method = bl.Gibbs(num_warmup=20, num_samples=finished.posterior.sizes["draw"] + 5, num_chains=2)
    whole = bl.fit(0, LECTURE.model, DATA, method, progress=False)
    same(bl.fit(0, LECTURE.model, DATA, method, checkpoint=path, progress=False), whole)


def test_files_that_do_not_fit_are_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "fit.nc"
    bl.fit(0, LECTURE.model, DATA, METHOD, checkpoint=path, progress=False)

    def again(
        key: int = 0, data: Any = DATA, method: Any = METHOD, model: Any = LECTURE.model, **settings: Any
    ) -> None:
        bl.fit(key, model, data, method, progress=False, **{"checkpoint": path, **settings})

    with pytest.raises(ValueError, match=r"of key 0 0, not of 0 1; name another file"):
        again(key=1)
    with pytest.raises(ValueError, match="is of other data or settings"):
        again(data=DATA | {"y": DATA["y"] + 1})
    with pytest.raises(ValueError, match="was made by Gibbs"):
        again(method=bl.Gibbs(num_warmup=10, num_samples=60, num_chains=2))
    with pytest.raises(ValueError, match=r"of model bayeslab.models.gaussian_mixture.model, not of"):
        again(model=normal_gamma.model, data=normal_gamma.example())
    with pytest.raises(ValueError, match="give that or checkpoint, not both"):
        again(previous=xr.load_datatree(path))
    with pytest.raises(NotADirectoryError, match="there is no folder"):
        again(checkpoint=tmp_path / "nowhere" / "fit.nc")


def _set(prior: Any, noise: str, kernel: Any, link: Any = abs, plain: bool = True) -> None:
    w = numpyro.sample("w", prior)
    scale = kernel(np.zeros((1, 1)))[0] + 1.0
    numpyro.sample("y", {"normal": dist.Normal, "cauchy": dist.Cauchy}[noise](w if plain else link(w), scale))


SET = {"prior": dist.Normal(0.0, 1.0), "noise": "normal", "kernel": kernels.matern32(2.0), "y": 1.0}
OTHERS = {
    "distribution": {"prior": dist.Cauchy(0.0, 1.0)},
    "text": {"noise": "cauchy"},
    "kernel": {"kernel": kernels.matern52(2.0)},
    "function": {"link": np.sign},
    "flag": {"plain": False},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_other_settings_are_refused(other: dict[str, Any], tmp_path: Path) -> None:
    """Where every array is as it was."""
    path, method = tmp_path / "fit.nc", bl.NUTS(num_warmup=20, num_samples=20, num_chains=1)
    tree = bl.fit(0, _set, SET, method, checkpoint=path, progress=False)
    assert has_same_data(tree, bind(_set, SET))
    with pytest.raises(ValueError, match="previous is of other data or settings, so it cannot be continued on these"):
        bl.fit(0, _set, SET | other, method, checkpoint=path, progress=False)
    assert "predictions" in bl.predict(0, _set, SET | other, tree).children
    assert "posterior_predictive" in bl.predict(0, _set, SET, tree).children


def test_a_result_that_does_not_say_its_settings_is_continued() -> None:
    method = bl.NUTS(num_warmup=20, num_samples=20, num_chains=1)
    tree = bl.fit(0, _set, SET, method, progress=False)
    del tree["constant_data"].attrs[SETTINGS_ATTRIBUTE]
    assert bl.fit(0, _set, SET, method, previous=tree, progress=False)["posterior"].sizes["draw"] == 40


DIGEST = """
import numpy as np
import numpyro
import numpyro.distributions as dist
from bayeslab import kernels
from bayeslab.programs.binding import bind
from bayeslab.results.settings_digest import settings_digest

def model(prior, kernel, link, nothing, flag, names):
    numpyro.sample("w", dist.Normal(0.0, 1.0))

prior = {"a": dist.LogNormal(0.0, 1.0), "b": "x", "c": dist.Dirichlet(np.ones(3)).expand([4]).mask(True)}
kernel = kernels.periodic(1.0, 1.0) + kernels.squared_exponential(2.0)
data = {"prior": prior, "kernel": kernel, "link": np.exp, "nothing": None, "flag": True, "names": {"p", "q", "r"}}
print(settings_digest(bind(model, data)))
"""


@pytest.mark.slow
def test_settings_have_one_digest_in_all_processes() -> None:
    digests = set()
    for seed in ("1", "2", "3"):
        run = [sys.executable, "-c", DIGEST]
        done = subprocess.run(
            run, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": seed}
        )
        digests.add(done.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("keep", [0, 8, 100, 5000])
def test_a_damaged_checkpoint_is_refused_and_kept(keep: int, tmp_path: Path) -> None:
    path = tmp_path / "fit.nc"
    bl.fit(0, LECTURE.model, DATA, METHOD, checkpoint=path, progress=False)
    damaged = path.read_bytes()[:keep]
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="is damaged or no result of fit"):
        bl.fit(0, LECTURE.model, DATA, METHOD, checkpoint=path, progress=False)
    assert path.read_bytes() == damaged


FULL = """
import resource, signal, sys
from pathlib import Path
import bayeslab as bl
from bayeslab.models import normal_gamma as lecture

path = Path(sys.argv[1])
tree = bl.fit(0, lecture.model, lecture.example(), bl.Exact(num_samples=20_000), progress=False)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
from bayeslab.results.saving import save
try:
    save(tree, path)
except OSError as error:
    print(error)
"""


def test_a_disk_without_room_leaves_the_old_file_and_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "fit.nc"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == f"cannot write '{path}': File too large; what it held before is as it was\n"
    assert done.stderr == ""
    assert [each.name for each in tmp_path.iterdir()] == ["fit.nc"]
    assert path.read_bytes() == b"old"


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    tree = bl.fit(0, LECTURE.model, DATA, METHOD, progress=False)
    save(tree, tmp_path / "fit.nc")
    same(xr.load_datatree(tmp_path / "fit.nc"), tree)
    assert np.isfinite(tree.posterior["mu"]).all()
