"""Tile operations of pto-isa against its published fits and lines, and against loops over addresses."""

import csv
import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from ascend_jax.calibration.tile_ops import Tile, bank_cycles, operations, tile_cycles
from ascend_jax.hardware import load_chip

A2, A5 = load_chip("910b3"), load_chip("950pr")
ROWS = (16, 32, 64, 128)
TILES_IN_UB = 3
"""Most that an operation has at once: two that come in, or one and a temporary, and one that goes out."""

# hw-native-sys/pto-isa@3186c381, cce_costmodel_vector_compute.hpp: cycles of one instruction over whole repeats of float32 as
# measured on 910B3, a slope a repeat and a constant.
LINES = {
    "TADD": (2.11, 24),
    "TSUB": (2.11, 24),
    "TMAX": (2.01, 23),
    "TMUL": (2.3, 25),
    "TDIV": (4.03, 31),
    "TEXP": (2.00, 31),
    "TMULS": (1.0, 26),
    "TMAXS": (1.0, 23),
}
# The same source, tests/costmodel/st: cycles of single tiles: rows, columns, bytes of an element. Left out are TROWMAX and
# TROWSUM of 16 x 256: 32 (float32) and 14 cycles, less than their 16 reductions take; its test accepts any figure there.
TILES = [
    ("TADD", (64, 64, 4), 160),
    ("TADD", (16, 256, 2), 92),
    ("TROWMAX", (64, 64, 4), 480),
    ("TROWMAX", (64, 128, 2), 481),
    ("TROWSUM", (64, 64, 4), 492),
    ("TROWSUM", (64, 128, 2), 495),
    ("TDIVS", (32, 64, 4), 205),
    ("TDIVS", (63, 64, 2), 328),
]


class Fit(NamedTuple):
    columns: int
    slope: float
    bias: float


def fits() -> dict[tuple[str, int], list[Fit]]:
    """By operation and bytes of an element. Where the source says "every number of columns", four that fill whole repeats: such
    a fit cannot say what others do, that ragged rows cost 17 more."""
    text = Path(__file__).with_name("tile_fits.csv").read_text("utf-8").splitlines()
    found: dict[tuple[str, int], list[Fit]] = defaultdict(list)
    for line in csv.DictReader(line for line in text if not line.startswith("#")):
        for size in {"fp32": (4,), "fp16": (2,), "any": (4, 2)}[line["dtype"]]:
            for columns in (64, 128, 256, 512) if line["cols"] == "*" else (int(line["cols"]),):
                found[line["op"], size].append(Fit(columns, float(line["slope"]), float(line["bias"])))
    return found


FITS = fits()


@pytest.mark.parametrize(("operation", "size"), FITS)
def test_tiles_cost_what_their_fits_say_within_fifteen_percent(operation: str, size: int) -> None:
    compared = 0
    for columns, slope, bias in FITS[operation, size]:
        for rows in ROWS:
            if rows * columns * size * TILES_IN_UB <= A2.ub_bytes:
                fit = slope * rows * columns + bias
                assert tile_cycles(operation, Tile(rows, columns, size), A2) == pytest.approx(fit, rel=0.15), (rows, columns)
                compared += 1
    assert compared >= len(FITS[operation, size])


@pytest.mark.parametrize(("operation", "size"), FITS)
def test_tiles_are_neither_too_cheap_nor_too_dear_on_the_whole(operation: str, size: int) -> None:
    errors = [
        tile_cycles(operation, Tile(64, fit.columns, size), A2) / (fit.slope * 64 * fit.columns + fit.bias) - 1
        for fit in FITS[operation, size]
    ]
    assert abs(sum(errors) / len(errors)) < 0.07


@pytest.mark.parametrize("operation", LINES)
@pytest.mark.parametrize("repeats", [1, 8, 64, 128])
def test_single_instructions_cost_what_was_measured_within_fifteen_percent(operation: str, repeats: int) -> None:
    slope, constant = LINES[operation]
    assert tile_cycles(operation, Tile(repeats, 64, 4), A2) == pytest.approx(slope * repeats + constant, rel=0.15)


@pytest.mark.parametrize(("operation", "tile", "measured"), TILES)
def test_single_tiles_cost_what_was_measured_within_fifteen_percent(
    operation: str, tile: tuple[int, int, int], measured: float
) -> None:
    assert tile_cycles(operation, Tile(*tile), A2) == pytest.approx(measured, rel=0.15)


def read_cycles(addresses: list[int], length: int) -> int:
    """Cycles in which 16 bank groups, one block each a cycle, give ``length`` bytes from each address."""
    asked = [0] * 16
    for address in addresses:
        for block in range(address // 32, (address + length) // 32):
            asked[block % 16] += 1
    return max(asked)


@pytest.mark.parametrize("length", [32, 96, 160, 256])
def test_operands_in_one_bank_group_are_read_one_after_the_other(length: int) -> None:
    for first in range(0, 1024, 96):
        for second in range(0, 2048, 32):
            assert bank_cycles(first, second, length) == read_cycles([first, second], length)


def row_max_cycles(rows: int, columns: int, size: int) -> float:
    """Of the repeats alone: every row's, one after the other, each operand where it lies."""
    stride, cycles = columns * size, 0.0
    temporary = 1 << 16
    for row in range(rows):
        source, target = row * stride, temporary + row * stride
        starts = range(0, stride, 256)
        if len(starts) > 1:
            second = min(256, stride - 256)
            pair = [source, source + 256] if second == 256 else [target, source + 256]
            cycles += read_cycles(pair, second) + (second < 256)  # a first repeat that has no whole neighbour is copied
        for start in starts[2:]:
            cycles += read_cycles([target, source + start], min(256, stride - start))
        cycles += 7
    return cycles


@pytest.mark.parametrize(("columns", "size"), [(64, 4), (96, 4), (128, 4), (176, 4), (256, 4), (336, 4), (160, 2), (656, 2)])
def test_a_row_costs_its_joins_at_the_pace_of_the_banks_and_one_reduction(columns: int, size: int) -> None:
    few, many = (tile_cycles("TROWMAX", Tile(rows, columns, size), A2) for rows in (8, 24))
    assert many - few == pytest.approx(row_max_cycles(24, columns, size) - row_max_cycles(8, columns, size))


def test_a_chain_and_pairs_join_every_repeat_once() -> None:
    """Each further repeat of a row is one more instruction, and one more tail to wait for."""
    for operation, wait in (("TROWMAX", 14 + 1), ("TROWSUM", 16 + 1)):
        apart = [tile_cycles(operation, Tile(1, 64 * repeats, 4), A2) for repeats in range(2, 20)]
        steps = [after - before for before, after in pairwise(apart)]
        assert all(wait + 1 <= step <= wait + 2 + (operation == "TROWSUM") for step in steps)
        assert apart[-1] - apart[0] >= 17 * (wait + 1)


def test_short_rows_take_a_repeat_each_where_two_tiles_meet() -> None:
    added = [tile_cycles("TADD", Tile(rows, 32, 4), A2) for rows in (32, 64)]
    scaled = [tile_cycles("TMULS", Tile(rows, 32, 4), A2) for rows in (32, 64)]
    assert added[1] - added[0] == 32 * 2
    assert scaled[1] - scaled[0] == 32 / 2


def test_halves_are_twice_as_many_a_repeat_but_not_where_arithmetic_is_the_limit() -> None:
    for operation, ratio in (("TMULS", 0.5), ("TSUB", 0.5), ("TEXP", 1.0), ("TDIV", 1.0)):
        longer = [
            tile_cycles(operation, Tile(64, 128, size), A2) - tile_cycles(operation, Tile(32, 128, size), A2) for size in (4, 2)
        ]
        assert longer[1] / longer[0] == pytest.approx(ratio)


def test_more_repeats_than_an_instruction_counts_pay_the_counter_mode_once() -> None:
    below, above = (tile_cycles("TMULS", Tile(rows, 64, 4), A2) for rows in (255, 256))
    assert above - below == 1 + 16


def test_every_operation_takes_longer_on_more_rows() -> None:
    for operation in operations():
        times = [tile_cycles(operation, Tile(rows, 64, 4), A2) for rows in (1, 2, 16, 17)]
        assert times == sorted(times)
        assert times[0] < times[-1]
        assert all(math.isfinite(time) and time > 0 for time in times)


@pytest.mark.parametrize(
    ("operation", "tile", "words"),
    [
        ("TSORT", Tile(8, 64, 4), "TROWMAX"),
        ("TADD", Tile(8, 64, 1), "float16"),
        ("TADD", Tile(0, 64, 4), "0 x 64"),
        ("TADD", Tile(8, 61, 4), "32 bytes"),
        ("TADD", Tile(1024, 64, 4), "fewer rows"),
    ],
)
def test_what_has_no_numbers_says_so(operation: str, tile: Tile, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tile_cycles(operation, tile, A2)


def test_chips_with_another_vector_core_are_refused() -> None:
    with pytest.raises(ValueError, match="910B"):
        tile_cycles("TADD", Tile(8, 64, 4), A5)
    assert tile_cycles("TADD", Tile(8, 64, 4), replace(A2, name="mine")) > 0
