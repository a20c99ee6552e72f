"""``Tiling``: how a workload is cut. One candidate, or a batch of them as one struct of arrays."""

from dataclasses import dataclass, fields

from jax.tree_util import register_dataclass

from ascend_jax._pytree import Leaf, all_numbers, is_whole

Whole = Leaf


@register_dataclass
@dataclass(frozen=True, kw_only=True)
class Tiling:
    """One way to cut attention into blocks, or a batch of ways (every field ``[C]``).

    Attributes:
      block_q, block_kv: rows of Q, and of K and V, of one block; multiples of 16.
      vector_rows: rows of the score block that one vector core works on at once; the score tile in UB is
        ``vector_rows × block_kv``. A kernel that keeps the whole score block in UB takes no notice of it.
      kv_depth: slots for K and for V.
      score_depth, prob_depth, out_depth: slots for the scores S, the probabilities P and the partial output ΔO on their way
        between Cube and Vector.
      ub_depth: slots of the Vector's working tiles in UB (2 lets MTE2 and MTE3 run beside the Vector).
      l0_depth: slots of L0A, L0B and L0C (2 lets loads and FixPipe run beside the Cube).
      preload: tiles that Q·Kᵀ runs ahead of P·V.
      kv_split: cores that share one block of q rows, each with a part of its keys (1: none; partial results are combined).
    """

    block_q: Whole
    block_kv: Whole
    vector_rows: Whole = 16
    kv_depth: Whole = 2
    score_depth: Whole = 2
    prob_depth: Whole = 2
    out_depth: Whole = 2
    ub_depth: Whole = 2
    l0_depth: Whole = 2
    preload: Whole = 1
    kv_split: Whole = 1

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            least = 1 if item.name in ("l0_depth", "kv_split") else 0
            if all_numbers(value) and not is_whole(value, least):
                raise ValueError(f"{item.name}={value} must be a whole number of at least {least}")
