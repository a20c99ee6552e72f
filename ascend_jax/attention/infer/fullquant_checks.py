"""Quantised queries: the four forms, and what each of them takes (``checkers/dequant_checker.cpp``).

Per tensor (int8); per token and head in decoding with D=512 and a rope (mla); groups of 64 with shared exponents (mx); per
token and head over keys in pages (heads).
"""

import math
from typing import Any, Literal

import jax.numpy as jnp

from ascend_jax.attention.infer.call import FLOATS, refuse, size
from ascend_jax.attention.infer.facts import Facts

Form = Literal["tensor", "mla", "mx", "heads"]
FORBIDDEN = {
    "tensor": ("key_antiquant_scale", "value_antiquant_scale", "dequant_scale_query"),
    "mla": ("quant_scale1", "dequant_scale1", "dequant_scale2"),
    "mx": ("dequant_scale1", "dequant_scale2", "quant_scale2", "quant_offset2"),
    "heads": ("dequant_scale1", "dequant_scale2", "quant_scale2", "quant_offset2"),
}
NEVER = ("antiquant_scale", "antiquant_offset", "key_antiquant_offset", "value_antiquant_offset", "key_rope_antiquant_scale")
LAYOUTS = {
    "tensor": ("BSH", "BSND", "BNSD", "BNSD_BSND"),
    "mla": ("BSH", "BSND", "BNSD", "TND", "BSH_NBSD", "BSND_NBSD", "BNSD_NBSD", "TND_NTD"),
    "mx": ("TND",),
    "heads": ("NTD_TND",),
}
GROUP = 64


def form_of(f: Facts) -> Form:
    """The form that the modes of query, key and value name."""
    modes = (f.call.query_quant_mode, f.call.key_antiquant_mode, f.call.value_antiquant_mode)
    if modes == (3, 0, 0) and f.rope == "split":
        return "mla"
    if modes == (6, 6, 8):
        return "mx"
    return "heads" if modes == (3, 3, 2) else "tensor"


def scales_of(f: Facts) -> dict[str, Any]:
    """Every scale and offset that is given."""
    own = ("key_antiquant_scale", "value_antiquant_scale", "dequant_scale_query", "quant_scale2", "quant_offset2")
    found = {name: getattr(f.call, name) for name in own} | dict(f.call.other_scales)
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def single(f: Facts) -> None:
    """Modes, and types and shapes of scales."""
    form, given = form_of(f), scales_of(f)
    modes = (f.call.query_quant_mode, f.call.key_antiquant_mode, f.call.value_antiquant_mode)
    refuse(
        form == "tensor" and modes != (0, 0, 0),
        f"query_quant_mode, key_antiquant_mode, value_antiquant_mode = {modes}",
        "must be all 0, or 3, 0, 0 with a rope, or 3, 3, 2, or 6, 6, 8",
        "pass modes of one form",
    )
    named = ("dequant_scale_query", "key_antiquant_scale", "value_antiquant_scale")
    wanted = jnp.dtype(jnp.float8_e8m0fnu if form == "mx" else jnp.float32)
    for name in named if form != "tensor" else ():
        wrong = name in given and jnp.dtype(given[name].dtype) != wanted
        refuse(wrong, f"{name} of another type than {wanted}", f"must be {wanted}", f"cast {name} to {wanted}")
    ones = {"tensor": ("quant_scale1", "dequant_scale1", "dequant_scale2"), "mla": named[1:]}.get(form, ("quant_scale1",))
    for name in ones:
        wrong = name in given and tuple(given[name].shape) != (1,)
        refuse(wrong, f"{name} of another shape than (1,)", "must hold one number", f"pass {name} of shape (1,)")


def existence(f: Facts) -> None:
    """The scales that the form must and must not have."""
    form, given = form_of(f), scales_of(f)
    needed = ("dequant_scale_query", "key_antiquant_scale", "value_antiquant_scale")
    needed = ("quant_scale1", "dequant_scale1", "dequant_scale2") if form == "tensor" else needed
    missing = [name for name in needed if name not in given or size(given[name]) == 0]
    refuse(bool(missing), f"query of {f.q_dtype} without {', '.join(missing)}", "must be given", f"pass {', '.join(missing)}")
    extra = [name for name in (*FORBIDDEN[form], *NEVER) if name in given]
    refuse(
        bool(extra), f"query of {f.q_dtype} with {', '.join(extra)}", "does not go together", f"leave {', '.join(extra)} out"
    )
    wrong = form == "heads" and f.call.block_table is None
    refuse(wrong, "quantisation per head without block_table", "keys must be in pages", "pass block_table")


def feature(f: Facts) -> None:
    """Types, layouts, sizes, and what does not go together."""
    form, value = form_of(f), jnp.dtype(f.call.value[0].dtype)
    accepted = {"tensor": ("int8",), "mla": ("int8", "float8_e4m3fn")}.get(form, ("float8_e4m3fn",))
    refuse(
        f.q_dtype.name not in accepted or value != f.kv_dtype,
        f"query of {f.q_dtype}, value of {value}",
        f"must both be {' or '.join(accepted)}",
        "quantise query, key and value alike",
    )
    if f.rope == "split" and form in ("mla", "mx"):
        ropes = tuple(jnp.dtype(x.dtype) for x in (f.call.query_rope, f.call.key_rope))
        refuse(ropes != (FLOATS[1], FLOATS[1]), f"ropes of {ropes[0]}, {ropes[1]}", "must be bfloat16", "cast the ropes")
    layouts = LAYOUTS[form]
    layouts = tuple(x for x in layouts if "BNSD" not in x) if form == "mla" and f.q_dtype == jnp.int8 else layouts
    layout = f.call.input_layout
    refuse(
        layout not in layouts, f"input_layout={layout!r} of quantised query", f"must be in {layouts}", f"pass {layouts[0]!r}"
    )
    _sizes(f, form)
    _scale_shapes(f, form)
    _together(f, form)


def _sizes(f: Facts, form: Form) -> None:
    most = 128 if form == "mla" else 64
    refuse(
        f.n1 > 256 or f.n2 > 256 or f.group > most,
        f"{f.n1} query heads over {f.n2} key heads",
        f"must be at most 256, and {most} per key head",
        "pass fewer heads",
    )
    widths = {"mla": ((512, f.dv),), "mx": ((128, 128), (64, 64)), "heads": ((128, 128),)}.get(form, ((f.d, f.d),))
    refuse((f.d, f.dv) not in widths, f"D={f.d} of query, {f.dv} of value", f"must be in {widths}", "pass another D")


def _scale_shapes(f: Facts, form: Form) -> None:
    """The query's scale, and in the forms with groups or pages those of key and value."""
    query = tuple(f.call.query.shape)
    wanted: dict[str, tuple[tuple[int, ...], ...]] = {}
    blocks, page, groups = f.call.key[0].shape[0], f.call.block_size, math.ceil(f.d / GROUP)
    if form == "mla":
        wanted["dequant_scale_query"] = ((*query[:2], f.n1) if f.q_layout == "BSH" else query[:-1],)
    elif form == "heads":
        wanted = {"dequant_scale_query": ((f.n1, query[1]),), "key_antiquant_scale": ((blocks, f.n2, page),)}
        wanted["value_antiquant_scale"] = ((f.n2,),)
    elif form == "mx":
        wanted["dequant_scale_query"] = (query[0], f.n1, groups, 2), (f.n2, query[0], f.group, groups, 2)
        wanted |= _grouped(f, blocks, page, groups)
    for name, shapes in wanted.items():
        given = tuple(scales_of(f)[name].shape)
        refuse(given not in shapes, f"{name} of shape {given}", f"must be {' or '.join(map(str, shapes))}", f"reshape {name}")


def _grouped(f: Facts, blocks: int, page: int, groups: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    names = ("key_antiquant_scale", "value_antiquant_scale")
    rows = math.ceil(page / GROUP)
    if f.kv_layout == "BnNBsD":
        return dict(zip(names, (((blocks, f.n2, page, groups, 2),), ((blocks, f.n2, rows, f.dv, 2),)), strict=True))
    if f.kv_layout == "NZ":
        key, value = (blocks, f.n2, math.ceil(page / 16), groups, 16, 2), (blocks, f.n2, math.ceil(f.dv / 16), rows, 16, 2)
        return dict(zip(names, ((key,), (value,)), strict=True))
    found = {names[0]: ((blocks, f.n2, groups, 2),)}
    if not f.device_lengths:
        found[names[1]] = ((sum(math.ceil(length / GROUP) for length in f.kv_seen), f.n2, f.dv, 2),)
    return found


def _together(f: Facts, form: Form) -> None:
    if form == "tensor":
        wrong = f.out_quantised or f.mla != "none" or f.kv_layout == "NZ" or f.s1 == 1
        refuse(
            wrong,
            f"int8 query with {f.s1} rows, rope or quantised output",
            "needs more than one row, and no rope, pages in NZ or quant_scale2",
            "pass a float query",
        )
        return
    wrong = f.pse or f.q_padded or f.kv_padded or f.prefix or f.storage == "list" or (form == "heads" and f.rope != "none")
    refuse(
        wrong,
        f"query of {f.q_dtype} with pse_shift, padding, prefix or several keys",
        "does not go together",
        "leave them out",
    )
    wrong = form == "mx" and f.call.inner_precise not in (0, 1)
    refuse(wrong, f"inner_precise={f.call.inner_precise} in groups", "must be 0 or 1", "pass inner_precise=0")
    wrong = form == "mla" and f.q_dtype == jnp.int8 and f.kv_layout != "NZ"
    refuse(wrong, "int8 query with D=512 and other pages than NZ", "must be pages of 5 dimensions", "pass pages in NZ")


def consistency(f: Facts) -> None:
    """Nothing of its own."""
