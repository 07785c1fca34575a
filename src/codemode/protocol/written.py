"""What a program has written: lines of its console, items of output, notices. Pure: counts them, tells them once."""

from __future__ import annotations

from typing import Any, TypeAlias

from ..cached_property import cached_property
from ..data.json_values import decode_json
from ..data.narrowing import is_object
from ..errors import CodeModeProtocolError
from .counts import ConsoleCount, NoticeCount, OutputCount
from .events import Effect, TellNotice, WriteConsole, WriteItem
from .ledger import Ledger
from .messages import ConsoleWritten, GuestNotice, ItemWritten
from .settings import Settings

_MAX_TOLD_PART = 4096
Writing: TypeAlias = ConsoleWritten | ItemWritten | GuestNotice


class Written:
    """Takes what the worker says that the program has written, and returns who is to be told of it.

    In a replay nobody is told again of notices, nor of what was handed over of lines and items. Raises
    `CodeModeProtocolError` for more than the kernel lets pass.
    """

    def __init__(self, settings: Settings, ledger: Ledger, recorded: Ledger | None) -> None:
        self._settings = settings
        self._ledger = ledger
        self._told_notices = 0 if recorded is None else recorded.notices
        self._told_output = 0 if recorded is None else recorded.progress.output

    # Most programs write nothing.

    @cached_property
    def _console(self) -> ConsoleCount:
        return ConsoleCount(self._settings)

    @cached_property
    def _notices(self) -> NoticeCount:
        return NoticeCount(self._settings)

    @cached_property
    def _output(self) -> OutputCount:
        return OutputCount(self._settings)

    @property
    def output(self) -> int:
        """How many lines and items were written, in this replay or before it."""
        return max(self._output.written, self._told_output)

    def take(self, event: Writing) -> list[Effect]:
        """Return the effects of a line, an item or a notice."""
        if isinstance(event, GuestNotice):
            self._notices.add(event)
            self._ledger.notices = self._notices.told
            is_told = self._notices.told <= self._told_notices
            return [] if is_told else [TellNotice(event.kind, event.payload_json)]
        if isinstance(event, ConsoleWritten):
            self._console.written(event.text)
            self._output.line(event.text)
            effect = WriteConsole(event.level, event.text)
        else:
            count = self._output.content if event.kind == "content" else self._output.item
            count(event.text)
            if event.kind == "content" and self._shown(event.text) and not self._output.is_counted:
                return []
            effect = WriteItem(event.kind, event.text)
        return [] if self._output.written <= self._told_output else [effect]

    def _shown(self, text: str) -> bool:
        contents = self._ledger.contents
        try:
            told: Any = decode_json(text) if contents is not None and len(text) <= _MAX_TOLD_PART else None
        except ValueError:
            told = None
        part_id = told.get(contents.tag) if contents is not None and is_object(told) else None
        if contents is None or not isinstance(part_id, str) or part_id not in contents:
            raise CodeModeProtocolError("the worker shows content that it was not given")
        contents.shown.append(part_id)
        return True

    def value(self, text: str | None) -> None:
        """Count what the program returned."""
        if self._settings.profile.output is not None:
            self._output.value(text)
