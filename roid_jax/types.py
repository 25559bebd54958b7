"""The nouns that every part of the package shares.

Axes have fixed letters: `S` seeds, `B` batch, `T` time, `K` ensemble members or posterior
draws, `M` candidates, `D` features, `O` observation, `U` action dimensions. The linear path adds
`A` methods, `N` offline rows, `H` stages, `P` directions or policies, `R` runs, `E` etas; in its
small MDPs, whose states and actions are counted, `O` and `U` are how many there are.
"""

from typing import NamedTuple

import chex
import jax

Array = jax.Array
Key = jax.Array  # a typed key from `jax.random.key`


@chex.dataclass(frozen=True)
class Beliefs:
    """What K posterior draws, modes or ensemble members say about M candidate actions.

    values: `[K, M]` value of each candidate under each draw.
    best: `[K]` the best value each draw can reach, over a set at least as wide as the candidates.
    weights: `[K]` probability of each draw; they sum to one.
    mean: `[M]` expected value of each candidate; exact where the posterior has a closed form.
    deviation: `[M]` standard deviation of each candidate's value, likewise.
    information: `[M]` information gain of taking each candidate, in nats.
    """

    values: Array
    best: Array
    weights: Array
    mean: Array
    deviation: Array
    information: Array


class Transitions(NamedTuple):
    """Steps of an environment, in any number of leading axes; arrays of JAX or of NumPy.

    obs, next_obs: `[..., O]`; action: `[..., U]`; reward: `[...]`.
    discount: `[...]` 0 where the world ended, else 1; a time limit keeps it 1.
    return_to_go: `[...]` what the episode brought from this step on, as far as it is known.
    place: `[...]` number of the step in its episode; episode: `[...]` number of the episode.
    """

    obs: Array
    action: Array
    reward: Array
    discount: Array
    next_obs: Array
    return_to_go: Array | None = None
    place: Array | None = None
    episode: Array | None = None
