"""The queue of messages to one worker. Each is written when its turn comes, a long one piece by piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..protocol.framing import PIECE_CHARACTERS
from ..protocol.messages import DeliverValue, HostMessage


class Outgoing:
    """Messages in their order, as bytes to send next. A resume sends a whole ledger: nothing of it is copied ahead.

    ``is_empty`` is True when all of it has been sent.
    """

    def __init__(self) -> None:
        self.is_empty = True
        self._messages: deque[HostMessage] = deque()
        self._pieces: Iterator[bytes] | None = None  # what is left of a long message
        self._next: bytes | memoryview = b""

    def put(self, message: HostMessage) -> None:
        """Add a message."""
        self._messages.append(message)
        self.is_empty = False

    def put_back(self, rest: bytes) -> None:
        """Begin with what is left of a frame that was sent while this was empty."""
        self._next = rest
        self.is_empty = False

    def next(self) -> bytes | memoryview:
        """Return what comes next, at most some 100 KB; empty when there is nothing more."""
        if not self._next and self._messages:
            self._next = self._first_of_messages()
        return self._next

    def sent(self, count: int) -> None:
        """Take out so many bytes of what came next."""
        if count < len(self._next):
            self._next = memoryview(self._next)[count:]
            return
        self._next = b""
        if self._pieces is not None:
            # So that it is known here whether anything is left of a long one.
            self._next = next(self._pieces, b"")
            if not self._next:
                self._pieces = None
        self.is_empty = not (self._next or self._messages)

    def clear(self) -> None:
        """Forget all of it."""
        self.__init__()

    def _first_of_messages(self) -> bytes:
        """Return short messages together, which then wake the worker once, or the beginning of a long one."""
        frames: list[bytes] = []
        size = 0
        while self._messages and size < PIECE_CHARACTERS:
            message = self._messages[0]
            if type(message) is DeliverValue and message.is_long:
                if frames:
                    break
                self._messages.popleft()
                self._pieces = message.pieces()
                return next(self._pieces)
            self._messages.popleft()
            frames.append(message.frame())
            size += len(frames[-1])
        return b"".join(frames)
