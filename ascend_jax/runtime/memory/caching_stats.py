"""What the caching allocator counts, under the names that users of ``torch.npu.memory_stats`` know."""

from dataclasses import dataclass

POOLS = ("all", "small_pool", "large_pool")
BY_POOL = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
OVERSIZE = ("oversize_allocations", "oversize_segments")
COUNTS = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")


@dataclass(slots=True)
class Stat:
    """One quantity: now, at most so far, and all that was ever added and taken."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def change(self, amount: int) -> None:
        """Add ``amount``, which may be negative."""
        self.current += amount
        if amount > 0:
            self.allocated += amount
            if self.current > self.peak:  # noqa: PLR1730 (max() is slow, and this is called often)
                self.peak = self.current
        else:
            self.freed -= amount


class CachingStats:
    """All quantities. ``allocated`` is with the program, ``active`` also waits for streams, ``reserved`` is in segments."""

    def __init__(self) -> None:
        self.by_pool = {name: {pool: Stat() for pool in POOLS} for name in BY_POOL}
        self.oversize = {name: Stat() for name in OVERSIZE}
        self.counts = dict.fromkeys(COUNTS, 0)

    def change(self, small: bool, sign: int, **amounts: int) -> None:
        """Add ``sign`` times each amount, in all and in the block's pool."""
        pool = POOLS[1] if small else POOLS[2]
        for name, amount in amounts.items():
            stats = self.by_pool[name]
            stats["all"].change(sign * amount)
            stats[pool].change(sign * amount)

    def current(self, name: str) -> int:
        """A quantity of both pools, now."""
        return self.by_pool[name]["all"].current

    def peak(self, name: str) -> int:
        """A quantity of both pools, at most since the last reset."""
        return self.by_pool[name]["all"].peak

    def reset_peaks(self) -> None:
        """Every peak becomes what is now."""
        for stat in self._stats().values():
            stat.peak = stat.current

    def flat(self) -> dict[str, int]:
        """``allocated_bytes.all.current`` and so on → number, sorted."""
        flat = {
            f"{name}.{what}": getattr(stat, what) for name, stat in self._stats().items() for what in Stat.__dataclass_fields__
        }
        return dict(sorted((flat | self.counts).items()))

    def _stats(self) -> dict[str, Stat]:
        pools = {f"{name}.{pool}": stat for name, stats in self.by_pool.items() for pool, stat in stats.items()}
        return pools | self.oversize
