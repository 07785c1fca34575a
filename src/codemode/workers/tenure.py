"""The tenure of a worker: the programs that it has run for one share, and whether it may have another.

Everything here is the host's own count and measure. What a worker says of itself decides nothing but whether it is
ready: one that an escaped program holds is only ever seen by later programs of the same share.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from .process_memory import MemoryInUse

Share: TypeAlias = tuple[str, ...]
"""The name of a share behind those of the shares that it is a part of; none: the pool itself."""

# Processor time counts up to the worker's limit (an hour) over all its programs, and no program takes more than this.
_MOST_SECONDS = 600.0
# Engines that were used stay in memory: what a worker may have that was forked, or has made its engines itself.
_MOST_BYTES = 96 << 20
_ENGINE_BYTES = 1 << 20
# What programs were given counts for the limit of their process even untouched: the next may have the largest heap.
_MOST_ADDRESS_BYTES = 192 << 20


class Tenure:
    """The programs of one worker. ``share`` is the only one that it serves."""

    def __init__(self, share: Share, most: int) -> None:
        self.share = share
        self.programs = 0
        self.said = b""  # the one frame that it has sent since its last program
        self._most = most
        self._seconds = 0.0
        self._begun_at = time.monotonic()

    def begin(self) -> bool:
        """Let it have another program; False: it has not said that it has a fresh engine for that."""
        said, self.said = self.said, b""
        self._begun_at = time.monotonic()
        return said == b"N%d" % self.programs

    def end(self, said: bytes, memory: MemoryInUse | None) -> bool:
        """Take note that its program has ended well; True: it may have another one.

        ``said`` is what it has sent since; ``memory`` that of its process, None where nothing tells.
        """
        self.said = said
        self.programs += 1
        self._seconds += time.monotonic() - self._begun_at
        if self.programs >= self._most or self._seconds > _MOST_SECONDS:
            return False
        if memory is None or memory.addresses > _MOST_ADDRESS_BYTES:
            return False
        return memory.resident <= _MOST_BYTES + self._most * _ENGINE_BYTES
