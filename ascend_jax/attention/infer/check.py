"""All checks, in the operator's order: single inputs, what must be there, what goes together, and shapes."""

from dataclasses import replace
from typing import Any, get_args

from ascend_jax.attention.arguments import check_tensor, check_text, flag, real_number, whole_number
from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.attention.infer import (
    common_checks,
    feature_checks,
    length_checks,
    mask_checks,
    paged_checks,
    quant_checks,
    rope_checks,
)
from ascend_jax.attention.infer.call import Call, Chip, required
from ascend_jax.attention.infer.facts import Facts, quant_of
from ascend_jax.attention.infer.legacy import bias_counts, check_old_front, check_packed, packed_kernel
from ascend_jax.attention.infer.parse import parse

ORDER = (common_checks, mask_checks, length_checks, paged_checks, quant_checks, rope_checks, feature_checks)
STAGES = ("single", "existence", "feature", "consistency")
WHOLE = (
    *("num_heads", "num_key_value_heads", "pre_tokens", "next_tokens", "sparse_mode", "inner_precise", "block_size"),
    *("antiquant_mode", "key_antiquant_mode", "value_antiquant_mode", "query_quant_mode"),
)
TENSORS = (
    *("query", "pse_shift", "atten_mask", "quant_scale2", "quant_offset2", "block_table", "query_padding_size"),
    *("kv_padding_size", "key_antiquant_scale", "value_antiquant_scale", "key_shared_prefix", "value_shared_prefix"),
    *("query_rope", "key_rope", "dequant_scale_query", "learnable_sink"),
)


def check(call: Call) -> Facts:
    """The facts of a call that the operator accepts.

    Raises:
      ParamInvalidError: what is no tensor or no number where one belongs, a chip that is unknown.
      TilingError: what the operator refuses (561002).
    """
    call = _with_numbers(call)
    if call.chip == "910b" and packed_kernel(call):
        facts = parse(call)
        check_packed(call)
        return replace(facts, pse=bias_counts(facts))
    if call.chip == "910b" and quant_of(call) != "none":
        check_old_front(call)
    facts = parse(call)
    if facts.empty:
        return facts
    for stage in STAGES:
        for checks in ORDER:
            getattr(checks, stage)(facts)
    return facts


def _with_numbers(call: Call) -> Call:
    """The call with its attributes as plain numbers, its tensors known to be tensors."""
    for name in ("chip", "input_layout"):
        check_text(name, getattr(call, name))
    if call.chip not in get_args(Chip):
        raise ParamInvalidError(f"chip={call.chip!r}", f"must be one of {', '.join(get_args(Chip))}", 'pass chip="910b"')
    several = [(name, x) for name in ("key", "value") for x in getattr(call, name) or (None,)]
    for name, x in several:
        check_tensor(name, required(name, x))
    for name, x in [*((name, getattr(call, name)) for name in TENSORS), *call.other_scales]:
        check_tensor(name, x)
    numbers: dict[str, Any] = {name: whole_number(name, getattr(call, name)) for name in WHOLE}
    numbers["softmax_lse_flag"] = flag("softmax_lse_flag", call.softmax_lse_flag)
    return replace(call, **numbers, scale=real_number("scale", call.scale))
