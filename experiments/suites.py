"""Named configurations: one entry per table of the paper, each with a tiny twin."""

import dataclasses

from roid_jax.linear.biased_linear import BiasedLinearConfig
from roid_jax.linear.episodic import EpisodicConfig
from roid_jax.linear.features import FeatureConfig
from roid_jax.linear.hidden_mode import HiddenModeConfig


@dataclasses.dataclass(frozen=True)
class BanditsConfig:
    """Both bandits of the paper's Section 7."""

    hidden_mode: HiddenModeConfig = dataclasses.field(default=HiddenModeConfig())
    biased_linear: BiasedLinearConfig = dataclasses.field(default=BiasedLinearConfig())


@dataclasses.dataclass(frozen=True)
class CertificatesConfig:
    """The theory, run: sizes of the episodic model, and the separation instance."""

    horizons: tuple[int, ...] = (1, 2, 3)
    feature_dims: tuple[int, ...] = (4, 8)
    problems: int = 4  # MDPs drawn for each size
    episodic: EpisodicConfig = dataclasses.field(default=EpisodicConfig())
    reveal_rates: tuple[float, ...] = (0.005, 0.05, 0.2)  # q of the threshold table
    probe_costs: tuple[float, ...] = (0.05, 0.15, 0.3, 0.45)  # c of the threshold table
    separation_seeds: int = 2000  # runs behind each measured regret of Thompson sampling


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
        horizons=(1, 2),
        feature_dims=(3,),
        problems=2,
        episodic=EpisodicConfig(episodes=6, runs=3, posterior_draws=8, num_states=2),
        separation_seeds=50,
    ),
}
