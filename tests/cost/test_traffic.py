"""Bytes over GM and L2: what L2 serves, and that nothing is counted twice or forgotten."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cost_cases import SENSIBLE, attention, pipelined

from ascend_jax import NpuSpec, Report, load_chip
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.traffic import Hits, Traffic, transfer_traffic
from ascend_jax.kernels.kernel import Path, Stream, Transfer

CHIP = load_chip("950PR")


def with_l2(l2_bytes: float) -> NpuSpec:
    return replace(CHIP, l2_bytes=l2_bytes)


def direct(spec: NpuSpec, **changes: Any) -> Report:
    return pipelined(spec, attention(**changes), SENSIBLE["direct"], "direct")


def tensors(q_heads: int, kv_heads: int, q_len: int, kv_len: int) -> tuple[int, int]:
    """Bytes of Q with O, and of K with V (two bytes an element, 128 columns each)."""
    return q_heads * q_len * 256 * 2, kv_heads * kv_len * 256 * 2


@pytest.mark.parametrize("heads", [(8, 8), (8, 2), (8, 1)])
def test_with_room_in_l2_q_k_and_v_pass_gm_once_and_o_stays(heads: tuple[int, int]) -> None:
    q_heads, kv_heads = heads
    found = direct(with_l2(1e12), q_heads=q_heads, kv_heads=kv_heads, q_len=4096, kv_len=2048)
    rows, keys = tensors(q_heads, kv_heads, 4096, 2048)
    np.testing.assert_allclose(found.path_bytes["gm"], rows / 2 + keys, rtol=1e-12)
    np.testing.assert_allclose(found.path_bytes["l2"], rows / 2 + keys * (4096 / 128 * q_heads / kv_heads - 1), rtol=1e-12)


def test_without_l2_every_read_passes_gm() -> None:
    found = direct(with_l2(1.0), q_len=4096, kv_len=2048)
    rows, keys = tensors(8, 8, 4096, 2048)
    np.testing.assert_allclose(found.path_bytes["gm"], rows + keys * 4096 / 128, rtol=1e-6)
    np.testing.assert_allclose(found.path_bytes["l2"], 0, atol=1e-3 * keys)


def test_what_l2_holds_moves_bytes_between_gm_and_l2_and_makes_none() -> None:
    totals, gm = [], []
    for l2_bytes in (1.0, 1e5, 1e6, 4e6, 1e7, 1e9):
        moved = direct(with_l2(l2_bytes), q_len=4096, kv_len=8192).path_bytes
        totals.append(float(moved["gm"] + moved["l2"]))
        gm.append(float(moved["gm"]))
    np.testing.assert_allclose(totals, totals[0], rtol=1e-12)
    assert gm == sorted(gm, reverse=True)
    assert gm[0] > gm[-1]


def test_bytes_over_gm_and_l2_are_those_of_the_paths_that_leave_the_core() -> None:
    for kernel, chip in (("direct", "950PR"), ("separated", "910B3")):
        moved = pipelined(chip, attention("causal", q_len=3000, kv_len=4000), SENSIBLE[kernel], kernel).path_bytes
        outside = sum(size for name, size in moved.items() if "_" in name and "gm" in name)
        np.testing.assert_allclose(moved["gm"] + moved["l2"], outside, rtol=1e-12, err_msg=kernel)


def test_scores_cross_the_workspace_twice_as_float32() -> None:
    """``separated`` writes S and ΔO as float32 and P as half floats, and reads each once; O takes its own way out."""
    heads, q_len, kv_len, dim = 8, 1024, 2048, 128
    moved = pipelined("910B3", attention(q_len=q_len, kv_len=kv_len), SENSIBLE["separated"], "separated").path_bytes
    scores, outputs = heads * q_len * kv_len, heads * q_len * dim * (kv_len / 256)
    np.testing.assert_allclose(moved["l0c_to_gm"], 4 * (scores + outputs), rtol=1e-12)
    np.testing.assert_allclose(moved["gm_to_ub"], 4 * (scores + outputs), rtol=1e-12)
    np.testing.assert_allclose(moved["ub_to_gm"], 2 * scores + 2 * heads * q_len * dim, rtol=1e-12)
    loads = heads * q_len * dim * 2 + q_len / 128 * heads * kv_len * 2 * dim * 2
    np.testing.assert_allclose(moved["gm_to_l1"], loads + 2 * scores, rtol=1e-12)


def test_a_workspace_that_l2_cannot_hold_spills_into_gm() -> None:
    spec, work = load_chip("910B3"), attention(q_len=4096, kv_len=4096)
    roomy, tight = (pipelined(replace(spec, l2_bytes=size), work, SENSIBLE["separated"], "separated") for size in (1e12, 2e6))
    assert tight.path_bytes["gm"] > 2 * roomy.path_bytes["gm"]
    assert tight.seconds > roomy.seconds


@pytest.mark.parametrize(
    ("stream", "gm", "l2"),
    [
        ("q", 1.0, 0.0),
        ("out", 0.6, 0.4),
        ("mask", 0.0, 1.0),
        ("again", 0.0, 1.0),
        ("kv", 0.25, 0.75),
        ("workspace", 0.9, 0.1),
        ("chip", 0.0, 0.0),
    ],
)
def test_each_stream_has_its_share_of_gm_and_l2(stream: Stream, gm: float, l2: float) -> None:
    hit: dict[str, Any] = {"kv": 0.75, "workspace": 0.1, "out": 0.4}
    spec = replace(CHIP, dma_burst_gap_bytes=10.0, nd2nz_burst_gap_bytes=50.0)
    gap_bytes: dict[Path, int] = {"gm_to_ub": 10, "gm_to_l1": 50}
    for path, gap in gap_bytes.items():
        transfer = Transfer(path=path, stream=stream, bursts=3, burst_bytes=100, units=2)
        given: Any = as_arrays((spec, transfer, Hits(**hit), 20))
        found = transfer_traffic(*given)
        gaps = 3 * 2 * 20 * gap
        np.testing.assert_allclose(found, (gm * 12_000, l2 * 12_000, gm * gaps, l2 * gaps), rtol=1e-12)


def test_misses_and_hits_take_their_times_one_after_the_other() -> None:
    spec = as_arrays(replace(CHIP, gm_bytes_per_s=1e12, l2_bytes_per_s=4e12))
    sizes: Any = as_arrays((1.5e9, 6e9, 0.5e9, 2e9))
    np.testing.assert_allclose(Traffic(*sizes).seconds(spec), 2e-3 + 2e-3, rtol=1e-12)


def test_what_is_written_stays_in_l2_in_the_share_that_it_holds() -> None:
    rows, keys = tensors(8, 8, 4096, 2048)
    for share in (0.25, 0.5, 1.0):
        found = direct(with_l2(share * (rows + keys)), q_len=4096, kv_len=2048)
        assert found.path_bytes["gm"] >= rows / 2 + keys + (1 - share) * rows / 2 * (1 - 1e-12)
