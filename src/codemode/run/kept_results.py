"""Results that a model was not shown whole, kept beside the state of programs, for the next of them. Runs nothing."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from ..data.json_values import decode_json, encode_json, utf8_length
from ..errors import CodeModeSerializationError
from ..host.threads import LARGE_CHARACTERS, run_check
from ..protocol.call_status import MAX_RESULT_CHARACTERS, call_id
from ..protocol.ledger import Fulfilled
from ..trace.failures import log_failure
from .content_results import in_words
from .large_results import too_large_text
from .state_places import LatePlace, StatePlace

if TYPE_CHECKING:
    from .outcome import RunOutcome

PREFIX = "result:"
MAX_RESULTS = 8
MAX_RESULT_BYTES = 16 << 20
MAX_CALL_RESULTS = 4
_log = logging.getLogger("codemode.tools")


async def told_of_large(outcome: RunOutcome, most: int, place: StatePlace | None) -> str:
    """Return what a model reads of a result that is too large, which the next program finds where there is a place."""
    value, json_bytes = await in_words(outcome), outcome.result_bytes
    return too_large_text(value, most, json_bytes, None if place is None else await keep_result(place, value))


async def keep_call_results(outcome: RunOutcome, place: StatePlace) -> None:
    """Keep the newest results of calls that a failed program leaves and a model is not shown whole.

    Their summaries name the key. Images, audio and files are not kept.
    """
    ledger = outcome.ledger
    if ledger is None or (ledger.contents is not None and len(ledger.contents)):
        return
    calls = {call["id"]: call for call in outcome.calls if "result" in call}
    large = [
        (call, entry.outcome.value_json)
        for entry in ledger.entries
        if isinstance(entry.outcome, Fulfilled)
        and len(entry.outcome.value_json or "") > MAX_RESULT_CHARACTERS
        and (call := calls.get(call_id(entry))) is not None
    ]
    for call, text in large[-MAX_CALL_RESULTS:]:
        value = await run_check(len(text or ""), partial(decode_json, text or "null"))
        if (key := await keep_result(place, value)) is not None:
            call["kept"] = key


async def keep_result(place: StatePlace, value: Any) -> str | None:
    """Keep a result that a model is not shown; return its key, or None where it could not be kept.

    The newest 8 stay, of 16 MiB together. A result that is the newest already keeps its key.
    """
    try:
        what = "the result"
        text = await run_check(LARGE_CHARACTERS, lambda: encode_json(value, max_bytes=MAX_RESULT_BYTES, what=what))
        if len(text) > MAX_RESULT_BYTES:  # what is no ASCII is longer as it is kept
            return None
        numbers = sorted(number for key in await place.keys() if (number := _number(key)) is not None)
        if numbers and await place.get(f"{PREFIX}{numbers[-1]}") == text:
            return f"{PREFIX}{numbers[-1]}"
        ahead = place.ahead if isinstance(place, LatePlace) else 0
        key = f"{PREFIX}{(numbers[-1] if numbers else 0) + 1 + ahead}"
        await place.set(key, text)
        await _forget_old(place, numbers, utf8_length(text))
    except CodeModeSerializationError:
        return None
    except Exception as error:  # noqa: BLE001 - a place is host code, and the program has come to its result
        log_failure(_log, "a large result could not be kept in state", (), error)
        return None
    return key


async def _forget_old(place: StatePlace, numbers: list[int], size: int) -> None:
    kept = 1
    for number in reversed(numbers):
        key = f"{PREFIX}{number}"
        size += utf8_length(await place.get(key) or "")
        kept += 1
        if kept > MAX_RESULTS or size > MAX_RESULT_BYTES:
            size = MAX_RESULT_BYTES + 1  # whatever is older goes too
            await place.delete(key)


def _number(key: str) -> int | None:
    digits = key.removeprefix(PREFIX)
    is_one = digits != key and digits.isascii() and digits.isdigit() and len(digits) < 16
    return int(digits) if is_one else None
