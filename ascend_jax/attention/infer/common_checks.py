"""Types, head counts, widths and shapes of query, key and value (``checkers/common_checker.cpp`` of ops-transformer)."""

import jax.numpy as jnp

from ascend_jax.attention.infer.call import FLOATS, refuse
from ascend_jax.attention.infer.facts import Facts
from ascend_jax.attention.infer.kv_checks import MAX_BATCH, from_list, from_pages
from ascend_jax.attention.infer.layouts import AXES, axis

POWERS = (1, 2, 4, 8, 16, 32, 64, 128)
MAX_D = 512
TRANSPOSED = ("BSH_BNSD", "BSND_BNSD", "BNSD_BSND")
DECODE_MLA = ("BSH", "BSND", "BNSD", "TND", "BNSD_NBSD", "BSND_NBSD", "BSH_NBSD", "TND_NTD")
PLAIN = ("BSH", "BSND", "BNSD", "TND", "NTD", "BSND_BNSD", "BSH_BNSD", "NTD_TND", "BNSD_BSND")


def single(f: Facts) -> None:
    """Each input on its own: types, heads, layout, ``inner_precise``."""
    if f.quant == "none":
        _float_types(f)
    refuse(
        f.mla == "d512" and (f.n1 not in POWERS or f.n2 != 1),
        f"num_heads={f.n1}, num_key_value_heads={f.n2}",
        "with D=512 and a rope, N of query is a power of 2 up to 128 and N of key is 1",
        "pass num_key_value_heads=1 and num_heads=128",
    )
    _layout(f)
    precise = f.call.inner_precise
    refuse(not 0 <= precise <= 4, f"inner_precise={precise}", "must be 0 to 4", "pass inner_precise=0")
    axis("key", f.call.key[0], f.kv_layout, AXES[f.kv_layout][0])


def _float_types(f: Facts) -> None:
    for name, tensor in (("query", f.call.query), ("key", f.call.key[0]), ("value", f.call.value[0])):
        dtype = jnp.dtype(tensor.dtype)
        refuse(dtype not in FLOATS, f"{name} of {dtype}", "must be float16 or bfloat16", f"cast {name} to float16")


def _layout(f: Facts) -> None:
    layout, accepted = f.call.input_layout, DECODE_MLA if f.mla == "d512" else PLAIN
    refuse(
        layout not in accepted,
        f"input_layout={layout!r}",
        f"must be one of {', '.join(accepted)} for D={f.d} {'with' if f.rope == 'split' else 'without'} rope",
        f"pass input_layout={accepted[0]!r}",
    )
    refuse(
        f.rope == "combined" and (f.d, f.dv) != (192, 128),
        f"D={f.d} of query and D={f.dv} of value",
        "must be 192 and 128 where the query is wider than the value",
        "pass a value as wide as the query",
    )
    if f.rope == "none" and f.is_910b:
        _widths_910b(f, layout)


def _widths_910b(f: Facts, layout: str) -> None:
    """Which D of the value each layout has on the 910B, without rope."""
    if layout in ("BSH", "BSND", "BNSD"):
        wrong, rule = not f.one_row and f.dv % 16 != 0, "must be a multiple of 16 where query has more than one row"
    elif layout == "BNSD_BSND":
        wrong, rule = f.dv % 16 != 0, "must be a multiple of 16"
    elif layout == "TND":
        wrong, rule = f.dv not in (64, 128, 192), "must be 64, 128 or 192"
    else:
        wrong, rule = f.dv not in (64, 128), "must be 64 or 128"
    refuse(wrong, f"D={f.dv} of value in layout {layout}", rule, "pad D to 64, 128 or, in TND, 192")


def existence(f: Facts) -> None:
    """Query, key and value are there, or there would be no call."""


def feature(f: Facts) -> None:
    """Nothing of its own."""


def consistency(f: Facts) -> None:
    """Inputs against one another."""
    if f.quant == "none":
        _layout_features(f)
    _kv_types(f)
    if f.storage == "paged":
        from_pages(f)
    elif f.storage == "list":
        from_list(f)
    _ranges(f)
    _heads_match(f)
    if f.storage == "dense":
        _dense_shapes(f)
    refuse(
        f.storage == "paged" and f.uneven and not f.is_910b,
        f"D={f.d} of query and D={f.dv} of value with block_table",
        "must be equal, or 192 and 128",
        "pass a value as wide as the query",
    )


def _layout_features(f: Facts) -> None:
    layout, plain = f.call.input_layout, f.mla == "none"
    moved = layout in ("BSH_BNSD", "BSND_BNSD") or f.packed
    refuse(
        moved and f.storage == "list",
        f"{len(f.call.key)} key tensors in layout {layout}",
        "one key per batch works only in BSH, BSND, BNSD and BNSD_BSND",
        "pass one key and one value",
    )
    refuse(
        moved and f.pse, f"pse_shift in layout {layout}", "works only in BSH, BSND, BNSD and BNSD_BSND", "leave pse_shift out"
    )
    narrow = f.q_layout == "NTD" or layout in ("BSH_BNSD", "BSND_BNSD")
    refuse(
        plain and narrow and f.d not in (64, 128),
        f"D={f.d} of query in layout {layout}",
        "must be 64 or 128",
        "pad D of query to 64 or 128",
    )
    refuse(
        plain and (f.q_layout == "NTD" or layout in TRANSPOSED) and f.uneven,
        f"D={f.d} of query and D={f.dv} of value in layout {layout}",
        "must be equal",
        "pass a value as wide as the query",
    )
    step = 32 if jnp.dtype(f.call.out_dtype) == jnp.int8 else 16
    refuse(
        plain and layout == "BNSD_BSND" and f.d % step != 0,
        f"D={f.d} of query in layout {layout}",
        f"must be a multiple of {step}",
        f"pad D to a multiple of {step}",
    )


def _kv_types(f: Facts) -> None:
    if f.storage != "dense":
        return
    k_dtype, v_dtype = (jnp.dtype(x[0].dtype) for x in (f.call.key, f.call.value))
    refuse(k_dtype != v_dtype, f"value of {v_dtype}", f"must have the type of key, {k_dtype}", f"cast value to {k_dtype}")


def _ranges(f: Facts) -> None:
    refuse(not 0 < f.b <= MAX_BATCH, f"batch of {f.b}", f"must be 1 to {MAX_BATCH}", "split the batch")
    for name, wide in (("query", f.d), ("value", f.dv)):
        refuse(wide > MAX_D, f"D={wide} of {name}", f"must be at most {MAX_D}", "use fewer channels per head")
        refuse(
            f.uneven and wide > 128,
            f"D={wide} of {name}",
            "must be at most 128 where D of query and value differ",
            "pass a value as wide as the query",
        )
    refuse(
        f.mla == "d512" and (f.s1 < 1 or f.group not in POWERS),
        f"S={f.s1} of query, {f.group} query heads per key head",
        "with D=512 and a rope, query has a row and heads per key head are a power of 2 up to 128",
        "pad the query heads to a power of 2",
    )


def _heads_match(f: Facts) -> None:
    keys = f.call.key if f.storage != "paged" else ()
    named = [("query", f.call.query, f.q_layout, "num_heads", f.n1)]
    named += [("key", key, f.kv_layout, "num_key_value_heads", f.n2) for key in keys]
    for name, tensor, layout, attribute, heads in named:
        if "H" in layout:
            axis(name, tensor, layout, "D", heads)
            continue
        given = axis(name, tensor, layout, "N")
        refuse(given != heads, f"{name} with N={given}", f"must be {attribute}={heads}", f"pass {attribute}={given}")


def _dense_shapes(f: Facts) -> None:
    key, value = (tuple(x[0].shape) for x in (f.call.key, f.call.value))
    free = f.mla == "combined" or f.uneven
    refuse(
        len(key) != len(value) or key[:-1] != value[:-1] or (not free and key != value),
        f"value of shape {value}",
        f"must match key of shape {key}",
        "pass key and value of one shape",
    )
    if not f.packed:
        refuse(key[0] != f.b, f"key of batch {key[0]}", f"must be the batch of query, {f.b}", f"pass a key of batch {f.b}")
    d = axis("key", f.call.key[0], f.kv_layout, "D", f.n2)
    refuse(d != f.d, f"D={d} of key", f"must be D={f.d} of query", "pass query and key of one width")
