"""The text for a model whose program returned nothing: what there is in place of a result. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..trace.visible_text import visible
from .call_lines import call_lines
from .printed import printed, unreturned_call

if TYPE_CHECKING:
    from ..errors import CallSummary
    from .outcome import RunOutcome

_MAX_CALLS_CHARACTERS = 1500
_KEPT = "\n\t"
_RETURN = "Only what it returns is its result: end it with `return`."
_UNDEFINED = "The program returned nothing: what it returned is undefined, as of a tool that gives nothing."
_ENDS_WITH_RETURN = re.compile(r"(?:^|[;{}\n])[ \t]*return\b[^;\n]*;?\s*\Z")
_LAST_CHARACTERS = 500
_UNRETURNED = "It ended before the function that it calls last: write {call} instead."


def no_result_text(outcome: RunOutcome, js: str, give: str = _RETURN, *, shows_console: bool = True) -> str:
    """Return what a model reads of a program that returned nothing: what there is in place of a result.

    That is the value of its last statement, what it printed and what it had called, so that it need not run again.
    ``give`` says how a result is given. Of a program that returned null a model reads what it printed; of any other ""
    is returned.
    """
    text = printed(outcome.console) if shows_console else ""
    said = [f"It had printed:\n{text}"] if text else []
    if not outcome.returned_nothing:
        return f"The program returned null. {said[0]}" if said and outcome.value is None else ""
    call = unreturned_call(js)
    calls = outcome.calls if not (outcome.console or outcome.last_value) else _changing(outcome.calls)
    if call is not None:
        give = _UNRETURNED.format(call=call)
    is_given = _ENDS_WITH_RETURN.search(js[-_LAST_CHARACTERS:]) is not None
    lines = [_UNDEFINED if is_given else f"The program returned nothing. {give}"]
    if outcome.last_value:
        lines.append(f"Its last statement has this value: {visible(outcome.last_value, keep=_KEPT)}")
    return "\n".join([*lines, *call_lines(calls, _MAX_CALLS_CHARACTERS), *said])


def _changing(calls: Iterable[CallSummary]) -> list[CallSummary]:
    return [call for call in calls if call.get("reads_only") is not True]
