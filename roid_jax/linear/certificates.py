"""What a simulation of the episodic model did, beside what the theory says it must do.

Everything is a function of what `episodic.simulate` returns; axes are S problems, N numbers of
offline rows, R runs, A methods, T episodes, H stages.
"""

import functools

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
    *,
    precision: float,
) -> Measured:
    """Returns regret, information and bounds of each method on each problem.

    Args:
      problems: `[S, N]`, from `episodic.simulate`.
      learners: `[S, N, R, A]`, from the same.
      episodes: `[S, N, R, A, T]`, from the same.
      etas: `[A]` the regulariser of each method, 0 where it has none.
      precision: of the prior, lambda.
    """
    length = episodes.regret.shape[-1]

    def one(problem, counts, eta):  # counts: [R, H, O, U] of one method
        gram = functools.partial(gram_matrix, problem, precision=precision)
        before, grams = gram(problem.offline.counts), jax.vmap(gram)(counts)
        rows = jnp.full(before.shape[0], problem.rows)
        visits = jnp.mean(counts, axis=0) - problem.offline.counts
        visitation = episodic.visit_moments(problem, visits / length)
        information = jnp.mean(jax.vmap(theory.residual_information, (None, 0))(before, grams))
        ratio = theory.reference_ratio_constant(horizon=before.shape[0], dim=before.shape[-1])
        elliptical, covered = theory.two_branch_bound(
            before, visitation, rows, episodes=length, eta=eta
        )
        master = theory.master_bound(information, episodes=length, ratio=ratio, eta=eta)
        coverage = theory.coverage(before, visitation, rows)[1]
        return information, master, elliptical, covered, coverage

    over_methods = jax.vmap(one, (None, 1, 0))
    over_problems = jax.vmap(jax.vmap(over_methods, (0, 0, None)), (0, 0, None))
    information, master, elliptical, covered, coverage = over_problems(
        problems, learners.counts, etas
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
    problems: episodic.Problem,
    learners: episodic.Learner,
    episodes: episodic.Episode,
    *,
    precision: float,
) -> Identities:
    """Returns how far each identity of the theory is from holding, relative to its value.

    One side comes from the learner's own square roots, update by update; the other from counting
    what was visited.
    """
    length = episodes.gain.shape[4]

    def one(problem, learner, episode):  # one method's run
        before = gram_matrix(problem, problem.offline.counts, precision=precision)
        after = gram_matrix(problem, learner.counts, precision=precision)
        gained = theory.residual_information(before, after)
        visits = (learner.counts - problem.offline.counts) / length
        visitation = episodic.visit_moments(problem, visits)
        traces = theory.trace_bound(before, visitation, episodes=length)
        covariance = jax.vmap(lambda root: root @ root.T)(learner.stages.root)
        moments = jax.vmap(theory.second_moment)(after, covariance)
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


def gram_matrix(problem: episodic.Problem, counts: Array, *, precision: float) -> Array:
    """Returns `[H, D, D]` Lambda_h = lambda I + sum phi phi' over the counted rows."""
    moments = episodic.visit_moments(problem, counts)
    return precision * jnp.eye(moments.shape[-1])[None] + moments
