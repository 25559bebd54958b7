import gc
import json
import operator
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import chex
import damages
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import checkpoint

ROOT = pathlib.Path(__file__).parent.parent


@chex.dataclass(frozen=True)
class State:
    weights: jax.Array
    key: jax.Array
    bits: jax.Array


def make_state(seed):
    return State(
        weights=jax.random.normal(jax.random.key(seed), (3, 2)),
        key=jax.random.split(jax.random.key(seed), 2),
        bits=jnp.arange(4, dtype=jnp.uint32) + seed,
    )


def plain(state):
    return state.replace(key=jax.random.key_data(state.key))


ROWS = [{"step": 0, "score": 1.5}, {"step": 5, "score": 1 / 3, "returns": [1e-30, 2.0]}]


def test_what_is_restored_is_what_was_saved_keys_notes_and_rows_included(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest() is None
        checkpoints.save(7, make_state(1), {"names": ["a"]}, rows=ROWS)
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest() == 7
        assert checkpoints.notes(7) == {"names": ["a"]} and checkpoints.rows(7) == ROWS
        restored = checkpoints.restore(7, make_state(2))
    assert isinstance(restored, State)
    chex.assert_trees_all_equal(plain(restored), plain(make_state(1)))
    assert restored.key.dtype == make_state(1).key.dtype


def test_the_last_ones_stay(tmp_path):
    with checkpoint.Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, make_state(step), {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3"]


def test_the_best_one_stays_as_well(tmp_path):
    with checkpoint.Checkpoints(tmp_path, keep=2) as checkpoints:
        for step, score in enumerate((3.0, 9.0, 1.0, 9.0, 2.0, 4.0)):
            checkpoints.save(step, make_state(step), {}, score=score)
        assert checkpoints.best() == 3 and checkpoints.latest() == 5
        assert checkpoints.recent() == (4, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4", "5"]
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.best() == 3


def test_a_state_that_is_given_away_while_it_is_written_is_saved_as_it_was(tmp_path):
    double = jax.jit(lambda state: jax.tree.map(lambda x: x + x, state), donate_argnums=0)
    state = {"weights": jnp.ones(1_000_000)}
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
        for _ in range(20):
            state = double(state)
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore(1, state)
    assert jnp.all(restored["weights"] == 1.0)


def test_a_run_killed_while_it_saves_leaves_the_last_whole_checkpoint(tmp_path):
    program = f"""
        import jax.numpy as jnp
        from roid_jax import checkpoint
        checkpoints = checkpoint.Checkpoints({str(tmp_path)!r}, keep=3)
        first = checkpoints.latest() or 0
        for step in range(first + 1, first + 1000):
            state = {{"weights": jnp.full(2_000_000, float(step))}}
            checkpoints.save(step, state, {{"step": step}})
            print(step - first, flush=True)
    """
    reached = 0
    for _ in range(3):
        run = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        while run.stdout.readline().strip() not in ("4", ""):
            pass
        run.send_signal(signal.SIGKILL)
        run.wait()
        run.stdout.close()
        with checkpoint.Checkpoints(tmp_path, keep=3) as checkpoints:
            latest = checkpoints.latest()
            restored = checkpoints.restore(latest, {"weights": jnp.zeros(2_000_000)})
            assert checkpoints.notes(latest) == {"step": latest}
        assert jnp.all(restored["weights"] == latest)
        assert latest > reached  # each life got further
        reached = latest


def test_a_run_of_another_kind_is_refused_by_the_field_that_differs():
    saved = {"task": "hopper", "sizes": [1, 2]}
    checkpoint.require_same(saved, {"task": "hopper", "sizes": (1, 2)})
    with pytest.raises(ValueError, match=r"made with task = 'hopper', not 'walker2d'"):
        checkpoint.require_same(saved, {"task": "walker2d", "sizes": (1, 2)})
    with pytest.raises(ValueError, match=r"made with seed = None, not 3"):
        checkpoint.require_same(saved, {**saved, "seed": 3})


def test_reading_alone_touches_nothing(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {"a": 2})
    half = tmp_path / "2.orbax-checkpoint-tmp"  # as if another run were writing it
    half.mkdir()
    with checkpoint.Checkpoints(tmp_path, read_only=True) as checkpoints:
        assert checkpoints.notes(1) == {"a": 2}
    assert half.is_dir()


def change_notes(folder, step, before, after):
    file = folder / str(step) / "notes" / "metadata"
    content = file.read_text()
    assert before in content
    file.write_text(content.replace(before, after))


@pytest.mark.parametrize("damage", damages.DAMAGES)
def test_a_broken_checkpoint_is_put_aside_and_the_one_before_is_there(tmp_path, damage):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {"step": 100}, rows=ROWS[:1])
        checkpoints.save(2, make_state(2), {"step": 200}, rows=ROWS)
    damages.DAMAGES[damage](tmp_path / "2")
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        assert [path.name for path in checkpoints.drop_broken()] == ["2.broken"]
        assert checkpoints.latest() == 1
        restored = checkpoints.restore(1, make_state(0))
        assert checkpoints.rows(1) == ROWS[:1]
    chex.assert_trees_all_equal(plain(restored), plain(make_state(1)))


def test_notes_that_changed_on_disk_are_not_believed(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {"step": 100})
        checkpoints.save(2, make_state(2), {"step": 200})
    change_notes(tmp_path, 2, "200", "900")
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(ValueError, match="its bytes have changed"):
            checkpoints.notes(2)
        assert [path.name for path in checkpoints.drop_broken()] == ["2.broken"]
        assert checkpoints.latest() == 1 and checkpoints.notes(1) == {"step": 100}


def test_a_checkpoint_of_the_first_versions_stays_and_is_not_taken_for_another(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {"step": 100})
    file = tmp_path / "1" / "notes" / "metadata"
    notes = json.loads(file.read_text())
    file.write_text(json.dumps({"step": 100, "checksum": notes["checksum"].split(":")[0]}))
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.drop_broken() == []
        assert checkpoints.notes(1) == {"step": 100}
        with pytest.raises(ValueError, match="is another version's: it has None where"):
            checkpoints.restore(1, make_state(0))
        with pytest.raises(ValueError, match="is another version's: it has no rows of its own"):
            checkpoints.rows(1)


def test_rows_that_changed_on_disk_are_not_believed(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {}, rows=ROWS)
        checkpoints.wait()
        file = tmp_path / "1" / "rows" / "rows.jsonl"
        file.write_text(file.read_text().replace("1.5", "9.5"))
        with pytest.raises(checkpoint.Broken, match="its bytes have changed"):
            checkpoints.rows(1)


def test_saving_leaves_nothing_behind(tmp_path):
    def save(steps: range) -> tuple[int, int]:
        for step in steps:
            checkpoints.save(step, make_state(step), {"step": step})
            checkpoints.wait()
        gc.collect()
        return len(gc.get_objects()), sys.getallocatedblocks()

    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        save(range(5))
        objects, blocks = map(operator.sub, save(range(25, 45)), save(range(5, 25)))
        assert objects < 20  # 24 a save where TensorStore counts
        assert blocks < 100  # 16 a save where it words places


def test_arrays_of_numpy_and_numbers_are_saved_as_jax_has_them(tmp_path):
    state = {"a": np.arange(3.0), "n": 3}
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, {})
        checkpoints.wait()
        restored = checkpoints.restore(1, jax.tree.map(jnp.asarray, state))
    chex.assert_trees_all_equal(restored, jax.tree.map(jnp.asarray, state))


def test_arrays_that_have_moved_are_not_taken_for_others(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"a": jnp.zeros(2), "b": jnp.ones(3)}, {})
        checkpoints.wait()
        for other in ({"a": jnp.zeros(3), "b": jnp.ones(2)}, {"a": jnp.zeros(2), "c": jnp.ones(3)}):
            with pytest.raises(ValueError, match=r"it has '.: float32\[.\]' where '.: float32"):
                checkpoints.restore(1, other)
        with pytest.raises(ValueError, match="where None belongs"):
            checkpoints.restore(1, {"a": jnp.zeros(2)})


def test_notes_without_what_is_needed_are_refused(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {"step": "100"})
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        for name in ("step", "rows"):
            with pytest.raises(ValueError, match=f"its notes have no {name}"):
                checkpoints.notes(1, **{name: int})


@pytest.mark.parametrize("content", ["{", "\udcff", "[" * 100_000])
def test_a_checkpoint_whose_score_is_lost_is_put_aside_and_others_are_there(tmp_path, content):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {})
        checkpoints.save(2, make_state(2), {})
    (tmp_path / "2" / "metrics" / "metrics").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ValueError, match="cannot open the checkpoints"):
        checkpoint.Checkpoints(tmp_path, read_only=True)
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        assert [path.name for path in checkpoints.drop_broken()] == ["2.broken"]
        assert checkpoints.recent() == (1,)
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.drop_broken() == []


def test_a_state_larger_than_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"weights": jnp.zeros(1000)}, {})
    monkeypatch.setattr(checkpoint.checks.memory, "room", lambda: 7999)
    with (
        checkpoint.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(ValueError, match="it claims 4,000 bytes"),
    ):
        checkpoints.restore(1, {"weights": jnp.zeros(1000)})
    with (
        checkpoint.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(ValueError, match="it claims 4,000 bytes"),
    ):
        checkpoints.drop_broken()
    assert (tmp_path / "1").is_dir(), "it is whole, and may be read elsewhere"


def test_a_checkpoint_stays_where_the_disk_does_not_answer(tmp_path, monkeypatch):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {})

    def restore(*_, **__):
        raise ValueError("UNKNOWN: Error reading local file [OS error 5: Input/output error]")

    monkeypatch.setattr(checkpoint.ocp.CheckpointManager, "restore", restore)
    said = r"cannot read the checkpoint .*1 \(Input/output error\); try again; it stays\."
    with (
        checkpoint.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(ValueError, match=said),
    ):
        checkpoints.drop_broken()
    assert (tmp_path / "1").is_dir()


def test_a_checkpoint_from_a_device_that_is_not_here_is_whole(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {})
    file = tmp_path / "1" / "state" / "_sharding"
    content = file.read_text()
    assert "cpu:0" in content.lower()
    file.write_text(content.replace("cpu:0", "cuda:0").replace("CPU_0", "cuda_0"))
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.drop_broken() == []
        restored = checkpoints.restore(1, make_state(2))
    chex.assert_trees_all_equal(plain(restored), plain(make_state(1)))


def test_a_checkpoint_of_a_later_version_stays(tmp_path):
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, make_state(1), {})
    file = tmp_path / "1" / "notes" / "metadata"
    notes = json.loads(file.read_text())
    file.write_text(json.dumps({**notes, "checksum": f"{notes['checksum']}:{'0' * 64}"}))
    with (
        checkpoint.Checkpoints(tmp_path) as checkpoints,
        pytest.raises(ValueError, match="is another version's: it has parts that are not known"),
    ):
        checkpoints.drop_broken()
    assert (tmp_path / "1").is_dir()
