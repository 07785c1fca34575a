"""What a store refuses, one class for each reason. Knows no database."""

from __future__ import annotations

from ..errors import CodeModeError, CodeModeProtocolError


class StoreError(CodeModeProtocolError):
    """A store does not take what it was asked."""

    default_code = "CODE_MODE_STORE"


class UnknownRequestError(StoreError):
    """Nothing is kept under this id, or not for this tenant: nobody is told which of the two."""

    default_code = "CODE_MODE_STORE_UNKNOWN"


class AlreadyDecidedError(StoreError):
    """Somebody has decided otherwise. Details: ``interrupt_id``, ``actor``, ``decision``."""

    default_code = "CODE_MODE_STORE_ALREADY_DECIDED"


class RequestSettledError(StoreError):
    """The record has come to its end. Details: ``state``."""

    default_code = "CODE_MODE_STORE_SETTLED"


class RequestSupersededError(StoreError):
    """The program has gone on and no longer asks this, or asks something else than what was shown."""

    default_code = "CODE_MODE_STORE_SUPERSEDED"


class RecordExpiredError(StoreError):
    """The record has expired."""

    default_code = "CODE_MODE_STORE_EXPIRED"


class RecordWithdrawnError(StoreError):
    """Somebody has ended the record. Details: ``actor``, ``reason``."""

    default_code = "CODE_MODE_STORE_WITHDRAWN"


class RecordLostError(StoreError):
    """Nobody knows what became of the record's program. Details: ``actor`` and ``reason`` once it was closed."""

    default_code = "CODE_MODE_STORE_LOST"


class AnswerRefusedError(StoreError):
    """An answer does not fit. Nothing was used up. Details: ``problems`` by request id, all of them."""

    default_code = "CODE_MODE_STORE_ANSWER_REFUSED"


class StoreFullError(StoreError):
    """A tenant has as many open records as a store keeps of one. Nothing was kept. Details: ``tenant``, ``limit``."""

    default_code = "CODE_MODE_STORE_FULL"


class StoreUnavailableError(CodeModeError):
    """The database cannot be reached or used; the cause is its own error.

    Nothing was changed, unless the connection broke while a commit was under way: then nobody knows, and whoever asks
    again is told.
    """

    default_code = "CODE_MODE_STORE_UNAVAILABLE"
