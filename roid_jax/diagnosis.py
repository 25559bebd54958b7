"""What offline data left to learn, before the first online step: in numbers, and in words.

Information-directed sampling pays where the data is informative but biased or multimodal: the
critics know much, and disagree about which action is best. Where they agree there is nothing left
to direct, and where they know nothing every action teaches as much.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

# Below so many nats a state has, on average, nothing left to learn: the critics differ by less than
# a third of the noise of their own targets.
LITTLE = 0.05
# Below such a ratio of the values' variance over states to their variance over critics, the critics
# differ more about a state than states differ: they were not informed.
INFORMED = 1.0
# Below such a share of states the choice is the anchor's, whatever is uncertain.
SELDOM = 0.05
# Below such a share of the value the anchor's expected regret is no reason to leave it, even where
# some other candidate has the smaller ratio, as among many one nearly always does.
NOTHING = 0.005

VERDICTS = {
    "settled": (
        "The critics agree on the policy's own actions: little is left to learn here, and directed "
        "exploration has nothing to direct. Greedy fine-tuning costs nothing by comparison."
    ),
    "uninformed": (
        "The critics differ more about a state than states differ from one another: the offline "
        "phase has not informed them. Train longer offline or bring more data; the paper's regime, "
        "informative but biased, does not apply yet."
    ),
    "irrelevant": (
        "There is something left to learn, but it hardly bears upon which action to take: the "
        "policy's own action is almost the best by every critic, or is chosen almost everywhere. "
        "Any selector will do."
    ),
    "residual": (
        "The critics know much, and still disagree about which action is best, as after data that "
        "is informative but biased or multimodal. There the paper expects directed exploration to "
        "pay; whether it does here, a run with --selector=greedy from the same checkpoint tells."
    ),
}


class Diagnosis(NamedTuple):
    """Numbers by kind of state and name, and the verdict by its name in VERDICTS."""

    numbers: dict[str, dict[str, float]]
    verdict: str


def measure(explained: Mapping[str, Any]) -> dict[str, float]:
    """Returns the numbers of some states.

    Args:
      explained: `[B, M]` arrays of an agent's `explain`, the anchor first, and `[B]` chosen.
    """
    found = {name: np.asarray(value, np.float64) for name, value in explained.items()}
    gain, raw = found["information"], found["uncalibrated"][:, 0]
    spread, value = found["spread"][:, 0], found["value"][:, 0]
    quarters = np.quantile(gain[:, 0], [0.25, 0.5, 0.75])
    return {
        "states": len(gain),
        "information": float(np.mean(gain[:, 0])),
        **{f"information_{n}%": float(q) for n, q in zip((25, 50, 75), quarters, strict=True)},
        "uncalibrated_information": float(np.mean(raw)),
        "off_anchor": float(np.mean(found["chosen"] != 0)),
        "regret_of_anchor": float(np.mean(found["regret"][:, 0])),
        "regret_over_value": _ratio(np.mean(found["regret"][:, 0]), np.mean(np.abs(value))),
        "spread": float(np.mean(spread)),
        "spread_over_value": _ratio(np.mean(spread), np.mean(np.abs(value))),
        "signal": _ratio(np.var(value), np.mean(np.square(spread))),
    }


def _ratio(part: float, whole: float) -> float:
    """Returns a ratio that JSON can hold, where there is nothing to divide by too."""
    return float(part / max(whole, 1e-12)) if part else 0.0


def diagnose(explained: Mapping[str, Mapping[str, Any]]) -> Diagnosis:
    """Returns what is left to learn, from what is believed at `dataset` and at `policy` states.

    The verdict goes by the states that the policy comes to.
    """
    numbers = {kind: measure(found) for kind, found in explained.items()}
    own = numbers["policy"]
    if own["uncalibrated_information"] < LITTLE:
        return Diagnosis(numbers, "settled")
    if numbers["dataset"]["signal"] < INFORMED:
        return Diagnosis(numbers, "uninformed")
    bears = own["off_anchor"] >= SELDOM and own["regret_over_value"] >= NOTHING
    return Diagnosis(numbers, "residual" if bears else "irrelevant")
