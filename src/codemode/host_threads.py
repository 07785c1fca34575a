"""The threads in which host code runs that may keep the event loop: sync tools, and checks of large values.

Knows nothing of calls. In a forked child of the host they are made anew.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_TOOL_THREADS = 64
# They hold the interpreter's lock all the time, so more would only share it.
_CHECK_THREADS = 2
# A validator takes up to ten milliseconds for so much.
LARGE_CHARACTERS = 1 << 11

ResultT = TypeVar("ResultT")
_tools: ThreadPoolExecutor | None = None
_checks: ThreadPoolExecutor | None = None


async def run_tool(work: Callable[[], ResultT]) -> ResultT:
    """Run a sync tool, with the caller's context variables. The loop's own threads are six on a two-core machine."""
    global _tools  # noqa: PLW0603 - one pool for the process
    if _tools is None:
        _tools = ThreadPoolExecutor(_TOOL_THREADS, thread_name_prefix="codemode-tool")
    return await _run(_tools, work)


async def run_check(characters: int, work: Callable[[], ResultT]) -> ResultT:
    """Run a check of a value that was given as a text of so many ``characters``: at once when it is small."""
    global _checks  # noqa: PLW0603 - one pool for the process
    if characters < LARGE_CHARACTERS:
        return work()
    if _checks is None:
        _checks = ThreadPoolExecutor(_CHECK_THREADS, thread_name_prefix="codemode-check")
    return await _run(_checks, work)


async def _run(threads: ThreadPoolExecutor, work: Callable[[], ResultT]) -> ResultT:
    variables = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(threads, lambda: variables.run(work))


def _forget() -> None:
    """In a forked child: the threads did not come along."""
    global _tools, _checks  # noqa: PLW0603 - as above
    _tools = _checks = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
