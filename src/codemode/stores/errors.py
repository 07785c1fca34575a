"""Errors of stores, one class for each reason."""

from __future__ import annotations

from ..errors import CodeModeError, CodeModeProtocolError


class StoreError(CodeModeProtocolError):
    """A store refused an operation."""

    default_code = "CODE_MODE_STORE"


class UnknownRequestError(StoreError):
    """No record or request has this id, or not for this tenant; the message does not say which."""

    default_code = "CODE_MODE_STORE_UNKNOWN"


class AlreadyDecidedError(StoreError):
    """The request was decided differently. Details: ``interrupt_id``, ``actor``, ``decision``."""

    default_code = "CODE_MODE_STORE_ALREADY_DECIDED"


class RequestSettledError(StoreError):
    """The record has ended. Details: ``state``."""

    default_code = "CODE_MODE_STORE_SETTLED"


class RequestSupersededError(StoreError):
    """The program continued without this request, or the request differs from what was displayed."""

    default_code = "CODE_MODE_STORE_SUPERSEDED"


class RecordExpiredError(StoreError):
    """The record has expired."""

    default_code = "CODE_MODE_STORE_EXPIRED"


class RecordWithdrawnError(StoreError):
    """The record was withdrawn. Details: ``actor``, ``reason``."""

    default_code = "CODE_MODE_STORE_WITHDRAWN"


class RecordLostError(StoreError):
    """The outcome of the record's program is unknown. Details: ``actor`` and ``reason`` once it is closed."""

    default_code = "CODE_MODE_STORE_LOST"


class AnswerRefusedError(StoreError):
    """An answer is invalid; nothing was stored. Details: ``problems`` by request id."""

    default_code = "CODE_MODE_STORE_ANSWER_REFUSED"


class StoreFullError(StoreError):
    """A tenant has the maximum number of open records; nothing was stored. Details: ``tenant``, ``limit``."""

    default_code = "CODE_MODE_STORE_FULL"


class StoreUnavailableError(CodeModeError):
    """The database cannot be reached or used; the cause is its own error.

    Nothing has changed, unless the connection broke during a commit: then the next query shows the outcome.
    """

    default_code = "CODE_MODE_STORE_UNAVAILABLE"
