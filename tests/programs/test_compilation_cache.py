"""Compiled code is kept on disk, unless the user has said where, or that it is not to be."""

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from bayeslab.programs.tracing import compilation_cache as cache

NAMES = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.fixture(autouse=True)
def _no_cache_yet() -> Iterator[None]:
    before = {name: getattr(jax.config, name) for name in NAMES}
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_code_is_kept_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESLAB_CACHE", str(tmp_path / "new"))
    cache.keep_compilations()
    jax.jit(lambda x: 3 * x + 0.123)(1.0).block_until_ready()
    assert [path for path in (tmp_path / "new").rglob("*") if path.is_file()]


def test_the_folder_is_the_users_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BAYESLAB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.keep_compilations()
    assert Path(jax.config.jax_compilation_cache_dir).parent == tmp_path / "bayeslab"


def test_what_was_set_before_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAYESLAB_CACHE", "off")
    cache.keep_compilations()
    assert jax.config.jax_compilation_cache_dir is None
    monkeypatch.setenv("BAYESLAB_CACHE", str(tmp_path / "other"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    cache.keep_compilations()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)


def test_a_folder_that_cannot_be_made_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BAYESLAB_CACHE", str(tmp_path / "file"))
    cache.keep_compilations()
    assert jax.config.jax_compilation_cache_dir is None


def test_the_oldest_files_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_BYTES", 25)
    for age in range(4):
        file = tmp_path / str(age)
        file.write_bytes(bytes(10))
        os.utime(file, (1000 - age, 1000 - age))
    cache._remove_oldest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
