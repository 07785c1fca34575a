"""What a person may say of a whole record: that it is withdrawn, closed, or runs again. Knows no pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from codemode import InterruptStore, Record

MOST_WHY_CHARACTERS = 2_000
"""As much of a reason as the audit keeps."""


@dataclass(frozen=True, slots=True)
class Ending:
    """One thing that may be said. ``label`` is its button, ``words`` what comes of it."""

    action: str
    label: str
    words: str


_WITHDRAW = Ending("withdraw", "Withdraw", "The program ends here, and nothing that waits is run.")
_SHUT = Ending("withdraw", "Close", "The program ends here: nobody tries to go on with it any more.")
_TRY = Ending("run-again", "Try again now", "Whoever can go on with it does so at once.")
_CLOSE = Ending("close", "Close", "It ends as failed. What its host had done when it died stays done.")
_AGAIN = Ending(
    "run-again",
    "Run again",
    "It goes on from its last pause, with the answers that it was given. What its host had begun when it died may"
    " happen twice.",
)


def endings_of(record: Record) -> tuple[Ending, ...]:
    """Return what may be said of a record as it is."""
    if record.state == "lost":
        return (_CLOSE, _AGAIN)
    if record.state not in ("pending", "resting"):
        return ()
    if record.not_resumable is None:
        return (_WITHDRAW,) if record.state == "pending" else ()
    return (_SHUT, _TRY) if record.state == "pending" else (_SHUT,)


def is_stuck(record: Record) -> bool:
    """Tell whether a record goes on only once somebody says what is to become of it."""
    return record.state == "lost" or record.not_resumable is not None


def as_shown(record: Record) -> str:
    """Return what tells a record from what has become of it since: its version, and how much of that waits."""
    return f"{record.version}-{sum(one.state == 'waiting' for one in record.requests)}"


def about(record_id: str, version: str, state: str) -> str:
    """Return what the token of such a form is about: the record, as it was shown."""
    return f"record {record_id} {version} {state}"


def ending_calls(store: InterruptStore) -> dict[str, Callable[..., Awaitable[None]]]:
    """Return what does each of them."""
    return {"withdraw": store.withdraw, "close": store.close_lost, "run-again": store.run_again}


def endings_json(record: Record, endings: Iterable[Ending], form_token: str) -> dict[str, Any]:
    """Return them for callers of the API, with what a form sends."""
    actions = {one.action: one.words for one in endings}
    return {"actions": actions, "version": as_shown(record), "state": record.state, "formToken": form_token}
