"""Gradients of every depth on every block, against those of each tiling by itself and finite differences."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax import SMOOTH, STRAIGHT_THROUGH, Attention, Tiling, Verdict, kernel_for, load_chip
from ascend_jax._compile import SELDOM
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.evaluate import model
from ascend_jax.cost.overlap import PIPELINED
from ascend_jax.rounding import Rounding
from ascend_jax.workload.problem import problem
from tiling_search.slopes import SIZES, GridSlopes, grid_slopes
from tiling_search.space import BLOCK_FIELDS, DEPTH_FIELDS

WORK = Attention(batch=1, q_heads=20, kv_heads=20, q_len=2048, kv_len=2048, head_dim=128)
"""With blocks that divide the lengths, nothing is rounded on the 20 cores of 910B3."""
CHIPS = ("910B3", pytest.param("310P3", marks=pytest.mark.slow))
DEPTHS = np.array([[1, 1, 1, 1, 0], [2, 2, 2, 2, 1], [4, 4, 3, 3, 2], [1, 2, 1, 2, 0]], float)
EVEN = [[rows, keys, 16, slots, 1] for rows, keys in ((32, 128), (32, 256), (64, 128), (48, 128)) for slots in (1, 2)]
LATTICE = np.array([*EVEN, [48, 80, 16, 2, 4], [4096, 4096, 64, 2, 1]], float)
"""After those that divide the lengths one that divides nothing, and one that fits nowhere."""
BLOCKS = np.concatenate([LATTICE, LATTICE * [1.0137, 0.9911, 1.0071, 1, 1]])
"""Beside the lattice no two limits of these are equal. Where two are (Cube and MTE1 at 64 by 256), whose slope it is depends on
the last bit, in which two programs differ."""
PAIRS = [np.repeat(BLOCKS, len(DEPTHS), axis=0), np.tile(DEPTHS, (len(BLOCKS), 1))]


@cache
def found(chip: str) -> GridSlopes:
    return jax.device_get(grid_slopes(load_chip(chip), WORK, BLOCKS, DEPTHS))


def one_by_one(chip: str, rounding: Rounding, blocks: np.ndarray, depths: np.ndarray) -> tuple[np.ndarray, ...]:
    """Seconds, verdicts and gradients by the sizes of pairs of rows, each in reverse mode by itself."""
    columns = tuple(map(jnp.asarray, blocks.T))
    (value, verdict), slope = program(chip, rounding)(columns[:3], columns[3:], tuple(map(jnp.asarray, depths.T)))
    return np.asarray(value), np.asarray(verdict), np.stack(slope, axis=-1)


@cache
def program(chip: str, rounding: Rounding) -> Any:
    spec = load_chip(chip)
    numbers, given, kernel = as_arrays(spec), problem(WORK), kernel_for(spec, "auto")

    def seconds(sizes: Any, rest: Any, depth: Any) -> Any:
        fields = dict(zip(BLOCK_FIELDS, (*sizes, *rest), strict=True)) | dict(zip(DEPTH_FIELDS, depth, strict=True))
        tiling = Tiling(l0_depth=jnp.full_like(rest[0], 2.0), **fields)
        found = model(numbers, given, tiling, kernel, PIPELINED, rounding)
        return found.seconds, found.occupancy.verdict

    return jax.jit(jax.vmap(jax.value_and_grad(seconds, has_aux=True)), compiler_options=SELDOM)


@pytest.mark.parametrize("chip", CHIPS)
def test_the_grid_gives_what_reverse_mode_gives_one_by_one(chip: str) -> None:
    seconds, verdicts, slopes = one_by_one(chip, STRAIGHT_THROUGH, *PAIRS)
    fits, nowhere = verdicts == Verdict.FITS, len(PAIRS[0]) // 2 - len(DEPTHS)
    assert fits.sum() >= len(DEPTHS) and not fits[nowhere:].any()
    assert np.array_equal(found(chip).verdicts.ravel(), verdicts)
    np.testing.assert_allclose(found(chip).seconds.ravel(), seconds, rtol=1e-12)
    beside = found(chip).slopes.reshape(slopes.shape)[len(slopes) // 2 :], slopes[len(slopes) // 2 :]
    np.testing.assert_allclose(*beside, rtol=1e-9, atol=1e-18)
    assert np.count_nonzero(beside[0]) > beside[0].size // 2


@pytest.mark.slow
def test_where_nothing_is_rounded_and_nothing_breaks_the_slope_is_that_of_finite_differences() -> None:
    """There the model without rounding has the same value; its slopes to the left and to the right agree off the kinks."""
    step, checked = 1e-4, 0
    here, seconds = one_by_one("910B3", SMOOTH, *PAIRS)[0], found("910B3").seconds.ravel()
    level = np.flatnonzero(np.isclose(here, seconds, rtol=1e-12))
    for size in range(len(SIZES)):
        away = step * np.eye(len(BLOCK_FIELDS))[size]
        ahead, behind = (one_by_one("910B3", SMOOTH, PAIRS[0] + off, PAIRS[1])[0][level] for off in (away, -away))
        right, left = (ahead - here[level]) / step, (here[level] - behind) / step
        smooth = np.isclose(left, right, rtol=1e-4, atol=1e-14)
        slopes = found("910B3").slopes.reshape(-1, len(SIZES))[level, size][smooth]
        np.testing.assert_allclose(slopes, (left[smooth] + right[smooth]) / 2, rtol=1e-5, atol=1e-13)
        checked += np.count_nonzero(slopes)
    assert checked >= 8


@pytest.mark.parametrize(
    ("blocks", "depths", "message"),
    [
        (BLOCKS[:, :4], DEPTHS, r"blocks has shape \(20, 4\)"),
        (BLOCKS, DEPTHS[0], r"depths has shape \(5,\)"),
        (BLOCKS * 0, DEPTHS, r"blocks has the row \[0.0, 0.0"),
        (BLOCKS, DEPTHS * np.nan, "depths has the row"),
    ],
)
def test_bad_rows_are_named(blocks: np.ndarray, depths: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grid_slopes(load_chip("910B3"), WORK, blocks, depths)
