"""All checks of the gradient, in the order in which wrapper, front end and host tiling make them.

The host tries one tiling template after the other, and each looks at the whole call before it says whether it can take it, so
the checks of all of them hold. Source: op_api and op_host of attention/flash_attention_score_grad in ops-transformer.
"""

from ascend_jax.attention.errors import ParamInvalidError, TilingError
from ascend_jax.attention.fusion.axes import Axes, axes_of
from ascend_jax.attention.fusion.call import GradCall, shape_of
from ascend_jax.attention.fusion.checks import check_heads, check_new_rope, check_packing, reported_as
from ascend_jax.attention.fusion.front_end import FLOATS, check_head_sizes, check_rope, name_of
from ascend_jax.attention.fusion.grad_optional_checks import check_grad_mask, check_grad_pse
from ascend_jax.attention.fusion.grad_tokens import check_grad_tokens, grad_sparse
from ascend_jax.attention.fusion.plan import Sparse
from ascend_jax.attention.fusion.wrapper_checks import check_grad_wrapper


def check_grad_call(call: GradCall) -> tuple[Axes, Sparse | None]:
    """Everything that refuses a gradient, and which keys rows meet; None if a gradient is empty: the others are zeros.

    Raises:
      ParamInvalidError, ParamNullptrError: refused by the wrapper or the front end.
      NullptrError: refused by the host tiling.
    """
    check_grad_wrapper(call)
    axes = axes_of(call)
    _check_types(call)
    _check_shapes(call)
    if call.head_num <= 0:
        raise ParamInvalidError(f"head_num={call.head_num}", "must be above 0", "pass the heads of query")
    check_head_sizes(axes)
    if call.old:
        check_rope(call, axes)
    if call.packed and call.old:
        with reported_as(ParamInvalidError):
            check_packing(call, axes)
    with reported_as():
        return axes, _tiling(call, axes)


def _check_types(call: GradCall) -> None:
    types = [name_of(x) for x in (call.query, call.key, call.value, call.dy)]
    if len(set(types)) > 1:
        raise ParamInvalidError(f"query, key, value and dy of types {', '.join(types)}", "must have one type", "cast them")
    if types[0] not in FLOATS:
        raise ParamInvalidError(f"query of type {types[0]}", f"must be one of {', '.join(FLOATS)}", "cast all four")


def _check_shapes(call: GradCall) -> None:
    query, key, value, dy = (shape_of(x) for x in (call.query, call.key, call.value, call.dy))
    for names, one, other in (("key and value", key, value), ("query and dy", query, dy)):
        if one[:-1] != other[:-1]:
            rule = "must agree in all but the last dimension"
            raise ParamInvalidError(f"{names} of shapes {list(one)} and {list(other)}", rule, "pass what belongs together")
    if not call.packed:
        place = call.layout.index("B")
        if query[place] != key[place]:
            raise ParamInvalidError(f"B={query[place]} of query and B={key[place]} of key", "must be equal", "pass one batch")
    if call.attention_in is not None and shape_of(call.attention_in) != dy:
        wrong = f"attention_in of shape {list(shape_of(call.attention_in))}"
        raise ParamInvalidError(wrong, f"must have the shape of dy, {list(dy)}", "pass the output of the forward call")


def _tiling(call: GradCall, axes: Axes) -> Sparse | None:
    for name in ("softmax_max", "softmax_sum", "attention_in"):
        if getattr(call, name) is None:
            raise TilingError(f"{name}=None", "is needed", "pass what the forward call gave")
    check_heads(call, axes)
    if any(0 in shape_of(x) for x in (call.query, call.key, call.value)):
        return None
    if call.packed:
        check_packing(call, axes)
        if call.old and not any((*call.q_ends, *call.kv_ends)):
            return None
    _check_statistics(call, axes)
    if not 0 <= call.sparse_mode <= 8 or (call.sparse_mode >= 7 and not call.packed):
        rule = "must lie in 0…8, in 0…6 outside layout TND"
        raise TilingError(f"sparse_mode={call.sparse_mode} in layout {call.layout}", rule, "pass another sparse_mode")
    if not call.old:
        check_new_rope(call, axes)
    check_grad_tokens(call, axes)
    check_grad_mask(call, axes)
    check_grad_pse(call, axes)
    return grad_sparse(call, axes)


def _check_statistics(call: GradCall, axes: Axes) -> None:
    shape = (axes.t1, axes.n1, 8) if call.packed else (axes.batch, axes.n1, axes.s1, 8)
    for name in ("softmax_max", "softmax_sum"):
        given = getattr(call, name)
        if shape_of(given) != shape or name_of(given) != "float32":
            wrong = f"{name} of shape {list(shape_of(given))} and type {name_of(given)}"
            raise TilingError(wrong, f"must be float32 {list(shape)}", "pass what the forward call gave")
    if name_of(call.attention_in) != name_of(call.query):
        wrong = f"attention_in of type {name_of(call.attention_in)}"
        raise TilingError(wrong, f"must be {name_of(call.query)} as query is", "pass the output of the forward call")
    if call.sink is not None and (shape_of(call.sink) != (axes.n1,) or name_of(call.sink) != "float32"):
        wrong = f"sink of shape {list(shape_of(call.sink))} and type {name_of(call.sink)}"
        raise TilingError(wrong, f"must be float32 [{axes.n1}]", "pass the sink of the forward call")
