"""All errors of codemode, and the part of them that the guest may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, Protocol, TypedDict, cast

if TYPE_CHECKING:
    from .trace.trace import Trace

MAX_GUEST_MESSAGE_CHARACTERS = 20_000
"""Limit of an error's message. Messages of tools and servers are untrusted data."""

HOST_TOOL_ERROR = "CODE_MODE_HOST_TOOL_ERROR"
HOST_FETCH_ERROR = "CODE_MODE_HOST_FETCH_ERROR"
HOST_BRIDGE_ERROR = "CODE_MODE_HOST_BRIDGE_ERROR"
CALL_TIMEOUT = "CODE_MODE_CALL_TIMEOUT"
"""A call started and timed out: whether it took effect is unknown."""


class ResumableRequest(Protocol):
    """A waiting call, such as `PendingRequest`."""

    @property
    def interrupt_id(self) -> str:
        """The id by which answers refer to it."""
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
    """A point to resume a program from, such as `Interrupt`. Its own fields are those of the first request."""

    @property
    def requests(self) -> tuple[ResumableRequest, ...]:
        """All waiting calls."""
        ...

    @property
    def outer_tool_call_id(self) -> str:
        """The id of the model's own call."""
        ...

    @property
    def continuation(self) -> Mapping[str, Any]:
        """The signed continuation. Opaque."""
        ...


class CallSummary(TypedDict):
    """A call of a program, and its state when the program ended.

    ``is_started``: the tool itself may have started. A call with status unknown that is not started had no effect;
    denied is a call that a person refused. ``kind`` is tool, fetch or catalog (a query about tools). ``reads_only``:
    repeating it is harmless. ``input`` and ``result`` are JSON text and ``error`` is the message for the program, all
    shortened; only the first calls have them. ``kept`` is the key of the whole result in `state`.
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
    """An invocation failed. Also raised for an error that the program threw.

    ``code`` names the condition. ``details`` is for the host's diagnosis and never reaches the guest; for an error
    thrown by the program it holds ``name``, ``line``, ``column`` (1-based, in the model's source) and ``stack``, and
    the program's own ``details`` and ``code``. ``trace`` is the invocation's `Trace` once it has ended. ``calls`` lists
    the program's calls, each a `CallSummary` with status fulfilled, rejected, denied, waiting or unknown. After a
    timeout, an abort or the death of a worker ``recovery`` is an `Interrupt` from which the program can be resumed;
    calls with an unknown outcome wait in it.
    """

    default_code: ClassVar[str] = "CODE_MODE_ERROR"
    reason: str = "execution"
    """Why a call failed, set where the error arises; surfaces map it to their own codes."""

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


def to_guest_error_fields(error: CodeModeError) -> tuple[str, str, str]:
    """Return name, message and code of a host error for the guest.

    Messages of tools' own exceptions are replaced, as they may contain paths, hosts or secrets. Very long messages are
    cut.
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
"""Codes of errors whose text the guest never sees: the exception is their ``__cause__``."""


def error_from_guest_fields(name: str, message: str, code: str) -> CodeModeError:
    """Rebuild a host error from `to_guest_error_fields`, as a signed ledger stores it."""
    # Only classes of this file: others may take more arguments.
    known = {
        error_class.__name__: error_class
        for error_class in _list_subclasses(CodeModeError)
        if error_class.__module__ == __name__
    }
    if code in _SANITIZED_MESSAGES:
        return CodeModeToolError("the tool failed in an earlier part of this invocation", code=code)
    return known.get(name, CodeModeError if name == "CodeModeError" else CodeModeToolError)(message, code=code)


def _list_subclasses(parent: type[CodeModeError]) -> list[type[CodeModeError]]:
    return [cls for child in parent.__subclasses__() for cls in (child, *_list_subclasses(child))]


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
    """The program cannot run as written; nothing ran.

    Details: ``problems``, a list of ``{"message", "line", "column"}`` (1-based), and ``line``, ``column`` of the first.
    """

    default_code = "CODE_MODE_SYNTAX_ERROR"


class CodeModeIllegalAccessError(CodeModeError):
    """The program breaks the rules of its surface; nothing ran.

    Details: ``violations``, a list of ``{"kind", "name"?, "location": {"line", "column"}}`` (1-based), and ``line``,
    ``column`` of the first.
    """

    default_code = "CODE_MODE_ILLEGAL_ACCESS"


class CodeModeSerializationError(CodeModeError):
    """A value is not JSON, or is too large.

    Details for a size: ``bytes``, ``max_bytes``; for a call's value ``kind``, the kind of call.
    """

    default_code = "CODE_MODE_SERIALIZATION_ERROR"


class CodeModeBridgeLimitError(CodeModeError):
    """The program made more calls than allowed, in total or at once. Details: ``limit``, ``max``."""

    default_code = "CODE_MODE_BRIDGE_LIMIT"


class CodeModeDetachedBridgeRequestError(CodeModeError):
    """The program ended with an unawaited call. Details: ``calls``, each with id, kind, name and status."""

    default_code = "CODE_MODE_DETACHED_BRIDGE_REQUEST"


class CodeModeProtocolError(CodeModeError):
    """A worker, a continuation or a decision broke the rules. Guest code can neither cause nor catch it."""

    default_code = "CODE_MODE_PROTOCOL_ERROR"

    @property
    def is_pause_already_answered(self) -> bool:
        """True if the pause had already been answered: the earlier answers stand, and these had no effect."""
        return self.details.get("superseded") is True

    def explain_failed_resume(self, what: str, *, first: str, otherwise: str) -> str:
        """Explain to a framework's users why a pause cannot be resumed, and what to do.

        ``what`` says what cannot be done, ``first`` what the framework has of the run after the first answers,
        ``otherwise`` what a pause also needs there.
        """
        if self.is_pause_already_answered:
            return (
                f"{what}: it was answered before: {self.message}. Continue with {first} from the first answers;"
                " repeating the same answers returns the same outcome and runs nothing."
            )
        if self.details.get("is_edit_invalid") is True:
            return f"{what}: {self.message}. Nothing ran: decide again with {first} from before this decision."
        if self.details.get("origin") == "decision":
            return f"{what}: {self.message}."
        keys = "Set a signing key that outlives the process (CODEMODE_SIGNING_KEY or set_continuation_signing_key)"
        return (
            f"{what}: {self.message}. {keys}, and how long a pause is valid with continuation.max_age_ms; {otherwise}."
        )


class CodeModeToolError(CodeModeError):
    """A tool is unknown or not executable, got invalid input or violated its output schema.

    Details: ``tool_name`` and, if known, ``tool_call_id``, ``available_tools``, ``problems`` with ``schema``, "input"
    or "output".
    """

    default_code = "CODE_MODE_TOOL_ERROR"


class CodeModeToolApprovalRequiredError(CodeModeToolError):
    """A call needs approval and there is no approver."""

    default_code = "CODE_MODE_TOOL_APPROVAL_REQUIRED"


class CodeModeToolApprovalDeniedError(CodeModeToolError):
    """A call was denied. Details: ``reason`` when the person gave one."""

    default_code = "CODE_MODE_TOOL_APPROVAL_DENIED"


class CodeModeHttpError(CodeModeToolError):
    """An API answered with an error status. Programs read its details as fields of the error.

    Details: ``status``, ``body`` (parsed, shortened; absent without one), ``retryAfterMs`` if the API sent it.
    """

    default_code = "CODE_MODE_HTTP_ERROR"


HTTP_FIELDS = ("status", "body", "retryAfterMs")


def get_http_error_fields(error: CodeModeError) -> dict[str, Any]:
    """Return the fields of an API's error that programs read."""
    if not isinstance(error, CodeModeHttpError):
        return {}
    return {name: error.details[name] for name in HTTP_FIELDS if name in error.details}


def parse_http_error_fields(value: Any) -> dict[str, Any]:
    """Return the fields of an API's error in the structured content of a failed result; else none."""
    if not isinstance(value, dict):
        return {}
    fields = cast("dict[str, Any]", value)
    return fields if type(fields.get("status")) is int and fields.keys() <= {*HTTP_FIELDS} else {}


class CodeModeAuthenticationError(CodeModeToolError):
    """A tool needs a sign-in to its service first. Raised by the tool."""

    default_code = "CODE_MODE_AUTHENTICATION"


class CodeModeFetchError(CodeModeError):
    """The fetch policy refused a request or a response."""

    default_code = "CODE_MODE_FETCH_ERROR"


class CodeModeWorkerError(CodeModeError):
    """The worker could not be started, refused to start, or died without a result."""

    default_code = "CODE_MODE_WORKER_ERROR"


CUT_OFF_ERRORS = (CodeModeAbortedError, CodeModeConcurrencyError, CodeModeTimeoutError, CodeModeWorkerError)
"""Errors that are not the program's: it was interrupted or not started, and may succeed when repeated."""
