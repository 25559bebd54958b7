"""Pictures off screen; where there is no renderer these skip, saying so."""

import io
import subprocess
import sys

import jax
import numpy as np
import pytest
from PIL import Image

from experiments import videos
from roid_jax.envs import mujoco_c, render, tasks
from roid_jax.report import video


@pytest.fixture(scope="module")
def renderer():
    try:
        render.require()
    except ValueError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", tasks.TASKS)
def test_a_state_is_drawn_and_another_looks_different(renderer, name):
    env = mujoco_c.make(name)
    state = env.reset(jax.random.split(jax.random.key(0), 1))
    action = np.ones((1, env.spec.action_dim), np.float32)
    later = jax.jit(lambda s: jax.lax.fori_loop(0, 8, lambda _, s: env.step(s, action), s))(state)
    words = np.concatenate([state.physics, later.physics])
    first, second = render.frames(name, words, width=80, height=60)
    assert first.shape == (60, 80, 3) and first.std() > 5
    assert np.abs(first.astype(int) - second).max() > 20
    with Image.open(io.BytesIO(video.to_gif([first, second], per_second=25))) as found:
        assert found.n_frames == 2


def test_where_there_is_no_renderer_one_line_says_what_would_do():
    words = (
        "from roid_jax.envs import render\ntry: render.require()\nexcept ValueError as e: print(e)"
    )
    done = subprocess.run(
        [sys.executable, "-c", words],
        env={"MUJOCO_GL": "glfw", "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cannot draw off screen" in done.stdout and "libegl1" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_world_without_pictures_is_refused_before_anything_is_learned():
    with pytest.raises(ValueError, match="there are no pictures of 'gymnasium:Pendulum-v1'"):
        videos.require("gymnasium:Pendulum-v1")
