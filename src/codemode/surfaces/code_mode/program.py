"""Run one program with its tools, and resume a paused one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...data.json_values import NOT_GIVEN
from ...errors import Resumable
from ...execution.call_context import CallContext, OuterCallSettings, call_context_or_empty
from ...execution.optional_parts import are_optional_parts_imported, import_and_require_optional_parts
from ...execution.resume import normalize_answers_by_id, resume_program
from ...execution.starting import get_pool_and_import_execution, import_execution_module, start_pool
from ...host.imports import importing
from ...host.sync import require_outside_temporal_workflow, run_sync
from ...options.parts import CodeModeOptions
from ...tools.catalog import Catalog
from ...tools.collecting import collect_tools
from ...tools.tool_schemas import import_schema_compiler
from ...workers.pool import WorkerPool, get_pool_or_default
from .messages import build_approval_resolutions
from .outcome import CODE_MODE, unwrap_outcome

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
    """Run one program and return its value: plain JSON, None for undefined, or an `Interrupt` if it paused.

    ``tools``: a mapping of names to tools, or an iterable of tools. ``call``: the call context. Raises `CodeModeError`
    or a subclass.
    """
    return unwrap_outcome(await _CodeModeProgramRunner(tools, options, pool).run(js, call_context_or_empty(call)))


def run_code_mode_sync(
    js: str,
    tools: Mapping[str, Any] | Iterable[Any],
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    call: CallContext | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Call `run_code_mode` from sync code."""
    runner, context = _CodeModeProgramRunner(tools, options, pool), call_context_or_empty(call)
    runner.import_optional_parts_or_raise()
    start_pool(runner.pool)
    return unwrap_outcome(run_sync(runner.run(js, context)))


class _CodeModeProgramRunner:
    """Runs one program with its tools, options and pool."""

    def __init__(
        self,
        tools: Mapping[str, Any] | Iterable[Any],
        options: CodeModeOptions | Mapping[str, Any] | None,
        pool: WorkerPool | None,
    ) -> None:
        collected = collect_tools(tools)
        self._catalog = Catalog(collected)
        self._options = CodeModeOptions.of(options)
        self.pool = get_pool_or_default(pool)
        # A `CodeModeTool` compiles its schemas at once; here they are compiled on first use.
        self._unloaded_schema_kinds = {
            kind for tool in collected.values() for kind in tool.schema_kinds
        } - _loaded_schema_kinds

    def import_optional_parts_or_raise(self) -> None:
        """Raise `ValueError` for options that need an extra that is not installed."""
        with importing:
            import_and_require_optional_parts(self._options)

    async def run(self, js: str, call: CallContext) -> RunOutcome:
        require_outside_temporal_workflow()
        if are_optional_parts_imported(self._options):
            import_and_require_optional_parts(self._options)
        else:
            await self.pool.run_in_start_thread(self.import_optional_parts_or_raise)
        await get_pool_and_import_execution(self.pool, self._options)
        if self._unloaded_schema_kinds:
            await self.pool.run_in_start_thread(self._import_schema_compilers)
        outer = OuterCallSettings(call=call)
        execution = import_execution_module().Execution(CODE_MODE, self._catalog, self._options, outer, self.pool)
        return await execution.start(js)

    def _import_schema_compilers(self) -> None:
        with importing:
            for kind in self._unloaded_schema_kinds:
                import_schema_compiler(kind)
        _loaded_schema_kinds.update(self._unloaded_schema_kinds)


_loaded_schema_kinds: set[str] = set()


async def continue_interrupt(
    interrupt: Resumable | Mapping[str, Any],
    resolution: Any = NOT_GIVEN,
    *,
    resolutions: Mapping[str, Any] | None = None,
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    call: CallContext | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Answer pending requests and resume the program. Returns its value, or an `Interrupt` with the requests left.

    ``resolution`` answers the first request, ``resolutions`` any by id. A ``resolution`` of True or False approves or
    denies all pending approvals, and is rejected if another kind of request is pending. Answer an approval with
    ``{"approved": bool, "reason"?: str, "input"?: edited}``, a call of unknown outcome with ``{"value": ...}``,
    ``{"error": {"message": str}}`` or ``{"runAgain": True}``, and a tool's own request with any JSON value. The same
    answers again return the recorded outcome and run nothing. ``call`` needs the ``conversation_id`` of the paused
    call, if it had one. Raises `CodeModeProtocolError` before anything runs for an interrupt that another host signed,
    that expired or that was changed, and for invalid answers.
    """
    catalog = Catalog(collect_tools(tools))
    outer = OuterCallSettings(call=call_context_or_empty(call))
    answers = partial(normalize_answers_by_id, resolution=resolution, resolutions=resolutions)
    return unwrap_outcome(await resume_program(CODE_MODE, interrupt, answers, catalog, options, outer, pool))


def continue_interrupt_sync(
    interrupt: Resumable | Mapping[str, Any],
    resolution: Any = NOT_GIVEN,
    *,
    resolutions: Mapping[str, Any] | None = None,
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    call: CallContext | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Call `continue_interrupt` from sync code."""
    return run_sync(
        continue_interrupt(
            interrupt,
            resolution,
            resolutions=resolutions,
            tools=tools,
            options=options,
            call=call,
            pool=pool,
        )
    )


async def continue_approval(
    interrupt: Resumable | Mapping[str, Any],
    approval_response: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    call: CallContext | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Answer approvals with one or several responses in the format of `get_approval_response`.

    Each is ``{"approvalId": str, "approved": bool, "reason"?: str, "input"?: edited, "toolCallId"?: str}``. Further
    calls that need approval pause again for any ``approval.mode``. Raises `CodeModeProtocolError` for a malformed
    response or one for another request.
    """
    responses = [approval_response] if isinstance(approval_response, Mapping) else list(approval_response)
    settings = CodeModeOptions.of(options)
    approval = dataclasses.replace(settings.approval, mode="interrupt")
    catalog = Catalog(collect_tools(tools))
    outer = OuterCallSettings(call=call_context_or_empty(call))
    options = settings.with_parts(approval=approval)
    answers = partial(build_approval_resolutions, responses=responses)
    return unwrap_outcome(await resume_program(CODE_MODE, interrupt, answers, catalog, options, outer, pool))


def continue_approval_sync(
    interrupt: Resumable | Mapping[str, Any],
    approval_response: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    call: CallContext | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Call `continue_approval` from sync code."""
    return run_sync(
        continue_approval(
            interrupt,
            approval_response,
            tools=tools,
            options=options,
            call=call,
            pool=pool,
        )
    )
