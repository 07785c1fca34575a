"""A paused invocation or agent as the host sees it, and refusals to resume it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import isinf
from typing import Any, ClassVar, NoReturn, cast

from ..data.exact_integers import PLACES_KEY, as_browsers_write, protect_integers, restore_listed_integers
from ..data.json_values import decode_json
from ..data.narrowing import is_array, is_mapping, is_object, is_sequence
from ..errors import CodeModeAbortedError, CodeModeError, CodeModeProtocolError, Resumable
from ..protocol.ledger import UNKNOWN_OUTCOME_KIND, LedgerEntry, Waiting, outer_id_of
from ..protocol.messages import Place
from ..records import record
from ..trace.events import INTERRUPT_TYPE
from ..trace.failures import members_of

APPROVAL_KIND = "ai-sdk-code-mode/tool-approval"
_REQUEST_KEYS = {"interruptId": "interrupt_id", "toolName": "tool_name", "toolCallId": "tool_call_id",
                 "input": "input", "payload": "payload"}  # fmt: skip
_PLACE_KEYS = ("line", "column", "program")
_INTERRUPT_KEYS = {"type", "outerToolCallId", "continuation", "requests", *_REQUEST_KEYS}


class InterruptRequested(BaseException):
    """Carries a pause out of a tool. No `Exception`, so that a tool's own error handling does not swallow it."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        super().__init__(payload["kind"])
        self.payload = dict(payload)


@record(kw_only=True)
class PendingRequest:
    """One call that waits for an answer. ``input`` is the validated input, exactly what runs; ``payload`` says why.

    ``line`` and ``column`` are its place in the program, counted from 1, where that is known. ``program`` is the saved
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
        """True when a person is to decide whether this call may run."""
        return self.payload.get("kind") == APPROVAL_KIND

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON in the AI SDK's key names, which a browser can hold.

        Integers beyond 2^53 are text in it, and ``bigIntegers`` lists where, as JSON pointers.
        """
        return {**protect_integers(self.shown()), **self._placed()}

    @property
    def place(self) -> tuple[int, int] | None:
        """Line and column, where they are known."""
        return None if self.line is None or self.column is None else (self.line, self.column)

    def _placed(self) -> dict[str, Any]:
        return {key: value for key in _PLACE_KEYS if (value := getattr(self, key)) is not None}

    def shown(self) -> dict[str, Any]:
        """Return the same with its integers as they are: what is compared."""
        return {key: getattr(self, name) for key, name in _REQUEST_KEYS.items()}

    @classmethod
    def from_dict(cls, value: object) -> PendingRequest:
        """Read it back, with or without ``bigIntegers``. Raises `CodeModeProtocolError` for another shape."""
        if not is_object(value) or value.keys() - {PLACES_KEY, *_PLACE_KEYS} != _REQUEST_KEYS.keys():
            raise CodeModeProtocolError("a pending request of the interrupt is malformed")
        try:
            body = restore_listed_integers(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise CodeModeProtocolError(f"a pending request of the interrupt is malformed: {error}") from error
        texts = ("interruptId", "toolName", "toolCallId")
        if not all(isinstance(body[key], str) for key in texts) or not isinstance(body["payload"], dict):
            raise CodeModeProtocolError("a pending request of the interrupt is malformed")
        line, column = _read_place(value)
        program = value.get("program")
        if program is not None and not isinstance(program, str):
            raise CodeModeProtocolError("a pending request of the interrupt is malformed")
        named = {name: body[key] for key, name in _REQUEST_KEYS.items()}
        return cls(**named, line=line, column=column, program=program)

    @classmethod
    def of(cls, entry: LedgerEntry) -> PendingRequest:
        """Return the request of a ledger entry that waits."""
        waiting = entry.outcome
        if not isinstance(waiting, Waiting):
            raise TypeError("the entry does not wait")
        try:
            shown = None if waiting.input_json is None else decode_json(waiting.input_json)
            payload = decode_json(waiting.payload_json)
        except ValueError as error:
            raise CodeModeProtocolError(f"a waiting request cannot be read: {error}") from error
        return cls(
            interrupt_id=waiting.interrupt_id,
            tool_name=entry.name,
            tool_call_id=entry.tool_call_id or "",
            input=shown,
            payload=payload,
            **told_place(entry.place),
        )


_NO_REQUEST = PendingRequest(interrupt_id="", tool_name="", tool_call_id="", input=None, payload={})


@dataclass(frozen=True, kw_only=True, slots=True)
class Interrupt:
    """A paused invocation. ``requests`` are all calls that wait; the fields of the first are also the interrupt's own.

    ``continuation`` is signed by this host and opaque; keep the whole interrupt and give it to `continue_interrupt`.
    ``is_stored``: a store has it, so that another host may go on where this one cannot. It is not in its JSON.
    """

    requests: tuple[PendingRequest, ...]
    outer_tool_call_id: str
    continuation: Mapping[str, Any]
    is_stored: bool = field(default=False, compare=False, repr=False)

    @staticmethod
    def find_outer_id(interrupt_id: str) -> str | None:
        """Return the id of the outer call in which a call waits under this id; None for any other id."""
        return outer_id_of(interrupt_id)

    @staticmethod
    def find_recovery(error: CodeModeError) -> Interrupt | None:
        """Return the pause from which a program resumes that was cut off before by these answers.

        None where its host was lost: no one knows which calls that host made after the answered ones.
        """
        is_lost = error.details.get("origin") == "continuation"
        is_known = isinstance(error, CodeModeAbortedError) and not is_lost and isinstance(error.recovery, Interrupt)
        return cast("Interrupt", error.recovery) if is_known else None

    @property
    def interrupt_id(self) -> str:
        """The id of the first pending request, or an empty text when nothing waits (a recovery may be so)."""
        return self._first.interrupt_id

    @property
    def tool_name(self) -> str:
        """The tool of the first pending request."""
        return self._first.tool_name

    @property
    def tool_call_id(self) -> str:
        """The call id of the first pending request."""
        return self._first.tool_call_id

    @property
    def input(self) -> Any:
        """The validated input of the first pending request."""
        return self._first.input

    @property
    def payload(self) -> Mapping[str, Any]:
        """Why the first pending request waits."""
        return self._first.payload

    @property
    def _first(self) -> PendingRequest:
        return self.requests[0] if self.requests else _NO_REQUEST

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON in the AI SDK's shape, with ``requests`` for the bundle."""
        return {
            "type": INTERRUPT_TYPE,
            **protect_integers(self._first.shown()),
            "outerToolCallId": self.outer_tool_call_id,
            "continuation": dict(self.continuation),
            "requests": [request.to_dict() for request in self.requests],
        }

    @classmethod
    def from_dict(cls, value: object) -> Interrupt:
        """Read it back; whoever resumes it checks the signature. Raises `CodeModeProtocolError` for another shape."""
        if not is_mapping(value) or set(value) - {PLACES_KEY} != _INTERRUPT_KEYS:
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
        own = PendingRequest.from_dict({key: value[key] for key in (*_REQUEST_KEYS, PLACES_KEY) if key in value})
        if not same_json(own.shown(), interrupt._first.shown()):
            raise CodeModeProtocolError("the interrupt's own fields are not those of its first request")
        return interrupt

    @classmethod
    def of(cls, value: Resumable | Mapping[str, Any]) -> Interrupt:
        """Take an interrupt as it is or as the plain JSON of `to_dict`."""
        return value if isinstance(value, Interrupt) else cls.from_dict(value)


def told_place(place: Place | None) -> dict[str, Any]:
    """Return a call's place as it is told: line and column in the program, or the saved program with its line."""
    if place is None:
        return {}
    if len(place) == 3:
        return {"program": f"{place[2]}:{place[0]}"}
    return {"line": place[0], "column": place[1]}


def _read_place(value: Mapping[str, Any]) -> tuple[int, int] | tuple[None, None]:
    line, column = value.get("line"), value.get("column")
    if line is None and column is None:
        return None, None
    if type(line) is not int or type(column) is not int or min(line, column) < 1:
        raise CodeModeProtocolError("a pending request of the interrupt is malformed")
    return line, column


def request_interrupt(payload: Mapping[str, Any]) -> NoReturn:
    """Pause the program until somebody outside answers; call it inside a tool. Does not return.

    ``payload`` is a JSON object with a non-empty text ``kind``, for whoever answers. When the program goes on the tool
    runs again from its start and finds the answer in ``context.interrupt``. Raises `TypeError` for another payload.
    """
    kind = payload.get("kind") if isinstance(payload, Mapping) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if not isinstance(kind, str) or not kind:
        raise TypeError("an interrupt's payload must be an object with a non-empty string 'kind'")
    if kind in (APPROVAL_KIND, UNKNOWN_OUTCOME_KIND):
        raise TypeError(f"the interrupt kind {kind!r} is reserved")
    raise InterruptRequested(payload)


def interrupt_within(error: BaseException) -> InterruptRequested | None:
    """Return the pause in what a tool raised; task groups wrap it into exception groups."""
    if isinstance(error, InterruptRequested):
        return error
    return next((found for inner in members_of(error) if (found := interrupt_within(inner))), None)


def pending_requests(entries: Iterable[LedgerEntry]) -> tuple[PendingRequest, ...]:
    """Return what waits, in issue order. Raises `CodeModeProtocolError` for texts that are not JSON."""
    return tuple(PendingRequest.of(entry) for entry in entries)


def same_json(left: Any, right: Any) -> bool:
    """Compare plain JSON: 1 and true are two values; 1 and 1.0 are one, for a browser writes both as 1.

    Ends at the first difference: a hostile value costs no more than the one it is compared with.
    """
    # Iterators, and numbers for pairs: very many tuples would bring the collector, which looks at all there is.
    pending, seen = [iter([(left, right)])], set[int]()
    while pending:
        pair = next(pending[-1], None)
        if pair is None:
            pending.pop()
            continue
        one, other = pair
        if not isinstance(one, dict | list | tuple):
            if not _same_scalar(one, other):
                return False
            continue
        container = cast("Collection[Any]", one)
        both = id(container) << 64 | id(other)
        pairs = () if both in seen else _pairs(container, other)  # a host's own value may hold itself
        if pairs is None:
            return False
        seen.add(both)
        pending.append(iter(pairs))
    return True


def _pairs(one: Any, other: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return what is to be the same within two containers, None when they differ already."""
    if not is_object(one):
        return zip(one, other, strict=True) if is_sequence(other) and len(one) == len(other) else None
    if not is_object(other) or one.keys() != other.keys():
        return None
    return ((value, other[key]) for key, value in one.items()) if all(map(_is_text, one)) else None


def _is_text(key: object) -> bool:
    return isinstance(key, str)


def _same_scalar(one: Any, other: Any) -> bool:
    if one is None or isinstance(one, bool):
        return one is other
    if isinstance(one, str):
        return isinstance(other, str) and one == other
    are_numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    if not are_numbers or (isinstance(one, float) and isinf(one)):
        return False
    return one == other or as_browsers_write(one) == as_browsers_write(other)


KEPT_BY = "keptBy"
"""Under which a pause, and a record of it, name what goes on with them."""


def agent_pause(
    requests: Iterable[PendingRequest], *, kept_by: str, key: str, outer_tool_call_id: str, expires_at_ms: int
) -> Interrupt:
    """Return the pause of an agent as an interrupt that a store keeps and no program goes on from.

    ``kept_by`` is the framework, ``key`` tells this pause from every other.
    """
    continuation = {KEPT_BY: kept_by, "auth": {"nonce": key, "expiresAtMs": expires_at_ms}}
    return Interrupt(requests=tuple(requests), outer_tool_call_id=outer_tool_call_id, continuation=continuation)


def kept_by(continuation: Mapping[str, Any]) -> str | None:
    """Return the framework that goes on with this; None for what continues a program."""
    found = continuation.get(KEPT_BY)
    is_one = set(continuation) == {KEPT_BY, "auth"} and is_mapping(continuation["auth"])
    return found if is_one and isinstance(found, str) else None
