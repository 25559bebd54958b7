"""The biased linear bandit: a linear reward behind rows that someone with other weights chose.

Each seed draws its own feature map, weights, candidates and offline rows. The regret of every
method, at every number N of offline rows, for every seed and step, comes from one compiled program.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp

from roid_jax import config as cfg
from roid_jax.linear import features, play, posterior
from roid_jax.types import Array, Beliefs, Key


@dataclasses.dataclass(frozen=True)
class BiasedLinearConfig:
    """The paper's biased linear bandit.

    The paper gives the dimensions, beta, the noise, the horizon and N; every other field is one of
    its open choices, set so that the shape of its table is met.
    """

    feature_map: features.FeatureConfig = dataclasses.field(default=features.FeatureConfig())
    num_states: int = 4  # fixed contexts, each with its own candidates
    actions_per_state: int = 64  # 4 x 64 = the paper's 256 candidates
    state_scale: float = 0.3
    action_law: str = "uniform"  # uniform in +-action_scale, or normal with that deviation
    action_scale: float = 2.0
    weight_norm: float = 8.0  # about the norm of w_star
    bias: float = 6.0  # beta: w_behaviour = w_star + beta delta, delta a random unit vector
    behaviour_actions: int = 32  # actions the behaviour policy chooses from in each offline row
    behaviour_temperature: float = 1.0
    offline_rows: tuple[int, ...] = (20, 50, 100)  # nested: 20 are the first 20 of 100
    noise: float = 0.05
    model_noise: float = 0.05  # what the posterior takes the noise to be
    prior_precision: float = 1.0
    posterior_draws: int = 64
    ucb_scale: float = 1.5
    horizon: int = 200
    etas: tuple[float, ...] = (0.0, 0.01, 0.05, 0.1, 0.5)

    def __post_init__(self):
        cfg.check_whole(self, "num_states", "actions_per_state", "behaviour_actions", most=10_000)
        cfg.check_whole(self, "posterior_draws", most=100_000)
        cfg.check_whole(self, "horizon")
        cfg.check_number(self, "state_scale", "action_scale", "weight_norm", above=0)
        cfg.check_number(self, "behaviour_temperature", "prior_precision", above=0)
        cfg.check_number(self, "bias", "noise", "ucb_scale", least=0)
        cfg.check_number(self, "model_noise", least=1e-6)  # below, float32 cannot tell draws apart
        cfg.check_sizes("offline_rows", self.offline_rows, most=100_000)
        cfg.check_etas("etas", self.etas)
        cfg.check_one_of("action_law", self.action_law, ("uniform", "normal"))


@chex.dataclass(frozen=True)
class BiasedLinear:
    """One drawn problem.

    arms: `[M, D]` features of the candidates; values: `[M]` their true means.
    features: `[N, D]` of the offline rows; rewards: `[N]` theirs.
    """

    arms: Array
    values: Array
    features: Array
    rewards: Array


def draw_problem(key: Key, config: BiasedLinearConfig) -> BiasedLinear:
    """Draws one problem: feature map, true weights, candidates and the biased offline rows."""
    keys = jax.random.split(key, 7)
    key_map, key_weights, key_bias, key_arms, key_offers, key_choice, key_noise = keys
    dim = config.feature_map.feature_dim
    projection = features.draw_projection(key_map, config.feature_map)
    weights = config.weight_norm / jnp.sqrt(dim) * jax.random.normal(key_weights, (dim,))
    direction = jax.random.normal(key_bias, (dim,))
    behaviour = weights + config.bias * direction / jnp.linalg.norm(direction)

    # Each offline row has a fresh state and fresh actions; at least one row keeps shapes non-empty.
    size = max(1, *config.offline_rows), config.behaviour_actions
    offers = draw_candidates(key_offers, projection, size, config)
    logits = offers @ behaviour / config.behaviour_temperature
    chosen = jax.random.categorical(key_choice, logits)
    logged = jnp.take_along_axis(offers, chosen[:, None, None], axis=1)[:, 0]
    rewards = logged @ weights + config.noise * jax.random.normal(key_noise, chosen.shape)

    size = config.num_states, config.actions_per_state
    arms = draw_candidates(key_arms, projection, size, config).reshape(-1, dim)
    return BiasedLinear(arms=arms, values=arms @ weights, features=logged, rewards=rewards)


def draw_candidates(
    key: Key, projection: Array, size: tuple[int, int], config: BiasedLinearConfig
) -> Array:
    """Returns `[states, actions, D]` the features of fresh actions in each of some fresh states."""
    key_state, key_action = jax.random.split(key)
    shape = config.feature_map
    states = config.state_scale * jax.random.normal(key_state, (size[0], shape.state_dim))
    if config.action_law == "uniform":
        actions = jax.random.uniform(key_action, (*size, shape.action_dim), minval=-1.0, maxval=1.0)
    else:
        actions = jax.random.normal(key_action, (*size, shape.action_dim))
    featurise = functools.partial(features.featurise, projection, terms=shape.terms)
    over_actions = jax.vmap(featurise, in_axes=(None, 0))
    return jax.vmap(over_actions)(states, config.action_scale * actions)


def make_world(problem: BiasedLinear, config: BiasedLinearConfig) -> play.World:
    """Returns the bandit as a world; its state is the posterior seen through the candidates."""

    def take(key: Key, state: posterior.Posterior, beliefs: Beliefs, index: Array):
        del beliefs
        reward = problem.values[index] + config.noise * jax.random.normal(key)
        loss = jnp.max(problem.values) - problem.values[index]
        return posterior.condition(state, state.root[index], reward), loss

    def draw(key: Key) -> Array:
        return jax.random.normal(key, (config.posterior_draws, config.feature_map.feature_dim))

    return play.World(
        beliefs=posterior.beliefs_under, take=take, draw=draw, one=lambda drawn: drawn[:1]
    )


@functools.partial(jax.jit, static_argnames=("config", "methods"))
def regret(seeds: Array, *, config: BiasedLinearConfig, methods: tuple[play.Method, ...]) -> Array:
    """Returns `[S, N, A, T]` the regret of each step.

    On an accelerator all seeds run side by side; on a CPU one after another, because the state of
    one seed fits the cache and that of all does not.
    """

    def one_seed(seed: Array) -> Array:
        key_problem, key_run = jax.random.split(jax.random.key(seed))
        problem = draw_problem(key_problem, config)
        world = make_world(problem, config)

        def one_size(rows: Array) -> Array:
            is_seen = jnp.arange(problem.rewards.shape[0]) < rows
            start = posterior.warm_start(
                jnp.where(is_seen[:, None], problem.features, 0.0),
                jnp.where(is_seen, problem.rewards, 0.0),
                precision=config.prior_precision,
                noise=config.model_noise,
            )
            arms = posterior.project(start, problem.arms)
            _, losses = play.play(
                key_run, arms, world, methods, horizon=config.horizon, ucb_scale=config.ucb_scale
            )
            return losses

        return jax.vmap(one_size)(jnp.array(config.offline_rows))

    at_once = None if jax.default_backend() == "cpu" else seeds.shape[0]
    return jax.lax.map(one_seed, seeds, batch_size=at_once)
