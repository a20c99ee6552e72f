"""The goldens of FusedInferAttentionScore and flash_attn: a filled call becomes sequences of plain attention.

Written from the operators' documents alone, like ``goldens``; nothing of the package is used.
"""

from typing import Any

import numpy as np

from experiments.peer_cases.golden_layouts import Call, Results, UncoveredError, join, lens_of, split
from experiments.peer_cases.goldens import OPEN, Floats, Rounding, Sequence, Tokens, attention, seen_of_mode


def gathered(pages: Any, table: Any, layout: str) -> Floats:
    """Pages in the order of a table as ``[B, N, S, D]``."""
    pages = np.asarray(pages, np.float64)
    orders = {"PA_BBND": (0, 2, 1, 3), "PA_BNBD": (0, 1, 2, 3), "PA_NZ": (0, 1, 3, 2, 4)}
    pages = np.transpose(pages, orders[layout])
    pages = pages.reshape(*pages.shape[:3], -1)[np.asarray(table)]  # [B, pages, N, page, D]
    return np.moveaxis(pages, 1, 2).reshape(len(pages), pages.shape[2], -1, pages.shape[4])


UNIFIED_DEFAULTS = dict.fromkeys(("layout_q", "layout_kv", "layout_out"), "BSND") | {"softmax_scale": 1.0}
INFER_DEFAULTS = {"input_layout": "BSH", "scale": 1.0, "num_key_value_heads": 0, "sparse_mode": 0, "inner_precise": 0}
INFER_DEFAULTS |= {"pre_tokens": OPEN, "next_tokens": OPEN, "num_heads": 1}


def unified(call: Call, rounding: Rounding | None = None) -> Results:
    """The results of flash_attn."""
    call = UNIFIED_DEFAULTS | call
    layout, kv_layout, heads = call["layout_q"], call["layout_kv"], call["q"].shape[call["layout_q"].index("N")]
    q, (k, v) = split(call["q"], layout, heads), _unified_keys(call)
    packed, used = layout == "TND", {side: call.get(f"seqused_{side}") for side in ("q", "kv")}
    if packed:
        starts, rows = lens_of(np.asarray(call["cu_seqlens_q"])[1:])
    else:
        starts, rows = np.zeros(len(q), int), np.full(len(q), q.shape[2])
    count = len(rows)
    if kv_layout == "TND":
        kv_starts, keys = lens_of(np.asarray(call["cu_seqlens_kv"])[1:])
    else:
        kv_starts, keys = np.zeros(count, int), np.full(count, k.shape[2])
    rows, keys = (x if used[side] is None else np.asarray(used[side]) for side, x in (("q", rows), ("kv", keys)))
    sequences = []
    for b in range(count):
        query = q[:, starts[b] : starts[b] + rows[b]] if packed else q[b, :, : rows[b]]
        cut = slice(kv_starts[b], kv_starts[b] + keys[b])
        key, value = (x[:, cut] if kv_layout == "TND" else x[b, :, cut] for x in (k, v))
        sequences.append(Sequence(query, key, value, call["softmax_scale"], _unified_seen(call, rows[b], keys[b])))
    tokens = call["q"].shape[0 if packed else layout.index("S")]
    found = _inferred(sequences, starts, (call["layout_out"], "NTD" if packed else "BNSD"), tokens, rounding)
    return found | {"softmax_lse": found["softmax_lse"][..., 0]}


def _unified_keys(call: Call) -> tuple[Floats, Floats]:
    layout = call["layout_kv"]
    if layout.startswith("PA_"):
        return gathered(call["k"], call["block_table"], layout), gathered(call["v"], call["block_table"], layout)
    return split(call["k"], layout, 0), split(call["v"], layout, 0)


def _unified_seen(call: Call, rows: int, keys: int) -> np.ndarray:
    """Modes 3 and 4 mean what the sparse modes of these numbers do; -1 opens a side of the band."""
    before, behind = (OPEN if call.get(name, -1) == -1 else call[name] for name in ("win_left", "win_right"))
    return seen_of_mode(call.get("mask_mode", 0), rows, keys, Tokens(before, behind))[None]


def _inferred(
    sequences: list[Sequence], starts: Any, layouts: tuple[str, str], tokens: int, rounding: Rounding | None
) -> Results:
    """Output, and ``log Σ exp`` with ``+inf`` where a row sees nothing or does not exist."""
    found = [attention(x._replace(rounding=rounding)) for x in sequences]
    sums = []
    for (_, top, total), x in zip(found, sequences, strict=True):
        with np.errstate(divide="ignore"):
            lse = top + np.log(total)
        none = np.broadcast_to(~x.seen.any(axis=2), lse.shape) & (x.sink is None)
        sums.append(np.where(none & np.isfinite(lse) | (total == 0), np.inf, lse)[..., None])
    out = join([one[0] for one in found], starts, layouts[0], tokens)
    return {"attention_out": out, "softmax_lse": join(sums, starts, layouts[1], tokens, np.inf)}


def infer(call: Call, rounding: Rounding | None = None) -> Results:
    """The results of FusedInferAttentionScore."""
    call = INFER_DEFAULTS | call
    for name in ("query_padding_size", "kv_padding_size"):
        if call.get(name) is not None:
            raise UncoveredError(name)
    layout, _, out_layout = call["input_layout"].partition("_")
    heads = call["num_heads"]
    kv_heads = call["num_key_value_heads"] or heads
    q, packed = split(call["query"], layout, heads), "T" in layout
    if call.get("query_rope") is not None:
        q = np.concatenate([q, split(call["query_rope"], layout, heads)], axis=-1)
    if packed:
        starts, rows = lens_of(call["actual_seq_lengths"])
    else:
        starts, rows = np.zeros(len(q), int), _each(call.get("actual_seq_lengths"), len(q), [q.shape[2]])
    pairs = _infer_pairs(call, layout, kv_heads, len(rows))
    sequences = []
    for b, (key, value) in enumerate(pairs):
        query = q[:, starts[b] : starts[b] + rows[b]] if packed else q[b, :, : rows[b]]
        options = _infer_options(call, b, rows, key.shape[1])
        sequences.append(Sequence(query, key, value, call["scale"], **options))
    tokens = call["query"].shape[layout.index("T" if packed else "S")]
    return _inferred(sequences, starts, (out_layout or layout, "TND" if packed else "BNSD"), tokens, rounding)


def _each(given: Any, count: int, default: list[int]) -> np.ndarray:
    given = default if given is None else list(map(int, given))
    return np.asarray(given * count if len(given) == 1 else given[:count])


def _infer_pairs(call: Call, layout: str, kv_heads: int, count: int) -> list[tuple[Floats, Floats]]:
    """Keys (with rope) and values of each sequence ``[N2, keys, D]``."""
    names, lens = ["key", "value"], call.get("actual_seq_lengths_kv")
    tensors = {name: list(call[name]) for name in names}
    if call.get("key_rope") is not None:
        tensors["key_rope"] = [call["key_rope"]]
    if "block_table" in call:
        whole = {name: list(_infer_pages(x[0], call, kv_heads)) for name, x in tensors.items()}
        cuts = [slice(0, int(n)) for n in _each(lens, count, [])]
    elif "T" in layout:
        whole = {name: [split(x[0], layout, kv_heads)] * count for name, x in tensors.items()}
        cuts = [slice(start, start + n) for start, n in zip(*lens_of(lens), strict=True)]
    else:
        whole = {name: [one for part in x for one in split(part, layout, kv_heads)] for name, x in tensors.items()}
        room = [x.shape[1] for x in whole["key"]]
        cuts = [slice(0, int(n)) for n in (_each(lens, count, []) if lens is not None else room)]
    pieces = {name: [x[:, cut] for x, cut in zip(several, cuts, strict=True)] for name, several in whole.items()}
    if "key_rope" in pieces:
        pieces["key"] = [np.concatenate(pair, axis=-1) for pair in zip(pieces["key"], pieces["key_rope"], strict=True)]
    return list(zip(*(_after_prefix(name, pieces[name], call, kv_heads) for name in names), strict=True))


def _after_prefix(name: str, pieces: list[Floats], call: Call, kv_heads: int) -> list[Floats]:
    """The keys or values that every sequence shares come before its own."""
    shared = call.get(f"{name}_shared_prefix")
    if shared is None:
        return pieces
    if "block_table" in call:
        raise UncoveredError("a shared prefix of pages")
    first = split(shared, call["input_layout"].partition("_")[0], kv_heads)[0]
    length = call.get("actual_shared_prefix_len")
    first = first if length is None else first[:, : int(np.asarray(length).reshape(-1)[0])]
    return [np.concatenate([first, piece], axis=1) for piece in pieces]


def _infer_pages(pages: Any, call: Call, kv_heads: int) -> Floats:
    if pages.ndim == 3:
        pages = pages.reshape(*pages.shape[:2], kv_heads, -1)
        return gathered(pages, call["block_table"], "PA_BBND")
    return gathered(pages, call["block_table"], {4: "PA_BNBD", 5: "PA_NZ"}[pages.ndim])


def _infer_options(call: Call, b: int, lens: np.ndarray, keys: int) -> dict[str, Any]:
    """What a sequence has besides Q, K, V and the scale. A query of one row reads a mask of its own whatever the mode says."""
    rows, mode, mask = int(lens[b]), call["sparse_mode"], call.get("atten_mask")
    found: dict[str, Any] = {"seen": np.ones((1, rows, keys), bool)}
    if mask is not None and mode in (2, 3, 4) and mask.shape[-2:] == (2048, 2048):
        found["seen"] = seen_of_mode(mode, rows, keys, Tokens(call["pre_tokens"], call["next_tokens"]))[None]
    elif mask is not None:
        found["seen"] = ~_infer_mask(np.asarray(mask) != 0, call, b, lens, keys)
        found["zero_rows"] = call["inner_precise"] in (2, 3)
    if call.get("pse_shift") is not None:
        bias = np.asarray(call["pse_shift"], np.float64)
        bias = bias[min(b, len(bias) - 1)]
        found["outer"] = bias[:, : rows if bias.shape[1] > 1 else 1, :keys]
    if call.get("learnable_sink") is not None:
        found["sink"] = np.asarray(call["learnable_sink"], np.float64)
    return found


def _infer_mask(mask: np.ndarray, call: Call, b: int, lens: np.ndarray, keys: int) -> np.ndarray:
    """The mask of a sequence, ``[1, rows, keys]``, True where a key is hidden."""
    rows = int(lens[b])
    if call["sparse_mode"] == 9:
        start = sum(int(n) ** 2 for n in lens[:b])
        tree = mask[start : start + rows**2].reshape(rows, rows) if mask.ndim == 1 else mask[b, :rows, :rows]
        return np.concatenate([np.zeros((rows, keys - rows), bool), tree], axis=1)[None]
    if mask.ndim == 2 and call["query"].shape[-2 if call["input_layout"].startswith("BN") else 1] == 1 and b < len(mask):
        return mask[None, b : b + 1, :keys]
    mask = mask if mask.ndim > 2 else mask[None]
    one = mask[min(b, len(mask) - 1)]
    return (one if one.ndim == 2 else one[0])[None, :rows, :keys]
