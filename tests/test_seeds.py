"""Beside other seeds in one program a run sees what it sees alone."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import driver, phases, profiles, saved
from roid_jax import compiler, replay, seeds, training
from roid_jax.agents import base
from roid_jax.key_data import without_types as plain

ROOT = pathlib.Path(__file__).parent.parent
SMOKE = profiles.find("roid", "hopper-medium-v2", "smoke")


def make(*numbers, config=SMOKE):
    return driver.make_problem("roid", "hopper", "embedded:hopper-medium", numbers, config)


def watching_agent(action_dim):
    """Learns nothing, and reports its keys and the rows that it would have learned from."""

    def act(key, state, memory, obs, *, explore):
        return jax.random.uniform(key, (len(obs), action_dim), minval=-1.0), memory, {}

    def look(key, state, dataset, memory=None):
        found = {"key": jax.random.key_data(key)}
        found["logged"] = replay.sample_dataset(key, dataset, 8, holdout=50)[1]
        if memory is not None:
            found["lived"] = replay.sample(key, memory, 8)[0]
        return state, found

    return base.Agent(
        init=lambda key, dataset: jnp.zeros(()),
        act=act,
        offline_update=lambda key, step, state, dataset: look(key, state, dataset),
        online_update=lambda key, step, state, memory, dataset: look(key, state, dataset, memory),
        handover=lambda key, state, dataset: state,
    )


def watch(problem):
    """Returns what an agent sees in 60 steps of either phase; they are several falls online."""
    agent = watching_agent(problem.env.spec.action_dim)
    problem = problem._replace(agent=agent)
    start = driver.begin(problem)
    seen = {}
    for phase in ("pretrain", "online"):
        if phase == "online":
            start = driver.hand_over(problem, start)
            chunk = training.make_online(agent, problem.env, length=60, learn=True)
        else:
            chunk = training.make_pretrain(agent, length=60)
        axes = (0, start.axes, None, driver.DATASET_AXES)
        run = problem.compile(chunk, *axes, out_axes=(start.axes, 0))
        state, seen[phase] = run(problem.key(phase), start.state, 0, problem.dataset)
    seen["state"] = state.env
    return plain(seen)


def test_a_seed_has_the_same_keys_data_and_resets_beside_others():
    together = watch(make(0, 1, 2))
    assert np.all(np.sum(together["online"].is_last, axis=(1, 2)) >= 2)
    for i in range(3):
        alone = watch(make(i))
        chex.assert_trees_all_equal(seeds.take(together, 0, i), seeds.take(alone, 0, 0))


def learn(*numbers):
    """Runs both phases to their end."""
    config = dataclasses.replace(SMOKE, offline_steps=40, online_steps=45, eval_interval=20)
    problem = make(*numbers, config=config)
    progress = driver.begin(problem)
    *_, progress = phases.run_phase(problem, progress, lambda length, score: None)
    progress = driver.hand_over(problem, progress)
    *_, progress = phases.run_phase(problem, progress, lambda length, score: None)
    return progress


def test_a_seed_learns_the_same_beside_others():
    together, alone = learn(3, 4), learn(4)
    mine = seeds.take(together.state, together.axes, 1)
    # On a CPU to the bit; elsewhere seeds are vmapped, and sums may be ordered differently.
    chex.assert_trees_all_equal(mine.agent, seeds.take(alone.state, alone.axes, 0).agent)
    assert len(together.rows[1]) == len(alone.rows[0]) == 6
    for row, other in zip(together.rows[1], alone.rows[0], strict=True):
        assert row.keys() == other.keys() and row["seed"] == other["seed"] == 4
        assert row["score"] == other["score"]
    assert together.rows[0][-1]["score"] != together.rows[1][-1]["score"]


def batched(shapes, axes):
    return seeds._map(
        lambda axis, leaf: (
            leaf if axis is None else jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype)
        ),
        axes,
        shapes,
    )


@pytest.mark.parametrize("phase", ["offline", "online"])
def test_a_chunk_lowers_for_a_gpu_and_never_leaves_it(phase, monkeypatch):
    pytest.importorskip("mujoco.mjx", reason="the extra mjx is not installed")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")  # what differs there is lowered too
    monkeypatch.setattr(compiler, "options", lambda: {})
    problem = driver.make_problem("roid", "mjx:hopper", "embedded:hopper-medium", (0,), SMOKE)
    axes = driver.STATE_AXES[phase]
    if phase == "offline":
        chunk = training.make_pretrain(problem.agent, length=50)
    else:
        chunk = training.make_online(problem.agent, problem.env, length=50, learn=True)
    run = seeds.beside(chunk, (0, axes, None, driver.DATASET_AXES), (axes, 0), donate=1)
    state = batched(driver.shapes(problem, phase), axes)
    text = (
        run.trace(problem.key("online"), state, 0, problem.dataset)
        .lower(lowering_platforms=("cuda",))
        .as_text()
    )
    assert "stablehlo.while" in text and "stablehlo.dot_general" in text
    for word in ("callback", "infeed", "outfeed", "stablehlo.send", "stablehlo.recv"):
        assert word not in text
    assert "tf.aliasing_output" in text or "jax.buffer_donor" in text  # the carry is given away


@pytest.mark.parametrize("numbers", [(0,), (0, 1)])
def test_nothing_is_compiled_again_between_chunks(numbers):
    compiled = []

    def listen(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    config = dataclasses.replace(SMOKE, offline_steps=60, online_steps=90, eval_interval=15)
    problem = make(*numbers, config=config)
    progress = driver.begin(problem)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for phase, settled in (("offline", 1), ("online", 5)):  # online: after the warm-up's end
            if phase == "online":
                progress = driver.hand_over(problem, progress)
            for i, after in enumerate(
                phases.run_phase(problem, progress, lambda length, score: None)
            ):
                progress = after
                if i == 0:
                    assert compiled
                if i >= settled:
                    assert not compiled, f"{phase}, interval {i}"
                compiled.clear()
    finally:
        jax.monitoring.clear_event_listeners()


def test_side_by_side_seeds_find_the_same_to_rounding():
    config = dataclasses.replace(SMOKE, offline_steps=40)
    found = []
    for compile_for in (seeds.over, None):
        problem = make(3, 4, config=config)
        progress = driver.begin(problem)
        chunk = training.make_pretrain(problem.agent, length=40)
        axes = (0, 0, None, driver.DATASET_AXES)
        if compile_for is None:  # as on a GPU
            run = seeds.beside(chunk, axes, (0, 0), donate=1)
        else:
            run = compile_for(chunk, problem.mesh, axes, (0, 0), donate=1)
        found.append(run(problem.key("pretrain"), progress.state, 0, problem.dataset))
    chex.assert_trees_all_close(plain(found[0]), plain(found[1]), rtol=1e-3, atol=1e-5)


class Store:
    def __init__(self, *steps):
        self._steps = steps

    def recent(self):
        return self._steps


@pytest.mark.parametrize(
    ("stores", "expected"),
    [
        ({0: (), 1: ()}, [((0, 1), None)]),
        ({0: (50, 100), 1: (50, 100)}, [((0, 1), 100)]),
        ({0: (50, 100), 1: (50,)}, [((0, 1), 50)]),  # killed between two saves
        ({0: (150, 201), 1: ()}, [((1,), None), ((0,), 201)]),  # a seed more
        ({0: (150, 201), 1: (50,)}, [((1,), 50), ((0,), 201)]),
        ({0: (201,), 1: (50,), 2: (50, 100)}, [((1, 2), 50), ((0,), 201)]),
    ],
)
def test_seeds_that_are_equally_far_go_on_together(stores, expected):
    assert list(saved.groups({n: Store(*steps) for n, steps in stores.items()})) == expected


def test_eight_devices_share_eight_seeds():
    code = """
import jax, jax.numpy as jnp
from roid_jax import seeds
mesh = seeds.make_mesh(8)
assert mesh.size == 8 and seeds.make_mesh(6).size == 6 and seeds.make_mesh(9).size == 3
double = seeds.over(lambda x, t: (2 * x + t, t + 1), mesh, (0, None), (0, None), donate=0)
rows = seeds.stack([jnp.full(3, i) for i in range(8)], 0, mesh)
assert len(rows.addressable_shards) == 8
found, t = double(rows, 1)
assert [int(seeds.take(found, 0, i)[0]) for i in range(8)] == [2 * i + 1 for i in range(8)]
assert t.shape == () and t == 2
"""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
