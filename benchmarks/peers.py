"""Other tools at the same work, by a Python of their own: `-P peers.py update|select <sizes>`.

`update` is TD3+BC's, `select` one choice of an ensemble. Needs PyTorch and, for its row, d3rlpy
(the extra `bench`), and nothing of ours: their requirements do not go together with ours. Says the
names of its rows, then answers each line `<row> <times>` with the seconds that it took.
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
    answer, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints is no answer
    question, sizes = sys.argv[1], json.loads(sys.argv[2])
    if question == "select":
        ways = {"PyTorch": choices(**sizes)}
    else:
        ways = {"plain PyTorch loop": plain_loop(**sizes)}
        with contextlib.suppress(ImportError):
            ways["d3rlpy"] = d3rlpy_loop(**sizes)
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


class Plain:
    """One member of TD3+BC as a researcher would write it."""

    def __init__(self, obs_dim: int, action_dim: int, hidden: list[int]):
        torch.manual_seed(0)
        both = obs_dim + action_dim
        self.actor, self.actor_target = (network(obs_dim, hidden, action_dim) for _ in range(2))
        self.critics, self.critic_targets = (
            nn.ModuleList(network(both, hidden, 1) for _ in range(2)) for _ in range(2)
        )
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_targets.load_state_dict(self.critics.state_dict())
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.critic_optimiser = torch.optim.Adam(self.critics.parameters(), 3e-4)

    def learn_values(self, s, a, r, s2) -> None:
        """Moves the critics."""
        with torch.no_grad():
            noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
            a2 = (torch.tanh(self.actor_target(s2)) + noise).clamp(-1, 1)
            first, second = (critic(torch.cat([s2, a2], 1)) for critic in self.critic_targets)
            y = r + 0.99 * torch.min(first, second)
        both = torch.cat([s, a], 1)
        loss = sum(nn.functional.mse_loss(critic(both), y) for critic in self.critics)
        self.critic_optimiser.zero_grad()
        loss.backward()
        self.critic_optimiser.step()

    def learn_policy(self, s, a) -> None:
        """Moves the actor, and the targets a little."""
        chosen = torch.tanh(self.actor(s))
        value = self.critics[0](torch.cat([s, chosen], 1))
        loss = nn.functional.mse_loss(chosen, a) - 2.5 * value.mean() / value.abs().mean().detach()
        self.actor_optimiser.zero_grad()
        loss.backward()
        self.actor_optimiser.step()
        pairs = (self.critics, self.critic_targets), (self.actor, self.actor_target)
        with torch.no_grad():
            for new, old in pairs:
                for source, target in zip(new.parameters(), old.parameters(), strict=True):
                    target.lerp_(source, 0.005)


def plain_loop(
    obs_dim: int, action_dim: int, hidden: list[int], batch_size: int
) -> Callable[[int], None]:
    """Returns the updates of one member, its batches drawn from tensors."""
    member = Plain(obs_dim, action_dim, hidden)
    obs, next_obs = torch.randn(ROWS, obs_dim), torch.randn(ROWS, obs_dim)
    actions, rewards = torch.rand(ROWS, action_dim) * 2 - 1, torch.randn(ROWS, 1)

    def run(updates: int) -> None:
        for step in range(updates):
            rows = torch.randint(0, ROWS, (batch_size,))
            member.learn_values(obs[rows], actions[rows], rewards[rows], next_obs[rows])
            if step % 2:
                member.learn_policy(obs[rows], actions[rows])

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


def choices(
    obs_dim: int,
    action_dim: int,
    hidden: list[int],
    critics: int,
    candidates: int,
    wide_candidates: int,
) -> Callable[[int], None]:
    """Returns information-directed choices, the critics as batched products."""
    torch.manual_seed(0)
    actor = network(obs_dim, hidden, action_dim)
    shapes = itertools.pairwise([obs_dim + action_dim, *hidden, 1])
    layers = [
        (torch.randn(critics, a, b) / a**0.5, torch.randn(critics, 1, b) / a**0.5)
        for a, b in shapes
    ]

    def evaluate(inputs: torch.Tensor) -> torch.Tensor:
        outputs = inputs.expand(critics, -1, -1)
        for i, (kernel, bias) in enumerate(layers):
            outputs = torch.baddbmm(bias, outputs, kernel)
            if i < len(layers) - 1:
                outputs = outputs.relu_()
        return outputs[..., 0]

    def choose(obs: torch.Tensor) -> torch.Tensor:
        anchor = torch.tanh(actor(obs))
        noise = 0.1 * torch.randn(wide_candidates - 1, action_dim)
        wide = torch.cat([anchor[None], (anchor + noise).clamp(-1, 1)])
        values = evaluate(torch.cat([obs.expand(wide_candidates, -1), wide], 1)).clamp(-1e4, 1e4)
        near = values[:, :candidates]
        regret = values.amax(1).mean() - near.mean(0)
        information = 0.5 * torch.log1p(near.var(0, correction=0))
        index = torch.argmin(regret.square() / (information + 0.05))
        return (wide[index] + 0.1 * torch.randn(action_dim)).clamp(-1, 1)

    observations = torch.randn(1000, obs_dim)

    @torch.inference_mode()
    def run(times: int) -> None:
        for i in range(times):
            choose(observations[i % 1000])

    return run


if __name__ == "__main__":
    main()
