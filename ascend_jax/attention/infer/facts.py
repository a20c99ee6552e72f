"""What follows from a call: its axes, its layouts and the features it uses.

Restates the order in which the operator's info parser works (``fused_infer_attention_score_tiling_info_parser.cpp`` of
ops-transformer), with the points at which it refuses.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp

from ascend_jax.attention.infer.call import FLOATS, INT_MAX, Call, count, known, refuse, size
from ascend_jax.attention.infer.layouts import LAYOUTS, PACKED, PAGED, axis

Storage = Literal["dense", "paged", "list"]
Quant = Literal["none", "anti", "full"]
Rope = Literal["none", "split", "combined"]
Mla = Literal["none", "d512", "d128", "combined"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The call, understood. Lengths are in tokens.

    Attributes:
      quant: "none"; "anti": quantised keys under a float query; "full": a quantised query.
      rope: "split" in tensors of their own; "combined": the query is wider than the value.
      mla: which multi-head latent form: "d512" (decode), "d128" (prefill), "combined" (192 with a value of 128).
      s2: keys per batch; of pages, those that the longest sequence needs.
      longest_kv: longest actual length of the keys, or ``s2``.
      q_seen, kv_seen: lengths per batch as the parser collects them (dense: one entry, the axis).
      one_row: a query of one token on the plain path of decoding: on the 910B it has neither ``sparse_mode`` nor tokens,
        nor lengths or padding of the query.
      device_lengths: lengths only the device knows; rules that need them do not apply.
    """

    call: Call
    q_layout: str
    kv_layout: str
    out_layout: str
    storage: Storage
    quant: Quant
    empty: bool
    b: int
    n1: int
    n2: int
    s1: int
    d: int
    dv: int
    one_row: bool
    device_lengths: bool
    s2: int = 0
    d_rope: int = 0
    rope: Rope = "none"
    mla: Mla = "none"
    q_seen: tuple[int, ...] = ()
    kv_seen: tuple[int, ...] = ()
    lengths_q: Any = None
    sparse_mode: int = 0
    pre_tokens: int = INT_MAX
    next_tokens: int = INT_MAX
    masked: bool = False
    q_padded: bool = False
    kv_padded: bool = False
    pse: bool = False
    prefix: bool = False
    prefix_len: int = 0
    longest_kv: int = 0

    @property
    def is_910b(self) -> bool:
        """Whether the chip is an Atlas A2/A3 part."""
        return self.call.chip == "910b"

    @property
    def group(self) -> int:
        """Query heads per key head."""
        return self.n1 // self.n2

    @property
    def packed(self) -> bool:
        """Whether sequences lie behind one another (T axis)."""
        return self.q_layout in PACKED

    @property
    def gathered(self) -> int:
        """Keys of each sequence as they are computed on: of pages a power of two of them, or all in the table.

        Each step of decoding adds a key: one program then serves until their pages have doubled.
        """
        if self.storage != "paged":
            return self.s2
        page = self.call.block_size
        return page * min(int(self.call.block_table.shape[1]), 2 ** max(0, self.s2 // page - 1).bit_length())

    @property
    def uneven(self) -> bool:
        """D of the value differs from that of the query, 192 with 128 aside."""
        return self.d != self.dv and (self.d, self.dv) != (192, 128)

    @property
    def q_dtype(self) -> Any:
        """Type of the query."""
        return jnp.dtype(self.call.query.dtype)

    @property
    def kv_dtype(self) -> Any:
        """Type of the (first) key."""
        return jnp.dtype(self.call.key[0].dtype)

    @property
    def out_quantised(self) -> bool:
        """Whether the output is quantised."""
        return jnp.dtype(self.call.out_dtype) not in FLOATS

    @property
    def shape_mask(self) -> tuple[int, ...]:
        """Shape of the mask, which must be there."""
        return tuple(self.call.atten_mask.shape)


def storage_of(call: Call) -> Storage:
    """How keys and values lie."""
    if len(call.key) > 1:
        return "list"
    return "paged" if call.block_table is not None else "dense"


def quant_of(call: Call) -> Quant:
    """Which of the three families of kernels the types ask for."""
    q_dtype, kv_dtype = jnp.dtype(call.query.dtype), jnp.dtype(call.key[0].dtype)
    if q_dtype != kv_dtype:
        return "anti"
    return "none" if q_dtype in FLOATS else "full"


def is_empty(call: Call) -> bool:
    """No query, or no key and no value at all: the output is filled, nothing is computed."""
    return size(call.query) == 0 or all(size(x) == 0 for x in (*call.key, *call.value))


def kv_layout_of(call: Call, q_layout: str) -> str:
    """The layout of keys and values: that of the query, or the one that a cache of pages has by its dimensions."""
    if storage_of(call) != "paged":
        return q_layout
    dims = len(call.key[0].shape)
    refuse(
        dims not in PAGED,
        f"key of {dims} dimensions with block_table",
        "a cache of pages has 3, 4 or 5 dimensions",
        "pass [blocks, block_size, H], [blocks, N, block_size, D] or [blocks, N, D/16, block_size, 16]",
    )
    return PAGED[dims]


def shared_prefix_len(call: Call, kv_layout: str) -> int:
    """Tokens of the shared prefix that count."""
    if kv_layout in PACKED:
        return 0  # refused later: no prefix in layouts with T
    whole = axis("key_shared_prefix", call.key_shared_prefix, kv_layout, "S")
    if call.prefix_len is None:
        return whole
    refuse(
        count(call.prefix_len) != 1,
        f"actual_shared_prefix_len of {count(call.prefix_len)} numbers",
        "must be one number",
        "pass actual_shared_prefix_len=[length]",
    )
    return call.prefix_len[0] if known(call.prefix_len) else whole


def longest_actual(call: Call, s2: int, packed: bool, b: int, singles: bool) -> int:
    """The longest actual length of the keys, or ``s2`` where lengths are not given."""
    if call.lengths_kv is None or not known(call.lengths_kv):
        return s2
    loops = min(1 if len(call.lengths_kv) == 1 and singles else b, len(call.lengths_kv))
    given = call.lengths_kv[:loops]
    return max(differences(given) if packed else given, default=0)


def differences(ends: tuple[int, ...]) -> tuple[int, ...]:
    """Lengths of sequences that end at these tokens.

    >>> differences((3, 5, 5))
    (3, 2, 0)
    """
    return tuple(end - start for start, end in zip((0, *ends), ends, strict=False))


def layouts_of(call: Call) -> tuple[str, str]:
    """Layouts of query and output."""
    refuse(
        call.input_layout not in LAYOUTS,
        f"input_layout={call.input_layout!r}",
        f"must be one of {', '.join(LAYOUTS)}",
        "pass input_layout='BNSD'",
    )
    return LAYOUTS[call.input_layout]
