"""What a person is shown of a call that waits: all of what will run, and nothing that moves the cursor or hides."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from codemode.trace.visible_text import aligned, one_line, program_lines, visible

if TYPE_CHECKING:
    from codemode.stores.records import Record, StoredRequest

_MAX_INPUT_CHARACTERS = 60
_MAX_LINE_CHARACTERS = 160
_NEAR_LINES = 2


def table(records: Sequence[Record]) -> str:
    """Return one line for each call that waits, and one for a run that was cut off and asks nothing."""
    rows = [("run", "call", "server", "tool", "line", "input", "until")]
    rows += [_row(record, one) for record in records for one in waiting(record)]
    return "\n".join(aligned(rows))


def waiting(record: Record) -> list[StoredRequest]:
    """Return the calls of a record about which a person may decide."""
    return [one for one in record.requests if one.state == "waiting"]


def card(record: Record, request: StoredRequest) -> str:
    """Return all that is known of one call, on lines of its own: the input whole, however long."""
    server, tool = server_and_tool(request.tool_name)
    rows = [("call", request.interrupt_id), ("server", server), ("tool", tool), ("kind", request.kind)]
    if record.tenant != "local":
        rows.append(("of", record.tenant))
    if request.annotations:
        rows.append(("it says of itself", _json(request.annotations)))
    if request.refusal:
        rows.append(("the last answer was refused", request.refusal))
    shown = aligned([(f"  {label}", visible(value)) for label, value in rows])
    shown += _program_lines(record.source, request.line)
    return "\n".join([*shown, "  input", _indented(_json(request.input, indent=2))])


def whole_record(record: Record) -> str:
    """Return a record with its program and all its calls."""
    rows = [("run", record.id), ("state", record.state), ("since", shown_time(record.created_at_ms))]
    rows += [("until", shown_time(record.expires_at_ms)), ("principal", record.tenant)]
    if record.not_resumable:
        rows.append(("cannot go on because", record.not_resumable))
    parts = ["\n".join(aligned([(label, visible(value)) for label, value in rows]))]
    parts += [card(record, one) for one in record.requests]
    if record.source is not None:
        parts.append(f"program\n{_numbered(record.source)}")
    if record.outcome is not None:
        ended = record.outcome.error if record.outcome.error is not None else _json(record.outcome.value, indent=2)
        parts.append(f"outcome\n{_indented(ended)}")
    return "\n\n".join(parts)


def server_and_tool(name: str) -> tuple[str, str]:
    """Return the two halves of a call's name."""
    server, dot, tool = name.partition(".")
    return (server, tool) if dot else ("", name)


def shown_time(at_ms: int) -> str:
    """Return a moment of Unix time, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _row(record: Record, request: StoredRequest) -> tuple[str, ...]:
    server, tool = server_and_tool(request.tool_name)
    return (
        visible(record.id),
        visible(request.interrupt_id),
        one_line(server, 40),
        one_line(tool, 40),
        "" if request.line is None else str(request.line),
        one_line(_json(request.input), _MAX_INPUT_CHARACTERS),
        shown_time(record.expires_at_ms),
    )


def _program_lines(source: str | None, line: int | None) -> list[str]:
    if line is None:
        return []
    lines = [] if source is None else program_lines(source)
    if not 0 < line <= len(lines):
        return [f"  line {line} of the program"]
    first = max(line - _NEAR_LINES, 1)
    near = list(enumerate(lines, 1))[first - 1 : line + _NEAR_LINES]
    return ["  program"] + [
        f"  {'>' if number == line else ' '} {number:4} {one_line(text, _MAX_LINE_CHARACTERS)}" for number, text in near
    ]


def _numbered(source: str) -> str:
    return "\n".join(
        f"  {number:4} {visible(text)}" for number, text in enumerate(program_lines(source) or [source], 1)
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in visible(text, keep="\n").split("\n"))


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
