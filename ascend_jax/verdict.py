"""Why a tiling does not fit or cannot run. Each code, its message and its remedy are defined here and nowhere else."""

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
    Verdict.BLOCK_TOO_SMALL: "use blocks and depths of at least 16 rows and 1 slot; a smaller head_dim leaves room for them",
    Verdict.BLOCK_NOT_ALIGNED: "round block_q and block_kv to multiples of 16, the Cube's fractal",
    Verdict.UB_OVERFLOW: "shrink vector_rows or block_kv, or use fewer score, prob or out slots",
    Verdict.L1_OVERFLOW: "shrink block_kv or block_q, or use fewer kv or prob slots",
    Verdict.L0A_OVERFLOW: "lower l0_depth",
    Verdict.L0B_OVERFLOW: "lower l0_depth",
    Verdict.L0C_OVERFLOW: "shrink block_q or block_kv",
    Verdict.GM_OVERFLOW: "use a smaller batch, shorter sequences or fewer workspace slots",
    Verdict.PIPELINE_DEADLOCK: "lower preload, or give the hand-offs more slots: a tile that runs ahead needs one slot for each step",
}


def message(verdict: Verdict, used_bytes: float = 0, capacity_bytes: float = 0) -> str:
    """One sentence for a person: what is wrong, by how much, and what to change.

    >>> message(Verdict.UB_OVERFLOW, 270_336, 262_144)
    'UB overflow: 270,336 bytes asked, 262,144 available (8,192 too many): shrink vector_rows or block_kv, or use fewer score, prob or out slots'
    >>> message(Verdict.FITS)
    'fits'
    """
    if verdict is Verdict.FITS:
        return "fits"
    if verdict.memory is None:
        return f"{verdict.name.replace('_', ' ').lower()}: {REMEDIES[verdict]}"
    over = used_bytes - capacity_bytes
    amounts = f"{used_bytes:,.0f} bytes asked, {capacity_bytes:,.0f} available ({over:,.0f} too many)"
    return f"{verdict.memory} overflow: {amounts}: {REMEDIES[verdict]}"
