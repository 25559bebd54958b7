"""The benchmarks of learning, at tiny size."""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags

from benchmarks import (
    bandits,
    counts,
    env_steps,
    flops,
    online_step,
    select,
    startup,
    timing,
    update,
)
from experiments import profiles, suites
from roid_jax import networks
from roid_jax.agents import selector
from roid_jax.envs import probes
from roid_jax.envs.base import Spec
from roid_jax.linear import biased_linear, play

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


def test_short_ways_are_repeated_until_their_rounds_are_as_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    asked = []

    def way(seconds):
        def run(times):
            asked.append(times)
            now[0] += seconds * times

        return run

    ways = {"long": timing.Way(way(0.5), 8), "short": timing.Way(way(0.01), 3)}
    rates = timing.rates(ways, 2, as_long_as="long")
    assert asked[-2:] == [8, 3 * 133]  # 4 seconds, and 3.99
    assert rates == {"long": pytest.approx(2.0), "short": pytest.approx(100.0)}


def test_updates_are_measured_with_their_share_of_the_peak(monkeypatch):
    small = timing.matmul(64)
    monkeypatch.setattr(update.timing, "matmul", lambda: small)
    found = update.measure(update.ours(**SIZES, steps=4), rounds=1)
    assert [row["name"] for row in found][-1] == update.PEAK
    five = found[1]
    assert five["member_steps_per_second"] == 5 * five["steps_per_second"]
    assert all(row["gflops"] > 0 for row in found)
    assert len(update.make_table(found).rows) == 4


@pytest.mark.parametrize("words", [["x"], ["8", ""], [], ["0"], ["-1"], ["8.5"]])
def test_sizes_are_whole_numbers(words):
    with pytest.raises(ValueError, match="hidden must be whole numbers above 0 between commas"):
        update.read_sizes(words)
    assert update.read_sizes(["8", "16"]) == (8, 16)


MEASURED = {
    "update": (update, [{"name": update.PEAK, "gflops": 1.0}], "rows"),
    "online_step": (online_step, [{"name": "whole step", "milliseconds": 1.0}], "rows"),
    "bandits": (bandits, {bandits.OURS: 2.0, bandits.LOOP: 1.0}, "seeds_per_second"),
    "startup": (startup, {"cold": 4.0, "again": 2.0}, "seconds"),
    "select": (select, {"ours": 0.5}, "milliseconds"),
    "env_steps": (env_steps, {"ours": 3.0, "ours on MJX": None}, "steps_per_second"),
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_binary_prints_what_it_measured_as_json(name, monkeypatch, capsys):
    module, found, field = MEASURED[name]
    monkeypatch.setattr(module, "measure", lambda *_, **__: found)
    given = flags.FlagValues()
    monkeypatch.setattr(flags, "FLAGS", given)
    for kind in ("integer", "float", "string", "list", "bool", "enum"):
        define = functools.partial(getattr(flags, f"DEFINE_{kind}"), flag_values=given)
        monkeypatch.setattr(flags, f"DEFINE_{kind}", define)
    module.define_flags()
    few = {"update": ["--hidden=8", "--steps=2"], "bandits": ["--nocold"]}.get(name, [])
    given([name, "--json", *few])
    module.main()
    assert json.loads(capsys.readouterr().out)[field] == found


def test_other_tools_are_measured_where_they_are(tmp_path):
    fake = tmp_path / "python"
    fake.write_text(
        f"#!{sys.executable}\nimport sys\nprint('[\"fake tool\"]', flush=True)\n"
        "for line in sys.stdin:\n    print(1.0, flush=True)\n"
    )
    fake.chmod(0o755)
    with timing.peers(str(fake), "update", SIZES, 5) as ways:
        assert list(ways) == ["fake tool"] and ways["fake tool"].times == 5
        ways["fake tool"].run(5)
    with timing.peers(None, "update", SIZES, 5) as ways:
        assert ways == {}
    fake.write_text(f"#!{sys.executable}\nimport nothing_of_this_name\n")
    for wrong in ("/nowhere/python", "/bin/true", str(fake)):
        with (
            pytest.raises(ValueError, match=r"no Python|said nothing|: ModuleNotFoundError"),
            timing.peers(wrong, "update", SIZES, 5),
        ):
            pass


def test_an_online_step_is_taken_apart():
    env = probes.make("both")
    config = online_step.settings(small=True)
    for way in (
        online_step.whole(env, config, 100, steps=2, number=2, vmapped=True),
        online_step.world(env, 2),
        online_step.memory(env, config, 2, 100),
    ):
        way.run(2)
        way.run(2)
    assert online_step.useful_gflop(env, config) > 0


def test_an_online_steps_rows_are_measured(monkeypatch):
    small = timing.matmul(64)
    monkeypatch.setattr(online_step.timing, "matmul", lambda: small)
    monkeypatch.setattr(online_step, "whole", lambda *_, **__: small[0])  # runs in the test above
    how = {"steps": 2, "rounds": 1, "capacity": 20_000}
    env, config = probes.make("both"), online_step.settings(small=True)
    found = online_step.measure(env, config, number=2, only=["vmapped"], **how)
    names = [row["name"] for row in found]
    assert names == [
        "whole step",
        "2 seeds, vmapped",
        "2 seeds, vmapped, memory of 20,000",
        "floor of the whole step",
    ]
    assert all(row["milliseconds"] > 0 for row in found)
    assert [row[0] for row in online_step.make_table("both", found).rows] == names
    with pytest.raises(ValueError, match="--only=seeds is in no row's name; there are whole step"):
        online_step.measure(env, config, number=1, only=["seeds"], **how)


def test_the_papers_step_takes_the_operations_that_were_counted_by_hand():
    env = probes.make("both")._replace(spec=Spec("hopper", 11, 3, 1000))
    # 5 (10 critics' update, 1.84 GFLOP) + 256 candidates of 10 critics, 0.36.
    assert online_step.useful_gflop(env, online_step.settings()) == pytest.approx(9.55, rel=0.01)


SMALL = select.Sizes(obs_dim=3, action_dim=2, hidden=(8, 8), critics=4, wide_candidates=16)


def test_choices_are_measured_in_a_scan_from_python_and_in_numpy():
    sizes = dataclasses.replace(SMALL, candidates=8)
    found = select.measure(sizes, 3, 1, peers=None)
    assert len(found) == 3 and all(milliseconds > 0 for milliseconds in found.values())
    assert len(select.make_table(sizes, found).rows) == 3


def test_numpy_evaluates_the_same_networks():
    critic = networks.Critic((8, 8))
    obs, actions = jnp.ones((5, 3)), jnp.linspace(-1, 1, 10).reshape(5, 2)
    params = networks.init_members(jax.random.key(0), critic, 4, obs[0], actions[0])
    inputs = np.concatenate([obs, actions], axis=1)
    found = select._forward(select.layers(params), inputs)[..., 0]
    np.testing.assert_allclose(
        found, networks.apply_members(critic, params, obs, actions), rtol=1e-5, atol=1e-6
    )


def test_numpy_chooses_what_ours_chooses():
    # Without noise there is one candidate, the anchor, and both execute it.
    config = selector.SelectorConfig(
        candidates=4, wide_candidates=8, candidate_noise=0.0, execution_noise=0.0
    )
    actor, critic = networks.Actor((8, 8), 2), networks.Critic((8, 8))
    obs = jnp.array([0.3, -1.0, 2.0])
    policy = actor.init(jax.random.key(1), obs)
    values = networks.init_members(jax.random.key(2), critic, 4, obs, jnp.zeros(2))
    layers = select.layers(policy), select.layers(values)
    found = select.choose_in_numpy(np.random.default_rng(0), *layers, np.asarray(obs), config)
    np.testing.assert_allclose(found, actor.apply(policy, obs), rtol=1e-5)


def test_the_numpy_loop_plays_the_same_bandit():
    # Greedy and UCB draw nothing, and without noise nor do the rewards: the regret is one number.
    config = dataclasses.replace(suites.BANDITS["smoke"].biased_linear, noise=0.0)
    methods = (play.Method("greedy"), play.Method("ucb"))
    problem = biased_linear.draw_problem(jax.random.split(jax.random.key(5))[0], config)
    problem = jax.device_get(problem)
    begun = bandits.starts(problem, config)
    found = bandits.regret_in_numpy(problem, begun, config, methods)
    ours = biased_linear.regret(jnp.array([5]), config=config, methods=methods)[0].sum(axis=-1)
    np.testing.assert_allclose(found, ours, rtol=1e-4, atol=1e-5)
    all_rules = [one for one in play.methods_for((0.0, 0.5)) if one.name != "ids_randomised"]
    regret = bandits.regret_in_numpy(problem, begun, config, all_rules)
    assert regret.shape == (2, 5) and np.all(regret >= 0)


def test_bandits_are_measured():
    rates = bandits.measure(suites.BANDITS["smoke"].biased_linear, 1, 1)
    found = {"seeds_per_second": rates, "cold_seconds": 12.0}
    assert [row[0] for row in bandits.make_table(found).rows if row][:2] == [
        bandits.OURS,
        bandits.LOOP,
    ]


def test_starting_is_measured(monkeypatch):
    asked = []

    def run(words, env, **_):
        asked.append((words, env["JAX_COMPILATION_CACHE_DIR"]))
        folder = pathlib.Path(next(w for w in words if "workdir" in w).partition("=")[2])
        (folder / "seed_0").mkdir(parents=True, exist_ok=True)
        (folder / "seed_0" / "results.jsonl").write_text('{"step": 40}\n')
        return subprocess.CompletedProcess(words, 0)

    class Run:
        def __init__(self, words, env, **_):
            run(words, env)
            self.stderr, self.returncode = iter(["\n", "updated\n", "updated\n"]), 0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(startup.subprocess, "run", run)
    monkeypatch.setattr(startup.subprocess, "Popen", Run)
    found = startup.measure("smoke")
    assert list(found) == ["cold", "again", "updated", "going on"]
    assert found["updated"] <= found["going on"]
    assert len({cache for _, cache in asked}) == 1
    assert asked[2][0][-1] == "--config.online_steps=65"
    assert len(startup.make_table("smoke", found).rows) == 4


def test_a_training_tells_when_it_has_updated(tmp_path):
    words = ["--profile=smoke", f"--workdir={tmp_path}", "--config.offline_steps=25"]
    words += ["--config.online_steps=25", "--config.eval_episodes=1"]
    done = subprocess.run(
        [sys.executable, "-c", startup._TELLING, *words],
        cwd=pathlib.Path(startup.__file__).parent.parent,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stderr.splitlines() == ["updated", ""], done.stderr


def test_operations_bytes_and_launches_are_counted_with_loops_and_branches():
    matrix = jnp.ones((64, 64))

    def program(matrix, number):
        made = jax.lax.scan(lambda x, _: (jnp.tanh(x @ matrix), None), matrix, length=5)[0]
        return jax.lax.cond(number > 0, lambda x: x @ matrix, lambda x: x, made)

    found = counts.count(program, matrix, jnp.ones(()))
    assert found.gflop == pytest.approx(5.5 * 2e-9 * 64**3)  # a branch counts half
    assert found.scatters == 0
    program = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x.at[i].add(1.0), x))
    assert counts.scatters(program.trace(jnp.zeros(5)).jaxpr.jaxpr) == 3
    product = 3 * 4e-6 * 64**2  # megabytes of two matrices read and one written
    assert found.megabytes > 5.5 * product and found.launches >= 5.5


def test_every_agents_steps_are_counted():
    config = profiles.find("rlpd", "hopper-medium-v2", "smoke").agent
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        found = {"rlpd": counts.count_agent("rlpd", config, probes.make("both"))}
    assert list(found["rlpd"]) == ["online"] and min(found["rlpd"]["online"][:3]) > 0
    assert found["rlpd"]["online"].scatters == 0
    assert counts.make_table("smoke", found).rows[0][:2] == ("rlpd", "online")
