"""Fixtures for the whole suite."""

import atexit
import gc
import os
import pathlib
import runpy
import shutil
import tempfile

# No test reaches another machine, nor does a Python that one starts.
NO_NETWORK = pathlib.Path(__file__).parent / "no_network"
runpy.run_path(str(NO_NETWORK / "sitecustomize.py"))
paths = [str(NO_NETWORK), *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(paths)

# Tests compile more than they compute, so the compiler is told not to try, nor to cut a program in
# parts for cores that are not there: a smoke run takes less than half the time so.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1",
)

# Each worker has a core for itself, as has what it starts: what is as small as tests are is slower
# where several threads share it.
if "PYTEST_XDIST_WORKER" in os.environ and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["PYTEST_XDIST_WORKER"][2:]) % len(cores)]})

# What one test compiled no other compiles again, nor does a program that one starts.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.mkdtemp(prefix="roid_jax-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import hypothesis
import jax
import pytest

from roid_jax import memory

# Tracing makes many objects and little garbage.
gc.set_threshold(50_000, 20, 20)

# The same examples every time: a test that fails today fails tomorrow.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("suite")


# Files that take a minute and more.
LONG = (
    *("agents", "train", "faults", "odt", "docs", "sweep", "pex", "calql", "mjx", "machines"),
    *("roid", "boorl", "seeds", "collect", "benchmarks", "kills", "biased_linear", "rlpd"),
    *("hidden_mode", "sac", "td3bc", "report_binary"),
)


def pytest_collection_modifyitems(items):
    """Long files come first, so that both workers end at the same time."""
    place = {f"test_{name}": i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONG)))


@pytest.fixture(scope="module", autouse=True)
def little_memory():
    """What a file compiled goes once there is much of it: few files need what others did."""
    yield
    if memory.held() > 3000.0:
        jax.clear_caches()
        gc.collect()
        memory.give_back()


@pytest.fixture(autouse=True)
def explicit_ranks():
    """Fails on `[B, 1] - [B]`, which broadcasts to `[B, B]` without a word."""
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture
def double_precision():
    with jax.enable_x64(True):
        yield
