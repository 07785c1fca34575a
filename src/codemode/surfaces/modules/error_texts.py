"""Errors and limits in the classes of `@codemode/errors`: code, message, one hint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...data.json_values import NOT_GIVEN
from ...data.narrowing import list_or_empty, mapping_or_empty, string_or_empty
from ...errors import HIDDEN_CODES, CodeModeAuthenticationError, CodeModeError, CodeModeSyntaxError
from ...execution.outcome_texts import (
    AUTHENTICATION,
    FAILED,
    HIDDEN_CALL_HINT,
    MODULE_CALLS,
    RAISED_HINTS,
    SCHEMA,
    SERVER_NOT_FOUND,
    SIGN_IN_HINT,
    TOOL_NOT_FOUND,
)
from ...profile import Words
from ...source.program_input import failed_language_hint
from ...trace.failures import message_of
from ...trace.public_message import public_message
from ...trace.visible_text import clipped
from .module_tools import ModuleTool, ServerTool, example_of, mismatch
from .response import MAX_MESSAGE_CHARACTERS

if TYPE_CHECKING:
    pass


# What a server says of its own failure is shown, bounded and without the host's secrets. What the host raised is shown
# without paths and stacks.

_REMOVED = "[secret]"
_NO_TEXT = "the call failed"
_NOBODY = "this call needs an approval, and nobody has decided about it"
_READ_CHARACTERS = 1 << 20
_MAX_CODE_CHARACTERS = 100


def words_of(find: Callable[[str], ModuleTool | None], secrets: tuple[str, ...]) -> Words:
    """Return what words errors. ``find`` gives a tool by its qualified name."""

    def words(error: CodeModeError, kind: str, name: str, is_raised: bool) -> Mapping[str, Any]:
        path, _, tool_name = name.partition(".") if kind == "tool" else ("", "", name)
        error_class, code, hint = _kind_of(error, is_raised=is_raised)
        fields: dict[str, Any] = {
            "class": error_class,
            "code": code,
            "message": _message(error, secrets, is_raised=is_raised),
            "toolName": tool_name,
        }
        if path:
            fields["serverId"] = path
        if kind == "catalog" and error.reason == "import_failure":
            del fields["toolName"]  # no tool was asked
        asked = error.details if kind == "catalog" and not is_raised else {}
        fields |= _asked_for(asked, error_class)
        if error_class == SCHEMA:
            tool = find(name) if kind == "tool" else None
            fields |= {"exportName": tool_name, **_mismatched(error, tool)}
        own_hint = "" if is_raised else string_or_empty(error.details.get("hint"))
        fields |= _without_secrets_in(fields, secrets)
        return {**fields, "hint": own_hint or _hint(hint, fields)}

    return words


def class_and_code(error: CodeModeError, *, is_raised: bool) -> tuple[str, str]:
    """Return of which class of `@codemode/errors` an error is, and its code."""
    return _kind_of(error, is_raised=is_raised)[:2]


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text without what the host has named as secret."""
    if not secrets:
        return text
    is_cut, text = len(text) > _READ_CHARACTERS, text[:_READ_CHARACTERS]
    for secret in secrets:
        text = text.replace(secret, _REMOVED)
    # The end may be the beginning of a secret that was cut through.
    return text[: 1 - max(map(len, secrets)) or None] if is_cut else text


def _kind_of(error: CodeModeError, *, is_raised: bool) -> tuple[str, str, str]:
    if isinstance(error, CodeModeAuthenticationError):
        return AUTHENTICATION, "AUTHENTICATION_REQUIRED", SIGN_IN_HINT
    # What host code has raised has a reason of its own only if this package says so.
    reason = "approval_required" if _is_undecided(error) else "execution" if is_raised else error.reason
    error_class, code, hint = MODULE_CALLS.get(reason, MODULE_CALLS["execution"])
    if code != FAILED:
        return error_class, code, hint
    if error.code in HIDDEN_CODES:
        return error_class, code, HIDDEN_CALL_HINT
    is_own = is_raised and error.code != type(error).default_code
    if not is_own:
        return error_class, code, hint
    return error_class, clipped(error.code, _MAX_CODE_CHARACTERS), RAISED_HINTS.get(error.code, hint)


def _is_undecided(error: CodeModeError) -> bool:
    """Tell whether it is the host's decision about a call that failed, and not the call."""
    return error.code in HIDDEN_CODES and error.details.get("origin") == "decision"


def _message(error: CodeModeError, secrets: tuple[str, ...], *, is_raised: bool) -> str:
    if _is_undecided(error):
        return _NOBODY
    if error.code in HIDDEN_CODES:
        raised = error.__cause__
        return _NO_TEXT if raised is None else public_message(without_secrets(message_of(raised), secrets), _NO_TEXT)
    if error.reason == "approval_required" and not is_raised:
        return _NOBODY  # how approvals are to be set up is the host's to read
    text = without_secrets(error.message, secrets) or _NO_TEXT
    return clipped(text, MAX_MESSAGE_CHARACTERS)


def _mismatched(error: CodeModeError, tool: ModuleTool | None) -> dict[str, Any]:
    details = error.details
    schema = None if tool is None else tool.tool.input_json_schema
    problem = next(iter(list_or_empty(details.get("problems"))), {"message": error.message})
    found: dict[str, Any] = {**mismatch(problem, schema, string_or_empty(details.get("received")) or None)}
    for field, said in (("path", "pointer"), ("expected", "expected")):  # as discovery has them, of its own arguments
        if isinstance(details.get(said), str):
            found[field] = details[said]
    if tool is not None:
        found["exportName"] = tool.export_name
        example = tool.tool.example if isinstance(tool.tool, ServerTool) else example_of(tool.tool)
        if example is not NOT_GIVEN:
            found["example"] = example
    return found


def _asked_for(details: Mapping[str, Any], error_class: str) -> dict[str, str]:
    """Return the server and the tool that a question to discovery was about, where one of them is not there."""
    names = {
        SERVER_NOT_FOUND: {"serverId": "server_id"},
        TOOL_NOT_FOUND: {"serverId": "server_id", "toolName": "tool_name"},
    }
    said = {field: details.get(key) for field, key in names.get(error_class, {}).items()}
    return {field: value for field, value in said.items() if isinstance(value, str)}


def _hint(hint: str, fields: Mapping[str, Any]) -> str:
    where = f"the value at {fields['path']}" if fields.get("path") else "the input"
    said = {"where": where, "expected": fields.get("expected"), "server": fields.get("serverId", "the server")}
    return hint.format_map(said)


def _without_secrets_in(fields: Mapping[str, Any], secrets: tuple[str, ...]) -> dict[str, Any]:
    names = ("code", "path", "expected", "received")
    return {name: without_secrets(str(fields[name]), secrets) for name in names if name in fields}


def say_other_language(error: CodeModeError | None, code: str) -> None:
    """Let an error before any call say what to do about a text in another language."""
    if error is None or getattr(error, "calls", ()):
        return
    is_syntax = isinstance(error, CodeModeSyntaxError)
    hint = failed_language_hint("SyntaxError" if is_syntax else str(error.details.get("name")), code)
    if hint is None:
        return
    error.details["hint"] = hint
    if is_syntax:
        problems = list_or_empty(error.details.get("problems"))
        error.details["problems"] = [{**mapping_or_empty(one), "hint": hint} for one in problems]
