"""The networks: multilayer perceptrons for policies and values, and ensembles of them.

An ensemble is one network whose parameters have a leading member axis `[K, ...]`; `init_members`
makes it and `apply_members` runs it, by `vmap`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp

from roid_jax.types import Array, Key

Params = Any  # a pytree of arrays

LOG_STD_RANGE = (-20.0, 2.0)
NORMAL_LOG_STD_RANGE = (-5.0, 2.0)  # of a policy whose samples are not squashed


class Dense(nn.Module):
    """An affine layer, begun as `torch` does, as Glorot and Bengio do (`xavier`) or `orthogonal`.

    Orthogonal columns are small in the last layer of a network.
    """

    features: int
    start: str = "torch"
    is_last: bool = False

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        """`[..., I]` -> `[..., features]`."""
        layer = functools.partial(nn.Dense, self.features, dot_general=_product(self.features))
        if self.start == "xavier":
            return layer(kernel_init=nn.initializers.xavier_uniform())(inputs)
        if self.start == "orthogonal":
            start = nn.initializers.orthogonal(1e-2 if self.is_last else math.sqrt(2.0))
            return layer(kernel_init=start)(inputs)
        bound = 1.0 / math.sqrt(inputs.shape[-1])

        def uniform(key: Key, shape: tuple[int, ...], dtype: Any) -> Array:
            return jax.random.uniform(key, shape, dtype, -bound, bound)

        return layer(kernel_init=uniform, bias_init=uniform)(inputs)


def _product(features: int) -> Callable[..., Array] | None:
    """Returns how a layer of so many outputs multiplies; None is Flax's own way.

    On a CPU a few columns are taken one by one: XLA's products are slow where one side is so thin,
    their gradients above all; an update of five members takes 0.92 of the time this way.
    """
    is_thin = 1 < features <= _THIN and jax.default_backend() == "cpu"
    return _by_columns if is_thin else None


_THIN = 8


def _by_columns(inputs: Array, kernel: Array, *_: Any, **__: Any) -> Array:
    return jnp.stack([inputs @ kernel[:, j] for j in range(kernel.shape[1])], axis=-1)


class Mlp(nn.Module):
    """Hidden layers with ReLU between, each with LayerNorm before it where asked, and an output."""

    hidden: tuple[int, ...]
    features: int
    start: str = "torch"
    layer_norm: bool = False

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        """`[..., I]` -> `[..., features]`."""
        for size in self.hidden:
            inputs = Dense(size, self.start)(inputs)
            if self.layer_norm:
                inputs = nn.LayerNorm()(inputs)
            inputs = nn.relu(inputs)
        return Dense(self.features, self.start, is_last=True)(inputs)


class Critic(nn.Module):
    """The value of an action at an observation."""

    hidden: tuple[int, ...]
    start: str = "torch"
    layer_norm: bool = False

    @nn.compact
    def __call__(self, obs: Array, action: Array) -> Array:
        """`[..., O]`, `[..., U]` -> `[...]`."""
        inputs = jnp.concatenate([obs, action], axis=-1)
        return Mlp(self.hidden, 1, self.start, self.layer_norm)(inputs)[..., 0]


class Value(nn.Module):
    """The value of an observation."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """`[..., O]` -> `[...]`."""
        return Mlp(self.hidden, 1)(obs)[..., 0]


class Actor(nn.Module):
    """A policy that is a function: one action in the box [-1, 1] for each observation."""

    hidden: tuple[int, ...]
    action_dim: int
    start: str = "torch"

    @nn.compact
    def __call__(self, obs: Array) -> Array:
        """`[..., O]` -> `[..., U]`."""
        return jnp.tanh(Mlp(self.hidden, self.action_dim, self.start)(obs))


class GaussianActor(nn.Module):
    """A policy that squashes a normal distribution into the box [-1, 1].

    Where it is `scaled`, two numbers that are learned too scale and shift the logarithm of its
    deviations, which begin smaller for it.
    """

    hidden: tuple[int, ...]
    action_dim: int
    start: str = "torch"
    scaled: bool = False

    @nn.compact
    def __call__(self, obs: Array) -> distrax.Transformed:
        """`[..., O]` -> a distribution over `[..., U]`."""
        outputs = Mlp(self.hidden, 2 * self.action_dim, self.start)(obs)
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        if self.scaled:
            scale = self.param("log_std_scale", nn.initializers.ones, ())
            shift = self.param("log_std_shift", nn.initializers.constant(-1.0), ())
            log_std = scale * log_std + shift
        normal = distrax.MultivariateNormalDiag(mean, jnp.exp(jnp.clip(log_std, *LOG_STD_RANGE)))
        return distrax.Transformed(normal, distrax.Block(distrax.Tanh(), 1))


class NormalActor(nn.Module):
    """A policy that is normal around a mean in the box, with the same deviations everywhere."""

    hidden: tuple[int, ...]
    action_dim: int
    start: str = "xavier"

    @nn.compact
    def __call__(self, obs: Array) -> distrax.MultivariateNormalDiag:
        """`[..., O]` -> a distribution over `[..., U]`, which may leave the box."""
        mean = jnp.tanh(Mlp(self.hidden, self.action_dim, self.start)(obs))
        log_std = self.param("log_std", nn.initializers.zeros, (self.action_dim,))
        std = jnp.exp(jnp.clip(log_std, *NORMAL_LOG_STD_RANGE))
        return distrax.MultivariateNormalDiag(mean, jnp.broadcast_to(std, mean.shape))


def mode(policy: distrax.Transformed) -> Array:
    """Returns `[..., U]` the squashed mean, which is what a policy does when it does not explore.

    (Not the mode of the squashed density: that has no closed form, and nobody uses it.)
    """
    return policy.bijector.forward(policy.distribution.mean())


def init_members(key: Key, network: nn.Module, members: int, *inputs: Array) -> Params:
    """Returns the parameters of K members, `[K, ...]`, each begun from a key of its own."""
    return jax.vmap(lambda key: network.init(key, *inputs))(jax.random.split(key, members))


def apply_members(network: nn.Module, params: Params, *inputs: Array) -> Array:
    """Returns `[K, ...]` what each member makes of the same inputs.

    Each has them as its own: where members share them XLA merges their first layers into one
    product and turns its result around, which costs an ensemble on a CPU a twentieth of an update.
    """
    number = len(jax.tree.leaves(params)[0])
    own = (jnp.broadcast_to(one[None], (number, *one.shape)) for one in inputs)
    return jax.vmap(network.apply)(params, *own)


def polyak(params: Params, target: Params, *, rate: float) -> Params:
    """Returns the target moved towards the parameters: rate params + (1 - rate) target."""
    return jax.tree.map(lambda new, old: rate * new + (1.0 - rate) * old, params, target)
