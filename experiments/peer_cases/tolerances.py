"""How far a result may be from its golden: the rule of each peer.

Sources: check_result of flash_attn/tests/pytests and of flash_attention_score/tests/pytest (ops-transformer), docs/spec of
cann-bench, assertRtolEqual of torch_npu's testing, torch.allclose in MindSpeed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

FAILING_SHARE = 0.005
LIMITS = {"float16": (5e-3, 2.5e-5), "bfloat16": (2**-7, 1e-4), "float32": (5e-3, 2.5e-5)}
"""Relative and absolute, of the operators' own tests."""
BENCH = {"float16": (2**-10, 2**-11, 2**-5, 2**-16), "bfloat16": (2**-7, 2**-8, 2**-3, 2**-16)}
BENCH["float32"] = (2**-13, 2**-14, 2**-8, 2**-30)
"""Threshold T, what counts as small, what counts as cancelled, and the error that either may have."""


class Compared(NamedTuple):
    """``max_error``: the largest difference; ``share`` of the elements beyond; ``text``: the rule and what was found."""

    max_error: float
    within: bool
    text: str
    share: float


Pair = tuple[np.ndarray, np.ndarray]


def difference(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Elementwise ``|found - wanted|``; 0 where nothing is wanted (NaN) or both are the same infinity."""
    with np.errstate(invalid="ignore"):
        apart = np.where(found == wanted, 0, np.abs(found - wanted))
    return np.where(np.isnan(wanted), 0, np.where(np.isnan(apart), np.inf, apart))


def peer_rule(pair: Pair, dtype: str, _: Any) -> Compared:
    """At most 0.5 % of the elements may differ by more than ``max(rtol · max(|a|, |b|), atol)``."""
    rtol, atol = LIMITS[dtype]
    found, wanted = pair
    apart = difference(found, wanted)
    allowed = np.maximum(rtol * np.nan_to_num(np.maximum(np.abs(found), np.abs(wanted)), posinf=0), atol)
    share = _share(apart > allowed)
    text = f"|d| ≤ max({rtol:.3g}·max(|a|,|b|), {atol:g}) but for 0.5 %: {share:.3%} beyond"
    return Compared(_largest(apart), share <= FAILING_SHARE, text, share)


def is_close(pair: Pair, dtype: str, _: Any) -> Compared:
    """flash_attn's: the same with ``atol + rtol · |golden|``."""
    rtol, atol = LIMITS[dtype]
    apart = difference(*pair)
    share = _share(apart > atol + rtol * np.nan_to_num(np.abs(pair[1]), posinf=0))
    text = f"|d| ≤ {atol:g} + {rtol:.3g}·|golden| but for 0.5 %: {share:.3%} beyond"
    return Compared(_largest(apart), share <= FAILING_SHARE, text, share)


def rtol_equal(pair: Pair, dtype: str, _: Any) -> Compared:
    """torch_npu's: a share of at most ``prec`` of the elements may exceed ``prec``, absolute and relative."""
    prec, least = (1e-4, 1e-9) if dtype == "float32" else (1e-3, 6e-8)
    found, wanted = pair
    apart = difference(found, wanted)
    relative = apart / (np.nan_to_num(np.maximum(np.abs(found), np.abs(wanted))) + least)
    counts = [int(np.sum(x > prec)) for x in (apart, relative)]
    text = f"assertRtolEqual {prec:g}: {counts[0]} of {apart.size} beyond absolutely, {counts[1]} relatively"
    return Compared(
        _largest(apart), not all(count > prec * apart.size for count in counts), text, min(counts) / max(1, apart.size)
    )


def all_close(pair: Pair, dtype: str, _: Any) -> Compared:
    """``|d| ≤ 1e-3 + 1e-3·|golden|`` everywhere."""
    apart = difference(*pair)
    beyond = int(np.sum(apart > 1e-3 + 1e-3 * np.abs(np.nan_to_num(pair[1]))))
    text = f"allclose 1e-3, 1e-3: {beyond} of {apart.size} beyond"
    return Compared(_largest(apart), beyond == 0, text, beyond / max(1, apart.size))


def bench_rule(pair: Pair, dtype: str, same_precision: Callable[[], np.ndarray]) -> Compared:
    """cann-bench: mean and largest relative error below T and 10·T. Where only elements near 0 break that (too small, or
    cancelled), at most twice as many of them may be wrong as in a plain computation of the same precision."""
    limit, small, cancelled, error = BENCH[dtype]
    found, wanted = pair
    apart = difference(found, wanted)
    magnitude = np.abs(np.nan_to_num(wanted))
    relative = apart / (magnitude + 1e-7)
    mean, largest = (float(np.mean(relative)), float(np.max(relative))) if apart.size else (0.0, 0.0)
    text = f"MERE {mean:.2e} < {limit:.2e}, MARE {largest:.2e} < {10 * limit:.2e}"
    share = _share(relative >= 10 * limit)
    if mean < limit and largest < 10 * limit:
        return Compared(_largest(apart), True, text, share)
    near = (magnitude < small) | ((magnitude < cancelled) & (np.abs(found) < cancelled))
    usual = relative[~near]
    if usual.size and (usual.mean() >= limit or usual.max() >= 10 * limit):
        return Compared(_largest(apart), False, f"{text}; away from 0 {usual.mean():.2e} and {usual.max():.2e}", share)
    plain = difference(same_precision(), wanted)
    wrong = [int(np.sum(near & (x > error))) for x in (apart, plain)]
    text += f"; near 0 {wrong[0]} errors above {error:.1e}, of a plain computation {wrong[1]}"
    return Compared(_largest(apart), wrong[0] <= 2 * max(wrong[1], 1), text, share)


def _largest(apart: np.ndarray) -> float:
    return float(np.max(apart, initial=0.0))


def _share(beyond: np.ndarray) -> float:
    return float(np.mean(beyond)) if beyond.size else 0.0


RULES = {"fp16: atol": is_close, "MERE": bench_rule, "assertRtolEqual": rtol_equal, "allclose": all_close}
"""The rule by how the tolerance of a case begins; any other: :func:`peer_rule`."""


def rule_of(case: dict[str, Any]) -> Callable[[Pair, str, Any], Compared]:
    """The rule of a case."""
    text = case.get("tolerance", "")
    return next((rule for start, rule in RULES.items() if text.startswith(start)), peer_rule)
