"""Settings of the caching allocator, as users write them in ``PYTORCH_NPU_ALLOC_CONF``.

Source of keys, ranges and roundings: Ascend/pytorch, NPUAllocatorConfig and NPUCachingAllocator; of max_split_size_mb's and
garbage_collection_threshold's ranges: PyTorch's allocator configuration.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ascend_jax.runtime.memory.policy import HUGE_PAGE, MIB, round_up

MIN_BLOCK = 512
"""Sizes are rounded up to this, and no block is smaller."""
SMALL_SIZE = MIB
"""Blocks up to this come from the small pool, in segments of ``SMALL_SEGMENT``."""
SMALL_SEGMENT, LARGE_SEGMENT = 2 * MIB, 20 * MIB
MIN_LARGE_SIZE = 10 * MIB
"""Blocks from this on get segments of their own, in units of 2 MiB; larger ones of the large pool share ``LARGE_SEGMENT``."""
NO_LIMIT = 1 << 62
INTERVALS = 16
"""Powers of two, from 1 MiB on, for which ``roundup_power2_divisions`` holds a number each."""


@dataclass(frozen=True, kw_only=True)
class CachingConfig:
    """How the caching allocator rounds, splits and lets go.

    Attributes:
      max_split_size: bytes from which a block is never split, and never given for a smaller request.
      garbage_collection_threshold: part of the allowed memory beyond which old cached segments go before new ones come; 0:
        never. It counts only where the fraction of the device is limited.
      max_non_split_rounding: a block that is not split may be this much larger than its request, less a byte.
      roundup_power2_divisions: parts into which the space above a power of two is cut for rounding, for each of the 16 powers
        from 1 MiB (and below) to 32 GiB (and above); 0 and 1: none.
      large_segment_size: bytes of the segments that blocks between 1 and 10 MiB share.
      per_process_memory_fraction: part of the device that the allocator may reserve; None: all, and without a limit to
        measure the threshold by.
    """

    max_split_size: int = NO_LIMIT
    garbage_collection_threshold: float = 0.0
    max_non_split_rounding: int = LARGE_SEGMENT
    roundup_power2_divisions: tuple[int, ...] = (0,) * INTERVALS
    large_segment_size: int = LARGE_SEGMENT
    per_process_memory_fraction: float | None = None

    @classmethod
    def parse(cls, text: str) -> "CachingConfig":
        """The settings that ``text`` gives: ``key:value`` pairs with commas between them.

        Raises:
          ValueError: an unknown key, one that this model does not have, or a value outside its range.

        >>> CachingConfig.parse("max_split_size_mb:32,garbage_collection_threshold:0.6").max_split_size // MIB
        32
        """
        config = cls()
        for key, value in _pairs(text):
            if key in NOT_MODELLED:
                if value != "False":
                    raise ValueError(f"{key}:{value} is not part of this model; leave it out")
                continue
            if key not in READERS:
                raise ValueError(f"{key!r} is no key of PYTORCH_NPU_ALLOC_CONF; known are {', '.join(READERS)}")
            field, read = READERS[key]
            config = replace(config, **{field: read(key, value)})
        return config

    def rounded(self, size: int) -> int:
        """Bytes of the block for a request of ``size`` bytes.

        >>> CachingConfig().rounded(513), CachingConfig.parse("roundup_power2_divisions:4").rounded(1200 * 512) // 512
        (1024, 1280)
        """
        if size < MIN_BLOCK:
            return MIN_BLOCK
        interval = min(max((size // MIB).bit_length() - 1, 0), INTERVALS - 1)
        divisions = self.roundup_power2_divisions[interval]
        if divisions > 1 and size > MIN_BLOCK * divisions:
            return _rounded_to_division(size, divisions)
        return round_up(size, MIN_BLOCK)

    def segment_size(self, size: int) -> int:
        """Bytes of the segment that is allocated for a block of ``size`` rounded bytes."""
        if size <= SMALL_SIZE:
            return SMALL_SEGMENT
        return self.large_segment_size if size < MIN_LARGE_SIZE else round_up(size, HUGE_PAGE)

    def gives(self, block_size: int, size: int) -> bool:
        """Whether a free block of ``block_size`` bytes may serve ``size`` rounded bytes."""
        if size < self.max_split_size:
            return block_size < self.max_split_size
        return block_size < size + self.max_non_split_rounding

    def splits(self, block_size: int, size: int) -> bool:
        """Whether a free block of ``block_size`` bytes is cut for ``size``, or given whole."""
        rest = block_size - size
        if size <= SMALL_SIZE:
            return rest >= MIN_BLOCK
        return size < self.max_split_size and rest > SMALL_SIZE


def _rounded_to_division(size: int, divisions: int) -> int:
    floor = 1 << (size.bit_length() - 1)
    step = floor >> (divisions.bit_length() - 1)
    if size == floor:
        return size
    return round_up(size, step) if step else 2 * floor


def _pairs(text: str) -> list[tuple[str, str]]:
    """``a:1,b:[x:2,y:3]`` → a and 1, b and ``[x:2,y:3]``."""
    parts, depth = [""], 0
    for letter in text.replace(" ", ""):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    pairs = [part.partition(":") for part in parts if part]
    for key, colon, value in pairs:
        if not colon or not value:
            raise ValueError(f"{key!r} has no value; write key:value, with commas between pairs")
    return [(key, value) for key, _, value in pairs]


def _number(least: float, most: float, *, excludes: bool = False) -> Callable[[str, str], float]:
    def read(key: str, value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not (least < number < most if excludes else least <= number <= most):
            raise ValueError(f"{key}:{value} must be a number {'between' if excludes else 'from'} {least} and {most}")
        return number

    return read


def _megabytes(least: int, most: int) -> Callable[[str, str], int]:
    def read(key: str, value: str) -> int:
        if not value.isdecimal() or not least <= int(value) <= most:
            raise ValueError(f"{key}:{value} must be a whole number of MiB from {least} to {most}")
        return int(value) * MIB

    return read


def _divisions(key: str, value: str) -> tuple[int, ...]:
    """``8`` for all sizes, or ``[256:1,512:2,>:4]``: from 256 MiB (and below) 1, from 512 MiB on 4: ``>`` replaces the last.

    A power of two that the list leaves out has none.
    """
    if not value.startswith("["):
        return (_division(key, value, least=1),) * INTERVALS
    table, last = [0] * INTERVALS, None
    for size, number in _pairs(value.strip("[]")):
        divisions = _division(key, number, least=0)
        if size == ">":
            table[last or 0 :] = [divisions] * (INTERVALS - (last or 0))
            continue
        if not size.isdecimal() or not _is_power_of_two(int(size)):
            raise ValueError(f"{key}: size {size!r} must be a power of two in MiB, or > for the last one and all above")
        index = min(int(size).bit_length() - 1, INTERVALS - 1)
        if last is None:
            table[:index] = [divisions] * index
        table[index] = divisions
        last = index
    return tuple(table)


def _division(key: str, value: str, *, least: int) -> int:
    if not value.isdecimal() or not (_is_power_of_two(int(value)) or int(value) == least == 0):
        raise ValueError(f"{key}:{value} must be a power of two")
    return int(value)


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


READERS: Mapping[str, tuple[str, Callable[[str, str], object]]] = {
    "max_split_size_mb": ("max_split_size", _megabytes(20, NO_LIMIT // MIB)),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _megabytes(20, NO_LIMIT // MIB)),
    "garbage_collection_threshold": ("garbage_collection_threshold", _number(0, 1, excludes=True)),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "large_segment_size_mb": ("large_segment_size", _megabytes(20, 512)),
    "segment_size_mb": ("large_segment_size", _megabytes(20, 512)),
    "per_process_memory_fraction": ("per_process_memory_fraction", _number(0, 1)),
}
"""Key → the field that it sets and how its value is read."""
NOT_MODELLED = {
    "expandable_segments": ("false",),
    "multi_stream_lazy_reclaim": ("false",),
    "throw_on_npumalloc_oom": ("false",),
}
"""Keys that torch_npu has and this model does not, with the values that change nothing."""
