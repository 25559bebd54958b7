"""The networks: multilayer perceptrons for policies and values, and ensembles of them.

An ensemble is one network whose parameters have a leading member axis `[K, ...]`; `init_members`
makes it and `apply_members` runs it, by `vmap`.
"""

import math
from typing import Any

import distrax
import flax.linen as nn
import jax
import jax.numpy as jnp

from roid_jax.types import Array, Key

Params = Any  # a pytree of arrays

LOG_STD_RANGE = (-20.0, 2.0)


class Dense(nn.Module):
    """An affine layer, begun as PyTorch does (`torch`) or as Glorot and Bengio do (`xavier`)."""

    features: int
    start: str = "torch"

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        """`[..., I]` -> `[..., features]`."""
        if self.start == "xavier":
            return nn.Dense(self.features, kernel_init=nn.initializers.xavier_uniform())(inputs)
        bound = 1.0 / math.sqrt(inputs.shape[-1])

        def uniform(key: Key, shape: tuple[int, ...], dtype: Any) -> Array:
            return jax.random.uniform(key, shape, dtype, -bound, bound)

        return nn.Dense(self.features, kernel_init=uniform, bias_init=uniform)(inputs)


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
        return Dense(self.features, self.start)(inputs)


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
    """A policy that squashes a normal distribution into the box [-1, 1]."""

    hidden: tuple[int, ...]
    action_dim: int
    start: str = "torch"

    @nn.compact
    def __call__(self, obs: Array) -> distrax.Transformed:
        """`[..., O]` -> a distribution over `[..., U]`."""
        outputs = Mlp(self.hidden, 2 * self.action_dim, self.start)(obs)
        mean, log_std = jnp.split(outputs, 2, axis=-1)
        normal = distrax.MultivariateNormalDiag(mean, jnp.exp(jnp.clip(log_std, *LOG_STD_RANGE)))
        return distrax.Transformed(normal, distrax.Block(distrax.Tanh(), 1))


def mode(policy: distrax.Transformed) -> Array:
    """Returns `[..., U]` the squashed mean, which is what a policy does when it does not explore.

    (Not the mode of the squashed density: that has no closed form, and nobody uses it.)
    """
    return policy.bijector.forward(policy.distribution.mean())


def init_members(key: Key, network: nn.Module, members: int, *inputs: Array) -> Params:
    """Returns the parameters of K members, `[K, ...]`, each begun from a key of its own."""
    return jax.vmap(lambda key: network.init(key, *inputs))(jax.random.split(key, members))


def apply_members(network: nn.Module, params: Params, *inputs: Array) -> Array:
    """Returns `[K, ...]` what each member makes of the same inputs."""
    return jax.vmap(lambda member: network.apply(member, *inputs))(params)


def polyak(params: Params, target: Params, *, rate: float) -> Params:
    """Returns the target moved towards the parameters: rate params + (1 - rate) target."""
    return jax.tree.map(lambda new, old: rate * new + (1.0 - rate) * old, params, target)
