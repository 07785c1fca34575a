"""Read and write frames of one worker on the running event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from ..errors import CodeModeProtocolError
from ..host.threads import run_in_thread_if_large_or_slow
from ..protocol.framing import CHUNK_CHARACTERS, FrameDecoder, split_messages
from ..protocol.message_decoder import decode_message
from ..protocol.messages import DeliverValue, HostMessage, WorkerMessage
from .process import WorkerProcess


class SendQueue:
    """Messages in their order, as bytes to send next. A resume sends a whole ledger: nothing of it is copied ahead.

    ``is_empty`` is True when all of it has been sent.
    """

    def __init__(self) -> None:
        self.is_empty = True
        self._messages: deque[HostMessage] = deque()
        self._pieces: Iterator[bytes] | None = None  # what is left of a long message
        self._chunk: bytes | memoryview = b""

    def append(self, message: HostMessage) -> None:
        """Add a message."""
        self._messages.append(message)
        self.is_empty = False

    def prepend_unsent_bytes(self, rest: bytes) -> None:
        """Put the unsent rest of a frame in front; the queue must be empty."""
        self._chunk = rest
        self.is_empty = False

    def peek_next_chunk(self) -> bytes | memoryview:
        """Return what comes next, at most some 100 KB; empty when there is nothing more."""
        if not self._chunk and self._messages:
            self._chunk = self._encode_next_messages()
        return self._chunk

    def drop_sent_bytes(self, count: int) -> None:
        """Drop the first ``count`` bytes of the next chunk, which were sent."""
        if count < len(self._chunk):
            self._chunk = memoryview(self._chunk)[count:]
            return
        self._chunk = b""
        if self._pieces is not None:
            # So that it is known here whether anything is left of a long one.
            self._chunk = next(self._pieces, b"")
            if not self._chunk:
                self._pieces = None
        self.is_empty = not (self._chunk or self._messages)

    def clear(self) -> None:
        """Forget all of it."""
        self.__init__()

    def _encode_next_messages(self) -> bytes:
        """Return short messages together, which then wake the worker once, or the beginning of a long one."""
        frames: list[bytes] = []
        size = 0
        while self._messages and size < CHUNK_CHARACTERS:
            message = self._messages[0]
            if type(message) is DeliverValue and len(message.value_json or "") > CHUNK_CHARACTERS:
                if frames:
                    break
                self._messages.popleft()
                self._pieces = message.iter_encoded_chunks()
                return next(self._pieces)
            self._messages.popleft()
            frames.append(message.to_frame())
            size += len(frames[-1])
        return b"".join(frames)


# Below the size for which the allocator maps and unmaps memory at every read.
_MAX_READ_BYTES = 1 << 16
# Reading so much may take a millisecond.
_MIN_LARGE_FRAME_BYTES = 1 << 16
_MAX_MESSAGES_PER_TURN = 64


class WorkerChannel:
    """Once it listens, calls ``on_message`` for each message of the worker, ``on_end`` when the other end is gone.

    ``on_violation`` gets the `CodeModeProtocolError` of a frame that breaks the rules, ``on_failure`` what else was
    raised by what a frame led to; nothing is read after either. ``first_message`` goes ahead of what is sent.
    """

    def __init__(
        self,
        worker: WorkerProcess,
        max_frame_bytes: int,
        *,
        on_message: Callable[[WorkerMessage], None],
        on_end: Callable[[str], None],
        on_violation: Callable[[CodeModeProtocolError], None],
        on_failure: Callable[[Exception], None],
        first_message: HostMessage | None = None,
    ) -> None:
        self._socket = worker.channel
        self._descriptor = self._socket.fileno()
        self._decoder = FrameDecoder(max_frame_bytes)
        self._on_message = on_message
        self._on_end = on_end
        self._on_violation = on_violation
        self._on_failure = on_failure
        self._frames: deque[bytes] = deque()
        self._decoded_messages: Iterator[WorkerMessage] = iter(())  # messages of the frame before those
        self._is_paused = False
        self._is_writing = False  # whether the loop tells when the worker takes more
        self._decoding_task: asyncio.Task[None] | None = None
        self._send_queue = SendQueue()
        if first_message is not None:  # goes out with what follows
            self._send_queue.append(first_message)
        self._loop = asyncio.get_running_loop()
        self._is_open = True

    def start_receiving(self) -> None:
        """Begin to read, unless it is closed already."""
        if self._is_open:
            self._loop.add_reader(self._descriptor, self._on_readable)
            if not self._send_queue.is_empty:
                self._flush_now_or_when_writable()

    def take_undelivered_frame(self) -> bytes | None:
        """Return the one received frame that was not delivered, or b"" without one.

        None when there are more, or when a frame is unsent. Nothing is delivered afterwards.
        """
        if not (self._is_open and self._send_queue.is_empty and self._decoding_task is None) or len(self._frames) > 1:
            return None
        try:
            is_clear = not self._decoder.buffer and next(self._decoded_messages, None) is None
        except CodeModeProtocolError:
            return None
        return (self._frames.popleft() if self._frames else b"") if is_clear else None

    def send(self, message: HostMessage, *, hold: bool = False) -> None:
        """Send one message now, or as soon as the worker takes it.

        ``hold``: more may follow in this turn of the event loop, and all go out when it has ended. Many answers at once
        then wake the worker once.
        """
        if not self._send_queue.is_empty:
            self._send_queue.append(message)
        elif hold:
            self._send_queue.append(message)
            self._loop.call_soon(self._flush_now_or_when_writable)
        elif type(message) is DeliverValue and len(message.value_json or "") > CHUNK_CHARACTERS:
            self._send_queue.append(message)
            self._flush_now_or_when_writable()
        elif self._is_open:
            frame, count = message.to_frame(), 0
            try:
                count = self._socket.send(frame)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                return  # as in `_send_next_chunk`
            if count < len(frame):
                self._send_queue.prepend_unsent_bytes(frame[count:])
                self._start_watching_writable()

    def close(self) -> None:
        """Stop reading and writing; the socket itself belongs to the worker's handle."""
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._descriptor)
            if self._is_writing:
                self._stop_watching_writable()
            if self._decoding_task is not None:
                self._decoding_task.cancel()
                self._decoding_task = None
            self._frames.clear()
            self._decoded_messages = iter(())
            if not self._send_queue.is_empty:
                self._send_queue.clear()
            # They refer to the channel's owner: a cycle that only the garbage collector could free.
            self._on_message = self._on_end = self._on_violation = self._on_failure = _ignore_event

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(_MAX_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._on_end(str(error))
            return
        if not data:
            self._on_end("it closed its channel")
            return
        try:
            self._frames.extend(self._decoder.feed(data))
        except CodeModeProtocolError as error:
            self._on_violation(error)
        except Exception as error:  # noqa: BLE001 - the loop would only log it, and the program would wait for ever
            self._on_failure(error)
        else:
            self._deliver_messages()

    def _deliver_messages(self) -> None:
        """Deliver received frames in order, for about a millisecond; reads no more until all are delivered."""
        remaining = _MAX_MESSAGES_PER_TURN
        try:
            while self._is_open:
                for message in self._decoded_messages:
                    self._on_message(message)
                    remaining -= 1
                    if not self._is_open:
                        return
                    if not remaining:
                        self._pause_reading()
                        self._loop.call_soon(self._deliver_messages)
                        return
                if not self._frames:
                    if self._is_paused:
                        self._resume_reading()
                    return
                frame = self._frames.popleft()
                if len(frame) >= _MIN_LARGE_FRAME_BYTES:
                    self._pause_and_start_decoding(frame)
                    return
                self._decoded_messages = map(decode_message, split_messages(frame))
        except CodeModeProtocolError as error:
            self._on_violation(error)
        except Exception as error:  # noqa: BLE001 - the loop would only log it, and the program would wait for ever
            self._on_failure(error)

    def _pause_and_start_decoding(self, frame: bytes) -> None:
        self._pause_reading()
        self._decoding_task = self._loop.create_task(self._decode_and_deliver_large_frame(frame))

    async def _decode_and_deliver_large_frame(self, frame: bytes) -> None:
        try:
            messages = await run_in_thread_if_large_or_slow(
                len(frame), lambda: [*map(decode_message, split_messages(frame))]
            )
            self._decoded_messages = iter(messages)
        except CodeModeProtocolError as error:
            self._on_violation(error)
        except Exception as error:  # noqa: BLE001 - the loop would only log it, and the program would wait for ever
            self._on_failure(error)
        else:
            self._decoding_task = None
            self._deliver_messages()

    def _pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._descriptor)

    def _resume_reading(self) -> None:
        self._is_paused = False
        self._loop.add_reader(self._descriptor, self._on_readable)

    def _flush_now_or_when_writable(self) -> None:
        if self._is_open and not self._send_queue.is_empty:
            self._send_next_chunk()
            if not self._send_queue.is_empty:
                self._start_watching_writable()

    def _start_watching_writable(self) -> None:
        self._is_writing = True
        self._loop.add_writer(self._descriptor, self._on_writable)

    def _on_writable(self) -> None:
        self._send_next_chunk()
        if self._send_queue.is_empty and self._is_open and self._is_writing:
            self._stop_watching_writable()

    def _stop_watching_writable(self) -> None:
        self._is_writing = False
        self._loop.remove_writer(self._descriptor)

    def _send_next_chunk(self) -> None:
        try:
            self._send_queue.drop_sent_bytes(self._socket.send(self._send_queue.peek_next_chunk()))
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            # A worker whose program has ended is gone, and what it said last is still to be read: the end of the
            # channel is seen there, behind it.
            self._send_queue.clear()


def _ignore_event(_argument: object) -> None:
    """Stand in for the callbacks of a closed channel."""
