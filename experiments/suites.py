"""Named configurations: one entry per table of the paper, each with a tiny twin."""

import dataclasses
import itertools
import re

from experiments import profiles
from roid_jax import config as cfg
from roid_jax.agents import named
from roid_jax.agents.sac import SacConfig
from roid_jax.agents.selector import SELECTORS
from roid_jax.linear.biased_linear import BiasedLinearConfig
from roid_jax.linear.episodic import EpisodicConfig
from roid_jax.linear.features import FeatureConfig
from roid_jax.linear.hidden_mode import HiddenModeConfig
from roid_jax.linear.separation import residual_probability


@dataclasses.dataclass(frozen=True)
class BanditsConfig:
    """Both bandits of the paper's Section 7."""

    hidden_mode: HiddenModeConfig = dataclasses.field(default=HiddenModeConfig())
    biased_linear: BiasedLinearConfig = dataclasses.field(default=BiasedLinearConfig())


@dataclasses.dataclass(frozen=True)
class SeparationConfig:
    """The concrete H = 2 instance of the paper's Appendix C, run over N and T."""

    reveal_rate: float = 0.05  # q
    probe_cost: float = 0.15  # c
    offline_rows: tuple[int, ...] = (0, 5, 10, 12, 13, 15, 20, 30, 40, 50, 60, 80, 100)
    horizon: int = 400  # at least 1 / p at the largest N, so that the bound applies
    seeds: int = 2000

    def __post_init__(self):
        cfg.check_between("reveal_rate", self.reveal_rate, 0, 1)
        cfg.check_between("probe_cost", self.probe_cost, 0, 0.5)
        cfg.check_sizes("offline_rows", self.offline_rows)
        cfg.check_whole(self, "horizon")
        cfg.check_whole(self, "seeds", least=2)
        rarest = residual_probability(max(self.offline_rows), reveal_rate=self.reveal_rate)
        cfg.check(
            self.horizon * rarest >= 1.0,
            "separation.horizon",
            f"at least 1/p at the largest N, where p = {rarest:.3g}",
            self.horizon,
        )


@dataclasses.dataclass(frozen=True)
class CertificatesConfig:
    """The theory, run: sizes of the episodic model, and the separation instance."""

    horizons: tuple[int, ...] = (1, 2, 3)
    feature_dims: tuple[int, ...] = (4, 8)
    problems: int = 4  # MDPs drawn for each size
    episodic: EpisodicConfig = dataclasses.field(default=EpisodicConfig())
    reveal_rates: tuple[float, ...] = (0.005, 0.05, 0.2)  # q of the threshold table
    probe_costs: tuple[float, ...] = (0.05, 0.15, 0.3, 0.45)  # c of the threshold table
    separation: SeparationConfig = dataclasses.field(default=SeparationConfig())

    def __post_init__(self):
        cfg.check_sizes("horizons", self.horizons, least=1)
        cfg.check_sizes("feature_dims", self.feature_dims, least=1)
        cfg.check_whole(self, "problems", most=10_000)
        defaults = EpisodicConfig()
        for field, list_field in (("horizon", "horizons"), ("feature_dim", "feature_dims")):
            given, default = getattr(self.episodic, field), getattr(defaults, field)
            cfg.check(given == default, f"episodic.{field}", f"left alone: set {list_field}", given)
        for size in self.sizes():
            dataclasses.replace(self.episodic, horizon=size[0], feature_dim=size[1])
        for field, high in (("reveal_rates", 1), ("probe_costs", 0.5)):
            given = getattr(self, field)
            cfg.check(isinstance(given, tuple) and given, field, "one or more numbers", given)
            for number in given:
                cfg.check_between(field, number, 0, high)

    def sizes(self) -> list[tuple[int, int]]:
        """Returns every (H, d) of the episodic model."""
        return list(itertools.product(self.horizons, self.feature_dims))


@dataclasses.dataclass(frozen=True)
class CollectConfig:
    """How a dataset is made: the behaviour's training, where it stops, and how much is recorded.

    Levels are normalised scores where the task has them, else returns.
    """

    medium: float | None = None  # the level of the medium policy; the paper's tasks have D4RL's
    expert: float | None = None  # the level from which a policy counts as expert
    tolerance: float = 5.0  # how near to its level a policy must score
    rows: int = 1_000_000  # of each set but medium-replay, which is the replay at that point
    max_steps: int = 1_000_000  # of training
    interval: int = 5000  # steps between evaluations
    episodes: int = 20  # of an evaluation, with the policy exploring, as it will be recorded
    sac: SacConfig = dataclasses.field(default=SacConfig())

    def __post_init__(self):
        for level in ("medium", "expert"):
            if getattr(self, level) is not None:
                cfg.check_number(self, level)
        cfg.check_number(self, "tolerance", above=0)
        cfg.check_whole(self, "rows", "max_steps", "interval", most=100_000_000)
        cfg.check_whole(self, "episodes", most=1000)
        for field in ("interval", "max_steps"):
            given, unit = getattr(self, field), self.sac.warmup_steps
            cfg.check(given % unit == 0, field, f"a multiple of sac.warmup_steps, {unit}", given)


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """Trainings that belong in one table: every agent on every task, or every selector on one.

    With selectors they all go on from the offline phase of the first.
    """

    tasks: tuple[str, ...]
    agents: tuple[str, ...] = ("roid",)
    selectors: tuple[str, ...] = ()
    num_seeds: int = 3

    def __post_init__(self):
        for field, known in (
            ("tasks", profiles.TASKS),
            ("agents", named.AGENTS),
            ("selectors", SELECTORS),
        ):
            given = getattr(self, field)
            is_right = isinstance(given, tuple) and len(given) == len(set(given))
            cfg.check(is_right, field, "different names", given)
            for name in given:
                cfg.check_one_of(field, name, known)
        cfg.check(bool(self.tasks and self.agents), "tasks and agents", "at least one", ())
        is_right = not self.selectors or self.agents == ("roid",)
        cfg.check(is_right, "agents", "roid alone where selectors are compared", self.agents)
        cfg.check_whole(self, "num_seeds", most=1000)


_ONE_STATE = BiasedLinearConfig(
    feature_map=FeatureConfig(terms="products"),
    num_states=1,
    actions_per_state=64,
    action_law="normal",
    action_scale=1.0,
    weight_norm=6.5,
    behaviour_actions=64,
)

_TINY_LINEAR = BiasedLinearConfig(
    feature_map=FeatureConfig(state_dim=3, action_dim=2, feature_dim=8),
    num_states=2,
    actions_per_state=4,
    behaviour_actions=4,
    offline_rows=(5, 10),
    posterior_draws=8,
    horizon=10,
    etas=(0.0, 0.5),
)

BANDITS = {
    "default": BanditsConfig(),
    "one_state": BanditsConfig(biased_linear=_ONE_STATE),
    # Unit noise, so that the assumptions of the regret bound hold: phi' Lambda^-1 phi <= 1.
    "theory": BanditsConfig(biased_linear=BiasedLinearConfig(noise=1.0, model_noise=1.0)),
    "smoke": BanditsConfig(hidden_mode=HiddenModeConfig(horizon=20), biased_linear=_TINY_LINEAR),
}

CERTIFICATES = {
    "default": CertificatesConfig(),
    "smoke": CertificatesConfig(
        horizons=(2,),
        feature_dims=(3,),
        problems=2,
        episodic=EpisodicConfig(episodes=6, runs=3, posterior_draws=8, num_states=2),
        separation=SeparationConfig(offline_rows=(5, 13, 40), horizon=60, seeds=50),
    ),
}

# The scores of D4RL's own sets.
COLLECT = {
    "hopper": CollectConfig(medium=44.3, expert=100.0),
    "walker2d": CollectConfig(medium=62.1, expert=100.0),
    "halfcheetah": CollectConfig(medium=40.7, expert=90.0, max_steps=2_000_000),
    "smoke": CollectConfig(
        medium=1.0,
        expert=0.0,
        tolerance=100.0,
        rows=300,
        max_steps=1000,
        interval=100,
        episodes=2,
        sac=SacConfig(hidden=(16,), batch_size=8, warmup_steps=50),
    ),
}

# The paper's table, and how the selectors compare from one and the same offline phase.
SWEEPS = {
    "d4rl_table": SweepConfig(
        agents=("roid", "boorl", "rlpd", "calql", "pex", "odt"),
        tasks=tuple(task for task in profiles.TASKS if re.search("-medium-(v2|replay-v2)", task)),
        num_seeds=10,
    ),
    "selector_study": SweepConfig(tasks=("hopper-medium-v2",), selectors=tuple(SELECTORS)),
}
