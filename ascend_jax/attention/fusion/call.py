"""One call of the fusion attention operator: its arguments as the checks and the numerics read them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ascend_jax.attention.errors import ParamInvalidError, ParamNullptrError

CHIPS = ("910b", "950")
"""Generations of chips: "910b" stands for the Atlas A2 and A3 (host code of arch22), "950" for the Ascend 950 (arch35)."""

LAYOUTS = ("BSH", "SBH", "BSND", "BNSD", "TND")
OPEN = 2147483647
"""The default of pre_tockens and next_tockens: no limit on that side."""

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
    scale: float = 1.0
    keep_prob: float = 1.0
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
      ParamInvalidError: a chip that is unknown.
    """
    kind = GradCall if "dy" in tensors else Call
    for name in ("query", "key", "value", *(("dy",) if kind is GradCall else ())):
        if tensors[name] is None:
            raise ParamNullptrError(f"{name}=None", "is a required tensor", f"pass {name}")
    if attributes.get("chip", "910b") not in CHIPS:
        raise ParamInvalidError(f"chip={attributes['chip']!r}", f"must be one of {', '.join(CHIPS)}", 'pass chip="910b"')
    starts = {name: (whole_numbers(lists[f"{name}_idx"]) or (0,))[0] for name in ("q_start", "kv_start")}
    known = {item.name for item in fields(kind)}
    return kind(
        **{name: value for name, value in tensors.items() if name in known},
        head_num=int(head_num),
        layout=input_layout.upper(),
        given_layout=input_layout,
        prefix=whole_numbers(lists["prefix"]),
        q_ends=whole_numbers(lists["actual_seq_qlen"]),
        kv_ends=whole_numbers(lists["actual_seq_kvlen"]),
        **starts,
        **attributes,
    )


def whole_numbers(given: Sequence[int] | Any | None) -> tuple[int, ...]:
    """A list of whole numbers, or a concrete array of them, as a tuple; () for None."""
    return () if given is None else tuple(int(number) for number in np.asarray(given).reshape(-1))


def shape_of(tensor: Any) -> Shape:
    """The shape of a tensor as plain numbers."""
    return tuple(int(size) for size in tensor.shape)
