"""The package's own predictions: ``Model`` of attention rows, with the tuner's best tiling where a row states none, and
``EveryRow`` of all categories, for validation."""

from collections.abc import Sequence
from pathlib import Path

import jax

from ascend_jax.calibration.assume import Case, assume
from ascend_jax.calibration.elementary import CATEGORIES, Elementary, assume_elementary
from ascend_jax.calibration.predict import Prediction, predict
from ascend_jax.calibration.rows import Row
from ascend_jax.tiling.tiling import Tiling
from tiling_search.tuner import tune


class Model:
    """Attention rows, as calibration asks about them; remembers what it tuned. ``programs`` as in ``tiling_search.tune``."""

    def __init__(self, programs: Path | None = None) -> None:
        self._programs = programs
        self._tuned: dict[object, Tiling | str] = {}

    def assume(self, row: Row) -> Case:
        """The case that stands for a row."""
        return assume(row)

    def tiling(self, case: Case) -> Tiling:
        """The fastest tiling.

        Raises:
          ValueError: none fits.
        """
        leaves, static = jax.tree.flatten((case.spec, case.work))
        asked = (tuple(map(float, leaves)), static, case.kernel)
        if asked not in self._tuned:
            found = tune(case.spec, case.work, kernel=case.kernel, top=1, programs=self._programs)
            self._tuned[asked] = found.best.tiling if found.best else f"no tiling fits; {found.would_fit}"
        tiling = self._tuned[asked]
        if isinstance(tiling, str):
            raise ValueError(tiling)
        return tiling

    def predict(self, cases: Sequence[Case]) -> Sequence[Prediction]:
        """Seconds and bound of each case, in float64."""
        with jax.enable_x64(True):
            return predict(cases)


class EveryRow:
    """A :class:`tiling_search.validate.Predictor`: attention rows by :class:`Model`, copies, products and vector operators by
    :mod:`ascend_jax.calibration.elementary`, which have no tiling. ``programs`` as in :func:`tiling_search.tune`."""

    def __init__(self, programs: Path | None = None) -> None:
        self._attention = Model(programs)

    def assume(self, row: Row) -> Case | Elementary:
        """The case that stands for a row."""
        return assume_elementary(row) if row.category in CATEGORIES else self._attention.assume(row)

    def tiling(self, case: Case | Elementary) -> Tiling | None:
        """The fastest tiling, where the case has one.

        Raises:
          ValueError: none fits.
        """
        return None if isinstance(case, Elementary) else self._attention.tiling(case)

    def predict(self, cases: Sequence[Case | Elementary]) -> Sequence[Prediction]:
        """Seconds and bound of each case."""
        asked = iter(self._attention.predict([case for case in cases if not isinstance(case, Elementary)]))
        return [case.prediction if isinstance(case, Elementary) else next(asked) for case in cases]
