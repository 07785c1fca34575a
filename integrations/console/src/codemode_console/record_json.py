"""What there is to see of a record, as JSON for callers of the API: the same facts as its page. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from codemode import FailedNotice, LastResumed, Record

from .record_view import CallShown, DecidedShown, RecordView, VersionShown


@dataclass(frozen=True, slots=True)
class Around:
    """What is known beside a record: which notices of it were given up, and where its program goes on.

    ``resumed`` is looked for where that is elsewhere: who has last gone on with a program of its app.
    """

    failures: Sequence[FailedNotice]
    goes_on_here: bool
    resumed: LastResumed | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it for callers of the API."""
        resumed = None if self.resumed is None else {"owner": self.resumed.owner, "atMs": self.resumed.at_ms}
        failures = [_failure(one) for one in self.failures]
        return {"goesOnHere": self.goes_on_here, "lastResumed": resumed, "failedNotices": failures}


def _failure(one: FailedNotice) -> dict[str, Any]:
    tried = {"attempts": one.attempts, "failedAtMs": one.failed_at_ms}
    return {"target": one.target, "version": one.version, "error": one.error, **tried}


def view_json(record: Record, view: RecordView) -> dict[str, Any]:
    """Return the facts of a page beside its cards. Values that are long are cut, and can be had at their addresses."""
    return {
        "outerTool": record.outer_tool,
        "notResumable": record.not_resumable,
        "unreadable": view.unreadable,
        "program": _program(view),
        "calls": [_call(one) for one in view.calls],
        "callsCount": view.calls_count,
        "callsNext": view.calls_next,
        "versionsBefore": [_version(one) for one in view.versions],
        "versionsNext": view.versions_next,
        "outcome": None if view.outcome is None else view.outcome.to_json(),
    }


def _program(view: RecordView) -> dict[str, Any] | None:
    if view.program is None or view.text is None:
        return None
    waits = [
        {"tool": place.name, "line": line.number, "column": place.column}
        for line in view.program.lines
        for place in line.waits
    ]
    return {**view.text.to_json(), "waits": waits, "unplaced": [one.name for one in view.program.unplaced]}


def _call(shown: CallShown) -> dict[str, Any]:
    call, ended = shown.call, "error" if shown.call.error is not None else "value"
    outcome = {} if shown.outcome is None else {ended: shown.outcome.to_json()}
    place = {"line": call.line, "column": call.column, "endedAtMs": call.ended_at_ms, "answered": call.answered}
    named = {"order": call.order, "id": call.id, "kind": call.kind, "name": call.name, "status": call.status}
    return {**named, "input": shown.input.to_json(), **outcome, **place}


def _version(shown: VersionShown) -> dict[str, Any]:
    version, requests = shown.version, [_decided(one) for one in shown.requests]
    return {"version": version.version, "createdAtMs": version.created_at_ms, "requests": requests}


def _decided(shown: DecidedShown) -> dict[str, Any]:
    request = shown.request
    who = {"actor": request.actor, "decidedAtMs": request.decided_at_ms, "reason": shown.reason or None}
    return {"id": request.interrupt_id, "tool": request.tool_name, "said": shown.said, **who}
