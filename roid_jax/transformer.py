"""A causal transformer over returns to go, observations and actions, for policies of sequences.

Each step of an episode is three tokens in that order. There is no sign of where a token is: what
comes earlier is known only from who may see whom. So steps that are padding at the end change
nothing before them.
"""

import distrax
import flax.linen as nn
import jax.numpy as jnp

from roid_jax import networks
from roid_jax.types import Array

LOG_STD_RANGE = (-5.0, 2.0)
START = nn.initializers.normal(0.02)


class Block(nn.Module):
    """Attention, then two dense layers; each sees the tokens normalised, and is added to them."""

    heads: int
    dropout: float

    @nn.compact
    def __call__(self, tokens: Array, mask: Array, *, train: bool) -> Array:
        """`[B, T, D]`, `[B, 1, T, T]` -> `[B, T, D]`."""
        width = tokens.shape[-1]
        drop = nn.Dropout(self.dropout, deterministic=not train)
        attention = nn.MultiHeadDotProductAttention(
            num_heads=self.heads,
            dropout_rate=self.dropout,
            broadcast_dropout=False,
            deterministic=not train,
            kernel_init=START,
        )
        tokens = tokens + drop(attention(nn.LayerNorm()(tokens), mask=mask))
        hidden = nn.relu(nn.Dense(4 * width, kernel_init=START)(nn.LayerNorm()(tokens)))
        return tokens + drop(nn.Dense(width, kernel_init=START)(hidden))


class SequencePolicy(nn.Module):
    """A squashed normal policy that sees what happened before, and the return it should reach."""

    action_dim: int
    width: int
    layers: int
    heads: int
    dropout: float

    @nn.compact
    def __call__(
        self, returns_to_go: Array, obs: Array, action: Array, *, train: bool
    ) -> distrax.Transformed:
        """`[B, T]`, `[B, T, O]`, `[B, T, U]` -> a distribution over `[B, T, U]`.

        An action is seen by later steps only.
        """
        batch, steps, _ = obs.shape
        # These begin with biases: without them a return, which is one number, would be lost in the
        # LayerNorm but for its sign, and LAMB hardly moves a bias that begins at 0.
        inputs = returns_to_go[..., None], obs, action
        kinds = [networks.Dense(self.width)(kind) for kind in inputs]
        tokens = jnp.stack(kinds, axis=2).reshape(batch, 3 * steps, self.width)
        tokens = nn.LayerNorm()(tokens)
        tokens = nn.Dropout(self.dropout, deterministic=not train)(tokens)
        mask = nn.make_causal_mask(tokens[..., 0])
        for _ in range(self.layers):
            tokens = Block(self.heads, self.dropout)(tokens, mask, train=train)
        seen = nn.LayerNorm()(tokens)[:, 1::3]  # at the observation, before the action
        start = nn.initializers.orthogonal()
        mean, spread = (nn.Dense(self.action_dim, kernel_init=start)(seen) for _ in range(2))
        low, high = LOG_STD_RANGE
        log_std = low + 0.5 * (high - low) * (jnp.tanh(spread) + 1.0)
        normal = distrax.MultivariateNormalDiag(mean, jnp.exp(log_std))
        return distrax.Transformed(normal, distrax.Block(distrax.Tanh(), 1))
