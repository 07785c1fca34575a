"""Make approval rule, approver and tool see the same input of a nested call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tool_manager import ToolManager, ValidatedToolCall
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import from_json, to_json

from codemode import CodeModeToolError
from codemode.plugins import buffer_iterators, copy_json, is_same_json, restore_integers, run_off_loop_if_large

from .content import restore_media, to_displayed_arguments
from .error_mapping import format_error
from .framework_internals import ask_inline_handler_again_or_raise, find_flattened_parameter

EDIT_REFUSED = "editRefused"
"""Metadata key of a repeated approval request: why the edited input was refused."""
MAX_INLINE_QUESTIONS = 3
"""How often an inline handler may submit an invalid edit for one call before the run pauses."""


class EditRefused(ApprovalRequired):
    """Request approval again with the original input, because the edited one is invalid."""


class CallInput:
    """The input of one nested call: the program's arguments, and the input displayed to an approver.

    ``edited_input``: the approver's edit. ``metadata``: the pause's metadata. ``require_allowed``: raises if the core's
    pipeline rejects an edited input.
    """

    def __init__(
        self,
        arguments: dict[str, Any],
        original_json: bytes,
        displayed: dict[str, Any] | None,
        metadata: dict[str, Any] | None,
    ) -> None:
        self.arguments = arguments
        self.displayed = displayed
        self.metadata = metadata
        self.edited_input: dict[str, Any] | None = None
        self.require_allowed: Callable[[Any], Awaitable[None]] | None = None
        self.validated: ValidatedToolCall[Any] | None = None
        self.has_started = False
        self._original_json = original_json

    @classmethod
    async def create(
        cls, arguments: dict[str, Any], displayed: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None
    ) -> CallInput:
        """Copy the program's arguments: a tool may change them before it asks for approval."""
        return cls(arguments, await run_off_loop_if_large(arguments, lambda: to_json(arguments)), displayed, metadata)

    @property
    def tool_metadata(self) -> dict[str, Any]:
        """The tool's own approval metadata, without the reason of a refused edit."""
        return {key: value for key, value in (self.metadata or {}).items() if key != EDIT_REFUSED}

    @property
    def unvalidated_input(self) -> dict[str, Any]:
        """A copy of the input before validation."""
        return from_json(self._original_json) if self.edited_input is None else copy_json(self.edited_input)

    def iter_candidates_for_displayed_input(self) -> Iterator[dict[str, Any]]:
        """Yield inputs of which one should validate to the displayed input.

        A validator that changes its input must get the program's arguments; a default that differs each time must be
        the displayed one.
        """
        yield {**self._copy_displayed_input(), **self.unvalidated_input}
        yield self._copy_displayed_input()
        yield self.unvalidated_input

    def iter_candidates_for_edited_input(self, edited_input: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield inputs of which one should validate to the edited input."""
        displayed, unvalidated = self.displayed or {}, self.unvalidated_input
        unchanged_keys = [
            key
            for key in edited_input
            if key in unvalidated and key in displayed and is_same_json(edited_input[key], displayed[key])
        ]
        yield {**edited_input, **{key: unvalidated[key] for key in unchanged_keys}}
        yield dict(edited_input)

    def _copy_displayed_input(self) -> dict[str, Any]:
        return copy_json(self.displayed or {})


@dataclass
class NestedToolManager(ToolManager[Any]):
    """A tool manager that displays validated inputs to approvers and runs exactly the displayed input.

    ``call_inputs``: inputs of the calls in flight, by call id.
    """

    call_inputs: dict[str, CallInput] = field(default_factory=dict[str, CallInput])

    @classmethod
    def from_manager(cls, manager: ToolManager[Any]) -> NestedToolManager:
        """Return a copy of a manager with all its fields."""
        return cls(
            **{
                manager_field.name: getattr(manager, manager_field.name)
                for manager_field in fields(ToolManager)
                if manager_field.init
            }
        )

    async def validate_tool_call(
        self, call: ToolCallPart, *, approved: bool = False, metadata: Any = None, wrap_validation_errors: bool = True
    ) -> ValidatedToolCall[Any]:
        """Validate a call; an approved one must validate to the displayed or edited input.

        Raises `CodeModeToolError` if it differs from the displayed input, and `ApprovalRequired` if an edited input is
        invalid or validates to another value.
        """
        settings = {"approved": approved, "metadata": metadata, "wrap_validation_errors": wrap_validation_errors}
        call_input = self.call_inputs.get(call.tool_call_id)
        if call_input is None:
            return await self._validate(call, **settings)
        if not approved or call_input.displayed is None:
            call_input.validated = await self._validate(call, **settings)
            return call_input.validated
        if call.args is call_input.arguments:
            return await self._validate_displayed_input(call, call_input, settings)
        return await self._validate_and_set_edited_input(call, call_input, settings)

    async def execute_tool_call(self, validated: ValidatedToolCall[Any], *, wrap_validation_errors: bool = True) -> Any:
        """Run a validated call."""
        call_input = self.call_inputs.get(validated.call.tool_call_id)
        if call_input is not None and validated.deferral is None:
            call_input.has_started = True
        return await super().execute_tool_call(validated, wrap_validation_errors=wrap_validation_errors)

    async def handle_call(
        self, call: ToolCallPart, *, approved: bool = False, metadata: Any = None, **settings: Any
    ) -> Any:
        """Run a call; ask an inline handler at most `MAX_INLINE_QUESTIONS` times while its edits are invalid."""
        try:
            return await super().handle_call(call, approved=approved, metadata=metadata, **settings)
        except EditRefused as error:
            if approved:
                raise  # an answer of a resume: the run pauses again
            refusal = error
        for _ in range(MAX_INLINE_QUESTIONS - 1):
            try:
                return await ask_inline_handler_again_or_raise(self, call, refusal, **settings)
            except EditRefused as error:
                if error is refusal:  # the handler did not decide
                    break
                refusal = error
        raise refusal

    async def resolve_deferred_tool_calls(self, requests: DeferredToolRequests) -> DeferredToolResults | None:
        """Pass the displayed inputs to an inline handler."""
        for call_id in self.call_inputs.keys() & requests.metadata.keys():
            self.call_inputs[call_id].metadata = requests.metadata[call_id]
        calls = [await self._with_displayed_input(call) for call in requests.calls]
        approvals = [await self._with_displayed_input(call) for call in requests.approvals]
        return await super().resolve_deferred_tool_calls(replace(requests, calls=calls, approvals=approvals))

    async def _with_displayed_input(self, call: ToolCallPart) -> ToolCallPart:
        if call.tool_call_id not in self.call_inputs:
            return call
        displayed = await self.get_or_make_displayed_input(call)
        # A copy: a handler may redact it without changing what runs.
        return replace(call, args=await run_off_loop_if_large(displayed, lambda: copy_json(displayed)))

    async def get_or_make_displayed_input(self, call: ToolCallPart) -> dict[str, Any]:
        """Return the input of a call in flight as an approver sees it: validated, as plain JSON."""
        call_input = self.call_inputs[call.tool_call_id]
        if call_input.displayed is None:
            assert call_input.validated is not None  # noqa: S101 - only a valid call can wait
            call_input.displayed = await _make_displayed_input(call_input.validated)
            if call_input.has_started:
                call_input.displayed = await self._recompute_displayed_input(call, call_input)
        return call_input.displayed

    async def _recompute_displayed_input(self, call: ToolCallPart, call_input: CallInput) -> dict[str, Any]:
        settings = {"wrap_validation_errors": False}
        unvalidated = call_input.unvalidated_input
        # Defaults that differ each time are those that rule and tool saw; the rest are the program's arguments.
        validated = await self._try_validate(call, {**copy_json(call_input.displayed or {}), **unvalidated}, settings)
        if not isinstance(validated, Exception) and await _validates_to_displayed_input(
            validated, call_input.displayed
        ):
            return await _make_displayed_input(validated)
        return await _make_displayed_input(await self._validate(replace(call, args=unvalidated), **settings))

    async def _validate_displayed_input(
        self, call: ToolCallPart, call_input: CallInput, settings: dict[str, Any]
    ) -> ValidatedToolCall[Any]:
        for candidate in call_input.iter_candidates_for_displayed_input():
            validated = await self._try_validate(call, candidate, settings)
            if not isinstance(validated, Exception) and await _validates_to_displayed_input(
                validated, call_input.displayed
            ):
                return validated
        raise _make_not_run_error(call, "validated again, its input differs from the displayed one")

    async def _validate_and_set_edited_input(
        self, call: ToolCallPart, call_input: CallInput, settings: dict[str, Any]
    ) -> ValidatedToolCall[Any]:
        try:
            edited_input = restore_integers(call.args_as_dict(), call_input.displayed)
        except (ValueError, TypeError, RecursionError, AssertionError) as error:  # AssertionError: no JSON object
            raise _make_edit_refusal(call_input, str(error)) from None
        if call_input.require_allowed is not None:
            await call_input.require_allowed(edited_input)
        refusal: Exception | None = None
        validated_candidates: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for candidate in call_input.iter_candidates_for_edited_input(edited_input):
            validated = await self._try_validate(call, candidate, settings)
            if isinstance(validated, Exception):
                refusal = validated
                continue
            validated_candidates.append((candidate, await _make_displayed_input(validated)))
            if _matches_edit(edited_input, validated_candidates[-1][1]):
                call_input.edited_input, call_input.displayed = validated_candidates[-1]
                return validated
        if validated_candidates:
            # Validation changed the edited input: display the result to the approver.
            call_input.edited_input, call_input.displayed = validated_candidates[0]
            raise ApprovalRequired(metadata=call_input.tool_metadata or None)
        raise _make_edit_refusal(call_input, "the tool does not take it" if refusal is None else format_error(refusal))

    async def _validate(self, call: ToolCallPart, **settings: Any) -> ValidatedToolCall[Any]:
        arguments = restore_media(call.args)
        return await super().validate_tool_call(
            call if arguments is call.args else replace(call, args=arguments), **settings
        )

    async def _try_validate(
        self, call: ToolCallPart, arguments: dict[str, Any], settings: dict[str, Any]
    ) -> ValidatedToolCall[Any] | Exception:
        try:
            validated = await self._validate(replace(call, args=arguments), **settings)
            return replace(validated, validated_args=buffer_iterators(validated.validated_args))
        except (ValidationError, ModelRetry, ToolFailed) as error:
            return error


def _make_edit_refusal(call_input: CallInput, reason: str) -> EditRefused:
    return EditRefused(metadata={**call_input.tool_metadata, EDIT_REFUSED: reason})


def _matches_edit(edited_value: Any, displayed: Any) -> bool:
    """Return whether the displayed input equals the edit, except added defaults and number formats."""
    if isinstance(edited_value, dict) and isinstance(displayed, dict):
        edited_mapping, displayed_mapping = cast("dict[str, Any]", edited_value), cast("dict[str, Any]", displayed)
        return all(
            key in displayed_mapping and _matches_edit(value, displayed_mapping[key])
            for key, value in edited_mapping.items()
        )
    if isinstance(edited_value, list) and isinstance(displayed, list):
        pairs = zip(cast("list[Any]", edited_value), cast("list[Any]", displayed), strict=False)
        return len(cast("list[Any]", edited_value)) == len(cast("list[Any]", displayed)) and all(
            _matches_edit(*pair) for pair in pairs
        )
    return (
        is_same_json(edited_value, displayed)
        or _scalar_to_text(cast("Any", edited_value)) == _scalar_to_text(displayed) is not None
    )


def _scalar_to_text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


async def _make_displayed_input(validated: ValidatedToolCall[Any]) -> dict[str, Any]:
    assert validated.tool is not None  # noqa: S101 - the tool of a call that was validated
    return await _make_displayed_arguments(validated.validated_args or {}, validated.tool)


async def _make_displayed_arguments(arguments: dict[str, Any], tool: ToolsetTool[Any]) -> dict[str, Any]:
    flattened_name = find_flattened_parameter(tool)
    return await run_off_loop_if_large(arguments, lambda: to_displayed_arguments(arguments, flattened_name))


async def _validates_to_displayed_input(validated: ValidatedToolCall[Any], displayed: dict[str, Any] | None) -> bool:
    return await _is_same_json(await _make_displayed_input(validated), displayed)


async def _is_same_json(arguments: dict[str, Any], displayed: dict[str, Any] | None) -> bool:
    return await run_off_loop_if_large(arguments, lambda: is_same_json(arguments, displayed))


async def require_displayed_input(
    call: ToolCallPart, call_input: CallInput, arguments: dict[str, Any], tool: ToolsetTool[Any]
) -> None:
    """Raise `CodeModeToolError` if an approved call would run with another input than displayed.

    Hooks around the execution of a tool run after validation and may change its input.
    """
    if call_input.displayed is not None and not await _is_same_json(
        await _make_displayed_arguments(arguments, tool), call_input.displayed
    ):
        reason = "a hook changed its input after it was displayed. Change inputs in after_tool_validate"
        raise _make_not_run_error(call, reason)


def _make_not_run_error(call: ToolCallPart, reason: str) -> CodeModeToolError:
    details = {"tool_name": call.tool_name, "tool_call_id": call.tool_call_id}
    return CodeModeToolError(f"The call of {call.tool_name!r} does not run: {reason}.", details=details)
