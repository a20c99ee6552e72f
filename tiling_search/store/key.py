"""``Key``: what a number in the store depends on. Two keys are alike only where the number must be."""

import json
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ascend_jax.cost.evaluate import chosen
from ascend_jax.cost.overlap import OVERLAPS, PIPELINED, Overlap
from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels import kernel_for
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.workload.attention import Attention
from ascend_jax.workload.mask import Mask
from tiling_search.jsonfile import Json
from tiling_search.jsonout import workload_dict
from tiling_search.space import Space

MODEL_ROOMS = ("hardware", "workload", "tiling", "kernels", "cost")
MODEL_FILES = ("verdict.py", "rounding.py", "occupancy.py", "_pytree.py", "_largest.py")
SINGLE = "single"
"""The space of configurations that were asked for one by one."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """What a result belongs to.

    Attributes:
      workload: every field of the attention call, as JSON with sorted names.
      dtype: its element type.
      chip: the chip's name, for people: it takes no part in ``digest``.
      chip_hash: all numbers of the chip; a chip that was calibrated anew is another one.
      kernel, overlap: the dataflow and the overlap model; a dataflow of one's own by its content too.
      space: where the search looked, by content; ``single`` for what was asked for one by one.
      model: the model's version: package version and content of the sources that make the numbers.
    """

    workload: str
    dtype: str
    chip: str
    chip_hash: str
    kernel: str
    overlap: str
    space: str
    model: str

    @property
    def digest(self) -> str:
        """A hash of everything but the chip's name."""
        return _hash([value for name, value in asdict(self).items() if name != "chip"])


def key_of(
    spec: NpuSpec,
    work: Attention,
    *,
    kernel: str | Kernel = "auto",
    overlap: str | Overlap = PIPELINED,
    space: Space | None = None,
) -> Key:
    """The key of results of ``work`` on ``spec``; ``space`` is the one that was searched, None for single questions.

    Raises:
      ValueError: no such kernel or overlap.
    """
    kernel, overlap = chosen(spec, kernel, overlap)
    return Key(
        workload=canonical(workload_json(work)),
        dtype=work.dtype,
        chip=spec.name or spec.architecture,
        chip_hash=chip_hash(spec),
        kernel=kernel_text(spec, kernel),
        overlap=overlap.name if overlap is OVERLAPS.get(overlap.name) else f"{overlap.name}+{_hash(repr(overlap))}",
        space=space_text(space),
        model=model_version(),
    )


def workload_json(work: Attention) -> Json:
    """Every field of ``work``, without a name.

    >>> workload_json(Attention(batch=1, q_heads=2, kv_heads=1, q_len=64, kv_len=64, head_dim=64, mask="causal"))["mask"]
    'causal'
    """
    found = workload_dict("", work)
    del found["name"]
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


def workload_of(data: Json) -> Attention:
    """The workload that :func:`workload_json` wrote."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    values["mask"] = Mask.parse(values["mask"])
    return Attention(**values)


def chip_hash(spec: NpuSpec) -> str:
    """A hash of the architecture and every number of a chip; its name takes no part."""
    return _hash({name: value for name, value in _exact(spec).items() if name != "name"})


def kernel_text(spec: NpuSpec, kernel: Kernel) -> str:
    """The kernel's name; with a hash of its content where that name stands for another one."""
    try:
        known = kernel_for(spec, kernel.name) == kernel
    except ValueError:
        known = False
    return kernel.name if known else f"{kernel.name}+{_hash(repr(kernel))}"


def space_text(space: Space | None) -> str:
    """The space's size, and a hash of what it is made of."""
    if space is None:
        return SINGLE
    parts = [np.asarray(getattr(space, item.name), np.float64) for item in fields(space)]
    return f"{space.size}-{_hash([[list(part.shape), part.tobytes().hex()] for part in parts])}"


@cache
def model_version() -> str:
    """The package's version, and a hash of the sources that make the model's numbers (the command line is none of them)."""
    root = Path(str(files("ascend_jax")))
    paths = [root / name for name in MODEL_FILES] + [path for room in MODEL_ROOMS for path in (root / room).rglob("*.py")]
    content = [[str(path.relative_to(root)), path.read_text("utf-8")] for path in sorted(paths)]
    return f"{_package_version()}+{_hash(content)}"


def canonical(data: Any) -> str:
    """JSON with sorted names and no spaces: one text for one content.

    >>> canonical({"b": 1, "a": [2]})
    '{"a":[2],"b":1}'
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _exact(value: Any) -> Any:
    """Numbers as exact text, data classes as dictionaries."""
    if is_dataclass(value):
        return {item.name: _exact(getattr(value, item.name)) for item in fields(value)}
    return value if value is None or isinstance(value, str) else float(value).hex()


def _hash(data: Any) -> str:
    return sha256(canonical(data).encode()).hexdigest()[:16]


def _package_version() -> str:
    try:
        return version("ascend-jax")
    except PackageNotFoundError:
        return "unknown"
