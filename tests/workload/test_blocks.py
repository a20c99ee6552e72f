"""Block counts: the closed forms against cutting the mask into blocks and looking at each."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import clipped_floor_sum, count_block_rows, count_blocks, kept, longest_block_row

from ascend_jax._pytree import as_arrays
from ascend_jax.rounding import EXACT, SMOOTH, STRAIGHT_THROUGH, Rounding
from ascend_jax.workload import floor_sum
from ascend_jax.workload.blocks import BlockCounts, kept_pairs, last_column, longest_row, row_counts, total_counts
from ascend_jax.workload.mask import Mask

KINDS = ["none", "left_up_causal", "causal", "band", "prefix"]
TEXTS = ["none", "left-up-causal", "causal", "band:1000,0", "band:-40,300", "prefix:777"]

jitted_row = jax.jit(row_counts)
jitted_total = jax.jit(total_counts, static_argnums=5)
jitted_longest = jax.jit(longest_row)
jitted_last = jax.jit(last_column)
jitted_pairs = jax.jit(kept_pairs)
jitted_rows = jax.jit(jax.vmap(row_counts, in_axes=(None, None, None, None, None, 0)))
jitted_floor_sum = jax.jit(floor_sum.clipped_floor_sum)

lengths = st.integers(0, 12) | st.integers(0, 200)
blocks = st.integers(1, 8) | st.integers(1, 64)


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, ...]:
    """``q_len, kv_len, block_q, block_kv, pre, next, prefix``; equal lengths, equal blocks and thin bands on purpose."""
    q_len, block_q = draw(lengths), draw(blocks)
    kv_len = draw(st.just(q_len) | lengths)
    block_kv = draw(st.just(block_q) | blocks)
    pre = draw(st.integers(-40, 40) | st.integers(-250, 250))
    width = draw(st.integers(0, 10) | st.integers(0, 150) | st.integers(0, 600))
    return q_len, kv_len, block_q, block_kv, pre, width - pre, draw(st.integers(0, 250))


def arguments(kind: str, case: tuple[int, ...]) -> tuple:
    mask = Mask(kind=kind, pre=case[4], next=case[5], prefix=case[6])
    return as_arrays((mask, *case[:4]))


def counted(counts: BlockCounts) -> tuple[float, float, float]:
    assert counts.partial == counts.computed - counts.full
    return float(counts.computed + counts.skipped), float(counts.computed), float(counts.full)


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases())
@example(case=(0, 10, 4, 4, 3, 0, 2))
@example(case=(10, 0, 4, 4, 3, 0, 2))
def test_pairs_and_the_last_column_equal_counting(kind: str, case: tuple[int, ...]) -> None:
    q_len, kv_len, block_q, block_kv, *numbers = case
    matrix = kept(kind, q_len, kv_len, *numbers)
    mask, rows, keys, *sizes = arguments(kind, case)
    assert float(jitted_pairs(mask, rows, keys)) == matrix.sum()
    last = matrix[:, (kv_len - 1) // block_kv * block_kv :] if kv_len else matrix
    seen = sum(bool(last[row : row + block_q].any()) for row in range(0, q_len, block_q))
    assert float(jitted_last(mask, rows, keys, *sizes)) == seen


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases())
@example(case=(0, 10, 4, 4, 3, 0, 2))
@example(case=(10, 0, 4, 4, 3, 0, 2))
@example(case=(100, 100, 1, 1, 2**31 - 1, 2**31 - 1, 2**31 - 1))
def test_totals_and_longest_row_equal_counting(kind: str, case: tuple[int, ...]) -> None:
    q_len, kv_len, block_q, block_kv, *numbers = case
    matrix = kept(kind, q_len, kv_len, *numbers)
    assert counted(jitted_total(*arguments(kind, case), EXACT)) == count_blocks(matrix, block_q, block_kv)
    longest, rows = jitted_longest(*arguments(kind, case))
    assert (float(longest), float(rows)) == longest_block_row(matrix, block_q, block_kv)


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases())
def test_rows_equal_counting(kind: str, case: tuple[int, ...]) -> None:
    q_len, kv_len, block_q, block_kv, *numbers = case
    expected = count_block_rows(kept(kind, q_len, kv_len, *numbers), block_q, block_kv)
    for row in {0, len(expected) // 2, len(expected) - 1} & set(range(len(expected))):
        counts = jitted_row(*arguments(kind, case), jnp.asarray(row, float))
        assert counted(counts) == expected[row]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("sizes", [(8192, 8192, 48, 112), (5000, 8191, 97, 33), (8192, 3001, 16, 16), (1, 8192, 16, 512)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_totals_are_sums_of_rows_at_full_size(text: str, sizes: tuple[int, ...], dtype: type[np.floating]) -> None:
    if dtype is np.float64 and jnp.result_type(float) != np.float64:
        pytest.skip("needs x64")
    mask, *args = jax.tree.map(lambda value: jnp.asarray(value, dtype), (Mask.parse(text), *sizes))
    rows = jitted_rows(mask, *args, jnp.arange(-(-sizes[0] // sizes[2]), dtype=dtype))
    total = jitted_total(mask, *args, EXACT)
    longest, many = jitted_longest(mask, *args)
    assert {leaf.dtype for leaf in jax.tree.leaves((rows, total, longest, many))} == {np.dtype(dtype)}
    for name in ("computed", "full", "partial", "skipped"):
        assert float(getattr(total, name)) == np.asarray(getattr(rows, name)).sum(dtype=np.float64), name
    computed = np.asarray(rows.computed)
    assert (float(longest), float(many)) == (computed.max(), np.sum(computed == computed.max()))


@pytest.mark.parametrize("text", TEXTS)
def test_vmap_equals_loop(text: str) -> None:
    sizes = np.array([(16, 48, 1, 600), (16, 112, 7, 3)], jnp.result_type(float))
    mask_and_lengths: Any = as_arrays((Mask.parse(text), 500, 700))
    functions: list[Any] = [partial(total_counts, rounding=EXACT), partial(total_counts, rounding=SMOOTH), longest_row]
    for function in functions:
        one = jax.jit(partial(function, *mask_and_lengths))
        batch, loop = jax.vmap(one)(*sizes), [one(*pair) for pair in sizes.T]
        for found, *expected in zip(*(jax.tree.leaves(tree) for tree in (batch, *loop)), strict=True):
            np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5)


@partial(jax.jit, static_argnums=2)
@partial(jax.vmap, in_axes=(None, 0, None))
def time_and_gradient(mask: Mask, sizes: Any, rounding: Rounding) -> Any:
    def time(sizes: Any) -> jax.Array:
        counts = total_counts(mask, *sizes, rounding=rounding)
        return 3 * counts.computed + counts.partial

    return jax.value_and_grad(time)(sizes)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("rounding", [STRAIGHT_THROUGH, SMOOTH, EXACT], ids=lambda rounding: rounding.name)
def test_gradients_are_finite(text: str, rounding: Rounding) -> None:
    sizes = [(4096, 4096, 128, 256), (128, 4096, 128, 128), (100, 70, 512, 16), (0, 64, 16, 16), (64, 0, 16, 16)]
    columns = tuple(np.array(column, jnp.result_type(float)) for column in zip(*sizes, strict=True))
    times, gradients = time_and_gradient(as_arrays(Mask.parse(text)), columns, rounding)
    assert np.all(np.isfinite([times, *gradients]))
    if rounding is EXACT:
        assert not np.any(gradients)
    else:  # larger blocks are fewer; the last two sizes have none
        assert np.all(np.array(gradients[2:])[:, :3] < 0)


@pytest.mark.parametrize("text", TEXTS)
def test_straight_through_has_the_exact_value_and_the_smooth_gradient(text: str) -> None:
    def computed(block_q: jax.Array, rounding: Rounding) -> jax.Array:
        return total_counts(mask, q_len, kv_len, block_q, block_kv, rounding).computed

    arrays: Any = as_arrays((Mask.parse(text), 1000, 1500, 48, 112))
    mask, q_len, kv_len, block_q, block_kv = arrays
    value, gradient = jax.value_and_grad(computed)(jnp.asarray(block_q), STRAIGHT_THROUGH)
    np.testing.assert_allclose(value, computed(block_q, EXACT), rtol=1e-6)
    np.testing.assert_allclose(gradient, jax.grad(computed)(jnp.asarray(block_q), SMOOTH), rtol=1e-6)


@pytest.mark.parametrize("text", TEXTS)
def test_longest_row_has_gradient_0(text: str) -> None:
    gradient = jax.grad(lambda *args: sum(longest_row(*args)), argnums=(3, 4))(
        *as_arrays((Mask.parse(text), 500, 700, 48, 112))
    )
    assert [float(value) for value in gradient] == [0, 0]


def test_smooth_traces_no_loop() -> None:
    args: Any = as_arrays((Mask.parse("band:4095,0"), 8192, 8192, 64, 128))
    assert "while" in str(jax.make_jaxpr(partial(total_counts, rounding=EXACT))(*args))
    assert "while" not in str(jax.make_jaxpr(partial(total_counts, rounding=SMOOTH))(*args))


@pytest.mark.parametrize("kind", KINDS)
@given(case=cases())
def test_smooth_counts_err_low(kind: str, case: tuple[int, ...]) -> None:
    """Computed and partial ones, but for an eighth of the larger over the smaller block at each corner (a band has two)."""
    exact, smooth = (jitted_total(*arguments(kind, case), rounding) for rounding in (EXACT, SMOOTH))
    larger, smaller = max(case[2:4]), min(case[2:4])
    assert smooth.computed <= exact.computed * (1 + 1e-6) + (0.25 * larger / smaller if kind != "none" else 0)
    assert 0 <= smooth.full <= smooth.computed
    assert smooth.skipped >= 0


@pytest.mark.parametrize(("block_q", "block_kv"), [(128, 128), (128, 256), (512, 64), (16, 512), (256, 256)])
def test_smooth_counts_are_close_where_blocks_divide_the_lengths(block_q: int, block_kv: int) -> None:
    args = as_arrays((Mask.parse("causal"), 4096, 4096, block_q, block_kv))
    exact, smooth = (jitted_total(*args, rounding) for rounding in (EXACT, SMOOTH))
    for name in ("computed", "full", "partial"):
        np.testing.assert_allclose(getattr(smooth, name), getattr(exact, name), rtol=0.02, err_msg=name)


@given(
    st.integers(0, 60), st.integers(1, 50), st.integers(1, 60), st.integers(-2000, 2000), st.integers(0, 40), st.integers(0, 40)
)
def test_clipped_floor_sum(terms: int, modulus: int, slope: int, offset: int, least: int, more: int) -> None:
    numbers = terms, modulus, slope, offset, least, least + more
    assert float(jitted_floor_sum(*as_arrays(numbers))) == clipped_floor_sum(*numbers)


def test_floor_div_by_constants() -> None:
    """XLA divides by a constant by multiplying with its reciprocal: plain ``floor(x / 41)`` is wrong 185 times here."""
    values, steps = np.arange(-2000, 20000, dtype=np.float32), (3, 16, 41, 47, 48, 49, 55, 61, 112, 113)
    found = jax.jit(lambda value: [floor_sum.floor_div(value, jnp.float32(step)) for step in steps])(values)
    for step, quotients in zip(steps, found, strict=True):
        np.testing.assert_array_equal(quotients, values.astype(int) // step, err_msg=str(step))
