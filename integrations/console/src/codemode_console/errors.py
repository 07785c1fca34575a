"""Problems: HTTP statuses and messages, also for errors of the store."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from codemode import CodeModeError
from codemode.stores import (
    AlreadyDecidedError,
    AnswerRefusedError,
    RecordExpiredError,
    RecordLostError,
    RecordWithdrawnError,
    RequestSettledError,
    RequestSupersededError,
    StoreError,
    StoreUnavailableError,
    UnknownRequestError,
)

_RETRY_SECONDS = 5
_LOG_INTERVAL_SECONDS = 60.0
_log = logging.getLogger("codemode.console")
_logged_at: dict[str, float] = {}
_ERROR_PROBLEMS: tuple[tuple[type[CodeModeError], int, str], ...] = (
    (UnknownRequestError, 404, "Unknown request or record"),
    (RecordExpiredError, 410, "The request has expired"),
    (AlreadyDecidedError, 409, "Already decided"),
    (RequestSupersededError, 409, "The program no longer waits for this call"),
    (RequestSettledError, 409, "The program has ended"),
    (RecordWithdrawnError, 409, "The program was withdrawn"),
    (RecordLostError, 409, "The program is lost; its outcome is unknown"),
    (AnswerRefusedError, 422, "The answer does not fit"),
    (StoreUnavailableError, 503, "The database is unavailable"),
    (StoreError, 409, "This is not possible now"),
)


class Problem(Exception):  # noqa: N818 - a problem of RFC 9457
    """A request fails with this status, title and message.

    ``facts`` are for API callers: ``code`` (the class of the store's error without "Error") and ``actor`` (who decided
    first). ``record_id`` is the record that the page links to.
    """

    def __init__(
        self,
        status: int,
        title: str,
        message: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
        record_id: str = "",
    ) -> None:
        super().__init__(title)
        self.status, self.title, self.message = status, title, message
        self.headers, self.facts = dict(headers or {}), dict(facts or {})
        self.record_id = record_id

    def to_json(self) -> dict[str, Any]:
        """Return the problem for API callers."""
        return {"status": self.status, "title": self.title, "message": self.message, **self.facts}


def to_problem(error: CodeModeError) -> Problem | None:
    """Return the problem of a store error; None for other errors."""
    for error_type, status, title in _ERROR_PROBLEMS:
        if isinstance(error, error_type):
            if status == 503:
                _log_store_unavailable(error.message)
            headers = {"Retry-After": str(_RETRY_SECONDS)} if status == 503 else None
            return Problem(
                status, title, _describe_store_error(error), headers=headers, facts=_extract_error_code_and_actor(error)
            )
    return None


def _log_store_unavailable(message: str) -> None:
    """Log the cause at most once a minute; pages do not show it."""
    now = time.monotonic()
    if now - _logged_at.get(message, -_LOG_INTERVAL_SECONDS) >= _LOG_INTERVAL_SECONDS:
        _logged_at.clear()
        _logged_at[message] = now
        _log.warning("the database is unavailable: %s", message)


def not_found_problem() -> Problem:
    """Return the problem of a missing record, the same for records of other tenants."""
    return to_problem(UnknownRequestError("it is not known")) or Problem(404, "There is no such request")


def _extract_error_code_and_actor(error: CodeModeError) -> dict[str, str]:
    actor: Any = error.details.get("actor")
    name = type(error).__name__
    code = name if type(error) is StoreError else name.removesuffix("Error")
    return {"code": code, **({"actor": actor} if isinstance(actor, str) else {})}


def _describe_store_error(error: CodeModeError) -> str:
    if isinstance(error, StoreUnavailableError):
        # The database's message may name hosts and users. A lost connection may hide a successful commit.
        return "The decision may or may not be saved. Check again in a moment."
    if isinstance(error, AlreadyDecidedError):
        actor: Any = error.details.get("actor")
        return f"{actor or 'Another user'} decided first."
    if isinstance(error, UnknownRequestError):
        return "The URL may be wrong, or it was deleted."
    return error.message
