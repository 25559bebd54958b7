"""Bayesian linear regression, kept as the square root of its covariance.

The model is reward = phi . w + noise, w ~ N(0, I / prior_precision). With precision
Lambda = R'R (R the Cholesky factor), the state is F = R^-1 and z = F^-1 mean, so that
    covariance = F F',   mean = F z,   a draw is F (z + xi) with xi ~ N(0, I).
Everything a decision needs about a candidate phi is its row F' phi. That is why `project` can
replace F by Phi F once, for a fixed set of candidates, and the same O(rows x D) update then keeps
the beliefs about all of them, without a product of Phi and F in every step.
"""

import chex
import jax
import jax.numpy as jnp

from roid_jax.types import Array, Beliefs, Key


@chex.dataclass(frozen=True)
class Posterior:
    """A Gaussian posterior over linear weights, seen through P directions.

    root: `[P, D]` row i is F' phi_i; for the weights themselves P = D and it is F.
    centre: `[D]` the mean in the whitened coordinates, z = F^-1 mean.
    noise: `[]` standard deviation of one observation.
    """

    root: Array
    centre: Array
    noise: Array


def prior(dim: int, *, precision: float, noise: float) -> Posterior:
    """Returns the posterior before any row: w ~ N(0, I / precision)."""
    root = jnp.eye(dim) / jnp.sqrt(precision)
    return Posterior(root=root, centre=jnp.zeros(dim), noise=jnp.asarray(noise, root.dtype))


def warm_start(features: Array, rewards: Array, *, precision: float, noise: float) -> Posterior:
    """Returns the posterior given N rows at once.

    Paper, Section 3:  Lambda_N = lambda I + sum phi phi'   (each phi divided by the noise here,
    which is 1 there). The Cholesky factor R of Lambda_N comes from a QR decomposition of the
    stacked rows [sqrt(lambda) I; Phi / noise], which does not square their condition number; the
    whitened mean is then Q' [0; rewards / noise].

    Args:
      features: `[N, D]`; rows of zeros add nothing.
      rewards: `[N]`.
      precision: of the prior, lambda.
      noise: standard deviation of a reward.
    """
    chex.assert_rank([features, rewards], [2, 1])
    dim = features.shape[1]
    rows = jnp.concatenate([jnp.sqrt(precision) * jnp.eye(dim), features / noise])
    targets = jnp.concatenate([jnp.zeros(dim), rewards / noise])
    orthogonal, upper = jnp.linalg.qr(rows)
    root = jax.scipy.linalg.solve_triangular(upper, jnp.eye(dim))
    return Posterior(root=root, centre=orthogonal.T @ targets, noise=jnp.asarray(noise, root.dtype))


def project(posterior: Posterior, features: Array) -> Posterior:
    """Returns the posterior seen through the `[P, D]` features instead of the weights."""
    return posterior.replace(root=features @ posterior.root)


def condition(posterior: Posterior, row: Array, reward: Array) -> Posterior:
    """Returns the posterior after one more observation, in O(P D).

    Paper, Section 3:  Lambda_{t} = Lambda_{t-1} + phi phi'   (over noise^2 here).
    With v = F' phi and s = 1 + |v|^2 / noise^2, that rank-1 recursion is, for F and z,
        F <- F (I - c v v'),   z <- (I - c v v') (z + v reward / noise^2),
        c = (1 - 1 / sqrt(s)) / |v|^2.

    Args:
      posterior: the beliefs so far.
      row: `[D]` the observed direction's row, F' phi.
      reward: `[]` what was observed.
    """
    chex.assert_rank([row, reward], [1, 0])
    precision = 1.0 / jnp.square(posterior.noise)
    surprise = jnp.sqrt(1.0 + precision * (row @ row))
    shrink = precision / (surprise * (1.0 + surprise))  # c, without dividing 0 by 0
    centre = posterior.centre + precision * reward * row
    return posterior.replace(
        root=posterior.root - shrink * jnp.outer(posterior.root @ row, row),
        centre=centre - shrink * (row @ centre) * row,
    )


def mean(posterior: Posterior) -> Array:
    """Returns `[P]` the expected value in each direction."""
    return posterior.root @ posterior.centre


def variance(posterior: Posterior) -> Array:
    """Returns `[P]` the variance of the value in each direction: phi' Lambda^-1 phi."""
    return jnp.sum(jnp.square(posterior.root), axis=1)


def draw(posterior: Posterior, whitened: Array) -> Array:
    """Returns `[K, P]` values under K draws, made from `[K, D]` standard normal numbers.

    Written as mean + F xi rather than F (z + xi): where many posteriors share their normal numbers,
    the product is then one large matrix product instead of many small ones, three times as fast.
    """
    return (mean(posterior)[:, None] + posterior.root @ whitened.T).T


def information_gain(posterior: Posterior) -> Array:
    """Returns `[P]` what one observation in each direction would teach about w, in nats.

    Paper, Lemma 4:  I(w; y | H) = 1/2 log(1 + phi' Lambda^-1 phi / noise^2)   (noise = 1 there).
    """
    return 0.5 * jnp.log1p(variance(posterior) / jnp.square(posterior.noise))


def log_determinant(posterior: Posterior) -> Array:
    """Returns log det Lambda of a posterior over the weights themselves (P = D)."""
    return -2.0 * jnp.linalg.slogdet(posterior.root)[1]


def beliefs(key: Key, posterior: Posterior, *, num_draws: int) -> Beliefs:
    """Returns what the posterior says about its P directions, taken as candidates.

    Mean, deviation and information are exact; the regret is left to K = num_draws draws.
    """
    whitened = jax.random.normal(key, (num_draws, posterior.centre.shape[0]))
    return beliefs_under(whitened, posterior)


def beliefs_under(whitened: Array, posterior: Posterior) -> Beliefs:
    """Returns `beliefs` from `[K, D]` standard normal numbers, which many posteriors can share."""
    values = draw(posterior, whitened.astype(posterior.root.dtype))
    number = len(whitened)
    return Beliefs(
        values=values,
        best=jnp.max(values, axis=1),
        weights=jnp.full(number, 1.0 / number, values.dtype),
        mean=mean(posterior),
        deviation=jnp.sqrt(variance(posterior)),
        information=information_gain(posterior),
    )
