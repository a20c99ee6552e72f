"""Seconds and their gradients by the block sizes, of every depth on every block: the blocks' part is worked out once for all.

What :func:`ascend_jax.cost.prepare.prepare` makes of blocks is differentiated once a block, in forward mode; each choice of
depths adds only the chain rule through :func:`ascend_jax.cost.finish.finish`. That is four times as fast as the gradient of
each tiling by itself, and of use where all depths are of interest: sensitivities, a map of slopes, the way down from a point.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ascend_jax._compile import OFTEN, SLOPES, quick_jit
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.evaluate import chosen
from ascend_jax.cost.finish import finish
from ascend_jax.cost.overlap import PIPELINED, Overlap
from ascend_jax.cost.prepare import Prepared, prepare
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.rounding import STRAIGHT_THROUGH
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.problem import Problem, problem
from tiling_search.space import BLOCK_FIELDS, DEPTH_FIELDS, L0_DEPTH, WIDE_FIELDS, named_blocks

SIZES = BLOCK_FIELDS[:3]
"""By what the gradient is: ``block_q``, ``block_kv``, ``vector_rows``."""
TOGETHER = 8
"""Blocks whose depths are finished at once: with some hundred depths, what they take stays in the processor's cache."""
FORWARD = OFTEN | {"xla_cpu_prefer_vector_width": 512, "xla_cpu_enable_fast_min_max": True}

Columns = tuple[Any, ...]


class GridSlopes(NamedTuple):
    """Every depth on every block.

    Attributes:
      seconds: if the tiling fits, ``[P, F]``.
      slopes: seconds by each of ``SIZES``, ``[P, F, 3]``; 0 by what the kernel ignores.
      verdicts: :class:`ascend_jax.Verdict` as floats, ``[P, F]``; blocks between multiples of 16 do not fit.
    """

    seconds: Array
    slopes: Array
    verdicts: Array


def grid_slopes(
    spec: NpuSpec,
    work: Attention,
    blocks: np.ndarray,
    depths: np.ndarray,
    *,
    kernel: str | Kernel = "auto",
    overlap: str | Overlap = PIPELINED,
) -> GridSlopes:
    """Model seconds of every row of ``depths`` on every row of ``blocks``, with their gradients by the block sizes.

    Values are those of the exact model; the gradient passes straight through rounding, as in the gradient search: between the
    places where something rounds it is the slope of what is inside. Sizes need not be whole. Chips of one architecture, and
    workloads, share a compilation, one for each number of blocks and depths; results take 20 bytes a tiling (40 under x64).

    Args:
      spec, work: chip and workload.
      blocks: rows of ``tiling_search.space.BLOCK_FIELDS``, ``[P, 5]``, or of ``WIDE_FIELDS``, ``[P, 6]``.
      depths: rows of ``tiling_search.space.DEPTH_FIELDS``, ``[F, 5]``.
      kernel, overlap: as of :func:`ascend_jax.evaluate`.

    Raises:
      ValueError: rows of another length, sizes or slots that are not positive, a kernel that does not run there.
    """
    kernel, overlap = chosen(spec, kernel, overlap)
    block, depth = _columns("blocks", blocks, (BLOCK_FIELDS, WIDE_FIELDS)), _columns("depths", depths, (DEPTH_FIELDS,))
    numbers, given = as_arrays(spec), problem(work)
    ready = _prepare_blocks(numbers, given, block, kernel, overlap)
    return _finish_depths(numbers, given, ready, block, depth, kernel)


def _columns(name: str, rows: np.ndarray, fields: tuple[tuple[str, ...], ...]) -> Columns:
    """The columns of a table, in the default float."""
    rows = np.asarray(rows)
    wanted = {len(some) for some in fields}
    if rows.ndim != 2 or rows.shape[1] not in wanted:
        raise ValueError(f"{name} has shape {rows.shape}: it must be rows of {' or '.join(map(str, fields))}")
    least = [0.0 if field == "preload" else np.finfo(np.float32).tiny for field in fields[-1][: rows.shape[1]]]
    if not np.all(np.isfinite(rows) & (rows >= least)):
        bad = rows[~np.all(np.isfinite(rows) & (rows >= least), axis=1)][0]
        raise ValueError(f"{name} has the row {bad.tolist()}: sizes and slots must be positive numbers, preload at least 0")
    return tuple(as_arrays(column) for column in rows.T)


def _prepare_plain(
    spec: NpuSpec, given: Problem, blocks: Columns, kernel: Kernel, overlap: Overlap
) -> tuple[Prepared, Prepared]:
    """What each block decides, leaves ``[P, …]``, and its slopes by the sizes, leaves ``[P, 3, …]``."""

    def of(block: Columns) -> Any:
        def ready(*sizes: Array) -> Prepared:
            tiling = _tiling((*sizes, *block[len(SIZES) :]), [jnp.ones_like(block[0])] * len(DEPTH_FIELDS))
            return prepare(spec, given, tiling, kernel, overlap, STRAIGHT_THROUGH)

        along = jax.vmap(lambda *direction: jax.jvp(ready, block[: len(SIZES)], direction), out_axes=(None, 0))
        return along(*jnp.eye(len(SIZES), dtype=block[0].dtype))

    return jax.vmap(of)(blocks)


def _finish_plain(
    spec: NpuSpec,
    given: Problem,
    ready: tuple[Prepared, Prepared],
    blocks: Columns,
    depths: Columns,
    kernel: Kernel,
) -> GridSlopes:
    """Everything for all depths on all blocks, by the chain rule."""

    def of(prepared: Prepared, slopes: Prepared, block: Columns, depth: Columns) -> GridSlopes:
        def seconds(prepared: Prepared, *sizes: Array) -> tuple[Array, Array]:
            tiling = _tiling((*sizes, *block[len(SIZES) :]), depth)
            done = finish(spec, given, tiling, kernel, prepared, STRAIGHT_THROUGH)
            return done.seconds, lax.stop_gradient(done.occupancy.verdict)

        def along(slope: Prepared, *direction: Array) -> Any:
            return jax.jvp(seconds, (prepared, *block[: len(SIZES)]), (slope, *direction), has_aux=True)

        eye = jnp.eye(len(SIZES), dtype=block[0].dtype)
        found, gradient, verdict = jax.vmap(along, out_axes=(None, 0, None))(slopes, *eye)
        return GridSlopes(found, gradient, verdict)

    def every(one: tuple[Prepared, Prepared, Columns]) -> GridSlopes:
        return jax.vmap(lambda depth: of(*one, depth))(depths)

    return lax.map(every, (*ready, blocks), batch_size=TOGETHER)


def _tiling(block: Any, depth: Any) -> Tiling:
    fields = {"l0_depth": jnp.full_like(block[0], L0_DEPTH)} | named_blocks(block) | dict(zip(DEPTH_FIELDS, depth, strict=True))
    return Tiling(**fields)


_prepare_blocks = quick_jit(_prepare_plain, static_argnums=(3, 4), wanted=SLOPES)
_finish_depths = quick_jit(_finish_plain, static_argnums=(5,), wanted=FORWARD)
