"""Guard the host's code around a call: tools, approval rules and the pipeline."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..data.content import current
from ..data.json_shape import run_bounded, weigh
from ..data.json_values import decode_json, encode_json
from ..data.rich_values import is_rich, to_tagged
from ..errors import (
    HOST_BRIDGE_ERROR,
    HOST_FETCH_ERROR,
    HOST_TOOL_ERROR,
    CodeModeError,
    CodeModeHttpError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeToolError,
    api_fields,
)
from ..host.cancellation import FAILURES, is_ended_from_outside
from ..host.threads import LARGE_CHARACTERS, let_go, run_check
from ..interrupts import approval
from ..interrupts.interrupt import InterruptRequested, find_interrupt_request
from ..options.parts import CodeModeOptions
from ..protocol.ledger import LedgerEntry
from ..protocol.references import ContentRegistry
from ..tools.context import PIPELINE_NULL, PipelineCall, ToolCallContext
from ..tools.prepared import PreparedTool, tool_failed, without_quotes
from ..tools.running import UnreadOutput, run_hook
from ..tools.tool_result import ToolResult, blocks_of, failure_text, unwrapped
from .call_values import CheckedInput, read_text, shown_of

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads


# Knows no order of calls.

PIPELINE = "pipeline"
"""The ``origin`` of an error that a hook of the pipeline has caused."""


class HostRaised(Exception):  # noqa: N818 - carries an error, is none itself
    """What host code raised during a call, already as the error that the caller gets."""

    def __init__(self, error: CodeModeError) -> None:
        super().__init__(error.message)
        self.error = error


async def decided(entry: LedgerEntry, work: Awaitable[Any]) -> Any:
    """Await what decides about a call. Only the tool itself can pause the program."""
    try:
        return await guarded(entry, work)
    except HostRaised as thrown:
        approval.mark_decision_failure(thrown.error)
        raise
    except InterruptRequested as pause:
        misplaced = TypeError("request_interrupt works inside a tool, not in what decides about its approval")
        raise HostRaised(hidden(entry, misplaced)) from pause


async def hooked(entry: LedgerEntry, work: Awaitable[Any]) -> Any:
    """Await a hook of the pipeline. It refuses a call with a `CodeModeToolError`; all else that it raises is hidden."""
    try:
        return await guarded(entry, work)
    except HostRaised as thrown:
        raised = thrown.error
        if not isinstance(raised, CodeModeToolError):
            raise HostRaised(hidden_hook(entry, raised)) from raised
        if raised.code == HOST_TOOL_ERROR:
            raised.details["origin"] = PIPELINE
        raise
    except InterruptRequested as pause:
        misplaced = TypeError("request_interrupt works inside a tool, not in the pipeline around it")
        raise HostRaised(hidden_hook(entry, misplaced)) from pause


async def guarded(entry: LedgerEntry, work: Awaitable[Any]) -> Any:
    """Await host code. What it raises is hidden from the guest and kept for the host, whatever its class."""
    task = asyncio.current_task()
    try:
        return await work
    except CodeModeError as error:
        raise HostRaised(sound(entry, error)) from error
    except (Exception, SystemExit) as error:
        pause = find_interrupt_request(error)
        if pause is not None:
            raise pause from None
        raise HostRaised(hidden(entry, error)) from error
    except (asyncio.CancelledError, GeneratorExit) as error:
        if is_ended_from_outside(task):
            raise
        # Nobody cancelled or closed this call: something inside the tool raised it.
        raise HostRaised(hidden(entry, error)) from error
    except BaseExceptionGroup as group:
        pause = find_interrupt_request(group)
        if pause is not None:
            raise pause from None
        if group.split(FAILURES)[1] is not None or is_ended_from_outside(task):
            raise
        raise HostRaised(hidden(entry, group)) from group


def sound(entry: LedgerEntry, error: CodeModeError) -> CodeModeError:
    """Return what host code raised, or that it failed when its class has put other things into the fields of ours."""
    try:
        is_sound = isinstance(error.message, str) and isinstance(error.code, str) and isinstance(error.details, dict)  # pyright: ignore[reportUnnecessaryIsInstance]
        if is_sound:
            _make_plain(error)
    except Exception:  # noqa: BLE001 - they may be properties, or missing
        is_sound = False
    return error if is_sound else hidden(entry, error)


def _make_plain(error: CodeModeError) -> None:
    """Put plain values in the place of instances of subclasses, whose methods are host code too."""
    if type(error.message) is not str:
        error.message = str.__str__(error.message)
    if type(error.code) is not str:
        error.code = str.__str__(error.code)
    if type(error.details) is not dict:
        error.details = dict(error.details)


def hidden(entry: LedgerEntry, error: BaseException) -> CodeModeToolError:
    """Return the error that a program may see in place of what host code raised, which stays its cause."""
    return tool_failed(entry.name, error, tool_call_id=entry.tool_call_id)


def hidden_hook(entry: LedgerEntry, error: BaseException) -> CodeModeToolError:
    """Return the error that a program may see in place of what a hook of the pipeline did wrong."""
    failed = hidden(entry, error)
    failed.details["origin"] = PIPELINE
    return failed


async def unwrapped_output(entry: LedgerEntry, result: ToolResult) -> Any:
    """Return the value of what a tool has answered as an MCP server would.

    Raises `HostRaised` where it has failed, and `CodeModeSerializationError` for more content than there may be.
    """
    size = weigh((result.content, result.structured_content), LARGE_CHARACTERS)
    try:
        if not result.is_error:
            parts = current.get()
            room = parts.require_room if isinstance(parts, ContentRegistry) else None
            return await run_check(size, partial(unwrapped, result, room))
        text, blocks = await run_check(size, partial(_failure, result, entry.name))
    except CodeModeSerializationError:
        raise
    except Exception as error:
        raise HostRaised(hidden(entry, error)) from error
    details: dict[str, Any] = {"tool_name": entry.name, "tool_call_id": entry.tool_call_id, "content": blocks}
    if result.has_structured_content:
        details["structured_content"] = result.structured_content
    fields = api_fields(result.structured_content)
    error_class = CodeModeHttpError if fields else CodeModeToolError
    raise HostRaised(error_class(text, details={**details, **fields}))


def _failure(result: ToolResult, tool_name: str) -> tuple[str, list[dict[str, Any]]]:
    return failure_text(result, tool_name), blocks_of(result)


_FAILED_CODES = {"fetch": HOST_FETCH_ERROR, "catalog": HOST_BRIDGE_ERROR}


def told(entry: LedgerEntry, error: BaseException) -> CodeModeError:
    """Return what a request ended with when this was raised while it was performed."""
    if isinstance(error, HostRaised):
        return error.error
    if isinstance(error, CodeModeError):
        let_go(error)
        return error
    failed = hidden(entry, error)  # validators and serialisers of schemas are host code too
    failed.code = _FAILED_CODES.get(entry.kind, failed.code)
    return failed


async def needs_approval(tool: PreparedTool, value: Any, context: ToolCallContext) -> bool:
    """Ask the tool's own rule about a validated input."""
    answer = tool.asks_approval(value, context)
    return bool(await answer if inspect.isawaitable(answer) else answer)


# A hook is given copies, and what it returns is checked as if the program or the tool had given it. It fails closed: a
# call that a hook could not judge does not go on.

ResultT = TypeVar("ResultT")


class CallPipeline:
    """Asks the hooks about one call. ``made`` gives a `PipelineCall` with a copy of the input."""

    def __init__(
        self,
        options: CodeModeOptions,
        threads: InvocationThreads,
        tool: PreparedTool,
        entry: LedgerEntry,
        made: Callable[[Any], PipelineCall],
    ) -> None:
        self._hooks = options.pipeline
        self._policy = options.execution_policy
        self._threads = threads
        self._tool = tool
        self._entry = entry
        self._made = made

    @property
    def judges_inputs(self) -> bool:
        """True when an input may come to another one than its program gave."""
        return self._hooks.before is not None

    @property
    def judges_outputs(self) -> bool:
        """Whether hooks may replace outputs."""
        return self._hooks.after is not None

    async def unquoted(self, side: Literal["input", "output"], check: Awaitable[ResultT]) -> ResultT:
        """Await the check of a value. What it says of one that a hook has yet to judge quotes nothing of it."""
        if (self._hooks.before if side == "input" else self._hooks.after) is None:
            return await check
        try:
            return await check
        except (CodeModeProtocolError, HostRaised, UnreadOutput):
            raise
        except Exception as error:  # noqa: BLE001 - validators and serialisers are host code too
            raise await run_check(LARGE_CHARACTERS, partial(without_quotes, error, self._tool, side)) from None

    async def before(self, checked: CheckedInput) -> CheckedInput:
        """Return the input with which the call goes on. Raises what refuses it."""
        given = await self._ask(self._hooks.before, await self._call(checked.displayed_input_json))
        return checked if given is None else await self._off_loop(given, self._replaced)

    async def edited(self, value: Any) -> CheckedInput:
        """Validate an input that a person has edited while the tool itself asked for that."""
        return await self.unquoted("input", self._off_loop(value, self._replaced))

    async def require_allowed(self, checked: CheckedInput) -> None:
        """Ask about an input that a person has edited, and that is no longer anybody's to change: raise a refusal."""
        allowed = await self.before(checked)
        if allowed.displayed_input_json != checked.displayed_input_json:
            raise CodeModeToolError(
                f"the edited input of tool {self._tool.name!r} is refused: the host would not run it unchanged",
                details={"tool_name": self._tool.name, "tool_call_id": self._entry.tool_call_id},
            )

    async def after(self, checked: CheckedInput, text: str | None) -> str | None:
        """Return the JSON text of the output that the program gets; None is undefined."""
        output = None if text is None else await read_text(text)
        given = await self._ask(self._hooks.after, await self._call(checked.displayed_input_json), output)
        return text if given is None else await self._off_loop(given, self._written)

    async def _ask(self, hook: Callable[..., Any] | None, *arguments: Any) -> Any:
        if hook is None:
            return None
        work = run_hook(hook, arguments, self._threads, self._tool.name, self._entry.tool_call_id or "")
        return await hooked(self._entry, work)

    async def _call(self, displayed_input_json: str | None) -> PipelineCall:
        return self._made(None if displayed_input_json is None else await read_text(displayed_input_json))

    async def _off_loop(self, given: Any, work: Callable[[Any], Any]) -> Any:
        value = None if given is PIPELINE_NULL else given
        return await run_bounded(value, partial(work, value))

    def _replaced(self, value: Any) -> CheckedInput:
        what, policy = f"the input put in place of another for tool {self._tool.name!r}", self._policy
        sidecar = self._entry.sidecar
        max_bytes = policy.max_tool_input_bytes + (0 if sidecar is None else sidecar.max_total_bytes)
        try:
            if is_rich.get():
                value = to_tagged(value, escapes=False, max_values=policy.max_values, what=what)
            text = encode_json(value, max_bytes=max_bytes, max_values=policy.max_values, what=what)
            plain = decode_json(text)
        except (CodeModeSerializationError, ValueError) as error:
            raise HostRaised(hidden_hook(self._entry, error)) from error
        validated = self._tool.validate_input(plain)
        return CheckedInput(validated, shown_of(validated))

    def _written(self, value: Any) -> str:
        what, policy = f"the output of tool {self._tool.name!r}", self._policy
        if is_rich.get():
            value = to_tagged(value, escapes=False, max_values=policy.max_values, what=what)
        return encode_json(value, max_bytes=policy.max_tool_output_bytes, max_values=policy.max_values, what=what)
