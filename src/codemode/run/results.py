"""What a program returned, read from its JSON text. Knows no outcome and nobody who words it."""

from __future__ import annotations

from typing import Any

from ..data.content import with_parts
from ..data.json_values import MAX_DEPTH, check_values, decode_json, nests_deeper_than, utf8_length
from ..data.large_strings import may_have_places
from ..errors import CodeModeProtocolError, CodeModeSerializationError
from ..host.threads import LARGE_CHARACTERS, run_check
from ..protocol.ledger import Ledger
from ..protocol.references import Contents, Sidecar

_WHAT = "the program's result"


async def read_result(text: str | None, max_values: int, ledger: Ledger) -> tuple[Any, int | None]:
    """Return a program's value and its bytes of JSON; None is undefined. Raises `CodeModeSerializationError`."""
    if text is None:
        return None, None
    sidecar, contents = ledger.sidecar, ledger.contents
    if contents is not None and len(contents) and (contents.tag in text or "\\u" in text):
        return await run_check(len(text), lambda: _with_content(text, max_values, contents)), utf8_length(text)
    if sidecar is None or not may_have_places(text):
        return await run_check(len(text), lambda: read_value(text, max_values)), utf8_length(text)
    return await run_check(LARGE_CHARACTERS, lambda: (read_value(text, max_values, sidecar), sidecar.length(text)))


def _with_content(text: str, max_values: int, contents: Contents) -> Any:
    return with_parts(read_value(text, max_values), contents, contents.take)


def read_value(text: str, max_values: int, sidecar: Sidecar | None = None, what: str = _WHAT) -> Any:
    """Return a value that a program has made, of its JSON text.

    Raises `CodeModeSerializationError` for what is too deep or too much, `CodeModeProtocolError` for no JSON at all.
    """
    check_values(text, max_values, what)
    if nests_deeper_than(text, MAX_DEPTH):
        raise CodeModeSerializationError(f"{what} nests deeper than {MAX_DEPTH} levels")
    try:
        return decode_json(text, max_depth=len(text)) if sidecar is None else sidecar.value(text, what)
    except ValueError as error:
        raise CodeModeProtocolError(f"{what} cannot be read: {error}") from error
