"""The best tiling of an attention workload on an Ascend NPU. These are the public names; each is imported at its first use."""

from typing import TYPE_CHECKING

from ascend_jax._front_door import front_door

if TYPE_CHECKING:
    from tiling_search.result import Candidate, TuningResult
    from tiling_search.slopes import GridSlopes, grid_slopes
    from tiling_search.tuner import tune

__all__ = ["Candidate", "GridSlopes", "TuningResult", "grid_slopes", "tune"]

# Imported at first use: `tiling-search --help` must not pay for importing jax.
__getattr__, __dir__ = front_door(
    __name__,
    {
        "result": ("Candidate", "TuningResult"),
        "slopes": ("GridSlopes", "grid_slopes"),
        "tuner": ("tune",),
    },
)
