"""Seconds of many cases at once, traceable in the chips' numbers: what validation prints and calibration fits."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ascend_jax._compile import SELDOM, quick_jit
from ascend_jax._pytree import as_arrays
from ascend_jax.calibration.assume import Case
from ascend_jax.cost.evaluate import model, stack_chips
from ascend_jax.cost.overlap import PIPELINED
from ascend_jax.cost.report import Report
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.rounding import EXACT
from ascend_jax.tiling.tiling import Tiling
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask
from ascend_jax.workload.problem import Problem, problem

EVERY_KEY = 2**40


class Prediction(NamedTuple):
    """Seconds of a case, and the limit that takes most of them."""

    seconds: float
    bound_by: str


@dataclass(frozen=True)
class Stack:
    """Cases that share a compilation: one kernel, element size and layout; leaves ``[N]``."""

    places: np.ndarray
    """Where each case stands in the list that was given."""
    chips: np.ndarray
    """Which chip each case runs on, as an index into the list of distinct chips."""
    kernel: Kernel
    given: Problem
    tiling: Tiling


def stacks(cases: Sequence[Case], chips: Sequence[str]) -> list[Stack]:
    """``cases`` by what must be static; ``chips`` are the distinct names."""
    grouped: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        work = case.work
        kind = "prefix" if work.mask.kind == "prefix" else "band"
        grouped[case.kernel, work.element_bytes, work.layout, work.latent, kind].append(place)
    return [_stack([cases[place] for place in places], places, chips) for places in grouped.values()]


def _stack(cases: Sequence[Case], places: Sequence[int], chips: Sequence[str]) -> Stack:
    rows = [(problem(_alike(case.work)), as_arrays(case.tiling)) for case in cases]
    given, tiling = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
    names = np.array([chips.index(case.spec.name) for case in cases])
    return Stack(np.array(places), names, cases[0].kernel, given, tiling)


def _alike(work: Attention) -> Attention:
    """``work`` with what makes no difference made equal: 2-byte types, and masks that a band says as well."""
    dtype = "float16" if work.element_bytes == 2 else work.dtype
    pre, after = EVERY_KEY, 0
    match work.mask.kind:
        case "none":
            after = EVERY_KEY
        case "left_up_causal" | "prefix":
            return replace(work, dtype=dtype)
        case "band":
            pre, after = work.mask.pre, work.mask.next
    return replace(work, dtype=dtype, mask=Mask(kind="band", pre=pre, next=after))


def _reports(specs: NpuSpec, chips: np.ndarray, given: Problem, tiling: Tiling, kernel: Kernel) -> Report:
    """Reports ``[N]`` of a stack; ``specs`` has leaves ``[H]``, one of each distinct chip. Traceable in them."""
    own = jax.tree.map(lambda leaf: jnp.asarray(leaf)[chips], specs)

    @jax.jit
    def one(spec: NpuSpec, given: Problem, tiling: Tiling) -> Report:
        return model(spec, given, tiling, kernel, PIPELINED, EXACT)

    return jax.vmap(one)(own, given, tiling)


_reports_jit = quick_jit(_reports, static_argnums=(4,), wanted=SELDOM)


def seconds(cases: Sequence[Case], specs: Mapping[str, NpuSpec]) -> Array:
    """Seconds ``[R]`` of the cases on ``specs`` (by name; leaves of rank 0, traced or not)."""
    found = jnp.zeros(len(cases))
    for places, report in _stacked_reports(cases, specs):
        found = found.at[places].set(report.seconds)
    return found


def _stacked_reports(cases: Sequence[Case], specs: Mapping[str, NpuSpec]) -> Iterator[tuple[np.ndarray, Report]]:
    """The reports of each stack, with the places of its cases."""
    for places in _by_architecture(cases).values():
        own = [cases[place] for place in places]
        names = sorted({case.spec.name for case in own})
        chips = stack_chips([specs[name] for name in names])
        for stack in stacks(own, names):
            yield np.array(places)[stack.places], _reports_jit(chips, stack.chips, stack.given, stack.tiling, stack.kernel)


def _by_architecture(cases: Sequence[Case]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        grouped[case.spec.architecture].append(place)
    return grouped


def predict(cases: Sequence[Case]) -> list[Prediction]:
    """Seconds and bound of each case with its own chip; every case needs a tiling.

    Raises:
      ValueError: a case without a tiling.
    """
    if missing := [case.row.id for case in cases if case.tiling is None]:
        raise ValueError(f"rows {', '.join(missing)} have no tiling: tune them first")
    found: dict[int, Prediction] = {}
    with jax.enable_x64(True):
        for places, reports in _stacked_reports(cases, {case.spec.name: case.spec for case in cases}):
            concrete = jax.device_get(reports)
            for index, place in enumerate(places):
                one = jax.tree.map(lambda leaf, index=index: leaf[index], concrete)
                found[int(place)] = Prediction(float(one.seconds), one.bound_by)
    return [found[place] for place in range(len(cases))]
