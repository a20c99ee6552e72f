"""What the name and the note of a row say of inputs that did not reach us: shared prefix, left padding and key_rope.

Each is made to fit, and then made wrong in the way that the text says.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp

from experiments.peer_cases.not_expressible import NotExpressible

PREFIX_LEN = 128
OTHER = {"float16": "bfloat16", "bfloat16": "float16"}
AXES = {"BSH": "bsh", "BSND": "bsnd", "BNSD": "bnsd", "BNSD_BSND": "bnsd"}


def follow(case: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """``found`` with the inputs that the text speaks of. Raises ``NotExpressible`` where it does not say enough."""
    said = f"{case['source']['case']} {case.get('note', '')}".lower()
    for pattern, add in ((r"prefix", _prefix), (r"left_?pad", _padding), (r"rope", _ropes)):
        if re.search(pattern, said):
            found = add(case["layout"], said, found)
    return found


def _spec(shape: list[int], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype))


def _prefix(layout: str, said: str, found: dict[str, Any]) -> dict[str, Any]:
    key = found["key"][0]
    axes = AXES.get(layout, "tnd")
    shape = [1, *key.shape[1:]] if len(key.shape) == len(axes) else [1, key.shape[-1]]
    if "s" in axes and "block_table" not in found:
        shape[axes.index("s")] = PREFIX_LEN
    parts = {"key": (list(shape), key.dtype.name), "value": (list(shape), key.dtype.name)}
    if match := re.search(r"_([nsdh])_(key_|vsp_|ksp_)?(mismatch|err)", said):
        wrong, place = ("key" if match[2] == "key_" or match[3] == "err" else "value"), axes.find(match[1])
        if place < 0:
            raise NotExpressible(f"layout {layout} has no axis {match[1].upper()}")
        parts[wrong][0][place] //= 2
    elif "dtype" in said:
        wrong = "value" if "kvp" in said else "key"
        parts[wrong] = (parts[wrong][0], OTHER[parts[wrong][1]])
    elif "gt_vs" in said:
        parts["value"][0][axes.index("s")] //= 2
    if "actual_shared_prefix_len" in said or "aspl" in said:
        found = found | {"actual_shared_prefix_len": (-1 if "negative" in said else PREFIX_LEN + 1,)}
    only = re.search(r"only_?(key|value)", said)
    names = [only[1]] if only else ["key", "value"]
    return found | {f"{name}_shared_prefix": _spec(*parts[name]) for name in names}


def _padding(layout: str, said: str, found: dict[str, Any]) -> dict[str, Any]:
    of_query = re.search(r"actseqlenq|query|q_?pad|both", said) or not re.search(r"kv|actseqlen|paddingsize", said)
    name = "query_padding_size" if of_query else "kv_padding_size"
    return found | {name: _spec([2] if re.search(r"dim|shape", said) else [1], "int64")}


def _ropes(layout: str, said: str, found: dict[str, Any]) -> dict[str, Any]:
    if re.search(r"only_?(k_?|key_?)rope", said):
        rest = {name: x for name, x in found.items() if name != "query_rope"}
        return {"key_rope": _spec([*found["key"][0].shape[:-1], 64], "float16")} | rest
    if "key_rope" not in found:
        return found
    specs = {name: (list(found[name].shape), found[name].dtype.name) for name in ("query_rope", "key_rope")}
    if "batch" in said:
        specs["key_rope"][0][0] += 1
    elif re.search(r"_s_(mismatch|diff)", said):
        specs["key_rope"][0][2 if layout.startswith("BNSD") else 1] += 1
    elif re.search(r"rope_?dtype", said):
        for name in specs:
            if name in said or not re.search(r"(query|key)_rope", said):
                specs[name] = (specs[name][0], "float32")
    return found | {name: _spec(*spec) for name, spec in specs.items()}
