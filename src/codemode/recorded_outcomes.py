"""What a resume came to, as the text that a guard keeps, and back. Sealed where its continuation is.

The text is a line of JSON, and a line for each text of the continuation in it: no line takes long to write or to read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from .errors import CodeModeError, CodeModeProtocolError, error_from_view
from .interrupts import Interrupt
from .json_pieces import encode_in_pieces
from .options import ContinuationOptions
from .protocol.signing import Auth
from .sealing import open_text, seal_text

_PAUSES = ("interrupt", "recovery")
_ENCODER = json.JSONEncoder(separators=(",", ":"))


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
        return self._written({key: item})

    def of_error(self, error: BaseException) -> str:
        """Write an error, with its recovery."""
        if not isinstance(error, CodeModeError):
            aborted = error.__cause__
            error = aborted if isinstance(aborted, CodeModeError) else CodeModeError("the resume failed")
        failure = {"name": type(error).__name__, "message": error.message, "code": error.code}
        recovery = None if error.recovery is None else error.recovery.to_dict()
        outcome = {"error": failure, "calls": error.calls, "recovery": recovery}
        return self._written({**outcome, "details": _plain(error.details)})

    def replayed(self, text: str) -> Any:
        """Return the value or interrupt that was recorded, or raise the error."""
        outcome = self._read(text)
        if "value" in outcome:
            return outcome["value"]
        if "interrupt" in outcome:
            return Interrupt.from_dict(outcome["interrupt"])
        raise _recorded_error(outcome)

    def _written(self, outcome: dict[str, Any]) -> str:
        texts: list[str] = []
        for key in _PAUSES:
            if outcome.get(key) is not None:
                paused = outcome[key]
                texts = paused["continuation"]["body"]
                outcome[key] = {**paused, "continuation": {**paused["continuation"], "body": None}}
        text = "\n".join([encode_in_pieces(_ENCODER, outcome), *map(json.dumps, texts)])
        return seal_text(text, self.options, self.auth) if self.is_sealed else text

    def _read(self, text: str) -> dict[str, Any]:
        try:
            plain = open_text(text, self.options, self.auth) if self.is_sealed else text
            first, *rest = plain.split("\n")
            outcome = cast("dict[str, Any]", json.loads(first))
            texts = [json.loads(line) for line in rest]
        except ValueError as error:
            raise CodeModeProtocolError("the recorded outcome of this continuation cannot be read") from error
        for key in _PAUSES:
            if outcome.get(key) is not None:
                outcome[key]["continuation"]["body"] = texts
        return outcome


def _plain(details: Mapping[str, Any]) -> Any:
    try:
        # Details are for people: what is not JSON is kept as text.
        return json.loads(json.dumps(details, default=str))
    except Exception:  # noqa: BLE001 - a tool may raise an error with any details
        return {}


def _recorded_error(outcome: Mapping[str, Any]) -> CodeModeError:
    failure = outcome["error"]
    error = type(error_from_view(**failure))(failure["message"], code=failure["code"], details=outcome["details"])
    error.calls = tuple(outcome["calls"])
    if outcome["recovery"] is not None:
        error.recovery = Interrupt.from_dict(outcome["recovery"])
    return error
