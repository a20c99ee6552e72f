"""Scales: those of a quantised output, and which checks those of inputs meet (``checkers/post_quant_checker.cpp``)."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from ascend_jax.attention.infer import antiquant_checks, fullquant_checks
from ascend_jax.attention.infer.call import refuse, size
from ascend_jax.attention.infer.facts import Facts

SCALES = (jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16))


def single(f: Facts) -> None:
    """Types of the output's scale and offset, and the modes of quantised keys."""
    for name in ("quant_scale2", "quant_offset2"):
        tensor = getattr(f.call, name)
        if tensor is not None:
            dtype = jnp.dtype(tensor.dtype)
            refuse(dtype not in SCALES, f"{name} of {dtype}", "must be float32 or bfloat16", f"cast {name} to float32")
    if f.quant != "none":
        _inputs(f).single(f)


def _inputs(f: Facts) -> Any:
    """The checks of quantised inputs."""
    return antiquant_checks if f.quant == "anti" else fullquant_checks


def existence(f: Facts) -> None:
    """The scales that each form needs and those that it must not have."""
    if f.out_quantised:
        refuse(
            size(f.call.quant_scale2) == 0, "an empty quant_scale2", "must hold numbers", "pass one scale, or one per channel"
        )
    names = {"key_antiquant_scale": f.call.key_antiquant_scale, "value_antiquant_scale": f.call.value_antiquant_scale}
    names |= {"dequant_scale_query": f.call.dequant_scale_query, **dict(f.call.other_scales)}
    if f.quant == "none":
        given = [name for name, tensor in names.items() if tensor is not None]
        refuse(
            bool(given) and not f.is_910b,
            f"{', '.join(given)} with {f.q_dtype} inputs",
            "scales go with quantised inputs only",
            f"leave {', '.join(given)} out",
        )
        return
    if f.quant == "anti":
        missing = [name for name in ("key_antiquant_scale", "value_antiquant_scale") if names[name] is None]
        refuse(
            bool(missing),
            f"key of {f.kv_dtype} with query of {f.q_dtype}, without {', '.join(missing)}",
            "must be given",
            f"pass {', '.join(missing)}, or query, key and value of one float type",
        )
    _inputs(f).existence(f)


def feature(f: Facts) -> None:
    """The scale of the output against the rest, and those of the inputs."""
    if f.out_quantised:
        _output(f)
    if f.quant != "none":
        _inputs(f).feature(f)


def _output(f: Facts) -> None:
    scale = f.call.quant_scale2
    dtype, shape, channels = jnp.dtype(scale.dtype), tuple(scale.shape), f.n1 * f.dv
    refuse(
        f.q_dtype != jnp.bfloat16 and dtype != jnp.float32,
        f"quant_scale2 of {dtype} with {f.q_dtype} queries",
        "must be float32",
        "cast quant_scale2 to float32",
    )
    free = f.call.input_layout in ("BSH", "BSND", "BNSD", "BNSD_BSND")
    right = size(scale) == channels if free else shape == (f.n1, f.dv)
    right = size(scale) == 1 or (free and right) if len(shape) == 1 else right
    refuse(
        not right,
        f"quant_scale2 of shape {shape}",
        f"must be (1,) or hold N·D = {channels} numbers",
        f"pass quant_scale2 of shape ({f.n1}, {f.dv})",
    )
    refuse(
        f.quant == "anti" and jnp.dtype(f.call.out_dtype) != f.kv_dtype,
        f"an output of {f.call.out_dtype} with keys of {f.kv_dtype}",
        "must have one type",
        "leave quant_scale2 out",
    )
    if f.is_910b and f.quant == "none" and f.s1 > 1 and f.call.quant_offset2 is not None and not f.device_lengths:
        _every_row_counts(f)


def _every_row_counts(f: Facts) -> None:
    """A row that sees no key has no value that the offset could move."""
    for batch in range(f.b):
        q_len = _at(f.lengths_q, batch, f.s1)
        kv_len = _at(f.call.lengths_kv, batch, f.s2) + f.prefix_len
        before, after = f.pre_tokens, f.next_tokens
        if f.sparse_mode == 3:
            after = kv_len - q_len
        elif f.sparse_mode == 4:
            before, after = before - kv_len + q_len, after + kv_len - q_len
        refuse(
            before + kv_len - q_len < 0 or after < 0,
            f"quant_offset2 with {q_len} rows over {kv_len} keys, sparse_mode={f.sparse_mode}",
            "every row must see a key",
            "leave quant_offset2 out",
        )


def _at(given: Sequence[int] | None, batch: int, default: int) -> int:
    return given[min(batch, len(given) - 1)] if given else default


def consistency(f: Facts) -> None:
    """The output's offset against its scale, and the scales of the inputs."""
    if f.quant != "none":
        _inputs(f).consistency(f)
    scale, offset = f.call.quant_scale2, f.call.quant_offset2
    if scale is None or offset is None:
        return
    refuse(
        jnp.dtype(scale.dtype) != jnp.dtype(offset.dtype)
        or len(scale.shape) != len(offset.shape)
        or size(scale) != size(offset),
        f"quant_offset2 of {offset.dtype}, shape {tuple(offset.shape)}",
        f"must match quant_scale2: {scale.dtype}, shape {tuple(scale.shape)}",
        "pass scale and offset of one shape and type",
    )
