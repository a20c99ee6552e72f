"""The goldens of npu_fusion_attention and its gradient: a filled call becomes sequences of plain attention.

Written from the operators' documents alone, like ``goldens``; nothing of the package is used.
"""

from typing import Any

import numpy as np

from experiments.peer_cases.golden_layouts import Call, Results, UncoveredError, join, lens_of, split
from experiments.peer_cases.goldens import (
    OPEN,
    Floats,
    Rounding,
    Sequence,
    Tokens,
    attention,
    gradients,
    philox_keep,
    seen_of_mode,
)

ALIBI_ROWS = 1024
"""Of a compressed alibi."""


def fusion_sequences(call: Call) -> tuple[list[Sequence], np.ndarray]:
    """The sequences of a call of npu_fusion_attention or its gradient, and where the rows of each start."""
    layout, heads = call["input_layout"].upper(), call["head_num"]
    kv_heads = _kv_heads(call, layout, heads)
    count = {"query": heads, "key": kv_heads, "value": kv_heads, "query_rope": heads, "key_rope": kv_heads}
    whole = {name: split(call[name], layout, n) for name, n in count.items() if call.get(name) is not None}
    if "query_rope" in whole:
        whole["query"] = np.concatenate([whole["query"], whole["query_rope"]], axis=-1)
        whole["key"] = np.concatenate([whole["key"], whole["key_rope"]], axis=-1)
    if layout == "TND":
        (starts, rows), (kv_starts, keys) = lens_of(call["actual_seq_qlen"]), lens_of(call["actual_seq_kvlen"])
    else:
        rows, keys = (np.full(len(whole[name]), whole[name].shape[2]) for name in ("query", "key"))
        starts, kv_starts = np.zeros_like(rows), np.zeros_like(keys)
    places = list(zip(starts, rows, kv_starts, keys, strict=True))
    cut = lambda x, b, place: x[:, place[0] : place[0] + place[1]] if layout == "TND" else x[b]  # noqa: E731
    found = []
    for b, (start, length, kv_start, kv_length) in enumerate(places):
        query = cut(whole["query"], b, (start, length))
        key, value = (cut(whole[name], b, (kv_start, kv_length)) for name in ("key", "value"))
        given = _fusion_options(call, b, places, query.shape[0])
        found.append(Sequence(query, key, value, call.get("scale", call.get("scale_value", 1.0)), **given))
    return found, starts


def _kv_heads(call: Call, layout: str, heads: int) -> int:
    if "N" in layout:
        return call["key"].shape[layout.index("N")]
    return call["key"].shape[2] * heads // max(1, call["query"].shape[2])


def _fusion_options(call: Call, b: int, places: list[Any], heads: int) -> dict[str, Any]:
    """What a sequence has besides Q, K, V and the scale."""
    rows, keys = (int(x) for x in places[b][1::2])
    keep_prob = call.get("keep_prob", 1.0)
    found: dict[str, Any] = {"seen": _fusion_seen(call, b, places), "zero_rows": _fusion_zero_rows(call, rows, keys)}
    if keep_prob < 1:
        found |= {"keep": _keep(call, b, places, heads), "keep_prob": keep_prob}
    if call.get("sink") is not None:
        found["sink"] = np.asarray(call["sink"], np.float64)
    if call.get("pse") is not None:
        kind = call.get("pse_type", 1)
        found["inner" if kind == 1 else "outer"] = _fusion_bias(call, b, places, heads, kind)
    return found


def _fusion_seen(call: Call, b: int, places: list[Any]) -> np.ndarray:
    start, rows, kv_start, keys = (int(x) for x in places[b])
    mode, mask = call.get("sparse_mode", 0), call.get("atten_mask")
    if mask is None:
        return np.ones((1, rows, keys), bool)
    if mode not in (0, 1, 5):
        return seen_of_mode(mode, rows, keys, _tokens(call, b, places))[None]
    mask = np.asarray(mask) != 0
    if mask.ndim == 4:
        return ~mask[min(b, len(mask) - 1)]
    longest = max(int(place[1]) for place in places), max(int(place[3]) for place in places)
    if call["input_layout"].upper() == "TND" and mask.shape != longest:
        return ~mask[None, start : start + rows, kv_start : kv_start + keys]
    return ~mask[None, :rows, :keys]


def _tokens(call: Call, b: int, places: list[Any]) -> Tokens:
    """Modes 7 and 8 leave the last, or the first, sequence that has any rows and keys to the declared band."""
    mode, prefix = call.get("sparse_mode", 0), call.get("prefix") or ()
    real = [index for index, place in enumerate(places) if place[1] and place[3]]
    cut = bool(real) and b == {7: real[-1], 8: real[0]}.get(mode, -1)
    sides = call.get("pre_tockens", OPEN), call.get("next_tockens", OPEN)
    return Tokens(*sides, prefix[b] if b < len(prefix) else 0, cut)


def _fusion_zero_rows(call: Call, rows: int, keys: int) -> bool:
    """Whether rows without keys are 0: asked for, or the sparse mode alone leaves them none."""
    mode, masked = call.get("sparse_mode", 0), call.get("atten_mask") is not None
    return call.get("inner_precise", 0) == 2 or (masked and mode in (3, 4, 6, 7, 8))


def _fusion_bias(call: Call, b: int, places: list[Any], heads: int, kind: int) -> Floats:
    """What is added to the scores of a sequence, ``[N1, 1 or S1, S2]``."""
    rows, keys = (int(x) for x in places[b][1::2])
    pse = np.asarray(call["pse"], np.float64)
    if kind in (2, 3):
        first = [int((call.get(name) or (0,))[0]) for name in ("q_start_idx", "kv_start_idx")]
        distance = np.abs(np.arange(keys)[None] - np.arange(rows)[:, None] - first[0] + first[1])
        slopes = pse[min(b, len(pse) - 1)] if pse.ndim == 2 else pse
        return -slopes[:, None, None] * (np.sqrt(distance) if kind == 3 else distance)
    if pse.ndim == 1:
        each = [int(place[3]) for place in places]
        if pse.size != heads * sum(each):
            each = [int(place[1] * place[3]) for place in places]
        start = heads * sum(each[:b])
        return pse[start : start + heads * each[b]].reshape(heads, -1, keys)
    pse = pse[min(b, len(pse) - 1)]
    if pse.shape[1] == ALIBI_ROWS and (rows > ALIBI_ROWS or call["input_layout"].upper() == "TND"):
        if rows != keys or keys != pse.shape[2]:
            raise UncoveredError("the last 1024 rows of an alibi where there are not as many rows as keys")
        distance = np.arange(rows)[:, None] - np.arange(keys)[None]  # the last row has every distance
        return np.where(distance >= 0, pse[:, -1][:, np.clip(keys - 1 - distance, 0, keys - 1)], 0)
    return pse


def _keep(call: Call, b: int, places: list[Any], heads: int) -> np.ndarray:
    """What dropout keeps of a sequence: from the mask of bits, or drawn; the sequences follow one another."""
    sizes = [int(place[1] * place[3]) for place in places]
    rows, keys = (int(x) for x in places[b][1::2])
    if call.get("dropout_mask") is not None:
        bits = np.unpackbits(np.asarray(call["dropout_mask"]).reshape(-1), bitorder="little")
        start = heads * sum(sizes[:b])
        return bits[start : start + heads * sizes[b]].reshape(heads, rows, keys).astype(bool)
    before = heads * sum(int(place[1]) * -(-int(place[3]) // 16) * 16 for place in places[:b])
    drawn = philox_keep(call.get("seed", 0), call.get("offset", 0) + before, heads * rows, keys, call["keep_prob"])
    return drawn.reshape(heads, rows, keys)


def fusion(call: Call, rounding: Rounding | None = None) -> Results:
    """The results of npu_fusion_attention."""
    sequences, starts = fusion_sequences(call)
    found = [attention(x._replace(rounding=rounding)) for x in sequences]
    layout = call["input_layout"].upper()
    tokens = call["query"].shape[layout.index("T" if layout == "TND" else "S")]
    out = join([one[0] for one in found], starts, layout, tokens)
    return {"attention_out": out} | {
        name: _statistics([one[place] for one in found], starts, tokens, call)
        for place, name in enumerate(("softmax_max", "softmax_sum"), start=1)
    }


def _statistics(pieces: list[Floats], starts: Any, tokens: int, call: Call) -> Floats:
    """Eight copies ``[B, N, S, 8]``; packed ``[T, N, 8]``, whose memory holds heads first unless softmax_layout says TND."""
    packed = call["input_layout"].upper() == "TND"
    copies = [np.repeat(piece[..., None], 8, axis=2) for piece in pieces]
    if not packed:
        return join(copies, starts, "BNSD", tokens)
    if call.get("softmax_layout") == "TND":
        return join(copies, starts, "TND", tokens)
    heads = copies[0].shape[0]
    return join(copies, starts, "NTD", tokens).reshape(tokens, heads, 8)


def fusion_grad(call: Call, rounding: Rounding | None = None) -> Results:
    """The results of npu_fusion_attention_grad that belong to inputs."""
    sequences, starts = fusion_sequences(call)
    layout, heads = call["input_layout"].upper(), call["head_num"]
    d_out, packed = split(call["dy"], layout, heads), layout == "TND"
    found = []
    for b, x in enumerate(sequences):
        piece = d_out[:, starts[b] : starts[b] + x.query.shape[1]] if packed else d_out[b]
        found.append(gradients(x._replace(rounding=rounding), piece))
    kv_starts = lens_of(call["actual_seq_kvlen"])[0] if packed else starts
    places = {"dq": ("query", starts), "dk": ("key", kv_starts), "dv": ("value", kv_starts)}
    results = {}
    for name, (of, begin) in places.items():
        tokens = call[of].shape[layout.index("T" if packed else "S")]
        results[name] = join([one[name] for one in found], begin, layout, tokens)
    if call.get("sink") is not None:
        results["dsink"] = sum(one["dsink"] for one in found)
    if call.get("pse") is not None and call.get("pse_type", 1) in (0, 1) and not packed:
        results |= _bias_gradient([one["dpse"] for one in found], call["pse"].shape)
    return results


def _bias_gradient(pieces: list[Floats], shape: tuple[int, ...]) -> Results:
    """Summed over the axes along which pse is one."""
    whole = np.stack(pieces)
    if len(shape) != 4 or shape[2] not in (1, whole.shape[2]):
        return {}
    axes = tuple(axis for axis in range(4) if shape[axis] == 1 and whole.shape[axis] > 1)
    return {"dpse": whole.sum(axis=axes, keepdims=True)}
