"""Slow, obvious loops that the closed forms are tested against. Imports no code of the model."""

import numpy as np


def kept(kind: str, q_len: int, kv_len: int, pre: int = 0, after: int = 0, prefix: int = 0) -> np.ndarray:
    """Whether row i sees key j, as a boolean matrix ``[q_len, kv_len]``: the table of sparse modes, one line a mode."""
    i, j = np.indices((q_len, kv_len))
    shift = kv_len - q_len
    return {
        "none": j >= 0,
        "left_up_causal": j <= i,
        "causal": j <= i + shift,
        "band": (-pre <= j - i - shift) & (j - i - shift <= after),
        "prefix": (j <= i + shift) | (j < prefix),
    }[kind]


def count_block_rows(matrix: np.ndarray, block_q: int, block_kv: int) -> list[tuple[int, int, int]]:
    """``(blocks, computed, full)`` of every block row, by cutting the boolean matrix and looking at each block."""
    counts = []
    for top in range(0, matrix.shape[0], block_q):
        row = [matrix[top : top + block_q, left : left + block_kv] for left in range(0, matrix.shape[1], block_kv)]
        counts.append((len(row), sum(bool(block.any()) for block in row), sum(bool(block.all()) for block in row)))
    return counts


def count_blocks(matrix: np.ndarray, block_q: int, block_kv: int) -> tuple[int, int, int]:
    """``(blocks, computed, full)`` of the whole matrix."""
    blocks, computed, full = (
        sum(column) for column in zip((0, 0, 0), *count_block_rows(matrix, block_q, block_kv), strict=True)
    )
    return blocks, computed, full


def longest_block_row(matrix: np.ndarray, block_q: int, block_kv: int) -> tuple[int, int]:
    """Computed blocks of the longest block row, and how many block rows have so many."""
    computed = [row[1] for row in count_block_rows(matrix, block_q, block_kv)]
    longest = max(computed, default=0)
    return longest, computed.count(longest)


def clipped_floor_sum(terms: int, modulus: int, slope: int, offset: int, least: int, most: int) -> int:
    """The sum, term by term, in whole numbers."""
    return sum(min(max((slope * i + offset) // modulus, least), most) for i in range(terms))
