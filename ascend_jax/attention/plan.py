"""From a call to its blocks: cut, padded, and which meet which. All of it runs inside the compiled program."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ascend_jax.attention.blocks import Side, cut_batch, cut_packed, filled_up, key_ranges, row_ranges, window_of
from ascend_jax.attention.dropout import sequence_offsets
from ascend_jax.attention.meeting import Context, Meeting, Static
from ascend_jax.attention.options import Extras, Fixed, Numbers, Sequences, Used, Window
from ascend_jax.attention.scores import pad_to_tiles

QKV = tuple[Array, Array, Array]


@dataclass(frozen=True)
class Form:
    """What a compiled program is made for, beside shapes.

    ``apart``: no two packed sequences share a token. ``lower_side``: some row may not see the first key.
    """

    settings: Fixed
    apart: bool
    lower_side: bool


class Given(NamedTuple):
    """What such a program takes beside Q, K and V. ``packed``: where packed sequences lie; None for a batch."""

    window: Window
    extras: Extras
    used: Used
    numbers: Numbers
    packed: Sequences | None


class Plan(NamedTuple):
    """How both sides are cut, and what forward and backward read of it."""

    q_side: Side
    kv_side: Side
    context: Context
    static: Static


def nothing(qkv: QKV, given: Given) -> bool:
    """Whether there is no row, no key or no sequence at all, by shapes alone."""
    return any(0 in x.shape for x in (*qkv, *(given.packed or ())))


def plan_of(form: Form, qkv: QKV, given: Given) -> Plan:
    """The plan of one call; ``given.used`` counts only where sequences are not packed."""
    (query, key, _), settings = qkv, form.settings
    window, extras, used, numbers, packed = given
    longest, block = (query.shape[2], key.shape[2]), (settings.block_q, settings.block_kv)
    if packed is None:
        q_side, kv_side = cut_batch(query.shape[0], longest, block, used)
    else:
        q_side, kv_side = cut_packed(longest, block, packed, form.apart)
    q_window, kv_window = (window_of(window, side.table) for side in (q_side, kv_side))
    block = q_side.block, kv_side.block
    rows = Meeting(q_side.table, q_window, key_ranges(q_window, q_side.table, *block), q_side.blocks)
    keys = Meeting(kv_side.table, kv_window, row_ranges(kv_window, kv_side.table, *block[::-1]), kv_side.blocks)
    bias, masked, keep = (pad_to_tiles(x, *block) for x in (extras.bias, extras.masked, extras.keep))
    extras = extras._replace(bias=bias, masked=masked, keep=keep, philox=_drawn_from(packed, qkv, extras))
    whole = longest if packed is None else None
    static = Static(settings, query.shape[1], key.shape[1], block, whole, form.lower_side)
    return Plan(q_side, kv_side, Context(rows, keys, extras, numbers), static)


def _drawn_from(packed: Sequences | None, qkv: QKV, extras: Extras) -> tuple[Any, Any] | None:
    """The seed, and the offset of every sequence, ``[sequences]`` words: each draws behind the one before it."""
    if extras.philox is None:
        return None
    (query, key, _), (seed, offset) = qkv, extras.philox
    batch, heads, rows, _ = query.shape
    lens = ([rows] * batch, [key.shape[2]] * batch) if packed is None else (packed.q_lens, packed.kv_lens)
    return seed, sequence_offsets(offset, heads, *lens)


def qkv_blocks(plan: Plan, qkv: QKV, used: Used) -> QKV:
    """Q, K and V ``[B·N, T, D]``, filled up. What stands past a used length may be anything: it becomes 0, and is not read."""
    query, key, value = (used_only(x, lens) for x, lens in zip(qkv, (used.q_lens, used.kv_lens, used.kv_lens), strict=True))
    return filled_up(query, plan.q_side), filled_up(key, plan.kv_side), filled_up(value, plan.kv_side)


def used_only(x: Array, lens: Array | None) -> Array:
    """``x [B, N, S, …]`` with zeros past the length ``lens [B]`` of each sequence; None: all of it."""
    if lens is None:
        return x
    exists = jnp.arange(x.shape[2], dtype=jnp.int32)[None] < lens[:, None]
    return jnp.where(exists.reshape(x.shape[0], 1, x.shape[2], *(1,) * (x.ndim - 3)), x, jnp.zeros((), x.dtype))
