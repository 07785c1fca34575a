"""One program over tools that are named with it: `run_code_mode`. Also how the first program imports what runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from .blocking import run_sync
from .catalog import Catalog
from .errors import CodeModeWorkerError
from .extras import require_extras
from .late_imports import importing
from .options import CodeModeOptions
from .tools import collect_tools
from .workers.pool import WorkerPool, pool_or_default


async def run_code_mode(
    js: str,
    tools: Mapping[str, Any] | Iterable[Any],
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    tool_call_id: str | None = None,
    messages: Sequence[Any] = (),
    context: Any = None,
    started_at_ms: int | None = None,
    context_binding: str | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Run one program once and return its value: plain JSON, None for undefined; or an `Interrupt` when it paused.

    ``tools``: mapping name -> tool or an iterable of tools. ``tool_call_id`` names the outer call; a random id when
    None. ``messages`` and ``context`` reach every tool; ``started_at_ms`` and ``context_binding`` are those of
    `CodeModeTool.execute`. Raises `CodeModeError` or one of its subclasses.
    """
    catalog = Catalog(collect_tools(tools))
    settings = CodeModeOptions.of(options)
    require_extras(settings)
    workers = started(pool)
    run = load_execution()
    outer = run.OuterCall(tool_call_id, messages, context, None, started_at_ms, context_binding)
    return await run.Execution(catalog, settings, outer, workers).start(js)


def run_code_mode_sync(js: str, tools: Mapping[str, Any] | Iterable[Any], **settings: Any) -> Any:
    """Do what `run_code_mode` does, from code that is not async."""
    return run_sync(run_code_mode(js, tools, **settings))


def started(pool: WorkerPool | None) -> WorkerPool:
    """Return the pool to use, the process-wide one for None, with its first worker booting at least."""
    workers = pool_or_default(pool)
    workers.start()
    return workers


@cache
def load_execution():
    """Import what runs programs: late, for the first worker boots meanwhile, on another processor.

    Raises `CodeModeWorkerError` when it cannot be read, as where no descriptors are left.
    """
    try:
        with importing:
            from . import execution
    except OSError as error:
        raise CodeModeWorkerError(f"what runs programs cannot be imported: {error}") from error
    return execution
