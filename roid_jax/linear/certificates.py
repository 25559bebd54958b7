"""What a simulation of the episodic model did, beside what the theory says it must do.

Everything is a function of what `episodic.simulate` returns; axes are S problems, N numbers of
offline rows, R runs, A methods, T episodes, H stages.
"""

import chex
import jax
import jax.numpy as jnp

from roid_jax.linear import episodic, theory
from roid_jax.types import Array


@chex.dataclass(frozen=True)
class Measured:
    """Each leaf is `[S, N, A]`, expectations over the R runs of a problem.

    regret, regret_error: Bayesian regret after T episodes, and its standard error.
    information: residual information that the episodes gained, in nats.
    master: the bound from that information; elliptical, covered: the two branches of the theorem.
    coverage: C^dagger under the method's own visits.
    """

    regret: Array
    regret_error: Array
    information: Array
    master: Array
    elliptical: Array
    covered: Array
    coverage: Array


@chex.dataclass(frozen=True)
class Identities:
    """Largest relative error of each identity, over all runs; each leaf is a scalar.

    log_determinant: the sum of all gains is half the log-determinant ratio.
    trace: the sum of phi' Lambda_N^-1 phi is T Tr(Lambda_N^-1 Sigma).
    second_moment: E|w~ - w|^2 in the Gram norm is 2 d.
    """

    log_determinant: Array
    trace: Array
    second_moment: Array


@jax.jit
def measure(
    problems: episodic.Problem,
    learners: episodic.Learner,
    episodes: episodic.Episode,
    etas: Array,
) -> Measured:
    """Returns regret, information and bounds of each method on each problem.

    Args:
      problems: `[S, N]`, from `episodic.simulate`.
      learners: `[S, N, R, A]`, from the same.
      episodes: `[S, N, R, A, T]`, from the same.
      etas: `[A]` the regulariser of each method, 0 where it has none.
    """
    horizon = episodes.regret.shape[-1]

    def one(problem, grams, eta):  # grams: [R, H, D, D] of one method
        before, rows = problem.offline.gram, jnp.full(grams.shape[1], problem.rows)
        dim = before.shape[-1]
        visitation = jnp.mean(grams - before, axis=0) / horizon
        information = jnp.mean(jax.vmap(theory.residual_information, (None, 0))(before, grams))
        ratio = theory.reference_ratio_constant(rows.shape[0], dim)
        elliptical, covered = theory.two_branch_bound(
            before, visitation, rows, episodes=horizon, eta=eta
        )
        master = theory.master_bound(information, episodes=horizon, ratio=ratio, eta=eta)
        coverage = theory.coverage(before, visitation, rows)[1]
        return information, master, elliptical, covered, coverage

    over_methods = jax.vmap(one, (None, 1, 0))
    over_problems = jax.vmap(jax.vmap(over_methods, (0, 0, None)), (0, 0, None))
    information, master, elliptical, covered, coverage = over_problems(
        problems, learners.gram, etas
    )
    totals = jnp.sum(episodes.regret, axis=-1)
    runs = totals.shape[2]
    return Measured(
        regret=jnp.mean(totals, axis=2),
        regret_error=jnp.std(totals, axis=2, ddof=1 if runs > 1 else 0) / jnp.sqrt(runs),
        information=information,
        master=master,
        elliptical=elliptical,
        covered=covered,
        coverage=coverage,
    )


@jax.jit
def check_identities(
    problems: episodic.Problem, learners: episodic.Learner, episodes: episodic.Episode
) -> Identities:
    """Returns how far each identity of the theory is from holding, relative to its value."""
    horizon = episodes.gain.shape[4]

    def one(problem, learner, episode):  # one method's run
        before = problem.offline.gram
        gained = theory.residual_information(before, learner.gram)
        visits = (learner.gram - before) / horizon
        traces = theory.trace_bound(before, visits, episodes=horizon)
        covariance = jax.vmap(lambda root: root @ root.T)(learner.stages.root)
        moments = jax.vmap(theory.second_moment)(learner.gram, covariance)
        twice_dim = 2.0 * before.shape[-1]
        return (
            jnp.abs(jnp.sum(episode.gain) - gained) / gained,
            jnp.max(jnp.abs(jnp.sum(episode.leverage, axis=0) - traces) / traces),
            jnp.max(jnp.abs(moments - twice_dim)) / twice_dim,
        )

    over_runs = jax.vmap(jax.vmap(one, (None, 0, 0)), (None, 0, 0))
    gains, traces, moments = jax.vmap(jax.vmap(over_runs))(problems, learners, episodes)
    return Identities(
        log_determinant=jnp.max(gains), trace=jnp.max(traces), second_moment=jnp.max(moments)
    )


def thompson_ratio_share(episodes: episodic.Episode, *, horizon: int, dim: int) -> Array:
    """Returns the largest ratio of Thompson sampling as a share of C_w; Lemma 5 says at most 1."""
    constant = theory.reference_ratio_constant(horizon, dim)
    return jnp.max(episodes.certificate.reference) / constant
