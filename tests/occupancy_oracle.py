"""What lies where, counted buffer by buffer in whole numbers from what each dataflow is. Imports no code of the model."""

from dataclasses import asdict
from typing import Any, NamedTuple

FRACTAL = 16
"""Rows and columns of the Cube's unit; head dimensions lie in buffers in whole fractals."""
STATE_ROW = 32
"""Bytes of a softmax max, sum or correction of one row."""


class Chip(NamedTuple):
    """Bytes of one core's memories, GM of the chip, and cores."""

    ub: int
    l1: int
    l0a: int
    l0b: int
    l0c: int
    gm: int
    cube_cores: int
    vector_cores: int


class Call(NamedTuple):
    """Attention with ``sequences`` as (how many, q_len, kv_len) and ``element`` bytes an element."""

    sequences: tuple[tuple[int, int, int], ...]
    q_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    element: int
    masked: bool


class Cut(NamedTuple):
    """Blocks, slots, and tiles that run ahead."""

    block_q: int
    block_kv: int
    vector_rows: int = 16
    kv_depth: int = 2
    score_depth: int = 2
    prob_depth: int = 2
    out_depth: int = 2
    ub_depth: int = 2
    l0_depth: int = 2
    preload: int = 1
    kv_split: int = 1


class Piece(NamedTuple):
    """Elements of one step of a matrix multiplication, and how many steps cover each side."""

    m: int
    k: int
    n: int
    m_steps: int
    k_steps: int
    n_steps: int


Question = tuple[Chip, Call, Cut]
Bytes = dict[str, dict[str, int]]


def whole(size: int, unit: int) -> int:
    """``size`` filled up to a multiple of ``unit``."""
    while size % unit:
        size += 1
    return size


def question(spec: Any, work: Any, tiling: Any) -> Question:
    """A chip, a call and a tiling of the model, made of plain numbers, in the words of this file."""
    sizes = {memory: int(getattr(spec, f"{memory}_bytes")) for memory in ("ub", "l1", "l0a", "l0b", "l0c", "gm")}
    chip = Chip(**sizes, cube_cores=int(spec.cube_cores), vector_cores=int(spec.vector_cores_per_cube))
    q_lens, kv_lens = (length if isinstance(length, tuple) else (length,) for length in (work.q_len, work.kv_len))
    call = Call(
        sequences=tuple((work.batch, q_len, kv_len) for q_len, kv_len in zip(q_lens, kv_lens, strict=True)),
        q_heads=work.q_heads,
        kv_heads=work.kv_heads,
        head_dim=work.head_dim,
        value_dim=work.value_dim,
        element={"float16": 2, "bfloat16": 2, "float32": 4}[work.dtype],
        masked=work.mask.kind != "none",
    )
    return chip, call, Cut(**asdict(tiling))


def bytes_held(dataflow: str, chip: Chip, call: Call, cut: Cut) -> Bytes:
    """Bytes of every buffer by memory and name, all slots together; GM of all cores, with the tensors."""
    on_core = {"ub_resident": ub_resident, "coupled": coupled, "separated": separated, "direct": direct}[dataflow]
    held: Bytes = {"UB": {}, "L1": {}, "GM": {}} | on_core(chip, call, cut)
    workspace = {name: size * chip.cube_cores for name, size in held["GM"].items()}
    return held | {"GM": workspace | tensors(call, cut)} | l0(chip, call, cut)


def totals(held: Bytes) -> dict[str, int]:
    """Bytes of every memory."""
    return {memory: sum(sizes.values()) for memory, sizes in held.items()}


def first_trouble(dataflow: str, chip: Chip, call: Call, cut: Cut) -> str:
    """The name of the verdict: blocks first, then the memories from UB to GM."""
    slots = (cut.kv_depth, cut.score_depth, cut.prob_depth, cut.out_depth, cut.ub_depth, cut.vector_rows)
    if min(cut.block_q, cut.block_kv) < 16 or min(slots) < 1:
        return "BLOCK_TOO_SMALL"
    if cut.block_q % 16 or cut.block_kv % 16:
        return "BLOCK_NOT_ALIGNED"
    used = totals(bytes_held(dataflow, chip, call, cut))
    for memory in ("UB", "L1", "L0A", "L0B", "L0C", "GM"):
        if used[memory] > getattr(chip, memory.lower()):
            return f"{memory}_OVERFLOW"
    return "FITS"


def ub_resident(chip: Chip, call: Call, cut: Cut) -> Bytes:
    """The articles' allocator: five buffers of the input's type, each slot on 128 bytes; one of everything in L1."""
    head, value, e = whole(call.head_dim, FRACTAL), whole(call.value_dim, FRACTAL), call.element
    q, k, v = cut.block_q * head * e, cut.block_kv * head * e, cut.block_kv * value * e
    o, s = cut.block_q * value * e, cut.block_q * cut.block_kv * e
    return {
        "UB": {
            "Q": whole(q, 128),
            "K": whole(k, 128) * cut.kv_depth,
            "V": whole(v, 128) * cut.kv_depth,
            "O": whole(o, 128),
            "S": whole(s, 128) * cut.score_depth,
        },
        "L1": {"Q in L1": whole(q, 32), "K in L1": whole(k, 32), "V in L1": whole(v, 32), "P in L1": whole(s, 32)},
    }


def operands_in_l1(call: Call, cut: Cut, prob_slots: int) -> dict[str, int]:
    """Two slots of Q, ``kv_depth`` of K and V, and P in the input's type."""
    head, value, e = whole(call.head_dim, FRACTAL), whole(call.value_dim, FRACTAL), call.element
    return {
        "Q": whole(cut.block_q * head * e, 32) * 2,
        "K": whole(cut.block_kv * head * e, 32) * cut.kv_depth,
        "V": whole(cut.block_kv * value * e, 32) * cut.kv_depth,
        "P": whole(cut.block_q * cut.block_kv * e, 32) * prob_slots,
    }


def rows_in_ub(call: Call, cut: Cut, mine: int, step: int, score_slots: int, out_slots: int) -> dict[str, int]:
    """A vector core's ``mine`` rows of O and of softmax state, and working tiles of ``step`` rows; scores in float32."""
    value = whole(call.value_dim, FRACTAL)
    scores = step * cut.block_kv
    return {
        "O": whole(mine * value * 4, 32),
        "S in UB": whole(scores * 4, 32) * score_slots,
        "P in UB": whole(scores * call.element, 32) * cut.ub_depth,
        "dO in UB": whole(step * value * 4, 32) * out_slots,
        "mask": whole(scores, 32) * cut.ub_depth if call.masked else 0,
        "max, sum": mine * STATE_ROW * 2,
        "exp": mine * STATE_ROW * (cut.preload + 1),
    }


def rows_of_a_vector_core(chip: Chip, cut: Cut) -> int:
    """The larger part where the rows do not divide."""
    return whole(cut.block_q, chip.vector_cores) // chip.vector_cores


def coupled(chip: Chip, call: Call, cut: Cut) -> Bytes:
    """Whole tiles in UB, one slot of S and ΔO: the Vector itself takes them out of L0C."""
    mine = rows_of_a_vector_core(chip, cut)
    return {"UB": rows_in_ub(call, cut, mine, mine, 1, 1), "L1": operands_in_l1(call, cut, cut.prob_depth)}


def direct(chip: Chip, call: Call, cut: Cut) -> Bytes:
    """Whole tiles in UB, where FixPipe runs ahead by the slots of S and ΔO."""
    mine = rows_of_a_vector_core(chip, cut)
    return {
        "UB": rows_in_ub(call, cut, mine, mine, cut.score_depth, cut.out_depth),
        "L1": operands_in_l1(call, cut, cut.prob_depth),
    }


def separated(chip: Chip, call: Call, cut: Cut) -> Bytes:
    """Steps of rows in UB; S, P and ΔO of whole blocks in GM, whose slots start on cache lines of 512 bytes."""
    mine = rows_of_a_vector_core(chip, cut)
    scores, value = cut.block_q * cut.block_kv, whole(call.value_dim, FRACTAL)
    return {
        "UB": rows_in_ub(call, cut, mine, min(cut.vector_rows, mine), cut.ub_depth, cut.ub_depth),
        "L1": operands_in_l1(call, cut, 2),
        "GM": {
            "S workspace": whole(scores * 4, 512) * cut.score_depth,
            "P workspace": whole(scores * call.element, 512) * cut.prob_depth,
            "O workspace": whole(cut.block_q * value * 4, 512) * cut.out_depth,
        },
    }


def tensors(call: Call, cut: Cut) -> dict[str, int]:
    """Q, K, V and O, and per split a float32 O with a max and a sum a row."""
    queries = keys = 0
    for many, q_len, kv_len in call.sequences:
        queries += many * q_len * call.q_heads
        keys += many * kv_len * call.kv_heads
    both = (call.head_dim + call.value_dim) * call.element
    partial = queries * (call.value_dim * 4 + 2 * STATE_ROW) * cut.kv_split if cut.kv_split > 1 else 0
    return {"Q, O": queries * both, "K, V": keys * both, "split results": partial}


def l0(chip: Chip, call: Call, cut: Cut) -> Bytes:
    """Slots of L0 serve both multiplications, so each holds the larger of their pieces."""
    qk = piece(chip, (cut.block_q, call.head_dim, cut.block_kv), call.element, cut.l0_depth)
    pv = piece(chip, (cut.block_q, cut.block_kv, call.value_dim), call.element, cut.l0_depth)
    left = max(qk.m * qk.k, pv.m * pv.k) * call.element
    right = max(qk.k * qk.n, pv.k * pv.n) * call.element
    result = max(qk.m * qk.n, pv.m * pv.n) * 4
    sizes = {"L0A": ("left", left), "L0B": ("right", right), "L0C": ("result", result)}
    return {memory: {name: whole(size, 512) * cut.l0_depth} for memory, (name, size) in sizes.items()}


def piece(chip: Chip, dims: tuple[int, int, int], element: int, depth: int) -> Piece:
    """Start from one fractal and grow m, then n, to 128 at most, then k, a fractal at a time, while all slots fit."""
    deep = 32 // element
    m_all, k_all, n_all = whole(dims[0], FRACTAL), whole(dims[1], deep), whole(dims[2], FRACTAL)
    m, n, k = FRACTAL, FRACTAL, deep

    def fits(m: int, n: int, k: int) -> bool:
        return depth * element * m * k <= chip.l0a and depth * element * k * n <= chip.l0b and depth * 4 * m * n <= chip.l0c

    while m < min(m_all, 128) and fits(m + FRACTAL, n, k):
        m += FRACTAL
    while n < min(n_all, 128) and fits(m, n + FRACTAL, k):
        n += FRACTAL
    while k < k_all and fits(m, n, k + deep):
        k += deep
    return Piece(m, k, n, len(range(0, m_all, m)), len(range(0, k_all, k)), len(range(0, n_all, n)))
