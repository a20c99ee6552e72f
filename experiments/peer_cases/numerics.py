"""The numbers of an accepted call beside its golden: made smaller, filled, computed by both, compared."""

from collections.abc import Callable
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np

from ascend_jax.attention.errors import AclnnError, FindKernelError
from experiments.peer_cases.golden_fusion import fusion, fusion_grad
from experiments.peer_cases.golden_infer import infer, unified
from experiments.peer_cases.golden_layouts import UncoveredError
from experiments.peer_cases.goldens import Rounding
from experiments.peer_cases.inputs import filled
from experiments.peer_cases.smaller import TooLargeError, smaller
from experiments.peer_cases.tolerances import FAILING_SHARE, Compared, rule_of
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
ROUNDING = 1.5
"""Numbers beyond tolerance are so by rounding if at most so many times more elements are than of the golden with P rounded."""
PROGRAMS_KEPT = 60
"""Calls after which compiled programs are dropped: a process that keeps those of a thousand calls runs out of memory."""
MOST_NUMBERS = 2**27
"""Elements of all tensors of a call."""


class Numbers(NamedTuple):
    """``within`` is None where nothing was computed; ``why`` says why, or what was taken away.

    ``by_rounding``, of numbers beyond tolerance: whether the golden is about as far once P is rounded to the inputs' type.
    """

    max_error: float | None = None
    tolerance: str | None = None
    within: bool | None = None
    by_rounding: bool | None = None
    why: str = ""


class Runner:
    """Runs calls and keeps what was found: many cases become one call once they are small."""

    def __init__(self, limit: int, *, round_probs: bool = False) -> None:
        self.limit, self.round_probs = limit, round_probs
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
            call = filled(function, small, ranges, crc32(key.encode()))
            self._found[key] = run(partial(function, round_probs=self.round_probs), call, rule)
            if len(self._found) % PROGRAMS_KEPT == 0:
                jax.clear_caches()
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


def run(function: "partial[Any]", call: dict[str, Any], rule: Callable[..., Compared]) -> Numbers:
    """One call of numbers, by operator and golden."""
    name_of = function.func.__name__
    golden, dtype = GOLDENS[name_of], str(np.asarray(call["q" if "q" in call else "query"]).dtype)
    try:
        wanted = golden(call)
        outputs = function(**{name: _on_device(x) for name, x in call.items()})
    except UncoveredError as found:
        return Numbers(why=f"not run: no golden for {found}")
    except FindKernelError as found:
        return Numbers(why=f"not run: {first_line(found)}")
    found = dict(zip(RESULTS[name_of], outputs, strict=False))
    names = [name for name in wanted if name in found and _compared(name, found[name], call, rule.__name__)]
    rounded = cache(lambda scores: golden(call, Rounding(np.dtype(dtype), scores)))
    judged = {name: _judged(name, (np.asarray(found[name], np.float64), wanted[name]), dtype, rule, rounded) for name in names}
    worst = max(judged, key=lambda name: (not judged[name][0].within, judged[name][0].max_error))
    beyond = [name for name in names if not judged[name][0].within]
    text = f"{worst}: {judged[worst][0].text}{judged[worst][2]}" + (f" (beyond: {', '.join(beyond)})" if beyond else "")
    by_rounding = all(judged[name][1] for name in beyond) if beyond else None
    return Numbers(max(one[0].max_error for one in judged.values()), text, not beyond, by_rounding)


def _judged(name: str, pair: Any, dtype: str, rule: Callable[..., Compared], rounded: Any) -> tuple[Compared, bool, str]:
    """One result by its rule; where it is beyond, whether the golden is about as far once P and the result are rounded."""
    if pair[0].shape != pair[1].shape:
        raise ValueError(f"{name} has the shape {pair[0].shape}, its golden {pair[1].shape}")
    same = lambda: rounded(True)[name]  # noqa: E731
    one = rule(pair, dtype, same)
    if one.within:
        return one, True, ""
    plain = rounded(False)[name]
    plain = plain if name.startswith("softmax") else plain.astype(dtype).astype(np.float64)
    other = rule((plain, pair[1]), dtype, same)
    return one, one.share <= ROUNDING * max(other.share, FAILING_SHARE), f"; the golden with P rounded: {other.share:.3%}"


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
