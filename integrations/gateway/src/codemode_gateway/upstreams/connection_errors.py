"""Define errors for lost requests and unreachable servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class UnansweredRequestError(Exception):
    """A request has no answer. ``reason`` may contain secrets.

    ``never_arrived``: the server did not process it. ``is_late``: it timed out. ``is_over``: the connection is
    unusable. ``is_final``: a retry would fail too. ``needs_sign_in``: the user must sign in. ``sent_bytes``: the bytes
    written before the request when the connection ended; those may be unread too.
    """

    def __init__(
        self,
        reason: str,
        *,
        never_arrived: bool = False,
        is_late: bool = False,
        is_over: bool = False,
        is_final: bool = False,
        needs_sign_in: bool = False,
        details: Mapping[str, Any] | None = None,
        sent_bytes: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sent_bytes = sent_bytes
        self.never_arrived = never_arrived
        self.is_late = is_late
        self.is_over = is_over
        self.is_final = is_final
        self.needs_sign_in = needs_sign_in
        self.details = dict(details or {})


class ServerNotStartedError(ConnectionError):
    """A server process cannot be started. The message is for the operator, ``program_message`` for programs."""

    def __init__(self, message: str, program_message: str) -> None:
        super().__init__(message)
        self.program_message = program_message


class UpstreamUnavailableError(Exception):
    """A server cannot be reached. ``program_message`` has no local paths; both texts may contain secrets."""

    def __init__(
        self,
        message: str,
        *,
        program_message: str | None = None,
        needs_sign_in: bool = False,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.program_message = message if program_message is None else program_message
        self.needs_sign_in = needs_sign_in
        self.details = dict(details or {})

    @classmethod
    def from_unanswered_request(cls, lost: UnansweredRequestError) -> UpstreamUnavailableError:
        """Return the error for a server that did not answer a request."""
        return cls(lost.reason, needs_sign_in=lost.needs_sign_in, details=lost.details)
