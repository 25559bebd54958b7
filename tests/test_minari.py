import json

import gymnasium
import minari as minari_package
import numpy as np
import pytest

from roid_jax.data import d4rl, minari, prepare


def recording(*, with_last=True, cut_off=True):
    """Three episodes: one that ends, one that is cut, one that the file cuts off."""
    rows = 9 if cut_off else 7
    rng = np.random.default_rng(0)
    terminals, timeouts = np.zeros(rows, bool), np.zeros(rows, bool)
    terminals[3], timeouts[6] = True, True
    observations = rng.normal(size=(rows, 3)).astype(np.float32)
    following = np.append(observations[1:], rng.normal(size=(1, 3)), axis=0).astype(np.float32)
    following[[3, 6]] = rng.normal(size=(2, 3))
    return d4rl.Recording(
        observations=observations,
        actions=rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        rewards=rng.normal(size=rows).astype(np.float32),
        terminals=terminals,
        timeouts=timeouts,
        next_observations=following if with_last else None,
    )


def write(path, source, **options):
    minari.write(path, source, dataset_id="mine/set-v0", provenance={"made": "here"}, **options)
    return path


@pytest.mark.parametrize("cut_off", [True, False])
def test_a_recording_comes_back_from_minari_bit_for_bit(tmp_path, cut_off):
    source = recording(cut_off=cut_off)
    found = minari.read(write(tmp_path / "set-v0", source))
    for field, array in vars(source).items():
        if array is not None:
            np.testing.assert_array_equal(getattr(found, field), array, err_msg=field)
    assert prepare.digest(found) == prepare.digest(source)


def test_minari_itself_reads_what_was_written(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    write(tmp_path / "mine" / "set-v0", recording())
    dataset = minari_package.load_dataset("mine/set-v0")
    assert dataset.total_episodes == 3 and dataset.total_steps == 9
    first = dataset[0]
    assert first.observations.shape == (5, 3) and first.terminations[-1]
    np.testing.assert_array_equal(first.observations[-1], recording().next_observations[3])
    assert dataset[1].truncations[-1] and not dataset[1].terminations[-1]


def test_an_unknown_last_observation_is_the_last_again_and_the_metadata_says_so(tmp_path):
    source = recording(with_last=False)
    path = write(tmp_path / "set-v0", source)
    found = minari.read(path)
    assert prepare.digest(found) == prepare.digest(source)
    np.testing.assert_array_equal(found.next_observations[3], source.observations[3])
    assert minari.provenance(path)["last_observations"] == "the last acted on, again"
    assert minari.provenance(path)["made"] == "here"


def test_a_dataset_is_replaced_only_when_asked(tmp_path):
    path = write(tmp_path / "set-v0", recording())
    with pytest.raises(ValueError, match="there is a dataset 'mine/set-v0' already"):
        write(path, recording(cut_off=False))
    assert len(minari.read(path)) == 9
    write(path, recording(cut_off=False), replace=True)
    assert len(minari.read(path)) == 7
    assert [child.name for child in tmp_path.iterdir()] == ["set-v0"]


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(minari, "_episodes", fail)
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path / "set-v0", recording())
    assert list(tmp_path.iterdir()) == []


def test_actions_of_another_box_are_moved_to_ours(tmp_path):
    storage = minari.MinariStorage.new(
        _folder(tmp_path),
        observation_space=gymnasium.spaces.Box(-1, 1, (1,)),
        action_space=gymnasium.spaces.Box(np.float32([0]), np.float32([4])),
    )
    storage.update_metadata({"dataset_id": "x-v0", "minari_version": minari.minari_version})
    storage.update_episodes([_episode(actions=[[0.0], [1.0], [4.0]])])
    found = minari.read(tmp_path / "x-v0")
    np.testing.assert_allclose(found.actions[:, 0], [-1.0, -0.5, 1.0])
    assert found.timeouts.tolist() == [False, False, False]  # nothing says that it ended


def _folder(tmp_path):
    folder = tmp_path / "x-v0" / "data"
    folder.parent.mkdir()
    return folder


def _episode(**changes):
    fields = {
        "observations": np.zeros((4, 1), np.float32),
        "actions": np.zeros((3, 1), np.float32),
        "rewards": np.zeros(3, np.float32),
        "terminations": np.zeros(3, bool),
        "truncations": np.zeros(3, bool),
    } | {key: np.array(value, np.float32) for key, value in changes.items()}
    return minari.EpisodeBuffer(id=0, **fields)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rewards": [0.0, np.nan, 0.0]}, "number in 'episode_0/rewards' that is not finite"),
        ({"rewards": [0.0]}, "unequal lengths in episode 0"),
        ({"observations": [[0.0]] * 3}, "unequal lengths in episode 0"),
    ],
)
def test_a_malformed_episode_gets_one_line(tmp_path, changes, message):
    storage = minari.MinariStorage.new(
        _folder(tmp_path),
        observation_space=gymnasium.spaces.Box(-1, 1, (1,)),
        action_space=gymnasium.spaces.Box(-1, 1, (1,)),
    )
    storage.update_episodes([_episode(**changes)])
    with pytest.raises(ValueError, match=message) as error:
        minari.read(tmp_path / "x-v0")
    assert "\n" not in str(error.value)


def damage_metadata(folder, change):
    path = folder / "data" / "metadata.json"
    metadata = json.loads(path.read_text())
    change(metadata)
    path.write_text(json.dumps(metadata))


def test_damaged_datasets_get_one_line(tmp_path):
    cases = {
        "spaces": lambda folder: damage_metadata(folder, lambda m: m.pop("action_space")),
        "json": lambda folder: (folder / "data" / "metadata.json").write_text("{"),
        "hdf5": lambda folder: (folder / "data" / "main_data.hdf5").write_bytes(b"no"),
        "count": lambda folder: damage_metadata(folder, lambda m: m.update(total_episodes=9)),
        "empty": lambda folder: damage_metadata(folder, lambda m: m.update(total_episodes=0)),
    }
    for name, damage in cases.items():
        folder = write(tmp_path / f"{name}-v0", recording())
        damage(folder)
        with pytest.raises(ValueError, match=f"{name}-v0") as error:
            minari.read(folder)
        assert "\n" not in str(error.value)


def test_spaces_that_are_no_vectors_are_refused(tmp_path):
    minari.MinariStorage.new(
        _folder(tmp_path),
        observation_space=gymnasium.spaces.Box(0, 1, (2, 2)),
        action_space=gymnasium.spaces.Discrete(2),
    )
    with pytest.raises(ValueError, match="only vectors can be read"):
        minari.read(tmp_path / "x-v0")
