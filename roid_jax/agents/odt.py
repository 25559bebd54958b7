"""ODT (Zheng et al., 2022): a transformer that acts as one who will reach a given return.

It learns the likelihood of actions given the return to go, the observations and the actions before,
with entropy held above a level. Its offline half is a decision transformer (Chen et al., 2021) with
a stochastic policy. Online it asks for more than it ever saw, and learns from episodes that have
ended by the returns that they did reach.
"""

import functools

import chex
import jax
import jax.numpy as jnp

from roid_jax import networks, replay
from roid_jax.agents import base, odt_learner
from roid_jax.agents.odt_learner import LARGEST_ACTION, OdtConfig, OdtState, Parts
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key


@chex.dataclass(frozen=True)
class Context:
    """What the policy remembers of an episode: its last H steps, from the front, zeros after them.

    obs: `[H, O]`; action: `[H, U]`; return_to_go: `[H]` what was asked for from each step on.
    length: `[]` how many steps there were; brought: `[]` what they brought, scaled.
    """

    obs: Array
    action: Array
    return_to_go: Array
    length: Array
    brought: Array


def odt(config: OdtConfig, spec: Spec) -> base.Agent:
    """Returns the agent for an environment."""
    parts = odt_learner.make_parts(config, spec)
    return base.Agent(
        init=functools.partial(odt_learner.init, parts),
        offline_update=functools.partial(odt_learner.offline_update, parts),
        handover=functools.partial(handover, parts),
        online_update=functools.partial(odt_learner.online_update, parts),
        act=functools.partial(_act, parts),
        begin_episode=functools.partial(begin_episode, parts),
        remember=functools.partial(remember, parts),
        return_discount=1.0,
        credits=True,
    )


def handover(parts: Parts, key: Key, state: OdtState, dataset: replay.Dataset) -> OdtState:
    """Returns the agent with the logged episodes ranked by what they brought."""
    del key
    kept = parts.config.kept_episodes
    order, starts = odt_learner.rank(dataset, parts.layout, kept=kept)
    return state.replace(order=order, starts=starts)


def begin_episode(parts: Parts, key: Key) -> Context:
    """Returns a context in which nothing happened yet."""
    del key
    steps, layout = parts.config.acting_context, parts.layout
    return Context(
        obs=jnp.zeros((steps, layout.obs_dim)),
        action=jnp.zeros((steps, layout.action_dim)),
        return_to_go=jnp.zeros(steps),
        length=jnp.zeros((), jnp.int32),
        brought=jnp.zeros(()),
    )


def remember(parts: Parts, memory: Context, reward: Array) -> Context:
    """Returns the contexts with what their last actions brought."""
    return memory.replace(brought=memory.brought + parts.config.return_scale * reward)


def extend(context: Context, obs: Array, asked: Array) -> tuple[Context, Array]:
    """Returns one context with another step in it, which has no action yet, and that step's place.

    Where it is full the oldest step goes.
    """
    steps = len(context.return_to_go)
    place = jnp.minimum(context.length, steps - 1)
    is_full = context.length >= steps

    def make_room(leaf: Array) -> Array:
        return jnp.where(is_full, jnp.roll(leaf, -1, axis=0), leaf)

    context = context.replace(
        obs=make_room(context.obs).at[place].set(obs),
        action=make_room(context.action).at[place].set(0.0),
        return_to_go=make_room(context.return_to_go).at[place].set(asked - context.brought),
        length=context.length + 1,
    )
    return context, place


def _act(parts: Parts, key: Key, state: OdtState, memory: Context, obs: Array, *, explore: bool):
    config = parts.config
    asked = config.exploration_return if explore else config.evaluation_return
    seen = base.normalise(state, obs)
    wanted = jnp.full(len(obs), config.return_scale * asked)
    memory, place = jax.vmap(extend)(memory, seen, wanted)
    tokens = memory.return_to_go, memory.obs, memory.action
    policy = parts.policy.apply(state.policy.params, *tokens, train=False)
    every = policy.sample(seed=key) if explore else networks.mode(policy)
    rows = jnp.arange(len(obs))
    action = jnp.clip(every[rows, place], -LARGEST_ACTION, LARGEST_ACTION)
    return action, memory.replace(action=memory.action.at[rows, place].set(action)), {}
