"""Pictures of a task: MuJoCo's own renderer, off screen, from states that were lived."""

import os
from collections.abc import Iterator

import jax.numpy as jnp
import mujoco
import numpy as np

from roid_jax.envs import physics, tasks
from roid_jax.types import Array

_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
_HELP = (
    "install EGL (Debian, Ubuntu: apt install libegl1), or OSMesa (libosmesa6) and set "
    "MUJOCO_GL=osmesa"
)


def frames(
    name: str, words: Array, *, kind: str = "d4rl", width: int = 320, height: int = 240
) -> Iterator[np.ndarray]:
    """Yields `[H, W, 3]` a picture of each state.

    Args:
      name: of the task; kind: of its physics.
      words: `[T, W]` states as the C engine's environment keeps them.
      width, height: of a picture.
    """
    model = physics.load(tasks.find(name), physics=kind)
    model.vis.global_.offwidth, model.vis.global_.offheight = width, height
    data, scene = mujoco.MjData(model), mujoco.MjvScene(model, 200)
    camera, option = mujoco.MjvCamera(), mujoco.MjvOption()
    camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
    camera.fixedcamid = 0  # the one that follows, in all three models
    context = _open(width, height)
    try:
        drawing = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, drawing)
        box = mujoco.MjrRect(0, 0, width, height)
        for state in np.ascontiguousarray(jnp.asarray(words)).view(np.float64):
            mujoco.mj_setState(model, data, state, _STATE)
            mujoco.mj_forward(model, data)
            every = mujoco.mjtCatBit.mjCAT_ALL
            mujoco.mjv_updateScene(model, data, option, None, camera, every, scene)
            mujoco.mjr_render(box, scene, drawing)
            picture = np.empty((height, width, 3), np.uint8)
            mujoco.mjr_readPixels(picture, None, box, drawing)
            yield np.flipud(picture)
        drawing.free()
    finally:
        context.free()


def require() -> None:
    """Raises a ValueError of one line where pictures cannot be drawn off screen."""
    _open(16, 16).free()


def _open(width: int, height: int):
    """Returns a drawing context that needs no screen, made current."""
    wanted = os.environ.get("MUJOCO_GL", "").lower() or "egl"
    try:
        if wanted == "osmesa":
            from mujoco.osmesa import GLContext
        elif wanted == "egl":
            from mujoco.egl import GLContext
        else:
            raise ImportError(f"MUJOCO_GL is {wanted}")
        context = GLContext(width, height)
        context.make_current()
    except Exception as error:  # libraries that are not there fail in ways of their own
        why = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"cannot draw off screen with {wanted} ({why}); {_HELP}.") from None
    return context
