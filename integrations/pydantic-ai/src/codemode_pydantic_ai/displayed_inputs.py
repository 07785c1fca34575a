"""Inputs of nested calls: rule, person and tool get one value. Decides nothing about approval."""

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
from codemode.plugins import copy_json, read_again, restore_integers, run_bounded, same_json

from .content import displayed_arguments, restore_media
from .error_mapping import format_error
from .framework_internals import ask_inline_handler_again, flattened_parameter

EDIT_REFUSED = "editRefused"
"""In the metadata of a call that is asked about again: why the input that a person put in its place was refused."""
MAX_INLINE_QUESTIONS = 3
"""How often an inline handler is asked about one call while its edits do not fit. The run pauses then."""


class EditRefused(ApprovalRequired):
    """Ask about a call again, as it was shown before an edit that does not fit its tool."""


class CallInput:
    """The input of one nested call: what the program gave, and what a person was shown of it, if one was.

    ``edited`` is what a person put in its place, ``metadata`` what the pause said beside it; ``require_allowed`` raises
    what the core's pipeline has against an edited one.
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
        """Keep a copy of what the program gave: a tool may change that, and then ask for approval."""
        return cls(arguments, await run_bounded(arguments, lambda: to_json(arguments)), displayed, metadata)

    @property
    def tool_metadata(self) -> dict[str, Any]:
        """What the tool said beside its question, without why an earlier edit was refused."""
        return {key: value for key, value in (self.metadata or {}).items() if key != EDIT_REFUSED}

    @property
    def unvalidated(self) -> dict[str, Any]:
        """A copy of what is to be validated."""
        return from_json(self._original_json) if self.edited_input is None else copy_json(self.edited_input)

    def displayed_candidates(self) -> Iterator[dict[str, Any]]:
        """Give the inputs of which one should come out as it was shown.

        A validator that changes its input must see what the program gave; a default that is new each time must be
        the one that was shown.
        """
        yield {**self._copy_displayed(), **self.unvalidated}
        yield self._copy_displayed()
        yield self.unvalidated

    def edited_candidates(self, edited_input: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Give the inputs of which one should come out as somebody edited it."""
        displayed, unvalidated = self.displayed or {}, self.unvalidated
        unchanged_keys = [
            key
            for key in edited_input
            if key in unvalidated and key in displayed and same_json(edited_input[key], displayed[key])
        ]
        yield {**edited_input, **{key: unvalidated[key] for key in unchanged_keys}}
        yield dict(edited_input)

    def _copy_displayed(self) -> dict[str, Any]:
        return copy_json(self.displayed or {})


@dataclass
class NestedToolManager(ToolManager[Any]):
    """A manager of hidden tools that shows people validated inputs and runs what it showed, or nothing.

    ``inputs`` holds those of the calls under way, by their ids.
    """

    call_inputs: dict[str, CallInput] = field(default_factory=dict[str, CallInput])

    @classmethod
    def from_manager(cls, manager: ToolManager[Any]) -> NestedToolManager:
        """Return one that has all that another has: whatever the framework gives one belongs to the step."""
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
        """Validate a call; an approved one must come out as it was shown or edited.

        Raises `CodeModeToolError` when it comes out differently than it was shown, `ApprovalRequired` when an edited
        one does not fit the tool, or validation makes something else of it.
        """
        settings = {"approved": approved, "metadata": metadata, "wrap_validation_errors": wrap_validation_errors}
        call_input = self.call_inputs.get(call.tool_call_id)
        if call_input is None:
            return await self._validate(call, **settings)
        if not approved or call_input.displayed is None:
            call_input.validated = await self._validate(call, **settings)
            return call_input.validated
        if call.args is call_input.arguments:
            return await self._validate_unchanged(call, call_input, settings)
        return await self._validate_edited(call, call_input, settings)

    async def execute_tool_call(self, validated: ValidatedToolCall[Any], *, wrap_validation_errors: bool = True) -> Any:
        """Run a validated call."""
        call_input = self.call_inputs.get(validated.call.tool_call_id)
        if call_input is not None and validated.deferral is None:
            call_input.has_started = True
        return await super().execute_tool_call(validated, wrap_validation_errors=wrap_validation_errors)

    async def handle_call(
        self, call: ToolCallPart, *, approved: bool = False, metadata: Any = None, **settings: Any
    ) -> Any:
        """Make a call; ask an inline handler again, at most `MAX_INLINE_QUESTIONS` times, whose edit does not fit."""
        try:
            return await super().handle_call(call, approved=approved, metadata=metadata, **settings)
        except EditRefused as error:
            if approved:
                raise  # by answers that a resume brought: the run pauses again
            refusal = error
        for _ in range(MAX_INLINE_QUESTIONS - 1):
            try:
                return await ask_inline_handler_again(self, call, refusal, **settings)
            except EditRefused as error:
                if error is refusal:  # the handler leaves the call to others
                    break
                refusal = error
        raise refusal

    async def resolve_deferred_tool_calls(self, requests: DeferredToolRequests) -> DeferredToolResults | None:
        """Let an inline handler see what will run."""
        for call_id in self.call_inputs.keys() & requests.metadata.keys():
            self.call_inputs[call_id].metadata = requests.metadata[call_id]
        calls = [await self._with_displayed_input(call) for call in requests.calls]
        approvals = [await self._with_displayed_input(call) for call in requests.approvals]
        return await super().resolve_deferred_tool_calls(replace(requests, calls=calls, approvals=approvals))

    async def _with_displayed_input(self, call: ToolCallPart) -> ToolCallPart:
        if call.tool_call_id not in self.call_inputs:
            return call
        displayed = await self.get_displayed_input(call)
        # A copy: what a handler takes out of it before it shows it to somebody is not taken out of what runs.
        return replace(call, args=await run_bounded(displayed, lambda: copy_json(displayed)))

    async def get_displayed_input(self, call: ToolCallPart) -> dict[str, Any]:
        """Return what a person is shown of a call under way: its validated input as plain JSON."""
        call_input = self.call_inputs[call.tool_call_id]
        if call_input.displayed is None:
            assert call_input.validated is not None  # noqa: S101 - only a valid call can wait
            call_input.displayed = await _display_validated(call_input.validated)
            if call_input.has_started:
                call_input.displayed = await self._restore_changed_input(call, call_input)
        return call_input.displayed

    async def _restore_changed_input(self, call: ToolCallPart, call_input: CallInput) -> dict[str, Any]:
        settings = {"wrap_validation_errors": False}
        unvalidated = call_input.unvalidated
        # Defaults that are new each time are those that rule and tool have seen; all else is what the program gave.
        validated = await self._try_validate(call, {**copy_json(call_input.displayed or {}), **unvalidated}, settings)
        if not isinstance(validated, Exception) and await _validates_to(validated, call_input.displayed):
            return await _display_validated(validated)
        return await _display_validated(await self._validate(replace(call, args=unvalidated), **settings))

    async def _validate_unchanged(
        self, call: ToolCallPart, call_input: CallInput, settings: dict[str, Any]
    ) -> ValidatedToolCall[Any]:
        for candidate in call_input.displayed_candidates():
            validated = await self._try_validate(call, candidate, settings)
            if not isinstance(validated, Exception) and await _validates_to(validated, call_input.displayed):
                return validated
        raise _not_run_error(call, "validated again, its input comes out differently than it was shown")

    async def _validate_edited(
        self, call: ToolCallPart, call_input: CallInput, settings: dict[str, Any]
    ) -> ValidatedToolCall[Any]:
        try:
            edited_input = restore_integers(call.args_as_dict(), call_input.displayed)
        except (ValueError, TypeError, RecursionError, AssertionError) as error:  # the last of what is no object
            raise _make_edit_refused(call_input, str(error)) from None
        if call_input.require_allowed is not None:
            await call_input.require_allowed(edited_input)
        refusal: Exception | None = None
        validated_candidates: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for candidate in call_input.edited_candidates(edited_input):
            validated = await self._try_validate(call, candidate, settings)
            if isinstance(validated, Exception):
                refusal = validated
                continue
            validated_candidates.append((candidate, await _display_validated(validated)))
            if _matches_edit(edited_input, validated_candidates[-1][1]):
                call_input.edited_input, call_input.displayed = validated_candidates[-1]
                return validated
        if validated_candidates:
            # Nobody has seen what validation makes of the edited input: whoever edited it is shown that.
            call_input.edited_input, call_input.displayed = validated_candidates[0]
            raise ApprovalRequired(metadata=call_input.tool_metadata or None)
        raise _make_edit_refused(call_input, "the tool does not take it" if refusal is None else format_error(refusal))

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
            return replace(validated, validated_args=read_again(validated.validated_args))
        except (ValidationError, ModelRetry, ToolFailed) as error:
            return error


def _make_edit_refused(call_input: CallInput, reason: str) -> EditRefused:
    return EditRefused(metadata={**call_input.tool_metadata, EDIT_REFUSED: reason})


def _matches_edit(edited_value: Any, displayed: Any) -> bool:
    """Tell whether what would run is what somebody wrote, defaults and ways of writing a number aside."""
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
        same_json(edited_value, displayed)
        or _scalar_text(cast("Any", edited_value)) == _scalar_text(displayed) is not None
    )


def _scalar_text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


async def _display_validated(validated: ValidatedToolCall[Any]) -> dict[str, Any]:
    assert validated.tool is not None  # noqa: S101 - the tool of a call that was validated
    return await _display_arguments(validated.validated_args or {}, validated.tool)


async def _display_arguments(arguments: dict[str, Any], tool: ToolsetTool[Any]) -> dict[str, Any]:
    flattened_name = flattened_parameter(tool)
    return await run_bounded(arguments, lambda: displayed_arguments(arguments, flattened_name))


async def _validates_to(validated: ValidatedToolCall[Any], displayed: dict[str, Any] | None) -> bool:
    return await _is_same_json(await _display_validated(validated), displayed)


async def _is_same_json(arguments: dict[str, Any], displayed: dict[str, Any] | None) -> bool:
    return await run_bounded(arguments, lambda: same_json(arguments, displayed))


async def require_displayed_input(
    call: ToolCallPart, call_input: CallInput, arguments: dict[str, Any], tool: ToolsetTool[Any]
) -> None:
    """Raise `CodeModeToolError` when an approved call would run with something else than was shown.

    Hooks around the execution of a tool come after its validation, and may change its input once more.
    """
    if call_input.displayed is not None and not await _is_same_json(
        await _display_arguments(arguments, tool), call_input.displayed
    ):
        reason = "after it was shown, a hook has changed its input. What changes inputs belongs in after_tool_validate"
        raise _not_run_error(call, reason)


def _not_run_error(call: ToolCallPart, reason: str) -> CodeModeToolError:
    details = {"tool_name": call.tool_name, "tool_call_id": call.tool_call_id}
    return CodeModeToolError(f"The call of {call.tool_name!r} does not run: {reason}.", details=details)
