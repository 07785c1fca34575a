"""Which tools the calls of a kept run are of, as they were shown: for answers that hold for longer than one call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from codemode.data.narrowing import mapping_or_empty
from codemode.stores.records import Record, StoredRequest

from .questions import Question
from .remembered import KnownTool


def known_tools(questions: Iterable[Question], session: str | None) -> dict[str, Any]:
    """Return what a record keeps of the tools of its calls. ``session`` is that of `Remembered.session_of`, if any."""
    known = [one for one in questions if one.definition is not None]
    return {
        "definitions": {one.interrupt_id: one.definition for one in known},
        "servers": {one.interrupt_id: one.server for one in known},
        "session": session,
    }


def definition_in(record: Record, interrupt_id: str) -> Any:
    """Return the digest of the tool of a call; None where it was not known."""
    return mapping_or_empty(mapping_or_empty(record.payload).get("definitions")).get(interrupt_id)


def known_tool(record: Record, asked: StoredRequest) -> KnownTool | None:
    """Return the tool of a call of a record as it was when it was kept; None where that is not known."""
    servers = mapping_or_empty(mapping_or_empty(record.payload).get("servers"))
    definition, server = definition_in(record, asked.interrupt_id), servers.get(asked.interrupt_id)
    if not isinstance(definition, str) or not isinstance(server, str):
        return None
    return KnownTool(server, asked.tool_name.partition(".")[2], definition)


def session_in(record: Record) -> str | None:
    """Return what names the session of whoever has sent the program, where that is known."""
    said = mapping_or_empty(record.payload).get("session")
    return said if isinstance(said, str) else None
