"""Numbers that users pass to the memory calls, and how sizes and pages follow from them.

Source of the rules: hicann/runtime, api_ref/11-01 (rounding), 25-02 (page of each policy), and memory.cpp and
npu_driver_mem.cc, which show that the rounded size decides the page.
"""

from enum import IntEnum

KIB, MIB, GIB = 2**10, 2**20, 2**30
NORMAL_PAGE, HUGE_PAGE, GIANT_PAGE = 4 * KIB, 2 * MIB, GIB
"""Bytes of a normal page, of a huge one, and of one of 1 GiB."""
HUGE_ABOVE = MIB
"""Huge-first takes normal pages up to this size."""
SIZE_UNIT = 32
"""Device allocations are rounded up to this, and all but those of the 950 get as much again for kernels that read ahead."""


class MemMallocPolicy(IntEnum):
    """``aclrtMemMallocPolicy``: which pages an allocation lies in. The P2P kinds are for copies between devices."""

    HUGE_FIRST = 0
    HUGE_ONLY = 1
    NORMAL_ONLY = 2
    HUGE_FIRST_P2P = 3
    HUGE_ONLY_P2P = 4
    NORMAL_ONLY_P2P = 5
    HUGE1G_ONLY = 6
    HUGE1G_ONLY_P2P = 7


class MemcpyKind(IntEnum):
    """``aclrtMemcpyKind``: a hint; the addresses say where the bytes really lie."""

    HOST_TO_HOST = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3
    DEFAULT = 4
    HOST_TO_BUF_TO_DEVICE = 5
    INNER_DEVICE_TO_DEVICE = 6
    INTER_DEVICE_TO_DEVICE = 7


HUGE_ONLY = (MemMallocPolicy.HUGE_ONLY, MemMallocPolicy.HUGE_ONLY_P2P)
HUGE_FIRST = (MemMallocPolicy.HUGE_FIRST, MemMallocPolicy.HUGE_FIRST_P2P)
NORMAL_ONLY = (MemMallocPolicy.NORMAL_ONLY, MemMallocPolicy.NORMAL_ONLY_P2P)
GIANT_ONLY = (MemMallocPolicy.HUGE1G_ONLY, MemMallocPolicy.HUGE1G_ONLY_P2P)


def round_up(size: int, unit: int) -> int:
    """``size`` as a whole number of ``unit``.

    >>> round_up(33, 32), round_up(64, 32)
    (64, 64)
    """
    return -(-size // unit) * unit


def device_size(size: int, policy: int, *, padding: int) -> int:
    """Bytes that a request of ``size`` is made into: whole units of 32, and ``padding`` more but for pages of 1 GiB.

    >>> device_size(100, 0, padding=32), device_size(100, 0, padding=0), device_size(100, 6, padding=32)
    (160, 128, 128)
    """
    return round_up(size, SIZE_UNIT) + (0 if policy in GIANT_ONLY else padding)


def pages_to_try(size: int, policy: int) -> tuple[int, ...]:
    """The page sizes that an allocation of ``size`` rounded bytes may lie in, the first that is free.

    A number that is no policy takes huge pages from 2 MiB and normal ones below.

    >>> pages_to_try(3 * MIB, MemMallocPolicy.HUGE_FIRST), pages_to_try(MIB, MemMallocPolicy.HUGE_FIRST)
    ((2097152, 4096), (4096,))
    """
    if policy in GIANT_ONLY:
        return (GIANT_PAGE,)
    if policy in HUGE_ONLY:
        return (HUGE_PAGE,)
    if policy in NORMAL_ONLY:
        return (NORMAL_PAGE,)
    if policy in HUGE_FIRST:
        return (HUGE_PAGE, NORMAL_PAGE) if size > HUGE_ABOVE else (NORMAL_PAGE,)
    return (HUGE_PAGE,) if size >= HUGE_PAGE else (NORMAL_PAGE,)


def policy_name(policy: int) -> str:
    """``HUGE_FIRST``, or the number of what is no policy."""
    return MemMallocPolicy(policy).name if policy in MemMallocPolicy._value2member_map_ else str(policy)


def text_of(size: float) -> str:
    """A size for a person: the largest binary unit that leaves at least 1, and the bytes.

    >>> text_of(3 * MIB), text_of(100)
    ('3.00 MiB (3145728 B)', '100 B')
    """
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:.2f} {name} ({size:.0f} B)"
    return f"{size:.0f} B"
