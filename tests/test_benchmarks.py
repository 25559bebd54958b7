"""The benchmarks of learning, at tiny size."""

import sys

import jax
import jax.numpy as jnp
import pytest

from benchmarks import flops, online_step, timing, update
from roid_jax import networks
from roid_jax.envs import probes
from roid_jax.envs.base import Spec

SIZES = {"obs_dim": 3, "action_dim": 1, "hidden": (8,), "batch_size": 8}


def test_operations_are_those_that_the_compiler_counts():
    critic = networks.Critic((256, 256))
    obs, action = jnp.zeros((256, 11)), jnp.zeros((256, 3))
    params = critic.init(jax.random.key(0), obs, action)
    shapes = flops.layers(14, (256, 256), 1)

    def counted(function, *inputs):
        return jax.jit(function).lower(*inputs).compile().cost_analysis()["flops"]

    def value(params, obs, action):
        return jnp.sum(critic.apply(params, obs, action))

    forward = counted(critic.apply, params, obs, action)
    assert forward == pytest.approx(flops.forward(shapes, 256), rel=0.02)
    learn = counted(jax.value_and_grad(value), params, obs, action)
    assert learn == pytest.approx(flops.learn(shapes, 256), rel=0.03)
    through = counted(jax.value_and_grad(value, argnums=2), params, obs, action)
    assert through == pytest.approx(flops.through(shapes, 256, 3), rel=0.03)


def test_a_rate_is_that_of_the_best_round(monkeypatch):
    clock = iter([0.0, 4.0, 10.0, 11.0, 20.0, 22.0, 30.0, 35.0])  # two ways, two rounds
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    ways = {"a": timing.Way(lambda times: None, 8), "b": timing.Way(lambda times: None, 10)}
    assert timing.rates(ways, 2) == {"a": 4.0, "b": 10.0}


def test_updates_are_measured_with_their_share_of_the_peak(monkeypatch):
    small = timing.matmul(64)
    monkeypatch.setattr(update.timing, "matmul", lambda: small)
    found = update.measure(update.ours(**SIZES, steps=4), rounds=1)
    assert [row["name"] for row in found][-1] == update.PEAK
    five = found[1]
    assert five["member_steps_per_second"] == 5 * five["steps_per_second"]
    assert all(row["gflops"] > 0 for row in found)
    assert len(update.make_table(found).rows) == 4


def test_other_tools_are_measured_where_they_are(tmp_path):
    fake = tmp_path / "python"
    fake.write_text(
        f"#!{sys.executable}\nimport sys\nprint('[\"fake tool\"]', flush=True)\n"
        "for line in sys.stdin:\n    print(1.0, flush=True)\n"
    )
    fake.chmod(0o755)
    with update.peers(str(fake), SIZES, 5) as rows:
        assert [row.name for row in rows] == ["fake tool"]
        rows[0].way.run(5)
    with update.peers(None, SIZES, 5) as rows:
        assert rows == []
    for wrong in ("/nowhere/python", "/bin/true"):
        with (
            pytest.raises(ValueError, match=r"no Python|could not run"),
            update.peers(wrong, SIZES, 5),
        ):
            pass


def test_an_online_step_is_taken_apart():
    env = probes.make("both")
    config = online_step.settings(small=True)
    for way in (
        online_step.whole(env, config, 100, steps=2, number=2),
        online_step.world(env, 2),
        online_step.memory(env, config, 2, 100),
    ):
        way.run(2)
        way.run(2)
    assert online_step.useful_gflop(env, config) > 0


def test_the_papers_step_takes_the_operations_that_were_counted_by_hand():
    env = probes.make("both")._replace(spec=Spec("hopper", 11, 3, 1000))
    # 5 (10 critics' update, 1.84 GFLOP) + 256 candidates of 10 critics, 0.36.
    assert online_step.useful_gflop(env, online_step.settings()) == pytest.approx(9.55, rel=0.01)
