"""The numbers of an accepted call beside its golden: made smaller, filled, computed by both, compared."""

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.errors import AclnnError, FindKernelError
from experiments.peer_cases.golden_fusion import UncoveredError, fusion, fusion_grad
from experiments.peer_cases.golden_infer import infer, unified
from experiments.peer_cases.inputs import filled
from experiments.peer_cases.smaller import TooLargeError, smaller
from experiments.peer_cases.tolerances import Compared, rule_of
from experiments.peer_cases.verdicts import first_line, traced

GOLDENS = {
    "npu_fusion_attention": fusion,
    "npu_fusion_attention_grad": fusion_grad,
    "npu_fused_infer_attention_score": infer,
    "flash_attn": unified,
}
"""The golden of each operator."""
RESULTS = {
    "npu_fusion_attention": ("attention_out", "softmax_max", "softmax_sum"),
    "npu_fusion_attention_grad": ("dq", "dk", "dv", "dpse", "dsink"),
    "npu_fused_infer_attention_score": ("attention_out", "softmax_lse"),
    "flash_attn": ("attention_out", "softmax_lse"),
}
"""Names of an operator's results, in order."""
MOST_NUMBERS = 2**27
"""Elements of all tensors of a call."""


class Numbers(NamedTuple):
    """``within`` is None where nothing was computed; ``why`` says why, or what was taken away."""

    max_error: float | None = None
    tolerance: str | None = None
    within: bool | None = None
    why: str = ""


class Runner:
    """Runs calls and keeps what was found: many cases become one call once they are small."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._found: dict[str, Numbers] = {}

    def __call__(self, case: dict[str, Any], function: Callable[..., Any], call: dict[str, Any]) -> Numbers:
        """The numbers of ``case``, which became ``function(**call)``."""
        try:
            small, note = smaller(function, call, self.limit)
            traced(function, small)
        except TooLargeError as found:
            return Numbers(why=f"not run: {found}")
        except AclnnError as found:
            return Numbers(why=f"not run: the smaller call is refused: {first_line(found)}")
        total = sum(prod(x.shape) for x in jax.tree.leaves(small) if isinstance(x, jax.ShapeDtypeStruct))
        if total > MOST_NUMBERS:
            return Numbers(why=f"not run: its tensors have {total:.3g} elements")
        rule, ranges = rule_of(case), ranges_of(case)
        key = f"{function.__name__} {sorted(small.items())} {rule.__name__} {ranges}"
        if key not in self._found:
            self._found[key] = run(function, filled(function, small, ranges, crc32(key.encode())), rule)
        found = self._found[key]
        return found._replace(why="; ".join(part for part in (note, found.why) if part))


def ranges_of(case: dict[str, Any]) -> dict[str, Any]:
    """The range of uniform numbers by the name of a tensor; "" for every other."""
    if case.get("q_range"):
        return dict.fromkeys(("q", "query"), tuple(case["q_range"]))
    given = case.get("value_range")
    if not given:
        return {}
    pairs = [pair for pair in given if pair] if isinstance(given[0], list) else [given]
    return {"": tuple(pairs[0])}


def run(function: Callable[..., Any], call: dict[str, Any], rule: Callable[..., Compared]) -> Numbers:
    """One call of numbers, by operator and golden."""
    golden, dtype = GOLDENS[function.__name__], str(np.asarray(call["q" if "q" in call else "query"]).dtype)
    try:
        wanted = golden(call)
        outputs = function(**{name: _on_device(x) for name, x in call.items()})
    except UncoveredError as found:
        return Numbers(why=f"not run: no golden for {found}")
    except FindKernelError as found:
        return Numbers(why=f"not run: {first_line(found)}")
    found = dict(zip(RESULTS[function.__name__], outputs, strict=False))
    plain = cache(lambda: golden(call, round_to=np.dtype(dtype)))
    names = [name for name in wanted if name in found and _compared(name, found[name], call, rule.__name__)]
    pairs = {name: (np.asarray(found[name], np.float64), wanted[name]) for name in names}
    every = {name: rule(pair, dtype, lambda name=name: plain()[name]) for name, pair in pairs.items()}
    worst = max(every, key=lambda name: (not every[name].within, every[name].max_error))
    beyond = [name for name in names if not every[name].within]
    text = f"{worst}: {every[worst].text}" + (f" ({', '.join(beyond)} beyond)" if beyond else "")
    return Numbers(max(one.max_error for one in every.values()), text, not beyond)


def _compared(name: str, result: Any, call: dict[str, Any], rule: str) -> bool:
    """The statistics are compared by the rule of the operators' own tests alone: the others look at what users see."""
    if name == "softmax_lse":
        return bool(call.get("return_softmax_lse", call.get("softmax_lse_flag")))
    if result.size == 0 and name in ("dpse", "dsink"):
        return False
    return rule == "peer_rule" or not name.startswith("softmax")


def _on_device(x: Any) -> Any:
    if isinstance(x, list):
        return [_on_device(part) for part in x]
    return jnp.asarray(x) if isinstance(x, np.ndarray) and x.ndim and x.dtype != np.int64 else x
