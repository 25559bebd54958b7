import pytest

from benchmarks import soak


@pytest.mark.parametrize(("size", "calls"), [(1, 5000), (64, 600)])
def test_many_callbacks_neither_hang_nor_grow(size, calls):
    found = soak.soak("hopper", size, calls, threads=2, chunk=calls // 5)
    assert found.calls == calls and found.episodes > size
    assert found.memory_after - found.memory_before < 20
    assert len(soak.make_table([found]).rows) == 1
