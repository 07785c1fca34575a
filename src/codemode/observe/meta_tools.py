"""What the model asks a surface beside its programs, told to whoever listens, and in a span. Answers nothing itself."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, Self

from ..errors import CodeModeError
from ..host.clock import now_ms
from ..host.threads import run_check
from ..options.parts import CodeModeOptions, Telemetry
from ..trace.events import CatalogEvent, Event
from .call_events import measured
from .hooks import Hooks


@contextmanager
def meta_span(options: Telemetry, name: str, tool_call_id: str | None = None) -> Generator[None]:
    """Do something within a span ``execute_tool <name>``, as an execution has one; nothing unless enabled."""
    if not options.is_enabled:
        yield
        return
    from .telemetry import tool_span

    with tool_span(options, name, tool_call_id):
        yield


class CatalogQuestion:
    """A question of the model to the catalog: ``async with`` it, and say in ``result_count`` how much was found.

    ``name`` is the meta-tool's, ``asked`` the queries or the names, None as long as nobody has read them. What is
    raised within is told and goes on.
    """

    def __init__(
        self,
        options: CodeModeOptions,
        name: str,
        operation: Literal["search", "describe"],
        asked: Any = None,
        tool_call_id: str | None = None,
    ) -> None:
        self.asked = asked
        self.result_count: int | None = None
        self._options = options
        self._name = name
        self._operation: Literal["search", "describe"] = operation
        self._ids = _ids(tool_call_id)
        self._span = ExitStack()

    async def __aenter__(self) -> Self:
        """Begin."""
        self._started_at_ms, self._started = now_ms(), perf_counter()
        self._span.enter_context(meta_span(self._options.telemetry, self._name, self._ids["outer_tool_call_id"]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Tell of it."""
        self._span.__exit__(kind, error, traceback)
        event = CatalogEvent(
            **self._ids,
            operation=self._operation,
            source="model",
            asked=self.asked,
            started_at_ms=self._started_at_ms,
            duration_ms=(perf_counter() - self._started) * 1000,
            result_count=self.result_count,
            error=error,
        )
        await _tell(self._options, event)


async def tell_unbegun(
    options: CodeModeOptions,
    listeners: tuple[Callable[[Event], Any], ...],
    script: str | None,
    tool_call_id: str | None,
    error: CodeModeError,
) -> None:
    """Tell of a run that ended before it began; its error gets the trace. ``script`` None: it was to be one call."""
    from .reporter import Reporter

    reporter = Reporter(options.lifecycle, **_ids(tool_call_id), listeners=listeners)
    if not reporter.is_watched:
        return
    size = await run_check(len(script or ""), partial(measured, script or "", hashes=script is not None))
    reporter.started(size, source="invoke" if script is None else "script")
    error.trace = await reporter.ended(error=error)


async def _tell(options: CodeModeOptions, event: Event) -> None:
    if options.lifecycle.has_hooks:
        hooks = Hooks(options.lifecycle)
        hooks.tell(event)
        await hooks.finish()


def _ids(tool_call_id: str | None) -> dict[str, Any]:
    made = "code-mode-" + secrets.token_hex(8)
    return {"invocation_id": made, "outer_tool_call_id": tool_call_id or made}
