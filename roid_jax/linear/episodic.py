"""The model of the paper's Section 3: H stages, known dynamics, unknown linear rewards.

Candidates are all deterministic policies of a small MDP; each stage has its own Gaussian posterior
with unit noise. One run plays T episodes; many runs of one problem share its offline rows and draw
their true weights from the posterior those rows left, as the Bayesian regret asks.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp

from roid_jax import config as cfg
from roid_jax import selection
from roid_jax.linear import mdp as mdps
from roid_jax.linear import play, posterior, theory
from roid_jax.types import Array, Beliefs, Key


@dataclasses.dataclass(frozen=True)
class EpisodicConfig:
    """One size of the episodic model. The theory wants unit noise, |phi| <= 1, precision >= 1."""

    horizon: int = 2  # H
    feature_dim: int = 4  # d
    offline_rows: tuple[int, ...] = (5, 50)  # n at each stage, by a uniformly random policy
    episodes: int = 100  # T
    etas: tuple[float, ...] = (0.0, 0.1)
    num_states: int = 3
    num_actions: int = 2
    prior_precision: float = 1.0
    posterior_draws: int = 64  # in antithetic pairs, so that their mean is exact
    runs: int = 32  # true weights per problem

    def __post_init__(self):
        cfg.check_whole(self, "horizon", "feature_dim", "num_states", "num_actions", most=100)
        cfg.check_whole(self, "runs", "posterior_draws", "episodes", most=100_000)
        cfg.check_number(self, "prior_precision", least=1)
        cfg.check(self.posterior_draws % 2 == 0, "posterior_draws", "even", self.posterior_draws)
        cfg.check_sizes("offline_rows", self.offline_rows, least=1, most=100_000)
        cfg.check_etas("etas", self.etas)
        policies = self.num_actions ** (self.horizon * self.num_states)
        cfg.check(policies <= 4096, "num_actions^(horizon * num_states)", "at most 4096", policies)


@chex.dataclass(frozen=True)
class Learner:
    """What one run knows, and the truth it does not.

    stages: posteriors over w_h, each leaf with a leading `[H]`.
    counts: `[H, O, U]` how often each state and action was seen, offline and online.
    truth: `[H, D]` the true weights.
    """

    stages: posterior.Posterior
    counts: Array
    truth: Array


@chex.dataclass(frozen=True)
class Episode:
    """What one episode showed.

    regret: `[]` V* - V^pi under the true weights.
    gain: `[H]` information of the observation at each stage, in nats.
    leverage: `[H]` phi' Lambda_{h,N}^-1 phi, with the Gram matrix of the offline rows.
    certificate: information ratios before the episode, one for each eta.
    """

    regret: Array
    gain: Array
    leverage: Array
    certificate: theory.Certificate


@chex.dataclass(frozen=True)
class Problem:
    """One MDP with every policy of it, and what its offline rows left.

    policies: `[P, H, O]`; visits: `[P, H, O, U]`; moments: `[P, H, D]` expected features.
    offline: the learner before the first episode; rows: `[]` n, the same at each stage.
    """

    mdp: mdps.Mdp
    policies: Array
    visits: Array
    moments: Array
    offline: Learner
    rows: Array


def draw_problem(key: Key, rows: Array, config: EpisodicConfig) -> Problem:
    """Draws an MDP, its true weights and n offline rows a stage, and conditions on them."""
    key_mdp, key_truth, key_rows, key_noise = jax.random.split(key, 4)
    size = {
        "horizon": config.horizon,
        "states": config.num_states,
        "actions": config.num_actions,
    }
    mdp = mdps.draw_mdp(key_mdp, dim=config.feature_dim, **size)
    policies = jnp.array(mdps.list_policies(**size))
    visits = jax.vmap(mdps.visits, (None, 0))(mdp, jax.nn.one_hot(policies, config.num_actions))
    shape = (config.horizon, config.feature_dim)
    truth = jax.random.normal(key_truth, shape) / jnp.sqrt(config.prior_precision)

    most = max(config.offline_rows)
    uniform = jnp.full((*policies.shape[1:], config.num_actions), 1.0 / config.num_actions)
    chances = mdps.visits(mdp, uniform).reshape(config.horizon, -1)
    pairs = jax.random.categorical(key_rows, jnp.log(chances), shape=(most, config.horizon)).T
    is_seen = jnp.broadcast_to(jnp.arange(most) < rows, pairs.shape).astype(truth.dtype)
    features = mdp.features.reshape(-1, config.feature_dim)[pairs] * is_seen[:, :, None]
    noise = is_seen * jax.random.normal(key_noise, pairs.T.shape).T  # rows first: more keep fewer
    rewards = jnp.einsum("hnd,hd->hn", features, truth) + noise
    counts = jnp.einsum("hn,hnx->hx", is_seen, jax.nn.one_hot(pairs, chances.shape[1]))
    warm_start = functools.partial(
        posterior.warm_start, precision=config.prior_precision, noise=1.0
    )
    return Problem(
        mdp=mdp,
        policies=policies,
        visits=visits,
        moments=jnp.einsum("phou,oud->phd", visits, mdp.features),
        offline=Learner(
            stages=jax.vmap(warm_start)(features, rewards),
            counts=counts.reshape(visits.shape[1:]),
            truth=truth,
        ),
        rows=rows,
    )


def visit_moments(problem: Problem, counts: Array) -> Array:
    """Returns `[H, D, D]` sum phi phi' over the counted rows; exact, since counts are whole."""
    features = problem.mdp.features
    return jnp.einsum("hou,oud,oue->hde", counts, features, features)


def policy_values(problem: Problem, weights: Array) -> Array:
    """Returns `[P]` the value of every policy under `[H, D]` reward weights."""
    return jnp.einsum("hd,phd->p", weights, problem.moments)


def best_policy(problem: Problem, weights: Array) -> Array:
    """Returns the index of the policy that planning finds for `[H, D]` reward weights."""
    actions = problem.visits.shape[-1]
    return mdps.policy_index(mdps.plan(problem.mdp, weights), actions=actions)


def policy_beliefs(
    key: Key, stages: posterior.Posterior, problem: Problem, *, draws: int
) -> Beliefs:
    """Returns what the stage posteriors say about every policy.

    Paper, Section 3:  Delta_t(pi) = E_t[V^{pi*_w}(w) - V^pi(w)], each draw's best by planning;
    Paper, Lemma 11:   I_t(pi) = sum_h E_pi[I(w_h; o_h)], since a stage teaches of its own w_h only.
    """
    horizon, dim = stages.centre.shape
    half = jax.random.normal(key, (draws // 2, horizon, dim))
    whitened = jnp.concatenate([half, -half])
    weights = jax.vmap(posterior.draw, (0, 1), 1)(stages, whitened)
    features = problem.mdp.features.reshape(-1, dim)
    gains = jax.vmap(lambda stage: posterior.information_gain(posterior.project(stage, features)))
    seen = jax.vmap(posterior.project, (0, 1))(stages, problem.moments)
    values = jax.vmap(policy_values, (None, 0))(problem, weights)
    favourites = jax.vmap(best_policy, (None, 0))(problem, weights)
    return Beliefs(
        values=values,
        best=jnp.take_along_axis(values, favourites[:, None], axis=1)[:, 0],
        weights=jnp.full(draws, 1.0 / draws),
        mean=jnp.sum(jax.vmap(posterior.mean)(seen), axis=0),
        deviation=jnp.sqrt(jnp.sum(jax.vmap(posterior.variance)(seen), axis=0)),
        information=jnp.einsum(
            "phx,hx->p", problem.visits.reshape(*problem.policies.shape[:2], -1), gains(stages)
        ),
    )


def make_world(problem: Problem, config: EpisodicConfig) -> play.World:
    """Returns the model as a world whose candidates are policies and whose steps are episodes."""

    def beliefs(key: Key, learner: Learner) -> Beliefs:
        return policy_beliefs(key, learner.stages, problem, draws=config.posterior_draws)

    def take(key: Key, learner: Learner, beliefs: Beliefs, index: Array):
        key_episode, key_noise = jax.random.split(key)
        states, actions = mdps.rollout(key_episode, problem.mdp, problem.policies[index]).T
        features = problem.mdp.features[states, actions]
        noise = jax.random.normal(key_noise, (config.horizon,))
        rewards = jnp.sum(features * learner.truth, axis=1) + noise

        def observe(stage: posterior.Posterior, feature: Array, reward: Array):
            seen = posterior.project(stage, feature[None])
            gain = posterior.information_gain(seen)[0]
            return posterior.condition(stage, seen.root[0], reward), gain

        stages, gain = jax.vmap(observe)(learner.stages, features, rewards)
        before = jax.vmap(posterior.project)(problem.offline.stages, features[:, None])
        values = policy_values(problem, learner.truth)
        episode = Episode(
            regret=values[best_policy(problem, learner.truth)] - values[index],
            gain=gain,
            leverage=jax.vmap(posterior.variance)(before)[:, 0],
            certificate=theory.ratio_certificate(
                selection.expected_regret(beliefs),
                beliefs.information,
                selection.thompson_mixture(beliefs),
                etas=jnp.array(config.etas),
            ),
        )
        counts = learner.counts.at[jnp.arange(config.horizon), states, actions].add(1.0)
        return learner.replace(stages=stages, counts=counts), episode

    return play.World(beliefs=beliefs, take=take)


@functools.partial(jax.jit, static_argnames=("config", "methods"))
def simulate(
    seeds: Array, *, config: EpisodicConfig, methods: tuple[play.Method, ...]
) -> tuple[Problem, Learner, Episode]:
    """Plays every method on every problem, for each number of offline rows.

    Returns:
      The problems, each leaf with leading axes `[S, N]`; the learners after the last episode,
      `[S, N, R, A]`; and the episodes, `[S, N, R, A, T]`. S are seeds (problems), N the numbers of
      offline rows, R runs, A methods.
    """

    def one_problem(seed: Array, rows: Array) -> tuple[Problem, Learner, Episode]:
        key_problem, key_truth, key_runs = jax.random.split(jax.random.key(seed), 3)
        problem = draw_problem(key_problem, rows, config)
        world = make_world(problem, config)

        def one_run(run: Array) -> tuple[Learner, Episode]:
            shape = (config.horizon, 1, config.feature_dim)
            whitened = jax.random.normal(jax.random.fold_in(key_truth, run), shape)
            truth = jax.vmap(posterior.draw)(problem.offline.stages, whitened)[:, 0]
            start = problem.offline.replace(truth=truth)
            key_run = jax.random.fold_in(key_runs, run)
            return play.play(key_run, start, world, methods, horizon=config.episodes)

        return problem, *jax.vmap(one_run)(jnp.arange(config.runs))

    sizes = jnp.array(config.offline_rows)
    return jax.lax.map(lambda seed: jax.vmap(one_problem, (None, 0))(seed, sizes), seeds)
