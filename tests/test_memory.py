import pathlib
import platform
import subprocess
import sys

import pytest

from roid_jax import memory

glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries decide themselves"
)
ROOT = pathlib.Path(__file__).parent.parent


def printed_by(program):
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def test_there_is_no_more_room_than_the_machine_has():
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    total = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal"))
    assert 0 < memory.room() <= total * 1024


def test_a_container_has_less(tmp_path, monkeypatch):
    for said, is_bound in (("1000000\n", True), ("max\n", False)):
        (tmp_path / "memory.max").write_text(said)
        monkeypatch.setattr(memory, "_CONTAINER", tmp_path / "memory.max")
        assert (memory.room() == 1_000_000) == is_bound


def test_a_process_with_a_limit_has_what_is_left_of_it():
    program = (
        "import resource; from roid_jax import memory;"
        "resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, resource.RLIM_INFINITY));"
        "before = memory.room(); kept = bytearray(2**29); print(before, memory.room())"
    )
    before, after = map(int, printed_by(program).split())
    assert before < 3 * 2**30 and 2**29 <= before - after < 2**29 + 2**24


@glibc
def test_large_buffers_go_back_as_soon_as_they_are_free():
    program = (
        "import numpy; from roid_jax import memory; memory.keep_little();"
        "held = [numpy.ones(2**20) for _ in range(20)];"  # 8 MB each
        "before = memory.held(); last = held.pop(); held.clear(); print(before - memory.held())"
    )
    assert float(printed_by(program)) > 150.0


@glibc
def test_what_is_free_is_given_back():
    program = (
        "from roid_jax import memory;"
        "held = [bytes(1000) for _ in range(200_000)]; last = bytes(1000); del held;"
        "before = memory.held(); memory.give_back(); print(before - memory.held())"
    )
    assert float(printed_by(program)) > 100.0
