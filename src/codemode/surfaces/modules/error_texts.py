"""Errors and limits in the classes of `@codemode/errors`: code, message, one hint."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...data.json_values import NOT_GIVEN
from ...data.narrowing import list_or_empty, mapping_or_empty, string_or_empty
from ...errors import HIDDEN_CODES, CodeModeAuthenticationError, CodeModeError, CodeModeSyntaxError
from ...profile import Words
from ...source.program_input import failed_language_hint
from ...trace.failures import message_of
from ...trace.public_message import public_message
from ...trace.visible_text import clipped
from .module_tools import ModuleTool, ServerTool, example_of, mismatch
from .options import SHOWN_NAMES, WIRE_NAMES
from .response import MAX_MESSAGE_CHARACTERS, Diagnostic, diagnostic

if TYPE_CHECKING:
    from ...options.parts import ExecutionPolicy


# What a server says of its own failure is shown, bounded and without the host's secrets. What the host raised is shown
# without paths and stacks.

SCHEMA, TOOL_CALL, LIMIT = "SchemaValidationError", "ToolCallError", "SandboxLimitError"
TOOL_NOT_FOUND, SERVER_NOT_FOUND, AUTHENTICATION = "ToolNotFoundError", "ServerNotFoundError", "AuthenticationError"
BASE = "CodemodeError"
CLASSES = frozenset({BASE, SCHEMA, TOOL_CALL, LIMIT, TOOL_NOT_FOUND, SERVER_NOT_FOUND, AUTHENTICATION})
FAILED, IMPORT_FAILURE = "TOOL_FAILED", "IMPORT_FAILURE"
WITHOUT_SERVER_HINT = "Go on without this server, or tell the user."

_LOOK_UP = "Look the {} up with {} of @codemode/discovery."
_KINDS: Mapping[str, tuple[str, str, str]] = {
    "validation": (SCHEMA, "VALIDATION", "Change {where}: expected {expected}."),
    "unknown_tool": (TOOL_NOT_FOUND, "TOOL_NOT_FOUND", _LOOK_UP.format("tool", "searchTools")),
    "unknown_server": (SERVER_NOT_FOUND, "SERVER_NOT_FOUND", _LOOK_UP.format("server", "listServers")),
    "import_failure": (SERVER_NOT_FOUND, IMPORT_FAILURE, _LOOK_UP.format("server", "listServers")),
    "limit": (LIMIT, "SANDBOX_LIMIT", "Do less in one program."),
    "timeout": (TOOL_CALL, "TIMEOUT", "Ask the tool for less at once."),
    "approval_denied": (
        TOOL_CALL,
        "APPROVAL_DENIED",
        "Go on without this call, and do not try it again: somebody has decided against it.",
    ),
    "approval_required": (TOOL_CALL, "APPROVAL_REQUIRED", "Tell the user that somebody must approve this call first."),
    "output": (
        TOOL_CALL,
        "INVALID_OUTPUT",
        "Go on without this result: the call was made, and it cannot be read.",
    ),
    "execution": (TOOL_CALL, FAILED, "Change the call as the message says."),
}
_RAISED_HINTS: Mapping[str, str] = {
    "OUTCOME_UNKNOWN": "Do not make this call again before it is known whether it has happened: look, or ask the user.",
    "TIMEOUT": "Ask the tool for less at once.",
    "SERVER_LOST": WITHOUT_SERVER_HINT,
    "SERVER_UNAVAILABLE": WITHOUT_SERVER_HINT,
}
_HIDDEN_HINT = "Go on without this call, or tell the user that the tool fails."
_SIGN_IN = "Tell the user to sign in to {server}."
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
        return AUTHENTICATION, "AUTHENTICATION_REQUIRED", _SIGN_IN
    # What host code has raised has a reason of its own only if this package says so.
    reason = "approval_required" if _is_undecided(error) else "execution" if is_raised else error.reason
    error_class, code, hint = _KINDS.get(reason, _KINDS["execution"])
    if code != FAILED:
        return error_class, code, hint
    if error.code in HIDDEN_CODES:
        return error_class, code, _HIDDEN_HINT
    is_own = is_raised and error.code != type(error).default_code
    if not is_own:
        return error_class, code, hint
    return error_class, clipped(error.code, _MAX_CODE_CHARACTERS), _RAISED_HINTS.get(error.code, hint)


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


_OUT_OF_MEMORY = "out of memory"
_OUT_OF_STACK = ("Maximum call stack size exceeded", "stack overflow")
_LESS = "Do less in one program."


def limit_diagnostic(message: str, hint: str, path: str | None = None) -> Diagnostic:
    """Return the diagnostic of a limit."""
    return diagnostic("error", "SANDBOX_LIMIT", message, hint=hint or _LESS, path=path, error_class=LIMIT)


def took_too_long(error: CodeModeError, ran_ms: float | None) -> Diagnostic:
    """Return that of a program whose time is up."""
    most = error.details.get("timeout_ms")
    used = "" if ran_ms is None else f", and it had run for {round(ran_ms)} ms"
    message = f"the program did not end in time: timeoutMs is {most}{used}"
    return limit_diagnostic(message, "Do less in one program, or ask for a longer timeoutMs.")


def source_too_large(error: CodeModeError) -> Diagnostic:
    """Return that of a text that is too long to be a program."""
    size, most = error.details.get("bytes"), error.details.get("max_bytes")
    return limit_diagnostic(f"code has {size} bytes; at most {most} are allowed", "Send a shorter program.")


def too_many_calls(error: CodeModeError, path: str | None) -> Diagnostic:
    """Return that of a program that made more calls than it may, or calls that hold too much."""
    host_name, most = error.details.get("limit"), error.details.get("max")
    name = SHOWN_NAMES.get(str(host_name), str(host_name))
    if host_name == "max_in_flight_bridge_requests":
        hint = "Await some calls before making more."
        return limit_diagnostic(f"{name} is {most}, and the program made {_next(most)} calls at once", hint, path)
    if host_name == "max_ledger_bytes":
        return limit_diagnostic(f"what calls were given and gave takes more than {most} bytes", _LESS, path)
    if host_name == "max_timers":
        return limit_diagnostic(f"the program set more than {most} timers", "Set fewer timers.", path)
    what = "questions to discovery" if host_name == "max_catalog_requests" else "calls"
    return limit_diagnostic(f"{name} is {most}, and the program made {_next(most)} {what}", "Make fewer calls.", path)


def result_too_large(error: CodeModeError) -> Diagnostic:
    """Return that of a result that is never cut in half."""
    size, most = error.details.get("bytes"), error.details.get("max_bytes")
    message = f"the result has {size} bytes; {WIRE_NAMES['max_result_bytes']} is {most}"
    return diagnostic("error", "RESULT_TOO_LARGE", message, hint="Filter or sum up in the program, and give back less.")


def exhausted(name: str, message: str, policy: ExecutionPolicy, path: str | None) -> Diagnostic | None:
    """Return that of memory or stack, when that is what the engine has thrown."""
    if name == "InternalError" and _OUT_OF_MEMORY in message:
        most = policy.memory_limit_bytes
        or_null = " (or threw null)" if "threw null" in message else ""
        said = f"the program has used all of its memory{or_null}: maxMemoryBytes is {most}"
        return limit_diagnostic(said, "Keep less in memory at a time.", path)
    if name in ("RangeError", "InternalError") and message in _OUT_OF_STACK:
        said = f"the program has used all of its call stack of {policy.max_stack_size_bytes} bytes"
        return limit_diagnostic(said, "Use a loop in place of recursion.", path)
    return None


def _next(most: Any) -> str:
    return str(most + 1) if type(most) is int else "more"


_MISSING = re.compile(r"(?P<name>[\w$]{1,100}) is not defined\Z")
_CORRECT = "Correct the program at this place and send it whole."
_CATCH = "Correct the program at this place, or catch the error."
_ASSIGN = "Assign the result to globalThis.__codemode_result__ in place of this."
_IMPORT = 'Import it, as in: import * as server from "@codemode/servers/<serverId>".'
_NO_NETWORK = "Call the tools of servers: there is no network."
_WRITE_OUT = "Write the code out: code in strings is never run."
_OF_OTHER_HOSTS = [
    "AbortController",
    "AbortSignal",
    "Blob",
    "Buffer",
    "Bun",
    "crypto",
    "Deno",
    "document",
    "FormData",
    "global",
    "Headers",
    "Intl",
    "localStorage",
    "navigator",
    "process",
    "Request",
    "Response",
    "setImmediate",
    "window",
    "__dirname",
    "__filename",
]
_ABSENT = {
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket", "EventSource", "axios"), _NO_NETWORK),
    **dict.fromkeys(("module", "exports"), _ASSIGN),
    **dict.fromkeys(_OF_OTHER_HOSTS, "Do without it: this is no Node.js and no browser."),
    "structuredClone": "Copy with JSON.parse(JSON.stringify(value)).",
    "performance": "Use Date.now().",
    **dict.fromkeys(("print", "alert"), "Write console.log(value)."),
    "eval": _WRITE_OUT,
    **dict.fromkeys(("require", "tools", "callTool"), _IMPORT),
    "setInterval": "Use setTimeout in a loop.",
}
_SHAPE = "Write the value before this place to console.log: it is not what the program takes it for."
_CALLED = "Look what is called here up: there is no such function. What a tool gives has to be awaited first."


def absent_hint(name: str) -> str | None:
    """Return what to do without a name of another host; None for any other name."""
    return _ABSENT.get(name)


def syntax_hint(message: str) -> str:
    """Return what to do about a program that is none, by what the engine says of it."""
    return _ASSIGN if message.startswith("return not in a function") else _CORRECT


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


def thrown_hint(name: str, message: str) -> str:
    """Return what to do about an error that the engine has thrown, and nobody has caught."""
    if name == "ReferenceError" and (missing := _MISSING.match(message)):
        return _ABSENT.get(
            missing["name"], f"Declare or import {missing['name']}: tools are imported from their servers."
        )
    if name == "EvalError":
        return _WRITE_OUT
    if name == "TypeError" and message.endswith("not a function"):
        return _CALLED
    if name == "TypeError" and message.startswith("cannot read property "):
        return _SHAPE
    return _CATCH
