"""Which rows and keys exist, where they lie, and which keys a row sees."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.attention.infer.call import known
from ascend_jax.attention.infer.facts import Facts, differences
from ascend_jax.attention.options import Packed, Used, Window, clipped


class Spans(NamedTuple):
    """Rows and keys of each sequence, prefix included: int arrays ``[sequences]`` (numpy where the host knows them)."""

    q: Any
    kv: Any


def spans_of(f: Facts) -> Spans:
    """How long each sequence is."""
    if f.packed:
        q, kv = (_packed(name, x) for name, x in (("actual_seq_lengths", f.lengths_q), ("…_kv", f.call.lengths_kv)))
        kv = kv[: len(q)]  # more than there are sequences of rows: the first ones count
        return Spans(np.asarray(differences(q)), np.asarray(kv if f.storage == "paged" else differences(kv)))
    s2 = np.asarray([x.shape[_tokens(f)] for x in f.call.key]) if f.storage == "list" else f.s2
    q, kv = _each(f, f.lengths_q, f.s1), _each(f, f.call.lengths_kv, s2)
    if not isinstance(q, np.ndarray) or not isinstance(kv, np.ndarray):
        q, kv = (jnp.asarray(x, jnp.int32) for x in (q, kv))
    return Spans(q, kv + f.prefix_len)


def _tokens(f: Facts) -> int:
    return 2 if f.kv_layout == "BNSD" else 1


def _each(f: Facts, given: Any, default: Any) -> Any:
    """One length per batch; one for all is repeated, what is left over is dropped."""
    if given is None:
        return np.broadcast_to(np.asarray(default), f.b)
    if known(given):
        return np.broadcast_to(np.asarray(given if len(given) == 1 else given[: f.b]), f.b)
    given = jnp.asarray(given).reshape(-1).astype(jnp.int32)
    return jnp.broadcast_to(given if given.size == 1 else given[: f.b], (f.b,))


def _packed(name: str, given: Any) -> tuple[int, ...]:
    if not known(given):
        raise ParamInvalidError(
            f"{name} known on the device only", "packed sequences are cut on the host", "pass whole numbers"
        )
    return given


def lengths_of(f: Facts, spans: Spans) -> Packed | Used:
    """The same in the terms of the tiled attention."""
    if not f.packed:
        return Used(jnp.asarray(spans.q, jnp.int32), jnp.asarray(spans.kv, jnp.int32))
    q_starts, kv_starts = (np.cumsum(x) - x for x in spans)
    if f.storage == "paged":
        kv_starts = f.gathered * np.arange(len(spans.kv))
    return Packed(*(tuple(x.tolist()) for x in (q_starts, spans.q, kv_starts, spans.kv)))


def window_of(f: Facts, spans: Spans) -> Window:
    """The band of each sequence: from the top left in modes 0 and 2, with the ends aligned in 3 and 4.

    In mode 0 the operator takes the mask to agree with the band and skips blocks outside it; here the band holds as well.
    """
    shift = spans.kv - spans.q
    if f.sparse_mode == 2:
        return Window(upper=0)
    if f.sparse_mode == 3:
        return Window(upper=clipped(shift))
    before, after = (clipped(x) for x in (f.pre_tokens, f.next_tokens))
    if f.sparse_mode == 4:
        return Window(clipped(shift - before), clipped(shift + after))
    return Window(-before, after) if f.sparse_mode == 0 else Window.full()


def zero_rows(f: Facts, spans: Spans) -> bool:
    """Whether rows that see no key become 0: always where the band leaves them none, else with ``inner_precise`` 2 and 3.

    Source: ``IsExistInvalidRows`` of attention/common/op_kernel/vector_common.h.
    """
    if f.sparse_mode not in (0, 1) or f.call.inner_precise in (2, 3):
        return True
    if f.next_tokens < 0:
        return True
    known_spans = all(isinstance(x, np.ndarray) for x in spans)
    shortest = int(np.min(spans.kv - spans.q, initial=0)) if known_spans else -f.s1
    return f.pre_tokens + shortest < 0


def tree_mask(f: Facts, spans: Spans) -> Array:
    """Mode 9: the mask of the rows among themselves, at the end of each sequence's keys; ``[sequences, 1, S1, S2]``."""
    if not all(isinstance(x, np.ndarray) for x in spans):
        raise ParamInvalidError("sparse_mode=9 with lengths of the device", "the host places the tree", "pass whole numbers")
    rows, columns = np.arange(f.s1)[:, None], np.arange(max(f.gathered, int(spans.kv.max(initial=0))))
    at = columns - (spans.kv - spans.q)[:, None, None]
    inside = (at >= 0) & (at < spans.q[:, None, None]) & (rows < spans.q[:, None, None])
    squares = spans.q**2 if f.packed else np.full(len(spans.q), f.s1**2)
    width = spans.q[:, None, None] if f.packed else f.s1
    places = (np.cumsum(squares) - squares)[:, None, None] + rows * width + at
    flat = jnp.asarray(f.call.atten_mask).reshape(-1).astype(jnp.bool_)
    return (jnp.take(flat, np.where(inside, places, 0), mode="clip") & inside)[:, None]
