"""The hidden-mode bandit: a rare mode that the offline rows did not show, and a probe that would.

Three actions: the default (best in the common mode), the rare action (best in the rare one) and the
probe (best in neither). The last two show the mode. The regret of every method, at every number N
of offline rows, for every seed and step, comes from one compiled program.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from roid_jax import config as cfg
from roid_jax import selection
from roid_jax.linear import play, separation, theory
from roid_jax.types import Array, Beliefs, Key


@dataclasses.dataclass(frozen=True)
class HiddenModeConfig:
    """The paper's hidden-mode bandit.

    Rewards, horizon and N are the paper's. It does not print the reveal rate, the prior or the
    coefficient of UCB; these three reproduce its p_N and all its deterministic cells.
    """

    rewards: tuple[tuple[float, ...], ...] = ((1.0, 0.2, 0.85), (1.0, 2.0, 1.85))  # [mode][action]
    offline_rows: tuple[int, ...] = (100, 200, 300, 1000)
    reveal_rate: float = 0.005  # chance that an offline row shows the rare mode, where it is there
    prior: float = 0.5
    horizon: int = 500
    ucb_scale: float = 1.0
    etas: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1)
    accounting: str = "exact"  # exact: expectation over the mode; sampled: one mode per seed

    def __post_init__(self):
        try:
            is_right = np.array(self.rewards, float).shape == (2, 3)
        except (TypeError, ValueError):
            is_right = False
        cfg.check(is_right, "rewards", "two rows of three numbers", self.rewards)
        separation.gaps_of(self.rewards)
        cfg.check_sizes("offline_rows", self.offline_rows)
        cfg.check_between("reveal_rate", self.reveal_rate, 0, 1)
        cfg.check_between("prior", self.prior, 0, 1)
        cfg.check_whole(self, "horizon")
        cfg.check_number(self, "ucb_scale", least=0)
        cfg.check_etas("etas", self.etas)
        cfg.check_one_of("accounting", self.accounting, ("exact", "sampled"))

    @property
    def reveals(self) -> tuple[bool, bool, bool]:
        """Which actions show the mode: all but the default."""
        return (False, True, True)

    def residual_probability(self) -> np.ndarray:
        """Returns `[N]` the chance of the rare mode after each number of offline rows."""
        return separation.residual_probability(
            np.array(self.offline_rows), reveal_rate=self.reveal_rate, prior=self.prior
        )


@chex.dataclass(frozen=True)
class HiddenMode:
    """probability: `[]` what we believe of mode 1; mode: `[]` the truth, 0 or 1."""

    probability: Array
    mode: Array


def two_mode_beliefs(probability: Array, config: HiddenModeConfig) -> Beliefs:
    """Returns the exact beliefs about the three actions, given the chance of mode 1.

    The two modes are the draws, with weights 1-p and p; the default teaches nothing and the others
    everything that is left, H_2(p) nats (Assumption B3).
    """
    values = jnp.array(config.rewards, probability.dtype)
    weights = jnp.stack([1.0 - probability, probability])
    entropy = jnp.sum(jax.scipy.special.entr(weights))
    information = jnp.where(jnp.array(config.reveals), entropy, 0.0)
    return selection.beliefs_from_draws(values, jnp.max(values, axis=1), weights, information)


def make_world(config: HiddenModeConfig) -> play.World:
    """Returns the bandit as a world; its outcome is the regret of the step."""
    rewards = jnp.array(config.rewards)
    reveals = jnp.array(config.reveals)

    def beliefs(key: Key, state: HiddenMode) -> Beliefs:
        del key
        return two_mode_beliefs(state.probability, config)

    def take(key: Key, state: HiddenMode, beliefs: Beliefs, index: Array):
        del key, beliefs
        loss = jnp.max(rewards[state.mode]) - rewards[state.mode, index]
        known = state.mode.astype(state.probability.dtype)
        probability = jnp.where(reveals[index], known, state.probability)
        return state.replace(probability=probability), loss

    return play.World(beliefs=beliefs, take=take)


@functools.partial(jax.jit, static_argnames=("config", "methods"))
def regret(seeds: Array, *, config: HiddenModeConfig, methods: tuple[play.Method, ...]) -> Array:
    """Returns `[S, N, A, T]` the regret of each step.

    With exact accounting each method meets both modes, with the same random numbers, and its regret
    is their average with the weights that the offline rows left.
    """
    world = make_world(config)

    def one_mode(key: Key, probability: Array, mode: Array) -> Array:
        state = HiddenMode(probability=probability, mode=mode)
        _, losses = play.play(
            key, state, world, methods, horizon=config.horizon, ucb_scale=config.ucb_scale
        )
        return losses

    def one_run(key: Key, probability: Array) -> Array:
        if config.accounting == "sampled":
            key_mode, key = jax.random.split(key)
            mode = jax.random.bernoulli(key_mode, probability).astype(jnp.int32)
            return one_mode(key, probability, mode)
        common, rare = jax.vmap(one_mode, (None, None, 0))(key, probability, jnp.arange(2))
        return (1.0 - probability) * common + probability * rare

    keys = jax.vmap(jax.random.key)(seeds)
    probabilities = jnp.asarray(config.residual_probability(), float)
    return jax.vmap(jax.vmap(one_run, (None, 0)), (0, None))(keys, probabilities)


@functools.partial(jax.jit, static_argnames=("config", "methods"))
def choices(*, config: HiddenModeConfig, methods: tuple[play.Method, ...]) -> Array:
    """Returns `[N, A, 3]` how likely each method takes each action while the mode is hidden."""

    def one(method: play.Method, beliefs: Beliefs) -> Array:
        if method.name == "thompson":
            return selection.thompson_mixture(beliefs)
        if method.name == "ids_randomised":
            regret = selection.expected_regret(beliefs)
            return selection.ids_probabilities(regret, beliefs.information, eta=method.eta)
        choose = play.make_chooser([method], ucb_scale=config.ucb_scale)
        chosen = choose(jax.random.key(0), jax.tree.map(lambda x: x[None], beliefs))
        return jax.nn.one_hot(chosen[0], 3)

    def all_methods(probability: Array) -> Array:
        beliefs = two_mode_beliefs(probability, config)
        return jnp.stack([one(method, beliefs) for method in methods])

    return jax.vmap(all_methods)(jnp.asarray(config.residual_probability(), float))


@functools.partial(jax.jit, static_argnames=("config", "eta"))
def ratios(config: HiddenModeConfig, *, eta: float) -> theory.Certificate:
    """Returns the `[N]` information ratios of both IDS rules and of Thompson sampling."""

    def one(probability: Array) -> theory.Certificate:
        beliefs = two_mode_beliefs(probability, config)
        return theory.ratio_certificate(
            selection.expected_regret(beliefs),
            beliefs.information,
            selection.thompson_mixture(beliefs),
            etas=jnp.array([eta]),
        )

    certificate = jax.vmap(one)(jnp.asarray(config.residual_probability(), float))
    return jax.tree.map(lambda ratio: ratio[:, 0], certificate)


def analytic_regret(config: HiddenModeConfig, methods: tuple[play.Method, ...]) -> np.ndarray:
    """Returns `[N, A]` the closed form of each method's exact regret, in double precision."""
    gaps = np.max(config.rewards, axis=1, keepdims=True) - np.array(config.rewards)
    chosen = np.asarray(choices(config=config, methods=methods), np.float64)
    price = functools.partial(
        separation.stationary_regret, reveals=config.reveals, horizon=config.horizon
    )
    return np.array(
        [
            [price(choice, np.array([1.0 - p, p]) @ gaps) for choice in row]
            for row, p in zip(chosen, config.residual_probability(), strict=True)
        ]
    )
