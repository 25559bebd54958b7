import h5py
import numpy as np
import pytest

from roid_jax.data import d4rl, prepare, published, registry


def rows(count=12, obs=3, action=2, seed=0):
    """Three episodes: a terminal in row 4, a timeout in row 9, and a rest that is cut off."""
    rng = np.random.default_rng(seed)
    terminals, timeouts = np.zeros(count, bool), np.zeros(count, bool)
    terminals[4], timeouts[9] = True, True
    return {
        "observations": rng.normal(size=(count, obs)).astype(np.float32),
        "actions": rng.uniform(-1, 1, size=(count, action)).astype(np.float32),
        "rewards": np.arange(count, dtype=np.float32),
        "terminals": terminals,
        "timeouts": timeouts,
    }


def write(path, content):
    with h5py.File(path, "w") as file:
        for key, value in content.items():
            file[key] = value
    return path


@pytest.fixture
def recording(tmp_path):
    return d4rl.read(write(tmp_path / "data.hdf5", rows()))


def test_a_file_is_read_as_it_is(tmp_path):
    content = rows()
    read = d4rl.read(write(tmp_path / "data.hdf5", content))
    for key, value in content.items():
        np.testing.assert_array_equal(getattr(read, key), value)
    assert len(read) == 12 and read.qpos is None


def test_old_quirks_are_the_same_data(tmp_path):
    content = rows()
    plain = d4rl.read(write(tmp_path / "plain.hdf5", content))
    old = content | {
        "rewards": content["rewards"].astype(np.float64)[:, None],
        "terminals": content["terminals"].astype(np.float64),
        "timeouts": content["timeouts"].astype(np.float32),
        "observations": content["observations"].astype(np.float64),
    }
    other = d4rl.read(write(tmp_path / "old.hdf5", old))
    for field in ("observations", "actions", "rewards", "terminals", "timeouts"):
        np.testing.assert_array_equal(getattr(plain, field), getattr(other, field))
        assert getattr(plain, field).dtype == getattr(other, field).dtype


def test_without_timeouts_they_are_found_where_the_next_observation_jumps(tmp_path):
    content = rows()
    following = np.roll(content["observations"], -1, axis=0)
    following[9] += 1.0
    del content["timeouts"]
    content["next_observations"] = following
    read = d4rl.read(write(tmp_path / "data.hdf5", content))
    np.testing.assert_array_equal(np.flatnonzero(read.timeouts), [9])


def test_without_any_sign_episodes_are_cut_after_1000_steps(tmp_path):
    content = rows(count=2500)
    del content["timeouts"]
    read = d4rl.read(write(tmp_path / "data.hdf5", content))
    np.testing.assert_array_equal(np.flatnonzero(read.timeouts), [1004, 2004])


MALFORMED = {
    "missing": (lambda c: c.pop("actions"), "has no 'actions'; a D4RL file has observations"),
    "not finite": (
        lambda c: c["rewards"].__setitem__(7, np.nan),
        "'rewards' that is not finite, in row 7",
    ),
    "lengths": (lambda c: c.update(actions=c["actions"][:-1]), "has 12 rewards but 11 actions"),
    "terminals": (lambda c: c.update(terminals=c["terminals"][:-1]), "rewards but 11 terminals"),
    "timeouts": (lambda c: c.update(timeouts=c["timeouts"][:-1]), "rewards but 11 timeouts"),
    "width": (
        lambda c: c.update(next_observations=c["observations"][:, :-1]),
        "wide, next_observations",
    ),
    "no width": (lambda c: c.update(actions=c["actions"][:, :0]), "rows without numbers in 'act"),
    "too large": (
        lambda c: c.update(rewards=c["rewards"].astype(np.float64) + 1e300),
        "'rewards' that is too large",
    ),
    "axes": (
        lambda c: c.update(observations=c["rewards"]),
        "'observations' of shape (12,), 2 axes",
    ),
    "text": (lambda c: c.update(rewards=np.array([b"x"] * 12)), "where numbers belong"),
    "empty": (lambda c: c.update({k: v[:0] for k, v in c.items()}), "has no rows"),
    "group": (lambda c: c.update({"rewards/inner": c.pop("rewards")}), "has no 'rewards'"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_file_is_refused_in_one_line(tmp_path, kind):
    change, message = MALFORMED[kind]
    content = rows()
    change(content)
    path = write(tmp_path / "bad.hdf5", content)
    with pytest.raises(ValueError) as error:
        d4rl.read(path)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_truncated_file_and_one_that_is_none_are_refused_in_one_line(tmp_path):
    path = write(tmp_path / "data.hdf5", rows(count=5000))
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"no HDF5 at all", b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot read 'data\.hdf5' as HDF5") as error:
            d4rl.read(path)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="there is no file"):
        d4rl.read(tmp_path / "absent.hdf5")


def test_a_header_that_claims_a_trillion_rows_is_refused_before_memory_is_taken(tmp_path):
    path = write(tmp_path / "data.hdf5", {k: v for k, v in rows().items() if k != "observations"})
    with h5py.File(path, "a") as file:
        file.create_dataset("observations", (10**12, 3), np.float32, chunks=(1000, 3))
    with pytest.raises(ValueError, match="which is too many"):
        d4rl.read(path)


def test_the_q_learning_view_is_d4rls(recording):
    seen = prepare.transitions(recording)
    kept = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]  # neither the timeout nor the last row of all
    np.testing.assert_array_equal(seen.reward, kept)
    np.testing.assert_array_equal(seen.obs, recording.observations[kept])
    np.testing.assert_array_equal(seen.next_obs, recording.observations[[k + 1 for k in kept]])
    np.testing.assert_array_equal(np.flatnonzero(seen.discount == 0), [4])
    assert len(seen.reward) == 12 - 1 - 1


def test_a_row_knows_its_place_its_episode_and_what_that_still_brought(recording):
    seen = prepare.transitions(recording, return_discount=0.9)
    np.testing.assert_array_equal(seen.place, [0, 1, 2, 3, 4, 0, 1, 2, 3, 0])
    np.testing.assert_array_equal(seen.episode, [0, 0, 0, 0, 0, 1, 1, 1, 1, 2])
    whole = prepare.returns_to_go(recording, discount=0.9)  # with the rows that are dropped
    np.testing.assert_array_equal(seen.return_to_go, np.delete(whole, [9, 11]))
    assert prepare.transitions(recording).return_to_go is None


def test_episodes_end_at_terminals_and_timeouts_and_a_rest_is_not_whole(recording):
    spans = prepare.episodes(recording)
    np.testing.assert_array_equal(spans.starts, [0, 5, 10])
    np.testing.assert_array_equal(spans.stops, [5, 10, 12])
    np.testing.assert_array_equal(spans.is_whole, [True, True, False])
    np.testing.assert_array_equal(prepare.returns(recording), [10, 35, 21])


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_returns_to_go_by_a_plain_loop(recording, discount):
    expected, running = np.zeros(12), 0.0
    for i in reversed(range(12)):
        if recording.terminals[i] or recording.timeouts[i]:
            running = 0.0
        running = recording.rewards[i] + discount * running
        expected[i] = running
    np.testing.assert_allclose(
        prepare.returns_to_go(recording, discount=discount), expected, rtol=1e-6
    )


def test_every_locomotion_set_of_d4rl_has_a_name():
    entries = published.entries()
    assert len(entries) == 15
    replay = next(entry for entry in entries if entry.name == "hopper-medium-replay-v2")
    assert replay.file == "hopper_medium_replay-v2.hdf5" and replay.bytes == 75854457


def test_files_are_found_where_d4rl_keeps_them(tmp_path, monkeypatch):
    monkeypatch.setenv("D4RL_DATASET_DIR", str(tmp_path))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    with pytest.raises(
        ValueError, match=r"put hopper_medium-v2\.hdf5 into .*name its place.*experiments\.collect"
    ):
        registry.locate("d4rl:hopper-medium-v2")
    path = write(tmp_path / "hopper_medium-v2.hdf5", rows())
    assert registry.locate("d4rl:hopper-medium-v2") == ("hdf5", path)
    assert registry.locate(f"hdf5:{path}") == ("hdf5", path)


@pytest.mark.parametrize("name", ["hopper", "d4rl", "zip:x", "d4rl:hopper-medium-v9"])
def test_an_unknown_name_is_refused_with_what_would_do(name):
    with pytest.raises(ValueError, match="unknown"):
        registry.locate(name)


def test_the_task_is_told_by_the_name():
    assert registry.task_of("d4rl:walker2d-medium-v2") == "walker2d"
    assert registry.task_of("hdf5:/some/place/hopper_medium-v2.hdf5") == "hopper"
    assert registry.task_of("minari:mujoco/hopper/medium-v0") == "hopper"
    assert registry.task_of("collected:hopper-medium") == "hopper"
    assert registry.task_of("hdf5:mine.hdf5") is None
