"""Runs that cannot go on: where they stop, and what they say."""

import errno

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import driver, phases, profiles, saved
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
    assert (driver.unusual_rewards(problem) is None) == (1e-3 <= scale <= 1e3)


def test_an_offline_phase_that_cannot_be_kept_is_said(made, tmp_path, monkeypatch):
    def save(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint.ocp.CheckpointManager, "save", save)
    said = r"cannot write a checkpoint to .*offline \(.*No space left on device\); there is none"
    with pytest.raises(checkpoint.NotSaved, match=said):
        saved.keep_offline(made, driver.begin(made), [tmp_path])
