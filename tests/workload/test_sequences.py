"""Sequences: equal lengths are merged, and sums over the merged ones equal sums over all."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ascend_jax._pytree import as_arrays
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.sequences import sequences

HEADS: dict[str, Any] = {"q_heads": 8, "kv_heads": 8, "head_dim": 64, "value_dim": 64}


def ragged(batch: int | tuple[int, ...], pairs: list[tuple[int, int]]) -> Attention:
    q_len, kv_len = zip(*pairs, strict=True)
    return Attention(batch=batch, q_len=q_len, kv_len=kv_len, layout="TND", **HEADS)


def test_dense_lengths_have_rank_0() -> None:
    found = sequences(Attention(batch=3, q_len=100, kv_len=200, **HEADS))
    assert [np.shape(leaf) for leaf in jax.tree.leaves(found)] == [(), (), ()]
    assert (found.count, found.q_len, found.kv_len) == (3, 100, 200)
    assert found.count.dtype == jnp.result_type(float)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=20))
def test_equal_pairs_are_merged(entries: list[tuple[int, int, int]]) -> None:
    expected = Counter()
    for q_len, kv_len, times in entries:
        expected[q_len, kv_len] += times
    work = ragged(tuple(entry[2] for entry in entries), [entry[:2] for entry in entries])
    for found in (sequences(work), sequences(as_arrays(work))):
        assert dict(zip(zip(found.q_len, found.kv_len, strict=True), found.count, strict=True)) == dict(expected)
        assert len(found.count) == len(expected)
        assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.result_type(float)}


def test_one_count_holds_for_every_entry() -> None:
    found = sequences(ragged(4, [(7, 7), (5, 9), (7, 7)]))
    np.testing.assert_array_equal(found.count, [4, 8])
    np.testing.assert_array_equal(found.q_len, [5, 7])
    np.testing.assert_array_equal(found.kv_len, [9, 7])


def test_tracers_stay_apart_and_sums_agree() -> None:
    def tokens(work: Attention) -> jax.Array:
        found = sequences(work)
        return jnp.sum(found.count * found.q_len * found.kv_len)

    work = as_arrays(ragged((1, 2, 3), [(7, 7), (5, 9), (7, 7)]))
    assert jax.eval_shape(sequences, work).count.shape == (3,)
    assert float(jax.jit(tokens)(work)) == float(tokens(work)) == 4 * 49 + 2 * 45
    assert jax.eval_shape(sequences, as_arrays(ragged(2, [(7, 7), (5, 9)]))).count.shape == (2,)
