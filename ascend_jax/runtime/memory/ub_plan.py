"""Planning UB as the articles' allocator does: five buffers one after the other, smaller blocks where they do not fit.

No such allocator exists at run time: the kernel places its buffers, and the tiling on the host must see to it that they fit.
So this is a helper for planning. It measures with :mod:`ascend_jax.occupancy`, and accepts what that accepts for the kernel
``ub_resident``; each buffer starts at the end of the one before (in the articles all five overlap).
"""

from dataclasses import dataclass, replace

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.ub_resident import UbResident
from ascend_jax.occupancy import BLOCK_ALIGN, Occupancy, explain, occupancy
from ascend_jax.runtime.errors import OpErrorCode
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.sequences import sequences

NAMES = {"Q": "Q", "K": "K", "V": "V", "O": "O", "S": "P"}
"""Buffers of the kernel → what the articles call them: its score tile is their P."""
SHRINKABLE = (Verdict.UB_OVERFLOW, Verdict.L1_OVERFLOW)
"""What smaller blocks may cure. (L0 holds steps of a block, GM the tensors.)"""


@dataclass(frozen=True)
class UbBuffer:
    """Where one buffer lies in UB: ``offset``, a multiple of 128, and ``size``, both in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class UbPlan:
    """A tiling that fits and where its buffers lie.

    Attributes:
      tiling: the one that was asked for, or with smaller blocks.
      buffers: Q, K, V, O and P, in this order.
      used, capacity: bytes of UB.
      steps: what was tried: (block_q, block_kv, bytes of UB), the last one fits.
    """

    tiling: Tiling
    buffers: dict[str, UbBuffer]
    used: int
    capacity: int
    steps: tuple[tuple[int, int, int], ...]

    @property
    def degraded(self) -> bool:
        """Whether the blocks had to become smaller."""
        return len(self.steps) > 1


def plan_ub(spec: NpuSpec, work: Attention, tiling: Tiling, *, degrade: bool = True) -> UbPlan:
    """Place the five buffers of ``tiling``; where they do not fit, with both blocks smaller by 16, and so on down to 16.

    Args:
      spec: the chip.
      work: one attention call.
      tiling: one tiling, of plain numbers.
      degrade: False tries the tiling as it is only.

    Raises:
      AclError: UB_OOM (561002) where even the smallest blocks do not fit UB; TILING_FAILED (561002) for what smaller blocks
        cannot cure, such as blocks that are no multiples of 16.

    >>> from ascend_jax.hardware import load_chip
    >>> work = Attention(batch=1, q_heads=8, kv_heads=8, q_len=512, kv_len=512, head_dim=64)
    >>> plan = plan_ub(load_chip("910a"), work, Tiling(block_q=400, block_kv=400, kv_depth=1, score_depth=1))
    >>> plan.tiling.block_q, plan.used, plan.buffers["K"], len(plan.steps)
    (256, 262144, UbBuffer(offset=32768, size=32768), 10)
    """
    steps: list[tuple[int, int, int]] = []
    while True:
        held = occupancy(spec, work, sequences(work), tiling, UbResident())
        steps.append((int(tiling.block_q), int(tiling.block_kv), int(held.used_bytes["UB"])))
        verdict = Verdict(int(held.verdict))
        if verdict is Verdict.FITS:
            return _place(tiling, held, steps)
        smaller = replace(tiling, block_q=_smaller(tiling.block_q), block_kv=_smaller(tiling.block_kv))
        if verdict not in SHRINKABLE or not degrade or smaller == tiling:
            raise _refusal(verdict, held, steps)
        tiling = smaller


def _smaller(block: float) -> float:
    return max(block - BLOCK_ALIGN, BLOCK_ALIGN)


def _place(tiling: Tiling, held: Occupancy, steps: list[tuple[int, int, int]]) -> UbPlan:
    buffers, offset = {}, 0
    for name, label in NAMES.items():
        size = int(held.buffer_bytes["UB"][name])
        buffers[label] = UbBuffer(offset, size)
        offset += size
    return UbPlan(tiling, buffers, offset, int(held.capacity_bytes["UB"]), tuple(steps))


def _refusal(verdict: Verdict, held: Occupancy, steps: list[tuple[int, int, int]]) -> Exception:
    block_q, block_kv, _ = steps[-1]
    tried = f"block_q={block_q}, block_kv={block_kv}" + (f", the last of {len(steps)} tried" if len(steps) > 1 else "")
    code = OpErrorCode.UB_OOM if verdict is Verdict.UB_OVERFLOW else OpErrorCode.TILING_FAILED
    remedy = "use a smaller head_dim, a smaller dtype, fewer slots, or another kernel" if code is OpErrorCode.UB_OOM else None
    return code.error(f"{code.name}: {explain(held)} ({tried})", remedy=remedy)
