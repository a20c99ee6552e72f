"""From rows to cases: chip, shape, kernel and tiling that each row stands for, and what has no case."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ascend_jax import Verdict, evaluate
from ascend_jax.calibration.assume import FALITE, Unmodelled, assume
from ascend_jax.calibration.predict import predict, seconds
from ascend_jax.calibration.rows import Row
from ascend_jax.proposal import check

SHAPE: dict[str, Any] = {"batch": 2, "q_heads": 8, "kv_heads": 2, "q_seq": 512, "kv_seq": 1024, "head_dim": 128}
PLAIN = Row(id="r", value=100.0, unit="us", op="FIA (bench)", category="attention", catalog_chip="910B2", dtype="bf16", **SHAPE)
FALITE_SHAPE: dict[str, Any] = {"batch": 1, "q_heads": 1, "kv_heads": 1, "q_seq": 32768, "kv_seq": 32768}


def falite(version: str, **changes: Any) -> Row:
    return replace(PLAIN, op=f"FA falite_{version}", catalog_chip="950PR", **(FALITE_SHAPE | changes))


def test_a_vendors_operator_takes_the_vendors_rule() -> None:
    case = assume(replace(PLAIN, causal=True, layout="BSND"))
    assert (case.kernel.name, case.group) == ("cann_separated", "CANN prefill")
    assert (case.work.q_heads, case.work.kv_heads, case.work.mask.kind, case.work.layout) == (8, 2, "causal", "BSND")
    assert case.tiling is not None and case.tiling.block_kv == 512
    assert assume(replace(PLAIN, op="npu_fusion_attention")).kernel.name == "flash_attention_score"
    assert assume(replace(PLAIN, q_seq=1)).group == "CANN decode"
    assert assume(replace(PLAIN, catalog_chip="950PR")).kernel.name == "cann_direct"
    assert assume(replace(PLAIN, catalog_chip="910A", dtype="fp16")).kernel.name == "coupled"


def test_mla_reads_one_tensor_for_k_and_v() -> None:
    latent = replace(PLAIN, op="MLA (bench)", q_heads=128, kv_heads=1, q_seq=1, head_dim=576)
    case = assume(latent)
    assert (case.work.latent, case.work.head_dim, case.work.value_dim, case.group) == (True, 576, 512, "CANN MLA")
    shapes = ((2, 1, 128, 256), (2, 1, 128, 64), (2, 1024, 1, 256), (2, 1024, 1, 64), (2, 1024, 1, 256))
    assert assume(replace(latent, head_dim=320, input_shape=shapes)).work.value_dim == 256


@pytest.mark.parametrize("version", FALITE)
def test_each_schedule_of_the_teaching_kernel_runs_and_fits(version: str) -> None:
    case = assume(falite(version))
    assert case.kernel.name == f"falite_{version}" and case.spec.cube_cores == 28
    assert case.tiling is not None
    assert check(case.spec, case.work, case.tiling, case.kernel)[0] is Verdict.FITS
    assert assume(falite(version, q_seq=131072, kv_seq=131072)).spec.cube_cores == 32


@pytest.mark.slow
def test_the_ladder_of_schedules_only_climbs() -> None:
    """Each version of the kernel is faster than the one before, by what its schedule, paths and fusion change."""
    times = [one.seconds for one in predict([assume(falite(version)) for version in FALITE])]
    assert times == sorted(times, reverse=True)
    before = assume(falite("v8", note="v8 schedule BEFORE VF fusion"))
    fused, unfused = predict([assume(falite("v8")), before])
    assert unfused.seconds > fused.seconds


def test_other_kernels_take_their_stated_blocks_or_the_tuners() -> None:
    stated = assume(replace(PLAIN, op="FA TileLang expert", tiling="block 64x128"))
    assert stated.tiling is not None
    assert (stated.tiling.block_q, stated.tiling.block_kv, stated.group) == (64, 128, "TileLang")
    assert assume(replace(PLAIN, op="FA of someone")).tiling is None
    deep = assume(replace(PLAIN, op="FA PTO JIT kernel"))
    assert deep.tiling is not None and (deep.tiling.block_q, deep.tiling.block_kv) == (128, 256)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"category": "gemm"}, "category 'gemm'"),
        ({"op": "BSA sparse"}, "sparse"),
        ({"head_dim": None}, "lacks head_dim"),
        ({"dtype": "fp8"}, "dtype 'fp8'"),
        ({"catalog_chip": None}, "names no chip"),
        ({"catalog_chip": "910Z"}, "no chip is called '910Z'"),
        ({"op": "falite_v6"}, "schedules known are v0"),
        ({"kv_heads": 3}, "q_heads=8 must be a multiple"),
        ({"op": "TileLang", "tiling": "block 8x8"}, "8 × 8 do not run"),
        ({"op": "TileLang", "tiling": "block 4096x4096"}, "4096 × 4096 do not run .*overflow"),
    ],
)
def test_a_row_without_a_case_says_why(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Unmodelled, match=why):
        assume(replace(PLAIN, **changes))


@pytest.mark.slow
def test_cases_predicted_together_are_those_predicted_one_by_one() -> None:
    rows = [
        PLAIN,
        replace(PLAIN, causal=True, dtype="fp16", kv_seq=3000),
        replace(PLAIN, catalog_chip="910B3", q_seq=1),
        replace(PLAIN, catalog_chip="950PR"),
        falite("v3"),
    ]
    cases = [assume(row) for row in rows]
    found = predict(cases)
    for case, one in zip(cases, found, strict=True):
        assert case.tiling is not None
        alone = evaluate(case.spec, case.work, case.tiling, kernel=case.kernel)
        assert one.seconds == pytest.approx(float(alone.seconds), rel=1e-9)
        assert one.bound_by == alone.bound_by
    traced = seconds(cases, {case.spec.name: case.spec for case in cases})
    np.testing.assert_allclose(traced, [one.seconds for one in found], rtol=1e-9)


def test_a_case_without_a_tiling_is_refused_with_its_row() -> None:
    with pytest.raises(ValueError, match="rows r have no tiling"):
        predict([assume(replace(PLAIN, op="FA of someone"))])
