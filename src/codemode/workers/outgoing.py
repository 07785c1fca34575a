"""What is still to be sent to one worker. Each message is written when its turn comes, a long one piece by piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..protocol.framing import PIECE_CHARACTERS
from ..protocol.messages import DeliverValue, HostMessage


class Outgoing:
    """Messages in their order, as bytes to send next. A resume sends a whole ledger: nothing of it is copied ahead."""

    def __init__(self) -> None:
        self._messages: deque[HostMessage] = deque()
        self._pieces: Iterator[bytes] = iter(())
        self._next = memoryview(b"")

    def __bool__(self) -> bool:
        return bool(self._next or self._messages)

    def put(self, message: HostMessage) -> None:
        """Add a message."""
        self._messages.append(message)

    def next(self) -> memoryview:
        """Return what comes next, at most some 100 KB; empty when there is nothing more."""
        if not self._next:
            self._next = memoryview(next(self._pieces, None) or self._first_of_messages())
        return self._next

    def sent(self, count: int) -> None:
        """Take out so many bytes of what came next."""
        self._next = self._next[count:]
        if not self._next:
            # So that it is known here whether anything is left of a long one.
            self._next = memoryview(next(self._pieces, b""))

    def clear(self) -> None:
        """Forget all of it."""
        self.__init__()

    def _first_of_messages(self) -> bytes:
        """Return short messages together, which then wake the worker once, or the beginning of a long one."""
        frames: list[bytes] = []
        size = 0
        while self._messages and size < PIECE_CHARACTERS:
            message = self._messages[0]
            pieces = message.pieces() if type(message) is DeliverValue else None
            if pieces is not None and frames:
                break
            self._messages.popleft()
            if pieces is not None:
                self._pieces = pieces
                return next(pieces)
            frames.append(message.frame())
            size += len(frames[-1])
        return b"".join(frames)
