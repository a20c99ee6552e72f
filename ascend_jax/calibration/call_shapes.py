"""What an attention operator was asked, from the shapes in a profile: its attributes (layout, heads, mask mode) are not there.

Layouts are told apart by what fits: key and value, the outputs of softmax statistics, the mask, and that an operator takes at
most 256 heads. What stays ambiguous is refused rather than guessed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ascend_jax.workload.attention import ALIASES, ELEMENT_BYTES

MOST_HEADS = 256
"""Heads that the vendor's operators take (documents of PromptFlashAttention and FusedInferAttentionScore)."""
LAYOUTS = ("BNSD", "BSND", "BSH", "SBH")
"""All but TND, whose lengths are not in a profile."""
PACKED_MASK = 2048
"""Rows and columns of the mask in the compressed modes, whatever the lengths are."""
STATISTICS_COLUMNS = (8, 1)
"""Copies of softmax's maximum and sum per row: FlashAttentionScore 8, the log-sum-exp of FusedInferAttentionScore 1."""
TYPES = ALIASES | {"float16": "float16", "bfloat16": "bfloat16", "float32": "float32"}

Shape = tuple[int, ...]


class Unclear(ValueError):
    """A call that the profile does not determine, or that the model has no word for; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One input or output: its place in the operator's list, its element type in lower case without ``dt_``, its shape."""

    place: int
    dtype: str
    shape: Shape


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What the profile leaves open and its owner knows: ``layout`` (BNSD), ``q_heads``, ``mask`` (causal or none)."""

    layout: str | None = None
    q_heads: int | None = None
    mask: str | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """One attention call, in the words of a measured row."""

    layout: str
    dtype: str
    batch: int
    q_heads: int
    kv_heads: int
    q_seq: int
    kv_seq: int
    head_dim: int
    causal: bool = False

    @property
    def size(self) -> tuple[int, ...]:
        """What must agree for two readings of the shapes to mean the same work."""
        return self.batch, self.q_heads, self.kv_heads, self.q_seq, self.kv_seq, self.head_dim


def read_call(inputs: Sequence[Tensor], outputs: Sequence[Tensor], hints: Hints, layouts: Sequence[str] = LAYOUTS) -> Call:
    """The call behind an operator's inputs and outputs.

    Args:
      inputs: query, key, value, and what else was given; absent ones left out.
      outputs: the result, and statistics of softmax if there are any.
      hints: what to take where the shapes leave it open.
      layouts: those that the operator takes.

    Raises:
      Unclear: not enough to tell, or something that is not modelled.
    """
    if [tensor.place for tensor in inputs[:3]] != [0, 1, 2]:
        raise Unclear("query, key or value has no shape")
    dtype = TYPES.get(inputs[0].dtype)
    if dtype not in ELEMENT_BYTES:
        raise Unclear(f"data type {inputs[0].dtype} is not modelled")
    extra = _Extra.of(inputs)
    readings = [call for call in _readings(inputs, outputs, hints, layouts) if extra.suits(call)]
    sizes = {call.size: call for call in readings}
    if not sizes:
        raise Unclear(_no_reading(inputs, hints))
    if len(sizes) > 1:
        raise Unclear(f"could be {' or '.join(_words(call) for call in sizes.values())}: say which with the layout")
    call = readings[0]
    return _with(call, dtype=dtype, head_dim=call.head_dim + extra.rope, causal=_causal(call, extra.mask, hints))


@dataclass(frozen=True)
class _Extra:
    """The inputs beside query, key and value: the mask's shape, and the columns of separate rotary parts."""

    mask: Shape | None
    rope: int

    @staticmethod
    def of(inputs: Sequence[Tensor]) -> "_Extra":
        """Sorts the inputs by what they must be, by type and rank: their places differ from operator to operator."""
        mask, rope = None, []
        query = inputs[0]
        others = inputs[3:]
        if any(tensor.dtype == "int32" and len(tensor.shape) == 2 for tensor in others):
            raise Unclear("the key/value cache is paged: how much of it is read is not in the profile")
        for tensor in others:
            rank = len(tensor.shape)
            if tensor.dtype in ("int64", "int32") and rank == 1:
                raise Unclear("lengths of its own for each sequence: their values are not in the profile")
            if tensor.dtype in ("bool", "uint8", "int8") and rank in (2, 3, 4) and mask is None:
                mask = tensor.shape
            elif tensor.dtype == query.dtype and rank == len(query.shape) and len(rope) < 2:
                rope.append(tensor.shape)
            else:
                text = ",".join(map(str, tensor.shape))
                raise Unclear(f"input {tensor.place} ({tensor.dtype} {text}) is not modelled")
        return _Extra(mask, _rope_columns(inputs, rope))

    def suits(self, call: Call) -> bool:
        """Whether the mask is one of this call: packed, or one entry a score."""
        return self.mask is None or self.mask[-2:] in ((PACKED_MASK, PACKED_MASK), (call.q_seq, call.kv_seq))


def _rope_columns(inputs: Sequence[Tensor], rope: Sequence[Shape]) -> int:
    if not rope:
        return 0
    expected = [tensor.shape[:-1] for tensor in inputs[:2]]
    if [shape[:-1] for shape in rope] != expected or rope[0][-1] != rope[1][-1]:
        raise Unclear("an input beside query, key and value is neither a mask nor a pair of rotary parts: not modelled")
    return rope[0][-1]


def _readings(inputs: Sequence[Tensor], outputs: Sequence[Tensor], hints: Hints, layouts: Sequence[str]) -> Iterator[Call]:
    """Every way to read the shapes that nothing contradicts."""
    query, key, value = (tensor.shape for tensor in inputs[:3])
    if len({len(query), len(key), len(value)}) != 1 or key[:-1] != value[:-1]:
        return
    statistics = _statistics(outputs)
    heads = hints.q_heads or (statistics[1] if statistics else None)
    for layout in layouts:
        fits = len(layout) == len(query) and hints.layout in (None, layout)
        if fits and (call := _read(layout, query, key, heads)):
            known = (call.batch, call.q_heads, call.q_seq)
            if (statistics in (None, known)) and hints.q_heads in (None, call.q_heads):
                yield call


def _statistics(outputs: Sequence[Tensor]) -> Shape | None:
    """Batch, heads and rows of softmax's statistics, where they are among the outputs."""
    for tensor in outputs:
        if len(tensor.shape) == 4 and tensor.dtype in ("float", "float32") and tensor.shape[-1] in STATISTICS_COLUMNS:
            return tensor.shape[:3]
    return None


def _read(layout: str, query: Shape, key: Shape, heads: int | None) -> Call | None:
    """The call of one layout; None where query and key contradict each other."""
    axes = {axis: (query[place], key[place]) for place, axis in enumerate(layout)}
    batch, rows = axes["B"], axes["S"]
    if "H" in axes:
        if not heads or axes["H"][0] % heads:
            return None
        columns = axes["H"][0] // heads
        if axes["H"][1] % columns:
            return None
        count, dims = (heads, axes["H"][1] // columns), (columns, columns)
    else:
        count, dims = axes["N"], axes["D"]
    sizes = (*batch, *rows, *count, *dims)
    fits = batch[0] == batch[1] and dims[0] == dims[1] and min(sizes) > 0 and count[0] % max(count[1], 1) == 0
    if not fits or count[0] > MOST_HEADS:
        return None
    return Call(
        layout=layout,
        dtype="",
        batch=batch[0],
        q_heads=count[0],
        kv_heads=count[1],
        q_seq=rows[0],
        kv_seq=rows[1],
        head_dim=dims[0],
    )


def _causal(call: Call, mask: Shape | None, hints: Hints) -> bool:
    """Whether the mask is causal: a packed one is, a full one may hold anything, and one row of Q sees all keys."""
    if mask is None or call.q_seq == 1:
        return False
    if hints.mask is not None:
        return hints.mask == "causal"
    if mask[-2:] == (call.q_seq, call.kv_seq):
        raise Unclear(f"what its mask of {call.q_seq} × {call.kv_seq} hides is not in the profile: say causal or none")
    return True


def _no_reading(inputs: Sequence[Tensor], hints: Hints) -> str:
    query, key, value = (",".join(map(str, tensor.shape)) for tensor in inputs[:3])
    if len(inputs[0].shape) == 3 and not hints.q_heads:
        return f"query {query}, key {key}: how many heads they hold is not in the profile; give the heads of Q"
    return f"no layout reads query {query}, key {key}, value {value}" + (f" as {hints.layout}" if hints.layout else "")


def _words(call: Call) -> str:
    return f"{call.layout} ({call.q_heads} heads, {call.q_seq} rows)"


def _with(call: Call, *, dtype: str, head_dim: int, causal: bool) -> Call:
    return Call(**vars(call) | {"dtype": dtype, "head_dim": head_dim, "causal": causal})
