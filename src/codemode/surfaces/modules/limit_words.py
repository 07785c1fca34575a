"""Limits that a run has reached, in words: which one, its value, what was used. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import CodeModeError
from .diagnostic import Diagnostic, diagnostic
from .limits import SHOWN_NAMES, WIRE_NAMES
from .words import LIMIT

if TYPE_CHECKING:
    from ...options.parts import ExecutionPolicy

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
