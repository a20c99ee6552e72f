"""What the tiled attention asks of its arguments: what does not fit is named, where indices would silently be clamped."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.arguments import traced
from ascend_jax.attention.options import Extras, Packed, Settings, Used, Window

Shape = tuple[int, ...]


def check_arguments(
    qkv: tuple[Any, Any, Any], window: Window, settings: Settings, extras: Extras, lengths: Packed | Used | None
) -> None:
    """Raises ValueError: tensors, window, extras or lengths that do not fit one another, settings out of range."""
    _check_tensors(*qkv)
    _check_kinds(window, settings, extras, lengths)
    _check_settings(settings, extras)
    batch, heads, *_ = qkv[0].shape
    rows, keys = tokens = qkv[0].shape[2], qkv[1].shape[2]
    if isinstance(lengths, Packed):
        _check_packed(lengths, batch, (rows, keys))
        batch, rows, keys = len(lengths.q_lens), *_longest(lengths, extras)
    for name, side in zip(window._fields, window, strict=True):
        _check_whole(f"window.{name}", side, ((), (1,), (batch,)))
    for name, used in zip(lengths._fields, lengths, strict=True) if isinstance(lengths, Used) else ():
        if used is not None:
            _check_whole(name, used, ((batch,),))
    _check_extras(extras, (batch, heads, rows, keys), [tokens] if isinstance(lengths, Packed) else [])


def check_rows(qkv: tuple[Any, Any, Any], saved: tuple[Any, Any, Any], d_out: Any) -> None:
    """What the backward pass is given of the rows: output, maximum, sum, and the output's gradient; raises ValueError."""
    rows = tuple(qkv[0].shape[:3])
    wide = (*rows, qkv[2].shape[3])
    for name, x, shape in zip(
        ("out", "softmax_max", "softmax_sum", "d_out"), (*saved, d_out), (wide, rows, rows, wide), strict=True
    ):
        _check_shape(name, x, (shape,))


def _check_tensors(query: Any, key: Any, value: Any) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        _check_tensor(name, x)
        if len(x.shape) != 4:
            raise ValueError(f"{name} of shape {list(x.shape)}: must be [B, N, S, D]")
    types = [jnp.dtype(x.dtype) for x in (query, key, value)]
    if len(set(types)) > 1 or not jnp.issubdtype(types[0], jnp.floating):
        raise ValueError(f"query, key and value of types {', '.join(map(str, types))}: must be one floating type")
    q, k, v = (tuple(x.shape) for x in (query, key, value))
    if k[:3] != v[:3]:
        raise ValueError(f"key of shape {list(k)} and value of shape {list(v)}: must agree in all but the last dimension")
    if q[0] != k[0] or q[3] != k[3]:
        raise ValueError(f"query of shape {list(q)} and key of shape {list(k)}: must agree in B and D")
    if q[1] and (k[1] == 0 or q[1] % k[1]):
        raise ValueError(f"query of N1={q[1]} heads and key of N2={k[1]}: N1 must be a multiple of N2")


def _check_tensor(name: str, x: Any) -> None:
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise ValueError(f"{name} of type {type(x).__name__}: must be a tensor")


def _check_kinds(window: Any, settings: Any, extras: Any, lengths: Any) -> None:
    """Each argument is of its class: what takes its place would fail far from here, or be taken for something else."""
    kinds = {"window": (window, Window), "settings": (settings, Settings), "extras": (extras, Extras)}
    for name, (given, kind) in kinds.items():
        if not isinstance(given, kind):
            raise ValueError(f"{name} of type {type(given).__name__}: must be {kind.__name__}(…)")
    if not isinstance(lengths, Packed | Used | None):
        raise ValueError(f"lengths of type {type(lengths).__name__}: must be Packed(…), Used(…) or None")


def _check_settings(settings: Settings, extras: Extras) -> None:
    for name in ("block_q", "block_kv", "pse_type"):
        if not isinstance(given := getattr(settings, name), int | np.integer):
            raise ValueError(f"{name}={given!r}: must be a whole number")
    for name in ("scale", "alibi_shift", "keep_prob"):
        given = getattr(settings, name)
        if not traced(given) and not (np.ndim(given) == 0 and jnp.issubdtype(np.asarray(given).dtype, jnp.number)):
            raise ValueError(f"{name}={given!r}: must be a number")
    for name in ("block_q", "block_kv"):
        if getattr(settings, name) < 1:
            raise ValueError(f"{name}={getattr(settings, name)}: must be at least 1")
    if not 0 <= settings.pse_type <= 3:
        raise ValueError(f"pse_type={settings.pse_type}: must lie in 0…3")
    keep_prob = settings.keep_prob
    if not traced(keep_prob) and not 0 < keep_prob <= 1:
        raise ValueError(f"keep_prob={keep_prob}: must lie in (0, 1]")
    if (traced(keep_prob) or keep_prob < 1) and extras.keep is None and extras.philox is None:
        raise ValueError(f"keep_prob={keep_prob} with neither keep nor philox in extras: nothing says what is kept")
    if extras.philox is not None and settings.block_kv % 16:
        raise ValueError(f"block_kv={settings.block_kv} with philox: must be a multiple of 16, as many keys as a draw serves")


def _longest(lengths: Packed, extras: Extras) -> tuple[int, int]:
    """S1 and S2 of the extras; raises ValueError if those of traced lengths are wanted."""
    if lengths.known:
        return max(lengths.q_lens, default=0), max(lengths.kv_lens, default=0)
    for name in ("bias", "masked", "keep"):
        if (x := getattr(extras, name)) is not None and x.ndim != 2:
            rule = "needs lengths that are known when the call is traced, but for a mask [T, T2]"
            raise ValueError(f"{name} of shape {list(x.shape)} with traced lengths: {rule}")
    return 0, 0


def _check_packed(lengths: Packed, batch: int, tokens: tuple[int, int]) -> None:
    sides = (("q", lengths.q_starts, lengths.q_lens, tokens[0]), ("kv", lengths.kv_starts, lengths.kv_lens, tokens[1]))
    if batch != 1:
        raise ValueError(f"B={batch} with packed sequences: must be 1")
    if len({len(x) for x in (lengths.q_starts, lengths.q_lens, lengths.kv_starts, lengths.kv_lens)}) > 1:
        raise ValueError(f"{lengths}: must hold as many starts and lengths of Q as of K and V")
    for side, starts, lens, most in sides if lengths.known else ():
        for index, (start, length) in enumerate(zip(starts, lens, strict=True)):
            if length < 0 or start < 0 or (length and start + length > most):
                raise ValueError(f"{side}_starts[{index}]={start}, {side}_lens[{index}]={length}: must lie in {most} tokens")


def _check_extras(extras: Extras, sizes: tuple[int, int, int, int], tokens: Sequence[Shape]) -> None:
    """``sizes``: sequences, N1, S1, S2. ``tokens``: the shape of a mask of all tokens, where there may be one."""
    sequences, heads, rows, keys = sizes
    whole = [(b, n, s, keys) for b in {sequences, 1} for n in {heads, 1} for s in {rows, 1}]
    shapes = {
        "bias": whole,
        "masked": [*whole, *tokens],
        "keep": whole,
        "slopes": [(sequences, heads), (1, heads)],
        "sink": [(heads,)],
    }
    for name, allowed in shapes.items():
        x = getattr(extras, name)
        if x is None:
            continue
        _check_shape(name, x, allowed)
        if name in ("masked", "keep") and x.dtype != jnp.bool_:
            raise ValueError(f"{name} of type {x.dtype}: must be bool")


def _check_whole(name: str, given: Any, shapes: Sequence[Shape]) -> None:
    """Whole numbers, of one of the shapes."""
    x = given if hasattr(given, "dtype") else np.asarray(given)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise ValueError(f"{name}={given}: must be whole numbers")
    _check_shape(name, x, shapes)


def _check_shape(name: str, x: Any, shapes: Sequence[Shape]) -> None:
    _check_tensor(name, x)
    if tuple(x.shape) not in shapes:
        allowed = " or ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise ValueError(f"{name} of shape {list(x.shape)}: must be {allowed}")
