"""Made-up ensembles: with residual bias, without, uninformed, and with bias of no consequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from roid_jax import diagnosis
from roid_jax.agents import selector

CONFIG = selector.SelectorConfig(candidates=32, wide_candidates=64)
NOISE = 1.0
MEMBERS = 6


def explained(slopes, offsets, *, states=200, value=10.0):
    """What critics believe whose value is value x + slope_k a + offset_k - a^2 / 2 at a state x.

    The anchor is the best action of their mean, 0.
    """
    slopes, offsets = jnp.asarray(slopes), jnp.asarray(offsets)

    def at(key, x):
        def evaluate(actions):
            a = actions[:, 0]
            return value * x + jnp.outer(slopes, a) + (offsets[:, None] - 0.5 * jnp.square(a)[None])

        return selector.explain(
            key, jnp.zeros(1), jnp.int32(0), evaluate, jnp.float32(1.0 / NOISE), CONFIG
        )

    keys = jax.random.split(jax.random.key(0), states)
    found = jax.device_get(jax.vmap(at)(keys, jnp.linspace(-1.0, 1.0, states)))
    raw = selector.information_of(jnp.square(found["spread"]), jnp.float32(1.0 / NOISE))
    return {**found, "uncalibrated": np.asarray(raw)}


def verdict(slopes, offsets, **how):
    found = explained(slopes, offsets, **how)
    return diagnosis.diagnose({"dataset": found, "policy": found})


NONE = np.zeros(MEMBERS)
TWO_CAMPS = np.repeat([-3.0, 3.0], MEMBERS // 2)
LEVELS = np.linspace(-1.5, 1.5, MEMBERS)


def test_an_ensemble_without_residual_bias_is_settled():
    found = verdict(NONE, 0.01 * LEVELS)
    assert found.verdict == "settled"
    assert found.numbers["policy"]["uncalibrated_information"] < 0.001


def test_an_ensemble_of_two_camps_has_something_left_that_bears_on_the_choice():
    found = verdict(TWO_CAMPS, LEVELS)
    assert found.verdict == "residual"
    assert found.numbers["policy"]["off_anchor"] > 0.5
    assert found.numbers["policy"]["regret_of_anchor"] > 0.1


def test_disagreement_that_is_the_same_for_every_action_does_not_matter():
    found = verdict(NONE, LEVELS)
    assert found.verdict == "irrelevant"
    assert found.numbers["policy"]["off_anchor"] == 0.0


def test_a_regret_that_is_nothing_beside_the_value_does_not_matter():
    found = verdict(TWO_CAMPS, LEVELS, value=1000.0)
    assert found.numbers["policy"]["off_anchor"] > 0.5
    assert found.numbers["policy"]["regret_over_value"] < diagnosis.NOTHING
    assert found.verdict == "irrelevant"


def test_critics_that_know_nothing_are_told_apart():
    assert verdict(TWO_CAMPS, LEVELS, value=0.1).verdict == "uninformed"


def test_the_numbers_are_those_of_the_beliefs():
    found = explained(TWO_CAMPS, LEVELS)
    numbers = diagnosis.measure(found)
    assert numbers["spread"] == pytest.approx(np.mean(found["spread"][:, 0]))
    assert numbers["information_50%"] == pytest.approx(np.median(found["information"][:, 0]))
    assert numbers["states"] == 200


def test_explaining_and_choosing_agree():

    def evaluate(actions):
        return jnp.outer(jnp.asarray(TWO_CAMPS), actions[:, 0])

    given = jax.random.key(4), jnp.zeros(1), jnp.int32(0), evaluate, jnp.float32(1.0), CONFIG
    chosen, told = selector.choose(*given), selector.explain(*given)
    index = int(told["chosen"])
    assert float(chosen.metrics["regret"]) == float(told["regret"][index])
    assert float(chosen.metrics["information"]) == float(told["information"][index])
    assert bool(chosen.metrics["off_anchor"]) == (index != 0)
