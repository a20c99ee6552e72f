"""Which keys rows meet, as the tiled attention takes it: a window for each sequence, and what the user's mask hides.

Under sparse modes 0 and 5 the kernel reads the user's mask, but only in the blocks that the declared band or prefix leaves: a
mask that disagrees with them is cut at blocks, not at keys. Source: GetS2LoopRange of op_kernel/arch22 of
flash_attention_score in ops-transformer.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import Call
from ascend_jax.attention.fusion.packed_tokens import band_sequence
from ascend_jax.attention.fusion.plan import Kind, Sparse
from ascend_jax.attention.options import FAR, Window


class Seen(NamedTuple):
    """``masked``: bool ``[sequences|1, N1|1, S1, S2]``, ``[T1, T2]`` of packed sequences, or None."""

    window: Window
    masked: Array | None


def seen_keys(call: Call, axes: Axes, sparse: Sparse, block: tuple[int, int]) -> Seen:
    """The window of each sequence, and what is masked in it. ``block``: rows and keys of a block."""
    lens = _lens(axes)
    if call.atten_mask is None or sparse.compressed:
        return Seen(_window(sparse, axes, lens), None)
    masked = _given_mask(call, axes)
    if sparse.kind is Kind.ALL:
        return Seen(_for_each(Window.full(), axes), masked)
    start, stop = _stairs(sparse, lens, block)
    row = np.arange(start.shape[1])
    window = Window(np.min(start - row, axis=1), np.max(stop - 1 - row, axis=1))
    if masked.ndim == 2:
        first, end = (_of_tokens(side, lens, axes.t1)[:, None] for side in (start, stop))
    else:
        first, end = (side[:, None, :, None] for side in (start, stop))
    key = jnp.arange(masked.shape[-1], dtype=jnp.int32).reshape((1,) * (masked.ndim - 1) + (-1,))
    outside = (key < jnp.asarray(first, jnp.int32)) | (key >= jnp.asarray(end, jnp.int32))
    return Seen(_for_each(window, axes), masked | outside)


def _of_tokens(side: np.ndarray, lens: np.ndarray, tokens: int) -> np.ndarray:
    """``side [sequences, longest S1]``, a key of each row, as a key among those of all sequences, ``[tokens]``."""
    ends, begins = np.cumsum(lens, axis=0), np.cumsum(lens, axis=0) - lens
    row = np.arange(ends[-1, 0])
    sequence = np.searchsorted(ends[:, 0], row, side="right")
    keys = begins[sequence, 1] + side[sequence, row - begins[sequence, 0]]
    return np.pad(keys, (0, tokens - len(keys)))


def _lens(axes: Axes) -> np.ndarray:
    """Rows and keys of each sequence, [sequences, 2]; one line for a batch."""
    if axes.packed:
        return np.stack([axes.q_lens, axes.kv_lens], axis=1)
    return np.array([[axes.s1, axes.s2]])


def _window(sparse: Sparse, axes: Axes, lens: np.ndarray) -> Window:
    shift = lens[:, 1] - lens[:, 0]
    pre, after = (min(max(side, -FAR), FAR) for side in (sparse.pre, sparse.next))
    right = (shift - pre, shift + after)
    open_side = np.full_like(shift, -FAR)
    if sparse.kind in (Kind.BAND_LAST, Kind.BAND_FIRST):
        last = sparse.kind is Kind.BAND_LAST
        band = np.arange(len(shift)) == band_sequence(axes, last)
        upper = np.where(band, right[1], shift if last else 0)
        return _for_each(Window(np.where(band, right[0], open_side), upper), axes)
    windows = {
        Kind.ALL: Window.full(),
        Kind.CAUSAL: Window(upper=0),
        Kind.CAUSAL_RIGHT: Window(upper=shift),
        Kind.BAND: Window(-pre, after),
        Kind.BAND_RIGHT: Window(*right),
        Kind.PREFIX: Window(upper=shift, prefix=np.asarray(sparse.prefix, np.int64)),
    }
    return _for_each(windows[sparse.kind], axes)


def _for_each(window: Window, axes: Axes) -> Window:
    """The sides for each sequence: of one shape whatever the lengths, and the kind that the host finds for them."""
    return Window(*(np.broadcast_to(side, (axes.batch,)) if np.size(side) == 1 else side for side in window))


def _given_mask(call: Call, axes: Axes) -> Array:
    """The user's mask, bool ``[sequences|1, N1|1, S1, S2]``, or ``[T1, T2]`` if it is of all packed tokens."""
    mask = jnp.asarray(call.atten_mask)
    mask = mask if mask.dtype == jnp.bool_ else mask != 0
    if mask.ndim == 4:
        return mask
    if mask.shape == (axes.s1, axes.s2):
        return mask[None, None]
    return jnp.pad(mask, ((0, axes.t1 - mask.shape[0]), (0, axes.t2 - mask.shape[1])))


def _stairs(sparse: Sparse, lens: np.ndarray, block: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """First key, and one past the last, that the kernel computes for each row, [sequences, longest S1]."""
    block_q, unit = block
    prefix = np.asarray(sparse.prefix or (0,), np.int64)[:, None]
    rows, keys = lens[:, :1], lens[:, 1:]
    first = np.arange(int(rows.max(initial=0)))[None] // block_q * block_q
    begin = np.zeros_like(first + prefix + keys)
    if sparse.kind is Kind.CAUSAL:
        end = np.minimum(first + block_q, keys)
    elif sparse.kind is Kind.BAND:
        before, after = (_aligned(side, unit) for side in (sparse.pre, sparse.next))
        begin = np.maximum(first - before, 0) + np.zeros_like(begin)
        end = np.minimum(first + block_q + after, keys)
        nothing = end <= begin
        begin, end = np.where(nothing, 0, begin), np.where(nothing, np.minimum(keys, unit), end)
    else:
        end = np.maximum(first + block_q - rows + keys, prefix)
        end = np.minimum(np.where(end <= 0, unit, -(-end // unit) * unit), keys)
    return begin, np.broadcast_to(end, begin.shape)


def _aligned(side: int, unit: int) -> int:
    """A side of a band in whole units, as the host rounds: up, and what is below 0 towards 0."""
    total = min(side, FAR) + unit - 1
    return total // unit * unit if total >= 0 else -(-total // unit) * unit
