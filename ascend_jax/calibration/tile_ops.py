"""Cycles of a tile operation of pto-isa on the vector core of c220, from the instructions that it is made of.

A tile lies in UB, row after row. An instruction passes over it in repeats of 256 bytes. Cycles are

    head + Σ cycles · repeats + Σ (tail + barrier) + mask

with the head of the first instruction only, as the queue of the others is not empty, and a tail for each that the next one
waits for. Two sources in the same bank groups of UB are read one after the other, and a result waits where the sources take
all banks of its own tile: then a repeat takes 2 cycles, else 1. The numbers, and which instructions an operation is, are in
``tile_instructions.toml`` with their source.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from ascend_jax._toml import read_toml
from ascend_jax.hardware.spec import NpuSpec

LANES = 64
"""Elements that ``of_64_lanes`` counts by: such an instruction is bound by its arithmetic, not by bytes."""


class Tile(NamedTuple):
    """Shape of the larger operand; each row starts where the one before ends."""

    rows: int
    columns: int
    element_bytes: int

    @property
    def row_bytes(self) -> int:
        """From one row to the next."""
        return self.columns * self.element_bytes


class Pass(NamedTuple):
    """An instruction that the next one waits for."""

    instruction: str
    cycles: float
    """Of all its repeats."""
    masked: bool = False


def tile_cycles(operation: str, tile: Tile, spec: NpuSpec) -> float:
    """Vector cycles of ``operation`` on ``tile``, alone: from an empty queue to the last result.

    Source: pto-isa. Its tile fits, measured on 910B3, are met within 15 % (``tests/calibration/test_tile_ops.py``).

    Raises:
      ValueError: an operation, type, shape or chip without numbers.

    >>> from ascend_jax.hardware import load_chip
    >>> tile_cycles("TROWMAX", Tile(64, 128, 4), load_chip("910b3"))  # published: 560
    554.0
    """
    kind = _kind(operation, tile, spec)
    return _total(list(PASSES[kind](numbers()[kind][operation], tile)))


def _kind(operation: str, tile: Tile, spec: NpuSpec) -> str:
    kinds = [kind for kind in PASSES if operation in numbers()[kind]]
    if not kinds:
        raise ValueError(f"operation {operation!r} has no instructions here; take one of {', '.join(operations())}")
    if spec.architecture != "separated":
        raise ValueError(f"{spec.name}: instruction times are those of the 910B's vector core; take a chip of 910B or 910_93")
    if tile.element_bytes not in (2, 4):
        raise ValueError(f"elements of {tile.element_bytes} bytes; the instructions are timed for 2 (float16) and 4 (float32)")
    if min(tile.rows, tile.columns) < 1 or tile.row_bytes % numbers()["banks"]["block_bytes"]:
        raise ValueError(f"a tile of {tile.rows} x {tile.columns}: rows are whole blocks of 32 bytes; fill them up")
    if tile.rows * tile.row_bytes > float(spec.ub_bytes):
        raise ValueError(f"a tile of {tile.rows * tile.row_bytes} bytes does not fit UB ({spec.ub_bytes:.0f}); take fewer rows")
    return kinds[0]


@cache
def numbers() -> dict[str, Any]:
    """``tile_instructions.toml``."""
    return read_toml(files("ascend_jax.calibration") / "tile_instructions.toml")


def operations() -> tuple[str, ...]:
    """Names that :func:`tile_cycles` takes."""
    return tuple(name for kind in PASSES for name in numbers()[kind])


def bank_cycles(first: int, second: int, length: int, in_place: bool = False) -> int:
    """Cycles to read ``length`` bytes from each of two addresses, and to write as many (at most a repeat): 1, or 2 where they
    meet in a bank group. ``in_place``: the result goes to the tile that both are in, so they meet if the two take all groups.

    >>> bank_cycles(0, 256, 256), bank_cycles(0, 512, 256), bank_cycles(0, 256, 256, in_place=True)
    (1, 2, 2)
    """
    banks = numbers()["banks"]
    groups, blocks = banks["groups"], math.ceil(length / banks["block_bytes"])
    apart = (second - first) // banks["block_bytes"] % groups
    meet = min(apart, groups - apart) < blocks
    return 2 if meet or (in_place and 2 * blocks >= groups) else 1


def _total(passes: list[Pass]) -> float:
    table = numbers()
    costs = table["instructions"]
    waits = sum(costs[one.instruction]["tail"] for one in passes) + (len(passes) - 1) * table["barrier"]
    mask = table["mask"] if any(one.masked for one in passes) else 0
    return float(costs[passes[0].instruction]["head"] + sum(one.cycles for one in passes) + waits + mask)


def _per_repeat(tile: Tile) -> int:
    return numbers()["repeat_bytes"] // tile.element_bytes


def _cycles(instruction: str, tile: Tile) -> float:
    """Of one repeat whose operands are in bank groups of their own."""
    cost = numbers()["instructions"][instruction]
    return cost["cycles"] * (_per_repeat(tile) / LANES if cost.get("of_64_lanes") else 1)


def _flat(tile: Tile) -> tuple[int, bool]:
    """Repeats of a tile taken as one row, and whether a mask or the counter mode is needed for them."""
    per_repeat = _per_repeat(tile)
    elements = tile.rows * tile.columns
    ragged = tile.columns % per_repeat if tile.columns > per_repeat else elements % per_repeat
    repeats = math.ceil(elements / per_repeat)
    return repeats, bool(ragged) or repeats > numbers()["most_repeats"]


def _two_tiles(instruction: str, tile: Tile) -> Iterator[Pass]:
    """Tiles start at multiples of 512 bytes: both sources are in the same bank groups. Short rows take a repeat each."""
    short = tile.columns < _per_repeat(tile)
    repeats, masked = (tile.rows, True) if short else _flat(tile)
    both = bank_cycles(0, 0, min(tile.row_bytes, numbers()["repeat_bytes"]))
    yield Pass(instruction, repeats * max(_cycles(instruction, tile), both), masked)


def _one_tile(instructions: list[str], tile: Tile) -> Iterator[Pass]:
    repeats, masked = _flat(tile)
    for instruction in instructions:
        yield Pass(instruction, repeats * _cycles(instruction, tile), masked)


def _row_reduce(made_of: dict[str, Any], tile: Tile) -> Iterator[Pass]:
    """All repeats of a row are joined into the first of a temporary tile, row after row in one instruction; that is reduced."""
    size, reduce = numbers()["repeat_bytes"], made_of["reduce"]
    whole, rest = divmod(tile.row_bytes, size)
    joins = _pairs(whole, rest) if made_of["pairs"] else _chain(whole, rest)
    if whole == 1 and rest:
        yield Pass("vcopy", tile.rows * _cycles("vcopy", tile))
    for first, second, length, in_place in joins:
        yield Pass(made_of["join"], tile.rows * bank_cycles(first * size, second * size, length, in_place), length < size)
    yield Pass(reduce, tile.rows * _cycles(reduce, tile), whole == 0)


def _chain(whole: int, rest: int) -> Iterator[tuple[int, int, int, bool]]:
    """Places of two repeats, bytes of a join, and whether it is within the temporary: the first two, the rest, one by one."""
    size = numbers()["repeat_bytes"]
    if whole > 1:
        yield 0, 1, size, False
    if rest and whole:
        yield 0, whole, rest, False
    for place in range(2, whole):
        yield 0, place, size, False


def _pairs(whole: int, rest: int) -> Iterator[tuple[int, int, int, bool]]:
    """As :func:`_chain`: neighbours, an odd last one, the rest; then pairs of what that gave."""
    size = numbers()["repeat_bytes"]
    for place in range(whole // 2):
        yield 2 * place, 2 * place + 1, size, False
    if whole > 1 and whole % 2:
        yield 0, whole - 1, size, False
    if rest and whole:
        yield 0, whole, rest, False
    left = whole // 2
    while left > 1:
        for place in range(left // 2):
            yield 2 * place, 2 * place + 1, size, True
        if left % 2:
            yield left // 2 - 1, left - 1, size, True
        left //= 2


def _column_reduce(made_of: dict[str, Any], tile: Tile) -> Iterator[Pass]:
    """The first row is copied; each other row is joined to it, after the row before."""
    size = numbers()["repeat_bytes"]
    whole, rest = divmod(tile.row_bytes, size)
    yield Pass("vcopy", (whole + (rest > 0)) * _cycles("vcopy", tile))
    parts = [(whole, size), (1, rest)] if made_of["rest_apart"] else [(whole + (rest > 0), min(tile.row_bytes, size))]
    for repeats, length in parts:
        for row in range(1, tile.rows if repeats * length else 1):
            yield Pass(made_of["join"], repeats * bank_cycles(0, row * tile.row_bytes, length), True)


def _row_expand(instruction: str, tile: Tile) -> Iterator[Pass]:
    for _ in range(tile.rows):
        yield Pass(instruction, math.ceil(tile.columns / _per_repeat(tile)) * _cycles(instruction, tile), True)


PASSES: dict[str, Callable[[Any, Tile], Iterator[Pass]]] = {
    "two_tiles": _two_tiles,
    "one_tile": _one_tile,
    "row_reduce": _row_reduce,
    "column_reduce": _column_reduce,
    "row_expand": _row_expand,
}
"""By the tables of ``tile_instructions.toml``, each of which lists operations."""
