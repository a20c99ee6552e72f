"""Rules: the articles' blocks as they come out, what the degrade loop makes of them, and an answer for every chip."""

from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from occupancy_oracle import Call, Chip, Cut, bytes_held, first_trouble, question, totals

from ascend_jax.hardware import NpuSpec, load_chip
from ascend_jax.kernels import kernel_for
from ascend_jax.proposal import Proposal, check, propose
from ascend_jax.tiling.rules import articles_block, articles_tiling, default_tiling, degrade
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import REMEDIES, Verdict
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask

KIB = 1024
COUPLED, SEPARATED, DIRECT = "910A", "910B3", "950PR_957x"
LONG = 16_384


def work_of(head_dim: int, q_len: Any = LONG, kv_len: Any = LONG, **more: Any) -> Attention:
    sizes: dict[str, Any] = {"batch": 1, "q_heads": 1, "kv_heads": 1, "head_dim": head_dim, "value_dim": head_dim}
    return Attention(**sizes | {"q_len": q_len, "kv_len": kv_len} | more)


def resident_bytes(block: int, head_dim: int) -> int:
    """Bytes in UB of the articles' five buffers, fp16, one slot each."""
    chip, call = Chip(0, 0, 65_536, 65_536, 262_144, 0, 1, 1), Call((), 1, 1, head_dim, head_dim, 2, False)
    return totals(bytes_held("ub_resident", chip, call, Cut(block, block, kv_depth=1, score_depth=1)))["UB"]


# head_dim: block at 256 KiB, its bytes, the block that is left at 256 and 192 KiB, the largest that fits there
TABLE = {
    64: (400, 524_800, (256, 208), (256, 208)),
    80: (320, 409_600, (224, 192), (224, 192)),
    128: (192, 270_336, (176, 144), (176, 144)),
    256: (96, 215_040, (96, 64), (112, 80)),
    512: (48, 201_216, (48, 32), (48, 32)),
}


@pytest.mark.parametrize("head_dim", TABLE)
def test_the_articles_rule_gives_these_blocks_of_which_the_wide_ones_fit(head_dim: int) -> None:
    block, held, *_ = TABLE[head_dim]
    assert articles_block(256 * KIB, head_dim) == block
    counted_by_the_rule = 5 * block * head_dim * 2
    assert counted_by_the_rule <= 256 * KIB < 5 * (block + 16) * head_dim * 2
    assert counted_by_the_rule == (250 if head_dim < 128 else 240) * KIB
    assert resident_bytes(block, head_dim) == held == (4 * block * head_dim + block * block) * 2
    found = propose(load_chip(COUPLED), work_of(head_dim), rule="articles", kernel="ub_resident")
    assert found.tried[0] == articles_tiling(256 * KIB, head_dim, LONG, LONG)
    assert (found.tried[0].block_q, found.tried[0].block_kv) == (block, block)
    assert (len(found.tried) == 1) == (held <= 256 * KIB) == (head_dim >= 256)


@pytest.mark.parametrize(
    ("head_dim", "q_len", "blocks"), [(64, 512, 2), (128, 2048, 11), (128, 4096, 22), (128, 8192, 43), (256, 10_000, 105)]
)
def test_the_articles_rule_cuts_sequences_into_so_many_blocks(head_dim: int, q_len: int, blocks: int) -> None:
    assert -(-q_len // articles_tiling(256 * KIB, head_dim, q_len, q_len).block_q) == blocks


@pytest.mark.parametrize("place", [0, 1], ids=["256 KiB", "192 KiB"])
@pytest.mark.parametrize("head_dim", TABLE)
def test_the_degrade_loop_ends_at_these_blocks(head_dim: int, place: int) -> None:
    """At 256 wide it leaves room: it starts from a block that fits and never grows."""
    size = (256, 192)[place] * KIB
    _, _, degraded, largest = TABLE[head_dim]
    found = propose(replace(load_chip(COUPLED), ub_bytes=size), work_of(head_dim), rule="articles", kernel="ub_resident")
    assert found.verdict is Verdict.FITS and found.message == "fits"
    assert (found.tiling.block_q, found.tiling.block_kv) == (degraded[place], degraded[place])
    fitting = [block for block in range(16, 1024, 16) if resident_bytes(block, head_dim) <= size]
    assert fitting[-1] == largest[place]
    taller = replace(found.tiling, block_q=largest[place] + 16, block_kv=largest[place] + 16)
    assert check(replace(load_chip(COUPLED), ub_bytes=size), work_of(head_dim), taller, "ub_resident")[0] is Verdict.UB_OVERFLOW


def test_head_dim_64_fills_256_kib_exactly() -> None:
    assert resident_bytes(256, 64) == 256 * KIB


@pytest.mark.parametrize("head_dim", [1639, 2048, 5000, 10**9])
@pytest.mark.parametrize("kernel", ["ub_resident", "coupled"])
def test_a_head_too_wide_for_any_block_is_a_verdict(head_dim: int, kernel: str) -> None:
    """The articles divide by the block, which is 0 here."""
    assert articles_block(256 * KIB, head_dim) == 0
    found = propose(load_chip(COUPLED), work_of(head_dim, 512, 512), rule="articles", kernel=kernel)
    assert (found.verdict, len(found.tried)) == (Verdict.BLOCK_TOO_SMALL, 1)
    assert "16 rows" in found.message and "head_dim" in found.message


def test_the_widest_head_with_a_block_has_16_rows() -> None:
    assert articles_block(256 * KIB, 1638) == 16
    found = propose(load_chip(COUPLED), work_of(1638, 512, 512), rule="articles", kernel="ub_resident")
    assert (found.verdict, found.tiling.block_q) == (Verdict.FITS, 16)
    assert resident_bytes(16, 1638) == 4 * 16 * 1648 * 2 + 512 <= 256 * KIB


def assert_answered(found: Proposal, spec: NpuSpec, work: Attention, dataflow: str) -> None:
    """It fits and nothing before it did, or blocks of 16 do not fit and the message says why; the oracle agrees on all."""
    oracle = [first_trouble(dataflow, *question(spec, work, one)) for one in found.tried]
    assert found.tiling == found.tried[-1]
    assert found.verdict.name == oracle[-1]
    assert "FITS" not in oracle[:-1]
    for before, after in zip(found.tried, found.tried[1:], strict=False):
        smaller = {name: max(getattr(before, name) - 16, 16) for name in ("block_q", "block_kv")}
        assert after == replace(before, **smaller)
    if found.verdict is Verdict.FITS:
        assert found.message == "fits"
        return
    assert max(found.tiling.block_q, found.tiling.block_kv) <= 16
    assert found.message.endswith(REMEDIES[found.verdict])
    assert found.verdict.memory is None or found.message.startswith(f"{found.verdict.memory} overflow: ")


@pytest.mark.parametrize(("chip", "widest"), [(COUPLED, 1024), (SEPARATED, 2048), (DIRECT, 2048)])
def test_the_default_rule_shrinks_for_wide_heads_and_ends_with_a_verdict(chip: str, widest: int) -> None:
    spec = load_chip(chip)
    for head_dim, fits in [(512, True), (widest, True), (2 * widest, False), (100_000, False)]:
        found = propose(spec, work_of(head_dim, 512, 512))
        assert_answered(found, spec, work_of(head_dim, 512, 512), spec.architecture)
        assert (found.verdict is Verdict.FITS) == fits


dims = st.sampled_from([16, 64, 72, 80, 128, 192, 200, 256, 512, 576, 2048]) | st.integers(1, 2100)
lengths = st.sampled_from([0, 1, 15, 16, 17, 512, 10_000]) | st.integers(0, 20_000)
sizes = st.sampled_from([192 * KIB, 256 * KIB, 253_952]) | st.integers(1, 512 * KIB)
kinds = st.sampled_from([("float16", "none"), ("float32", "causal")])


@st.composite
def works(draw: st.DrawFn) -> Attention:
    (dtype, mask), head_dim = draw(kinds), draw(dims)
    value_dim = draw(st.just(head_dim) | dims)
    return work_of(head_dim, draw(lengths), draw(lengths), value_dim=value_dim, dtype=dtype, mask=Mask.parse(mask))


@pytest.mark.parametrize(
    ("chip", "rule", "kernel"),
    [
        (COUPLED, "articles", "ub_resident"),
        (COUPLED, "default", "auto"),
        (SEPARATED, "default", "auto"),
        (DIRECT, "default", "auto"),
    ],
)
@given(work=works(), ub_bytes=sizes)
@settings(max_examples=30)
def test_what_a_rule_proposes_fits_or_says_why(
    chip: str, rule: Literal["articles", "default"], kernel: str, work: Attention, ub_bytes: int
) -> None:
    spec = replace(load_chip(chip), ub_bytes=ub_bytes)
    found = propose(spec, work, rule=rule, kernel=kernel)
    assert_answered(found, spec, work, kernel_for(spec, kernel).name)
    if rule == "articles":
        block = ub_bytes // (5 * work.element_bytes) // work.head_dim // 16 * 16
        longest = [max(-(-length // 16) * 16, 16) for length in (work.q_len, work.kv_len)]
        assert [found.tried[0].block_q, found.tried[0].block_kv] == [min(block, length) for length in longest]


@pytest.mark.parametrize("chip", [COUPLED, "310P3", SEPARATED, "910B4", "910_9362", DIRECT, "950DT_958x"])
@pytest.mark.parametrize("head_dim", [64, 72, 128])
def test_the_default_rule_fits_as_it_is_for_usual_heads(chip: str, head_dim: int) -> None:
    found = propose(load_chip(chip), work_of(head_dim, 4096, 4096, q_heads=8, kv_heads=8))
    assert (found.verdict, len(found.tried)) == (Verdict.FITS, 1)


def test_an_overflow_that_no_block_can_cure_still_ends() -> None:
    found = propose(load_chip(COUPLED), work_of(64, batch=10**8))
    assert (found.verdict, found.tiling.block_q, found.tiling.block_kv) == (Verdict.GM_OVERFLOW, 16, 16)


def test_sequences_of_different_lengths_are_cut_for_the_longest() -> None:
    ragged = work_of(64, q_len=(100, 3000), kv_len=(3000, 100), layout="TND")
    found = propose(load_chip(COUPLED), ragged, rule="articles", kernel="ub_resident")
    assert found.tried[0] == articles_tiling(256 * KIB, 64, 3000, 3000)


@given(
    block_q=st.integers(0, 80).map(lambda count: 16 * count),
    block_kv=st.integers(0, 80).map(lambda count: 16 * count),
    limit=st.integers(0, 2000),
)
@example(block_q=400, block_kv=16, limit=0)
@example(block_q=0, block_kv=0, limit=-1)
def test_degrading_ends_at_the_first_that_fits_or_at_16(block_q: int, block_kv: int, limit: int) -> None:
    asked = []

    def fits(tiling: Tiling) -> bool:
        asked.append(tiling)
        return tiling.block_q + tiling.block_kv <= limit

    start = Tiling(block_q=block_q, block_kv=block_kv, kv_depth=3, preload=2)
    tried = list(degrade(start, fits))
    assert tried[0] == start
    assert asked == tried  # each is looked at once
    assert not any(fits(tiling) for tiling in tried[:-1])
    assert fits(tried[-1]) or max(tried[-1].block_q, tried[-1].block_kv) <= 16
    assert {(one.kv_depth, one.preload) for one in tried} == {(3, 2)}
    assert all(min(one.block_q, one.block_kv) >= 16 for one in tried[1:])


@pytest.mark.parametrize("length", [0, 1, 16, 17, 127, 128, 129, 10_000])
@pytest.mark.parametrize("kernel", ["coupled", "separated", "direct", "ub_resident"])
def test_a_default_block_is_no_longer_than_a_short_sequence(kernel: str, length: int) -> None:
    tiling = default_tiling(kernel, length, length)
    rows, keys = 128, 256 if kernel == "separated" else 128
    filled = max(-(-length // 16) * 16, 16)
    assert (tiling.block_q, tiling.block_kv) == (min(rows, filled), min(keys, filled))


def test_an_unknown_rule_or_kernel_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ValueError, match="rule='best' must be one of articles, default"):
        propose(load_chip(COUPLED), work_of(64), rule="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kernel 'best' must be auto or one of ub_resident, coupled, separated, direct"):
        propose(load_chip(COUPLED), work_of(64), kernel="best")
