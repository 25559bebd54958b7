"""How good a policy is: n episodes in one batched scan, each counted once."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from roid_jax.envs import base
from roid_jax.types import Array, Key

Policy = Callable[[Key, Any, Array], tuple[Array, Any]]  # (key, memory, obs) -> action, memory
Remember = Callable[[Any, Array], Any]  # (memory, [B] reward) -> memory


@chex.dataclass(frozen=True)
class Evaluation:
    """What n episodes brought.

    returns: `[B]` undiscounted return of each episode.
    lengths: `[B]` its number of steps.
    finished: `[B]` whether it ended within the steps that were run.
    """

    returns: Array
    lengths: Array
    finished: Array


# Returns of a random and an expert policy, by which D4RL's scores are normalised.
REFERENCE_RETURNS = {
    "hopper": (-20.272305, 3234.3),
    "walker2d": (1.629008, 4592.3),
    "halfcheetah": (-280.178953, 12135.0),
}


def evaluate(
    key: Key,
    env: base.Environment,
    policy: Policy,
    memory: Any,
    *,
    episodes: int,
    remember: Remember = lambda memory, reward: memory,
) -> Evaluation:
    """Plays one episode in each of `episodes` environments and returns what it brought.

    All environments step together until every first episode has ended; what happens in an
    environment after its first episode is not counted.

    Args:
      key: from it come the resets and the policy's random numbers.
      env: the environment.
      policy: `(key, memory, [B, O] obs) -> [B, U] action, memory`.
      memory: what the policy remembers at the start of an episode, for the whole batch.
      episodes: B.
      remember: what the policy makes of the reward of its action.
    """
    key_reset, key_act = jax.random.split(key)
    state = env.reset(jax.random.split(key_reset, episodes))
    nothing = Evaluation(
        returns=jnp.zeros(episodes),
        lengths=jnp.zeros(episodes, jnp.int32),
        finished=jnp.zeros(episodes, bool),
    )

    def step(carry: tuple) -> tuple:
        t, state, memory, seen = carry
        action, memory = policy(jax.random.fold_in(key_act, t), memory, state.obs)
        state = env.step(state, action)
        memory = remember(memory, state.reward)
        counts = ~seen.finished
        seen = Evaluation(
            returns=jnp.where(counts, state.episode_return, seen.returns),
            lengths=jnp.where(counts, state.episode_length, seen.lengths),
            finished=seen.finished | state.is_last,
        )
        return t + 1, state, memory, seen

    def is_running(carry: tuple) -> Array:
        t, _, _, seen = carry
        return (t < env.spec.max_steps) & ~jnp.all(seen.finished)

    return jax.lax.while_loop(is_running, step, (0, state, memory, nothing))[3]


def normalised_score(task: str, returns: Array) -> Array:
    """Returns D4RL's score: 0 for a random policy, 100 for an expert.

    score = 100 (return - random) / (expert - random), with undiscounted, unscaled returns.
    """
    if task not in REFERENCE_RETURNS:
        raise ValueError(
            f"no reference returns for {task!r}; there are for {', '.join(REFERENCE_RETURNS)}."
        )
    random, expert = REFERENCE_RETURNS[task]
    return 100.0 * (returns - random) / (expert - random)
