import chex
import jax
import numpy as np
import pytest

from experiments import behaviour, suites
from roid_jax import checkpoint, training
from roid_jax import config as cfg
from roid_jax.envs import base
from roid_jax.key_data import without_types as plain

CONFIG = cfg.override(suites.COLLECT["smoke"], {"max_steps": 300})


@pytest.fixture(autouse=True)
def implicit_ranks(explicit_ranks):
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        yield


def test_resuming_in_mid_episode_changes_no_bit(tmp_path):
    problem = behaviour.make_problem("hopper", "d4rl", 0, CONFIG)
    seen = []

    def run(directory, is_reached):
        with checkpoint.Checkpoints(directory) as checkpoints:
            start = behaviour.begin(problem, checkpoints)
            seen.append(start.step)
            return behaviour.train_until(
                problem, start, is_reached, checkpoints, lambda steps, score: None
            )

    whole = run(tmp_path / "whole", lambda score: False)
    assert int(whole.online.env.episode_length[0]) > 0
    run(tmp_path / "cut", lambda score: True)  # stops at the first evaluation
    rest = run(tmp_path / "cut", lambda score: False)
    assert seen == [0, 0, 100]
    assert whole.step == rest.step == 300 and whole.rows == rest.rows
    chex.assert_trees_all_equal(plain(whole.online), plain(rest.online))


def test_a_loss_that_is_not_finite_ends_the_training():
    problem = behaviour.make_problem("hopper", "d4rl", 0, suites.COLLECT["smoke"])
    numbers = np.zeros((5, 1))
    log = training.Log(metrics={"loss": numbers[:, 0]}, episode_return=numbers, is_last=numbers)
    behaviour._require_finite(problem, log, 100)
    bad = log.metrics["loss"].copy()
    bad[3:] = np.nan
    with pytest.raises(behaviour.Diverged, match="loss is not finite at step 103"):
        behaviour._require_finite(problem, log.replace(metrics={"loss": bad}), 100)
    with pytest.raises(base.Failed, match="hopper failed: it gave a number that is none"):
        behaviour._require_finite(problem, log.replace(episode_return=numbers + np.inf), 100)


def test_another_task_in_the_same_directory_is_refused(tmp_path):
    train_problem = behaviour.make_problem("hopper", "d4rl", 0, CONFIG)
    with checkpoint.Checkpoints(tmp_path) as checkpoints:
        start = behaviour.begin(train_problem, checkpoints)
        behaviour.train_until(
            train_problem, start, lambda score: True, checkpoints, lambda steps, score: None
        )
        other = behaviour.make_problem("hopper", "stock", 0, CONFIG)
        with pytest.raises(ValueError, match="made with physics = 'd4rl', not 'stock'"):
            behaviour.begin(other, checkpoints)


def test_levels_and_rows_may_change_between_runs():
    one = behaviour.make_problem("probe:both", "d4rl", 0, CONFIG)
    two = one._replace(config=cfg.override(CONFIG, {"medium": 7.0, "rows": 5}))
    checkpoint.require_same(one.identity(), two.identity())


def test_a_world_without_reference_returns_is_scored_by_its_returns():
    problem = behaviour.make_problem("probe:both", "d4rl", 0, CONFIG)
    assert problem.score(np.array(3.0)) == 3.0
