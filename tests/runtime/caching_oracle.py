"""The caching allocator as lists of pieces: every rule looked up by a search over everything, nothing kept sorted or linked."""

from dataclasses import dataclass, field

from ascend_jax.runtime.memory.policy import MIB


@dataclass
class Piece:
    """A piece of a segment: ``used``, ``waiting`` for tasks of other streams, or ``free``."""

    start: int
    size: int
    state: str = "free"
    requested: int = 0
    users: set[int] = field(default_factory=set)
    waits: dict[int, int] = field(default_factory=dict)


@dataclass
class OracleSegment:
    """One segment, of a stream and a pool."""

    number: int
    size: int
    stream: int
    small: bool
    pieces: list[Piece]


class CachingOracle:
    """Segments, and how many bytes of the device they may take. ``given``, ``ended``: tasks of each stream."""

    def __init__(self, streams: int, device_bytes: int, max_split: int) -> None:
        self.segments: list[OracleSegment] = []
        self.device_bytes, self.max_split = device_bytes, max_split
        self.given, self.ended = [0] * streams, [0] * streams
        self.made = self.retries = self.ooms = 0

    def malloc(self, size: int, stream: int) -> tuple[int, int] | None:
        """Segment and offset of the block; None: out of memory."""
        self.process()
        rounded = max(-(-size // 512) * 512, 512)
        found = self._search(rounded, stream) or self._grow(rounded, stream)
        if found is None and self.max_split < 1 << 60 and self._release_large(rounded, stream):
            found = self._grow(rounded, stream)
        if found is None:
            self.retries += 1
            self.empty()
            found = self._grow(rounded, stream)
        if found is None:
            self.ooms += 1
            return None
        return self._give(*found, rounded, size)

    def free(self, number: int, start: int) -> None:
        """Give a block back."""
        piece = self._piece(number, start)
        piece.waits = {stream: self.given[stream] for stream in piece.users}
        piece.users = set()
        piece.state = "waiting" if piece.waits else "free"
        self._merge()

    def use(self, number: int, start: int, stream: int) -> None:
        """Record another stream."""
        if self._segment(number).stream != stream:
            self._piece(number, start).users.add(stream)

    def process(self) -> None:
        """Free what no stream uses any more."""
        for segment in self.segments:
            for piece in segment.pieces:
                done = all(self.ended[stream] >= tasks for stream, tasks in piece.waits.items())
                if piece.state == "waiting" and done:
                    piece.state, piece.waits = "free", {}
        self._merge()

    def empty(self) -> None:
        """Everything ends, and wholly free segments go."""
        self.ended = list(self.given)
        self.process()
        self.segments = [segment for segment in self.segments if not self._is_whole(segment)]

    def total(self, *states: str) -> int:
        """Bytes of the pieces in these states; of all of them without a state."""
        pieces = [piece for segment in self.segments for piece in segment.pieces]
        return sum(piece.size for piece in pieces if not states or piece.state in states)

    def requested(self) -> int:
        """Bytes that were asked for, of the blocks that are used or waiting."""
        pieces = [piece for segment in self.segments for piece in segment.pieces]
        return sum(piece.requested for piece in pieces if piece.state != "free")

    def split_free(self) -> int:
        """Bytes of free pieces that share their segment."""
        return sum(
            piece.size
            for segment in self.segments
            for piece in segment.pieces
            if piece.state == "free" and len(segment.pieces) > 1
        )

    def _search(self, size: int, stream: int) -> tuple[OracleSegment, Piece] | None:
        small = size <= MIB
        fitting = [
            (piece.size, segment.number, piece.start)
            for segment in self.segments
            for piece in segment.pieces
            if (segment.small, segment.stream, piece.state) == (small, stream, "free") and piece.size >= size
        ]
        if not fitting:
            return None
        best, number, start = min(fitting)
        if size < self.max_split <= best or (size >= self.max_split and best >= size + 20 * MIB):
            return None
        return self._segment(number), self._piece(number, start)

    def _grow(self, size: int, stream: int) -> tuple[OracleSegment, Piece] | None:
        length = 2 * MIB if size <= MIB else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.total() + length > self.device_bytes:
            return None
        segment = OracleSegment(self.made, length, stream, size <= MIB, [Piece(0, length)])
        self.made += 1
        self.segments.append(segment)
        return segment, segment.pieces[0]

    def _give(self, segment: OracleSegment, piece: Piece, size: int, requested: int) -> tuple[int, int]:
        rest = piece.size - size
        if rest >= 512 if segment.small else (size < self.max_split and rest > MIB):
            segment.pieces.insert(segment.pieces.index(piece) + 1, Piece(piece.start + size, rest))
            piece.size = size
        piece.state, piece.requested = "used", requested
        return segment.number, piece.start

    def _release_large(self, size: int, stream: int) -> bool:
        self.ended = list(self.given)  # the device is synchronised, but what waits is looked at only later
        needed = max(size, self.max_split)
        whole = [
            item for item in self.segments if self._is_whole(item) and item.stream == stream and item.small == (size <= MIB)
        ]
        fitting = [segment for segment in whole if segment.size >= needed]
        if fitting:
            self.segments.remove(min(fitting, key=lambda segment: (segment.size, segment.number)))
            return True
        released = 0
        for segment in sorted(whole, key=lambda item: (-item.size, -item.number)):
            if released < needed and segment.size >= self.max_split:
                released += segment.size
                self.segments.remove(segment)
        return released >= needed

    def _merge(self) -> None:
        for segment in self.segments:
            merged: list[Piece] = []
            for piece in segment.pieces:
                if merged and merged[-1].state == piece.state == "free":
                    merged[-1].size += piece.size
                else:
                    merged.append(piece)
            segment.pieces = merged

    @staticmethod
    def _is_whole(segment: OracleSegment) -> bool:
        return [piece.state for piece in segment.pieces] == ["free"]

    def _segment(self, number: int) -> OracleSegment:
        return next(segment for segment in self.segments if segment.number == number)

    def _piece(self, number: int, start: int) -> Piece:
        return next(piece for piece in self._segment(number).pieces if piece.start == start)
