"""Named configurations: one entry per table of the paper, each with a tiny twin."""

import dataclasses
import itertools

from roid_jax import config as cfg
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
