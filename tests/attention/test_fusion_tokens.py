"""Which tokens, prefixes and lists of lengths are refused, and what the host makes of those that are not."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from ascend_jax.attention.errors import TilingError
from ascend_jax.attention.fusion.axes import axes_of
from ascend_jax.attention.fusion.call import Call, make_call
from ascend_jax.attention.fusion.packed_tokens import packed_sparse
from ascend_jax.attention.fusion.plan import Kind, Sparse
from ascend_jax.attention.fusion.tokens import dense_sparse
from tests.attention.fusion_oracle import sees

NO_LISTS = dict.fromkeys(("prefix", "actual_seq_qlen", "actual_seq_kvlen", "q_start_idx", "kv_start_idx"))


def made(layout: str, lens: tuple[Any, Any], mode: int, mask: tuple[int, ...] = (2048, 2048), **changes: Any) -> Call:
    """A call of one head and D = 16. ``lens``: S1 and S2, or where packed sequences end."""
    packed = layout == "TND"
    sizes = [x[-1] if packed else x for x in lens]
    shapes = [(size, 1, 16) if packed else (changes.pop("batch", 1), 1, size, 16) for size in (sizes[0], sizes[1], sizes[1])]
    tensors = {n: jax.ShapeDtypeStruct(s, jnp.float16) for n, s in zip(("query", "key", "value"), shapes, strict=True)}
    tensors["atten_mask"] = jax.ShapeDtypeStruct(mask, jnp.bool_)
    lists = NO_LISTS | ({"actual_seq_qlen": lens[0], "actual_seq_kvlen": lens[1]} if packed else {})
    lists["prefix"] = changes.pop("prefix", None)
    return make_call(tensors, 1, layout, lists=lists, sparse_mode=mode, **changes)


def dense(lens: tuple[int, int], mode: int, pre: int = 2**31 - 1, after: int = 2**31 - 1, **changes: Any) -> Sparse:
    call = made("BNSD", lens, mode, pre_tokens=pre, next_tokens=after, **changes)
    return dense_sparse(call, axes_of(call))


def packed(ends: tuple[Any, Any], mode: int, pre: int = 2**31 - 1, after: int = 2**31 - 1, **changes: Any) -> Sparse:
    call = made("TND", ends, mode, pre_tokens=pre, next_tokens=after, **changes)
    return packed_sparse(call, axes_of(call))


LENS = [(40, 40), (24, 40), (40, 24)]


@pytest.mark.parametrize("lens", LENS)
@pytest.mark.parametrize("mode", [0, 4])
def test_a_band_of_a_batch_is_refused_exactly_when_its_corner_leaves_the_matrix(mode: int, lens: tuple[int, int]) -> None:
    """The condition of the host, counted from the top left: not both below 0, and none so far that nothing is left."""
    shift = lens[1] - lens[0] if mode == 4 else 0
    for pre, after in itertools.product(range(-60, 61, 12), repeat=2):
        left, right = pre - shift, after + shift
        seen = any(sees(mode, i, j, lens, (pre, after)) for i in range(lens[0]) for j in range(lens[1]))
        legal = (left >= 0 or -left <= right) and (right >= 0 or -right <= left)
        assert (left + right >= 0) >= seen
        if legal and seen:
            found = dense(lens, mode, pre, after)
            assert found.kind in (Kind.BAND, Kind.ALL, Kind.CAUSAL)
        elif not seen:
            with pytest.raises(TilingError):
                dense(lens, mode, pre, after)


@pytest.mark.parametrize("lens", LENS)
@pytest.mark.parametrize("mode", [3, 4])
def test_the_host_notices_rows_without_keys(mode: int, lens: tuple[int, int]) -> None:
    for pre, after in itertools.product((0, 8, 30, 60), (-8, 0, 8)) if mode == 4 else [(0, 0)]:
        try:
            found = dense(lens, mode, pre, after)
        except TilingError:
            continue
        rows = [any(sees(mode, i, j, lens, (pre, after)) for j in range(lens[1])) for i in range(lens[0])]
        assert found.empty_rows or all(rows)


@pytest.mark.parametrize(
    ("pre", "after", "kind"),
    [
        (40, 0, Kind.CAUSAL),
        (65536, 0, Kind.CAUSAL),
        (40, 40, Kind.ALL),
        (39, 0, Kind.BAND),
        (40, 39, Kind.BAND),
        (8, 8, Kind.BAND),
    ],
)
def test_mode_0_is_read_off_the_tokens(pre: int, after: int, kind: Kind) -> None:
    assert dense((40, 40), 0, pre, after).kind is kind


def test_prefixes_lie_between_the_causal_part_and_all_keys() -> None:
    for lens, legal in (((24, 40), (16, 40)), ((40, 24), (0, 24)), ((40, 40), (0, 40))):
        for prefix in legal:
            assert dense(lens, 6, prefix=(prefix,), mask=(3072, 2048)).prefix == (prefix,)
        for prefix in (legal[0] - 1, legal[1] + 1):
            with pytest.raises(TilingError, match=r"prefix\[0\]"):
                dense(lens, 6, prefix=(prefix,), mask=(3072, 2048))
    with pytest.raises(TilingError, match="prefix of 0 entries"):
        dense((40, 40), 6, mask=(3072, 2048))


def test_mode_5_without_a_fitting_prefix_is_full_attention() -> None:
    for prefix in (None, (99,), (1, 2)):
        assert dense((40, 40), 5, prefix=prefix, mask=(40, 40)).kind is Kind.ALL
    assert dense((40, 40), 5, prefix=(8,), mask=(40, 40)).kind is Kind.PREFIX
    with pytest.raises(TilingError, match="must be"):
        dense((40, 40), 5, prefix=(8, 8), mask=(40, 40), batch=2)


ENDS = ((4, 4, 24), (9, 9, 40))  # lengths 4, 0, 20 and 9, 0, 31


@pytest.mark.parametrize(
    ("mode", "ends", "pre", "after", "text"),
    [
        (0, ENDS, 8, -1, "next_tockens=-1"),
        (0, ((20,), (9,)), 10, 5, "pre_tockens=10"),
        (0, ENDS, -3, 2, "must not add up"),
        (3, ((20,), (9,)), 0, 0, "sequence 0 of S1=20"),
        (4, ENDS, -1, 8, "pre_tockens=-1"),
        (4, ENDS, 4, -5, "pre_tockens=4"),
        (4, ((20,), (9,)), 30, 10, "sequence 0 of S1=20"),
        (7, ENDS, 30, 0, "sparse_mode is 7"),
        (7, ENDS, 31, 1, "sparse_mode is 7"),
        (7, ((10, 20), (9, 40)), 40, 0, "sequence 0 of S1=10"),
        (7, ENDS, 31, -12, "sequence 2 of S1=20"),
        (8, ENDS, 31, -6, "next_tockens=-6"),
        (8, ENDS, 8, 0, "pre_tockens=8"),
        (5, ENDS, 0, 0, "sparse_mode=5"),
        (9, ENDS, 0, 0, "sparse_mode=9"),
    ],
)
def test_tokens_that_packed_sequences_refuse(mode: int, ends: tuple[Any, Any], pre: int, after: int, text: str) -> None:
    with pytest.raises(TilingError) as raised:
        packed(ends, mode, pre, after)
    assert text in str(raised.value).splitlines()[0]


@pytest.mark.parametrize(
    ("mode", "pre", "after", "kind"),
    [
        (0, 20, 0, Kind.CAUSAL),
        (0, 20, 31, Kind.ALL),
        (0, 0, 5, Kind.BAND),
        (1, -5, -5, Kind.ALL),
        (2, -5, -5, Kind.CAUSAL),
        (3, -5, -5, Kind.CAUSAL_RIGHT),
        (4, 31, 0, Kind.CAUSAL_RIGHT),
        (4, 8, 3, Kind.BAND_RIGHT),
        (7, 31, -3, Kind.BAND_LAST),
        (8, 9, -5, Kind.BAND_FIRST),
    ],
)
def test_tokens_that_packed_sequences_take(mode: int, pre: int, after: int, kind: Kind) -> None:
    assert packed(ENDS, mode, pre, after).kind is kind


def test_prefixes_of_packed_sequences() -> None:
    assert packed(ENDS, 6, prefix=(5, 0, 31), mask=(3072, 2048)).empty_rows is False
    assert packed(((9, 9), (4, 9)), 6, prefix=(0, 5), mask=(3072, 2048)).empty_rows is True
    for prefix in ((4, 0, 31), (5, 1, 31), (5, 0, 32), (5, 0)):
        with pytest.raises(TilingError, match="prefix"):
            packed(ENDS, 6, prefix=prefix, mask=(3072, 2048))
