"""Quantised keys under a float query: modes, types and shapes of their scales (``checkers/dequant_checker.cpp``).

Modes: 0 per channel (or tensor), 1 per token, 2 per head, 3 per token and head, 4 and 5 the same in pages, 6 per group of 32.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

from ascend_jax.attention.infer.call import FLOATS, refuse
from ascend_jax.attention.infer.facts import Facts

LAYOUTS = ("BSH", "BSND", "BNSD", "BNSD_BSND", "TND")
UNSIGNED = ("float8_e4m3fn", "float4_e2m1fn")
"""Types of keys that have no offset."""


@dataclass(frozen=True)
class Mode:
    """What a pair of modes takes: types of the keys, of the keys over a shared prefix, and whether scales have query's type."""

    keys: tuple[str, ...]
    with_prefix: tuple[str, ...]
    of_query: bool = False


MODES = {
    (0, 0): Mode(("int8", "int4", "float8_e4m3fn"), ("int8", "int4"), of_query=True),
    (1, 1): Mode(("int8", "int4", "float8_e4m3fn"), ("int8", "int4")),
    (2, 2): Mode(("int8",), ("int8",), of_query=True),
    (3, 3): Mode(("int8", "int4"), ("int8", "int4")),
    (4, 4): Mode(("int8", "float8_e4m3fn"), ("int8",)),
    (5, 5): Mode(("int8",), ("int8",)),
    (0, 1): Mode(("int8", "int4"), ("int8", "int4"), of_query=True),
    (6, 6): Mode(("float4_e2m1fn",), ()),
}


def modes_of(f: Facts) -> tuple[int, int]:
    """Modes of key and value."""
    return f.call.key_antiquant_mode, f.call.value_antiquant_mode


def single(f: Facts) -> None:
    """Modes, and the types of keys that they take."""
    modes = modes_of(f)
    refuse(
        modes not in MODES,
        f"key_antiquant_mode={modes[0]}, value_antiquant_mode={modes[1]}",
        "must be equal and 0 to 6, or 0 and 1",
        "pass equal modes",
    )
    scale = f.call.key_antiquant_scale
    if scale is None or f.call.value_antiquant_scale is None:
        return
    keys = MODES[modes].keys
    whole = modes == (0, 0) and tuple(scale.shape) == (1,)
    keys = ("int8",) if whole else keys
    refuse(
        f.kv_dtype.name not in keys, f"key of {f.kv_dtype} in mode {modes}", f"must be {' or '.join(keys)}", "pass int8 keys"
    )
    mixed = modes == (0, 1) and f.kv_dtype == jnp.int8 and (f.q_dtype, jnp.dtype(f.call.out_dtype)) != (FLOATS[0], FLOATS[0])
    refuse(mixed, f"int8 keys in mode {modes} with query of {f.q_dtype}", "must be float16", "pass a float16 query")


def existence(f: Facts) -> None:
    """Offsets come in pairs, and for signed integers only; the older scale of both does not go with those of each."""
    other = dict(f.call.other_scales)
    refuse(
        f.call.antiquant_mode != 0 or other.get("antiquant_scale") is not None or other.get("antiquant_offset") is not None,
        f"antiquant_mode={f.call.antiquant_mode}, or antiquant_scale or antiquant_offset",
        "do not go with scales of key and value",
        "leave them out",
    )
    offsets = [other.get(name) is not None for name in ("key_antiquant_offset", "value_antiquant_offset")]
    refuse(
        offsets[0] != offsets[1], "only one of key_antiquant_offset and value_antiquant_offset", "both or neither", "pass both"
    )
    wrong = offsets[0] and f.kv_dtype.name in UNSIGNED
    refuse(wrong, f"key_antiquant_offset with keys of {f.kv_dtype}", "they have none", "leave the offsets out")


def feature(f: Facts) -> None:
    """Layouts, rows and pages."""
    layout = f.call.input_layout
    wrong = layout not in LAYOUTS or (layout == "TND" and f.kv_dtype == jnp.int8) or (layout == "BNSD_BSND" and f.s1 == 1)
    refuse(wrong, f"keys of {f.kv_dtype} in layout {layout}, {f.s1} rows", "not supported", "pass input_layout='BNSD'")
    if f.prefix:
        _prefix(f)
    if f.s1 > 1:
        _rows(f)
    if f.storage == "paged":
        _pages(f)
    refuse(f.rope == "combined", "D=192 with quantised keys", "does not go together", "pass float keys")
    modes, out = modes_of(f), jnp.dtype(f.call.out_dtype)
    wrong = modes in ((1, 1), (4, 4)) and f.kv_dtype.name == "float8_e4m3fn" and out not in FLOATS
    refuse(wrong, f"an output of {out} in mode {modes}", "must be float16 or bfloat16", "leave quant_scale2 out")


def _prefix(f: Facts) -> None:
    modes = modes_of(f)
    keys = MODES[modes].with_prefix
    if f.s1 > 1:
        keys = ("int8",) if modes in ((0, 0), (1, 1)) else ()
    elif modes == (0, 0) and f.call.key_antiquant_scale is not None and len(f.call.key_antiquant_scale.shape) == 1:
        keys = ("int8",)
    refuse(
        f.kv_dtype.name not in keys,
        f"a shared prefix with keys of {f.kv_dtype} in mode {modes}, {f.s1} rows",
        f"must be {' or '.join(keys) or 'of another mode'}",
        "leave the prefix out",
    )


def _rows(f: Facts) -> None:
    """More than one row of query."""
    mode, int8 = f.call.key_antiquant_mode, f.kv_dtype == jnp.int8
    plain = int8 and mode in (0, 1)
    wrong = int8 and mode in (2, 3, 4, 5)
    wrong = wrong or (plain and (f.q_dtype != FLOATS[1] or f.s1 > 16 or f.storage != "dense"))
    refuse(
        wrong or f.kv_dtype.name == "int4",
        f"{f.s1} rows over {f.storage} keys of {f.kv_dtype} in mode {mode}",
        "only up to 16 rows of bfloat16 over one int8 tensor in modes 0 and 1",
        "pass float keys",
    )


def _pages(f: Facts) -> None:
    modes, needed = modes_of(f), f.call.block_table.shape[1] * f.call.block_size
    place = {(1, 1): -1, (3, 3): -1, (6, 6): -2}.get(modes)
    for name in ("key_antiquant_scale", "value_antiquant_scale") if place is not None else ():
        shape = tuple(getattr(f.call, name).shape)
        wrong = len(shape) < 2 or (shape[place or -1] < needed and not (modes == (6, 6) and name.startswith("value")))
        refuse(wrong, f"{name} of shape {shape} over pages", f"must reach over {needed} keys", "pass a longer scale")


def consistency(f: Facts) -> None:
    """Types and shapes of scales and offsets."""
    modes, key, value = modes_of(f), f.call.key_antiquant_scale, f.call.value_antiquant_scale
    wanted = f.q_dtype if MODES[modes].of_query else jnp.dtype(jnp.float32)
    wanted = jnp.dtype(jnp.float8_e8m0fnu) if modes == (6, 6) else wanted
    pairs = (("key", key, wanted), ("value", value, jnp.dtype(jnp.float32) if modes == (0, 1) else wanted))
    for name, tensor, dtype in pairs:
        given = jnp.dtype(tensor.dtype)
        refuse(given != dtype, f"{name}_antiquant_scale of {given}", f"must be {dtype} in mode {modes}", f"cast it to {dtype}")
    _shape(f, "key_antiquant_scale", key, modes[0])
    if modes == (0, 1):
        _shape(f, "value_antiquant_scale", value, 1)
    else:
        shapes = tuple(key.shape), tuple(value.shape)
        refuse(
            shapes[0] != shapes[1], f"scales of shapes {shapes[0]}, {shapes[1]}", "must be alike", "pass scales of one shape"
        )
    for name, scale in (("key", key), ("value", value)):
        offset = dict(f.call.other_scales).get(f"{name}_antiquant_offset")
        wrong = offset is not None and (tuple(offset.shape), offset.dtype) != (tuple(scale.shape), scale.dtype)
        refuse(wrong, f"{name}_antiquant_offset", "must have shape and type of the scale", "pass an offset like the scale")


def _shape(f: Facts, name: str, scale: Any, mode: int) -> None:
    shape, n, d = tuple(scale.shape), f.n2, f.d
    if mode in (1, 3, 6) and f.device_lengths and f.packed:
        return
    blocks, page = f.call.key[0].shape[0], f.call.block_size
    fixed: dict[int, tuple[tuple[int, ...], ...]] = {
        0: ((n * d,), (1,), (1, n * d), (n, d), (1, n, d), (n, 1, d), (1, n, 1, d), (1, 1, n, d)),
        2: ((n,),),
        4: ((blocks, page),),
        5: ((blocks, n, page),),
    }
    rows = {1: ((f.b,), (1, f.b)), 3: ((f.b, n),), 6: ((1, f.b, n),)}
    if mode in fixed:
        right = shape in fixed[mode]
    else:
        last = 2 if mode == 6 else 1
        right = shape[:-last] in rows[mode] and shape[-last] >= f.s2 and (mode != 6 or shape[-1] == d // 32)
    refuse(
        not right,
        f"{name} of shape {shape}",
        f"must fit N={n}, D={d}, B={f.b} and {f.s2} keys in mode {mode}",
        "pass one scale per channel, token or head, as the mode says",
    )
