"""Rules that propose one tiling: the articles' closed form with its degrade loop, and a safe start per dataflow."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ascend_jax.tiling.tiling import Tiling

STEP = 16
"""Blocks are multiples of the Cube's fractal."""
RESIDENT_TILES = 5
"""Q, K, V, O and the softmax tile, each of block × head_dim elements in the articles' rule."""


def articles_block(ub_bytes: int, head_dim: int, element_bytes: int = 2) -> int:
    """The articles' block: ``floor16(UB / (5 · bytes) / head_dim)`` rows; 0 where not even 16 rows go in.

    The rule counts the softmax tile as block × head_dim, but that tile is block × block; for head_dim up to 128 its block
    does not fit the articles' own allocator (see :func:`degrade`). Their printed blocks (256 and 128) do not follow from it.

    >>> [articles_block(256 * 1024, dim) for dim in (64, 80, 128, 256, 512, 1639)]
    [400, 320, 192, 96, 48, 0]
    """
    return ub_bytes // (RESIDENT_TILES * element_bytes) // head_dim // STEP * STEP


def articles_tiling(ub_bytes: int, head_dim: int, q_len: int, kv_len: int, element_bytes: int = 2) -> Tiling:
    """Square blocks by :func:`articles_block`, no longer than the sequences (in whole fractals), one slot of everything.

    >>> tiling = articles_tiling(256 * 1024, 256, 10_000, 10_000)
    >>> tiling.block_q, -(-10_000 // tiling.block_q)
    (96, 105)
    """
    block = articles_block(ub_bytes, head_dim, element_bytes)
    once = dict.fromkeys(("kv_depth", "score_depth", "prob_depth", "out_depth", "ub_depth", "l0_depth"), 1)
    return Tiling(block_q=min(block, whole_steps(q_len)), block_kv=min(block, whole_steps(kv_len)), preload=0, **once)


def default_tiling(kernel: str, q_len: int, kv_len: int) -> Tiling:
    """A start that suits the dataflow's usual head dimensions: 128 rows against 128 to 512 keys, two slots.

    ``direct`` and ``coupled`` take 128 × 128, as the vendor's 950 example and the first generation's kernels do;
    ``separated`` takes longer rows of keys, as the vendor's A2 kernels do, since S passes through GM in whole blocks.
    """
    keys = 256 if kernel == "separated" else 128
    return Tiling(block_q=min(128, whole_steps(q_len)), block_kv=min(keys, whole_steps(kv_len)), ub_depth=1, preload=1)


def degrade(tiling: Tiling, fits: Callable[[Tiling], bool]) -> Iterator[Tiling]:
    """``tiling``, then smaller and smaller ones, up to the first that ``fits``; the last has blocks of 16.

    Both blocks shrink by 16, never below 16. If not even the last one fits, its verdict is the answer: the articles' loop
    has no such floor and would not end.
    """
    yield tiling
    while not fits(tiling) and max(tiling.block_q, tiling.block_kv) > STEP:
        smaller = (max(block - STEP, STEP) for block in (tiling.block_q, tiling.block_kv))
        tiling = replace(tiling, **dict(zip(("block_q", "block_kv"), smaller, strict=True)))
        yield tiling


def whole_steps(length: int) -> int:
    """``length`` rounded up to whole steps of 16, at least one.

    >>> [whole_steps(length) for length in (0, 16, 17)]
    [16, 16, 32]
    """
    return max(-(-length // STEP) * STEP, STEP)
