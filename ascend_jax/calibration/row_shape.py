"""Sizes that a row of a matrix product, copy or vector operator states: in its shapes, or in its words."""

import re

from ascend_jax.calibration.assume import Unmodelled
from ascend_jax.workload.attention import ALIASES, ELEMENT_BYTES


def element_bytes(dtype: str | None) -> tuple[int, int]:
    """Bytes of an element that goes in and of one that comes out: ``fp16->fp32``; ``fp16/bf16`` where either was taken.

    Raises:
      Unmodelled: a type that the model does not have.

    >>> element_bytes("fp16->fp32")
    (2, 4)
    """
    sizes = [_bytes(part, dtype) for part in (dtype or "").split("->")]
    return sizes[0], sizes[-1]


def _bytes(part: str, dtype: str | None) -> int:
    names = [ALIASES.get(name.strip(), name.strip()) for name in part.lower().split("/")]
    sizes = {ELEMENT_BYTES.get(name) for name in names}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        raise Unmodelled(f"dtype {dtype!r} is not modelled: it must be one of {', '.join(ELEMENT_BYTES)}")
    return size


def stated_sizes(text: str) -> tuple[int, ...] | None:
    """The first sizes in ``text``: ``8192^3``, ``256x2048`` or ``1024x2048x4096``; None where there are none.

    >>> stated_sizes("GEMM basic API 8192^3"), stated_sizes("softmax 256x2048 fp32"), stated_sizes("layernorm")
    ((8192, 8192, 8192), (256, 2048), None)
    """
    if power := re.search(r"\b(\d+)\^([23])", text):
        return (int(power[1]),) * int(power[2])
    if product := re.search(r"\b\d+(?:x\d+)+\b", text):
        return tuple(int(size) for size in product[0].split("x"))
    return None
