"""The whole error tree. Knows what each failure is called, and what of it the guest may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, Protocol, TypedDict, cast

if TYPE_CHECKING:
    from .trace.trace import Trace

MAX_GUEST_MESSAGE_CHARACTERS = 20_000
"""Of an error's message. What a tool, or the server behind it, says in one is data like any other."""

HOST_TOOL_ERROR = "CODE_MODE_HOST_TOOL_ERROR"
HOST_FETCH_ERROR = "CODE_MODE_HOST_FETCH_ERROR"
HOST_BRIDGE_ERROR = "CODE_MODE_HOST_BRIDGE_ERROR"
CALL_TIMEOUT = "CODE_MODE_CALL_TIMEOUT"
"""A call was begun and did not answer in its time: whether it happened is not known."""


class ResumableRequest(Protocol):
    """One call that waits, as `PendingRequest` is."""

    @property
    def interrupt_id(self) -> str:
        """What names it in an answer."""
        ...

    @property
    def tool_name(self) -> str:
        """The tool that is called."""
        ...

    @property
    def tool_call_id(self) -> str:
        """The id of the call."""
        ...

    @property
    def input(self) -> Any:
        """The validated input of the call, as plain JSON."""
        ...

    @property
    def payload(self) -> Mapping[str, Any]:
        """Why it waits: a JSON object with a ``kind``."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON in the AI SDK's key names."""
        ...


class Resumable(ResumableRequest, Protocol):
    """What a program can go on from, as `Interrupt` is. Its own fields are those of the first request."""

    @property
    def requests(self) -> tuple[ResumableRequest, ...]:
        """All calls that wait."""
        ...

    @property
    def outer_tool_call_id(self) -> str:
        """The model's own call."""
        ...

    @property
    def continuation(self) -> Mapping[str, Any]:
        """What the host has signed. Opaque."""
        ...


class CallSummary(TypedDict):
    """One call that a program had made, and how it stands when the program has ended.

    ``is_started``: the tool itself may have begun. ``status`` unknown without it is a call that did nothing; denied is
    one that somebody refused. ``kind`` is tool, fetch or catalog, a question about tools. ``reads_only``: it may be
    made again without harm. ``input`` and ``result`` are JSON text and ``error`` is the message that the program got,
    each of them shortened; only the first calls have them. ``kept`` is where programs find the whole result in `state`.
    """

    id: str
    name: str
    status: Literal["fulfilled", "rejected", "denied", "waiting", "unknown"]
    is_started: bool
    kind: NotRequired[str]
    reads_only: NotRequired[bool]
    input: NotRequired[str]
    result: NotRequired[str]
    error: NotRequired[str]
    kept: NotRequired[str]


class CodeModeError(Exception):
    """An invocation failed. Also raised as it is when the program itself threw an error.

    ``code`` names the condition. ``details`` is for the host's own diagnosis and never reaches the guest; for an error
    thrown by the program it holds ``name``, ``line``, ``column`` (1-based, in the model's source) and ``stack``, and
    under ``details`` and ``code`` what the program had put there.
    ``trace`` is the invocation's `Trace` once it has ended. ``calls`` lists the calls that the program had made, each
    a `CallSummary` with status fulfilled, rejected, denied, waiting or unknown. After a timeout, an abort or the
    death of a worker ``recovery`` is an `Interrupt` from which the program can go on; calls of unknown outcome wait in
    it.
    """

    default_code: ClassVar[str] = "CODE_MODE_ERROR"
    reason: str = "execution"
    """Why a call failed, set where the error arises: a surface has words of its own for it."""

    def __init__(self, message: str, *, code: str | None = None, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code if code is not None else self.default_code
        self.details: dict[str, Any] = dict(details) if details is not None else {}
        self.trace: Trace | None = None
        self.calls: tuple[CallSummary, ...] = ()
        self.recovery: Resumable | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments: the default of Exception would call the class with the message alone.
        return (_restore_error, (type(self), self.message, self.code, self.details))


def to_guest_view(error: CodeModeError) -> tuple[str, str, str]:
    """Return name, message and code of a host error as the guest may see it.

    What a tool or a fetch raised itself is not shown at all: its text may hold paths, hosts or secrets. Of a very long
    message only the beginning is.
    """
    if error.code in (HOST_TOOL_ERROR, HOST_FETCH_ERROR, HOST_BRIDGE_ERROR):
        return "Error", _SANITIZED_MESSAGES[error.code], error.code
    message = error.message
    if len(message) > MAX_GUEST_MESSAGE_CHARACTERS:
        message = message[: MAX_GUEST_MESSAGE_CHARACTERS - 1] + "\u2026"
    return type(error).__name__, message, error.code


_SANITIZED_MESSAGES = {
    HOST_TOOL_ERROR: "the tool failed",
    HOST_FETCH_ERROR: "the request failed",
    HOST_BRIDGE_ERROR: "the call failed",
}
HIDDEN_CODES = frozenset(_SANITIZED_MESSAGES)
"""Codes of errors whose text a guest never sees: what was raised is their ``__cause__``."""


def error_from_view(name: str, message: str, code: str) -> CodeModeError:
    """Return a host error again from what `to_guest_view` gave of it, as it stands in a signed ledger."""
    # Only the classes of this file: another's constructor may want more than a message.
    known = {
        error_class.__name__: error_class
        for error_class in _subclasses(CodeModeError)
        if error_class.__module__ == __name__
    }
    if code in _SANITIZED_MESSAGES:
        return CodeModeToolError("the tool failed in an earlier part of this invocation", code=code)
    return known.get(name, CodeModeError if name == "CodeModeError" else CodeModeToolError)(message, code=code)


def _subclasses(parent: type[CodeModeError]) -> list[type[CodeModeError]]:
    return [cls for child in parent.__subclasses__() for cls in (child, *_subclasses(child))]


def _restore_error(cls: type[CodeModeError], message: str, code: str, details: dict[str, Any]) -> CodeModeError:
    return cls(message, code=code, details=details)


class CodeModeTimeoutError(CodeModeError):
    """The clock passed ``execution_policy.timeout_ms``. Details: ``timeout_ms``."""

    default_code = "CODE_MODE_TIMEOUT"


class CodeModeAbortedError(CodeModeError):
    """The host aborted the invocation."""

    default_code = "CODE_MODE_ABORTED"


class CodeModeConcurrencyError(CodeModeError):
    """No worker slot was free (or became free in time). Details: ``max_workers``."""

    default_code = "CODE_MODE_CONCURRENCY_LIMIT"


class CodeModeSourceTooLargeError(CodeModeError):
    """The program is larger than ``execution_policy.max_source_bytes``. Details: ``bytes``, ``max_bytes``."""

    default_code = "CODE_MODE_SOURCE_TOO_LARGE"


class CodeModeSyntaxError(CodeModeError):
    """The program cannot run as written; nothing of it ran.

    Details: ``problems``, a list of ``{"message", "line", "column"}`` (1-based), and ``line``, ``column`` of the first.
    """

    default_code = "CODE_MODE_SYNTAX_ERROR"


class CodeModeIllegalAccessError(CodeModeError):
    """The program says what the rules of its surface forbid; nothing of it ran.

    Details: ``violations``, a list of ``{"kind", "name"?, "location": {"line", "column"}}`` (1-based), and ``line``,
    ``column`` of the first.
    """

    default_code = "CODE_MODE_ILLEGAL_ACCESS"


class CodeModeSerializationError(CodeModeError):
    """A value is not JSON, or is larger than allowed.

    Details when a size is meant: ``bytes``, ``max_bytes``; of a call's value ``kind``, what was called.
    """

    default_code = "CODE_MODE_SERIALIZATION_ERROR"


class CodeModeBridgeLimitError(CodeModeError):
    """The program made more calls than allowed, in total or at once. Details: ``limit``, ``max``."""

    default_code = "CODE_MODE_BRIDGE_LIMIT"


class CodeModeDetachedBridgeRequestError(CodeModeError):
    """The program ended with a call that nobody awaited. Details: ``calls``, each with id, kind, name and status."""

    default_code = "CODE_MODE_DETACHED_BRIDGE_REQUEST"


class CodeModeProtocolError(CodeModeError):
    """A worker, a continuation or a decision broke the rules; never caused by guest code, never caught by it."""

    default_code = "CODE_MODE_PROTOCOL_ERROR"

    @property
    def was_answered(self) -> bool:
        """True where others have answered a pause before: theirs hold, and these answers have run nothing."""
        return self.details.get("superseded") is True

    def explain(self, what: str, *, first: str, otherwise: str) -> str:
        """Say for a framework's users why a pause cannot be resumed, and what to do.

        ``what`` says what cannot be done, ``first`` what the framework has of the run after the first answers,
        ``otherwise`` what a pause needs there beside its keys and its time.
        """
        if self.was_answered:
            return (
                f"{what}, for it was answered before: {self.message}. Go on with {first} that came of the first"
                " answers; the same answers again give the same outcome, and run nothing."
            )
        keys = "Signing keys that outlive the process are set with codemode.set_continuation_signing_key"
        return f"{what}: {self.message}. {keys}, how long a pause holds with continuation.max_age_ms; and {otherwise}."


class CodeModeToolError(CodeModeError):
    """A tool is unknown, cannot be executed, got wrong input or broke its own output schema.

    Details: ``tool_name`` and, as far as known, ``tool_call_id``, ``available_tools``, ``problems`` with ``schema``:
    which of the two is broken, "input" or "output".
    """

    default_code = "CODE_MODE_TOOL_ERROR"


class CodeModeToolApprovalRequiredError(CodeModeToolError):
    """A call needs approval and nobody is there to give it."""

    default_code = "CODE_MODE_TOOL_APPROVAL_REQUIRED"


class CodeModeToolApprovalDeniedError(CodeModeToolError):
    """A call was denied. Details: ``reason`` when the person gave one."""

    default_code = "CODE_MODE_TOOL_APPROVAL_DENIED"


class CodeModeHttpError(CodeModeToolError):
    """An API answered a call with an error status. Programs read its details as fields of the error.

    Details: ``status``, ``body`` (parsed, shortened; absent without one), ``retryAfterMs`` where the API says when.
    """

    default_code = "CODE_MODE_HTTP_ERROR"


HTTP_FIELDS = ("status", "body", "retryAfterMs")


def http_fields(error: CodeModeError) -> dict[str, Any]:
    """Return the fields of an error of an API that programs read."""
    if not isinstance(error, CodeModeHttpError):
        return {}
    return {name: error.details[name] for name in HTTP_FIELDS if name in error.details}


def api_fields(value: Any) -> dict[str, Any]:
    """Return the fields of an API's error that a failed result has as its structured content; none of any other."""
    if not isinstance(value, dict):
        return {}
    fields = cast("dict[str, Any]", value)
    return fields if type(fields.get("status")) is int and fields.keys() <= {*HTTP_FIELDS} else {}


class CodeModeAuthenticationError(CodeModeToolError):
    """A tool cannot be called before somebody has signed in where it gets what it gives. Raised by the tool."""

    default_code = "CODE_MODE_AUTHENTICATION"


class CodeModeFetchError(CodeModeError):
    """The fetch policy refused a request or a response."""

    default_code = "CODE_MODE_FETCH_ERROR"


class CodeModeWorkerError(CodeModeError):
    """The worker could not be started, refused to start, or died without a result."""

    default_code = "CODE_MODE_WORKER_ERROR"


CUT_OFF_ERRORS = (CodeModeAbortedError, CodeModeConcurrencyError, CodeModeTimeoutError, CodeModeWorkerError)
"""Errors that say nothing of the program: it was cut off, or never begun, and may come to something else again."""
