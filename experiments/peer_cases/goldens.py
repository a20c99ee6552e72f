"""Plain softmax attention in float64, the rules of the sparse modes and of dropout: what every operator is measured against.

Nothing of the package is used. Rules: the documents of npu_fusion_attention, FusedInferAttentionScore and flash_attn in
op-plugin and ops-transformer (sparse_mode参数说明.md, aclnnFlashAttentionScoreV2.md and their like).
"""

from typing import Any, NamedTuple

import numpy as np

FLOAT_MAX = float(np.finfo(np.float32).max)
MASKED = -FLOAT_MAX
"""What a masked score becomes: finite, so that no row is a NaN."""

OPEN = 2**31 - 1
"""A side of a band without limit."""

Floats = np.ndarray
Bools = np.ndarray


class Rounding(NamedTuple):
    """What a matrix unit reads, and what was saved as the output of the gradient's call, becomes ``dtype``.

    It reads probabilities before they are divided by their sum (the gradient: after), and gradients of scores. ``scores``:
    these are rounded as well.
    """

    dtype: Any
    scores: bool = False


class Sequence(NamedTuple):
    """One sequence of one call. ``query [N1, S1, D]``, ``key [N2, S2, D]``, ``value [N2, S2, Dv]``, float64.

    Attributes:
      seen: bool ``[1 or N1, S1, S2]``.
      inner, outer: added to the scores before and after the scale, ``[1 or N1, 1 or S1, S2]``.
      keep: bool ``[N1, S1, S2]``, what dropout leaves.
      sink: ``[N1]``.
      zero_rows: a row that sees no key is 0 (else nothing is said of it: NaN).
      rounding: what is rounded on the way; nothing, for the golden itself.
    """

    query: Floats
    key: Floats
    value: Floats
    scale: float
    seen: Bools
    inner: Floats | None = None
    outer: Floats | None = None
    keep: Bools | None = None
    keep_prob: float = 1.0
    sink: Floats | None = None
    zero_rows: bool = True
    rounding: Rounding | None = None


def attention(x: Sequence) -> tuple[Floats, Floats, Floats]:
    """``out [N1, S1, Dv]``, ``max [N1, S1]``, ``sum [N1, S1]``. A sequence without keys: zeros."""
    heads, rows = x.query.shape[:2]
    out = np.zeros((heads, rows, x.value.shape[2]))
    top, total = np.zeros((heads, rows)), np.zeros((heads, rows))
    if x.key.shape[1] == 0 or rows == 0:
        return out, top, total
    for head in range(heads):
        weights, top[head], total[head] = probabilities(x, head)
        if x.keep is not None:
            weights = np.where(x.keep[head], weights / x.keep_prob, 0)
        out[head] = weights @ _of_group(x.value, head, heads)
    if not x.zero_rows:
        for result in (out, top, total):
            result[np.broadcast_to(~x.seen.any(axis=2), (heads, rows))] = np.nan
    return out, top, total


def probabilities(x: Sequence, head: int) -> tuple[Floats, Floats, Floats]:
    """The softmax of one head ``[S1, S2]``, its maximum and its sum ``[S1]``."""
    of = lambda y: y[min(head, len(y) - 1)]  # noqa: E731
    scores = x.query[head] @ _of_group(x.key, head, len(x.query)).T
    scores = x.scale * (scores if x.inner is None else scores + of(x.inner))
    scores = scores if x.outer is None else scores + of(x.outer)
    seen = np.broadcast_to(of(x.seen), scores.shape)
    if x.rounding is not None and x.rounding.scores:
        scores = rounded(scores, x.rounding)
    scores = np.where(seen, scores, MASKED)
    top = scores.max(axis=1)
    if x.sink is not None:
        top = np.maximum(top, x.sink[head])
    weights = np.where(seen, np.exp(scores - top[:, None]), 0)
    total = weights.sum(axis=1) + (0 if x.sink is None else np.exp(x.sink[head] - top))
    empty = ~seen.any(axis=1)
    if x.sink is None:
        top, total = np.where(empty, MASKED, top), np.where(empty, FLOAT_MAX, total)
    return rounded(weights, x.rounding) / total[:, None], top, total


def gradients(x: Sequence, d_out: Floats) -> dict[str, Floats]:
    """Gradients of ``sum(out · d_out)``: dq, dk, dv, dsink ``[N1]`` and dpse ``[N1, S1, S2]`` (where there is a bias)."""
    heads, group = len(x.query), len(x.query) // len(x.key)
    found = {"dq": np.zeros_like(x.query), "dk": np.zeros_like(x.key), "dv": np.zeros_like(x.value), "dsink": np.zeros(heads)}
    if x.inner is not None or x.outer is not None:
        found["dpse"] = np.zeros((heads, *x.seen.shape[1:]))
    if 0 in (x.key.shape[1], x.query.shape[1]):
        return found
    exact = x._replace(rounding=None)
    for head in range(heads):
        weights, top, total = probabilities(exact, head)
        keep = 1.0 if x.keep is None else x.keep[head] / x.keep_prob
        kv, kept = head // group, rounded(weights * keep, x.rounding)
        out = rounded(kept @ x.value[kv], x.rounding)
        mean = (d_out[head] * out).sum(axis=1, keepdims=True)
        d_weights = (d_out[head] @ x.value[kv].T) * keep
        d_scores = weights * (d_weights - mean)
        if "dpse" in found:
            found["dpse"][head] = d_scores * (x.scale if x.inner is not None else 1)
        if x.sink is not None:
            found["dsink"][head] = -(np.exp(x.sink[head] - top) / total * mean[:, 0]).sum()
        d_scores = rounded(d_scores, x.rounding)
        found["dv"][kv] += kept.T @ d_out[head]
        found["dq"][head] = x.scale * d_scores @ x.key[kv]
        found["dk"][kv] += x.scale * d_scores.T @ x.query[head]
    return found


def _of_group(x: Floats, head: int, heads: int) -> Floats:
    """The head of K or V that head ``head`` of Q reads."""
    return x[head // (heads // len(x))]


def rounded(x: Floats, rounding: Rounding | None) -> Floats:
    """As the type keeps it."""
    return x if rounding is None else x.astype(rounding.dtype).astype(np.float64)


def band(rows: int, keys: int, before: int, behind: int, shift: int = 0) -> Bools:
    """Row i sees key j iff ``-before ≤ j - i - shift ≤ behind``."""
    distance = np.arange(keys)[None] - np.arange(rows)[:, None] - shift
    return (distance >= -before) & (distance <= behind)


def causal(rows: int, keys: int, shift: int = 0) -> Bools:
    """Row i sees key j iff ``j ≤ i + shift``."""
    return np.arange(keys)[None] <= np.arange(rows)[:, None] + shift


class Tokens(NamedTuple):
    """``before``, ``behind``: pre and next tokens; ``prefix`` of the sequence; whether it is the one that a cut leaves open."""

    before: int
    behind: int
    prefix: int = 0
    cut: bool = False


def seen_of_mode(mode: int, rows: int, keys: int, tokens: Tokens) -> Bools:
    """The keys that each row sees by the sparse mode alone ``[S1, S2]``; modes 0 and 1 say nothing, the mask does."""
    shift = keys - rows
    if mode == 4 or tokens.cut:
        return band(rows, keys, tokens.before, tokens.behind, shift)
    if mode in (2, 8):
        return causal(rows, keys)
    if mode in (3, 7):
        return causal(rows, keys, shift)
    if mode in (5, 6):
        return causal(rows, keys, shift) | (np.arange(keys) < tokens.prefix)[None]
    return np.ones((rows, keys), bool)


def philox_keep(seed: int, offset: int, rows: int, keys: int, keep_prob: float) -> Bools:
    """What dropout keeps of ``rows`` rows of ``keys`` weights, as the 950 draws it: a byte per weight, 16 per draw."""
    draws = -(-keys // 16)
    count = np.arange(rows * draws, dtype=np.uint64) + np.uint64(-(-offset // 16))
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    words = [count & low, count >> high, np.zeros_like(count), np.zeros_like(count)]
    key = [np.uint64(seed) & low, np.uint64(seed) >> high]
    for _ in range(7):
        first, second = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [(second >> high) ^ words[1] ^ key[0], second & low, (first >> high) ^ words[3] ^ key[1], first & low]
        key = [(key[0] + np.uint64(0x9E3779B9)) & low, (key[1] + np.uint64(0xBB67AE85)) & low]
    drawn = np.stack(words, axis=-1).astype("<u4").view(np.uint8).reshape(rows, draws * 16)
    return drawn[:, :keys] <= int(np.float32(keep_prob) * np.float32(255))
