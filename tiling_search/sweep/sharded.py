"""The tuner's evaluator over several devices: blocks are cut into as many parts, everything else is on each of them.

Every candidate is worked out by itself, so that the parts exchange nothing, and the winners are those of one device.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ascend_jax._pytree import as_arrays
from ascend_jax.cost.overlap import Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import problem
from tiling_search.exhaustive import (
    CHUNK,
    Columns,
    Evaluator,
    fit_depths,
    prepare_blocks,
    report_tilings,
    score_depths,
)
from tiling_search.space import depth_rows

BLOCKS = "blocks"


class OnDevices:
    """Builds evaluators over ``devices``; to be given to :func:`tiling_search.tune` as ``evaluators``.

    Raises:
      ValueError: so many devices that a chunk cannot be cut into equal parts.
    """

    def __init__(self, devices: Sequence[Any]) -> None:
        if not devices or CHUNK % len(devices):
            raise ValueError(f"{len(devices)} devices: give a power of two up to {CHUNK}, of which chunks are multiples")
        self._sharding = NamedSharding(Mesh(np.array(devices), (BLOCKS,)), PartitionSpec(BLOCKS))

    def __call__(
        self, spec: NpuSpec, work: Attention, kernel: Kernel, overlap: Overlap, folder: Path | None = None
    ) -> Evaluator:
        """As :meth:`tiling_search.exhaustive.Evaluator.build`; nothing is kept in ``folder``: jax's own cache does that."""
        with jax.enable_x64(True):
            numbers, given = as_arrays(spec), problem(work)

        def cut(columns: Columns) -> Columns:
            return tuple(jax.device_put(column, self._sharding) for column in columns)

        def fit(spec: Any, given: Any, blocks: Columns, depths: Columns) -> Any:
            return fit_depths(spec, given, cut(blocks), depths, kernel)

        def prepare(spec: Any, given: Any, blocks: Columns) -> Any:
            return prepare_blocks(spec, given, cut(blocks), kernel, overlap)

        def score(spec: Any, given: Any, prepared: Any, blocks: Columns, depths: Columns) -> Any:
            return score_depths(spec, given, prepared, cut(blocks), depths, kernel)

        def report(spec: Any, given: Any, prepared: Any, tilings: Any) -> Any:
            return report_tilings(spec, given, prepared, tilings, kernel)

        return Evaluator(numbers, given, depth_rows(kernel), fit, prepare, score, report)
