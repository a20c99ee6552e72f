"""All checks, in the operator's order: single inputs, what must be there, what goes together, and shapes."""

from dataclasses import replace

from ascend_jax.attention.infer import (
    common_checks,
    feature_checks,
    length_checks,
    mask_checks,
    paged_checks,
    quant_checks,
    rope_checks,
)
from ascend_jax.attention.infer.call import Call
from ascend_jax.attention.infer.facts import Facts, quant_of
from ascend_jax.attention.infer.legacy import bias_counts, check_old_front, check_packed, packed_kernel
from ascend_jax.attention.infer.parse import parse

ORDER = (common_checks, mask_checks, length_checks, paged_checks, quant_checks, rope_checks, feature_checks)
STAGES = ("single", "existence", "feature", "consistency")


def check(call: Call) -> Facts:
    """The facts of a call that the operator accepts; ``TilingError`` where it refuses (561002)."""
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
