"""Compiled programs on disk: where they are kept, how many, and what is not kept."""

import os
import zlib

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from experiments import compiled


@pytest.fixture
def own_settings(monkeypatch, tmp_path):
    """The cache's settings as a user has them, until the test is over."""
    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update(names[0], None)
    for name in names:
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compilation_cache.reset_cache()  # the next program is kept where the settings say then
    yield tmp_path / "roid_jax" / "compiled"
    compilation_cache.reset_cache()
    for name, value in before.items():
        jax.config.update(name, value)


def make(folder, name, size, age):
    file = folder / f"{name}-cache"
    file.write_bytes(os.urandom(size))
    os.utime(file, (1e9 - age, 1e9 - age))


def test_programs_are_kept_in_the_users_cache(own_settings):
    compiled.keep()
    assert jax.config.jax_compilation_cache_dir.startswith(str(own_settings))
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 0.3


def test_another_place_is_left_as_it_was_named(own_settings, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "elsewhere"))
    compiled.keep()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "elsewhere")
    assert not own_settings.exists()


def test_a_place_that_cannot_be_written_is_no_error(own_settings):
    own_settings.parent.write_text("a file where a folder should be")
    compiled.keep()
    assert jax.config.jax_compilation_cache_dir is None


def test_the_oldest_go_first_and_no_more_than_must(tmp_path):
    for age, name in enumerate(["newest", "newer", "older", "oldest"]):
        make(tmp_path, name, 100, age)
    compiled.prune(tmp_path, largest=250)
    assert {file.name for file in tmp_path.iterdir()} == {"newest-cache", "newer-cache"}
    compiled.prune(tmp_path, largest=200)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_kill_cut_off_is_removed(tmp_path):
    whole = zlib.compress(os.urandom(10_000))
    for name, content in {"whole": whole, "half": whole[:5000], "empty": b""}.items():
        (tmp_path / f"{name}-cache").write_bytes(content)
    compiled.prune(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["whole-cache"]


def test_what_jax_keeps_is_whole(own_settings):
    compiled.keep()
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    folder = next(own_settings.iterdir())
    jax.jit(lambda x: jnp.cos(x) * 17.125)(jnp.arange(3.0))
    kept = set(folder.glob("*-cache"))
    assert kept
    compiled.prune(folder)
    assert set(folder.glob("*-cache")) == kept
