"""The sizes of a call, whatever operator it is of."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Sizes(NamedTuple):
    """``rows`` and ``keys``: lengths of each sequence, as far as tensors have room for them."""

    heads: int
    kv_heads: int
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    packed: bool
    q_tokens: int = 0
    kv_tokens: int = 0

    @property
    def batch(self) -> int:
        """Sequences."""
        return len(self.rows)

    @property
    def scores(self) -> int:
        """Elements of Q·Kᵀ."""
        return self.heads * sum(rows * keys for rows, keys in zip(self.rows, self.keys, strict=True))


def sizes_of(function: Callable[..., Any], call: dict[str, Any]) -> Sizes:
    """The sizes of a call of ``function``."""
    return OPERATORS[function.__name__](call)


def _differences(ends: Any) -> tuple[int, ...]:
    ends = [int(end) for end in ends]
    return tuple(max(0, end - start) for start, end in zip([0, *ends], ends, strict=False))


def _fusion_sizes(call: dict[str, Any]) -> Sizes:
    layout, q, k = call["input_layout"].upper(), call["query"].shape, call["key"].shape
    heads = call["head_num"]
    if layout == "TND":
        rows, keys = (_differences(call[f"actual_seq_{side}len"]) for side in ("q", "kv"))
        return Sizes(heads, k[1], rows, keys, True, q[0], k[0])
    axes, kv_axes = dict(zip(layout, q, strict=True)), dict(zip(layout, k, strict=True))
    kv_heads = kv_axes["N"] if "N" in kv_axes else kv_axes["H"] * heads // max(1, axes["H"])
    return Sizes(heads, kv_heads, (axes["S"],) * axes["B"], (kv_axes["S"],) * axes["B"], False)


def _infer_sizes(call: dict[str, Any]) -> Sizes:
    layout, q = call["input_layout"].split("_")[0], call["query"].shape
    heads = call["num_heads"]
    kv_heads = call["num_key_value_heads"] or heads
    axes = dict(zip(layout, q, strict=True))
    if "T" in axes:
        rows = _differences(call["actual_seq_lengths"])
        given = call["actual_seq_lengths_kv"]
        keys = tuple(map(int, given)) if "block_table" in call else _differences(given)
        return Sizes(heads, kv_heads, rows, keys, True, axes["T"], call["key"][0].shape[layout.index("T")])
    if "block_table" in call:
        keys = (call["block_table"].shape[1] * call["block_size"],) * axes["B"]
    else:
        keys = tuple(x.shape[layout.index("S")] for x in call["key"])
        keys = keys if len(keys) == axes["B"] else keys * axes["B"]
    return Sizes(heads, kv_heads, (axes["S"],) * axes["B"], keys, False)


def _unified_sizes(call: dict[str, Any]) -> Sizes:
    layout, kv_layout = call.get("layout_q", "BSND"), call.get("layout_kv", "BSND")
    axes = dict(zip(layout, call["q"].shape, strict=True))
    kv_heads = call["k"].shape[{"BNSD": 1, "PA_BNBD": 1, "PA_NZ": 1, "TND": 1, "BSND": 2, "PA_BBND": 2}[kv_layout]]
    page = call["k"].shape[{"PA_BBND": 1, "PA_NZ": 3}.get(kv_layout, 2)]
    if layout == "TND":
        rows = _differences(call["cu_seqlens_q"])[1:]
        keys = _differences(call["cu_seqlens_kv"])[1:] if kv_layout == "TND" else tuple(map(int, call["seqused_kv"]))
        return Sizes(axes["N"], kv_heads, rows, keys, True, axes["T"], call["k"].shape[0])
    paged = kv_layout.startswith("PA_")
    room = call["block_table"].shape[1] * page if paged else call["k"].shape[kv_layout.index("S")]
    return Sizes(axes["N"], kv_heads, (axes["S"],) * axes["B"], (room,) * axes["B"], False)


OPERATORS: dict[str, Callable[..., Sizes]] = {
    "npu_fusion_attention": _fusion_sizes,
    "npu_fusion_attention_grad": _fusion_sizes,
    "npu_fused_infer_attention_score": _infer_sizes,
    "flash_attn": _unified_sizes,
}
"""How to read the sizes of an operator's call."""
