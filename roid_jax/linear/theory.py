"""The regret bound of the paper's Section 4 as functions one can run.

Statements are numbered as in the paper; each function restates its own. Arrays may be of any float
type. What the bound covers is the *randomised* rule: see `selection.ids_mixture`.
"""

import math

import chex
import jax
import jax.numpy as jnp

from roid_jax import selection
from roid_jax.types import Array


@chex.dataclass(frozen=True)
class Certificate:
    """Information ratios for each of E etas, all from the same beliefs.

    single: `[E]` of the best single candidate, the deterministic rule.
    mixed: `[E]` of the best mixture, the randomised rule.
    reference: `[E]` of probability matching.
    """

    single: Array
    mixed: Array
    reference: Array


def ratio_certificate(
    regret: Array, information: Array, matching: Array, *, etas: Array
) -> Certificate:
    """Returns the ratios that the certificate compares.

    Paper, Lemma 2:  Psi^eta(IDS_eta) <= Psi^eta(ref-TS) <= C_w.
    Paper, Assumption 1 gives the second:  Delta(ref-TS)^2 <= C_w I(ref-TS).
    The first holds because ref-TS is a mixture of candidates and IDS the best mixture; the best
    single candidate need not satisfy it.

    Args:
      regret: `[M]` expected regret of each candidate.
      information: `[M]` information of each, in nats.
      matching: `[M]` probability with which Thompson sampling takes each.
      etas: `[E]` regularisers.
    """

    def ratios(eta: Array) -> Certificate:
        best = selection.ids_probabilities(regret, information, eta=eta)
        mixtures = jnp.stack([best, matching])
        mixed, reference = selection.ids_score(mixtures @ regret, mixtures @ information, eta=eta)
        single = jnp.min(selection.ids_score(regret, information, eta=eta))
        return Certificate(single=single, mixed=mixed, reference=reference)

    return jax.vmap(ratios)(etas)


def reference_ratio_constant(*, horizon: int, dim: int) -> float:
    """Returns C_w, which bounds the information ratio of Thompson sampling.

    Paper, Lemma 5:  C_w = H Gamma^2 = 4 H d / log 2,   Gamma = sqrt(4 d / log 2).
    It needs unit noise, |phi| <= 1 and prior precision >= 1.
    """
    return 4.0 * horizon * dim / math.log(2.0)


def second_moment(gram: Array, covariance: Array) -> Array:
    """Returns E|w~ - w|^2 in the Gram norm for two independent posterior draws; it is 2 d.

    Paper, Eq. (5):  E_t |w~_h - w_h|^2_Lambda = Tr(Lambda 2 Lambda^-1) = 2 d.
    """
    return 2.0 * jnp.trace(gram @ covariance)


def value_difference_bound(visits: Array, features: Array, difference: Array) -> Array:
    """Returns the bound on how far two parameters can differ in the value of one policy.

    Paper, Eq. (1):  |V^pi(s_1; u) - V^pi(s_1; v)| <= sum_h E_pi |phi(s_h, a_h) . (u_h - v_h)|.

    Args:
      visits: `[H, O, U]` probability of each state and action at each stage under the policy.
      features: `[O, U, D]`.
      difference: `[H, D]` u - v.
    """
    chex.assert_rank([visits, features, difference], [3, 3, 2])
    gaps = jnp.abs(jnp.einsum("oud,hd->hou", features, difference))
    return jnp.sum(visits * gaps)


def residual_information(gram_before: Array, gram_after: Array) -> Array:
    """Returns what the online rows taught about w beyond the offline rows, in nats.

    Paper, Eq. (2):
        I(w; tau_{1:T} | D_N) = 1/2 sum_h E[log det Lambda_{h,N+T} - log det Lambda_{h,N}]
    (one realisation here; average over runs for the expectation).

    Args:
      gram_before: `[H, D, D]` Lambda_{h,N}.
      gram_after: `[H, D, D]` Lambda_{h,N+T}.
    """
    return 0.5 * jnp.sum(log_determinant_ratio(gram_before, gram_after))


def log_determinant_ratio(gram_before: Array, gram_after: Array) -> Array:
    """Returns `[H]` log(det Lambda_{h,N+T} / det Lambda_{h,N}) of `[H, D, D]` Gram matrices.

    Whitened first, log det(L^-1 Lambda' L^-T), since the two determinants may be large and close.
    """
    return jnp.linalg.slogdet(whiten(gram_before, gram_after))[1]


def whiten(gram: Array, matrix: Array) -> Array:
    """Returns L^-1 matrix L^-T with gram = L L'; its eigenvalues are those of gram^-1 matrix."""
    lower = jnp.linalg.cholesky(gram)
    half = jnp.linalg.solve(lower, matrix)
    return jnp.linalg.solve(lower, jnp.swapaxes(half, -1, -2))


def elliptical_potential(gram: Array, *, episodes: int) -> Array:
    """Returns `[H]` the elliptical-potential bound on the log-determinant ratio.

    Paper, Section 4.2:
        log(det Lambda_{N+T} / det Lambda_N) <= d log(1 + T / (d lambda_min(Lambda_N))),
    and L_N(T) of Theorem 7 is its average over stages, divided by d.
    """
    dim = gram.shape[-1]
    smallest = jnp.linalg.eigvalsh(gram)[..., 0]
    return dim * jnp.log1p(episodes / (dim * smallest))


def trace_bound(gram: Array, visitation: Array, *, episodes: int) -> Array:
    """Returns `[H]` the trace bound on the log-determinant ratio.

    Paper, Section 4.2:  log(det Lambda_{N+T} / det Lambda_N) <= sum_t phi_t' Lambda_N^-1 phi_t,
    whose expectation is T Tr(Lambda_N^-1 Sigma), with Sigma the average of phi phi'.

    Args:
      gram: `[H, D, D]` Lambda_{h,N}.
      visitation: `[H, D, D]` Sigma_{h,T}, the time-averaged online visitation covariance.
      episodes: T.
    """
    return episodes * jnp.trace(whiten(gram, visitation), axis1=-2, axis2=-1)


def coverage(gram: Array, visitation: Array, rows: Array) -> tuple[Array, Array]:
    """Returns how well the offline rows cover what the algorithm visits online.

    Paper, Definition 6:
        C_h = lambda_max((Lambda_{h,N} / n_h)^-1/2 Sigma_{h,T} (Lambda_{h,N} / n_h)^-1/2),
        C^dagger = (N / H) sum_h C_h / n_h.

    Args:
      gram: `[H, D, D]` Lambda_{h,N}.
      visitation: `[H, D, D]` Sigma_{h,T}.
      rows: `[H]` n_h, at least 1 each.

    Returns:
      `[H]` C_h, and C^dagger.
    """
    per_stage = rows * jnp.linalg.eigvalsh(whiten(gram, visitation))[..., -1]
    return per_stage, jnp.sum(rows) / rows.shape[0] * jnp.sum(per_stage / rows)


def master_bound(
    information: Array,
    *,
    episodes: int,
    ratio: float,
    eta: float | Array = 0.0,
    horizon: int = 1,
    failure: float = 0.0,
) -> Array:
    """Returns the Bayesian regret bound of IDS, given the residual information.

    Paper, Proposition 3:  BR_T <= sqrt(T C (I + T eta)) + H T P(G^c).

    Args:
      information: residual information I, or any upper bound of it, in nats.
      episodes: T.
      ratio: C, the bound on the reference policy's information ratio.
      eta: regulariser of the rule.
      horizon: H, used only with `failure`.
      failure: P(G^c), the chance that the ratio bound fails; 0 in the linear model.
    """
    budget = jnp.asarray(information) + episodes * eta
    return jnp.sqrt(episodes * ratio * budget) + horizon * episodes * failure


def two_branch_bound(
    gram: Array, visitation: Array, rows: Array, *, episodes: int, eta: float | Array = 0.0
) -> tuple[Array, Array]:
    """Returns the elliptical-potential branch and the coverage branch of the regret bound.

    Paper, Theorem 7, with its constants:
        sqrt(T C_w H d L_N(T) / 2)   and   sqrt(T C_w T H d C^dagger / (2 N)),
    and for eta > 0 (Corollary 12) the slack T sqrt(C_w eta) on top. The theorem takes the smaller.

    Args:
      gram: `[H, D, D]` Lambda_{h,N}.
      visitation: `[H, D, D]` Sigma_{h,T} under the rule that was run.
      rows: `[H]` n_h.
      episodes: T.
      eta: regulariser of the rule that was run.
    """
    horizon, dim = gram.shape[0], gram.shape[-1]
    ratio = reference_ratio_constant(horizon=horizon, dim=dim)
    elliptical = 0.5 * jnp.sum(elliptical_potential(gram, episodes=episodes))
    _, dagger = coverage(gram, visitation, rows)
    covered = 0.5 * episodes * dim * horizon * dagger / jnp.sum(rows)
    slack = eta_slack(episodes=episodes, ratio=ratio, eta=eta)
    return (
        master_bound(elliptical, episodes=episodes, ratio=ratio) + slack,
        master_bound(covered, episodes=episodes, ratio=ratio) + slack,
    )


def eta_slack(*, episodes: int, ratio: float, eta: float | Array) -> Array:
    """Returns the price of regularisation.

    Paper, Corollary 12:  BR_T(IDS_eta) <= (the bound at eta = 0) + T sqrt(C_w eta).
    """
    return episodes * jnp.sqrt(ratio * eta)
