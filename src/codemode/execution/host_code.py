"""Guard the host's code around a call: tools, approval rules and the pipeline."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..data.content import current_registry
from ..data.json_shape import estimate_json_length, run_off_loop_if_large
from ..data.json_values import decode_json, encode_json
from ..data.rich_values import is_rich, to_tagged_json
from ..errors import (
    HOST_BRIDGE_ERROR,
    HOST_FETCH_ERROR,
    HOST_TOOL_ERROR,
    CodeModeError,
    CodeModeHttpError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeToolError,
    parse_http_error_fields,
)
from ..host.cancellation import FAILURES, is_cancelled_from_outside
from ..host.threads import LARGE_CHARACTERS, clear_error_frames, run_in_thread_if_large_or_slow
from ..interrupts import approval
from ..interrupts.interrupt import InterruptRequested, find_interrupt_request
from ..options.parts import CodeModeOptions
from ..protocol.ledger import LedgerEntry
from ..protocol.references import ContentRegistry
from ..tools.context import PIPELINE_NULL, PipelineCall, ToolCallContext
from ..tools.prepared import PreparedTool, create_tool_failed_error, redact_error_values
from ..tools.running import UnreadIteratorError, run_hook
from ..tools.tool_result import ToolResult, format_failure_message, to_plain_blocks, to_program_value
from .call_values import CheckedInput, decode_json_async, to_displayed_json

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads


PIPELINE_ORIGIN = "pipeline"
"""The ``origin`` of an error caused by a pipeline hook."""


class HostCodeError(Exception):
    """Host code raised during a call; ``error`` is what the caller gets."""

    def __init__(self, error: CodeModeError) -> None:
        super().__init__(error.message)
        self.error = error


async def await_decision(entry: LedgerEntry, work: Awaitable[Any]) -> Any:
    """Await the decision about a call. Only the tool itself can pause the program."""
    try:
        return await await_host_code(entry, work)
    except HostCodeError as failure:
        approval.mark_decision_failure_if_host_error(failure.error)
        raise
    except InterruptRequested as pause:
        misplaced = TypeError("request_interrupt works inside a tool, not in its approval rule")
        raise HostCodeError(make_generic_tool_error(entry, misplaced)) from pause


async def await_hook(entry: LedgerEntry, work: Awaitable[Any]) -> Any:
    """Await a pipeline hook. It refuses a call with a `CodeModeToolError`; other exceptions are hidden."""
    try:
        return await await_host_code(entry, work)
    except HostCodeError as failure:
        error = failure.error
        if not isinstance(error, CodeModeToolError):
            raise HostCodeError(make_generic_hook_error(entry, error)) from error
        if error.code == HOST_TOOL_ERROR:
            error.details["origin"] = PIPELINE_ORIGIN
        raise
    except InterruptRequested as pause:
        misplaced = TypeError("request_interrupt works inside a tool, not in the pipeline around it")
        raise HostCodeError(make_generic_hook_error(entry, misplaced)) from pause


async def await_host_code(entry: LedgerEntry, work: Awaitable[Any]) -> Any:
    """Await host code. Its exception is hidden from the guest and stays the cause for the host."""
    task = asyncio.current_task()
    try:
        return await work
    except CodeModeError as error:
        raise HostCodeError(ensure_plain_error(entry, error)) from error
    except (Exception, SystemExit) as error:
        pause = find_interrupt_request(error)
        if pause is not None:
            raise pause from None
        raise HostCodeError(make_generic_tool_error(entry, error)) from error
    except (asyncio.CancelledError, GeneratorExit) as error:
        if is_cancelled_from_outside(task):
            raise
        # Not a cancellation of this call: the tool itself raised it.
        raise HostCodeError(make_generic_tool_error(entry, error)) from error
    except BaseExceptionGroup as group:
        pause = find_interrupt_request(group)
        if pause is not None:
            raise pause from None
        if group.split(FAILURES)[1] is not None or is_cancelled_from_outside(task):
            raise
        raise HostCodeError(make_generic_tool_error(entry, group)) from group


def ensure_plain_error(entry: LedgerEntry, error: CodeModeError) -> CodeModeError:
    """Return the error of host code, or a generic one if its class changed the types of our fields."""
    try:
        fields: tuple[Any, ...] = (error.message, error.code, error.details)
        has_plain_fields = all(map(isinstance, fields, (str, str, dict)))
        if has_plain_fields:
            _convert_fields_to_plain_types(error)
    except Exception:  # noqa: BLE001 - they may be properties, or missing
        has_plain_fields = False
    return error if has_plain_fields else make_generic_tool_error(entry, error)


def _convert_fields_to_plain_types(error: CodeModeError) -> None:
    """Replace instances of subclasses by plain values: their methods are host code too."""
    if type(error.message) is not str:
        error.message = str.__str__(error.message)
    if type(error.code) is not str:
        error.code = str.__str__(error.code)
    if type(error.details) is not dict:
        error.details = dict(error.details)


def make_generic_tool_error(entry: LedgerEntry, error: BaseException) -> CodeModeToolError:
    """Return the error that a program sees instead of what host code raised, with that as its cause."""
    return create_tool_failed_error(entry.name, error, tool_call_id=entry.tool_call_id)


def make_generic_hook_error(entry: LedgerEntry, error: BaseException) -> CodeModeToolError:
    """Return the error that a program sees instead of a mistake of a pipeline hook."""
    failed = make_generic_tool_error(entry, error)
    failed.details["origin"] = PIPELINE_ORIGIN
    return failed


def make_output_hook_error(entry: LedgerEntry, failure: CodeModeError) -> CodeModeToolError:
    """Return the error that a program sees when the output hook raises, with that exception as its cause."""
    error = CodeModeToolError(
        f"the host could not process the output of tool {entry.name!r}",
        details={"tool_name": entry.name, "tool_call_id": entry.tool_call_id, "origin": PIPELINE_ORIGIN},
    )
    error.__cause__ = failure.__cause__ or failure
    return error


async def unwrap_tool_result_or_raise(entry: LedgerEntry, result: ToolResult) -> Any:
    """Return the value of a tool's answer in the form of an MCP result.

    Raises `HostCodeError` if it is an error and `CodeModeSerializationError` for too much content.
    """
    size = estimate_json_length((result.content, result.structured_content), LARGE_CHARACTERS)
    try:
        if not result.is_error:
            parts = current_registry.get()
            room = parts.require_within_limits if isinstance(parts, ContentRegistry) else None
            return await run_in_thread_if_large_or_slow(size, partial(to_program_value, result, room))
        text, blocks = await run_in_thread_if_large_or_slow(
            size, partial(_format_failure_and_plain_blocks, result, entry.name)
        )
    except CodeModeSerializationError:
        raise
    except Exception as error:
        raise HostCodeError(make_generic_tool_error(entry, error)) from error
    details: dict[str, Any] = {"tool_name": entry.name, "tool_call_id": entry.tool_call_id, "content": blocks}
    if result.has_structured_content:
        details["structured_content"] = result.structured_content
    fields = parse_http_error_fields(result.structured_content)
    error_class = CodeModeHttpError if fields else CodeModeToolError
    raise HostCodeError(error_class(text, details={**details, **fields}))


def _format_failure_and_plain_blocks(result: ToolResult, tool_name: str) -> tuple[str, list[dict[str, Any]]]:
    return format_failure_message(result, tool_name), to_plain_blocks(result)


_FAILED_CODES = {"fetch": HOST_FETCH_ERROR, "catalog": HOST_BRIDGE_ERROR}


def to_call_error(entry: LedgerEntry, error: BaseException) -> CodeModeError:
    """Return the error of a request for what was raised while it was performed."""
    if isinstance(error, HostCodeError):
        return error.error
    if isinstance(error, CodeModeError):
        clear_error_frames(error)
        return error
    failed = make_generic_tool_error(entry, error)  # validators and serialisers are host code too
    failed.code = _FAILED_CODES.get(entry.kind, failed.code)
    return failed


async def needs_approval(tool: PreparedTool, value: Any, context: ToolCallContext) -> bool:
    """Ask the tool's own rule about a validated input."""
    answer = tool.evaluate_needs_approval(value, context)
    return bool(await answer if inspect.isawaitable(answer) else answer)


# A hook gets copies; what it returns is validated like a value of the program or the tool. It fails closed: a call that
# a hook could not judge does not run.

ResultT = TypeVar("ResultT")


class CallPipeline:
    """Calls the hooks of one call. ``make_call`` makes a `PipelineCall` with a copy of the input."""

    def __init__(
        self,
        options: CodeModeOptions,
        threads: InvocationThreads,
        tool: PreparedTool,
        entry: LedgerEntry,
        make_call: Callable[[Any], PipelineCall],
    ) -> None:
        self._hooks = options.pipeline
        self._policy = options.execution_policy
        self._threads = threads
        self._tool = tool
        self._entry = entry
        self._make_call = make_call

    @property
    def may_replace_inputs(self) -> bool:
        """True if hooks may replace inputs."""
        return self._hooks.before is not None

    @property
    def may_replace_outputs(self) -> bool:
        """True if hooks may replace outputs."""
        return self._hooks.after is not None

    async def await_redacting_errors(self, side: Literal["input", "output"], check: Awaitable[ResultT]) -> ResultT:
        """Await a check; while a hook has not judged the value, its error must not quote it."""
        if (self._hooks.before if side == "input" else self._hooks.after) is None:
            return await check
        try:
            return await check
        except (CodeModeProtocolError, HostCodeError, UnreadIteratorError):
            raise
        except Exception as error:  # noqa: BLE001 - validators and serialisers are host code too
            raise await run_in_thread_if_large_or_slow(
                LARGE_CHARACTERS, partial(redact_error_values, error, self._tool, side)
            ) from None

    async def apply_before_hook(self, checked: CheckedInput) -> CheckedInput:
        """Return the input that the call runs with. Raises the error of a refusal."""
        replacement = await self._call_hook(
            self._hooks.before, await self._make_pipeline_call_with_input_copy(checked.displayed_input_json)
        )
        return (
            checked
            if replacement is None
            else await self._convert_replacement_off_loop(replacement, self._validate_replaced_input)
        )

    async def validate_edited_input(self, value: Any) -> CheckedInput:
        """Validate an input that a person edited during the call, when the tool itself asked."""
        return await self.await_redacting_errors(
            "input", self._convert_replacement_off_loop(value, self._validate_replaced_input)
        )

    async def require_input_allowed(self, checked: CheckedInput) -> None:
        """Ask the hooks about an edited input, which they cannot change any more; raise a refusal."""
        allowed = await self.apply_before_hook(checked)
        if allowed.displayed_input_json != checked.displayed_input_json:
            raise CodeModeToolError(
                f"the edited input of tool {self._tool.name!r} is refused: the host would not run it unchanged",
                details={"tool_name": self._tool.name, "tool_call_id": self._entry.tool_call_id},
            )

    async def apply_after_hook(self, checked: CheckedInput, text: str | None) -> str | None:
        """Return the JSON text of the output for the program; None is undefined."""
        output = None if text is None else await decode_json_async(text)
        replacement = await self._call_hook(
            self._hooks.after, await self._make_pipeline_call_with_input_copy(checked.displayed_input_json), output
        )
        return (
            text
            if replacement is None
            else await self._convert_replacement_off_loop(replacement, self._encode_replaced_output)
        )

    async def _call_hook(self, hook: Callable[..., Any] | None, *arguments: Any) -> Any:
        if hook is None:
            return None
        work = run_hook(hook, arguments, self._threads, self._tool.name, self._entry.tool_call_id or "")
        return await await_hook(self._entry, work)

    async def _make_pipeline_call_with_input_copy(self, displayed_input_json: str | None) -> PipelineCall:
        return self._make_call(None if displayed_input_json is None else await decode_json_async(displayed_input_json))

    async def _convert_replacement_off_loop(self, replacement: Any, work: Callable[[Any], Any]) -> Any:
        value = None if replacement is PIPELINE_NULL else replacement
        return await run_off_loop_if_large(value, partial(work, value))

    def _validate_replaced_input(self, value: Any) -> CheckedInput:
        label, policy = f"the replacement input of tool {self._tool.name!r}", self._policy
        sidecar = self._entry.sidecar
        max_bytes = policy.max_tool_input_bytes + (0 if sidecar is None else sidecar.max_total_bytes)
        try:
            if is_rich.get():
                value = to_tagged_json(value, escapes=False, max_values=policy.max_values, what=label)
            text = encode_json(value, max_bytes=max_bytes, max_values=policy.max_values, what=label)
            plain = decode_json(text)
        except (CodeModeSerializationError, ValueError) as error:
            raise HostCodeError(make_generic_hook_error(self._entry, error)) from error
        validated = self._tool.validate_input(plain)
        return CheckedInput(validated, to_displayed_json(validated))

    def _encode_replaced_output(self, value: Any) -> str:
        label, policy = f"the output of tool {self._tool.name!r}", self._policy
        if is_rich.get():
            value = to_tagged_json(value, escapes=False, max_values=policy.max_values, what=label)
        return encode_json(value, max_bytes=policy.max_tool_output_bytes, max_values=policy.max_values, what=label)
