"""Runs that cannot go on: where they stop, and what they say."""

import errno
import shutil

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import driver, phases, profiles, saved, train_report
from roid_jax import checkpoint, replay

ROW = {"phase": "online", "step": 0, "score": 1.0}


@pytest.fixture(autouse=True)
def loose_ranks(explicit_ranks):
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        yield


@pytest.fixture(scope="module")
def made():
    config = profiles.find("td3bc", "hopper-medium-v2", "smoke")
    return driver.make_problem("td3bc", "hopper", "embedded:hopper-medium", (7,), config)


def test_a_simulation_that_becomes_unstable_stops_a_run_with_the_step_and_the_cause(made, capfd):
    start = driver.hand_over(made, driver.begin(made))
    env = start.state.env
    words = np.array(env.physics)
    words.view(np.float64)[..., 0] = 1.0  # the time; MuJoCo then begins at 0 again
    words.view(np.float64)[..., 7:13] = 1e12  # velocities, after six positions
    lived = start.state.replace(env=env.replace(physics=jnp.asarray(words)))
    start = start._replace(state=lived, rows=[[ROW]])
    said = "hopper failed at online step 0 of seed 7: MuJoCo's simulation became unstable"
    with pytest.raises(driver.Diverged, match=said):
        next(phases.run_phase(made, start, lambda steps, score: None))
    assert capfd.readouterr().err == ""  # MuJoCo's own warning


def test_a_parameter_that_is_not_finite_is_named_before_it_is_saved(made):
    start = driver.begin(made)
    phases._require_finite_agent(start, made)
    leaves, structure = jax.tree.flatten(start.state)
    place = next(i for i, leaf in enumerate(leaves) if leaf.dtype == jnp.float32 and leaf.ndim > 2)
    leaves[place] = leaves[place].at[..., 0].set(jnp.inf)
    broken = start._replace(state=jax.tree.unflatten(structure, leaves))
    said = r"diverged: \w+\.\S* is not finite at offline step 0 of seed 7"
    with pytest.raises(driver.Diverged, match=said):
        phases._require_finite_agent(broken, made)


def test_the_first_number_that_is_not_finite_is_the_one_that_is_named(made):
    loss, reward = np.zeros((1, 5)), np.zeros((1, 5))
    loss[0, 2:], reward[0, 2:] = np.nan, -np.inf
    numbers = {"td_loss": loss}, {"the sum of rewards": reward}
    said = "the sum of rewards is -inf at online step 102 of seed 7"
    with pytest.raises(driver.Diverged, match=said):
        phases._require_finite(*numbers, made, "online", 100)


@pytest.mark.parametrize("scale", [1e-6, 0.1, 1.0, 1e6])
def test_rewards_of_an_unusual_scale_are_said(made, scale):
    layout = replay.Layout(made.env.spec.obs_dim, made.env.spec.action_dim)
    logged = layout.unpack(made.dataset.rows[:3])._replace(reward=jnp.array([scale, 0.0, -scale]))
    problem = made._replace(dataset=made.dataset.replace(rows=layout.pack(logged)))
    said = driver.unusual(problem)
    assert len(said) == (not 1e-3 <= scale <= 1e3) and all("rewards" in line for line in said)


@pytest.mark.parametrize(("largest", "number"), [(1.0 + 1e-6, 0), (2.0, 1)])
def test_actions_that_are_not_scaled_are_said(made, largest, number):
    layout = replay.Layout(made.env.spec.obs_dim, made.env.spec.action_dim)
    logged = layout.unpack(made.dataset.rows[:3])
    logged = logged._replace(action=jnp.full((3, 3), -largest))
    problem = made._replace(dataset=made.dataset.replace(rows=layout.pack(logged)))
    said = driver.unusual(problem)
    assert len(said) == number and all("actions" in line and "2 in size" in line for line in said)


@pytest.mark.parametrize("agent", ["td3bc", "rlpd", "odt"])
def test_data_without_a_transition_is_refused(agent, tmp_path):
    with h5py.File(tmp_path / "one.hdf5", "w") as file:
        for name, shape in (("observations", (1, 11)), ("actions", (1, 3)), ("rewards", 1)):
            file[name] = np.zeros(shape, np.float32)
        file["terminals"], file["timeouts"] = np.zeros(1, bool), np.zeros(1, bool)
    config = profiles.find(agent, "hopper-medium-v2", "smoke")
    with pytest.raises(ValueError, match=r"one\.hdf5' has no transition"):
        driver.make_problem(agent, "hopper", f"hdf5:{tmp_path / 'one.hdf5'}", (0,), config)


def test_a_checkpoint_that_is_a_copy_of_another_is_not_gone_on_from(made, tmp_path):
    start = driver.begin(made)._replace(rows=[[ROW]])
    with checkpoint.Checkpoints(tmp_path) as store:
        saved.save(made, start, {7: store})
    shutil.copytree(tmp_path / "0", tmp_path / "999")
    with checkpoint.Checkpoints(tmp_path) as store:
        assert len(saved.check(made, {7: store}, 0)) == 1
        with pytest.raises(
            ValueError, match="999 of seed 7 is a copy of another, of offline step 0"
        ):
            saved.check(made, {7: store}, 999)
        with pytest.raises(ValueError, match=r"made with the sha256 of its data = '\w+', not 'b'"):
            saved.check(made._replace(digest="b"), {7: store}, 0)


def test_results_without_end_are_not_read_whole(tmp_path):
    with open(tmp_path / "results.jsonl", "wb") as file:
        file.write(b"{}\n{}\n")
        file.truncate(2**40)
    assert train_report.count_rows(tmp_path) >= 2


def test_an_offline_phase_that_cannot_be_kept_is_said(made, tmp_path, monkeypatch):
    def save(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    said = r"cannot keep the offline phase in .*offline \(.*No space left on device\); "
    start = driver.begin(made)._replace(rows=[[ROW]])
    with checkpoint.Checkpoints(tmp_path / "checkpoints") as store:
        with monkeypatch.context() as patched:
            patched.setattr(checkpoint.ocp.CheckpointManager, "save", save)
            with pytest.raises(checkpoint.NotSaved, match=f"{said}there is none before it"):
                saved.keep_offline(made, start, {7: tmp_path}, {7: store})
        saved.save(made, start, {7: store})
        monkeypatch.setattr(checkpoint.ocp.CheckpointManager, "save", save)
        with pytest.raises(checkpoint.NotSaved, match=f"{said}checkpoint 0 is whole"):
            saved.keep_offline(made, start, {7: tmp_path}, {7: store})
