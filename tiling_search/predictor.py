"""``Model``: the package's own predictions for validation, with the tuner's best tiling where a row states none."""

from collections.abc import Sequence
from pathlib import Path

import jax

from ascend_jax.calibration.assume import Case, assume
from ascend_jax.calibration.predict import Prediction, predict
from ascend_jax.calibration.rows import Row
from ascend_jax.tiling.tiling import Tiling
from tiling_search.tuner import tune


class Model:
    """A :class:`tiling_search.validate.Predictor`; remembers what it tuned. ``programs`` as in :func:`tiling_search.tune`."""

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
