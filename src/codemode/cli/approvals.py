"""Asks a person in the terminal about a call. Shows all of what will run, and nothing that moves the cursor."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from ..interrupts.approval import ApprovalRequest
from ..trace.visible_text import visible

_YES = ("y", "yes")


class TerminalApprovals:
    """Decides by ``--approve``. One question at a time, however many calls wait."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._turn = asyncio.Lock()

    async def __call__(self, request: ApprovalRequest) -> Any:
        """Return the decision about a call."""
        return await self.decided(_shown(request))

    async def decided(self, shown: str) -> Any:
        """Return the decision about what is shown, a text that is visible already."""
        if self._mode == "all":
            return "approved"
        if self._mode == "deny":
            return {"approved": False, "reason": "denied by --approve deny"}
        async with self._turn:
            print(shown, file=sys.stderr, flush=True)
            if not sys.stdin.isatty():
                print("denied: stdin is no terminal (use --approve all to allow)", file=sys.stderr)
                return {"approved": False, "reason": "nobody could be asked"}
            return (
                "approved"
                if await _is_yes("Allow this call? [y/N] ")
                else {"approved": False, "reason": "denied by the user"}
            )

    async def confirmed(self, shown: str, prompt: str) -> bool:
        """Return whether a person at the terminal says yes. ``--approve all`` answers only for calls."""
        async with self._turn:
            print(shown, file=sys.stderr, flush=True)
            if self._mode == "deny" or not sys.stdin.isatty():
                print("declined: only a person at a terminal can answer this", file=sys.stderr)
                return False
            return await _is_yes(prompt)


async def _is_yes(prompt: str) -> bool:
    # What was typed before the question was shown cannot be meant for it.
    _drop_typed_ahead()
    print(prompt, end="", file=sys.stderr, flush=True)
    return (await _next_line()).strip().lower() in _YES


def _shown(request: ApprovalRequest) -> str:
    shown = visible(json.dumps(request.input, indent=2, ensure_ascii=False), keep="\n")
    return f"\nThe program wants to call {visible(request.tool_name)} with\n{shown}"


def _drop_typed_ahead() -> None:
    try:
        import termios
    except ImportError:  # Windows
        _drop_typed_ahead_on_windows()
        return
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _drop_typed_ahead_on_windows() -> None:
    import msvcrt

    console: Any = msvcrt
    while console.kbhit():
        console.getwch()


async def _next_line() -> str:
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        # A thread in a blocking read could not be ended by Ctrl-C.
        if not line.done():
            line.set_result(os.read(descriptor, 4096).decode(errors="replace"))

    try:
        loop.add_reader(descriptor, read)
    except NotImplementedError:  # Windows
        return await asyncio.to_thread(sys.stdin.readline)
    try:
        return await line
    finally:
        loop.remove_reader(descriptor)
