"""Whether an operator takes a case: the call is traced with shapes alone, and nothing is computed."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import jax

from ascend_jax.attention.errors import AclnnError, FindKernelError
from experiments.peer_cases.not_expressible import NotExpressible

TRANSLATORS = {
    "fusion_attention(enhance)": "bench_cases",
    "fusion_attention_grad(enhance)": "bench_cases",
    "fusion_attention": "fusion_cases",
    "fused_infer_attention_score": "infer_cases",
    "flash_attn": "unified_cases",
    "bench:": "bench_cases",
}
"""The module that makes a call of a case, by what ``op`` starts with; the first that fits."""


class Verdict(NamedTuple):
    """``got``: ok, error or unsupported. ``internal``: an exception that no operator means to raise, a defect."""

    got: str
    why: str = ""
    internal: bool = False
    function: Callable[..., Any] | None = None
    call: dict[str, Any] | None = None


def verdict(case: dict[str, Any]) -> Verdict:
    """What becomes of ``case``; of an accepted one, the function and its arguments as well."""
    try:
        function, call = translated(case)
        traced(function, call)
    except NotExpressible as found:
        return Verdict("unsupported", found.reason)
    except FindKernelError as found:
        return Verdict("unsupported", first_line(found))
    except AclnnError as found:
        return Verdict("error", first_line(found))
    except Exception as found:
        return Verdict("error", f"internal: {type(found).__name__}: {str(found).splitlines()[:1]}", internal=True)
    return Verdict("ok", function=function, call=call)


def translated(case: dict[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The public function and its arguments. Raises ``NotExpressible``."""
    module = next((name for start, name in TRANSLATORS.items() if case["op"].startswith(start)), None)
    if module is None:
        raise NotExpressible(f"no translation of {case['op']}")
    return import_module(f"experiments.peer_cases.{module}").arguments(case)


def traced(function: Callable[..., Any], call: dict[str, Any]) -> Any:
    """The shapes of the results. Raises what the operator raises."""
    tensors = {name: x for name, x in call.items() if is_tensor(x)}
    return jax.eval_shape(partial(function, **{name: x for name, x in call.items() if name not in tensors}), **tensors)


def is_tensor(x: Any) -> bool:
    """Whether an argument is a tensor, or a list of tensors."""
    leaves = x if isinstance(x, list | tuple) else [x]
    return bool(leaves) and all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)


def first_line(error: AclnnError) -> str:
    """Code, name and the failing check."""
    return f"{error.code} {error.name}: {str(error).splitlines()[0]}"
