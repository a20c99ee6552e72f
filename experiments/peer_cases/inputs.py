"""Numbers for the tensors of a call: random ones, as the peers draw them, and masks and tables that mean something."""

from collections.abc import Callable
from math import prod
from typing import Any

import jax
import numpy as np

from experiments.peer_cases.golden_fusion import ALIBI_ROWS, fusion
from experiments.peer_cases.golden_layouts import lens_of
from experiments.peer_cases.goldens import OPEN, Tokens, band, seen_of_mode
from experiments.peer_cases.sizes import Sizes, sizes_of

HIDDEN = 0.2
"""Share of keys that a mask of the user hides at random, where the declared mode would show them."""
SLOPE = 0.05

Call = dict[str, Any]
Range = tuple[float, float] | None


def filled(function: Callable[..., Any], call: Call, ranges: dict[str, Range], seed: int) -> Call:
    """``call`` with numpy arrays for its tensors.

    Args:
      ranges: the range of uniform numbers of a tensor by its name, "" for all others; without one they are normal.
    """
    rng, sizes = np.random.default_rng(seed), sizes_of(function, call)
    found = dict(call)
    for name, x in call.items():
        parts = x if isinstance(x, list | tuple) else [x]
        if parts and all(isinstance(part, jax.ShapeDtypeStruct) for part in parts):
            wanted = ranges.get(name, ranges.get(""))
            drawn = [_tensor(name, part, call, sizes, (rng, wanted)) for part in parts]
            found[name] = drawn if isinstance(x, list | tuple) else drawn[0]
    if "dy" in call:
        found |= _saved(found)
    return found


def _tensor(name: str, x: Any, call: Call, sizes: Sizes, drawing: tuple[np.random.Generator, Range]) -> np.ndarray:
    rng, wanted = drawing
    if name in SPECIAL:
        return SPECIAL[name](x.shape, call, sizes, rng).astype(x.dtype)
    if name == "pse" and call.get("pse_type", 1) in (0, 1) and len(x.shape) == 4 and x.shape[2] == ALIBI_ROWS:
        return _alibi(x, sizes)
    return _floats(rng, x.shape, wanted).astype(x.dtype)


def _floats(rng: np.random.Generator, shape: tuple[int, ...], wanted: Range) -> np.ndarray:
    if wanted is None:
        return rng.standard_normal(shape, np.float32)
    return (rng.random(shape, np.float32) * (wanted[1] - wanted[0]) + wanted[0]).astype(np.float32)


def _alibi(x: Any, sizes: Sizes) -> np.ndarray:
    """The last rows of an alibi: the same along every diagonal."""
    row, key = np.arange(x.shape[2])[:, None] + x.shape[3] - x.shape[2], np.arange(x.shape[3])[None]
    slopes = SLOPE * (1 + np.arange(x.shape[0] * x.shape[1])).reshape(*x.shape[:2], 1, 1) / sizes.heads
    return (-slopes * np.abs(row - key)).astype(x.dtype)


def mask_of(shape: tuple[int, ...], call: Call, sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
    """True where a key is hidden: what the sparse mode means, and in modes 0, 1 and 5 some further keys at random."""
    mode = call.get("sparse_mode", call.get("mask_mode", 0))
    if shape[-2:] == (2048, 2048) and mode in (2, 3, 4, 7, 8):
        return np.triu(np.ones(shape, bool), 1)
    if shape == (3072, 2048):
        lower = np.broadcast_to(np.arange(2048) >= 1024, (1024, 2048))
        return np.concatenate([np.triu(np.ones((2048, 2048), bool), 1), lower])
    if mode == 9:
        return _tree(shape, sizes, rng)
    rows, keys = max(sizes.rows, default=0), max(sizes.keys, default=0)
    total = (sizes.q_tokens, sizes.kv_tokens)
    if sizes.packed and len(shape) == 2 and shape == total and shape != (rows, keys):
        return _of_all_tokens(shape, call, rng)
    decode = len(shape) == 2 and rows == 1 and shape[0] == sizes.batch
    allowed = np.ones(shape[-2:], bool)
    if not decode:
        part = _allowed(call, min(rows, shape[-2]), min(keys, shape[-1]))
        allowed[: part.shape[0], : part.shape[1]] = part
    return _some_hidden(np.broadcast_to(allowed, shape), rng)


def _some_hidden(allowed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What is not allowed, and some of the rest; every row keeps the first key that it is allowed."""
    hidden = ~allowed | (rng.random(allowed.shape, np.float32) < HIDDEN)
    first = np.argmax(allowed, axis=-1)[..., None]
    np.put_along_axis(hidden, first, ~np.take_along_axis(allowed, first, -1), -1)
    return hidden


def _allowed(call: Call, rows: int, keys: int) -> np.ndarray:
    """What the declared band (mode 0), or the shortest prefix (mode 5), shows."""
    mode = call.get("sparse_mode", 0)
    if mode == 5 and call.get("prefix"):
        return seen_of_mode(5, rows, keys, Tokens(0, 0, min(call["prefix"])))
    if mode != 0 or (rows == 1 and "pre_tokens" in call):  # the inference operator has no band for one row
        return np.ones((rows, keys), bool)
    before, behind = (call.get(f"{side}_tockens", call.get(f"{side}_tokens", OPEN)) for side in ("pre", "next"))
    return band(rows, keys, before, behind)


def _of_all_tokens(shape: tuple[int, ...], call: Call, rng: np.random.Generator) -> np.ndarray:
    """A mask of all packed tokens: the declared band in every sequence's own square."""
    allowed = np.ones(shape, bool)
    sides = [zip(*lens_of(call[name]), strict=True) for name in ("actual_seq_qlen", "actual_seq_kvlen")]
    for (start, rows), (kv_start, keys) in zip(*sides, strict=True):
        allowed[start : start + rows, :kv_start] = False
        allowed[start : start + rows, kv_start : kv_start + keys] = _allowed(call, int(rows), int(keys))
    return _some_hidden(allowed, rng)


def _tree(shape: tuple[int, ...], sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
    """A row sees itself and some of the rows before it."""
    trees = [~(np.tril(rng.random((rows, rows)) < 0.5, -1) | np.eye(rows, dtype=bool)) for rows in sizes.rows]
    return np.concatenate([tree.reshape(-1) for tree in trees]).reshape(shape)


def _saved(call: Call) -> Call:
    """What the forward call saved: statistics and output of its golden."""
    found, dtype = fusion(call), call["query"].dtype
    saved = {"attention_in": np.nan_to_num(found["attention_out"]).astype(dtype)}
    return saved | {name: np.nan_to_num(found[name], nan=1.0).astype(np.float32) for name in ("softmax_max", "softmax_sum")}


def _table(shape: tuple[int, ...], call: Call, _: Sizes, rng: np.random.Generator) -> np.ndarray:
    """Pages in any order; none twice as long as there are enough."""
    pages = call["k" if "k" in call else "key"]
    pages = pages[0] if isinstance(pages, list | tuple) else pages
    return np.resize(rng.permutation(pages.shape[0]), shape)


def _bits(shape: tuple[int, ...], call: Call, _: Sizes, rng: np.random.Generator) -> np.ndarray:
    """A bit for each weight, 1 to keep it."""
    kept = rng.random(prod(shape) * 8) < call.get("keep_prob", 1.0)
    return np.packbits(kept, bitorder="little").reshape(shape)


def _some(shape: tuple[int, ...], lens: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Used lengths, at least 1."""
    return rng.integers(min(1, lens[0]), lens[0] + 1, shape)


SPECIAL: dict[str, Callable[..., np.ndarray]] = {
    "atten_mask": mask_of,
    "attn_mask": mask_of,
    "block_table": _table,
    "dropout_mask": _bits,
    "metadata": lambda shape, *_: np.zeros(shape),
    "seqused_q": lambda shape, _, sizes, rng: _some(shape, sizes.rows, rng),
    "seqused_kv": lambda shape, _, sizes, rng: _some(shape, sizes.keys, rng),
}
"""Tensors that are no random numbers."""
