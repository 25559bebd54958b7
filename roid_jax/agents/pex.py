"""PEX (Zhang et al., 2023): implicit Q-learning offline, and a second policy beside its own online.

The offline policy stays as it was; a new one begins from nothing. Both propose an action at each
step, and one is drawn with probabilities that rise with what the critics say of it. Without the
second policy it is IQL, going on online.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from roid_jax import config as cfg
from roid_jax import networks, replay
from roid_jax.agents import base, iql
from roid_jax.agents.iql import IqlConfig, IqlState
from roid_jax.envs.base import Spec
from roid_jax.types import Array, Key


@dataclasses.dataclass(frozen=True)
class PexConfig:
    """What the algorithm is made of; the defaults are its authors' code's, but offline IQL's own.

    Three things more differ: lived rows are drawn with replacement, critics see sampled actions
    clipped to the box, and critics and value keep their optimisers' moments at the handover.
    """

    offline: IqlConfig = dataclasses.field(default=IqlConfig())
    expands: bool = True  # a second policy online; else it is IQL
    inverse_temperature: float = 10.0  # kappa, of the draw between two policies
    evaluation_noise: float = 0.1  # how often an evaluation does not take the greedy choice
    imitated: str = "composed"  # what the new policy imitates online; or the rows' own, `logged`
    updates: int = 1  # a step of the environment
    offline_fraction: float = 0.5  # of an online batch
    warmup_steps: int = 5000  # without updates

    def __post_init__(self):
        cfg.check_number(self, "inverse_temperature", least=0)
        cfg.check_share("evaluation_noise", self.evaluation_noise)
        cfg.check_one_of("imitated", self.imitated, ("composed", "logged"))
        cfg.check_whole(self, "updates")
        cfg.check_share("offline_fraction", self.offline_fraction)
        cfg.check_whole(self, "warmup_steps", least=0, most=100_000_000)


@chex.dataclass(frozen=True)
class PexState:
    """Everything that changes online.

    learned: critics, value, and the policy that learns.
    settled: the policy that offline learning ended with.
    """

    learned: IqlState
    settled: networks.Params


class Parts(NamedTuple):
    """What never changes: the configuration, and the networks of the offline half."""

    config: PexConfig
    offline: iql.Parts


def pex(config: PexConfig, spec: Spec) -> base.Agent:
    """Returns the agent for an environment."""
    parts = Parts(config=config, offline=iql.make_parts(config.offline, spec))
    return base.Agent(
        init=functools.partial(iql.init, parts.offline),
        offline_update=functools.partial(iql.offline_update, parts.offline),
        handover=functools.partial(handover, parts),
        online_update=functools.partial(online_update, parts),
        act=functools.partial(_act, parts),
        warmup_steps=config.warmup_steps,
        return_discount=1.0 if config.offline.scaled_rewards else None,
    )


def handover(
    parts: Parts, key: Key, state: IqlState, dataset: replay.Dataset
) -> IqlState | PexState:
    """Returns the agent with its policy settled, and a new one that learned nothing yet.

    Where it does not expand its policy goes on, at a rate that does not fall.
    """
    del dataset
    offline = parts.offline
    if not parts.config.expands:
        return state.replace(actor=base.learner(offline.optimiser, state.actor.params))
    fresh = offline.actor.init(key, jnp.zeros(offline.layout.obs_dim))
    learned = state.replace(actor=base.learner(offline.optimiser, fresh))
    return PexState(learned=learned, settled=state.actor.params)


def _act(parts: Parts, key: Key, state: Any, memory: Any, obs: Array, *, explore: bool):
    is_pex = isinstance(state, PexState)
    seen = base.normalise(state.learned if is_pex else state, obs)
    if is_pex:
        action, chosen = compose(key, state, seen, parts, explore=explore)
        return in_box(action), memory, {"new_policy": jnp.mean(chosen.astype(jnp.float32))}
    policy = parts.offline.actor.apply(state.actor.params, seen)
    action = policy.sample(seed=key) if explore else policy.mode()
    return in_box(action), memory, {}


def in_box(action: Array) -> Array:
    """Returns what the world makes of an action."""
    return jnp.clip(action, -1.0, 1.0)


def compose(
    key: Key, state: PexState, obs: Array, parts: Parts, *, explore: bool
) -> tuple[Array, Array]:
    """Returns `[B, U]` the action of one of two policies, as it was proposed, and `[B]` which.

    The settled policy proposes its mode, the new one a sample; which is taken is drawn with
    probabilities proportional to exp(kappa min_i Q_i(s, a)). Where it does not explore the new
    policy's mode and the better of the two are taken, except now and then. A sample may lie outside
    the box, and is to be imitated there: imitating what was clipped draws a policy inwards and
    makes it narrow, whatever it is worth.
    """
    config = parts.config
    key_sample, key_draw, key_mode, key_greedy = jax.random.split(key, 4)
    actor, learned = parts.offline.actor, state.learned
    policy = actor.apply(learned.actor.params, obs)
    proposed = policy.sample(seed=key_sample)
    noisy = (len(obs), 1)
    if not explore:
        is_sample = jax.random.bernoulli(key_mode, config.evaluation_noise, noisy)
        proposed = jnp.where(is_sample, proposed, policy.mode())
    old = actor.apply(state.settled, obs).mode()
    choices, critics = jnp.stack([old, proposed]), learned.critics.params
    worth = jax.vmap(lambda action: iql.least(parts.offline, critics, obs, in_box(action)))(choices)
    chosen = jax.random.categorical(key_draw, config.inverse_temperature * worth, axis=0)
    if not explore:
        is_drawn = jax.random.bernoulli(key_greedy, config.evaluation_noise, noisy)[:, 0]
        chosen = jnp.where(is_drawn, chosen, jnp.argmax(worth, axis=0))
    return jnp.take_along_axis(choices, chosen[None, :, None], axis=0)[0], chosen


def online_update(
    parts: Parts,
    key: Key,
    step: Array,
    state: Any,
    memory: replay.Replay,
    dataset: replay.Dataset,
) -> tuple[Any, dict[str, Array]]:
    """Moves everything but a settled policy U times, on batches of which a part is logged."""
    del step
    config = parts.config
    shape, fraction = (config.updates, config.offline.batch_size), config.offline_fraction
    update = functools.partial(_update, parts)
    state, metrics, _ = base.learn_mixed(
        key, state, update, memory, dataset, shape=shape, fraction=fraction
    )
    return state, metrics


def _update(parts: Parts, state: Any, key: Key, rows: Array) -> tuple[Any, dict[str, Array]]:
    """Moves value and critics, then the policy that learns."""
    offline = parts.offline
    is_pex = isinstance(state, PexState)
    before = state.learned if is_pex else state
    batch = iql.unpack(offline, before, rows)
    learned, advantage, metrics = iql.learn_values(offline, before, batch)
    action = batch.action
    if is_pex and parts.config.imitated == "composed":
        state = state.replace(learned=learned)
        action, _ = compose(key, state, batch.obs, parts, explore=True)
        value = offline.value.apply(learned.value.params, batch.obs)
        advantage = iql.least(offline, learned.target_critics, batch.obs, in_box(action)) - value
    actor = iql.imitate(offline, offline.optimiser, learned, batch.obs, action, advantage)
    learned = learned.replace(actor=actor)
    return state.replace(learned=learned) if is_pex else learned, metrics
