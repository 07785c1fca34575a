"""What a resume came to, as the text that a guard keeps, and back. Sealed where its continuation is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from .errors import CodeModeError, CodeModeProtocolError, error_from_view
from .interrupts import Interrupt
from .options import ContinuationOptions
from .protocol.signing import Auth
from .sealing import open_text, seal_text


@dataclass(frozen=True, slots=True)
class RecordedOutcomes:
    """Writes and reads the outcomes of resumes of one continuation, which ``auth`` has signed."""

    options: ContinuationOptions
    auth: Auth
    is_sealed: bool

    @classmethod
    def of(cls, interrupt: Interrupt, auth: Auth, options: ContinuationOptions) -> RecordedOutcomes:
        """Return those of an interrupt that was verified."""
        return cls(options, auth, str(interrupt.continuation["encoding"]).startswith("sealed"))

    def of_value(self, value: Any) -> str:
        """Write a value, or the next interrupt."""
        key, item = ("interrupt", value.to_dict()) if isinstance(value, Interrupt) else ("value", value)
        return self._written(json.dumps({key: item}))

    def of_error(self, error: BaseException) -> str:
        """Write an error, with its recovery."""
        if not isinstance(error, CodeModeError):
            aborted = error.__cause__
            error = aborted if isinstance(aborted, CodeModeError) else CodeModeError("the resume failed")
        failure = {"name": type(error).__name__, "message": error.message, "code": error.code}
        recovery = None if error.recovery is None else error.recovery.to_dict()
        return self._written(_as_json({"error": failure, "calls": error.calls, "recovery": recovery}, error.details))

    def replayed(self, text: str) -> Any:
        """Return the value or interrupt that was recorded, or raise the error."""
        outcome = cast("dict[str, Any]", json.loads(self._read(text)))
        if "value" in outcome:
            return outcome["value"]
        if "interrupt" in outcome:
            return Interrupt.from_dict(outcome["interrupt"])
        raise _recorded_error(outcome)

    def _written(self, text: str) -> str:
        return seal_text(text, self.options, self.auth) if self.is_sealed else text

    def _read(self, text: str) -> str:
        try:
            return open_text(text, self.options, self.auth) if self.is_sealed else text
        except ValueError as error:
            raise CodeModeProtocolError("the recorded outcome of this continuation cannot be read") from error


def _as_json(outcome: Mapping[str, Any], details: Mapping[str, Any]) -> str:
    try:
        # Details are for people: what is not JSON is kept as text.
        return json.dumps({**outcome, "details": details}, default=str)
    except Exception:  # noqa: BLE001 - a tool may raise an error with any details
        return json.dumps({**outcome, "details": {}}, default=str)


def _recorded_error(outcome: Mapping[str, Any]) -> CodeModeError:
    failure = outcome["error"]
    error = type(error_from_view(**failure))(failure["message"], code=failure["code"], details=outcome["details"])
    error.calls = tuple(outcome["calls"])
    if outcome["recovery"] is not None:
        error.recovery = Interrupt.from_dict(outcome["recovery"])
    return error
