"""Code of a sync tool in a thread. What it raises when nobody waits any more goes to the log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from ..trace.failures import log_late_failure


class ThreadCall:
    """Work of a tool to be done in a thread, which cannot be stopped when its invocation has ended."""

    def __init__(self, tool_name: str, call_id: str, work: Callable[[], Any]) -> None:
        self._tool_name = tool_name
        self._call_id = call_id
        self._work = work
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._raised: BaseException | None = None

    async def result(self, run_tool: Callable[[Callable[[], Any]], Awaitable[Any]]) -> Any:
        """Return what the work returns, run by ``run_tool``."""
        try:
            return await run_tool(self._run)
        except asyncio.CancelledError:
            self._abandon()
            raise
        finally:
            self._raised = None  # its traceback holds this object

    def _run(self) -> Any:
        try:
            return self._work()
        except (StopIteration, GeneratorExit) as error:
            # A future cannot carry the one, and the other is how tasks end: the call would never end.
            self._note(error)
            raise RuntimeError(f"a tool raised {type(error).__name__}") from error
        except BaseException as error:
            self._note(error)
            raise

    def _abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            raised, self._raised = self._raised, None
        if raised is not None:
            log_late_failure(self._tool_name, self._call_id, raised)

    def _note(self, error: BaseException) -> None:
        with self._lock:
            if not self._is_abandoned:
                self._raised = error
                return
        log_late_failure(self._tool_name, self._call_id, error)
