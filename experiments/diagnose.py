"""What offline learning left to learn, before the first online step.

    python -m experiments.diagnose --checkpoint=runs/roid-hopper-medium-v2-demo
    python -m experiments.diagnose --checkpoint=runs/mine --seed=1 --dataset=minari:mine/data-v0

Takes the end of a run's offline phase, hands it over, and asks at states of the data and at states
that the policy itself comes to: how far the critics disagree, how much could be learned, and how
often the selector would leave the policy's own action. Prints numbers and a verdict in words;
writes diagnosis.json and diagnosis.png beside the run, or where --out says.
"""

import json
from typing import Any

import jax
import numpy as np
from absl import flags

from experiments import candidates, cli, report_panels, revive
from experiments.driver import Problem, Progress
from roid_jax import diagnosis, directories, results, rollout
from roid_jax.report import figures, tables
from roid_jax.report.figures import Line, Panel
from roid_jax.types import Array

_ROWS = {
    "states": "states looked at",
    "information": "information of the policy's own action, nats",
    "information_25%": "  a quarter of the states have less than",
    "information_50%": "  half of them less than",
    "information_75%": "  three quarters less than",
    "uncalibrated_information": "the same with alpha = 1",
    "off_anchor": "share of states where the selector leaves it",
    "regret_of_anchor": "its expected regret",
    "regret_over_value": "  as a share of the value",
    "spread": "standard deviation of the critics there",
    "spread_over_value": "  as a share of the value",
    "signal": "variance of values over states / over critics",
}


def define_flags() -> None:
    """Declares the command line."""
    flags.DEFINE_string(
        "checkpoint", None, "A workdir of experiments.train, its offline phase done."
    )
    flags.DEFINE_string(
        "dataset", None, "Logged data by name; what the run was trained on, if not."
    )
    flags.DEFINE_integer("seed", 0, "Which of its seeds.", lower_bound=0)
    flags.DEFINE_integer(
        "states", 1000, "States of each kind.", lower_bound=10, upper_bound=100_000
    )
    flags.DEFINE_string("out", None, "Where the files land; beside the run's own, if not given.")


def main() -> None:
    """Diagnoses one seed."""
    values = flags.FLAGS
    console = cli.console()
    with cli.border():
        if not values.checkpoint:
            raise ValueError("name a workdir of experiments.train with --checkpoint.")
        folder = directories.expand(values.checkpoint) / f"seed_{values.seed}"
        problem = revive.problem_of(folder)
        if problem.agent.explain is None:
            raise ValueError(f"{problem.agent_name} has no ensemble to ask; roid has.")
        if not (folder / "offline").is_dir():
            raise ValueError(f"the offline phase of {folder} is not done.")
        progress = revive.at_handover(problem, folder)
        out = directories.open_workdir(values.out or folder, flag="--out")
        if values.dataset:
            problem = revive.problem_of(folder, dataset=values.dataset)
        explained = explain(problem, progress, values.states)
        found = diagnosis.diagnose(explained)
        write(out, problem, found, explained)
    tables.show(make_table(problem, found), console)
    console.print(diagnosis.VERDICTS[found.verdict])
    console.print(f"\nThe numbers and a figure are in {out}/", soft_wrap=True)


def explain(problem: Problem, progress: Progress, number: int) -> dict[str, dict[str, np.ndarray]]:
    """Returns what the first seed believes at states of the data and at the policy's own."""
    agent = jax.tree.map(lambda leaf: leaf[0], progress.state.agent)
    key_policy, key_ask = jax.random.split(problem.key("evaluate")[0])

    def policy(key: Any, agent: Any, obs: Array) -> Array:
        memory = jax.vmap(problem.agent.begin_episode)(jax.random.split(key, len(obs)))
        return problem.agent.act(key, agent, memory, obs, explore=False)[0]

    lived = rollout.record(key_policy, problem.wide, policy, agent, rows=5 * number, max_envs=5)
    places = np.linspace(0, len(lived.observations) - 1, number).astype(int)
    states = {
        "dataset": candidates.sample_states(problem, number),
        "policy": lived.observations[places],
    }
    ask = jax.jit(problem.agent.explain)
    return {kind: jax.device_get(ask(key_ask, agent, obs)) for kind, obs in states.items()}


def make_table(problem: Problem, found: diagnosis.Diagnosis) -> tables.Table:
    """Returns the numbers, a column for each kind of state."""
    kinds = list(found.numbers)
    body = tuple(
        (words, *(tables.number(found.numbers[kind][name]) for kind in kinds))
        for name, words in _ROWS.items()
    )
    title = f"What is left to learn: {problem.agent_name} on {problem.env_name}"
    heads = "", *(f"{kind} states" for kind in kinds)
    note = (
        "Calibration makes the information of data that was held out about a third of a nat for "
        "every ensemble; with alpha = 1 it can be compared between runs."
    )
    return tables.Table(title, heads, body, (f"Trained on {problem.dataset_name}.", note))


def write(out: Any, problem: Problem, found: diagnosis.Diagnosis, explained: dict) -> None:
    """Writes the numbers as JSON, and the figure."""
    names = problem.names(problem.seeds[0])
    record = {**names, **found._asdict(), "words": diagnosis.VERDICTS[found.verdict]}
    content = json.dumps({**record, "versions": results.versions()}, indent=2)
    results.write_bytes(out / "diagnosis.json", f"{content}\n".encode())
    results.write_bytes(out / "diagnosis.png", draw(problem, explained))


def draw(problem: Problem, explained: dict[str, dict[str, np.ndarray]]) -> bytes:
    """Returns how information is spread over states, and the candidates at some of the policy's."""
    lines = []
    for kind, found in explained.items():
        gain = np.sort(np.asarray(found["information"][:, 0], np.float64))
        share = 1.0 - np.arange(len(gain)) / len(gain)
        lines.append(Line(f"{kind} states", gain, share))
    spread = Panel(
        "information of the policy's own action", "nats", "share of states with more", lines
    )
    own, number = explained["policy"], len(explained["policy"]["chosen"])
    shown = [
        {name: own[name][i] for name in ("regret", "information", "chosen")}
        for i in np.linspace(0, number - 1, 5).astype(int)
    ]
    panels = report_panels.candidates(shown, eta=problem.config.agent.selector.eta)
    return figures.draw([spread, *panels], columns=3, title="")


if __name__ == "__main__":
    cli.run(main, define_flags)
