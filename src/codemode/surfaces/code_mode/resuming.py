"""Resume a paused codeMode program."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ...data.json_values import NOT_GIVEN
from ...errors import Resumable
from ...execution.call_context import CallContext, OuterCall, check_call
from ...execution.resume import answers_of, resume
from ...host.sync import run_sync
from ...options.parts import CodeModeOptions
from ...tools.catalog import Catalog
from ...tools.collecting import collect_tools
from ...workers.pool import WorkerPool
from .messages import approval_resolutions
from .outcome import told
from .profile import CODE_MODE


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
    """Answer pending requests and go on with the program. Returns its value, or an `Interrupt` with what still waits.

    ``resolution`` answers the first request, ``resolutions`` any by id; a ``resolution`` of True or False approves or
    denies every pending approval, and is refused where another kind of request waits. An approval is answered with
    ``{"approved": bool, "reason"?: str, "input"?: edited}``, a call of unknown outcome with ``{"value": ...}``,
    ``{"error": {"message": str}}`` or ``{"runAgain": True}``, a tool's own request with any JSON value. The same
    answers again give the recorded outcome and run nothing. ``call`` has the ``conversation_id`` of the paused call,
    if it had any. Raises `CodeModeProtocolError`, before anything runs, for
    an interrupt that is not this host's, has expired or was changed, and for answers that do not fit.
    """
    catalog = Catalog(collect_tools(tools))
    outer = OuterCall(call=check_call(call))
    answers = partial(answers_of, resolution=resolution, resolutions=resolutions)
    return told(await resume(CODE_MODE, interrupt, answers, catalog, options, outer, pool))


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
    """Do what `continue_interrupt` does, from code that is not async."""
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
    """Answer approvals with responses as `get_approval_response` returns them, one or several.

    Each is ``{"approvalId": str, "approved": bool, "reason"?: str, "input"?: edited, "toolCallId"?: str}``. What needs
    approval in the rest of the run pauses again, whatever ``approval.mode`` is. Raises `CodeModeProtocolError` for a
    malformed response or one for another request.
    """
    given = [approval_response] if isinstance(approval_response, Mapping) else list(approval_response)
    settings = CodeModeOptions.of(options)
    paused = dataclasses.replace(settings.approval, mode="interrupt")
    catalog = Catalog(collect_tools(tools))
    outer = OuterCall(call=check_call(call))
    options = settings.having(approval=paused)
    answers = partial(approval_resolutions, responses=given)
    return told(await resume(CODE_MODE, interrupt, answers, catalog, options, outer, pool))


def continue_approval_sync(
    interrupt: Resumable | Mapping[str, Any],
    approval_response: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    call: CallContext | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Do what `continue_approval` does, from code that is not async."""
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
