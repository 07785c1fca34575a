"""Define a paused invocation or agent as the host sees it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import isinf
from typing import Any, ClassVar, NoReturn, cast

from ..data.exact_integers import POINTERS_KEY, protect_integers, restore_listed_integers, to_browser_number
from ..data.json_values import decode_json
from ..data.narrowing import is_array, is_mapping, is_object, is_sequence
from ..errors import CodeModeAbortedError, CodeModeError, CodeModeProtocolError, Resumable
from ..protocol.ledger import UNKNOWN_OUTCOME_KIND, LedgerEntry, Waiting, parse_outer_call_id
from ..protocol.messages import SourceLocation
from ..records import record
from ..trace.events import INTERRUPT_TYPE
from ..trace.failures import get_group_members

APPROVAL_KIND = "ai-sdk-code-mode/tool-approval"
_REQUEST_KEYS = {"interruptId": "interrupt_id", "toolName": "tool_name", "toolCallId": "tool_call_id",
                 "input": "input", "payload": "payload"}  # fmt: skip
_LOCATION_KEYS = ("line", "column", "program")
_INTERRUPT_KEYS = {"type", "outerToolCallId", "continuation", "requests", *_REQUEST_KEYS}


class InterruptRequested(BaseException):
    """Carries a pause out of a tool. Not an `Exception`, so that a tool's own error handling does not catch it."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        super().__init__(payload["kind"])
        self.payload = dict(payload)


@record(kw_only=True)
class PendingRequest:
    """One call that waits for an answer. ``input`` is the validated input that will run; ``payload`` says why it waits.

    ``line`` and ``column`` are its position in the program, counted from 1, if known. ``program`` is the saved
    program that makes the call, with its line, as in "weekly_report:3".
    """

    APPROVAL: ClassVar[str] = APPROVAL_KIND
    """The ``kind`` in the payload of a call that a person allows or denies."""
    UNKNOWN_OUTCOME: ClassVar[str] = UNKNOWN_OUTCOME_KIND
    """The ``kind`` in the payload of a call that started and whose outcome is unknown."""

    interrupt_id: str
    tool_name: str
    tool_call_id: str
    input: Any
    payload: Mapping[str, Any]
    line: int | None = None
    column: int | None = None
    program: str | None = None

    @property
    def is_approval(self) -> bool:
        """True if a person must decide whether this call may run."""
        return self.payload.get("kind") == APPROVAL_KIND

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON in the AI SDK's key names, which a browser can hold.

        Integers beyond 2^53 are text, and ``bigIntegers`` lists them as JSON pointers.
        """
        return {**protect_integers(self.comparison_fields()), **self._get_location_fields()}

    @property
    def place(self) -> tuple[int, int] | None:
        """Line and column, if known."""
        return None if self.line is None or self.column is None else (self.line, self.column)

    def _get_location_fields(self) -> dict[str, Any]:
        return {key: value for key in _LOCATION_KEYS if (value := getattr(self, key)) is not None}

    def comparison_fields(self) -> dict[str, Any]:
        """Return the fields with exact integers, for comparison."""
        return {key: getattr(self, name) for key, name in _REQUEST_KEYS.items()}

    @classmethod
    def from_dict(cls, value: object) -> PendingRequest:
        """Read a request, with or without ``bigIntegers``. Raises `CodeModeProtocolError` for another shape."""
        if not is_object(value) or value.keys() - {POINTERS_KEY, *_LOCATION_KEYS} != _REQUEST_KEYS.keys():
            raise CodeModeProtocolError("a pending request of the interrupt is malformed")
        try:
            body = restore_listed_integers(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise CodeModeProtocolError(f"a pending request of the interrupt is malformed: {error}") from error
        texts = ("interruptId", "toolName", "toolCallId")
        if not all(isinstance(body[key], str) for key in texts) or not isinstance(body["payload"], dict):
            raise CodeModeProtocolError("a pending request of the interrupt is malformed")
        line, column = _read_location(value)
        program = value.get("program")
        if program is not None and not isinstance(program, str):
            raise CodeModeProtocolError("a pending request of the interrupt is malformed")
        named = {name: body[key] for key, name in _REQUEST_KEYS.items()}
        return cls(**named, line=line, column=column, program=program)

    @classmethod
    def from_ledger_entry(cls, entry: LedgerEntry) -> PendingRequest:
        """Return the request of a waiting ledger entry."""
        waiting = entry.outcome
        if not isinstance(waiting, Waiting):
            raise TypeError("the entry does not wait")
        try:
            displayed_input = None if waiting.input_json is None else decode_json(waiting.input_json)
            payload = decode_json(waiting.payload_json)
        except ValueError as error:
            raise CodeModeProtocolError(f"a waiting request cannot be read: {error}") from error
        return cls(
            interrupt_id=waiting.interrupt_id,
            tool_name=entry.name,
            tool_call_id=entry.tool_call_id or "",
            input=displayed_input,
            payload=payload,
            **to_location_fields(entry.location),
        )


_NO_REQUEST = PendingRequest(interrupt_id="", tool_name="", tool_call_id="", input=None, payload={})


@dataclass(frozen=True, kw_only=True, slots=True)
class Interrupt:
    """A paused invocation. ``requests`` are all waiting calls; the fields of the first are also the interrupt's own.

    ``continuation`` is signed by this host and opaque; keep the whole interrupt and pass it to
    `continue_interrupt`. ``is_stored``: a store has it, so that another host may resume it. This is not in its
    JSON.
    """

    requests: tuple[PendingRequest, ...]
    outer_tool_call_id: str
    continuation: Mapping[str, Any]
    is_stored: bool = field(default=False, compare=False, repr=False)

    @staticmethod
    def find_outer_id(interrupt_id: str) -> str | None:
        """Return the id of the outer call of an interrupt id; None for any other id."""
        return parse_outer_call_id(interrupt_id)

    @staticmethod
    def find_recovery(error: CodeModeError) -> Interrupt | None:
        """Return the interrupt of an error from which to resume after these answers were cut off.

        None if the host was lost: its calls after the answered ones are unknown.
        """
        is_lost = error.details.get("origin") == "continuation"
        is_known = isinstance(error, CodeModeAbortedError) and not is_lost and isinstance(error.recovery, Interrupt)
        return cast("Interrupt", error.recovery) if is_known else None

    @property
    def interrupt_id(self) -> str:
        """The id of the first pending request; "" if nothing waits, as in some recoveries."""
        return self._first_request.interrupt_id

    @property
    def tool_name(self) -> str:
        """The tool of the first pending request."""
        return self._first_request.tool_name

    @property
    def tool_call_id(self) -> str:
        """The call id of the first pending request."""
        return self._first_request.tool_call_id

    @property
    def input(self) -> Any:
        """The validated input of the first pending request."""
        return self._first_request.input

    @property
    def payload(self) -> Mapping[str, Any]:
        """Why the first pending request waits."""
        return self._first_request.payload

    @property
    def _first_request(self) -> PendingRequest:
        return self.requests[0] if self.requests else _NO_REQUEST

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON in the AI SDK's shape, with ``requests`` for the bundle."""
        return {
            "type": INTERRUPT_TYPE,
            **protect_integers(self._first_request.comparison_fields()),
            "outerToolCallId": self.outer_tool_call_id,
            "continuation": dict(self.continuation),
            "requests": [request.to_dict() for request in self.requests],
        }

    @classmethod
    def from_dict(cls, value: object) -> Interrupt:
        """Read an interrupt; a resume verifies its signature. Raises `CodeModeProtocolError` for another shape."""
        if not is_mapping(value) or set(value) - {POINTERS_KEY} != _INTERRUPT_KEYS:
            raise CodeModeProtocolError(
                "this is not an interrupt of code mode: give the Interrupt itself, or all that its to_dict() gave"
            )
        requests, continuation = value["requests"], value["continuation"]
        if not is_array(requests) or not is_object(continuation):
            raise CodeModeProtocolError("the interrupt is malformed")
        if value["type"] != INTERRUPT_TYPE or not isinstance(value["outerToolCallId"], str):
            raise CodeModeProtocolError("the interrupt is malformed")
        pending = tuple(PendingRequest.from_dict(item) for item in requests)
        interrupt = cls(requests=pending, outer_tool_call_id=value["outerToolCallId"], continuation=continuation)
        own = PendingRequest.from_dict({key: value[key] for key in (*_REQUEST_KEYS, POINTERS_KEY) if key in value})
        if not is_same_json(own.comparison_fields(), interrupt._first_request.comparison_fields()):
            raise CodeModeProtocolError("the interrupt's own fields are not those of its first request")
        return interrupt

    @classmethod
    def from_value(cls, value: Resumable | Mapping[str, Any]) -> Interrupt:
        """Return an interrupt as it is, or read it from plain JSON."""
        return value if isinstance(value, Interrupt) else cls.from_dict(value)


def to_location_fields(location: SourceLocation | None) -> dict[str, Any]:
    """Return the location of a call: line and column, or the saved program with its line."""
    if location is None:
        return {}
    if len(location) == 3:
        return {"program": f"{location[2]}:{location[0]}"}
    return {"line": location[0], "column": location[1]}


def _read_location(value: Mapping[str, Any]) -> tuple[int, int] | tuple[None, None]:
    line, column = value.get("line"), value.get("column")
    if line is None and column is None:
        return None, None
    if type(line) is not int or type(column) is not int or min(line, column) < 1:
        raise CodeModeProtocolError("a pending request of the interrupt is malformed")
    return line, column


def request_interrupt(payload: Mapping[str, Any]) -> NoReturn:
    """Pause the program until it gets an answer; call this inside a tool. Does not return.

    ``payload`` is a JSON object with a non-empty text ``kind``. When the program resumes, the tool runs again from
    its start and finds the answer in ``context.interrupt``. Raises `TypeError` for another payload.
    """
    kind = payload.get("kind") if isinstance(payload, Mapping) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if not isinstance(kind, str) or not kind:
        raise TypeError("an interrupt's payload must be an object with a non-empty string 'kind'")
    if kind in (APPROVAL_KIND, UNKNOWN_OUTCOME_KIND):
        raise TypeError(f"the interrupt kind {kind!r} is reserved")
    raise InterruptRequested(payload)


def find_interrupt_request(error: BaseException) -> InterruptRequested | None:
    """Return the interrupt request in an exception of a tool; task groups wrap it."""
    if isinstance(error, InterruptRequested):
        return error
    return next((request for inner in get_group_members(error) if (request := find_interrupt_request(inner))), None)


def convert_to_pending_requests(entries: Iterable[LedgerEntry]) -> tuple[PendingRequest, ...]:
    """Return the pending requests in issue order. Raises `CodeModeProtocolError` for texts that are not JSON."""
    return tuple(PendingRequest.from_ledger_entry(entry) for entry in entries)


def is_same_json(left: Any, right: Any) -> bool:
    """Compare plain JSON: 1 and true differ; 1 and 1.0 are equal, because a browser writes both as 1.

    Stops at the first difference, so that a hostile value costs no more than the other one.
    """
    # Iterators and integers instead of tuples: very many tuples would trigger the garbage collector.
    pending, seen = [iter([(left, right)])], set[int]()
    while pending:
        pair = next(pending[-1], None)
        if pair is None:
            pending.pop()
            continue
        first, second = pair
        if not isinstance(first, dict | list | tuple):
            if not _are_scalars_equal(first, second):
                return False
            continue
        container = cast("Collection[Any]", first)
        both = id(container) << 64 | id(second)
        pairs = () if both in seen else _pair_items(container, second)  # a host's own value may be circular
        if pairs is None:
            return False
        seen.add(both)
        pending.append(iter(pairs))
    return True


def _pair_items(first: Any, second: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return pairs of items to compare in two containers; None if they differ already."""
    if not is_object(first):
        return zip(first, second, strict=True) if is_sequence(second) and len(first) == len(second) else None
    if not is_object(second) or first.keys() != second.keys():
        return None
    return ((value, second[key]) for key, value in first.items()) if all(map(_is_text, first)) else None


def _is_text(key: object) -> bool:
    return isinstance(key, str)


def _are_scalars_equal(first: Any, second: Any) -> bool:
    if first is None or isinstance(first, bool):
        return first is second
    if isinstance(first, str):
        return isinstance(second, str) and first == second
    are_numbers = all(isinstance(number, int | float) and not isinstance(number, bool) for number in (first, second))
    if not are_numbers or (isinstance(first, float) and isinf(first)):
        return False
    return first == second or to_browser_number(first) == to_browser_number(second)


FRAMEWORK_KEY = "keptBy"
"""The key that names the framework of an agent's pause."""


def make_agent_interrupt(
    requests: Iterable[PendingRequest], *, framework: str, key: str, outer_tool_call_id: str, expires_at_ms: int
) -> Interrupt:
    """Return the pause of an agent as an interrupt for a store; no program resumes from it.

    ``framework`` is the agent's framework, ``key`` identifies the pause.
    """
    continuation = {FRAMEWORK_KEY: framework, "auth": {"nonce": key, "expiresAtMs": expires_at_ms}}
    return Interrupt(requests=tuple(requests), outer_tool_call_id=outer_tool_call_id, continuation=continuation)


def get_agent_framework(continuation: Mapping[str, Any]) -> str | None:
    """Return the framework that resumes this pause; None for a program's continuation."""
    framework = continuation.get(FRAMEWORK_KEY)
    is_agent_interrupt = set(continuation) == {FRAMEWORK_KEY, "auth"} and is_mapping(continuation["auth"])
    return framework if is_agent_interrupt and isinstance(framework, str) else None
