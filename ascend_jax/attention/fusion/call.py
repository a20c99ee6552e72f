"""One call of the fusion attention operator: its arguments as the checks and the numerics read them."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ascend_jax.attention.arguments import check_tensor, check_text, in_a_line, real_number, whole_number, whole_numbers
from ascend_jax.attention.errors import ParamInvalidError, ParamNullptrError

CHIPS = ("910b", "950")
"""Generations of chips: "910b" stands for the Atlas A2 and A3 (host code of arch22), "950" for the Ascend 950 (arch35)."""

LAYOUTS = ("BSH", "SBH", "BSND", "BNSD", "TND")
OPEN = 2147483647
"""The default of pre_tockens and next_tockens: no limit on that side."""

FARTHEST_START = 2**29
"""Bound of the starts of slopes here, so that distances fit into 32 bits."""

WHOLE = ("pre_tokens", "next_tokens", "inner_precise", "sparse_mode", "pse_type", "seed", "offset")
REAL = ("scale", "keep_prob")
"""Attributes that are whole numbers, and those that are any number, which may be traced."""
SPELLED = {"pre_tokens": "pre_tockens", "next_tokens": "next_tockens"}
"""Names of the operator where they are not ours."""

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments, under the wrapper's names. Tensors need ``.shape`` and ``.dtype`` only.

    Attributes:
      layout: ``input_layout`` in capitals; ``given_layout`` as it was passed.
      q_ends, kv_ends: ``actual_seq_qlen`` and ``actual_seq_kvlen`` (TND): where each sequence ends, cumulative; () if absent.
      q_start, kv_start: first entry of ``q_start_idx`` and ``kv_start_idx``; 0 if absent.
    """

    query: Any
    key: Any
    value: Any
    head_num: int
    layout: str
    given_layout: str
    pse: Any = None
    padding_mask: Any = None
    atten_mask: Any = None
    query_rope: Any = None
    key_rope: Any = None
    scale: Any = 1.0
    keep_prob: Any = 1.0
    pre_tokens: int = OPEN
    next_tokens: int = OPEN
    inner_precise: int = 0
    prefix: tuple[int, ...] = ()
    q_ends: tuple[int, ...] = ()
    kv_ends: tuple[int, ...] = ()
    sparse_mode: int = 0
    pse_type: int = 1
    q_start: int = 0
    kv_start: int = 0
    softmax_layout: str = ""
    sink: Any = None
    dropout_mask: Any = None
    seed: int = 0
    offset: int = 0
    chip: str = "910b"

    @property
    def packed(self) -> bool:
        """Whether sequences lie behind one another (layout TND)."""
        return self.layout == "TND"

    @property
    def old(self) -> bool:
        """Whether the rules are those of the 910B."""
        return self.chip == "910b"


@dataclass(frozen=True, kw_only=True)
class GradCall(Call):
    """The arguments of the gradient: those of the forward call, and what it gave."""

    dy: Any
    softmax_max: Any = None
    softmax_sum: Any = None
    attention_in: Any = None


def make_call(
    tensors: dict[str, Any],
    head_num: int,
    input_layout: str,
    *,
    lists: dict[str, Any],
    **attributes: Any,
) -> Call:
    """A `Call`, or a `GradCall` if ``tensors`` holds ``dy``.

    Args:
      tensors: query, key, value, … by name; None where one is absent.
      lists: prefix, actual_seq_qlen, actual_seq_kvlen, q_start_idx, kv_start_idx: whole numbers, concrete arrays, or None.

    Raises:
      ParamNullptrError: a required tensor is None.
      ParamInvalidError: a chip that is unknown, or what is no tensor, number or name where one belongs.
    """
    kind = GradCall if "dy" in tensors else Call
    for name in ("query", "key", "value", *(("dy",) if kind is GradCall else ())):
        if tensors[name] is None:
            raise ParamNullptrError(f"{name}=None", "is a required tensor", f"pass {name}")
    for name in ("chip", "softmax_layout"):
        check_text(name, attributes.get(name, ""))
    if attributes.get("chip", "910b") not in CHIPS:
        raise ParamInvalidError(f"chip={attributes['chip']!r}", f"must be one of {', '.join(CHIPS)}", 'pass chip="910b"')
    for name, tensor in tensors.items():
        check_tensor(name, tensor)
    if not isinstance(input_layout, str):
        rule = f"must be one of {', '.join(LAYOUTS)}"
        raise ParamInvalidError(f"input_layout={in_a_line(input_layout)}", rule, 'pass "BNSD"')
    numbers = {name: whole_numbers(name, given) for name, given in lists.items()}
    attributes |= {name: whole_number(SPELLED.get(name, name), attributes[name]) for name in WHOLE if name in attributes}
    spelled = {"scale": "scale_value"} if kind is GradCall else {}
    attributes |= {name: real_number(spelled.get(name, name), attributes[name]) for name in REAL if name in attributes}
    known = {item.name for item in fields(kind)}
    return kind(
        **{name: value for name, value in tensors.items() if name in known},
        head_num=whole_number("head_num", head_num),
        layout=input_layout.upper(),
        given_layout=input_layout,
        prefix=numbers["prefix"],
        q_ends=numbers["actual_seq_qlen"],
        kv_ends=numbers["actual_seq_kvlen"],
        q_start=_start("q_start_idx", numbers),
        kv_start=_start("kv_start_idx", numbers),
        **attributes,
    )


def second_spelling(operator: Callable[..., Any], further: Sequence[str] = ()) -> inspect.Signature:
    """The signature of ``operator`` as its second version has it: names of `SPELLED`, and what has a default by name alone.

    ``further``: arguments that only the second version has.
    """
    ours = {given: name for name, given in SPELLED.items()}
    parameters = [
        x.replace(name=ours.get(x.name, x.name), kind=x.kind if x.default is x.empty else x.KEYWORD_ONLY)
        for x in inspect.signature(operator).parameters.values()
    ]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Any) for name in further]
    return inspect.Signature([*parameters, *added])


def _start(name: str, numbers: dict[str, tuple[int, ...]]) -> int:
    """The first entry of ``q_start_idx`` or ``kv_start_idx``, 0 if absent; raises ParamInvalidError."""
    start = (numbers[name] or (0,))[0]
    if abs(start) > FARTHEST_START:
        raise ParamInvalidError(f"{name}=[{start}]", f"must lie within ±{FARTHEST_START}", f"pass the token that {name} means")
    return start


def shape_of(tensor: Any) -> Shape:
    """The shape of a tensor as plain numbers."""
    return tuple(int(size) for size in tensor.shape)
