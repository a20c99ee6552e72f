"""The physical pages of a device: granules of 2 MiB, whole or broken into normal pages of 4 KiB.

Addresses are virtual, so a large allocation needs no adjacent granules; but a granule of which one normal page is in use is
lost to huge pages. That is the fragmentation that a device itself knows.
"""

from itertools import count

from ascend_jax.runtime.memory.policy import HUGE_PAGE, NORMAL_PAGE

PAGES_PER_GRANULE = HUGE_PAGE // NORMAL_PAGE

Holding = tuple[int, tuple[tuple[int, int], ...]]
"""What an allocation holds: whole granules, and (granule, normal pages) of broken ones."""


class Pages:
    """The free pages of ``total_bytes`` of memory, whole granules only.

    Attributes:
      granules: granules in all.
      whole: granules that nobody uses.
      loose: broken granule → its free normal pages.
    """

    def __init__(self, total_bytes: int) -> None:
        self.granules = self.whole = total_bytes // HUGE_PAGE
        self.loose: dict[int, int] = {}
        self.loose_pages = 0
        self._names = count()

    @property
    def free_bytes(self) -> int:
        """Bytes of all free pages."""
        return self.whole * HUGE_PAGE + self.loose_pages * NORMAL_PAGE

    @property
    def largest_bytes(self) -> int:
        """The largest allocation of huge pages that would succeed."""
        return self.whole * HUGE_PAGE

    def take(self, size: int, page: int) -> Holding | None:
        """Pages of ``page`` bytes for ``size`` bytes, or None where there are not enough.

        >>> Pages(2 * HUGE_PAGE).take(NORMAL_PAGE + 1, NORMAL_PAGE)
        (0, ((0, 2),))
        """
        number = -(-size // page)
        if page == NORMAL_PAGE:
            return self._take_normal(number)
        granules = number * (page // HUGE_PAGE)
        if granules > self.whole:
            return None
        self.whole -= granules
        return granules, ()

    def give(self, holding: Holding) -> None:
        """Take ``holding`` back; a broken granule of which all pages are free is whole again."""
        granules, parts = holding
        self.whole += granules
        for granule, pages in parts:
            free = self.loose.get(granule, 0) + pages
            self.loose_pages += pages
            if free == PAGES_PER_GRANULE:
                self.loose.pop(granule, None)
                self.loose_pages -= free
                self.whole += 1
            else:
                self.loose[granule] = free

    def _take_normal(self, number: int) -> Holding | None:
        if number > self.whole * PAGES_PER_GRANULE + self.loose_pages:
            return None
        parts = []
        while number:
            if not self.loose:
                self._break_one()
            granule = next(iter(self.loose))
            taken = min(number, self.loose[granule])
            parts.append((granule, taken))
            number -= taken
            self.loose_pages -= taken
            self.loose[granule] -= taken
            if not self.loose[granule]:
                del self.loose[granule]
        return 0, tuple(parts)

    def _break_one(self) -> None:
        self.whole -= 1
        self.loose[next(self._names)] = PAGES_PER_GRANULE
        self.loose_pages += PAGES_PER_GRANULE


def held_bytes(holding: Holding) -> int:
    """Bytes of the pages of an allocation.

    >>> held_bytes((1, ((0, 2),))) - HUGE_PAGE
    8192
    """
    granules, parts = holding
    return granules * HUGE_PAGE + sum(pages for _, pages in parts) * NORMAL_PAGE
