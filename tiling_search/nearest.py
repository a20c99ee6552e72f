"""What to change in a workload of which not even the smallest tiling fits."""

from collections.abc import Callable
from dataclasses import replace

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.proposal import check
from ascend_jax.tiling.rules import STEP
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention


def nearest_that_fits(spec: NpuSpec, work: Attention, tiling: Tiling, kernel: Kernel) -> str:
    """The nearest workload that ``tiling`` fits, as words: the largest head dimension, or for GM the largest batch.

    >>> from ascend_jax import KERNELS, load_chip
    >>> wide = Attention(batch=1, q_heads=1, kv_heads=1, q_len=64, kv_len=64, head_dim=4096, value_dim=4096)
    >>> once = Tiling(block_q=16, block_kv=16, kv_depth=1, score_depth=1, preload=0)
    >>> nearest_that_fits(load_chip("910A"), wide, once, KERNELS["ub_resident"])
    'head_dim 2032 would fit'
    """

    def fits(changed: Attention) -> bool:
        return check(spec, changed, tiling, kernel)[0] is Verdict.FITS

    def narrower(units: int) -> Attention:
        dim = units * STEP
        return replace(work, head_dim=dim, value_dim=min(int(work.value_dim), dim))

    def fewer(batch: int) -> Attention:
        return replace(work, batch=batch)

    crowded = check(spec, work, tiling, kernel)[0] is Verdict.GM_OVERFLOW
    if crowded and not isinstance(work.batch, tuple) and (most := _largest(int(work.batch), lambda batch: fits(fewer(batch)))):
        return f"batch {most} would fit"
    widest = _largest(int(work.head_dim) // STEP, lambda units: fits(narrower(units)))
    return f"head_dim {widest * STEP} would fit" if widest else "no smaller head_dim would fit either"


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to ``most`` that fits, 0 if none does; what fits at one number fits below it."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
