"""Useful floating-point operations of an update, counted from the sizes of its products.

Only matrix products count, and only those that an ideal program needs: no gradient for the first
layer's input, except the action's in the actor's loss; the actor only in the steps it moves in.
"""

import itertools
from collections.abc import Sequence


def layers(inputs: int, hidden: Sequence[int], outputs: int) -> list[tuple[int, int]]:
    """Returns the shapes of a network's products."""
    sizes = [inputs, *hidden, outputs]
    return list(itertools.pairwise(sizes))


def forward(shapes: Sequence[tuple[int, int]], rows: int) -> float:
    """Returns what it takes to evaluate a network on so many rows."""
    return sum(2.0 * rows * a * b for a, b in shapes)


def learn(shapes: Sequence[tuple[int, int]], rows: int) -> float:
    """Returns what it takes to evaluate a network and find the gradient of its parameters."""
    return 2.0 * forward(shapes, rows) + forward(shapes[1:], rows)


def through(shapes: Sequence[tuple[int, int]], rows: int, action_dim: int) -> float:
    """Returns what it takes to evaluate a critic and find the gradient of its action."""
    first = 2.0 * rows * action_dim * shapes[0][1]
    return forward(shapes, rows) + forward(shapes[1:], rows) + first


def td3bc_update(
    obs_dim: int, action_dim: int, hidden: Sequence[int], rows: int, delay: int = 2
) -> float:
    """Returns the operations of one member's update: twin critics, and the actor at times."""
    actor = layers(obs_dim, hidden, action_dim)
    critic = layers(obs_dim + action_dim, hidden, 1)
    target = forward(actor, rows) + 2 * forward(critic, rows)
    policy = learn(actor, rows) + through(critic, rows, action_dim)
    return target + 2 * learn(critic, rows) + policy / delay


def online_update(
    obs_dim: int,
    action_dim: int,
    hidden: Sequence[int],
    rows: int,
    critics: int,
    delay: int = 2,
) -> float:
    """Returns the operations of one online update of K critics, and the actor at times."""
    actor = layers(obs_dim, hidden, action_dim)
    critic = layers(obs_dim + action_dim, hidden, 1)
    target = forward(actor, rows) + critics * forward(critic, rows)
    policy = learn(actor, rows) + critics * through(critic, rows, action_dim)
    return target + critics * learn(critic, rows) + policy / delay


def select(
    obs_dim: int, action_dim: int, hidden: Sequence[int], candidates: int, critics: int
) -> float:
    """Returns the operations of one choice among candidates by K critics."""
    actor = layers(obs_dim, hidden, action_dim)
    critic = layers(obs_dim + action_dim, hidden, 1)
    return forward(actor, 1) + critics * forward(critic, candidates)
