"""What the PyTorch wrapper refuses before the operator sees a call. Source: op-plugin's FlashAttentionKernelNpuOpApi.cpp."""

from typing import Any

from ascend_jax.attention.arguments import traced
from ascend_jax.attention.errors import ParamInvalidError
from ascend_jax.attention.fusion.call import LAYOUTS, Call, GradCall


def check_wrapper(call: Call) -> None:
    """The wrapper's checks of the forward call, in its order.

    Raises:
      ParamInvalidError: head_num, ranks, keep_prob, layout, softmax_layout, sparse_mode or the lists of lengths.
    """
    if call.head_num <= 0:
        raise ParamInvalidError(f"head_num={call.head_num}", "must be above 0", "pass the heads of query")
    _check_ranks(query=call.query, key=call.key, value=call.value)
    _check_keep_prob(call.keep_prob)
    _check_layout_given(call)
    if call.softmax_layout not in ("", "TND"):
        raise ParamInvalidError(f"softmax_layout={call.softmax_layout!r}", 'must be "" or "TND"', 'pass ""')
    if call.softmax_layout == "TND" and call.given_layout != "TND":
        rule = "goes with input_layout TND alone"
        raise ParamInvalidError(f'softmax_layout="TND" with input_layout={call.given_layout!r}', rule, 'pass softmax_layout=""')
    _check_sparse_mode(call)
    if call.packed:
        _check_lists(call)
    _check_layout_known(call)


def check_grad_wrapper(call: GradCall) -> None:
    """The wrapper's checks of the gradient, in its order; raises ParamInvalidError."""
    _check_ranks(query=call.query, key=call.key, value=call.value, dy=call.dy)
    _check_keep_prob(call.keep_prob)
    _check_layout_given(call)
    _check_sparse_mode(call)
    _check_layout_known(call)


def _check_ranks(**tensors: Any) -> None:
    for name, tensor in tensors.items():
        if len(tensor.shape) not in (3, 4):
            shape = list(tensor.shape)
            raise ParamInvalidError(f"{name} of shape {shape}", "must have 3 or 4 dimensions", "reshape it to the layout")


def _check_keep_prob(keep_prob: float) -> None:
    if not traced(keep_prob) and not 0 < keep_prob <= 1:
        raise ParamInvalidError(f"keep_prob={keep_prob}", "must lie in (0, 1]", "pass keep_prob=1.0 for no dropout")


def _check_layout_given(call: Call) -> None:
    if not call.given_layout:
        raise ParamInvalidError("input_layout=''", f"must be one of {', '.join(LAYOUTS)}", 'pass "BNSD"')


def _check_layout_known(call: Call) -> None:
    if call.layout not in LAYOUTS:
        raise ParamInvalidError(f"input_layout={call.given_layout!r}", f"must be one of {', '.join(LAYOUTS)}", 'pass "BNSD"')


def _check_sparse_mode(call: Call) -> None:
    """The wrapper compares the layout as it was written here, so that "tnd" has the modes of a batch."""
    mode = call.sparse_mode
    if call.given_layout == "TND" and (not 0 <= mode <= 8 or mode == 5):
        raise ParamInvalidError(f"sparse_mode={mode}", "must lie in 0…8 and not be 5 in layout TND", "see the table of modes")
    if call.given_layout != "TND" and not 0 <= mode <= 6:
        rule = f"must lie in 0…6 in layout {call.given_layout}"
        raise ParamInvalidError(f"sparse_mode={mode}", rule, "modes 7 and 8 need layout TND")


def _check_lists(call: Call) -> None:
    counts = len(call.q_ends), len(call.kv_ends)
    if 0 in counts or counts[0] != counts[1]:
        wrong = f"actual_seq_qlen of {counts[0]} and actual_seq_kvlen of {counts[1]} entries"
        raise ParamInvalidError(wrong, "must be equally many and at least one in layout TND", "pass where each sequence ends")
