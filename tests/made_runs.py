"""Result files as `experiments.train` writes them, made up, for reports to read."""

import json

import numpy as np

from roid_jax.evaluation import REFERENCE_RETURNS

VERSIONS = {"roid_jax": "0.1.0", "jax": "0.10.2", "mujoco": "4.0.0", "device": "1 x cpu (cpu)"}


def write(folder, *, name, task, seed, level=50.0, evaluations=12, candidates=False):
    """Writes one seed of a training into folder/seed_<seed>; returns its raw returns, online."""
    random = np.random.default_rng([seed, int(level), len(name), len(task)])
    world = task.split("-")[0]
    low, high = REFERENCE_RETURNS[world]
    rows, raw = [], []
    for phase, number in (("offline", 2), ("online", evaluations + 1)):
        for i in range(number):
            scores = level + 2.0 * i + random.normal(0.0, 5.0, 4)
            returns = low + scores * (high - low) / 100.0
            step = 100 * (i + 1) if phase == "offline" else 100 * i
            row = {"seed": seed, "phase": phase, "step": step, "score": float(np.mean(scores))}
            row |= {"score_error": 2.5, "returns": returns.tolist(), "td_loss": 1.0 / (i + 1)}
            row |= {"spread": 3.0 + random.normal(), "off_anchor": 0.5, "seconds": 1.0}
            rows.append({**row, "eval_seconds": 0.5})
            if phase == "online":
                raw.append(returns)
    place = folder / f"seed_{seed}"
    place.mkdir(parents=True)
    about = {
        "command": ["train", f"--task={task}"],
        "run": {"agent": name, "env": world, "dataset": f"d4rl:{task}", "seed": seed},
        "config": {"offline_steps": 200, "online_steps": 1200, "eval_episodes": 4}
        | {"eval_interval": 100},
        "versions": VERSIONS,
    }
    (place / "config.json").write_text(json.dumps(about))
    (place / "results.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if candidates:
        gain, regret = random.uniform(0.0, 1.0, 16), random.uniform(0.1, 2.0, 16)
        chosen = int(np.argmin(regret**2 / (gain + 0.05)))
        state = {"regret": regret.tolist(), "information": gain.tolist(), "chosen": chosen}
        told = {"when": "after 1,200 online steps", "eta": 0.05, "states": [state] * 6}
        (place / "candidates.json").write_text(json.dumps(told))
    return np.array(raw)


def write_sweep(root, *, agents=("roid", "pex"), tasks=("hopper-medium-v2",), seeds=3, **how):
    """Writes trainings as a sweep does, in <task>/<agent>/seed_<n>; returns raw returns by cell."""
    return {
        (task, agent, seed): write(
            root / task / agent, name=agent, task=task, seed=seed, level=40.0 + 5 * i, **how
        )
        for task in tasks
        for i, agent in enumerate(agents)
        for seed in range(seeds)
    }
