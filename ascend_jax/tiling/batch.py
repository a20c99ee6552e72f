"""``batch``: tilings as one struct of arrays, filled up to a fixed size so that batches of any length share a compilation."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import jax
import numpy as np
from jax import Array
from jax.tree_util import register_dataclass

from ascend_jax._pytree import all_numbers, as_arrays, is_whole
from ascend_jax.tiling.tiling import Tiling


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class TilingBatch:
    """``C`` tilings, the last of which may be padding.

    Attributes:
      tiling: every field ``[C]``, in the default float dtype.
      valid: bool ``[C]``; false for padding, whose results mean nothing.
    """

    tiling: Tiling
    valid: Array | np.ndarray


def batch(tilings: Iterable[Tiling], size: int | None = None) -> TilingBatch:
    """``tilings`` in their order, then copies of the first up to ``size``; call it outside jit.

    Args:
      tilings: at least one; fields of rank 0.
      size: how many the batch holds; the next power of two if left out, so that few sizes occur (each compiles anew).

    Raises:
      ValueError: no tiling, a ``size`` too small for them, or a tiling that is itself a batch.

    >>> tried = batch([Tiling(block_q=rows, block_kv=128) for rows in (256, 128, 64)])
    >>> tried.tiling.block_q.tolist(), tried.valid.tolist()
    ([256.0, 128.0, 64.0, 256.0], [True, True, True, False])
    """
    rows = list(tilings)
    if not rows:
        raise ValueError("no tilings: a batch needs at least one, whose copies fill it up")
    if size is None:
        size = 1 << (len(rows) - 1).bit_length()
    if not (all_numbers(size) and is_whole(size, len(rows))):
        raise ValueError(f"size={size} must be a whole number of at least {len(rows)}, the number of tilings")
    for place, row in enumerate(rows):
        _check_rank_0(row, place)
    valid = np.arange(int(size)) < len(rows)
    filled = rows + rows[:1] * (int(size) - len(rows))
    return TilingBatch(tiling=jax.tree.map(lambda *leaves: np.stack(leaves), *map(as_arrays, filled)), valid=valid)


def _check_rank_0(tiling: Tiling, place: int) -> None:
    for item in fields(tiling):
        shape = np.shape(getattr(tiling, item.name))
        if shape:
            raise ValueError(f"tilings[{place}].{item.name} has shape {shape}: give single tilings, not a batch of them")
