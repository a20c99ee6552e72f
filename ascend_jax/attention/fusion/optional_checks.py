"""What the host tiling asks of the optional tensors: pse, atten_mask, dropout_mask, sink.

Source: AnalyzeOptionalInput and SetPseAlibiParams of op_host/arch22 and op_host/arch35 of flash_attention_score.
"""

from ascend_jax.attention.arguments import traced
from ascend_jax.attention.errors import TilingError
from ascend_jax.attention.fusion.axes import Axes
from ascend_jax.attention.fusion.call import Call, shape_of
from ascend_jax.attention.fusion.front_end import name_of
from ascend_jax.attention.fusion.plan import Kind, Sparse
from ascend_jax.attention.fusion.tokens import COMPRESSED_MODES

ALIBI_ROWS = 1024
"""Rows of a pse that keeps only its last ones: alibi, compressed."""


def check_pse(call: Call, axes: Axes) -> None:
    """The shape of pse; raises TilingError.

    Types 0 and 1: [B or 1, N1, S1 or 1 or 1024, S2]; of packed sequences, none of them empty, a flat one of N1·ΣS2 or N1·ΣS1·S2
    elements, or [B or 1, N1, 1024, S2]. Types 2 and 3, slopes: [N1] or [B, N1].
    """
    if not 0 <= call.pse_type <= 3:
        raise TilingError(f"pse_type={call.pse_type}", "must lie in 0…3", "pass pse_type=1")
    if call.pse is None:
        if call.old and call.pse_type != 1:
            raise TilingError(f"pse=None with pse_type={call.pse_type}", "needs a pse", "pass pse_type=1")
        return
    shape = shape_of(call.pse)
    if shape not in _pse_shapes(call, axes):
        allowed = " or ".join(str(list(one)) for one in _pse_shapes(call, axes))
        raise TilingError(
            f"pse of shape {list(shape)} with pse_type={call.pse_type}", f"must be {allowed}", "reshape or expand it"
        )
    if call.packed and call.pse_type in (0, 1):
        check_none_empty(axes)


def check_none_empty(axes: Axes) -> None:
    """The documents of the operator exclude pse where a packed sequence is empty; raises TilingError.

    Its host code does not look (a test of its own passes slopes there, which stay allowed), so the place is ours.
    """
    for name, lens in (("actual_seq_qlen", axes.q_lens), ("actual_seq_kvlen", axes.kv_lens)):
        if 0 in lens:
            wrong = f"pse with {name} whose sequence {lens.index(0)} is empty"
            raise TilingError(wrong, "pse goes only with sequences that have rows and keys", "leave out pse or the sequence")


def _pse_shapes(call: Call, axes: Axes) -> list[tuple[int, ...]]:
    batches = sorted({axes.batch, 1}, reverse=True)
    if call.pse_type in (2, 3):
        return [(axes.n1,), (axes.batch, axes.n1)]
    alibi = [(batch, axes.n1, ALIBI_ROWS, axes.s2) for batch in batches]
    if call.packed:
        return [(axes.n1 * sum(axes.kv_lens),), (axes.weights,), *alibi]
    rows = [axes.s1, 1, *([ALIBI_ROWS] if axes.s1 >= ALIBI_ROWS else [])]
    return [(batch, axes.n1, row, axes.s2) for batch in batches for row in rows]


def check_alibi(call: Call, axes: Axes, sparse: Sparse) -> None:
    """What pse asks of the lengths and of the mask; raises TilingError.

    A pse of the last 1024 rows needs S1 = S2 and a causal mask. Slopes need S1 = S2 on the 910B, and on the 950 in every packed
    sequence; they do not go with mode 7, and with mode 8 only if the first sequence starts where its keys do.
    """
    if call.pse is None:
        return
    if call.pse_type in (2, 3):
        _check_slopes(call, axes)
    elif len(call.pse.shape) == 4 and call.pse.shape[2] == ALIBI_ROWS and (call.packed or axes.s1 > ALIBI_ROWS):
        wrong = f"pse of its last {ALIBI_ROWS} rows"
        _check_equal(axes, wrong)
        kinds = (Kind.CAUSAL, Kind.CAUSAL_RIGHT) if call.packed or call.sparse_mode == 3 else (Kind.CAUSAL,)
        if sparse.kind not in kinds:
            raise TilingError(wrong, "needs a causal mask: sparse_mode 0 with next_tockens=0, 2 or 3", "pass the whole pse")


def _check_slopes(call: Call, axes: Axes) -> None:
    wrong = f"pse_type={call.pse_type}"
    if not call.packed:
        if call.old:
            _check_equal(axes, wrong)
        return
    masked = call.atten_mask is not None
    if masked and call.sparse_mode == 7:
        raise TilingError(f"{wrong} with sparse_mode=7", "does not go with slopes", "pass another sparse_mode")
    if masked and call.sparse_mode == 8:
        _check_first_sequence(call, axes, wrong)
    elif not call.old:
        _check_equal(axes, wrong)


def _check_first_sequence(call: Call, axes: Axes, wrong: str) -> None:
    away = axes.q_lens[0] - axes.kv_lens[0] + call.q_start - call.kv_start
    if away:
        rule = "S1 + q_start_idx must equal S2 + kv_start_idx in the first sequence when sparse_mode is 8"
        raise TilingError(f"{wrong}, {away} apart", rule, "pass the start of the part of Q")
    if axes.q_lens[1:] != axes.kv_lens[1:]:
        rule = "needs S1 = S2 in all sequences but the first when sparse_mode is 8"
        raise TilingError(f"{wrong} with lengths {axes.q_lens} and {axes.kv_lens}", rule, "pass equal lengths")


def _check_equal(axes: Axes, wrong: str) -> None:
    pairs = list(zip(axes.q_lens, axes.kv_lens, strict=True)) or [(axes.s1, axes.s2)]
    for rows, keys in pairs:
        if rows != keys:
            raise TilingError(f"{wrong} with S1={rows} and S2={keys}", "needs S1 = S2", "pass the whole pse, pse_type=1")


def check_mask(call: Call, axes: Axes) -> None:
    """Type and shape of atten_mask, without broadcasting; raises TilingError.

    [B, N1, S1, S2], [B, 1, S1, S2], [1, 1, S1, S2] or [S1, S2], of packed sequences also [ΣS1, ΣS2], where the longest lengths
    count as S1 and S2; 2048 × 2048 in modes 2, 3, 4, 7 and 8, and 3072 × 2048 in mode 6.
    """
    if call.atten_mask is None:
        return
    if name_of(call.atten_mask) not in ("bool", "uint8"):
        wrong = f"atten_mask of type {name_of(call.atten_mask)}"
        raise TilingError(wrong, "must be bool or uint8, True or 1 where a key is hidden", "an additive mask belongs into pse")
    shape, compressed = shape_of(call.atten_mask), call.sparse_mode in COMPRESSED_MODES
    if compressed:
        size = (3072, 2048) if call.sparse_mode == 6 else (2048, 2048)
        whole = [(batch, heads, *size) for batch, heads in _leads(axes)] if (axes.s1, axes.s2) == size else []
        allowed, name = [size, *whole], f" when sparse_mode is {call.sparse_mode}"
    else:
        size = (axes.s1, axes.s2)
        total = [(sum(axes.q_lens), sum(axes.kv_lens))] if call.packed else []
        allowed, name = [*((batch, heads, *size) for batch, heads in _leads(axes)), size, *total], ""
    if shape not in allowed:
        rule = " or ".join(str(list(one)) for one in dict.fromkeys(allowed))
        raise TilingError(f"atten_mask of shape {list(shape)}", f"must be {rule}{name}; nothing is broadcast", "expand it")


def _leads(axes: Axes) -> list[tuple[int, int]]:
    return [(axes.batch, axes.n1), (axes.batch, 1), (1, 1)]


def check_dropout_mask(call: Call, axes: Axes) -> None:
    """Type and size of dropout_mask: uint8, a bit for each weight; raises TilingError."""
    if call.dropout_mask is None:
        return
    if not call.old and not traced(call.keep_prob) and call.keep_prob == 1:
        raise TilingError("dropout_mask with keep_prob=1.0", "must be absent", "pass keep_prob, or dropout_mask=None")
    if name_of(call.dropout_mask) != "uint8":
        raise TilingError(f"dropout_mask of type {name_of(call.dropout_mask)}", "must be uint8, one bit per weight", "pack it")
    size, least = 1, -(-axes.weights // 8)
    for extent in call.dropout_mask.shape:
        size *= int(extent)
    if size < least:
        rule = f"must have at least {least} bytes for {axes.weights} weights"
        raise TilingError(f"dropout_mask of {size} bytes", rule, "pack one bit per weight")


def check_sink(call: Call, axes: Axes) -> None:
    """The sink: float32 [N1]; on the 950 Q, K and V of 2 bytes; raises TilingError."""
    if call.sink is None or shape_of(call.sink) == (0,):
        return
    if shape_of(call.sink) != (axes.n1,) or name_of(call.sink) != "float32":
        wrong = f"sink of shape {list(call.sink.shape)} and type {name_of(call.sink)}"
        raise TilingError(wrong, f"must be float32 [{axes.n1}], one per head of query", "expand it to the heads")
    if not call.old and name_of(call.query) not in ("float16", "bfloat16"):
        rule = "must be float16 or bfloat16 with a sink"
        raise TilingError(f"query of type {name_of(call.query)}", rule, "cast query, key and value")
