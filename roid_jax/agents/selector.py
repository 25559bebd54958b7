"""Which action an ensemble takes: candidates around an anchor, beliefs about them, and a rule.

Any selector can be put on ROID's ensemble; only a name differs. `greedy` takes the anchor itself,
`thompson_episode` keeps one member for a whole episode, the others are the rules of `selection`.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from roid_jax import config as cfg
from roid_jax import selection
from roid_jax.types import Array, Beliefs, Key

SELECTORS = (
    "ids",
    "ids_randomised",
    "thompson",
    "thompson_episode",
    "ucb",
    "greedy",
    "boltzmann",
)


@dataclasses.dataclass(frozen=True)
class SelectorConfig:
    """How an action is chosen; the defaults are the paper's."""

    name: str = "ids"
    eta: float = 0.05
    q_max: float = 1e4  # values are clipped to this to choose, and to calibrate; never to learn
    candidates: int = 64  # M, the anchor among them
    wide_candidates: int = 256  # over which each member's best value is sought
    nested: bool = True  # the candidates are the first of the wide ones; else drawn apart
    candidate_noise: float = 0.1
    execution_noise: float = 0.1
    ucb_scale: float = 1.0
    temperature: float = 1.0  # of boltzmann

    def __post_init__(self):
        cfg.check_one_of("name", self.name, SELECTORS)
        cfg.check_number(self, "q_max", "temperature", above=0)
        cfg.check_number(self, "eta", "candidate_noise", "execution_noise", "ucb_scale", least=0)
        cfg.check_whole(self, "candidates", "wide_candidates")
        is_right = not self.nested or self.candidates <= self.wide_candidates
        expected = f"at most wide_candidates, {self.wide_candidates}"
        cfg.check(is_right, "candidates", expected, self.candidates)


class Choice(NamedTuple):
    """One action and what was believed when it was chosen.

    action: `[U]` to be executed, noise included.
    metrics: numbers by name.
    """

    action: Array
    metrics: dict[str, Array]


def begin_episode(key: Key, *, members: int) -> Array:
    """Returns `[]` the member that `thompson_episode` follows in an episode."""
    return jax.random.randint(key, (), 0, members)


def propose(key: Key, anchor: Array, number: int, config: SelectorConfig) -> Array:
    """Returns `[number, U]` the anchor, and actions around it, clipped to the box."""
    noise = config.candidate_noise * jax.random.normal(key, (number - 1, len(anchor)))
    return jnp.concatenate([anchor[None], jnp.clip(anchor[None] + noise, -1.0, 1.0)])


def information_gain(values: Array, scale: Array) -> Array:
    """Returns `[M]` what each candidate would teach, in nats, from `[K, M]` members' values.

    Paper, Section 6:  g(a) = 1/2 log(1 + alpha Var_k[Q_k(s, a)] / sigma^2);
    the scale is alpha / sigma^2.
    """
    return information_of(jnp.var(values, axis=0), scale)


def information_of(variance: Array, scale: Array) -> Array:
    """Returns what learning a value of that variance would teach, in nats."""
    return 0.5 * jnp.log1p(scale * variance)


def calibrate(values: Array, residual: Array, *, kind: str) -> tuple[Array, Array]:
    """Returns alpha and sigma^2, from `[K, N]` values and `[N]` TD residuals of rows held out.

    sigma^2 is the variance of the residual. The paper leaves alpha open: `match` makes the average
    of alpha Var_k / sigma^2 one, `one` is one, and `fit` is the least-squares slope of the squared
    residual on Var_k. Where the members agree everywhere there is nothing to scale: alpha is 0.
    """
    chex.assert_rank([values, residual], [2, 1])
    variance, noise = jnp.var(values, axis=0), jnp.var(residual)
    if kind == "match":
        alpha = _ratio(noise, jnp.mean(variance))
    elif kind == "fit":
        alpha = _ratio(jnp.sum(variance * jnp.square(residual)), jnp.sum(jnp.square(variance)))
    else:
        alpha = jnp.ones(())
    return alpha, noise


def information_scale(alpha: Array, noise: Array) -> Array:
    """Returns `[]` alpha / sigma^2, 0 where there is no noise to compare with."""
    return _ratio(alpha, noise)


def _ratio(numerator: Array, denominator: Array) -> Array:
    is_right = denominator > 0
    return jnp.where(is_right, numerator / jnp.where(is_right, denominator, 1.0), 0.0)


def make_beliefs(
    values: Array, wide_values: Array, scale: Array, config: SelectorConfig
) -> Beliefs:
    """Returns what K critics believe about M candidates.

    Args:
      values: `[K, M]` of the candidates; wide_values: `[K, W]` of the wider set.
      scale: `[]` alpha / sigma^2.
      config: says where values are clipped.
    """
    clipped = jnp.clip(values, -config.q_max, config.q_max)
    wide = jnp.clip(wide_values, -config.q_max, config.q_max)
    members = len(values)
    return selection.beliefs_from_draws(
        clipped,
        jnp.max(wide, axis=1),
        jnp.full(members, 1.0 / members),
        information_gain(clipped, scale),
    )


def choose(
    key: Key,
    anchor: Array,
    member: Array,
    evaluate: Callable[[Array], Array],
    scale: Array,
    config: SelectorConfig,
) -> Choice:
    """Returns the action to execute at one observation.

    Args:
      key: of the candidates, the rule and the noise.
      anchor: `[U]` the policy's own action.
      member: `[]` the member of this episode, for `thompson_episode`.
      evaluate: `[W, U]` actions -> `[K, W]` their values under each critic.
      scale: `[]` alpha / sigma^2.
      config: the selector.
    """
    decision, key_noise = _decide(key, anchor, member, evaluate, scale, config)
    noise = config.execution_noise * jax.random.normal(key_noise, anchor.shape)
    action = jnp.clip(decision.candidates[decision.index] + noise, -1.0, 1.0)
    return Choice(action=action, metrics=_metrics(decision, config))


def explain(
    key: Key,
    anchor: Array,
    member: Array,
    evaluate: Callable[[Array], Array],
    scale: Array,
    config: SelectorConfig,
) -> dict[str, Array]:
    """Returns what `choose` would go by: `[M]` each candidate's numbers, and `[]` the chosen one.

    Candidates are as the rule sees them; the first is the anchor. `spread` is the standard
    deviation of the critics' values.
    """
    decision, _ = _decide(key, anchor, member, evaluate, scale, config)
    return {
        "regret": selection.expected_regret(decision.beliefs),
        "information": decision.beliefs.information,
        "spread": decision.beliefs.deviation,
        "value": decision.beliefs.mean,
        "chosen": decision.index,
    }


class _Decision(NamedTuple):
    """What was considered, and which of it is taken."""

    candidates: Array
    beliefs: Beliefs
    wide_values: Array
    index: Array


def _decide(
    key: Key,
    anchor: Array,
    member: Array,
    evaluate: Callable[[Array], Array],
    scale: Array,
    config: SelectorConfig,
) -> tuple[_Decision, Key]:
    """Returns the decision, and the key of the noise upon it."""
    chex.assert_rank([anchor, member], [1, 0])
    key_wide, key_apart, key_rule, key_noise = jax.random.split(key, 4)
    wide = propose(key_wide, anchor, config.wide_candidates, config)
    wide_values = evaluate(wide)
    if config.nested:
        candidates, values = wide[: config.candidates], wide_values[:, : config.candidates]
    else:
        candidates = propose(key_apart, anchor, config.candidates, config)
        values = evaluate(candidates)
    beliefs = make_beliefs(values, wide_values, scale, config)
    index = _take(key_rule, beliefs, member, config)
    return _Decision(candidates, beliefs, wide_values, index), key_noise


def _take(key: Key, beliefs: Beliefs, member: Array, config: SelectorConfig) -> Array:
    """Returns the index of the candidate to take."""
    if config.name == "greedy":
        return jnp.zeros((), jnp.int32)
    if config.name == "thompson_episode":
        return jnp.argmax(beliefs.values[member])
    constants = {
        "ids": {"eta": config.eta},
        "ids_randomised": {"eta": config.eta},
        "ucb": {"scale": config.ucb_scale},
        "boltzmann": {"temperature": config.temperature},
    }
    return selection.make_rule(config.name, **constants.get(config.name, {}))(key, beliefs)


def _metrics(decision: _Decision, config: SelectorConfig) -> dict[str, Array]:
    """Returns what to watch: the spread, the clipping, and what the choice costs and teaches."""
    beliefs, index = decision.beliefs, decision.index
    return {
        "spread": jnp.mean(beliefs.deviation),
        "clip_rate": jnp.mean((jnp.abs(decision.wide_values) > config.q_max).astype(jnp.float32)),
        "off_anchor": (index != 0).astype(jnp.float32),
        "regret": selection.expected_regret(beliefs)[index],
        "information": beliefs.information[index],
        "residual_information": jnp.mean(beliefs.information),
    }
