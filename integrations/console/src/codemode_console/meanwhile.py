"""What has happened to a request since somebody was shown it: why it cannot be decided any more, or not yet."""

from __future__ import annotations

from typing import Any

from codemode import Record, StoredRequest

from .decisions import decision_words
from .errors import Problem
from .moments import moment_text

_ENDED = ("completed", "failed", "withdrawn")


def no_longer_asked(record: Record, one: StoredRequest) -> Problem | None:
    """Return why a request cannot be decided any more; None where it waits."""
    facts: dict[str, Any] = {}
    who = ""
    if one.state in ("decided", "applied"):
        facts = {"actor": one.actor, "decidedAtMs": one.decided_at_ms, "decision": decision_words(one)}
        at = "" if one.decided_at_ms is None else f", {moment_text(one.decided_at_ms)}"
        who = f"{one.actor or 'Somebody'} was first: {facts['decision']}{at}."
    if record.state == "expired":
        return Problem(
            410, "It has expired", who or "Nobody decided in time.", facts={**facts, "code": "RecordExpired"}
        )
    if who:
        facts["code"] = "AlreadyDecided"
        return Problem(409, "Somebody has decided about it", who, facts=facts)
    if record.state in _ENDED:
        return _problem("RequestSettled", "It has come to its end", f"Its program is {record.state}.")
    if record.state == "lost":
        return _problem("RecordLost", "Nobody knows what became of it", "Its host has died over it.")
    if one.state == "superseded":
        words = "The program does not wait for this any more."
        return _problem("RequestSuperseded", "The program has gone on, and asks something else", words)
    return None


def changed_meanwhile(one: StoredRequest) -> Problem:
    """Return what is said to somebody who was shown another version of a request than the one that waits."""
    words = "It was refused: see why, and decide again." if one.refusal else "Look at what is new, and decide again."
    return _problem("RequestSuperseded", "Something has changed since you were shown this", words)


def _problem(code: str, title: str, words: str) -> Problem:
    return Problem(409, title, words, facts={"code": code})
