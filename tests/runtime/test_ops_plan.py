"""The layered fallback: each layer where it is needed, and the end of it."""

import logging

import pytest

from ascend_jax.attention.errors import TilingError
from ascend_jax.hardware import load_chip
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.proposal import check
from ascend_jax.runtime.errors import OpErrorCode
from ascend_jax.runtime.ops.failures import UbOutOfMemoryError, op_error_of
from ascend_jax.runtime.ops.operator import Choice
from ascend_jax.runtime.ops.plan import layered_plan
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import Verdict
from ascend_jax.workload.attention import Attention

SINGLE = dict.fromkeys(("kv_depth", "score_depth", "prob_depth", "out_depth", "ub_depth", "l0_depth"), 1)


def work(head_dim: int = 128, q_len: int = 512, batch: int = 1) -> Attention:
    return Attention(batch=batch, q_heads=8, kv_heads=8, q_len=q_len, kv_len=q_len, head_dim=head_dim)


def resident(block: int, **depths: int) -> Choice:
    """The articles' dataflow with square blocks."""
    return Tiling(block_q=block, block_kv=block, preload=0, **(SINGLE | depths)), "ub_resident"


def test_a_tiling_that_fits_is_taken_as_it_is() -> None:
    plan = layered_plan(load_chip("910A"), work(), lambda spec, work: resident(128))
    assert (plan.tiling.block_q, plan.kernel) == (128, "ub_resident")
    assert plan.steps == ("tiling: block_q=128, block_kv=128: fits",)


def test_blocks_shrink_by_16_until_they_fit(caplog: pytest.LogCaptureFixture) -> None:
    """By hand: 2 B · (4 · 128 · b + b²) ≤ 262144 B holds for b = 176, not for 192."""
    with caplog.at_level(logging.INFO, "ascend_jax.runtime"):
        plan = layered_plan(load_chip("910A"), work(), lambda spec, work: resident(256))
    assert plan.tiling.block_q == 176
    assert [step.split(":")[0] for step in plan.steps] == ["tiling", "smaller blocks, 5 steps of 16"]
    assert "UB overflow: 393,216 bytes asked, 262,144 available" in plan.steps[0]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_padding_and_tiling_anew_saves_what_many_slots_overflow() -> None:
    """D = 1000 with four slots of K and V: even blocks of 16 overflow; with one slot, D = 1008, they fit."""
    spec, wide = load_chip("910A"), work(1000, q_len=500)
    plan = layered_plan(spec, wide, lambda spec, work: resident(64, kv_depth=4))
    assert [step.split(":")[0] for step in plan.steps] == [
        "tiling",
        "smaller blocks, 3 steps of 16",
        "pad to D=1008 and 512 × 512 rows, tile anew",
    ]
    assert int(plan.tiling.kv_depth) == 1
    assert check(spec, wide, plan.tiling, "ub_resident")[0] is Verdict.FITS


@pytest.mark.parametrize("choice", [lambda spec, work: resident(128), None])
def test_a_head_of_2048_fits_in_no_way(choice: object, caplog: pytest.LogCaptureFixture) -> None:
    """The articles' model by hand: 2 B · (4 · 2048 · 16 + 16²) = 262656 B, 512 too many. So it is with the chip's own."""
    arguments = () if choice is None else (choice,)
    with caplog.at_level(logging.INFO, "ascend_jax.runtime"), pytest.raises(UbOutOfMemoryError) as caught:
        layered_plan(load_chip("910A"), work(2048), *arguments)  # pyright: ignore[reportArgumentType]
    assert caught.value.code == 561002
    assert op_error_of(caught.value) is OpErrorCode.UB_OOM
    assert "UB overflow" in str(caught.value)
    if choice is not None:
        assert "262,656 bytes asked, 262,144 available (512 too many" in str(caught.value)
    assert caplog.records[-1].getMessage().startswith("Plan: UB_OOM: ")


def test_the_articles_oom_example_fits() -> None:
    """seq 10000, D 256: its blocks of 96 take 215040 B of 262144 B."""
    plan = layered_plan(load_chip("910A"), work(256, q_len=10_000), lambda spec, work: resident(96))
    assert plan.steps == ("tiling: block_q=96, block_kv=96: fits",)


def test_tensors_larger_than_gm_are_no_matter_of_ub() -> None:
    with pytest.raises(TilingError, match="GM overflow") as caught:
        layered_plan(load_chip("910A"), work(128, q_len=1 << 20, batch=1 << 10))
    assert not isinstance(caught.value, UbOutOfMemoryError)
    assert op_error_of(caught.value) is OpErrorCode.TILING_FAILED


def test_a_tiling_alone_is_for_the_chips_own_kernel() -> None:
    def choose(spec: NpuSpec, work: Attention) -> Tiling:
        return Tiling(block_q=64, block_kv=128)

    assert layered_plan(load_chip("910B3"), work(), choose).kernel == "separated"
    assert layered_plan(load_chip("910B3"), work()).kernel == "flash_attention_score"
