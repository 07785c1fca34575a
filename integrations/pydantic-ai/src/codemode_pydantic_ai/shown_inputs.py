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

from .content import shown_arguments, with_objects
from .failures import told
from .framework_internals import ask_inline_again, flattened_parameter

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
        self, arguments: dict[str, Any], given: bytes, shown: dict[str, Any] | None, metadata: dict[str, Any] | None
    ) -> None:
        self.arguments = arguments
        self.shown = shown
        self.metadata = metadata
        self.edited: dict[str, Any] | None = None
        self.require_allowed: Callable[[Any], Awaitable[None]] | None = None
        self.validated: ValidatedToolCall[Any] | None = None
        self.has_begun = False
        self._given = given

    @classmethod
    async def of(
        cls, arguments: dict[str, Any], shown: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None
    ) -> CallInput:
        """Keep a copy of what the program gave: a tool may change that, and then ask for approval."""
        return cls(arguments, await run_bounded(arguments, lambda: to_json(arguments)), shown, metadata)

    @property
    def own_metadata(self) -> dict[str, Any]:
        """What the tool said beside its question, without why an earlier edit was refused."""
        return {key: value for key, value in (self.metadata or {}).items() if key != EDIT_REFUSED}

    @property
    def given(self) -> dict[str, Any]:
        """A copy of what is to be validated."""
        return from_json(self._given) if self.edited is None else copy_json(self.edited)

    def as_shown(self) -> Iterator[dict[str, Any]]:
        """Give the inputs of which one should come out as it was shown.

        A validator that changes its input must see what the program gave; a default that is new each time must be
        the one that was shown.
        """
        yield {**self._copy_of_shown(), **self.given}
        yield self._copy_of_shown()
        yield self.given

    def as_edited(self, edited: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Give the inputs of which one should come out as somebody edited it."""
        shown, given = self.shown or {}, self.given
        untouched = [key for key in edited if key in given and key in shown and same_json(edited[key], shown[key])]
        yield {**edited, **{key: given[key] for key in untouched}}
        yield dict(edited)

    def _copy_of_shown(self) -> dict[str, Any]:
        return copy_json(self.shown or {})


@dataclass
class NestedManager(ToolManager[Any]):
    """A manager of hidden tools that shows people validated inputs and runs what it showed, or nothing.

    ``inputs`` holds those of the calls under way, by their ids.
    """

    inputs: dict[str, CallInput] = field(default_factory=dict[str, CallInput])

    @classmethod
    def beside(cls, manager: ToolManager[Any]) -> NestedManager:
        """Return one that has all that another has: whatever the framework gives one belongs to the step."""
        return cls(**{one.name: getattr(manager, one.name) for one in fields(ToolManager) if one.init})

    async def validate_tool_call(
        self, call: ToolCallPart, *, approved: bool = False, metadata: Any = None, wrap_validation_errors: bool = True
    ) -> ValidatedToolCall[Any]:
        """Validate a call; an approved one must come out as it was shown or edited.

        Raises `CodeModeToolError` when it comes out differently than it was shown, `ApprovalRequired` when an edited
        one does not fit the tool, or validation makes something else of it.
        """
        settings = {"approved": approved, "metadata": metadata, "wrap_validation_errors": wrap_validation_errors}
        waiting = self.inputs.get(call.tool_call_id)
        if waiting is None:
            return await self._validate(call, **settings)
        if not approved or waiting.shown is None:
            waiting.validated = await self._validate(call, **settings)
            return waiting.validated
        if call.args is waiting.arguments:
            return await self._unchanged(call, waiting, settings)
        return await self._edited(call, waiting, settings)

    async def execute_tool_call(self, validated: ValidatedToolCall[Any], *, wrap_validation_errors: bool = True) -> Any:
        """Run a validated call."""
        waiting = self.inputs.get(validated.call.tool_call_id)
        if waiting is not None and validated.deferral is None:
            waiting.has_begun = True
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
            refused = error
        for _ in range(MAX_INLINE_QUESTIONS - 1):
            try:
                return await ask_inline_again(self, call, refused, **settings)
            except EditRefused as error:
                if error is refused:  # the handler leaves the call to others
                    break
                refused = error
        raise refused

    async def resolve_deferred_tool_calls(self, requests: DeferredToolRequests) -> DeferredToolResults | None:
        """Let an inline handler see what will run."""
        for call_id in self.inputs.keys() & requests.metadata.keys():
            self.inputs[call_id].metadata = requests.metadata[call_id]
        calls = [await self._with_shown(call) for call in requests.calls]
        approvals = [await self._with_shown(call) for call in requests.approvals]
        return await super().resolve_deferred_tool_calls(replace(requests, calls=calls, approvals=approvals))

    async def _with_shown(self, call: ToolCallPart) -> ToolCallPart:
        if call.tool_call_id not in self.inputs:
            return call
        shown = await self.show(call)
        # A copy: what a handler takes out of it before it shows it to somebody is not taken out of what runs.
        return replace(call, args=await run_bounded(shown, lambda: copy_json(shown)))

    async def show(self, call: ToolCallPart) -> dict[str, Any]:
        """Return what a person is shown of a call under way: its validated input as plain JSON."""
        waiting = self.inputs[call.tool_call_id]
        if waiting.shown is None:
            assert waiting.validated is not None  # noqa: S101 - only a valid call can wait
            waiting.shown = await _shown(waiting.validated)
            if waiting.has_begun:
                waiting.shown = await self._unspoilt(call, waiting)
        return waiting.shown

    async def _unspoilt(self, call: ToolCallPart, waiting: CallInput) -> dict[str, Any]:
        settings = {"wrap_validation_errors": False}
        given = waiting.given
        # Defaults that are new each time are those that rule and tool have seen; all else is what the program gave.
        validated = await self._try(call, {**copy_json(waiting.shown or {}), **given}, settings)
        if not isinstance(validated, Exception) and await _comes_out(validated, waiting.shown):
            return await _shown(validated)
        return await _shown(await self._validate(replace(call, args=given), **settings))

    async def _unchanged(
        self, call: ToolCallPart, waiting: CallInput, settings: dict[str, Any]
    ) -> ValidatedToolCall[Any]:
        for candidate in waiting.as_shown():
            validated = await self._try(call, candidate, settings)
            if not isinstance(validated, Exception) and await _comes_out(validated, waiting.shown):
                return validated
        raise _refusal(call, "validated again, its input comes out differently than it was shown")

    async def _edited(self, call: ToolCallPart, waiting: CallInput, settings: dict[str, Any]) -> ValidatedToolCall[Any]:
        try:
            edited = restore_integers(call.args_as_dict(), waiting.shown)
        except (ValueError, TypeError, RecursionError, AssertionError) as error:  # the last of what is no object
            raise _wrong_edit(waiting, str(error)) from None
        if waiting.require_allowed is not None:
            await waiting.require_allowed(edited)
        refused: Exception | None = None
        made: list[tuple[dict[str, Any], dict[str, Any]]] = []
        for candidate in waiting.as_edited(edited):
            validated = await self._try(call, candidate, settings)
            if isinstance(validated, Exception):
                refused = validated
                continue
            made.append((candidate, await _shown(validated)))
            if _agrees(edited, made[-1][1]):
                waiting.edited, waiting.shown = made[-1]
                return validated
        if made:
            # Nobody has seen what validation makes of the edited input: whoever edited it is shown that.
            waiting.edited, waiting.shown = made[0]
            raise ApprovalRequired(metadata=waiting.own_metadata or None)
        raise _wrong_edit(waiting, "the tool does not take it" if refused is None else told(refused))

    async def _validate(self, call: ToolCallPart, **settings: Any) -> ValidatedToolCall[Any]:
        made = with_objects(call.args)
        return await super().validate_tool_call(call if made is call.args else replace(call, args=made), **settings)

    async def _try(
        self, call: ToolCallPart, arguments: dict[str, Any], settings: dict[str, Any]
    ) -> ValidatedToolCall[Any] | Exception:
        try:
            validated = await self._validate(replace(call, args=arguments), **settings)
            return replace(validated, validated_args=read_again(validated.validated_args))
        except (ValidationError, ModelRetry, ToolFailed) as error:
            return error


def _wrong_edit(waiting: CallInput, reason: str) -> EditRefused:
    return EditRefused(metadata={**waiting.own_metadata, EDIT_REFUSED: reason})


def _agrees(edited: Any, shown: Any) -> bool:
    """Tell whether what would run is what somebody wrote, defaults and ways of writing a number aside."""
    if isinstance(edited, dict) and isinstance(shown, dict):
        written, made = cast("dict[str, Any]", edited), cast("dict[str, Any]", shown)
        return all(key in made and _agrees(value, made[key]) for key, value in written.items())
    if isinstance(edited, list) and isinstance(shown, list):
        pairs = zip(cast("list[Any]", edited), cast("list[Any]", shown), strict=False)
        return len(cast("list[Any]", edited)) == len(cast("list[Any]", shown)) and all(_agrees(*pair) for pair in pairs)
    return same_json(edited, shown) or _as_text(cast("Any", edited)) == _as_text(shown) is not None


def _as_text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


async def _shown(validated: ValidatedToolCall[Any]) -> dict[str, Any]:
    assert validated.tool is not None  # noqa: S101 - the tool of a call that was validated
    return await _as_shown(validated.validated_args or {}, validated.tool)


async def _as_shown(arguments: dict[str, Any], tool: ToolsetTool[Any]) -> dict[str, Any]:
    flattened = flattened_parameter(tool)
    return await run_bounded(arguments, lambda: shown_arguments(arguments, flattened))


async def _comes_out(validated: ValidatedToolCall[Any], shown: dict[str, Any] | None) -> bool:
    return await _is_same(await _shown(validated), shown)


async def _is_same(made: dict[str, Any], shown: dict[str, Any] | None) -> bool:
    return await run_bounded(made, lambda: same_json(made, shown))


async def require_as_shown(
    call: ToolCallPart, waiting: CallInput, arguments: dict[str, Any], tool: ToolsetTool[Any]
) -> None:
    """Raise `CodeModeToolError` when an approved call would run with something else than was shown.

    Hooks around the execution of a tool come after its validation, and may change its input once more.
    """
    if waiting.shown is not None and not await _is_same(await _as_shown(arguments, tool), waiting.shown):
        why = "after it was shown, a hook has changed its input. What changes inputs belongs in after_tool_validate"
        raise _refusal(call, why)


def _refusal(call: ToolCallPart, why: str) -> CodeModeToolError:
    details = {"tool_name": call.tool_name, "tool_call_id": call.tool_call_id}
    return CodeModeToolError(f"The call of {call.tool_name!r} does not run: {why}.", details=details)
