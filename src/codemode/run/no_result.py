"""The text for a model whose program returned nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..trace.visible_text import visible
from .call_descriptions import describe_calls
from .printed import printed, unreturned_call

if TYPE_CHECKING:
    from .outcome import RunOutcome

_MAX_CALLS_CHARACTERS = 1500
_KEPT = "\n\t"
_RETURN = "Only what it returns is its result: end it with `return`."
_UNDEFINED = "The program returned nothing: what it returned is undefined, as of a tool that gives nothing."
_ENDS_WITH_RETURN = re.compile(r"(?:^|[;{}\n])[ \t]*return\b[^;\n]*;?\s*\Z")
_LAST_CHARACTERS = 500
_UNRETURNED = "It ended before the function that it calls last: write {call} instead."


def no_result_text(outcome: RunOutcome, js: str, give: str = _RETURN, *, shows_console: bool = True) -> str:
    """Return what a model reads of a program that returned nothing, so that it need not run again.

    The value of its last statement, what it had called, and with ``shows_console`` what it printed. ``give`` says how a
    program gives a result. After a program that returned null: what it printed. After any other: "".
    """
    console = printed(outcome.console) if shows_console else ""
    console_lines = [f"It had printed:\n{console}"] if console else []
    if not outcome.returned_nothing:
        return f"The program returned null. {console_lines[0]}" if console and outcome.value is None else ""
    unreturned = unreturned_call(js)
    if _ENDS_WITH_RETURN.search(js[-_LAST_CHARACTERS:]) is not None:
        lines = [_UNDEFINED]
    else:
        lines = [f"The program returned nothing. {give if unreturned is None else _UNRETURNED.format(call=unreturned)}"]
    calls = outcome.calls
    if outcome.last_value:
        lines.append(f"Its last statement has this value: {visible(outcome.last_value, keep=_KEPT)}")
    if outcome.last_value or outcome.console:  # the results of calls that only read are in these
        calls = [call for call in calls if call.get("reads_only") is not True]
    return "\n".join([*lines, *describe_calls(calls, _MAX_CALLS_CHARACTERS), *console_lines])
