"""TD3+BC in other tools, run by a Python of their own: `python benchmarks/peers.py <JSON sizes>`.

Needs PyTorch and, for its row, d3rlpy (the extra `bench`), and nothing of ours: their requirements
do not go together with ours. Says the names of its rows, then answers each line `<row> <updates>`
with the seconds that so many updates took.
"""

import contextlib
import itertools
import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

ROWS = 100_000


def main() -> None:
    """Answers until its input ends."""
    sizes = json.loads(sys.argv[1])
    ways = {"plain PyTorch loop": plain_loop(**sizes)}
    with contextlib.suppress(ImportError):
        ways["d3rlpy"] = d3rlpy_loop(**sizes)
    answer = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints is no answer
    print(json.dumps(list(ways)), file=answer, flush=True)
    for line in sys.stdin:
        name, number = line.rstrip("\n").rsplit(" ", 1)
        start = time.perf_counter()
        ways[name](int(number))
        print(time.perf_counter() - start, file=answer, flush=True)


def network(inputs: int, hidden: list[int], outputs: int) -> nn.Sequential:
    """Returns layers with ReLU between."""
    sizes = [inputs, *hidden, outputs]
    parts: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def plain_loop(
    obs_dim: int, action_dim: int, hidden: list[int], batch_size: int
) -> Callable[[int], None]:
    """Returns one member's updates as a researcher would write them."""
    torch.manual_seed(0)
    actor, actor_target = (network(obs_dim, hidden, action_dim) for _ in range(2))
    critics, critic_targets = (
        nn.ModuleList(network(obs_dim + action_dim, hidden, 1) for _ in range(2)) for _ in range(2)
    )
    actor_target.load_state_dict(actor.state_dict())
    critic_targets.load_state_dict(critics.state_dict())
    actor_optimiser = torch.optim.Adam(actor.parameters(), 3e-4)
    critic_optimiser = torch.optim.Adam(critics.parameters(), 3e-4)
    obs, next_obs = torch.randn(ROWS, obs_dim), torch.randn(ROWS, obs_dim)
    actions, rewards = torch.rand(ROWS, action_dim) * 2 - 1, torch.randn(ROWS, 1)
    step = 0

    def update() -> None:
        nonlocal step
        step += 1
        rows = torch.randint(0, ROWS, (batch_size,))
        s, a, r, s2 = obs[rows], actions[rows], rewards[rows], next_obs[rows]
        with torch.no_grad():
            noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
            a2 = (torch.tanh(actor_target(s2)) + noise).clamp(-1, 1)
            both = torch.cat([s2, a2], 1)
            y = r + 0.99 * torch.min(critic_targets[0](both), critic_targets[1](both))
        both = torch.cat([s, a], 1)
        loss = sum(nn.functional.mse_loss(critic(both), y) for critic in critics)
        critic_optimiser.zero_grad()
        loss.backward()
        critic_optimiser.step()
        if step % 2:
            return
        chosen = torch.tanh(actor(s))
        value = critics[0](torch.cat([s, chosen], 1))
        loss = nn.functional.mse_loss(chosen, a) - 2.5 * value.mean() / value.abs().mean().detach()
        actor_optimiser.zero_grad()
        loss.backward()
        actor_optimiser.step()
        with torch.no_grad():
            for new, old in ((critics, critic_targets), (actor, actor_target)):
                for source, target in zip(new.parameters(), old.parameters(), strict=True):
                    target.lerp_(source, 0.005)

    def run(updates: int) -> None:
        for _ in range(updates):
            update()

    return run


def d3rlpy_loop(
    obs_dim: int, action_dim: int, hidden: list[int], batch_size: int
) -> Callable[[int], None]:
    """Returns d3rlpy's own updates, its sampling of batches included."""
    import d3rlpy

    generator = np.random.default_rng(0)
    ends = np.zeros(ROWS, np.float32)
    ends[999::1000] = 1.0
    dataset = d3rlpy.dataset.MDPDataset(
        generator.normal(size=(ROWS, obs_dim)).astype(np.float32),
        generator.uniform(-1, 1, (ROWS, action_dim)).astype(np.float32),
        generator.normal(size=ROWS).astype(np.float32),
        ends,
    )
    encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=hidden)
    algorithm = d3rlpy.algos.TD3PlusBCConfig(
        batch_size=batch_size, actor_encoder_factory=encoder, critic_encoder_factory=encoder
    ).create(device=False)
    algorithm.build_with_dataset(dataset)

    def run(updates: int) -> None:
        for _ in range(updates):
            algorithm.update(dataset.sample_transition_batch(batch_size))

    return run


if __name__ == "__main__":
    main()
