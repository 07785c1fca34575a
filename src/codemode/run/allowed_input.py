"""The input that a call runs with: what was allowed, shown or issued, validated once. Runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..data.json_values import canonical_json, decode_json
from ..data.narrowing import is_object
from ..data.records import record
from ..errors import CodeModeProtocolError, CodeModeToolError
from ..interrupts.resolutions import Answer, Approval, runs_tool
from ..protocol.ledger import LedgerEntry, shown_text
from ..schemas.compiled import ValidatedInput, completed, with_fresh
from ..tools.catalog import ToolCatalog
from ..tools.prepared import MISSING, PreparedTool
from .call_content import genuine, with_ids

_MAX_EDITED_PARTS = 64


@record
class CheckedInput:
    """A validated input, and the JSON text of what a person is shown of it; None where nobody will ask for that."""

    validated: ValidatedInput
    shown_json: str | None


def input_to_run(tool: PreparedTool, entry: LedgerEntry, edited_json: str | None = None) -> ValidatedInput:
    """Return the validated input of a call: the edited one, what was allowed or shown, or what the guest issued.

    Raises `CodeModeToolError` for wrong input; `CodeModeProtocolError` when the input of a call that was shown to a
    person would now come out differently, or the edited one is wrong.
    """
    if edited_json is not None:
        return _edited(tool, edited_json)
    shown_json = shown_text(entry)
    if shown_json is None:
        return tool.validate_input(_issued(entry))
    return _as_shown(tool, entry, shown_json)


def _as_shown(tool: PreparedTool, entry: LedgerEntry, shown_json: str) -> ValidatedInput:
    """Return the value that was shown, made of what was issued, that with the defaults that were shown, or of itself.

    A default may be new each time, and a validator may change what it has made, or only what is no default.
    """
    again = made = decode_json(shown_json)
    issued, shown, reason = _issued(entry), canonical_json(made), ""
    given: Any = {} if issued is MISSING else issued
    ways: tuple[Callable[[Any], Any], ...] = (
        lambda _: issued,
        lambda again: with_fresh(given, made, again),
        lambda _: completed(given, made),
        lambda _: made,
    )
    for way in ways:
        try:
            validated = tool.validate_input(way(again))
        except CodeModeToolError as error:
            # Only of what was shown: what the guest issued may be more than the host has let through.
            reason = f" ({error.message})" if way is ways[-1] else ""
            continue
        if shown_of(validated) == shown:
            return validated
        again = validated.json_value
    raise CodeModeProtocolError(
        f"the input of tool {tool.name!r} does not come out as it was shown: its schema has changed, or gives another"
        f" value each time{reason}"
    )


def _issued(entry: LedgerEntry) -> Any:
    return MISSING if entry.input_json is None else genuine(entry.issued(), entry.input_json)


def _edited(tool: PreparedTool, edited_json: str) -> ValidatedInput:
    edited = genuine(decode_json(edited_json), edited_json)
    try:
        validated = tool.validate_input(edited)
    except CodeModeToolError as error:
        raise CodeModeProtocolError(f"the edited input of tool {tool.name!r} is wrong: {error.message}") from error
    if _is_ambiguous(tool, edited, validated):
        raise CodeModeProtocolError(
            f"the edited input of tool {tool.name!r} is refused: its schema changes a value each time it is applied,"
            " so nobody can tell whether the edit is what the tool is to get; allow the call as shown, or deny it"
        )
    return validated


def _is_ambiguous(tool: PreparedTool, edited: Any, validated: ValidatedInput) -> bool:
    """Return True when what the schema makes of an edit could be an edit too, and would come to something else."""
    made: Any = validated.json_value
    if not is_object(made) or not is_object(edited) or len(keys := edited.keys() & made.keys()) > _MAX_EDITED_PARTS:
        return _is_changed(tool, made, lambda again: again, made)
    # Part by part: what the schema makes of another part may be no input.
    return any(
        _is_changed(tool, {**edited, key: made[key]}, lambda again, key=key: again.get(key), made[key]) for key in keys
    )


def _is_changed(tool: PreparedTool, plain: Any, part: Callable[[Any], Any], made: Any) -> bool:
    try:
        again = tool.validate_input(plain).json_value
    except CodeModeToolError:
        return False
    return canonical_json(part(again)) != canonical_json(made)


def shown_of(validated: ValidatedInput) -> str:
    """Return the text of an input that somebody may be shown: an answer to it is for the very bytes of its content."""
    return with_ids(canonical_json(validated.json_value))


def check_answers(
    catalog: ToolCatalog[PreparedTool], entries: list[LedgerEntry], answers: Mapping[int, Answer]
) -> dict[int, CheckedInput]:
    """Return what every answered call will run with, by request id. Raises `CodeModeProtocolError` where it cannot.

    A denial or a known outcome runs nothing. A tool that is gone is left to the run: the guest gets the ordinary error
    for an unknown tool.
    """
    inputs: dict[int, CheckedInput] = {}
    for entry in entries:
        answer, tool = answers.get(entry.id), catalog.get(entry.name)
        if entry.kind != "tool" or answer is None or tool is None or not runs_tool(answer):
            continue
        try:
            validated = input_to_run(tool, entry, answer.input_json if isinstance(answer, Approval) else None)
            inputs[entry.id] = CheckedInput(validated, shown_of(validated))
        except ValueError as error:
            raise CodeModeProtocolError(f"the input of tool {entry.name!r} cannot be read: {error}") from error
        except CodeModeToolError as error:
            raise CodeModeProtocolError(
                f"the input of tool {entry.name!r} is no longer valid: its schema has changed ({error.message})"
            ) from error
    return inputs
