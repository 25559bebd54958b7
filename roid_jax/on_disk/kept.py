"""Which checkpoints of a run stay: the last ones, and the best."""

from typing import Any

import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_managers import preservation_policy


def options(keep: int, *, read_only: bool) -> ocp.CheckpointManagerOptions:
    """Returns what Orbax is to do with the last `keep` and the best."""
    return ocp.CheckpointManagerOptions(
        best_fn=score,
        preservation_policy=preservation_policy.AnyPreservationPolicy(
            [
                preservation_policy.LatestN(keep),
                preservation_policy.BestN(get_metric_fn=score, n=1),
            ]
        ),
        enable_async_checkpointing=True,
        create=not read_only,
        save_root_metadata=False,  # its own thread may outlive a run that ends at once
    )


def score(metrics: Any) -> float:
    """Returns the score of a checkpoint; the lowest there is where it has lost its own."""
    found = metrics.get("score") if isinstance(metrics, dict) else None
    return float(found) if isinstance(found, float | int) and abs(found) < 1e300 else -1e300
