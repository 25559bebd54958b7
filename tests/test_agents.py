"""What must hold of every agent alike: it steps on every task, and a killed run ends the same."""

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import driver, phases, profiles, saved, train_report
from roid_jax import checkpoint, episodes
from roid_jax import config as cfg
from roid_jax.agents import named
from roid_jax.envs import named as worlds


@pytest.fixture(autouse=True)
def loose_ranks(explicit_ranks):
    with jax.numpy_rank_promotion("allow"):  # distrax relies on it
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A small file for each task: some episodes of random numbers."""
    folder = tmp_path_factory.mktemp("data")

    def name_of(task):
        path = folder / f"{task}.hdf5"
        if not path.exists():
            spec, rng = worlds.make(task, physics="d4rl").spec, np.random.default_rng(0)
            with h5py.File(path, "w") as file:
                file["observations"] = rng.normal(size=(300, spec.obs_dim)).astype("f4")
                file["actions"] = rng.uniform(-1, 1, (300, spec.action_dim)).astype("f4")
                file["rewards"] = rng.normal(size=300).astype("f4")
                file["terminals"] = np.arange(300) % 30 == 29
                file["timeouts"] = np.zeros(300, bool)
        return f"hdf5:{path}"

    return name_of


def problem(agent, task, data, **changes):
    config = profiles.find(agent, f"{task}-medium-v2", "smoke")
    offline = min(config.offline_steps, 4)
    small = {"offline_steps": offline, "online_steps": 8, "eval_interval": 4, "chunk": 2}
    warmup = {"agent.warmup_steps": 2} if hasattr(config.agent, "warmup_steps") else {}
    few = {"eval_episodes": 1, "replay_capacity": 8}
    config = cfg.override(config, {**small, **few, **warmup, **changes})
    return driver.make_problem(agent, task, data(task), (0,), config)


def test_all_that_agents_are_told_of_walker2d_is_what_they_are_told_of_halfcheetah():
    """So that the one below speaks for both; hopper is the one after it."""
    one, other = (worlds.make(task).spec for task in ("halfcheetah", "walker2d"))
    assert one != other and one == other._replace(name=one.name)


@pytest.mark.parametrize("agent", sorted(named.AGENTS))
def test_it_takes_offline_and_online_steps_on_every_task(agent, data):
    made = problem(agent, "halfcheetah", data)
    state = driver.begin(made)
    for phase in ("offline", "online"):
        if phase == "online":
            state = driver.hand_over(made, state)
        before = _numbers(state)
        advance = phases._make_advance(made, phase)
        for start in range(0, getattr(made.config, f"{phase}_steps"), 2):
            learn = phase == "offline" or start >= made.agent.warmup_steps
            after, metrics, lived = advance(state.state, start, 2, learn)
            assert bool(lived) == (phase == "online")
            assert all(np.all(np.isfinite(x)) for x in (*metrics.values(), *lived.values()))
            state = state._replace(state=after, step=start + 2)
        has_moved = any(np.any(a != b) for a, b in zip(before, _numbers(state), strict=True))
        assert has_moved == (state.step > 0)


def _numbers(state):
    """Copies of all that an agent has learned, array by array."""
    agent = state.state.agent if state.phase == "online" else state.state
    leaves = [leaf for leaf in jax.tree.leaves(agent) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return [np.array(leaf) for leaf in leaves]


def run(made, store, *, stop=None):
    """Runs to the end and returns the digest; or is gone after the checkpoint of that number."""
    step = store.latest()
    state = driver.begin(made) if step is None else saved.restore(made, {0: store}, step)
    for phase in ("offline", "online"):
        if state.phase == "offline" and phase == "online":
            state = driver.hand_over(made, state)
        if state.phase != phase:
            continue
        for after in phases.run_phase(made, state, lambda steps, score: None):
            state = after
            is_stopped = stop is not None and state.number(made.config) >= stop
            if state.is_evaluated or is_stopped:
                saved.save(made, state, {0: store})
            if is_stopped:
                return None
    if made.agent.credits:
        lived = state.state.replay
        assert episodes.finished(lived.replace(rows=lived.rows[0]))[1] > 0
    return train_report.finish(made, state, 0).summary["digest"]


@pytest.mark.parametrize("agent", sorted(named.AGENTS))
def test_a_run_that_was_stopped_anywhere_ends_as_one_that_was_left_alone(agent, data, tmp_path):
    # Those that learn from what an episode brought live until one has ended, and longer.
    credits = named.make(agent, named.find(agent), worlds.make("hopper").spec).credits
    changes = {"online_steps": 48, "eval_interval": 16, "replay_capacity": 40} if credits else {}
    made = problem(agent, "hopper", data, **changes)
    with checkpoint.Checkpoints(tmp_path / "whole") as store:
        whole = run(made, store)
    first = made.config.offline_steps
    again = problem(agent, "hopper", data, **changes)
    # Within an interval offline, then within one online.
    for stop in (2, first + 1 + 6, None):
        with checkpoint.Checkpoints(tmp_path / "parts") as store:
            digest = run(again, store, stop=stop)
    assert digest == whole


# What their authors have, as far as it is one number.
DEFAULTS = {
    "td3bc": {"bc_alpha": 2.5, "hidden": (256, 256), "batch_size": 256, "normalise_states": True},
    "boorl": {
        "offline.num_members": 5,
        "offline.mask_probability": 0.9,
        "offline.normalise_states": False,
        "inverse_temperature": 1.0,
        "updates": 5,
        "offline_fraction": 0.5,
        "warmup_steps": 25_000,
    },
    "rlpd": {
        "num_critics": 10,
        "num_in_minimum": 2,
        "updates": 20,
        "entropy_per_dimension": -0.5,
        "entropy_backup": True,
        "offline_fraction": 0.5,
        "warmup_steps": 5000,
        "hidden": (256, 256),
    },
    "calql": {
        "actor_rate": 1e-4,
        "critic_rate": 3e-4,
        "entropy_per_dimension": -1.0,
        "calibrated": True,
        "conservatism": 5.0,
        "num_actions": 10,
        "max_backup": True,
        "cloning_steps": 0,
        "offline_fraction": 0.5,
    },
    "cql": {"calibrated": False, "conservatism": 5.0},
    "pex": {
        "offline.expectile": 0.7,
        "offline.advantage_scale": 3.0,
        "offline.decay_steps": 1_000_000,
        "inverse_temperature": 10.0,
        "evaluation_noise": 0.1,
        "imitated": "composed",
        "expands": True,
        "warmup_steps": 5000,
    },
    "iql": {"expands": False, "offline.expectile": 0.7, "offline.advantage_scale": 3.0},
    "odt": {
        "width": 512,
        "layers": 4,
        "heads": 4,
        "dropout": 0.1,
        "context": 20,
        "acting_context": 5,
        "ramp_updates": 10_000,
        "largest_gradient": 0.25,
        "initial_temperature": 0.1,
        "temperature_rate": 1e-4,
        "entropy_per_dimension": -1.0,
        "kept_episodes": 1000,
        "batch_size": 256,
    },
}


@pytest.mark.parametrize("agent", DEFAULTS)
def test_defaults_are_its_authors(agent):
    config = profiles.find(agent, "hopper-medium-v2", "paper").agent
    for path, expected in DEFAULTS[agent].items():
        found = config
        for name in path.split("."):
            found = getattr(found, name)
        assert found == expected, path


def test_every_agent_is_listed_with_what_a_reader_should_know():
    table = train_report.list_agents()
    assert [row[0] for row in table.rows] == list(named.AGENTS)
    assert all(cell.strip() for row in table.rows for cell in row)
