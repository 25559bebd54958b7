"""The names that `import roid_jax` offers, and the loops behind them."""

import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest

import roid_jax
from roid_jax import api, config, training
from roid_jax.agents import named

SMALL = config.override(
    named.find("roid"),
    {
        "offline.hidden": (16,),
        "offline.batch_size": 16,
        "offline.num_members": 2,
        "offline.holdout": 20,
        "selector.candidates": 4,
        "selector.wide_candidates": 8,
        "warmup_steps": 30,
    },
)


def test_every_name_is_there_and_documented():
    page = (pathlib.Path(__file__).parent.parent / "docs" / "api.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+)", page, flags=re.MULTILINE)
    assert sorted(told) == sorted(roid_jax.__all__)
    assert len(told) == 15
    for name in roid_jax.__all__:
        assert getattr(roid_jax, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = roid_jax.nothing


def test_importing_it_imports_next_to_nothing():
    words = [sys.executable, "-c", "import roid_jax, sys; print('jax' in sys.modules)"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.fixture(scope="module")
def learned():
    env = roid_jax.make_env("hopper")
    agent = roid_jax.make_agent("roid", env.spec, SMALL)
    recording = roid_jax.load("embedded:hopper-medium")
    dataset = roid_jax.make_dataset(jax.random.key(0), recording, agent)
    told = []
    state = roid_jax.pretrain(
        jax.random.key(1), agent, dataset, steps=40, report=lambda n, seen: told.append((n, seen))
    )
    return env, agent, dataset, state, told


def test_both_phases_and_an_evaluation(learned):
    env, agent, dataset, state, told = learned
    assert [number for number, _ in told] == [40] and "td_loss" in told[0][1]
    seen = []
    online = roid_jax.finetune(
        jax.random.key(2), agent, state, env, dataset, steps=50, report=lambda n, m: seen.append(n)
    )
    assert seen == [30, 50]  # a call never crosses the end of the warm-up
    assert int(online.replay.count) == 50
    returns = roid_jax.evaluate(jax.random.key(3), agent, online.agent, env, episodes=3)
    assert returns.shape == (3,) and np.all(np.isfinite(returns))
    again = roid_jax.finetune(jax.random.key(2), agent, state, env, dataset, steps=50)
    for a, b in zip(jax.tree.leaves(online.agent), jax.tree.leaves(again.agent), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_diagnosing_from_python(learned):
    env, agent, dataset, state, _ = learned
    online = agent.handover(jax.random.key(0), state, dataset)
    obs = dataset.rows[:50, : env.spec.obs_dim]
    found = roid_jax.diagnose(jax.random.key(0), agent, online, obs, obs)
    assert found.verdict in ("settled", "uninformed", "irrelevant", "residual")
    assert found.numbers["policy"]["states"] == 50


def test_agents_without_what_is_asked_get_one_line(learned):
    env, _, dataset, _, _ = learned
    rlpd = roid_jax.make_agent("rlpd", env.spec)
    with pytest.raises(ValueError, match="no offline phase"):
        roid_jax.pretrain(jax.random.key(0), rlpd, dataset, steps=1)
    with pytest.raises(ValueError, match="no ensemble to ask"):
        api.diagnose(jax.random.key(0), rlpd, (), dataset.rows, dataset.rows)


@pytest.mark.parametrize(
    "start, stop, warmup, expected",
    [
        (0, 10, 0, [(0, 4, True), (4, 4, True), (8, 2, True)]),
        (0, 6, 3, [(0, 3, False), (3, 3, True)]),
        (2, 6, 6, [(2, 4, False)]),
        (5, 5, 0, []),
    ],
)
def test_steps_are_cut_into_chunks(start, stop, warmup, expected):
    assert list(training.chunks(start, stop, chunk=4, warmup=warmup)) == expected
