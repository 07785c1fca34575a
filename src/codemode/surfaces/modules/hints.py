"""One thing to do about what the engine says of a program, for the mistakes that programs have most. Pure."""

from __future__ import annotations

import re

from ...data.narrowing import list_or_empty, mapping_or_empty
from ...errors import CodeModeError, CodeModeSyntaxError
from ...source.other_languages import failed_language_hint

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
