"""A command that takes over a second says what it does, on a terminal only."""

from __future__ import annotations

import asyncio
import io

import pytest

from codemode.cli import exits


class Stream(io.StringIO):
    """A stderr that is a terminal, or none."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def shown(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, waits: bool, ends: bool = False) -> str:
    """Return what a command prints that waits for its progress to be due, or that has ended before."""
    stream = Stream(is_terminal=is_terminal)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(exits, "PROGRESS_DELAY_SECONDS", 0)

    async def work() -> None:
        is_due = asyncio.Event()
        with exits.show_text_if_slow("starting 1 server: files ...") as end_progress:
            if ends:
                end_progress()
            if waits:
                asyncio.get_running_loop().call_later(0, is_due.set)
                await is_due.wait()
        asyncio.get_running_loop().call_later(0, is_due.set)
        await is_due.wait()

    asyncio.run(work())
    return stream.getvalue()


def test_progress_is_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch):
    assert shown(monkeypatch, is_terminal=True, waits=True) == "starting 1 server: files ...\n"


def test_nothing_is_shown_without_a_terminal_of_a_short_command_or_after_its_end(monkeypatch: pytest.MonkeyPatch):
    assert shown(monkeypatch, is_terminal=False, waits=True) == ""
    assert shown(monkeypatch, is_terminal=True, waits=False) == ""
    assert shown(monkeypatch, is_terminal=True, waits=True, ends=True) == ""
