"""How ODT learns: from windows of episodes, by the likelihood of their actions, keeping entropy."""

import dataclasses
import math
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from roid_jax import config as cfg
from roid_jax import episodes, losses, networks, replay
from roid_jax.agents import base, sac
from roid_jax.envs.base import Spec
from roid_jax.transformer import SequencePolicy
from roid_jax.types import Array, Key, Transitions

LARGEST_ACTION = 1.0 - 1e-6


@dataclasses.dataclass(frozen=True)
class OdtConfig:
    """What the algorithm is made of; the defaults are its authors' for hopper-medium-v2.

    Five things differ. They act for an episode and then learn 300 times; here every step brings
    `update_rate` updates, which is as many where episodes have 1000 steps. Lived episodes are
    forgotten when the replay is full and not when there are 1000. The entropy is a mean over real
    steps; theirs has the padding in it. Of an episode that a time limit cut, the last row is
    missing. An episode that the file cut off at its end is kept.
    """

    width: int = 512
    layers: int = 4
    heads: int = 4
    dropout: float = 0.1
    context: int = 20  # steps of a sequence that is learned from
    acting_context: int = 5  # steps that the policy sees when it acts
    learning_rate: float = 1e-4
    ramp_updates: int = 10_000  # over which the rate rises to that
    weight_decay: float = 5e-4
    largest_gradient: float = 0.25
    batch_size: int = 256
    return_scale: float = 0.001
    evaluation_return: float = 3600.0  # what is asked for
    exploration_return: float = 7200.0
    initial_temperature: float = 0.1
    temperature_rate: float = 1e-4
    entropy_per_dimension: float = -1.0  # the temperature aims at this times the action's size
    kept_episodes: int = 1000  # of the logged ones, the best; each lived one replaces the worst
    update_rate: float = 0.3  # a step of the environment

    def __post_init__(self):
        cfg.check_whole(self, "width", "layers", "heads", "context", "batch_size", "kept_episodes")
        fits = self.width % self.heads == 0
        cfg.check(fits, "width", f"a multiple of heads, {self.heads}", self.width)
        cfg.check_whole(self, "acting_context", most=self.context)
        cfg.check_whole(self, "ramp_updates", least=0, most=100_000_000)
        above = "learning_rate", "largest_gradient", "return_scale", "update_rate"
        cfg.check_number(self, *above, "initial_temperature", "temperature_rate", above=0)
        cfg.check_number(self, "weight_decay", least=0)
        cfg.check_number(self, "evaluation_return", "exploration_return", "entropy_per_dimension")
        cfg.check(0 <= self.dropout < 1, "dropout", "at least 0 and below 1", self.dropout)


@chex.dataclass(frozen=True)
class OdtState:
    """Everything that learning changes.

    mean, scale: `[O]` what observations are normalised by.
    report: what the last update said of itself.
    order: `[N]` numbers of the logged rows, the best episodes last; only online.
    starts: `[E + 1]` where in that the best E episodes begin, the best last; only online.
    """

    policy: base.Learner
    log_temperature: base.Learner
    mean: Array
    scale: Array
    report: dict[str, Array]
    order: Array | None = None
    starts: Array | None = None


class Parts(NamedTuple):
    """What never changes: the configuration, the network and the optimisers."""

    config: OdtConfig
    layout: replay.Layout
    policy: SequencePolicy
    optimiser: optax.GradientTransformation
    temperature_optimiser: optax.GradientTransformation


def make_parts(config: OdtConfig, spec: Spec) -> Parts:
    """Returns the parts for an environment."""
    sizes = config.width, config.layers, config.heads
    ramp = max(config.ramp_updates, 1)
    rate = optax.linear_schedule(config.learning_rate / ramp, config.learning_rate, ramp - 1)
    return Parts(
        config=config,
        layout=replay.Layout(spec.obs_dim, spec.action_dim),
        policy=SequencePolicy(spec.action_dim, *sizes, config.dropout),
        optimiser=optax.chain(
            optax.clip_by_global_norm(config.largest_gradient),
            optax.lamb(rate, eps=1e-8, weight_decay=config.weight_decay),
        ),
        temperature_optimiser=optax.adam(config.temperature_rate),
    )


def init(parts: Parts, key: Key, dataset: replay.Dataset) -> OdtState:
    """Returns an agent that learned nothing yet."""
    layout, steps = parts.layout, parts.config.context
    shapes = (1, steps), (1, steps, layout.obs_dim), (1, steps, layout.action_dim)
    params = parts.policy.init(key, *map(jnp.zeros, shapes), train=False)
    log_temperature = jnp.log(parts.config.initial_temperature)
    mean, scale = layout.moments(dataset.rows)
    return OdtState(
        policy=base.learner(parts.optimiser, params),
        log_temperature=base.learner(parts.temperature_optimiser, log_temperature),
        mean=mean,
        scale=scale + 1e-6,
        report={name: jnp.zeros(()) for name in ("surprise", "entropy", "temperature")},
    )


def offline_update(
    parts: Parts, key: Key, step: Array, state: OdtState, dataset: replay.Dataset
) -> tuple[OdtState, dict[str, Array]]:
    """Moves the policy once, on windows that begin at logged rows, any of them alike."""
    del step
    key_rows, key_update = jax.random.split(key)
    starts = jax.random.randint(key_rows, (parts.config.batch_size,), 0, len(dataset.rows))
    found = episodes.windows(dataset.rows, starts, length=parts.config.context)
    state = _update(parts, key_update, state, *found)
    return state, state.report


def online_update(
    parts: Parts,
    key: Key,
    step: Array,
    state: OdtState,
    memory: replay.Replay,
    dataset: replay.Dataset,
) -> tuple[OdtState, dict[str, Array]]:
    """Moves the policy at some steps, or several times at each, so that the rate is kept."""
    rate = parts.config.update_rate
    number = jnp.floor((step + 1) * rate) - jnp.floor(step * rate)

    def update(state: OdtState, key: Key) -> OdtState:
        key_rows, key_update = jax.random.split(key)
        found = draw_windows(key_rows, state, memory, dataset, parts.config)
        return _update(parts, key_update, state, *found)

    def perhaps(state: OdtState, given: tuple) -> tuple[OdtState, None]:
        i, key = given
        return jax.lax.cond(i < number, update, lambda state, key: state, state, key), None

    most = math.ceil(rate)
    state, _ = jax.lax.scan(perhaps, state, (jnp.arange(most), jax.random.split(key, most)))
    return state, state.report


def rank(dataset: replay.Dataset, layout: replay.Layout, *, kept: int) -> tuple[Array, Array]:
    """Returns `[N]` the rows with the best episodes last, and `[kept + 1]` where those begin.

    Places past the last row stand for episodes that there are not.
    """
    batch, number = layout.unpack(dataset.rows), len(dataset.rows)
    firsts = jnp.arange(number) - batch.place.astype(jnp.int32)
    order = jnp.argsort(batch.return_to_go[firsts], stable=True)
    is_first = batch.place[order] == 0
    from_end = jnp.flatnonzero(is_first[::-1], size=kept, fill_value=-1)
    starts = jnp.sort(jnp.where(from_end < 0, number, number - 1 - from_end))
    return order, jnp.append(starts, number)


def draw_windows(
    key: Key, state: OdtState, memory: replay.Replay, dataset: replay.Dataset, config: OdtConfig
) -> tuple[Array, Array]:
    """Returns windows of the best logged episodes and of lived ones, every row a start alike.

    Once as many are there as are kept, each lived episode replaces the worst logged one left.
    """
    number = len(state.order)
    lived, ended = episodes.finished(memory)
    present = jnp.sum(state.starts < number)
    first = state.starts[jnp.clip(ended + present - config.kept_episodes, 0, present)]
    drawn = jax.random.randint(key, (config.batch_size,), 0, jnp.maximum(number - first + lived, 1))
    logged = state.order[jnp.clip(first + drawn, 0, number - 1)]
    later = memory.count - memory.filled + drawn - (number - first)
    found = [
        episodes.windows(rows, starts, length=config.context)
        for rows, starts in ((dataset.rows, logged), (memory.rows, later))
    ]
    is_logged = drawn < number - first
    rows = jnp.where(is_logged[:, None, None], found[0][0], found[1][0])
    return rows, jnp.where(is_logged[:, None], found[0][1], found[1][1])


def _update(parts: Parts, key: Key, state: OdtState, rows: Array, mask: Array) -> OdtState:
    """Moves the policy and the temperature by `[B, T, R]` windows."""
    batch = parts.layout.unpack(rows)

    def loss(params: networks.Params) -> tuple[Array, dict[str, Array]]:
        return policy_loss(key, params, state, batch, mask, parts)

    gradient, report = jax.grad(loss, has_aux=True)(state.policy.params)
    surplus = report["entropy"] - parts.config.entropy_per_dimension * parts.layout.action_dim
    change = sac.temperature_gradient(state, surplus)
    return state.replace(
        policy=base.descend(parts.optimiser, state.policy, gradient),
        log_temperature=base.descend(parts.temperature_optimiser, state.log_temperature, change),
        report=report | {"temperature": jnp.exp(state.log_temperature.params)},
    )


def policy_loss(
    key: Key,
    params: networks.Params,
    state: OdtState,
    batch: Transitions,
    mask: Array,
    parts: Parts,
) -> tuple[Array, dict[str, Array]]:
    """Returns the mean of -log pi(a | before) - temperature H over the steps that are real.

    The return to go of a row is what its episode did bring, in hindsight; H is minus the log
    density of one sample, with its gradient.
    """
    key_dropout, key_sample = jax.random.split(key)
    action = jnp.clip(batch.action, -LARGEST_ACTION, LARGEST_ACTION)
    returns_to_go = parts.config.return_scale * batch.return_to_go
    seen = returns_to_go, base.normalise(state, batch.obs), action
    policy = parts.policy.apply(params, *seen, train=True, rngs={"dropout": key_dropout})
    _, log_prob = policy.sample_and_log_prob(seed=key_sample)
    surprise, entropy = (
        losses.masked_mean(-x.ravel(), mask.ravel()) for x in (policy.log_prob(action), log_prob)
    )
    temperature = jnp.exp(state.log_temperature.params)
    loss = surprise - jax.lax.stop_gradient(temperature) * entropy
    return loss, {"surprise": surprise, "entropy": entropy}
