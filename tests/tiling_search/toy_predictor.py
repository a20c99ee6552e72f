"""A predictor that answers at once, so that validation can be tested without the model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from ascend_jax import Tiling
from ascend_jax.calibration.rows import Row


@dataclass(frozen=True)
class ToyCase:
    """What validation reads of a case."""

    row: Row
    kernel: Any
    group: str
    tiling: Tiling | None


class ToyPredictor:
    """Twice the value of a row in its note, times what it measured; gemm is not modelled, ops tell the group.

    ``fails`` says for which rows ``predict`` raises, a whole batch with one of them in it included.
    """

    def __init__(self, fails: Callable[[Row], bool] = lambda row: False) -> None:
        self.fails = fails
        self.batches: list[int] = []
        self.tuned: list[str] = []

    def assume(self, row: Row) -> Any:
        if row.category == "gemm":
            raise ValueError("a matrix multiplication is not attention")
        if row.category == "vector":
            raise KeyError("vector")
        return ToyCase(row, SimpleNamespace(name="separated"), row.op, Tiling(block_q=64, block_kv=64) if row.tiling else None)

    def tiling(self, case: Any) -> Tiling:
        if case.row.head_dim == 7:
            raise ValueError("no tiling fits; head_dim 4 would fit")
        self.tuned.append(case.row.id)
        return Tiling(block_q=128, block_kv=256)

    def predict(self, cases: Sequence[Any]) -> list[Any]:
        self.batches.append(len(cases))
        if any(self.fails(case.row) for case in cases):
            raise ZeroDivisionError("no cores")
        return [SimpleNamespace(seconds=case.row.measured_s * float(case.row.note or 1), bound_by="Cube") for case in cases]
