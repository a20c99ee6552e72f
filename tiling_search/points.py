"""The feasible points of a space as arrays: what a search strategy sees. Indices and feasibility; no chip, no bytes.

A point is known by its *rank*, its place among the feasible points in lexical order of their indices. Ranks are int32, so that
a strategy that returns a rank cannot return a point that does not fit; −1 stands for no point.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import register_dataclass

NONE = -1
"""Rank of no point: outside of the space, not feasible, or nothing left to propose."""
MOST_CELLS = 2**31 - 1
"""Ranks and cells are int32."""


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Points:
    """Feasible points of a product of ordinal axes, the leading ``outer`` of which form rows.

    A row with no feasible point is left out of ``rank_at``, so that the table stays small where few blocks fit.

    Attributes:
      names: of the axes, in order.
      outer: how many leading axes make up a row; the others make up its ``F`` columns.
      axes: values of each axis, ascending in what they mean, float32 ``[size]``.
      row_at: row of each choice of the leading axes, or −1; int32 ``[product of their sizes]``.
      row_codes: the choice of the leading axes of each row, int32 ``[R]``.
      rank_at: rank of each cell, or −1; int32 ``[R, F]``.
      cells: cell (row × F + column) of each rank, int32 ``[P]``.
    """

    names: tuple[str, ...] = field(metadata={"static": True})
    outer: int = field(metadata={"static": True})
    axes: tuple[Array, ...]
    row_at: Array
    row_codes: Array
    rank_at: Array
    cells: Array

    @property
    def count(self) -> int:
        """Feasible points."""
        return self.cells.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each axis."""
        return tuple(axis.shape[0] for axis in self.axes)


def lattice_points(names: Sequence[str], axes: Sequence[Sequence[float] | np.ndarray], feasible: np.ndarray) -> Points:
    """Points of the lattice of ``axes`` where ``feasible`` (bool, one dimension an axis) is true.

    Raises:
      ValueError: no feasible point, or shapes that disagree.

    >>> points = lattice_points(("a", "b"), ((16, 32), (1, 2, 3)), np.array([[1, 1, 0], [1, 0, 0]], bool))
    >>> points.count, values(points, jnp.asarray(2)).tolist()
    (3, [32.0, 1.0])
    """
    sizes = tuple(len(axis) for axis in axes)
    if feasible.shape != sizes or len(names) != len(sizes):
        raise ValueError(f"feasible has shape {feasible.shape}, the axes {names} have sizes {sizes}")
    fits = feasible.reshape(-1, 1)
    rows = np.flatnonzero(fits.any(axis=1))
    return row_points(names, axes, len(sizes), rows, fits[rows])


def row_points(
    names: Sequence[str], axes: Sequence[Sequence[float] | np.ndarray], outer: int, codes: np.ndarray, feasible: np.ndarray
) -> Points:
    """Points from the rows that have any.

    Args:
      names, axes: of all axes.
      outer: how many leading axes make up a row.
      codes: place of each row in the lattice of the leading axes (last axis fastest), ascending, ``[R]``.
      feasible: which columns of each row are feasible, bool ``[R, F]``.

    Raises:
      ValueError: no feasible point, or more cells than int32 counts.
    """
    if not feasible.any():
        raise ValueError("no point of the space is feasible: tiling_search.tune says what would be")
    if feasible.size > MOST_CELLS or prod(map(len, axes[:outer])) > MOST_CELLS:
        raise ValueError(f"{feasible.size} cells are more than the {MOST_CELLS} that ranks count: narrow the space")
    row_at = np.full(prod(map(len, axes[:outer])), NONE, np.int32)
    row_at[codes] = np.arange(len(codes))
    cells = np.flatnonzero(feasible).astype(np.int32)
    rank_at = np.full(feasible.size, NONE, np.int32)
    rank_at[cells] = np.arange(len(cells))
    return Points(
        names=tuple(names),
        outer=outer,
        axes=tuple(jnp.asarray(axis, jnp.float32) for axis in axes),
        row_at=jnp.asarray(row_at),
        row_codes=jnp.asarray(codes, jnp.int32),
        rank_at=jnp.asarray(rank_at.reshape(feasible.shape)),
        cells=jnp.asarray(cells),
    )


def indices(points: Points, ranks: Array) -> Array:
    """Index on each axis of ranks of any shape, int32 ``[…, A]``; those of the first point for −1."""
    cells = points.cells[jnp.maximum(ranks, 0)]
    columns = points.rank_at.shape[1]
    outer = _digits(points.row_codes[cells // columns], points.shape[: points.outer])
    inner = _digits(cells % columns, points.shape[points.outer :])
    return jnp.stack([*outer, *inner], axis=-1)


def values(points: Points, ranks: Array) -> Array:
    """Value on each axis of ranks of any shape, float32 ``[…, A]``."""
    places = indices(points, ranks)
    return jnp.stack([axis[places[..., at]] for at, axis in enumerate(points.axes)], axis=-1)


def ranks_of(points: Points, places: Array) -> Array:
    """Ranks of indices ``[…, A]``: −1 where they lie outside of the lattice or are not feasible."""
    sizes = jnp.asarray(points.shape, jnp.int32).reshape((1,) * (places.ndim - 1) + (-1,))
    inside = jnp.all((places >= 0) & (places < sizes), axis=-1)
    safe = jnp.where(inside[..., None], places, jnp.int32(0))
    row = points.row_at[_code(safe[..., : points.outer], points.shape[: points.outer])]
    rank = points.rank_at[row, _code(safe[..., points.outer :], points.shape[points.outer :])]
    return jnp.where(inside & (row >= 0), rank, jnp.int32(NONE))


def neighbours(points: Points, rank: Array, reach: int = 1) -> Array:
    """Ranks one to ``reach`` steps down and up on each axis from one rank, int32 ``[2·reach·A]``; −1 where there is none."""
    steps = np.concatenate([np.arange(-reach, 0), np.arange(1, reach + 1)]).astype(np.int32)
    moves = (steps[:, None, None] * np.eye(len(points.axes), dtype=np.int32)).reshape(-1, len(points.axes))
    return ranks_of(points, indices(points, rank)[None, :] + jnp.asarray(moves))


def _digits(code: Array, sizes: tuple[int, ...]) -> list[Array]:
    """``code`` as one index an axis, the last axis fastest."""
    digits = []
    for size in reversed(sizes):
        digits.append((code % size).astype(jnp.int32))
        code = code // size
    return digits[::-1]


def _code(digits: Array, sizes: tuple[int, ...]) -> Array:
    """The inverse of :func:`_digits` for indices ``[…, len(sizes)]``."""
    code = jnp.zeros(digits.shape[:-1], jnp.int32)
    for at, size in enumerate(sizes):
        code = code * size + digits[..., at]
    return code
