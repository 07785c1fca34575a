"""Limit and deliver console lines, output items and notices of a program."""

from __future__ import annotations

from typing import Any, TypeAlias

from ..cached_property import cached_property
from ..data.json_values import count_utf8_bytes, decode_json
from ..data.narrowing import is_object
from ..errors import CodeModeProtocolError
from .events import Effect, SendNotification, WriteConsole, WriteOutputItem
from .ledger import Ledger
from .messages import ConsoleWritten, GuestNotification, OutputItemWritten
from .settings import InvocationSettings

_CONSOLE_SLACK_BYTES = 256  # for the guest runtime's last line about cut output
_MAX_CONSOLE_LINES = 4097  # the limit of the guest runtime and that line
_NOTICE_GLOBALS = {"log": "mcpLog", "notify": "mcpNotify"}
_MAX_NOTICES = 4096  # the limit of the guest runtime
MAX_TIMERS = 1000
"""Per program. The guest runtime has the same limit."""
MAX_YIELDS = 1000
"""Per program. The guest runtime has the same limit."""
_MAX_ITEMS = 16_384  # the limit of the guest runtime


class ConsoleLimiter:
    """Counts console output. The guest runtime cuts it, so only an escaped worker can exceed this limit."""

    def __init__(self, settings: InvocationSettings) -> None:
        self._maximum = settings.limits.max_console_bytes + _CONSOLE_SLACK_BYTES
        self._bytes = 0
        self._lines = 0

    def count_line(self, text: str) -> None:
        """Count a line. Raises `CodeModeProtocolError` beyond the limit."""
        self._bytes += count_utf8_bytes(text) + 1
        self._lines += 1
        if self._bytes > self._maximum or self._lines > _MAX_CONSOLE_LINES:
            raise CodeModeProtocolError("the worker sent more console output than the limit allows")


class OutputLimiter:
    """Counts all output of a program: items, console, value. The guest runtime ends a program that exceeds it.

    ``count`` counts items and lines. The methods raise `CodeModeProtocolError` beyond the limits.
    """

    def __init__(self, settings: InvocationSettings) -> None:
        rules = settings.profile.output
        self._maximum = None if rules is None else rules.max_bytes
        self._bytes = 0
        self._items = 0
        self._parts = 0
        self._max_parts = settings.limits.max_content_parts if settings.profile.has_content else 0
        self.count = 0

    @property
    def has_byte_limit(self) -> bool:
        """True for a profile whose programs write output."""
        return self._maximum is not None

    def count_console_line(self, text: str) -> None:
        """Count a line of the console."""
        self.count += 1
        if self._maximum is not None:
            self._count_bytes(count_utf8_bytes(text) + 1, _CONSOLE_SLACK_BYTES)

    def count_item(self, text: str) -> None:
        """Count an item of text or JSON."""
        if self._maximum is None:
            raise CodeModeProtocolError("the worker wrote an item of output, which this program does not have")
        self.count += 1
        self._items += 1
        self._count_bytes(count_utf8_bytes(text))
        if self._items > _MAX_ITEMS:
            raise CodeModeProtocolError("the worker wrote more items of output than the limit allows")

    def count_content_part(self, text: str) -> None:
        """Count a displayed part of content."""
        self._parts += 1
        self.count += 1
        if self._parts > self._max_parts:
            raise CodeModeProtocolError("the worker showed more content than the limit allows")
        if self._maximum is not None:
            self._count_bytes(count_utf8_bytes(text))

    def count_result_bytes(self, text: str | None) -> None:
        """Count what the program returned."""
        if self._maximum is not None and text is not None:
            self._count_bytes(count_utf8_bytes(text))

    def _count_bytes(self, size: int, slack: int = 0) -> None:
        self._bytes += size
        if self._maximum is not None and self._bytes > self._maximum + slack:
            raise CodeModeProtocolError("the worker sent more output than the limit allows")


class NotificationLimiter:
    """Counts notices for the host's listeners, which the guest runtime limits like the console."""

    def __init__(self, settings: InvocationSettings) -> None:
        self._maximum = settings.limits.max_console_bytes
        self._globals = settings.profile.guest.globals
        self._bytes = 0
        self.count = 0

    def count_notification(self, notice: GuestNotification) -> None:
        """Count a notice. Raises `CodeModeProtocolError` beyond the limits and for an unavailable kind."""
        if _NOTICE_GLOBALS[notice.kind] not in self._globals:
            raise CodeModeProtocolError(f"the worker sent a notice of kind {notice.kind!r}, which is not available")
        self._bytes += count_utf8_bytes(notice.payload_json)
        self.count += 1
        if self._bytes > self._maximum or self.count > _MAX_NOTICES:
            raise CodeModeProtocolError("the worker sent more messages of its program than the limit allows")


_MAX_HANDLE_CHARACTERS = 4096
OutputMessage: TypeAlias = ConsoleWritten | OutputItemWritten | GuestNotification


class GuestOutputRecorder:
    """Checks output messages of the worker and returns their effects.

    A replay repeats no notices and no delivered lines and items. Raises `CodeModeProtocolError` for more output
    than the guest runtime allows.
    """

    def __init__(self, settings: InvocationSettings, ledger: Ledger, recorded: Ledger | None) -> None:
        self._settings = settings
        self._ledger = ledger
        self._replayed_notifications = 0 if recorded is None else recorded.notice_count
        self._replayed_output = 0 if recorded is None else recorded.progress.output_count

    # Most programs write nothing.

    @cached_property
    def _console_limiter(self) -> ConsoleLimiter:
        return ConsoleLimiter(self._settings)

    @cached_property
    def _notification_limiter(self) -> NotificationLimiter:
        return NotificationLimiter(self._settings)

    @cached_property
    def _output_limiter(self) -> OutputLimiter:
        return OutputLimiter(self._settings)

    @property
    def output_count(self) -> int:
        """How many lines and items were written, including those before a replay."""
        return max(self._output_limiter.count, self._replayed_output)

    def record_output(self, event: OutputMessage) -> list[Effect]:
        """Return the effects of a line, an item or a notice."""
        if isinstance(event, GuestNotification):
            self._notification_limiter.count_notification(event)
            self._ledger.notice_count = self._notification_limiter.count
            is_replayed = self._notification_limiter.count <= self._replayed_notifications
            return [] if is_replayed else [SendNotification(event.kind, event.payload_json)]
        if isinstance(event, ConsoleWritten):
            self._console_limiter.count_line(event.text)
            self._output_limiter.count_console_line(event.text)
            effect = WriteConsole(event.level, event.text)
        else:
            count = (
                self._output_limiter.count_content_part if event.kind == "content" else self._output_limiter.count_item
            )
            count(event.text)
            if (
                event.kind == "content"
                and self._record_displayed_part_or_raise(event.text)
                and not self._output_limiter.has_byte_limit
            ):
                return []
            effect = WriteOutputItem(event.kind, event.text)
        return [] if self._output_limiter.count <= self._replayed_output else [effect]

    def _record_displayed_part_or_raise(self, text: str) -> bool:
        contents = self._ledger.contents
        try:
            handle: Any = decode_json(text) if contents is not None and len(text) <= _MAX_HANDLE_CHARACTERS else None
        except ValueError:
            handle = None
        part_id = handle.get(contents.reference_key) if contents is not None and is_object(handle) else None
        if contents is None or not isinstance(part_id, str) or part_id not in contents:
            raise CodeModeProtocolError("the worker shows content that it was not given")
        contents.displayed_names.append(part_id)
        return True

    def count_result(self, text: str | None) -> None:
        """Count what the program returned."""
        self._output_limiter.count_result_bytes(text)
