"""One program over tools that are named with it: `run_code_mode`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...execution.call_context import CallContext, OuterCall, check_call
from ...execution.optional_parts import are_imported, require_optional_parts
from ...execution.starting import load_execution, prepared, started
from ...host.imports import importing
from ...host.sync import run_sync
from ...host.workflows import refuse_in_workflow
from ...options.parts import CodeModeOptions
from ...tools.catalog import Catalog
from ...tools.collecting import collect_tools
from ...tools.tool_schemas import load_schema_kind
from ...workers.pool import WorkerPool, pool_or_default
from .outcome import told
from .profile import CODE_MODE

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome


async def run_code_mode(
    js: str,
    tools: Mapping[str, Any] | Iterable[Any],
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    call: CallContext | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Run one program once and return its value: plain JSON, None for undefined; or an `Interrupt` when it paused.

    ``tools``: mapping name -> tool or an iterable of tools. ``call`` says whose call it is. Raises `CodeModeError` or
    one of its subclasses.
    """
    return told(await _Once(tools, options, pool).run(js, check_call(call)))


def run_code_mode_sync(
    js: str,
    tools: Mapping[str, Any] | Iterable[Any],
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    call: CallContext | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Do what `run_code_mode` does, from code that is not async."""
    once, context = _Once(tools, options, pool), check_call(call)
    once.require()
    started(once.pool)
    return told(run_sync(once.run(js, context)))


class _Once:
    """Tools, options and pool of one run, checked."""

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeModeOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
    ) -> None:
        collected = collect_tools(tools)
        self._catalog = Catalog(collected)
        self._options = CodeModeOptions.of(options)
        self.pool = pool_or_default(pool)
        # A `CodeModeTool` has compiled its schemas; those here are compiled when something asks for them.
        self._late = {kind for tool in collected.values() for kind in tool.schema_kinds} - _loaded_kinds

    def require(self) -> None:
        """Raise `ValueError` for options that ask for what is not installed."""
        with importing:
            require_optional_parts(self._options)

    async def run(self, js: str, call: CallContext) -> RunOutcome:
        refuse_in_workflow()
        if are_imported(self._options):
            require_optional_parts(self._options)
        else:
            await self.pool.off_loop(self.require)
        await prepared(self.pool, self._options)
        if self._late:
            await self.pool.off_loop(self._import_late)
        outer = OuterCall(call=call)
        execution = load_execution().Execution(CODE_MODE, self._catalog, self._options, outer, self.pool)
        return await execution.start(js)

    def _import_late(self) -> None:
        with importing:
            for kind in self._late:
                load_schema_kind(kind)
        _loaded_kinds.update(self._late)


_loaded_kinds: set[str] = set()
