"""roid_jax: information-directed offline-to-online reinforcement learning in JAX."""

__version__ = "0.1.0"
