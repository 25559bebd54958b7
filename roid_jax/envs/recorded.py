"""Which physics made a recording: its transitions, made once more."""

from typing import NamedTuple

import mujoco
import numpy as np

from roid_jax.data.d4rl import Recording
from roid_jax.envs import physics, tasks
from roid_jax.envs.tasks import Task


class StepErrors(NamedTuple):
    """Errors of one-step predictions, `[N]`, and whether anything touched during the step."""

    error: np.ndarray
    in_contact: np.ndarray

    def median(self, *, in_contact: bool) -> float | None:
        """Returns the median error with or without contact; None where there is no such step."""
        chosen = self.error[self.in_contact == in_contact]
        return float(np.median(chosen)) if chosen.size else None


def step_errors(task: Task, recording: Recording, *, kind: str, most: int = 5000) -> StepErrors:
    """Returns how far one step from each recorded state ends from the next recorded state.

    Positions and velocities are compared as the simulator has them, so a task's clipping of what
    it shows does not matter.

    Args:
      task: the task.
      recording: with `qpos` and `qvel`.
      kind: which physics, `d4rl` or `stock`.
      most: at most so many steps, spread evenly.
    """
    if recording.qpos is None or recording.qvel is None:
        raise ValueError(
            "the file has no infos/qpos and infos/qvel, so its physics cannot be told."
        )
    model = physics.load(task, physics=kind)
    _check_states(task, recording, model)
    rows = np.flatnonzero(~(recording.terminals | recording.timeouts)[:-1])
    if not rows.size:
        raise ValueError("no row of the file has its successor beside it; there is no step to try.")
    rows = rows[:: -(-len(rows) // most)]
    data = mujoco.MjData(model)
    found = [_one_step(model, data, recording, row, task.frame_skip) for row in rows]
    errors, contacts = zip(*found, strict=True)
    return StepErrors(error=np.array(errors), in_contact=np.array(contacts, bool))


def _check_states(task: Task, recording: Recording, model: mujoco.MjModel) -> None:
    """Raises a ValueError of one line unless the states are the task's and those of the rows."""
    arrays = recording.qpos, recording.qvel, recording.actions
    given, wanted = tuple(array.shape[1] for array in arrays), (model.nq, model.nv, model.nu)
    if given != wanted:
        raise ValueError(
            f"the file has {given[0]} positions, {given[1]} velocities and {given[2]} actions, "
            f"{task.name} has {wanted[0]}, {wanted[1]} and {wanted[2]}."
        )
    seen = tasks.observe(np, task, recording.qpos, recording.qvel)
    if seen.shape != recording.observations.shape:
        raise ValueError(
            f"the file has observations {recording.observations.shape[1]} wide, "
            f"{task.name} has {seen.shape[1]}."
        )
    if np.median(np.abs(seen - recording.observations).max(axis=1)) > 1e-3:
        raise ValueError(
            "the simulator's states in the file are not those of its rows, so its physics cannot "
            "be told from them."
        )


def _one_step(
    model: mujoco.MjModel, data: mujoco.MjData, recording: Recording, row: int, frame_skip: int
) -> tuple[float, bool]:
    mujoco.mj_resetData(model, data)
    data.qpos[:], data.qvel[:] = recording.qpos[row], recording.qvel[row]
    mujoco.mj_forward(model, data)
    data.ctrl[:] = recording.actions[row]
    touched = data.ncon > 0
    for _ in range(frame_skip):
        mujoco.mj_step(model, data)
        touched |= data.ncon > 0
    position = np.abs(data.qpos - recording.qpos[row + 1]).max()
    velocity = np.abs(data.qvel - recording.qvel[row + 1]).max()
    return float(max(position, velocity)), touched
