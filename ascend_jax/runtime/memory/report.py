"""What an out-of-memory error tells: how much was asked, who holds what, and what would help."""

from collections import Counter
from collections.abc import Iterable

from ascend_jax.runtime.errors import OutOfMemoryError
from ascend_jax.runtime.memory.addresses import Allocation
from ascend_jax.runtime.memory.policy import policy_name, text_of


def device_oom(
    name: str, asked: Allocation, *, total: int, allocated: int, reserved: int, largest: int, live: Iterable[Allocation]
) -> OutOfMemoryError:
    """207001 for ``asked``, which the memory called ``name`` cannot hold.

    Args:
      total: bytes of the memory; ``reserved`` of them are in pages that are in use, ``allocated`` were asked for.
      largest: bytes of the largest allocation of huge pages that would succeed.
      live: what holds the rest.
    """
    free = total - reserved
    fragmentation = 1 - largest / free if free else 0.0
    rows = [
        f"{name} is out of memory: {text_of(asked.requested)} asked, {text_of(free)} free",
        f"  requested          {text_of(asked.requested)}, {policy_name(asked.policy)}, rounded to {asked.size} B",
        f"  capacity           {text_of(total)}",
        f"  allocated          {text_of(allocated)}",
        f"  reserved           {text_of(reserved)} in pages",
        f"  largest free block {text_of(largest)} in huge pages",
        f"  fragmentation      {fragmentation:.1%} of what is free lies in broken huge pages",
        *holders(live),
    ]
    return OutOfMemoryError(207001, "\n".join(rows), remedy=_hint(asked, total, free, allocated, reserved))


def holders(live: Iterable[Allocation], most: int = 5) -> list[str]:
    """The places of the program that hold the most, in bytes of pages, one line each."""
    held: Counter[str] = Counter()
    number: Counter[str] = Counter()
    for allocation in live:
        held[allocation.site or "unknown place"] += allocation.reserved
        number[allocation.site or "unknown place"] += 1
    return [f"  {text_of(size)} in {number[site]} allocations of {site}" for site, size in held.most_common(most)]


def _hint(asked: Allocation, total: int, free: int, allocated: int, reserved: int) -> str:
    if asked.size > total:
        return f"ask for less: the whole memory has {text_of(total)}"
    if asked.size <= free:
        return "use HUGE_FIRST, which falls back on normal pages, or free the small allocations that break huge pages"
    if reserved > 2 * allocated and allocated + asked.size <= total:
        return "small allocations in huge pages waste them: use HUGE_FIRST or NORMAL_ONLY, or cut them from a pool"
    return "free memory, give cached memory back (trim_to, empty_cache), or ask for less"
