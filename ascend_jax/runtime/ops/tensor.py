"""``Tensor``: what an operator is told of a piece of device memory. The values stay in the memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np


class Memory(Protocol):
    """Device memory, as far as tensors need it."""

    def view(self, address: int, size: int, /) -> np.ndarray:
        """The bytes from ``address`` as a uint8 array ``[size]`` that shares them."""
        ...


@lru_cache
def dtype_name(dtype: Any) -> str:
    """The name of a dtype of any kind.

    >>> dtype_name(np.float32), dtype_name("bfloat16")
    ('float32', 'bfloat16')
    """
    return jnp.dtype(dtype).name


@lru_cache
def element_bytes(name: str) -> int:
    """Bytes of one element."""
    return jnp.dtype(name).itemsize


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of device memory, as ``aclCreateTensor`` describes one.

    Attributes:
      address: of the storage, in bytes; 0 where it is not known yet.
      shape: of the view.
      dtype: any dtype or its name; kept as the name.
      format: ``ND`` or a storage format.
      strides: elements from one entry to the next, per axis; None: in C order without gaps.
      offset: elements from ``address`` to the first entry.

    Raises:
      ValueError: as many strides as axes are needed, and none of them may be negative.
    """

    address: int
    shape: tuple[int, ...]
    dtype: Any
    format: str = "ND"
    strides: tuple[int, ...] | None = None
    offset: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        if self.strides is not None:
            object.__setattr__(self, "strides", tuple(self.strides))
            if len(self.strides) != len(self.shape) or min(self.strides, default=0) < 0:
                raise ValueError(f"strides={self.strides} must be {len(self.shape)} numbers of at least 0, one an axis")

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * element_bytes(self.dtype)

    @property
    def span(self) -> tuple[int, int]:
        """First byte and number of bytes from it to the end of the last element; 0 bytes for an empty one."""
        item = element_bytes(self.dtype)
        if self.strides is None or 0 in self.shape:
            return self.address + self.offset * item, self.bytes
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return self.address + self.offset * item, (last + 1) * item

    def array(self, memory: Memory) -> np.ndarray:
        """Its elements in ``memory``: a NumPy array that shares the bytes. What ``memory`` refuses, it raises."""
        address, size = self.span
        if not size:
            return np.zeros(self.shape, jnp.dtype(self.dtype))
        flat = memory.view(address, size).view(jnp.dtype(self.dtype))
        if self.strides is None:
            return flat.reshape(self.shape)
        steps = [stride * flat.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps)

    def transposed(self) -> "Tensor":
        """The same memory with the last two axes exchanged."""
        steps = list(self.strides or contiguous(self.shape))
        shape, steps[-2:] = list(self.shape), steps[:-3:-1]
        shape[-2:] = shape[:-3:-1]
        return Tensor(self.address, tuple(shape), self.dtype, self.format, tuple(steps), self.offset)


Operand = Tensor | list[Tensor] | None
"""What stands in one place of a call: a tensor, several of a dynamic input, or nothing."""


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in C order, in elements.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def tensors_of(operands: dict[str, Operand]) -> Iterator[Tensor]:
    """Every tensor of a call's operands."""
    for operand in operands.values():
        if isinstance(operand, list):
            yield from operand
        elif operand is not None:
            yield operand
