"""Chips, workloads and tilings that the cost tests share, and one compilation for the three overlap models."""

from typing import Any

import chex
from hypothesis import strategies as st

from ascend_jax import EXACT, KERNELS, OVERLAPS, Attention, Mask, NpuSpec, Report, Tiling, Verdict, load_chip
from ascend_jax._compile import SELDOM, quick_jit
from ascend_jax._pytree import as_arrays
from ascend_jax.cost.evaluate import model
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.workload.problem import Problem, problem

CHIPS = {
    "separated": ("910B1", "910B3", "910B4", "910_9391"),
    "direct": ("950PR_957x", "950DT_958x"),
    "coupled": ("910A", "310P3"),
    "ub_resident": ("910B3", "910B4"),
}
"""Chips that a kernel runs on; those of ``ub_resident`` lack the paths UB → L1 and L0C → UB."""

SENSIBLE = {
    "separated": Tiling(block_q=128, block_kv=256),
    "direct": Tiling(block_q=128, block_kv=128, ub_depth=1),
    "coupled": Tiling(block_q=64, block_kv=128, ub_depth=1),
    "ub_resident": Tiling(block_q=64, block_kv=64),
}
"""A tiling that fits head_dim 128 on the kernel's chips."""


def attention(mask: str = "none", **changes: Any) -> Attention:
    """A small dense call, with ``changes``."""
    values: dict[str, Any] = {
        "batch": 1,
        "q_heads": 8,
        "kv_heads": 8,
        "q_len": 1024,
        "kv_len": 1024,
        "head_dim": 128,
        "value_dim": 128,
    }
    return Attention(**(values | changes), mask=Mask.parse(mask))


def _model_all(spec: NpuSpec, given: Problem, tiling: Tiling, kernel: Kernel) -> dict[str, Report]:
    return {name: model(spec, given, tiling, kernel, overlap, EXACT) for name, overlap in OVERLAPS.items()}


_model_all_jit = quick_jit(_model_all, static_argnums=(3,), wanted=SELDOM)


def reports(spec: NpuSpec | str, work: Attention, tiling: Tiling, kernel: str) -> dict[str, Report]:
    """The report of every overlap model: one compilation a kernel, mask kind, dtype and layout."""
    spec = load_chip(spec) if isinstance(spec, str) else spec
    return _model_all_jit(as_arrays(spec), problem(work), as_arrays(tiling), KERNELS[kernel])


def pipelined(spec: NpuSpec | str, work: Attention, tiling: Tiling, kernel: str) -> Report:
    """The report of the pipelined model."""
    return reports(spec, work, tiling, kernel)["pipelined"]


def verdict_of(report: Report) -> Verdict:
    """The verdict of a concrete report."""
    return Verdict(int(report.occupancy.verdict))


def chips(kernel: str) -> st.SearchStrategy[NpuSpec]:
    """A chip that ``kernel`` runs on."""
    return st.sampled_from(CHIPS[kernel]).map(load_chip)


lengths = st.integers(1, 20) | st.integers(1, 300) | st.integers(1, 5000) | st.sampled_from([2**n for n in range(17)])
head_dims = st.sampled_from([64, 72, 80, 88, 96, 128, 192, 200, 256])


@st.composite
def workloads(draw: st.DrawFn, kind: str) -> Attention:
    """Any call with a mask of ``kind``, also such that leave rows without a key: all head counts, decode and prefill."""
    kv_len, kv_heads = draw(lengths), draw(st.sampled_from([1, 2, 8]))
    q_len = draw(st.just(1) | st.just(kv_len) | lengths)
    before, after, prefix = draw(st.integers(0, 5000)), draw(st.integers(0, 2000)), draw(st.integers(1, 3000))
    return Attention(
        batch=draw(st.integers(1, 9)),
        q_heads=kv_heads * draw(st.sampled_from([1, 2, 4, 7, 8])),
        kv_heads=kv_heads,
        q_len=q_len,
        kv_len=kv_len,
        head_dim=draw(head_dims),
        value_dim=draw(head_dims),
        mask=Mask(kind=kind, pre=before, next=after, prefix=prefix),
    )


def tilings(least_slots: int = 1) -> st.SearchStrategy[Tiling]:
    """Any tiling with blocks up to 512 × 1024 and a few slots."""
    slots = st.integers(least_slots, 3)
    return st.builds(
        Tiling,
        block_q=(st.sampled_from([1, 2, 4, 8, 16]) | st.integers(1, 32)).map(lambda fractals: 16 * fractals),
        block_kv=(st.sampled_from([1, 2, 4, 8, 16, 32]) | st.integers(1, 64)).map(lambda fractals: 16 * fractals),
        vector_rows=st.sampled_from([1, 8, 16, 32, 64]),
        kv_depth=slots,
        score_depth=slots,
        prob_depth=slots,
        out_depth=slots,
        ub_depth=slots,
        l0_depth=st.integers(1, 2),
        preload=st.integers(0, 3),
        kv_split=st.sampled_from([1, 1, 1, 2, 4]),
    )


def assert_reports_equal(found: Report, expected: Report, rtol: float = 1e-12) -> None:
    chex.assert_trees_all_close(found, expected, rtol=rtol, atol=0)
    assert found.limits == expected.limits
