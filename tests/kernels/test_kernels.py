"""Kernels as data: graphs that hang together, paths that chips have, L0 steps and average tiles against counting."""

from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from occupancy_oracle import Chip, piece
from oracles import count_blocks, kept, longest_block_row

from ascend_jax._pytree import as_arrays
from ascend_jax.hardware import NpuSpec, chip_names, load_chip
from ascend_jax.kernels import KERNELS, kernel_for
from ascend_jax.kernels.geometry import Geometry, geometry
from ascend_jax.kernels.kernel import Buffer, Graph, Kernel, Matmul, Transfer, VectorOps, Work
from ascend_jax.kernels.l0 import L0Steps, l0_steps
from ascend_jax.kernels.schedules import SCHEDULES
from ascend_jax.occupancy import MEMORIES
from ascend_jax.rounding import EXACT
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask
from ascend_jax.workload.problem import problem

SPECS = {name: load_chip(name) for name in chip_names()}
HEADS: dict[str, Any] = {"q_heads": 8, "kv_heads": 2, "head_dim": 72, "value_dim": 96}
CAUSAL = Attention(batch=2, q_len=1000, kv_len=3000, mask=Mask(kind="causal"), **HEADS)
UNITS: dict[type, tuple[str, str]] = {Matmul: ("L1", "L0C"), VectorOps: ("UB", "UB")}
"""What a unit reads and writes."""
PIPES = {"MTE2", "MTE3", "Cube", "FixPipe", "Vector", "Vector MTE2"}

geometry_jit = jax.jit(geometry, static_argnums=4)
l0_steps_jit = jax.jit(l0_steps, static_argnums=(2, 4))


def allowed(spec: NpuSpec) -> list[Kernel]:
    """The kernels that the chip accepts."""
    found = []
    for name in KERNELS:
        try:
            found.append(kernel_for(spec, name))
        except ValueError:
            continue
    return found


# One chip of each set of paths is enough: the graphs are the same for the others.
SAMPLES = {(spec.architecture, kernel.name): (spec, kernel) for spec in SPECS.values() for kernel in allowed(spec)}
SAMPLE_IDS = [f"{kernel}-{architecture}" for architecture, kernel in SAMPLES]
samples = pytest.mark.parametrize(("spec", "kernel"), SAMPLES.values(), ids=SAMPLE_IDS)
ALL: dict[str, Kernel] = KERNELS | SCHEDULES
graphs = pytest.mark.parametrize("graph", [kernel.graph for kernel in ALL.values()], ids=list(ALL))


def shape_of(spec: NpuSpec, work: Attention, tiling: Tiling) -> Geometry:
    given_work, lengths = problem(work)
    return jax.device_get(geometry_jit(as_arrays(spec), given_work, as_arrays(tiling), lengths, EXACT))


def laid_out(spec: NpuSpec, kernel: Kernel, tiling: Tiling) -> tuple[dict[str, Buffer], dict[str, Work]]:
    """Buffers and work of ``CAUSAL`` on ``spec``."""
    numbers, work = as_arrays(spec), problem(CAUSAL).work
    buffers = kernel.buffers(numbers, work, as_arrays(tiling), EXACT)
    return buffers, kernel.work(numbers, work, shape_of(spec, CAUSAL, tiling))


def sources_of(work: Work) -> set[str]:
    """The memories that the parts read; a matrix multiplication reads L1, the Vector UB."""
    return {part.path.split("_to_")[0].upper() if isinstance(part, Transfer) else UNITS[type(part)][0] for part in work}


def destination_of(work: Work) -> str:
    """The memory that the last part writes."""
    last = work[-1]
    return last.path.split("_to_")[1].upper() if isinstance(last, Transfer) else UNITS[type(last)][1]


def test_every_architecture_is_sampled_with_its_own_and_the_articles_kernel() -> None:
    assert set(SAMPLES) == {
        ("coupled", "coupled"),
        ("separated", "separated"),
        ("direct", "direct"),
        ("direct", "separated"),
        *((architecture, "ub_resident") for architecture in ("coupled", "separated", "direct")),
    }


@graphs
def test_flows_join_stages_that_exist_and_every_stage_of_a_tile_takes_part(graph: Graph) -> None:
    names = [stage.name for stage in graph.stages]
    assert len(set(names)) == len(names)
    assert {stage.pipe for stage in graph.stages} <= PIPES
    ends = {name for flow in graph.tile_flows for name in (flow.producer, flow.consumer)}
    assert ends == {stage.name for stage in graph.tile_stages}
    assert {flow.buffer for flow in graph.row_flows} >= {"Q"}
    passed = [flow.buffer for flow in graph.flows if flow.buffer]
    assert len(set(passed)) == len(passed)


@graphs
def test_no_tile_waits_for_itself_or_for_a_stage_further_behind(graph: Graph) -> None:
    """Flows lead from the loads to P·V without a way back, and from early stages to late ones, never back."""
    before: dict[str, set[str]] = {stage.name: set() for stage in graph.tile_stages}
    inputs = [flow for flow in graph.tile_flows if not flow.lag]
    for _ in inputs:
        for flow in inputs:
            before[flow.consumer] |= before[flow.producer] | {flow.producer}
    assert not [name for name, names in before.items() if name in names]
    assert "softmax" in before["mm_pv"] and "mm_qk" in before["softmax"]
    assert not [flow for flow in inputs if graph.stage(flow.producer).late and not graph.stage(flow.consumer).late]
    assert {graph.stage(name).late for name in ("mm_qk", "softmax", "load_k")} == {False}


@pytest.mark.parametrize("graph", [kernel.graph for kernel in KERNELS.values()], ids=list(KERNELS))
def test_what_follows_p_works_behind_the_rest_in_the_dataflows(graph: Graph) -> None:
    assert {graph.stage(name).late for name in ("mm_pv", "rescale", "load_v")} == {True}


@samples
def test_every_stage_has_work_over_paths_that_the_chip_has(spec: NpuSpec, kernel: Kernel) -> None:
    _, work = laid_out(spec, kernel, Tiling(block_q=128, block_kv=128))
    assert set(work) == {stage.name for stage in kernel.graph.stages}
    assert all(work.values())
    paths = {part.path for parts in work.values() for part in parts if isinstance(part, Transfer)}
    assert not [path for path in paths if getattr(spec, f"{path}_bytes_per_s") is None]
    assert {name for name, parts in work.items() if any(isinstance(part, Matmul) for part in parts)} == {"mm_qk", "mm_pv"}


@samples
def test_a_flows_buffer_lies_where_its_producer_writes_and_its_consumer_reads(spec: NpuSpec, kernel: Kernel) -> None:
    buffers, work = laid_out(spec, kernel, Tiling(block_q=128, block_kv=128))
    for flow in kernel.graph.flows:
        if flow.buffer is None:
            continue
        memory = "L0C" if flow.in_l0c else buffers[flow.buffer].memory
        assert destination_of(work[flow.producer]) == memory, flow
        assert memory in sources_of(work[flow.consumer]), flow
    assert {buffer.memory for buffer in buffers.values()} <= set(MEMORIES)
    assert [buffers[name].memory for name in ("left", "right", "result")] == ["L0A", "L0B", "L0C"]


@samples
def test_exactly_the_chunked_flows_are_cut_into_pieces(spec: NpuSpec, kernel: Kernel) -> None:
    shape = shape_of(spec, CAUSAL, Tiling(block_q=128, block_kv=512, vector_rows=8))
    steps = [L0Steps(*(jnp.asarray(value, float) for value in (128, 16, 128, pieces, 1, pieces, 1))) for pieces in (4, 3)]
    pieces = kernel.chunks(shape, steps[0], steps[1])
    assert set(pieces) == {flow.buffer for flow in kernel.graph.flows if flow.chunked}
    assert (pieces["S in L0C"], pieces["O in L0C"]) == (4, 3)
    assert {flow.buffer for flow in kernel.graph.flows if flow.in_l0c} == {"S in L0C", "O in L0C"}


@samples
def test_fields_that_a_kernel_ignores_change_nothing_and_others_change_something(spec: NpuSpec, kernel: Kernel) -> None:
    """``preload``, ``kv_split`` and the slots of flows are read by the cost, not here."""
    start = Tiling(block_q=128, block_kv=128, ub_depth=1, vector_rows=8)
    reference = laid_out(spec, kernel, start)
    for item in fields(Tiling):
        more = laid_out(spec, kernel, replace(start, **{item.name: getattr(start, item.name) * 2}))
        same = jax.tree.structure(more) == jax.tree.structure(reference) and all(
            np.array_equal(one, other) for one, other in zip(jax.tree.leaves(more), jax.tree.leaves(reference), strict=True)
        )
        read_elsewhere = {"preload", "kv_split"} if kernel.name == "ub_resident" else {"kv_split"}
        assert same == (item.name in kernel.ignores or item.name in read_elsewhere), item.name


@pytest.mark.parametrize("name", SPECS)
def test_auto_is_the_kernel_of_the_architecture(name: str) -> None:
    spec = SPECS[name]
    assert kernel_for(spec).name == kernel_for(spec, "auto").name == spec.architecture
    assert kernel_for(spec, "ub_resident") is KERNELS["ub_resident"]
    assert all(spec.architecture in kernel.runs_on for kernel in allowed(spec))


@pytest.mark.parametrize(
    ("chip", "name"), [("910B1", "coupled"), ("910B1", "direct"), ("910A", "separated"), ("950PR_957x", "coupled")]
)
def test_a_kernel_for_other_cores_is_refused_with_kernel_chip_and_remedy(chip: str, name: str) -> None:
    spec = load_chip(chip)
    with pytest.raises(ValueError, match=f"kernel '{name}'.*{spec.name}.*{spec.architecture}.*use auto.*or ub_resident"):
        kernel_for(spec, name)


@pytest.mark.parametrize(
    ("chip", "name", "path"),
    [
        ("910A", "coupled", "l0c_to_ub"),
        ("310P3", "auto", "ub_to_l1"),
        ("910B1", "auto", "l0c_to_gm"),
        ("950PR_957x", "direct", "ub_to_l1"),
    ],
)
def test_a_kernel_without_its_path_is_refused_with_the_path(chip: str, name: str, path: str) -> None:
    spec = replace(load_chip(chip), **{f"{path}_bytes_per_s": None})
    with pytest.raises(ValueError, match=f"kernel '.*' needs the path {path}, which {spec.name} lacks: use .*ub_resident"):
        kernel_for(spec, name)
    assert kernel_for(spec, "ub_resident").name == "ub_resident"


def test_an_unknown_kernel_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(ValueError, match="kernel 'fast' must be auto or one of ub_resident, coupled, separated, direct"):
        kernel_for(load_chip("910A"), "fast")


L0 = {"l0a": 65_536, "l0b": 65_536, "l0c": 131_072}
SPEC = load_chip("910A")


def steps_of(sizes: dict[str, int], dims: tuple[int, ...], element: int, depth: int, dtype: type = np.float64) -> L0Steps:
    spec = as_arrays(replace(SPEC, **{f"{memory}_bytes": size for memory, size in sizes.items()}))
    args = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), (spec, tuple(dims), depth))
    return jax.device_get(l0_steps_jit(args[0], args[1], element, args[2], EXACT))


matrix = st.tuples(st.integers(1, 600), st.integers(1, 600), st.integers(1, 600))
elements = st.sampled_from([2, 4])
memories = st.fixed_dictionaries(
    {memory: st.sampled_from([size, 2 * size]) | st.integers(size // 2, 4 * size) for memory, size in L0.items()}
)


@given(dims=matrix, element=elements, depth=st.integers(1, 4), sizes=memories)
@example(dims=(128, 128, 128), element=2, depth=2, sizes=L0)
@settings(max_examples=100)
def test_l0_steps_equal_growing_them_a_fractal_at_a_time(
    dims: tuple[int, int, int], element: int, depth: int, sizes: dict[str, int]
) -> None:
    expected = piece(Chip(0, 0, sizes["l0a"], sizes["l0b"], sizes["l0c"], 0, 1, 1), dims, element, depth)
    for dtype in (np.float64, np.float32):
        found = steps_of(sizes, dims, element, depth, dtype)
        assert (found.m, found.k, found.n, found.m_steps, found.k_steps, found.n_steps) == expected
        assert found.output_steps == expected.m_steps * expected.n_steps
        assert found.steps == found.output_steps * expected.k_steps


@given(dims=matrix, element=elements, depth=st.integers(1, 8), sizes=memories)
@settings(max_examples=100)
def test_l0_steps_cover_the_matrix_and_fit_their_buffers(
    dims: tuple[int, int, int], element: int, depth: int, sizes: dict[str, int]
) -> None:
    found = steps_of(sizes, dims, element, depth)
    for size, step, count, unit in zip(
        dims,
        (found.m, found.k, found.n),
        (found.m_steps, found.k_steps, found.n_steps),
        (16, 32 // element, 16),
        strict=True,
    ):
        assert step % unit == 0 and step >= unit
        assert step * (count - 1) < size <= step * count
    assert depth * found.m * found.k * element <= sizes["l0a"]
    assert depth * found.k * found.n * element <= sizes["l0b"]
    assert depth * found.m * found.n * 4 <= sizes["l0c"]


@given(dims=matrix, element=elements, depth=st.sampled_from([1, 2, 4]), halvings=st.integers(0, 3))
@settings(max_examples=60)
def test_a_smaller_l0_means_more_steps_and_still_fits(
    dims: tuple[int, int, int], element: int, depth: int, halvings: int
) -> None:
    large = {memory: size >> halvings for memory, size in L0.items()}
    small = {memory: size >> (halvings + 1) for memory, size in L0.items()}
    more, fewer = steps_of(small, dims, element, depth), steps_of(large, dims, element, depth)
    assert more.steps >= fewer.steps and more.output_steps >= fewer.output_steps
    if depth * 128 * 16 * 4 <= small["l0c"]:
        assert depth * more.m * more.n * 4 <= small["l0c"]
        assert depth * more.m * more.k * element <= small["l0a"]


def shape_on(cores: int, work: Attention, **cut: int) -> Geometry:
    """The average tile on a 910A with so many vector cores."""
    return shape_of(replace(SPEC, vector_cores_per_cube=cores), work, Tiling(**cut))


def attention(q_len: int, kv_len: int, q_heads: int = 4, kv_heads: int = 4, batch: int = 3, mask: str = "none") -> Attention:
    return Attention(
        batch=batch,
        q_heads=q_heads,
        kv_heads=kv_heads,
        q_len=q_len,
        kv_len=kv_len,
        head_dim=64,
        value_dim=64,
        mask=Mask.parse(mask),
    )


def test_decode_packs_the_heads_of_a_group_into_one_task() -> None:
    work = attention(1, 1000, q_heads=32, kv_heads=8, batch=5, mask="causal")
    shape = shape_on(1, work, block_q=16, block_kv=128)
    assert (shape.rows, shape.vector_rows, shape.keys) == (4, 4, 125)
    assert (shape.tasks, shape.tiles, shape.tiles_per_task) == (5 * 8, 5 * 8 * 8, 8)
    assert (shape.longest_tiles, shape.longest_tasks) == (8, 5 * 8)


@pytest.mark.parametrize(
    ("q_len", "block_q", "group", "rows", "packs"),
    [
        (1, 16, 16, 16, 1),  # all 16 heads of a group
        (1, 16, 32, 16, 2),
        (1, 16, 20, 10, 2),  # two packs of 10 on average, the cut being 16 and 4
        (4, 16, 6, 12, 2),  # four heads would go in: 4 and 2
        (5, 16, 8, 40 / 3, 3),
        (9, 16, 8, 9, 8),  # no room for a second head
        (16, 16, 8, 16, 8),
        (17, 16, 8, 8.5, 8),  # a block and its tail
    ],
)
def test_short_sequences_share_a_block_of_rows(q_len: int, block_q: int, group: int, rows: float, packs: int) -> None:
    shape = shape_on(1, attention(q_len, 256, q_heads=2 * group, kv_heads=2), block_q=block_q, block_kv=128)
    assert shape.rows == pytest.approx(rows)
    assert shape.tasks == 3 * 2 * packs * -(-q_len // block_q)


@pytest.mark.parametrize("mask", ["none", "causal"])
@given(
    lengths=st.tuples(st.integers(0, 200), st.integers(0, 200)),
    blocks=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    heads=st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 3, 8])),
    cores=st.sampled_from([1, 2]),
)
@example(lengths=(0, 64), blocks=(1, 1), heads=(1, 1), cores=1)
@example(lengths=(64, 0), blocks=(1, 1), heads=(1, 1), cores=2)
@example(lengths=(200, 40), blocks=(1, 1), heads=(2, 3), cores=2)
@settings(max_examples=60)
def test_average_tiles_add_up_to_all_rows_keys_and_blocks(
    mask: str, lengths: tuple[int, int], blocks: tuple[int, int], heads: tuple[int, int], cores: int
) -> None:
    (q_len, kv_len), (kv_heads, group), (block_q, block_kv) = lengths, heads, (16 * blocks[0], 16 * blocks[1])
    work = attention(q_len, kv_len, q_heads=kv_heads * group, kv_heads=kv_heads, mask=mask)
    shape = shape_on(cores, work, block_q=block_q, block_kv=block_kv, vector_rows=8)
    assert np.all(np.isfinite(jax.tree.leaves(shape)))

    together = max(heads for heads in range(1, group + 1) if heads == 1 or heads * q_len <= block_q)
    packed = 3 * kv_heads * len(range(0, group, together))
    seen = kept(mask, q_len, kv_len)
    _, computed, full = count_blocks(seen, block_q, block_kv)
    longest, how_many = longest_block_row(seen, block_q, block_kv)
    rows = len(range(0, q_len, block_q))

    assert shape.tasks == packed * rows
    assert shape.tiles == pytest.approx(packed * computed)
    assert shape.partial == pytest.approx((computed - full) / max(computed, 1))
    assert shape.tiles_per_task == pytest.approx(max(computed / max(rows, 1), 1e-6))
    assert (shape.longest_tiles, shape.longest_tasks) == (longest, packed * how_many)
    if q_len and kv_len:
        assert shape.tasks * shape.rows == pytest.approx(3 * kv_heads * group * q_len)
        cut = [seen[i : i + block_q, j : j + block_kv] for i in range(0, q_len, block_q) for j in range(0, kv_len, block_kv)]
        widths = [block.shape[1] for block in cut if block.any()]
        assert shape.keys * len(widths) == pytest.approx(sum(widths))
    assert shape.rows <= block_q and shape.keys <= block_kv
    assert (shape.vector_rows * cores, shape.vector_cores) == (shape.rows, cores)
    assert 8 * (shape.vector_steps - 1) < shape.vector_rows <= 8 * shape.vector_steps


def test_causal_rows_before_the_first_key_have_no_tiles() -> None:
    """Right-down causal: of 512 rows on 128 keys only the last block sees any."""
    shape = shape_on(1, attention(512, 128, mask="causal"), block_q=128, block_kv=128)
    assert (shape.tasks, shape.tiles, shape.tiles_per_task) == (12 * 4, 12, 0.25)
    assert (shape.longest_tiles, shape.longest_tasks, shape.partial) == (1, 12, 1)


@pytest.mark.parametrize("split", [1, 2, 3, 4, 16])
def test_cores_that_share_a_block_row_take_whole_tiles_of_it(split: int) -> None:
    shape = shape_on(1, attention(1, 1000), block_q=16, block_kv=64, kv_split=split)
    parts = [len(range(start, 16, split)) for start in range(split)]
    assert (shape.tasks, shape.longest_tiles) == (12 * split, max(parts))
    assert shape.tiles >= 12 * 16
    assert shape.longest_tasks >= 12 * parts.count(max(parts))
    if 16 % split == 0:
        assert (shape.tiles, shape.longest_tasks) == (12 * 16, 12 * split)


@pytest.mark.parametrize("lengths", [(0, 0), (0, 100), (100, 0)])
@pytest.mark.parametrize("mask", ["none", "causal", "band:10,0", "prefix:30"])
def test_empty_sequences_have_no_tiles_and_finite_shapes(lengths: tuple[int, int], mask: str) -> None:
    shape = shape_on(2, attention(*lengths, mask=mask), block_q=16, block_kv=16)
    assert np.all(np.isfinite(jax.tree.leaves(shape)))
    assert shape.tiles == 0
    assert shape.tasks == (12 * 7 if lengths[0] else 0)
