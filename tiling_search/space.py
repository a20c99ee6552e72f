"""The space of tilings: blocks × depths, all of them, without listing what cannot fit.

Occupancy grows with every field, so a block that overflows UB with the fewest slots beside the smallest other block does so
in every combination: such blocks are counted as rejected by UB without being listed one by one.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.tiling.rules import STEP, whole_steps
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.sequences import sequences

LARGEST_BLOCK = 16_384
"""No buffer of any chip holds a row of scores this long, so that longer blocks need no look."""
BLOCK_FIELDS = ("block_q", "block_kv", "vector_rows", "ub_depth", "kv_split")
DEPTH_FIELDS = ("kv_depth", "prob_depth", "score_depth", "out_depth", "preload")
DEPTHS = {
    "kv_depth": (1, 2, 3, 4),
    "prob_depth": (1, 2, 3, 4),
    "score_depth": (1, 2, 3),
    "out_depth": (1, 2, 3),
    "preload": (0, 1, 2, 3),
}
"""As far as the vendor's kernels go (four slots for P and V, three tiles ahead); fewest slots first."""
L0_DEPTH = 2.0
WIDE_FIELDS = (*BLOCK_FIELDS, "l0_depth")
"""What a row of a wide space's blocks holds."""
SLOTS = (1, 2, 3, 4)
"""Of every buffer, in a wide space."""
WIDE_DEPTHS = {name: DEPTHS[name] if name == "preload" else SLOTS for name in DEPTH_FIELDS}
SPLIT_ROWS = 128
"""A usual block of q rows, by which the space judges whether cores would idle."""


@dataclass(frozen=True)
class Space:
    """The candidates: every block choice with every choice of depths.

    Attributes:
      block_q, block_kv: multiples of 16 up to the lengths (of a group's packed rows).
      others: the remaining fields of ``BLOCK_FIELDS``, or of ``WIDE_FIELDS`` in a wide space, one row a choice.
      depths: every choice of ``DEPTH_FIELDS``, fewest slots first, ``[F, 5]``.
    """

    block_q: np.ndarray
    block_kv: np.ndarray
    others: np.ndarray
    depths: np.ndarray

    @property
    def size(self) -> int:
        """All candidates, those too large to list included."""
        return len(self.block_q) * len(self.block_kv) * len(self.others) * len(self.depths)

    def blocks(self, most_q: int, most_kv: int) -> np.ndarray:
        """Rows of ``BLOCK_FIELDS`` (or ``WIDE_FIELDS``) with blocks up to ``most_q`` and ``most_kv``, ``[N, 5]`` (6)."""
        block_q, block_kv = self.block_q[self.block_q <= most_q], self.block_kv[self.block_kv <= most_kv]
        q, kv, other = np.meshgrid(block_q, block_kv, np.arange(len(self.others)), indexing="ij")
        return np.column_stack([q.ravel(), kv.ravel(), self.others[other.ravel()]]).astype(np.float64)

    @property
    def least(self) -> np.ndarray:
        """The smallest block of each kind, a row of blocks."""
        return np.array([STEP, STEP, *self.others.min(axis=0)], np.float64)

    def probes(self) -> np.ndarray:
        """Each block size beside the smallest other one, with the smallest rest: rows of blocks."""
        rows = []
        for column, sizes in enumerate((self.block_q, self.block_kv)):
            rows.append(np.tile(self.least, (int(np.count_nonzero(sizes <= LARGEST_BLOCK)), 1)))
            rows[-1][:, column] = sizes[sizes <= LARGEST_BLOCK]
        return np.concatenate(rows)


def depth_rows(kernel: Kernel, depths: Mapping[str, tuple[int, ...]] = DEPTHS) -> np.ndarray:
    """Every choice of ``DEPTH_FIELDS``, fewest slots first, ``[F, 5]``; one slot where it makes no difference to ``kernel``."""
    choices = ((1,) if name in kernel.ignores else depths[name] for name in DEPTH_FIELDS)
    return np.array(list(product(*choices)), np.float64)


def build_space(spec: NpuSpec, work: Attention, kernel: Kernel) -> Space:
    """Multiples of 16 up to the lengths, the Vector's steps and slots, and splits of the keys where cores would idle."""
    slots = (1,) if "ub_depth" in kernel.ignores else (1, 2)
    return Space(*_block_sizes(work), _others(kernel, slots, _splits(spec, work)), depth_rows(kernel))


def build_wide_space(spec: NpuSpec, work: Attention, kernel: Kernel) -> Space:
    """As :func:`build_space`, with 1 to 4 slots of every buffer, L0 included, and splits of the keys whatever the cores do.

    Splits are 1 to 8, and powers of two up to the number of cube cores.
    """
    slots = (1,) if "ub_depth" in kernel.ignores else SLOTS
    powers = [2**power for power in range(12) if 2**power <= spec.cube_cores]
    splits = _long_enough(work, {*range(1, 9), *powers})
    return Space(*_block_sizes(work), _others(kernel, slots, splits, SLOTS), depth_rows(kernel, WIDE_DEPTHS))


SPACES = {"usual": build_space, "wide": build_wide_space}
"""By name."""


def _block_sizes(work: Attention) -> tuple[np.ndarray, np.ndarray]:
    """Multiples of 16 up to the lengths of q (of a group's packed rows) and of keys."""
    lengths = sequences(work)
    group = int(work.q_heads) // int(work.kv_heads)
    q_len, kv_len = (max(int(np.max(length)), 1) for length in (lengths.q_len, lengths.kv_len))
    return np.arange(STEP, whole_steps(q_len * group) + 1, STEP), np.arange(STEP, whole_steps(kv_len) + 1, STEP)


def _others(kernel: Kernel, *choices: tuple[int, ...]) -> np.ndarray:
    """Every choice of ``vector_rows`` with every one of ``choices``."""
    rows = (STEP,) if "vector_rows" in kernel.ignores else (8, 16, 32, 64)
    return np.array(list(product(rows, *choices)))


def _splits(spec: NpuSpec, work: Attention) -> tuple[int, ...]:
    """Into how many parts keys may be cut: 1 to 8, and powers of two up to what gives every core a task.

    Only where smaller blocks of q rows cannot even the cores out instead: where one block of 128 rows holds all rows of a
    head's group (decode) and a core gets fewer than 16 tasks, or where there are fewer such blocks than cores.
    """
    lengths = sequences(work)
    rows = int(np.max(lengths.q_len)) * (int(work.q_heads) // int(work.kv_heads))
    heads = int(work.kv_heads) if rows <= SPLIT_ROWS else int(work.q_heads)
    tasks = float(np.sum(lengths.count * np.ceil(np.minimum(lengths.q_len, rows) / SPLIT_ROWS))) * heads
    if tasks >= (16 if rows <= SPLIT_ROWS else 1) * spec.cube_cores:
        return (1,)
    powers = [2**power for power in range(12) if 2 ** (power - 1) * max(tasks, 1) < spec.cube_cores]
    return _long_enough(work, {*range(1, 9), *powers})


def _long_enough(work: Attention, splits: Set[int]) -> tuple[int, ...]:
    """Those of ``splits`` of which every part gets keys."""
    longest = int(np.max(sequences(work).kv_len))
    return tuple(split for split in sorted(splits) if split == 1 or split * STEP <= longest)


def named_blocks(block: Sequence[Any] | np.ndarray) -> dict[str, Any]:
    """The fields of one row of blocks, or its columns; ``l0_depth`` only in those of a wide space."""
    return dict(zip(WIDE_FIELDS[: len(block)], block, strict=True))


def tiling_of(block: np.ndarray, depth: np.ndarray) -> Tiling:
    """The tiling of one row of blocks and one of depths, as whole numbers."""
    fields = {"l0_depth": L0_DEPTH} | named_blocks(block) | dict(zip(DEPTH_FIELDS, depth, strict=True))
    return Tiling(**{name: int(value) for name, value in fields.items()})
