"""The axes of a call, read off the shapes of Q, K and V as the front end of the operator reads them."""

from dataclasses import dataclass

from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.attention.fusion.call import LAYOUTS, Call, shape_of


@dataclass(frozen=True)
class Axes:
    """Sizes of a call.

    Attributes:
      batch: sequences; packed ones are counted by their list.
      n1, n2: heads of Q, and of K and V.
      s1, s2: rows and keys of a sequence; of packed ones the longest.
      d, d_key, d_value: head sizes.
      q_lens, kv_lens: lengths of the packed sequences; () for a batch.
      t1, t2: tokens of packed Q, and of packed K and V; 0 for a batch.
    """

    batch: int
    n1: int
    n2: int
    s1: int
    s2: int
    d: int
    d_key: int
    d_value: int
    q_lens: tuple[int, ...] = ()
    kv_lens: tuple[int, ...] = ()
    t1: int = 0
    t2: int = 0
    packed: bool = False

    @property
    def weights(self) -> int:
        """Elements of the score matrices of all sequences and heads: what dropout draws for."""
        if self.packed:
            return self.n1 * sum(q * kv for q, kv in zip(self.q_lens, self.kv_lens, strict=False))
        return self.batch * self.n1 * self.s1 * self.s2

    @property
    def out_size(self) -> int:
        """Elements of the output."""
        return self.statistics_size * self.d_value

    @property
    def statistics_size(self) -> int:
        """Elements of softmax_max before its eight copies."""
        return (self.t1 if self.packed else self.batch * self.s1) * self.n1


def lengths(ends: tuple[int, ...]) -> tuple[int, ...]:
    """Length of each packed sequence from where each ends. A step back, such as to a trailing 0, is a length of 0.

    >>> lengths((2, 5, 9, 0, 0))
    (2, 3, 4, 0, 0)
    """
    return tuple(max(0, end - before) for before, end in zip((0, *ends), ends, strict=False))


def axes_of(call: Call) -> Axes:
    """The axes of a call.

    In BSH and SBH D is H1 / head_num, N2 is H2 / D and Dv is H3 / N2, in whole numbers.

    Raises:
      ParamInvalidError: a layout that is unknown, or tensors of another rank than it.
    """
    if call.layout not in LAYOUTS:
        raise ParamInvalidError(f"input_layout={call.given_layout!r}", f"must be one of {', '.join(LAYOUTS)}", 'pass "BNSD"')
    for name in ("query", "key", "value"):
        shape = shape_of(getattr(call, name))
        if len(shape) != len(call.layout):
            rule = f"must have the {len(call.layout)} dimensions of layout {call.layout}"
            raise ParamInvalidError(f"{name} of shape {list(shape)}", rule, "reshape it, or name its layout")
    return _packed(call) if call.packed else _batch(call)


def _packed(call: Call) -> Axes:
    (t1, n1, d), (t2, n2, d_key), (_, _, d_value) = (shape_of(x) for x in (call.query, call.key, call.value))
    q_lens, kv_lens = lengths(call.q_ends), lengths(call.kv_ends)
    longest = max(q_lens, default=0), max(kv_lens, default=0)
    return Axes(len(q_lens), n1, n2, *longest, d, d_key, d_value, q_lens, kv_lens, t1, t2, packed=True)


def _batch(call: Call) -> Axes:
    layout, head_num = call.layout, call.head_num
    q, k, v = (dict(zip(layout, shape_of(x), strict=True)) for x in (call.query, call.key, call.value))
    if "H" not in layout:
        return Axes(q["B"], q["N"], k["N"], q["S"], k["S"], q["D"], k["D"], v["D"])
    d = q["H"] // head_num if head_num > 0 else 0
    n2 = k["H"] // d if d else 0
    d_key, d_value = (side["H"] // n2 if n2 else d for side in (k, v))
    return Axes(q["B"], head_num, n2, q["S"], k["S"], d, d_key, d_value)
