"""A small episodic MDP with known dynamics, its policies, and planning in it.

Stages, states and actions are few enough to list every deterministic policy. A policy's value is
linear in the reward weights, so a policy is described by how often it visits each state and action.
"""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from roid_jax.types import Array, Key


@chex.dataclass(frozen=True)
class Mdp:
    """Known dynamics and features; the reward weights are what is to be learned.

    start: `[O]` distribution of the first state.
    transitions: `[H, O, U, O]` distribution of the next state (the last stage's is never used).
    features: `[O, U, D]` unit-norm features of each state and action.
    """

    start: Array
    transitions: Array
    features: Array


def draw_mdp(key: Key, *, horizon: int, states: int, actions: int, dim: int) -> Mdp:
    """Draws start and transitions uniformly from the simplex, features from the sphere."""
    key_start, key_transitions, key_features = jax.random.split(key, 3)
    directions = jax.random.normal(key_features, (states, actions, dim))
    # Exponential numbers over their sum are uniform on the simplex.
    start = jax.random.exponential(key_start, (states,))
    transitions = jax.random.exponential(key_transitions, (horizon, states, actions, states))
    return Mdp(
        start=start / jnp.sum(start),
        transitions=transitions / jnp.sum(transitions, axis=-1, keepdims=True),
        features=directions / jnp.linalg.norm(directions, axis=-1, keepdims=True),
    )


def list_policies(*, horizon: int, states: int, actions: int) -> np.ndarray:
    """Returns `[P, H, O]` the action of every deterministic policy; P = U^(H O)."""
    choices = itertools.product(range(actions), repeat=horizon * states)
    return np.array(list(choices), np.int32).reshape(-1, horizon, states)


def policy_index(policy: Array, *, actions: int) -> Array:
    """Returns where a `[H, O]` policy stands in `list_policies`: its actions read as digits."""
    digits = policy.ravel()
    return digits @ (actions ** jnp.arange(digits.shape[0] - 1, -1, -1))


def visits(mdp: Mdp, policy: Array) -> Array:
    """Returns `[H, O, U]` how often a policy meets each state and action at each stage.

    Args:
      mdp: the world.
      policy: `[H, O, U]` probability of each action; one-hot where it is deterministic.
    """

    def stage(states: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        choice, transition = step
        pairs = states[:, None] * choice
        return jnp.einsum("ou,oun->n", pairs, transition), pairs

    return jax.lax.scan(stage, mdp.start, (policy, mdp.transitions))[1]


def plan(mdp: Mdp, weights: Array) -> Array:
    """Returns the best policy `[H, O]` for given reward weights, by dynamic programming.

    Args:
      mdp: the world.
      weights: `[H, D]` reward weights of each stage; the mean reward is phi(s, a) . w_h.
    """

    def stage(value: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        stage_weights, transition = step
        quality = mdp.features @ stage_weights + transition @ value
        return jnp.max(quality, axis=1), jnp.argmax(quality, axis=1)

    after = jnp.zeros_like(mdp.start)
    return jax.lax.scan(stage, after, (weights, mdp.transitions), reverse=True)[1]


def rollout(key: Key, mdp: Mdp, policy: Array) -> Array:
    """Returns `[H, 2]` the states and actions of one episode of a deterministic `[H, O]` policy."""

    def stage(state: Array, step: tuple[Key, Array, Array]) -> tuple[Array, Array]:
        key_next, actions, transition = step
        action = actions[state]
        following = jax.random.categorical(key_next, jnp.log(transition[state, action]))
        return following, jnp.stack([state, action])

    key_start, key_steps = jax.random.split(key)
    start = jax.random.categorical(key_start, jnp.log(mdp.start))
    keys = jax.random.split(key_steps, policy.shape[0])
    return jax.lax.scan(stage, start, (keys, policy, mdp.transitions))[1]
