"""Tiling: what is refused, how it passes through jax, and batches filled up to a fixed size."""

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_jax._pytree import as_arrays
from ascend_jax.tiling.batch import TilingBatch, batch
from ascend_jax.tiling.tiling import Tiling

NAMES = [item.name for item in fields(Tiling)]
ONE = Tiling(block_q=128, block_kv=256)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-1, 1.5, True, float("nan"), float("inf"), np.int64(-16), np.float32(0.5)])
def test_a_field_that_is_no_whole_number_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}={value} must be a whole number of at least [01]"):
        replace(ONE, **{name: value})


@pytest.mark.parametrize("name", NAMES)
def test_zero_is_refused_where_the_formulas_divide_by_it_and_else_left_to_the_verdict(name: str) -> None:
    if name in ("l0_depth", "kv_split"):
        with pytest.raises(ValueError, match=f"{name}=0 must be a whole number of at least 1"):
            replace(ONE, **{name: 0})
    else:
        assert getattr(replace(ONE, **{name: 0}), name) == 0


def test_whole_floats_and_numpy_numbers_are_accepted() -> None:
    tiling = replace(ONE, block_q=np.int32(64), block_kv=np.float32(48), preload=0.0)
    assert (tiling.block_q, tiling.block_kv, tiling.preload) == (64, 48, 0)


def test_replace_checks_again_and_leaves_the_original() -> None:
    more = replace(ONE, kv_depth=4)
    assert (more.kv_depth, ONE.kv_depth, more.block_kv) == (4, 2, 256)
    with pytest.raises(ValueError, match="block_q=-16"):
        replace(more, block_q=-16)
    with pytest.raises(FrozenInstanceError):
        more.block_q = 32  # type: ignore[misc]


def test_fields_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        Tiling(128, 256)  # type: ignore[misc]


def test_every_field_is_a_leaf_in_order() -> None:
    assert jax.tree.leaves(ONE) == [getattr(ONE, name) for name in NAMES]
    leaves, structure = jax.tree.flatten(ONE)
    assert jax.tree.unflatten(structure, leaves) == ONE


def test_jax_does_not_check_what_it_rebuilds() -> None:
    """Arrays, tracers, placeholders and gradients are no numbers that a person typed: they may be negative or odd."""
    odd = jax.tree.map(lambda leaf: jnp.asarray(leaf) - 1000.5, as_arrays(ONE))
    again = jax.jit(lambda tiling: jax.tree.map(lambda leaf: -leaf, tiling))(odd)
    assert again.block_q == 872.5
    doubled = jax.vmap(lambda tiling: replace(tiling, preload=tiling.preload - 5))(jax.tree.map(lambda leaf: leaf[None], odd))
    np.testing.assert_array_equal(doubled.preload, [1 - 1000.5 - 5])
    assert jax.eval_shape(lambda tiling: tiling, odd).block_q.shape == ()
    assert jax.grad(lambda tiling: -tiling.block_q * 0.5)(odd).block_q == -0.5


def test_jit_takes_every_tiling_without_compiling_again() -> None:
    traces = []

    @jax.jit
    def area(tiling: Tiling) -> jax.Array:
        traces.append(1)
        return tiling.block_q * tiling.block_kv

    assert [float(area(as_arrays(replace(ONE, block_q=rows)))) for rows in (16, 48, 64.0)] == [4096, 12288, 16384]
    assert len(traces) == 1


tilings = st.builds(Tiling, **{name: st.integers(1, 1000) for name in NAMES})


@given(rows=st.lists(tilings, min_size=1, max_size=9), spare=st.none() | st.integers(0, 5))
def test_a_batch_holds_the_tilings_in_order_then_copies_of_the_first(rows: list[Tiling], spare: int | None) -> None:
    size = None if spare is None else len(rows) + spare
    found = batch(iter(rows), size)
    length = len(found.valid)
    if size is None:  # the least power of two
        assert length & (length - 1) == 0 and len(rows) <= length < 2 * len(rows)
    else:
        assert length == size
    assert found.valid.dtype == bool and list(found.valid) == [place < len(rows) for place in range(length)]
    for name in NAMES:
        column = getattr(found.tiling, name)
        assert (column.shape, column.dtype) == ((length,), jnp.result_type(float))
        assert list(column) == [getattr(row, name) for row in rows] + [getattr(rows[0], name)] * (length - len(rows))


def test_batches_of_one_size_share_a_compilation_and_the_mask_drops_the_padding() -> None:
    traces = []

    @jax.jit
    def largest(some: TilingBatch) -> jax.Array:
        traces.append(1)
        area = jax.vmap(lambda tiling: tiling.block_q * tiling.block_kv)(some.tiling)
        return jnp.sum(jnp.where(some.valid, area, 0.0))

    for count in (5, 6, 7, 8):
        assert float(largest(batch([ONE] * count))) == count * 128 * 256
    assert len(traces) == 1


def test_a_batch_is_a_pytree_that_jit_returns_unchanged() -> None:
    found = batch([ONE, replace(ONE, block_q=16), ONE])
    again = jax.jit(lambda some: some)(found)
    assert isinstance(again, TilingBatch)
    np.testing.assert_array_equal(jax.tree.leaves(again.tiling), jax.tree.leaves(found.tiling))
    np.testing.assert_array_equal(again.valid, [True, True, True, False])


def test_tilings_of_arrays_of_rank_0_make_a_batch_too() -> None:
    found = batch([as_arrays(ONE), jax.tree.map(jnp.float32, replace(ONE, block_q=16))])
    np.testing.assert_array_equal(found.tiling.block_q, [128, 16])
    assert found.tiling.block_q.dtype == jnp.result_type(float)


@pytest.mark.parametrize("size", [0, 2, -4, 3.5, True, float("nan")])
def test_a_size_too_small_or_not_whole_is_refused(size: Any) -> None:
    with pytest.raises(ValueError, match=f"size={size} must be a whole number of at least 3, the number of tilings"):
        batch([ONE] * 3, size)


def test_no_tiling_and_a_batch_of_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="no tilings: a batch needs at least one"):
        batch([], 4)
    inner = batch([ONE, ONE]).tiling
    with pytest.raises(ValueError, match=r"tilings\[1\]\.block_q has shape \(2,\): give single tilings"):
        batch([ONE, inner])
