"""``OpDef``: an operator's prototype, as Ascend C's class of that name describes one.

Source: the operator prototype page of asc-devkit (ParamType, DataType and Format lists that are read in parallel, Attr).
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

MOST_PARAMETERS = 32
"""Inputs, or outputs, of one operator (561116 of opbase)."""


class ParamType(Enum):
    """Whether a parameter must be given, may be left out, or is a list of tensors."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    DYNAMIC = "dynamic"


@dataclass(frozen=True)
class Param:
    """An input or an output.

    Attributes:
      dtypes, formats: entry i of every parameter together make one supported combination. A single entry stands for all
        combinations; no dtypes: any, left to the operator's own check. No formats: ``ND``.
    """

    name: str
    dtypes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ("ND",)
    kind: ParamType = ParamType.REQUIRED

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.kind is not ParamType.OPTIONAL


@dataclass(frozen=True)
class Attr:
    """An attribute.

    Attributes:
      type: ``int``, ``float``, ``bool``, ``str``, or ``list`` for whole numbers. An int is taken where a float is meant.
      default: its value when it is left out; None with ``required``.
      required: whether it must be given.
    """

    name: str
    type: type
    default: Any = None
    required: bool = False

    def takes(self, value: Any) -> bool:
        """Whether ``value`` has the type (None is the absence of a list)."""
        if self.type is list:
            return value is None or hasattr(value, "__len__")
        if self.type is float:
            return isinstance(value, int | float) and not isinstance(value, bool)
        return isinstance(value, self.type) and (self.type is bool or not isinstance(value, bool))


@dataclass(frozen=True)
class OpDef:
    """Name, parameters and attributes of one operator.

    Attributes:
      op_type: in upper camel case, letters and digits; lookups heed the case.
      inputs, outputs, attrs: in the order in which a call may give them.

    Raises:
      ValueError: another kind of name, a name twice, lists of unequal length, or more than 32 inputs or outputs.

    >>> half = Param("x", ("float16", "float32")), Param("y", ("float16", "float32"))
    >>> OpDef("Twice", inputs=half[:1], outputs=half[1:]).combinations
    2
    """

    op_type: str
    inputs: tuple[Param, ...]
    outputs: tuple[Param, ...]
    attrs: tuple[Attr, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", self.op_type):
            raise ValueError(f"op_type={self.op_type!r} must be upper camel case, of letters and digits: AddCustom")
        names = [item.name for item in (*self.inputs, *self.outputs, *self.attrs)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"{self.op_type} has {', '.join(twice)} twice: every parameter and attribute needs a name of its own"
            )
        if len(self.inputs) > MOST_PARAMETERS or len(self.outputs) > MOST_PARAMETERS or not self.outputs:
            raise ValueError(f"{self.op_type} must have at most {MOST_PARAMETERS} inputs, and 1 to {MOST_PARAMETERS} outputs")
        if len(self._lengths) > 1:
            raise ValueError(f"{self.op_type}: dtypes and formats have {sorted(self._lengths)} entries: give 1 or equally many")

    @property
    def _lengths(self) -> set[int]:
        """Lengths of the lists that are read in parallel, apart from those with one entry."""
        params = (*self.inputs, *self.outputs)
        return {len(entries) for param in params for entries in (param.dtypes, param.formats) if len(entries) > 1}

    @property
    def combinations(self) -> int:
        """How many combinations of dtypes and formats it supports."""
        return next(iter(self._lengths), 1)

    def attr(self, name: str) -> Attr | None:
        """The attribute called ``name``."""
        return next((attr for attr in self.attrs if attr.name == name), None)


def entry(entries: tuple[str, ...], combination: int) -> str:
    """Entry of a list that is read in parallel."""
    return entries[combination if len(entries) > 1 else 0]


def snake_case(op_type: str) -> str:
    """The name of an operator's folder and file.

    >>> snake_case("FlashAttentionScore"), snake_case("MatMul")
    ('flash_attention_score', 'mat_mul')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", op_type).lower()
