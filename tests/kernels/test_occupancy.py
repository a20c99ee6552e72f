"""Occupancy: every buffer against an oracle in whole numbers, at the edge of a byte, and what the verdict says."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from occupancy_oracle import bytes_held, first_trouble, question, totals

from ascend_jax._compile import SELDOM, quick_jit
from ascend_jax._pytree import as_arrays
from ascend_jax.hardware import NpuSpec, load_chip
from ascend_jax.kernels import KERNELS
from ascend_jax.occupancy import MEMORIES, Occupancy, explain, occupancy
from ascend_jax.rounding import SMOOTH, STRAIGHT_THROUGH
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.verdict import REMEDIES, Verdict, message
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask
from ascend_jax.workload.problem import problem

ON_CHIP = [memory for memory in MEMORIES if memory != "GM"]
CHIPS = {
    "ub_resident": ["910A", "310P3", "910ProA"],
    "coupled": ["910A", "310P3", "910PremiumA"],
    "separated": ["910B1", "910B4", "910_9362"],
    "direct": ["950PR_957x", "950DT_958x"],
}
SHAPE: dict[str, Any] = {"batch": 1, "q_heads": 1, "kv_heads": 1, "q_len": 512, "kv_len": 512}
ONE_SLOT = dict.fromkeys(("kv_depth", "score_depth", "prob_depth", "out_depth", "ub_depth", "l0_depth"), 1)
FULL = Tiling(block_q=256, block_kv=256, preload=0, **ONE_SLOT)
"""Fills the 256 KiB of a 910A's UB to the last byte with head_dim 64, as the articles count."""
NARROW = Attention(**SHAPE, head_dim=64, value_dim=64)

# Mask, type and graph each decide what is compiled: three of them, so that every mask and every type is there once.
KINDS = [("float16", "none"), ("bfloat16", "causal"), ("float32", "band:100,0")]

occupancy_jit = quick_jit(occupancy, static_argnums=(4,), wanted=SELDOM)


def single(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), tree)


def held_by(spec: NpuSpec, work: Attention, tiling: Tiling, dataflow: str, dtype: type = np.float64) -> Occupancy:
    arrays = as_arrays(spec), *problem(work), as_arrays(tiling)
    if dtype is np.float32:
        arrays = single(arrays)
    found = jax.device_get(occupancy_jit(*arrays, KERNELS[dataflow]))
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(dtype)}
    return found


def verdict_of(held: Occupancy) -> Verdict:
    return Verdict(int(held.verdict))


def assert_equals_oracle(spec: NpuSpec, work: Attention, tiling: Tiling, dataflow: str) -> None:
    words = question(spec, work, tiling)
    expected = bytes_held(dataflow, *words)
    for dtype in (np.float64, np.float32):
        held = held_by(spec, work, tiling, dataflow, dtype)
        exact = MEMORIES if dtype is np.float64 else ON_CHIP
        assert {memory: held.buffer_bytes[memory] for memory in exact} == {memory: expected[memory] for memory in exact}
        assert {memory: held.used_bytes[memory] for memory in exact} == {memory: totals(expected)[memory] for memory in exact}
        np.testing.assert_allclose(held.used_bytes["GM"], totals(expected)["GM"], rtol=1e-6)
        assert verdict_of(held).name == first_trouble(dataflow, *words)


dims = st.sampled_from([16, 64, 72, 80, 88, 96, 128, 192, 200, 256, 512, 576]) | st.integers(16, 576)
fractals = st.integers(1, 32).map(lambda count: 16 * count)
slots = st.integers(1, 4)


@st.composite
def tilings(draw: st.DrawFn, blocks: st.SearchStrategy[int] = fractals) -> Tiling:
    depths = {name: draw(slots) for name in ONE_SLOT}
    rows, preload, split = (
        draw(st.sampled_from([8, 16, 32, 64, 300])),
        draw(st.integers(0, 3)),
        draw(st.sampled_from([1, 2, 8])),
    )
    return Tiling(block_q=draw(blocks), block_kv=draw(blocks), vector_rows=rows, preload=preload, kv_split=split, **depths)


@st.composite
def works(draw: st.DrawFn) -> Attention:
    dtype, mask = draw(st.sampled_from(KINDS))
    head_dim, kv_heads = draw(dims), draw(st.integers(1, 8))
    return Attention(
        batch=draw(st.integers(0, 9)),
        q_heads=kv_heads * draw(st.integers(1, 8)),
        kv_heads=kv_heads,
        q_len=draw(st.integers(0, 9000)),
        kv_len=draw(st.integers(0, 9000)),
        head_dim=head_dim,
        value_dim=draw(st.just(head_dim) | dims),
        dtype=dtype,
        mask=Mask.parse(mask),
    )


@pytest.mark.parametrize("dataflow", KERNELS)
@given(data=st.data(), work=works(), tiling=tilings() | tilings(st.integers(1, 600)))
@settings(max_examples=80)
def test_every_buffer_and_the_verdict_equal_the_oracle(
    data: st.DataObject, dataflow: str, work: Attention, tiling: Tiling
) -> None:
    spec = load_chip(data.draw(st.sampled_from(CHIPS[dataflow])))
    assert_equals_oracle(spec, work, tiling, dataflow)


@pytest.mark.parametrize("chip", ["910B3", "950PR_957x"])
def test_the_articles_dataflow_occupies_the_same_on_chips_without_its_paths(chip: str) -> None:
    """Two vector cores do not halve its rows: the articles know one core."""
    for tiling in (FULL, Tiling(block_q=64, block_kv=160, kv_depth=3)):
        assert_equals_oracle(load_chip(chip), replace(NARROW, head_dim=72), tiling, "ub_resident")


@pytest.mark.parametrize("dataflow", KERNELS)
@given(data=st.data(), tiling=tilings())
@settings(max_examples=20)
def test_a_byte_decides_on_every_memory(data: st.DataObject, dataflow: str, tiling: Tiling) -> None:
    """What is asked fits a memory of exactly that size, and one byte less overflows that memory and no other."""
    spec = load_chip(CHIPS[dataflow][0])
    work = Attention(**SHAPE, head_dim=data.draw(dims), value_dim=data.draw(dims), dtype="bfloat16", mask=Mask.parse("causal"))
    # L0 pieces follow the sizes of L0, which therefore stay the chip's (and always fit): UB, L1 and GM are cut to measure.
    used = totals(bytes_held(dataflow, *question(spec, work, tiling)))
    cut = {memory: used[memory] for memory in ("UB", "L1", "GM")}
    exact = replace(spec, **{f"{memory.lower()}_bytes": size for memory, size in cut.items()})
    for dtype in (np.float64, np.float32):
        assert verdict_of(held_by(exact, work, tiling, dataflow, dtype)) is Verdict.FITS
        for memory, size in cut.items():
            tight = replace(exact, **{f"{memory.lower()}_bytes": size - 1})
            if dtype is np.float64 or size <= 2**24:
                assert verdict_of(held_by(tight, work, tiling, dataflow, dtype)).memory == memory


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_262144_of_262144_bytes_fit_and_one_byte_more_does_not(dtype: type) -> None:
    spec = load_chip("910A")
    held = held_by(spec, NARROW, FULL, "ub_resident", dtype)
    assert (held.used_bytes["UB"], held.capacity_bytes["UB"], verdict_of(held)) == (262_144, 262_144, Verdict.FITS)
    assert explain(held) == "fits"
    short = held_by(replace(spec, ub_bytes=262_143), NARROW, FULL, "ub_resident", dtype)
    assert verdict_of(short) is Verdict.UB_OVERFLOW
    assert explain(short).startswith("UB overflow: 262,144 bytes asked, 262,143 available (1 too many; S takes 131,072, ")
    for field in ("block_q", "block_kv"):
        taller = replace(FULL, **{field: 272})
        assert verdict_of(held_by(spec, NARROW, taller, "ub_resident", dtype)) is Verdict.UB_OVERFLOW


@pytest.mark.parametrize("dataflow", KERNELS)
@given(work=works(), tiling=tilings(), field=st.sampled_from(sorted({*ONE_SLOT, "preload", "vector_rows", "kv_split"})))
@settings(max_examples=25)
def test_more_slots_never_take_less_room(dataflow: str, work: Attention, tiling: Tiling, field: str) -> None:
    more = replace(tiling, **{field: getattr(tiling, field) + 1})
    assert_grows(dataflow, (work, tiling), (work, more))


@pytest.mark.parametrize("dataflow", KERNELS)
@given(work=works(), tiling=tilings(), field=st.sampled_from(["block_q", "block_kv"]), step=st.integers(1, 8))
@settings(max_examples=25)
def test_larger_blocks_never_take_less_room(dataflow: str, work: Attention, tiling: Tiling, field: str, step: int) -> None:
    more = replace(tiling, **{field: getattr(tiling, field) + 16 * step})
    assert_grows(dataflow, (work, tiling), (work, more))


@pytest.mark.parametrize("dataflow", KERNELS)
@given(
    work=works(),
    tiling=tilings(),
    field=st.sampled_from(["batch", "q_heads", "q_len", "kv_len", "head_dim", "value_dim"]),
    times=st.integers(1, 50),
)
@settings(max_examples=25)
def test_a_larger_problem_never_takes_less_room(dataflow: str, work: Attention, tiling: Tiling, field: str, times: int) -> None:
    step = work.kv_heads if field == "q_heads" else 1
    more = replace(work, **{field: getattr(work, field) + step * times})
    assert_grows(dataflow, (work, tiling), (more, tiling))


def assert_grows(dataflow: str, smaller: tuple[Attention, Tiling], larger: tuple[Attention, Tiling]) -> None:
    """UB, L1 and GM grow. L0 holds pieces whose sizes go up and down; whether they fit does not."""
    spec = load_chip(CHIPS[dataflow][0])
    less, more = (held_by(spec, *pair, dataflow) for pair in (smaller, larger))
    assert all(less.used_bytes[memory] <= more.used_bytes[memory] for memory in ("UB", "L1", "GM"))
    assert less.verdict == Verdict.FITS or more.verdict != Verdict.FITS


WIDE = replace(NARROW, head_dim=512, value_dim=512)
SMALL = Tiling(block_q=64, block_kv=64)
CASES: dict[str, tuple[dict, Attention, Tiling]] = {
    "UB": ({}, NARROW, Tiling(block_q=512, block_kv=512)),
    "L1": ({}, WIDE, Tiling(block_q=16, block_kv=512)),
    "L0A": ({"l0a_bytes": 512}, NARROW, SMALL),
    "L0B": ({"l0b_bytes": 512}, NARROW, SMALL),
    "L0C": ({"l0c_bytes": 1024}, NARROW, SMALL),
    "GM": ({}, replace(NARROW, batch=10**6), SMALL),
}


@pytest.mark.parametrize("memory", CASES)
def test_the_message_names_memory_bytes_and_remedy(memory: str) -> None:
    changes, work, tiling = CASES[memory]
    spec = replace(load_chip("910A"), **changes)
    held = held_by(spec, work, tiling, "coupled")
    verdict, words = verdict_of(held), question(spec, work, tiling)
    sizes = bytes_held("coupled", *words)[memory]
    asked, available = sum(sizes.values()), getattr(words[0], memory.lower())
    largest = max(sizes, key=lambda name: sizes[name])
    assert (verdict.name, verdict.memory) == (f"{memory}_OVERFLOW", memory)
    text = explain(held)
    assert text.startswith(
        f"{memory} overflow: {asked:,} bytes asked, {available:,} available ({asked - available:,} too many; "
    )
    assert f"{largest} takes {sizes[largest]:,}" in text
    assert text.endswith(f": {REMEDIES[verdict]}")
    assert any(word in REMEDIES[verdict] for word in ("shrink", "lower", "smaller"))


def test_the_first_trouble_is_told_first() -> None:
    """Blocks before memories, UB before L1, and so on to GM: taking away the first trouble shows the next."""
    spec = load_chip("910A")
    little = replace(spec, **{f"{memory.lower()}_bytes": 1 for memory in MEMORIES})
    found = [verdict_of(held_by(little, NARROW, Tiling(block_q=8, block_kv=24), "coupled"))]
    found.append(verdict_of(held_by(little, NARROW, Tiling(block_q=40, block_kv=24), "coupled")))
    for memory in MEMORIES:
        found.append(verdict_of(held_by(little, NARROW, SMALL, "coupled")))
        little = replace(little, **{f"{memory.lower()}_bytes": getattr(spec, f"{memory.lower()}_bytes")})
    found.append(verdict_of(held_by(little, NARROW, SMALL, "coupled")))
    order = ["BLOCK_TOO_SMALL", "BLOCK_NOT_ALIGNED", *(f"{memory}_OVERFLOW" for memory in MEMORIES), "FITS"]
    assert [verdict.name for verdict in found] == order


@pytest.mark.parametrize("field", ["block_q", "block_kv"])
@pytest.mark.parametrize(
    ("size", "name"), [(0, "TOO_SMALL"), (8, "TOO_SMALL"), (15, "TOO_SMALL"), (17, "NOT_ALIGNED"), (40, "NOT_ALIGNED")]
)
@pytest.mark.parametrize("dataflow", ["ub_resident", "coupled"])
def test_odd_blocks_are_told_apart_from_small_ones(dataflow: str, field: str, size: int, name: str) -> None:
    tiling = replace(SMALL, **{field: size})
    held = held_by(load_chip("910A"), NARROW, tiling, dataflow)
    assert verdict_of(held).name == f"BLOCK_{name}"
    assert "16" in explain(held)


@pytest.mark.parametrize("field", ["kv_depth", "score_depth", "prob_depth", "out_depth", "ub_depth", "vector_rows"])
def test_no_slot_or_no_row_is_too_small(field: str) -> None:
    held = held_by(load_chip("910B1"), NARROW, replace(SMALL, **{field: 0}), "separated")
    assert verdict_of(held) is Verdict.BLOCK_TOO_SMALL
    assert "one slot" in explain(held)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"q_len": 1_048_576, "kv_len": 1_048_576, "q_heads": 32, "kv_heads": 32}, "FITS"),  # 16 GiB of 32
        ({"q_len": 1_048_576, "kv_len": 1_048_576, "q_heads": 128, "kv_heads": 128}, "GM_OVERFLOW"),  # a multiple of 2^32
        ({"q_heads": 65_536, "kv_heads": 65_536, "batch": 16, "q_len": 64, "kv_len": 64}, "GM_OVERFLOW"),  # 2^35 bytes and S
        ({"q_heads": 65_536, "kv_heads": 65_536, "batch": 15, "q_len": 64, "kv_len": 64}, "FITS"),
        ({"batch": 10**9, "q_len": 10**6, "kv_len": 10**6}, "GM_OVERFLOW"),
    ],
)
def test_nothing_wraps_at_the_largest_sizes(changes: dict, expected: str, dtype: type) -> None:
    """On 32 GiB of GM; in int32 some of these would be 0 bytes."""
    work, spec = replace(NARROW, **changes), replace(load_chip("910B4"), gm_bytes=2**35)
    held = held_by(spec, work, SMALL, "separated", dtype)
    asked = totals(bytes_held("separated", *question(spec, work, SMALL)))["GM"]
    np.testing.assert_allclose(held.used_bytes["GM"], asked, rtol=1e-6 if dtype is np.float32 else 1e-15)
    assert verdict_of(held).name == expected == first_trouble("separated", *question(spec, work, SMALL))


def test_lengths_of_their_own_take_the_sum_of_their_room() -> None:
    ragged = replace(NARROW, batch=3, q_len=(100, 7, 100, 0), kv_len=(100, 50, 100, 9), layout="TND")
    tiling = replace(SMALL, kv_split=2)
    expected = bytes_held("coupled", *question(load_chip("910A"), ragged, tiling))
    assert held_by(load_chip("910A"), ragged, tiling, "coupled").buffer_bytes["GM"] == expected["GM"]
    assert expected["GM"]["Q, O"] == 3 * 207 * 128 * 2


@pytest.mark.parametrize("dataflow", KERNELS)
def test_vmap_over_tilings_equals_a_loop(dataflow: str) -> None:
    many = [
        Tiling(block_q=block_q, block_kv=block_kv, vector_rows=rows, kv_depth=depth, preload=depth - 1)
        for block_q, block_kv in [(16, 16), (128, 256), (112, 48), (512, 512), (40, 64), (8, 8)]
        for rows, depth in [(16, 1), (64, 4)]
    ]
    spec = as_arrays(load_chip(CHIPS[dataflow][0]))
    work, lengths = problem(replace(NARROW, head_dim=88, value_dim=200))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *map(as_arrays, many))
    batch = jax.vmap(lambda tiling: occupancy(spec, work, lengths, tiling, KERNELS[dataflow]))(stacked)
    loop = [occupancy_jit(spec, work, lengths, as_arrays(tiling), KERNELS[dataflow]) for tiling in many]
    expected = jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(loop))
    assert len(set(np.asarray(batch.verdict).tolist())) > 3
    for memory in MEMORIES:
        np.testing.assert_array_equal(batch.used_bytes[memory], expected.used_bytes[memory])
    np.testing.assert_array_equal(batch.verdict, expected.verdict)


def test_straight_through_counts_exactly_and_has_the_smooth_slope() -> None:
    """Of UB in the articles' dataflow: a row of Q, of O and of S more for a row of the block more."""
    work, lengths = problem(replace(NARROW, head_dim=72, value_dim=200))
    spec, tiling = as_arrays(load_chip("910A")), as_arrays(FULL)

    @partial(jax.jit, static_argnums=1)
    @jax.value_and_grad
    def bytes_and_slope(block_q: Any, rounding: Any) -> Any:
        one = replace(tiling, block_q=block_q)
        return occupancy(spec, work, lengths, one, KERNELS["ub_resident"], rounding).used_bytes["UB"]

    exact = bytes_held("ub_resident", *question(load_chip("910A"), replace(NARROW, head_dim=72, value_dim=200), FULL))
    value, slope = bytes_and_slope(tiling.block_q, STRAIGHT_THROUGH)
    assert (value, slope) == (totals(exact)["UB"], (80 + 208 + 256) * 2)
    smooth, slope = bytes_and_slope(tiling.block_q, SMOOTH)
    assert slope == (72 + 200 + 256) * 2
    assert smooth <= value


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_has_a_sentence_with_a_remedy(verdict: Verdict) -> None:
    text = message(verdict, 10, {"one": 8, "another": 7})
    if verdict is Verdict.FITS:
        assert text == "fits"
        return
    assert text.lower().startswith(f"{verdict.name.replace('_', ' ').lower()}: ")
    assert REMEDIES[verdict] and text.endswith(f": {REMEDIES[verdict]}")
    assert ("15 bytes asked, 10 available (5 too many; one takes 8, another takes 7)" in text) == (verdict.memory is not None)
