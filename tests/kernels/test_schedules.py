"""Kernels that exist, as data: the order of issue, paths and slots that their sources describe; the vendor's rule."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ascend_jax import EXACT, Attention, Mask, Verdict, evaluate, kernel_for, load_chip
from ascend_jax._pytree import as_arrays
from ascend_jax.kernels.cube_vector import CubeVector
from ascend_jax.kernels.geometry import geometry
from ascend_jax.kernels.schedules import SCHEDULES
from ascend_jax.proposal import check, propose
from ascend_jax.tiling.cann import cann_kernel, cann_tiling
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.problem import problem

PLAIN = Attention(batch=1, q_heads=32, kv_heads=32, q_len=4096, kv_len=4096, head_dim=128)
DECODE = Attention(batch=60, q_heads=32, kv_heads=8, q_len=1, kv_len=2048, head_dim=128)
LATENT = Attention(batch=4, q_heads=128, kv_heads=1, q_len=256, kv_len=512, head_dim=576, value_dim=512, latent=True)


def test_a_group_issues_each_stage_for_all_its_tiles_and_fixpipe_stays_with_its_product() -> None:
    """C1[0], C1[1], C2[0], C2[1] on the Cube; V1[0], V1[1], V2[0], V2[1] on the Vector (cann-samples, v3)."""
    order = SCHEDULES["falite_v3"].graph.issue_order(2)
    cube = [("mm_qk", 0), ("fix_s", 0), ("mm_qk", 1), ("fix_s", 1), ("mm_pv", 0), ("fix_o", 0), ("mm_pv", 1), ("fix_o", 1)]
    assert order["Cube + FixPipe"] == cube
    assert order["Vector"] == [("softmax", 0), ("softmax", 1), ("rescale", 0), ("rescale", 1)]
    overlapped = SCHEDULES["falite_v4"].graph.issue_order(2)
    assert overlapped["Cube"] == [("mm_qk", 0), ("mm_qk", 1), ("mm_pv", 0), ("mm_pv", 1)]
    assert overlapped["FixPipe"] == [("fix_s", 0), ("fix_s", 1), ("fix_o", 0), ("fix_o", 1)]


@pytest.mark.parametrize(
    ("name", "crossings"), [("falite_v0", {"S", "P", "O"}), ("falite_v1", {"P"}), ("falite_v2", set()), ("falite_v8", set())]
)
def test_each_version_crosses_gm_where_its_source_says(name: str, crossings: set[str]) -> None:
    graph = SCHEDULES[name].graph
    assert {flow.buffer[0] for flow in graph.flows if flow.buffer and "workspace" in flow.buffer} == crossings


def test_versions_differ_from_the_one_before_in_what_their_source_names() -> None:
    def changes(one: str, other: str) -> set[str]:
        first, second = vars(SCHEDULES[one]), vars(SCHEDULES[other])
        return {key for key in first if first[key] != second[key]} - {"name"}

    assert changes("falite_v0", "falite_v1") == {"scores", "outs"}
    assert changes("falite_v1", "falite_v2") == {"probs"}
    assert changes("falite_v2", "falite_v3") == {"issue", "group"}
    assert changes("falite_v3", "falite_v4") == {"fixpipe_waits"}
    assert changes("falite_v4", "falite_v5") == {"v_load", "q_slots", "o_slots"}
    assert changes("falite_v5", "falite_v8") == {"issue", "group", "fused"}


def test_a_path_of_the_950_is_asked_for_and_a_910b_refused() -> None:
    on_chip = CubeVector("mixed", scores="UB", outs="GM")
    assert set(on_chip.needs) == {"l0c_to_gm_bytes_per_s", "l0c_to_ub_bytes_per_s"}
    assert on_chip.runs_on == ("direct",)
    with pytest.raises(ValueError, match=r"falite_v1.*direct.*separated"):
        kernel_for(load_chip("910B2"), "falite_v1")


@pytest.mark.parametrize(
    ("chip", "work", "block_q", "block_kv"),
    [
        ("910B2", PLAIN, 128, 512),
        ("910B2", DECODE, 16, 1024),
        ("910B2", LATENT, 256, 512),
        ("950PR", PLAIN, 128, 128),
        ("950PR", DECODE, 16, 128),
    ],
)
def test_the_vendors_rule_gives_its_blocks(chip: str, work: Attention, block_q: int, block_kv: int) -> None:
    tiling = cann_tiling(load_chip(chip), work)
    assert (tiling.block_q, tiling.block_kv) == (block_q, block_kv)


def test_flash_attention_score_takes_1024_keys_and_64_rows_where_128_leave_vector_cores_idle() -> None:
    """arch22: s1 64 unless B·N·⌈S1/64⌉ is more than the vector cores; s2 128 × nRatio 8; 8 × 1024 scores a vector step."""
    spec = load_chip("910B2")
    few = Attention(batch=1, q_heads=1, kv_heads=1, q_len=2048, kv_len=4096, head_dim=128)
    large, small = (cann_tiling(spec, work, "FlashAttentionScore") for work in (PLAIN, few))
    assert (large.block_q, large.block_kv, large.vector_rows) == (128, 1024, 8)
    assert small.block_q == 64
    assert cann_kernel("separated", PLAIN, "FlashAttentionScore") == "flash_attention_score"
    assert cann_kernel("coupled", PLAIN) == "coupled"


@pytest.mark.parametrize("chip", ["910A", "910B2", "910B4", "950PR"])
@pytest.mark.parametrize("work", [PLAIN, DECODE, LATENT], ids=["plain", "decode", "latent"])
def test_the_rule_cann_is_proposed_with_its_own_kernel(chip: str, work: Attention) -> None:
    spec = load_chip(chip)
    kernel = kernel_for(spec, cann_kernel(spec.architecture, work))
    found = propose(spec, work, rule="cann", kernel=kernel)
    assert found.verdict is Verdict.FITS, found.message
    assert found.tried[0] == cann_tiling(spec, work)


def test_v_that_is_part_of_k_takes_no_room_and_no_second_read() -> None:
    spec, tiling = load_chip("950PR"), Tiling(block_q=128, block_kv=128, vector_rows=16)
    apart = Attention(batch=4, q_heads=128, kv_heads=1, q_len=256, kv_len=512, head_dim=576, value_dim=512)
    both, one = (evaluate(spec, work, tiling, kernel="cann_direct_wide") for work in (apart, LATENT))
    moved = {name: (float(both.path_bytes[name]), float(one.path_bytes[name])) for name in ("gm_to_l1", "l0c_to_ub")}
    queries = 4 * 128 * 256 * 576 * 2
    tiles = float(one.blocks_computed)
    assert moved["gm_to_l1"] == (queries + tiles * 128 * (576 + 512) * 2, queries + tiles * 128 * 576 * 2)
    assert moved["l0c_to_ub"][0] == moved["l0c_to_ub"][1]
    assert float(one.occupancy.buffer_bytes["L1"]["V"]) == 0 < float(both.occupancy.buffer_bytes["L1"]["V"])
    assert check(spec, LATENT, cann_tiling(spec, LATENT), "cann_direct_wide")[0] is Verdict.FITS


def test_a_latent_v_wider_than_k_is_refused() -> None:
    with pytest.raises(ValueError, match="value_dim=640 must be at most head_dim=576"):
        Attention(batch=1, q_heads=1, kv_heads=1, q_len=1, kv_len=1, head_dim=576, value_dim=640, latent=True)


def test_keys_that_a_mask_hides_are_left_out_in_pieces_where_a_kernel_trims() -> None:
    """Causal 1024 × 1024 in blocks of 128 × 1024: 8 rows of 1 to 8 pieces of 128 keys, 4.5 on average."""
    work = Attention(batch=1, q_heads=1, kv_heads=1, q_len=1024, kv_len=1024, head_dim=128, mask=Mask(kind="causal"))
    given, lengths = problem(work)
    spec, tiling = as_arrays(load_chip("910B2")), as_arrays(Tiling(block_q=128, block_kv=1024))
    whole, trimmed = (geometry(spec, given, tiling, lengths, EXACT, rows) for rows in (0, 128))
    assert (float(whole.keys), float(trimmed.keys)) == (1024, 4.5 * 128)
    assert float(whole.tiles) == float(trimmed.tiles) == 8
    assert np.all(np.isfinite(jnp.stack(jax.tree.leaves(trimmed))))


def test_fixpipe_behind_the_cube_in_one_queue_needs_a_slot_for_every_piece_of_a_tile() -> None:
    """Blocks of 256 × 256 leave L0C in four pieces; a queue that issues FixPipe after the whole product has but one slot."""
    spec = load_chip("950PR")
    one, four = (Tiling(block_q=size, block_kv=size, vector_rows=64, l0_depth=1, preload=0, ub_depth=1) for size in (128, 256))
    slim = replace_slots(one), replace_slots(four)
    verdicts = [int(evaluate(spec, PLAIN, tiling, kernel="falite_v2").occupancy.verdict) for tiling in slim]
    assert verdicts == [Verdict.FITS, Verdict.UB_OVERFLOW]
    narrow = replace(slim[1], block_q=64)
    assert int(evaluate(spec, PLAIN, narrow, kernel="falite_v2").occupancy.verdict) == Verdict.PIPELINE_DEADLOCK


def replace_slots(tiling: Tiling) -> Tiling:
    """One slot of everything."""
    return replace(tiling, kv_depth=1, score_depth=1, prob_depth=1, out_depth=1)
