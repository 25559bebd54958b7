"""Which physics made a recording: its transitions, made once more."""

from typing import NamedTuple

import mujoco
import numpy as np

from roid_jax.data.d4rl import Recording
from roid_jax.envs import physics
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
    if recording.qpos.shape[1] != model.nq or recording.actions.shape[1] != model.nu:
        raise ValueError(
            f"the file has {recording.qpos.shape[1]} positions and {recording.actions.shape[1]} "
            f"actions, {task.name} has {model.nq} and {model.nu}."
        )
    rows = np.flatnonzero(~(recording.terminals | recording.timeouts)[:-1])
    rows = rows[:: max(1, len(rows) // most)]
    data = mujoco.MjData(model)
    found = [_one_step(model, data, recording, row, task.frame_skip) for row in rows]
    errors, contacts = zip(*found, strict=True) if found else ((), ())
    return StepErrors(error=np.array(errors), in_contact=np.array(contacts, bool))


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
