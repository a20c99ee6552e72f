"""Why a tiling does not fit or cannot run. Each code, its message and its remedy are defined here and nowhere else."""

from collections.abc import Mapping
from enum import IntEnum


class Verdict(IntEnum):
    """The first thing that is wrong with a tiling, in the order of checking; ``FITS`` when nothing is.

    A verdict is a value: inside jit it is an integer beside the numbers, never an exception and never a smaller array.
    """

    FITS = 0
    BLOCK_TOO_SMALL = 1
    BLOCK_NOT_ALIGNED = 2
    UB_OVERFLOW = 3
    L1_OVERFLOW = 4
    L0A_OVERFLOW = 5
    L0B_OVERFLOW = 6
    L0C_OVERFLOW = 7
    GM_OVERFLOW = 8
    PIPELINE_DEADLOCK = 9

    @property
    def memory(self) -> str | None:
        """The memory that overflows, or None for a verdict that is not about memory."""
        return self.name.removesuffix("_OVERFLOW") if self.name.endswith("_OVERFLOW") else None


OVERFLOWS = {verdict.memory: verdict for verdict in Verdict if verdict.memory}
"""Memory name → its verdict, in the order of checking."""

REMEDIES = {
    Verdict.FITS: "",
    Verdict.BLOCK_TOO_SMALL: "blocks need 16 rows and every depth one slot; a smaller head_dim leaves room for them",
    Verdict.BLOCK_NOT_ALIGNED: "round block_q and block_kv to multiples of 16, the Cube's fractal",
    Verdict.UB_OVERFLOW: "shrink block_q, block_kv or vector_rows, or use fewer slots",
    Verdict.L1_OVERFLOW: "shrink block_kv or block_q, or use fewer kv or prob slots",
    Verdict.L0A_OVERFLOW: "lower l0_depth",
    Verdict.L0B_OVERFLOW: "lower l0_depth",
    Verdict.L0C_OVERFLOW: "lower l0_depth",
    Verdict.GM_OVERFLOW: "use a smaller batch or shorter sequences",
    Verdict.PIPELINE_DEADLOCK: "lower preload or give the hand-offs more slots: each tile that runs ahead needs one",
}
"""What a person may change, per verdict."""


def message(verdict: Verdict, capacity_bytes: float = 0, buffers: Mapping[str, float] | None = None) -> str:
    """One sentence for a person: what is wrong, by how much, what takes the room, and what to change.

    Args:
      verdict: the verdict.
      capacity_bytes: size of the memory that overflows.
      buffers: bytes of each buffer in it.

    >>> message(Verdict.UB_OVERFLOW, 262_144, {"S": 131_072, "Q": 65_536, "K": 65_568}).split(": ")[1]
    '262,176 bytes asked, 262,144 available (32 too many; S takes 131,072, K takes 65,568)'
    >>> message(Verdict.FITS)
    'fits'
    """
    if verdict is Verdict.FITS:
        return "fits"
    if verdict.memory is None:
        return f"{verdict.name.replace('_', ' ').lower()}: {REMEDIES[verdict]}"
    held = buffers or {}
    used = sum(held.values())
    largest = sorted(held.items(), key=lambda item: -item[1])[:2]
    room = ", ".join(f"{name} takes {size:,.0f}" for name, size in largest)
    amounts = f"{used:,.0f} bytes asked, {capacity_bytes:,.0f} available ({used - capacity_bytes:,.0f} too many; {room})"
    return f"{verdict.memory} overflow: {amounts}: {REMEDIES[verdict]}"
