"""Search that ranks by the model and learns from measurements how wrong it is: how many until it is within 1 %?"""

from collections.abc import Iterator

import numpy as np

from ascend_jax import Tiling
from experiments.hardware_in_the_loop.truth import perturbed
from experiments.tuner_race.score import NEAR
from experiments.tuner_race.spaces import Space, measured
from tiling_search.session.session import FIELDS, Session, Told
from tiling_search.space import L0_DEPTH

POOL = 256
"""Tilings that a session chooses from: those that the model likes best."""
SLOTS = ("kv_depth", "prob_depth", "score_depth", "out_depth")
MOST = 60


def model_ranked(space: Space, machines: int) -> list[int]:
    """Measurements until within 1 % of the whole space's optimum, on machines of seeds 0 to ``machines`` − 1.

    The session is given the model's times of the space, unperturbed. ``MOST`` + 1 where that is not enough.
    """
    assert space.spec is not None and space.work is not None and space.found is not None
    kernel = space.found.kernel
    (model,) = measured([space.spec], space.work, space.columns, kernel)
    truths = measured([perturbed(space.spec, seed) for seed in range(machines)], space.work, space.columns, kernel)
    order = _pool(space.columns, model)
    return [_needed(_session(space, order, model), truth[order], truth.min()) for truth in truths]


def _pool(columns: dict[str, np.ndarray], model: np.ndarray) -> np.ndarray:
    """Ranks of the fastest by the model, fastest first; with the best slots alone of each choice of the other fields."""
    order = np.argsort(model, kind="stable")
    rest = np.stack([column for name, column in columns.items() if name not in SLOTS], axis=1)[order]
    _, first = np.unique(rest, axis=0, return_index=True)
    return order[np.sort(first)][:POOL]


def _session(space: Space, order: np.ndarray, model: np.ndarray) -> Session:
    fields = {**space.columns, "l0_depth": np.full(len(model), L0_DEPTH)}
    tilings = tuple(Tiling(**{name: int(fields[name][rank]) for name in FIELDS if name in fields}) for rank in order)
    return Session(key={}, name=space.name, tilings=tilings, model_s=tuple(model[order].tolist()))


def _needed(session: Session, seconds: np.ndarray, optimum: float) -> int:
    for count, place in enumerate(_asked(session, seconds), 1):
        if seconds[place] <= NEAR * optimum:
            return count
    return MOST + 1


def _asked(session: Session, seconds: np.ndarray) -> Iterator[int]:
    for _ in range(min(MOST, len(session.tilings))):
        session, (place,) = session.ask(1)
        yield place
        session = session.tell([Told(place, float(seconds[place]))])
