"""The planning helper for UB: it accepts what occupancy accepts, places without overlap, and shrinks only as far as it must."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ascend_jax.hardware import load_chip
from ascend_jax.kernels.ub_resident import UbResident
from ascend_jax.occupancy import occupancy
from ascend_jax.runtime.errors import AclError
from ascend_jax.runtime.memory.ub_plan import plan_ub
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.sequences import sequences


def attention(head_dim: int, dtype: str = "float16", length: int = 512) -> Attention:
    return Attention(batch=1, q_heads=8, kv_heads=8, q_len=length, kv_len=length, head_dim=head_dim, dtype=dtype)


def square(block: int) -> Tiling:
    """The articles' tiling: one slot of everything."""
    return Tiling(block_q=block, block_kv=block, kv_depth=1, score_depth=1)


def verdict_of(chip: str, work: Attention, tiling: Tiling) -> Verdict:
    return Verdict(int(occupancy(load_chip(chip), work, sequences(work), tiling, UbResident()).verdict))


@settings(max_examples=25)
@given(
    chip=st.sampled_from(["910a", "910b3", "310p3", "950pr_958x"]),
    head_dim=st.sampled_from([16, 40, 64, 128, 192, 576]),
    dtype=st.sampled_from(["float16", "float32"]),
    blocks=st.tuples(st.integers(0, 24), st.integers(0, 24)),
    uneven=st.sampled_from([0, 0, 0, 8]),
    depth=st.integers(1, 2),
)
def test_it_accepts_what_occupancy_accepts(
    chip: str, head_dim: int, dtype: str, blocks: tuple[int, int], uneven: int, depth: int
) -> None:
    work = attention(head_dim, dtype)
    tiling = Tiling(block_q=16 * blocks[0] + uneven, block_kv=16 * blocks[1], kv_depth=depth, score_depth=depth)
    fits = verdict_of(chip, work, tiling) is Verdict.FITS
    try:
        plan = plan_ub(load_chip(chip), work, tiling, degrade=False)
    except AclError as error:
        assert error.code == 561002 and not fits
        return
    assert fits and not plan.degraded
    placed = [(buffer.offset, buffer.offset + buffer.size) for buffer in plan.buffers.values()]
    assert all(start % 128 == 0 for start, _ in placed)
    assert all(before[1] == after[0] for before, after in pairwise(placed))
    assert placed[0][0] == 0 and placed[-1][1] == plan.used <= plan.capacity


@pytest.mark.parametrize(
    ("head_dim", "block", "bytes_asked", "first_that_fits"),
    [(64, 400, 524_800, 256), (128, 192, 270_336, 176), (256, 96, 215_040, 96)],
)
def test_the_articles_examples(head_dim: int, block: int, bytes_asked: int, first_that_fits: int) -> None:
    """Blocks of the articles' tiling on a UB of 256 KiB: theirs counts five equal buffers, so most must shrink; (10000, 256),
    which one of them calls out of memory, fits."""
    plan = plan_ub(load_chip("910a"), attention(head_dim), square(block))
    assert plan.steps[0] == (block, block, bytes_asked)
    assert (plan.tiling.block_q, plan.tiling.block_kv) == (first_that_fits, first_that_fits)
    assert [step[0] for step in plan.steps] == list(range(block, first_that_fits - 1, -16))
    for larger, _, _ in plan.steps[:-1]:
        assert verdict_of("910a", attention(head_dim), square(larger)) is Verdict.UB_OVERFLOW


def test_one_block_stops_at_16_and_the_other_goes_on() -> None:
    tiling = Tiling(block_q=32, block_kv=400, kv_depth=1, score_depth=1)
    plan = plan_ub(load_chip("910b3"), attention(256), tiling)
    assert plan.steps[:3] == ((32, 400, 467_968), (16, 384, 421_888), (16, 368, 404_992))
    assert (plan.tiling.block_q, plan.tiling.block_kv) == (16, 160)


def test_blocks_also_shrink_for_a_small_l1() -> None:
    spec = replace(load_chip("910a"), l1_bytes=65_536.0)
    plan = plan_ub(spec, attention(64), square(256))
    assert 16 < plan.tiling.block_q < 256 and plan.steps[0][2] <= plan.capacity


def test_what_does_not_fit_at_16_is_out_of_memory() -> None:
    with pytest.raises(AclError) as caught:
        plan_ub(load_chip("910a"), attention(2048), square(64))
    error = caught.value
    assert (error.code, error.category) == (561002, "EZ9999")
    assert error.what.startswith("UB_OOM: UB overflow: 262,656 bytes asked, 262,144 available (512 too many")
    assert error.what.endswith("(block_q=16, block_kv=16, the last of 4 tried)")


@pytest.mark.parametrize(
    ("tiling", "text"),
    [
        (square(40), "TILING_FAILED: block not aligned: "),
        (square(0), "TILING_FAILED: block too small: "),
        (Tiling(block_q=64, block_kv=64, kv_depth=0), "TILING_FAILED: block too small: "),
    ],
)
def test_what_smaller_blocks_cannot_cure_is_said_at_once(tiling: Tiling, text: str) -> None:
    with pytest.raises(AclError) as caught:
        plan_ub(load_chip("910b3"), attention(64), tiling)
    assert caught.value.what.startswith(text) and "tried" not in caught.value.what
