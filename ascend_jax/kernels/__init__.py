"""How attention lies on the chip: one file per dataflow, each a list of buffers, stages and flows."""

from ascend_jax.hardware.spec import NpuSpec
from ascend_jax.kernels.coupled import Coupled
from ascend_jax.kernels.cube_vector import DIRECT, SEPARATED
from ascend_jax.kernels.kernel import Kernel
from ascend_jax.kernels.schedules import SCHEDULES
from ascend_jax.kernels.ub_resident import UbResident

KERNELS: dict[str, Kernel] = {kernel.name: kernel for kernel in (UbResident(), Coupled(), SEPARATED, DIRECT)}
"""Every dataflow by name."""


def kernel_for(spec: NpuSpec, name: str | Kernel = "auto") -> Kernel:
    """The kernel called ``name``, with ``auto`` the one that the chip's architecture is built for; a ``Kernel`` as it is.

    Raises:
      ValueError: no such kernel, one for another architecture, or the chip lacks a path that it needs.
    """
    if not isinstance(name, str):
        return name
    if name == "auto":
        name = spec.architecture
    known = KERNELS | SCHEDULES
    if name not in known:
        raise ValueError(f"kernel {name!r} must be auto or one of {', '.join(known)}")
    kernel = known[name]
    chip = spec.name or spec.architecture
    own = "" if name == spec.architecture else f"auto ({spec.architecture}) or "
    other = f"use {own}ub_resident"
    if spec.architecture not in kernel.runs_on:
        raise ValueError(
            f"kernel {name!r} runs on {' or '.join(kernel.runs_on)} cores; those of {chip} are {spec.architecture}: {other}"
        )
    if missing := [path for path in kernel.needs if getattr(spec, path) is None]:
        paths = ", ".join(path.removesuffix("_bytes_per_s") for path in missing)
        raise ValueError(f"kernel {name!r} needs the path {paths}, which {chip} lacks: {other}")
    return kernel
