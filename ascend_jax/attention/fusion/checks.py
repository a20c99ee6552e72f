"""All checks of the forward call, in the order in which wrapper, front end and host tiling make them."""

from collections.abc import Iterator
from contextlib import contextmanager

from ascend_jax.attention.errors import AclnnError, NullptrError, TilingError
from ascend_jax.attention.fusion.axes import Axes, axes_of
from ascend_jax.attention.fusion.call import Call, shape_of
from ascend_jax.attention.fusion.front_end import FLOATS, check_head_sizes, check_rope, check_types, name_of, rope_misfit
from ascend_jax.attention.fusion.optional_checks import check_alibi, check_dropout_mask, check_mask, check_pse, check_sink
from ascend_jax.attention.fusion.packed_tokens import packed_sparse
from ascend_jax.attention.fusion.plan import Sparse
from ascend_jax.attention.fusion.tokens import dense_sparse
from ascend_jax.attention.fusion.wrapper_checks import check_wrapper


@contextmanager
def reported_as(kind: type[AclnnError] = NullptrError) -> Iterator[None]:
    """A refusal of the host tiling (561002) reaches the user of this operator as an inner null pointer (561103).

    Its executor asks for the tiling, gets nothing, and reports that. The cause is kept. Source: aclnn_engine/op_kernel.h of
    opbase; the logs in vllm-ascend#6573 and vllm-omni#845.
    """
    try:
        yield
    except TilingError as error:
        raise kind(error.value, error.rule, error.remedy) from error


def check_call(call: Call) -> tuple[Axes, Sparse | None]:
    """Everything that refuses a call, and what the host makes of one that runs.

    Returns:
      the axes, and the keys that rows meet; None in place of these if a tensor is empty: nothing is computed, the output is
      filled with zeros.

    Raises:
      ParamNullptrError, ParamInvalidError: refused by the wrapper or the front end.
      NullptrError: refused by the host tiling.
    """
    check_wrapper(call)
    axes = axes_of(call)
    if axes.statistics_size == 0 and axes.out_size == 0:
        return axes, None
    check_types(call)
    check_head_sizes(axes)
    if call.old:
        check_rope(call, axes)
    with reported_as():
        _check_sides(call, axes)
        if _empty(call):
            return axes, None
        return axes, _tiling(call, axes)


def _empty(call: Call) -> bool:
    tensors = (call.query, call.key) if call.old else (call.query, call.key, call.value)
    return any(0 in shape_of(x) for x in tensors)


def _check_sides(call: Call, axes: Axes) -> None:
    """K and V fit together and fit Q, whatever else is asked."""
    q, k, v = (shape_of(x) for x in (call.query, call.key, call.value))
    if not call.packed:
        place = call.layout.index("B")
        if q[place] != k[place]:
            raise TilingError(f"B={q[place]} of query and B={k[place]} of key", "must be equal", "pass one batch")
    if k[:-1] != v[:-1]:
        rule = "must agree in all but the last dimension"
        raise TilingError(f"key of shape {list(k)} and value of shape {list(v)}", rule, "pass keys and values in pairs")


def _tiling(call: Call, axes: Axes) -> Sparse:
    if name_of(call.query) not in FLOATS:
        raise TilingError(f"query of type {name_of(call.query)}", f"must be one of {', '.join(FLOATS)}", "cast it")
    check_heads(call, axes)
    if call.packed:
        check_packing(call, axes)
    _check_sizes(call, axes)
    check_pse(call, axes)
    check_mask(call, axes)
    check_dropout_mask(call, axes)
    check_sink(call, axes)
    if not call.old:
        check_new_rope(call, axes)
    sparse = packed_sparse(call, axes) if call.packed else dense_sparse(call, axes)
    check_alibi(call, axes, sparse)
    return sparse


def check_heads(call: Call, axes: Axes) -> None:
    """head_num is N1, and a multiple of N2; raises TilingError."""
    head_num, width = call.head_num, shape_of(call.query)[-1]
    if call.layout in ("BSH", "SBH"):
        if width % head_num:
            rule = f"must divide H={width} of query in layout {call.layout}"
            raise TilingError(f"head_num={head_num}", rule, "pass the heads of query")
    elif head_num != axes.n1:
        rule = f"must equal N1={axes.n1} of query in layout {call.layout}"
        raise TilingError(f"head_num={head_num}", rule, f"pass head_num={axes.n1}")
    if axes.n2 == 0 or axes.n1 % axes.n2:
        rule = f"must be a multiple of the N2={axes.n2} heads of key"
        raise TilingError(f"N1={axes.n1} heads of query", rule, "repeat the heads of key and value")
    if call.layout in ("BSH", "SBH"):
        for name, size in (("key", axes.d_key), ("value", axes.d_value)):
            if shape_of(getattr(call, name))[-1] != axes.n2 * size:
                wrong = f"H={shape_of(getattr(call, name))[-1]} of {name} in layout {call.layout}"
                raise TilingError(wrong, f"must be a multiple of the N2={axes.n2} heads", "pass H = N2 · D")


def check_packing(call: Call, axes: Axes) -> None:
    """The lists of lengths fit the tokens; raises TilingError."""
    if len(axes.q_lens) != len(axes.kv_lens) or not axes.q_lens:
        wrong = f"actual_seq_qlen of {len(axes.q_lens)} and actual_seq_kvlen of {len(axes.kv_lens)} entries"
        raise TilingError(wrong, "must be equally many and at least one", "pass where each sequence ends")
    total = sum(axes.q_lens), sum(axes.kv_lens)
    for name, tokens, used in (("query", axes.t1, total[0]), ("key", axes.t2, total[1])):
        if tokens < used:
            rule = f"must reach the {used} tokens of the sequences"
            raise TilingError(f"T={tokens} of {name}", rule, "actual_seq_qlen and actual_seq_kvlen are cumulative")
    spare = axes.t1 > total[0] and axes.t2 > total[1]
    if call.old and spare and (call.q_ends[-1] != 0 or call.kv_ends[-1] != 0):
        wrong = f"actual_seq_qlen and actual_seq_kvlen that end with {call.q_ends[-1]} and {call.kv_ends[-1]}"
        raise TilingError(wrong, "must end with 0 when tokens are left over in query and in key", "append a 0 to both")


def _check_sizes(call: Call, axes: Axes) -> None:
    sizes = {"S1": axes.s1, **({"S2": axes.s2} if call.old else {}), "D": axes.d, **({} if call.old else {"Dv": axes.d_value})}
    for name, size in sizes.items():
        if size <= 0:
            raise TilingError(f"{name}={size}", "must be above 0", "leave out what is empty")


def check_new_rope(call: Call, axes: Axes) -> None:
    """Rope as the 950 takes it: D = 128 and a further 64; raises TilingError."""
    ropes = [rope for rope in (call.query_rope, call.key_rope) if rope is not None]
    if len(ropes) == 1:
        raise TilingError("query_rope without key_rope", "come together", "pass both or none")
    misfit = rope_misfit(call, axes) if ropes else None
    if misfit is not None:
        raise TilingError(*misfit)
    width = (shape_of(ropes[0])[-1] // (axes.n1 if call.layout in ("BSH", "SBH") else 1)) if ropes else 64
    if ropes and (axes.d, width) != (128, 64):
        raise TilingError(f"D={axes.d} with rope of D={width}", "must be 128 and 64", "pad them")
