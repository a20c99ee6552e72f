"""On the 910B: which calls an older operator serves, and what it accepts of them.

Packed sequences without rope go to a kernel of their own (``CheckFAI…`` and ``RouteToFia`` of ops-transformer); so does
decoding with D=256. The other calls pass the checks of the newer operator.
"""

import jax.numpy as jnp

from ascend_jax.attention.infer.call import FLOATS, Call, known, refuse
from ascend_jax.attention.infer.facts import Facts, differences, quant_of, storage_of
from ascend_jax.attention.infer.length_checks import check_ends

MAX_D, MAX_PAGE = 256, 512


def packed_kernel(call: Call) -> bool:
    """Whether the call goes to the kernel for packed sequences."""
    heads, kv_heads = call.num_heads, call.num_key_value_heads
    if call.input_layout != "TND" or len(call.query.shape) != 3 or quant_of(call) != "none" or call.quant_scale2 is not None:
        return False
    roped = call.query_rope is not None and call.key_rope is not None
    if roped or call.sparse_mode not in (0, 3, 4):
        return False
    sink = call.learnable_sink
    if sink is not None and call.query.shape[2] == 64 and jnp.dtype(sink.dtype) == jnp.bfloat16:
        return False
    if kv_heads in (0, heads):
        slow = jnp.dtype(call.query.dtype) == jnp.bfloat16 and call.inner_precise == 1
        return not slow and not (call.sparse_mode == 0 and call.atten_mask is not None) and _widths_fit(call)
    return call.inner_precise == 0 and _widths_fit(call)


def _widths_fit(call: Call) -> bool:
    d, key, value = call.query.shape[2], call.key[0].shape, call.value[0].shape
    if len(key) != len(value) or d > MAX_D:
        return False
    if storage_of(call) != "paged":
        return len(key) == 3 and d == key[2] == value[2]
    kv_heads = call.num_key_value_heads
    if len(key) == 3 and kv_heads > 0:
        return d == key[2] // kv_heads == value[2] // kv_heads and key[1] % 16 == 0 and key[1] <= MAX_PAGE
    if len(key) == 5:
        return d == key[2] * 16 == value[2] * 16 and d not in (64, 128) and key[3] % 16 == 0 and key[3] <= MAX_PAGE
    return False


def check_packed(call: Call) -> None:
    """What the kernel for packed sequences refuses; of heads and lengths also what it would read past its tensors with."""
    refuse(
        jnp.dtype(call.value[0].dtype) != jnp.dtype(call.query.dtype),
        f"value of {call.value[0].dtype}",
        f"must be {call.query.dtype} as query",
        f"cast value to {call.query.dtype}",
    )
    refuse(len(call.key) > 1, f"{len(call.key)} keys in TND", "must be one", "pass one packed key and value")
    for name in ("query_padding_size", "kv_padding_size", "key_shared_prefix", "value_shared_prefix"):
        refuse(getattr(call, name) is not None, f"{name} in layout TND", "does not go with it", f"leave {name} out")
    paged = storage_of(call) == "paged"
    _heads(call, paged)
    if paged:
        _pages(call)
    _ends(call, paged)
    _mask(call)
    if call.learnable_sink is not None:
        _sink(call)


def bias_counts(f: Facts) -> bool:
    """Whether the kernel for packed sequences takes notice of pse_shift; one whose shape does not fit is ignored."""
    if not f.pse:
        return False
    shape = tuple(f.call.pse_shift.shape)
    return len(shape) == 4 and shape[0] in (1, f.b) and shape[1] == f.n1 and shape[2] >= f.s1 and shape[3] >= f.s2


def _pages(call: Call) -> None:
    key = list(call.key[0].shape)
    page = key[3] if len(key) == 5 else key[1]
    wrong = call.block_size != page or call.block_size % 16 != 0 or call.block_size > MAX_PAGE
    wrong = wrong or (len(key) == 5 and (key[4], call.value[0].shape[4]) != (16, 16))
    refuse(
        wrong,
        f"block_size={call.block_size} with pages of shape {tuple(key)}",
        f"must be that of the pages, a multiple of 16 up to {MAX_PAGE}",
        f"pass block_size={page}",
    )


def _heads(call: Call, paged: bool) -> None:
    kv_heads = call.num_key_value_heads or call.num_heads
    named = [("query", call.query, "num_heads", call.num_heads)]
    named += [] if paged else [(name, getattr(call, name)[0], "num_key_value_heads", kv_heads) for name in ("key", "value")]
    for name, tensor, attribute, heads in named:
        given = tensor.shape[1]
        refuse(given != heads, f"{name} with N={given}", f"must be {attribute}={heads}", f"pass {attribute}={given}")


def _ends(call: Call, paged: bool) -> None:
    for name, given in (("actual_seq_lengths", call.lengths_q), ("actual_seq_lengths_kv", call.lengths_kv)):
        missing = given is None or (known(given) and not given)
        refuse(missing, f"{name}={given} in layout TND", "must be given", f"pass {name}")
    if not known(call.lengths_q) or not known(call.lengths_kv):
        return
    counts = len(call.lengths_q), len(call.lengths_kv)
    refuse(
        counts[1] < counts[0],
        f"actual_seq_lengths_kv of {counts[1]} numbers",
        f"must be at least {counts[0]}, one for each sequence of query",
        f"pass {counts[0]} numbers",
    )
    check_ends("actual_seq_lengths", call.lengths_q, rising=True)
    check_ends("actual_seq_lengths_kv", call.lengths_kv, rising=not paged)
    named = [("query", call.query, call.lengths_q)]
    named += [] if paged else [("key", call.key[0], call.lengths_kv), ("value", call.value[0], call.lengths_kv)]
    for name, tensor, ends in named:
        tokens = tensor.shape[0]
        refuse(
            ends[-1] != tokens, f"{name} of {tokens} tokens", f"must end with the last sequence, at {ends[-1]}", "pad nothing"
        )
    if call.sparse_mode == 4 and differences(call.lengths_q):
        wrong = (call.pre_tokens < 0 and call.next_tokens < 0) or -call.next_tokens > call.pre_tokens
        refuse(
            wrong,
            f"pre_tokens={call.pre_tokens}, next_tokens={call.next_tokens}",
            "the band must not be empty",
            "pass larger pre_tokens or next_tokens",
        )


def _mask(call: Call) -> None:
    if call.atten_mask is None:
        refuse(
            call.sparse_mode != 0, f"sparse_mode={call.sparse_mode} without atten_mask", "needs its mask", "pass sparse_mode=0"
        )
        return
    shape = tuple(call.atten_mask.shape)
    wrong = call.sparse_mode not in (3, 4) or len(shape) not in (2, 3, 4)
    wrong = wrong or shape[-2:] != (2048, 2048) or any(side != 1 for side in shape[:-2])
    refuse(
        wrong,
        f"atten_mask of shape {shape} with sparse_mode={call.sparse_mode}",
        "must be [2048, 2048] with sparse_mode 3 or 4",
        "pass the upper triangle of 2048 × 2048 and sparse_mode=3",
    )


def _sink(call: Call) -> None:
    sink, dtype = call.learnable_sink, jnp.dtype(call.learnable_sink.dtype)
    wrong = dtype != jnp.dtype(call.query.dtype) or dtype not in FLOATS or tuple(sink.shape) != (call.query.shape[1],)
    refuse(
        wrong,
        f"learnable_sink of {dtype}, shape {tuple(sink.shape)}",
        "must be one number per query head, of query's type",
        f"cast learnable_sink to {call.query.dtype}",
    )
    wrong = call.inner_precise in (1, 2, 3)
    refuse(wrong, f"inner_precise={call.inner_precise} with learnable_sink", "must be 0", "pass inner_precise=0")


def check_old_front(call: Call) -> None:
    """Refusals of the older front, which calls of mixed types and other layouts meet first."""
    one_row = call.input_layout == "BNSD_BSND" and len(call.query.shape) == 4 and call.query.shape[2] == 1
    refuse(one_row, "BNSD_BSND with S=1 of query", "needs more than one row", "pass input_layout='BNSD'")
