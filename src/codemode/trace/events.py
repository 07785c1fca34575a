"""Events of an invocation, as frozen values for the host.

They know no worker, tool or listener. Each has a ``to_dict()`` in the AI SDK's key names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeAlias, cast

from ..records import record
from .failures import get_exception_text, iterate_causes
from .late_values import LazyValue, get_stored_value, with_lazy_fields

CallStatus: TypeAlias = Literal["fulfilled", "rejected", "interrupted", "aborted"]
"""How a call ended. Aborted: the invocation ended first, and the effect of the call is unknown."""

INTERRUPT_TYPE = "code-mode-interrupt"
"""What an interrupt calls itself in plain JSON."""


@record(kw_only=True)
class InvocationEvent:
    """Something that happened in one invocation. Times are host wall-clock milliseconds."""

    kind: ClassVar[str] = ""

    invocation_id: str
    outer_tool_call_id: str

    def to_dict(self, *, causes: bool = False) -> dict[str, Any]:
        """Return the event in the AI SDK's camelCase keys, without the fields that are None.

        Calls have a ``kind``, tool or fetch. With ``causes`` an error has a ``cause`` with its own causes:
        exceptions of tools, whose text is not checked.
        """
        values = ((name, getattr(self, name)) for name in self.__match_args__)
        plain = {
            _to_camel_case(name): _to_plain_value(value, causes=causes) for name, value in values if value is not None
        }
        return {"kind": self.kind, **plain} if self.kind else plain


@with_lazy_fields("input", "input_bytes")
@record(kw_only=True)
class NestedToolCallEvent(InvocationEvent):
    """The program called a tool. Comes before lookup, validation and approval. ``bridge_index`` counts from 1.

    With a ``pipeline.before`` it comes after that, with the changed input; None for a call that did not get so far.
    ``resumed``: an earlier event announced the call, which then waited for an answer and now continues. ``program`` is
    the saved program that makes the call, ``line`` its line in that.

    ``input`` is decoded each time it is read, as is ``output`` of a result: store it to use it more than once.
    """

    kind: ClassVar[str] = "tool"

    bridge_index: int
    tool_name: str
    tool_call_id: str
    input: Any
    input_bytes: int
    replayed: bool
    started_at_ms: float
    resumed: bool = False
    program: str | None = None
    line: int | None = None

    @property
    def label(self) -> str:
        """The name of the tool, as the program wrote it."""
        return self.tool_name


@with_lazy_fields("output", "output_bytes", "told_error", "interrupt", "shown_input")
@record(kw_only=True)
class NestedToolResultEvent(NestedToolCallEvent):
    """A nested call ended. ``output`` with ``output_bytes``, ``error`` or ``interrupt`` says how.

    ``told_error`` is what the program reads of an error: ``{"name", "message", "code"}``.
    ``duration_ms`` is how long it took; of a call that was ``replayed``, how long it took when it was made.
    ``interrupt`` is the payload of a pause, ``interrupt_id`` its id and ``shown_input`` the validated input that it
    shows; `to_dict` has them as the AI SDK has: ``interrupt`` is an object with all of it.
    """

    status: CallStatus
    completed_at_ms: float
    duration_ms: float
    output: Any = None
    output_bytes: int | None = None
    error: BaseException | None = None
    told_error: Mapping[str, str] | None = None
    interrupt: Any = None
    interrupt_id: str | None = None
    shown_input: Any = None

    @property
    def output_characters(self) -> int | None:
        """How long the JSON text of the output is, non-ASCII characters escaped: known without reading it."""
        output: object = get_stored_value(self, "output")
        return len(output.text) if isinstance(output, LazyValue) else None

    def to_dict(self, *, causes: bool = False) -> dict[str, Any]:
        """Return the event as `InvocationEvent.to_dict` does."""
        plain = InvocationEvent.to_dict(self, causes=causes)
        plain.pop("shownInput", None)
        if self.interrupt_id is None:
            return plain
        interrupt_fields = {key: plain[key] for key in ("interruptId", "toolName", "toolCallId", "outerToolCallId")}
        interrupt_object = {
            "type": INTERRUPT_TYPE,
            **interrupt_fields,
            "input": self.shown_input,
            "payload": self.interrupt,
        }
        return {**plain, "interruptType": INTERRUPT_TYPE, "interrupt": interrupt_object}


@record(kw_only=True)
class FetchRequestEvent(InvocationEvent):
    """The program asked for a URL."""

    kind: ClassVar[str] = "fetch"

    bridge_index: int
    url: str
    method: str
    input_bytes: int
    replayed: bool
    started_at_ms: float

    @property
    def label(self) -> str:
        """Method and URL, as the program wrote them."""
        return f"fetch {self.method} {self.url}"


@with_lazy_fields("output_bytes")
@record(kw_only=True)
class FetchResultEvent(FetchRequestEvent):
    """A fetch ended. Bodies are never part of an event."""

    status: CallStatus
    completed_at_ms: float
    duration_ms: float
    http_status: int | None = None
    output_bytes: int | None = None
    error: BaseException | None = None


@record(kw_only=True)
class ConsoleEvent(InvocationEvent):
    """The program wrote a line to its console. ``level`` is debug, log, info, warn or error.

    ``written_at_ms`` is when the host received the line; all lines of one turn arrive together.
    """

    level: str
    text: str
    written_at_ms: float = 0.0


@record(kw_only=True)
class GuestMessageEvent(InvocationEvent):
    """A message of the program to the host's listeners. A replay does not repeat it.

    ``kind`` "log" has ``level``, ``message`` and ``metadata``, "notify" has ``event`` and ``payload``.
    """

    kind: Literal["log", "notify"]  # pyright: ignore[reportIncompatibleVariableOverride]
    level: str | None = None
    message: str | None = None
    metadata: Any = None
    event: str | None = None
    payload: Any = None


@record(kw_only=True)
class RefusalEvent(InvocationEvent):
    """A program requested an operation that its surface forbids.

    ``reason`` "static_rule" comes before anything runs and has ``violations``, each ``{"kind", "name"?, "location"}``;
    the others name a tool, and the call where one was made. "limit" and "validation" are calls that never left the
    program and have ended it, one too many or with an input that is not JSON; ``code`` is the program's error code.
    """

    reason: Literal["self_reference", "access_denied", "static_rule", "limit", "validation"]
    tool_name: str | None = None
    tool_call_id: str | None = None
    violations: tuple[Mapping[str, Any], ...] = ()
    code: str | None = None


@with_lazy_fields("asked")
@record(kw_only=True)
class CatalogQueryEvent(InvocationEvent):
    """A search of the catalog, or a description of its tools, for a program or the model itself.

    ``asked`` is the query, or the names. ``result_count`` is None if unknown.
    """

    operation: Literal["search", "describe"]
    source: Literal["script", "model"]
    asked: Any
    started_at_ms: float
    duration_ms: float
    result_count: int | None = None
    error: BaseException | None = None


@record(kw_only=True)
class InterruptEvent(InvocationEvent):
    """The invocation paused. ``interrupt`` is the `Interrupt` that the caller gets."""

    interrupt: Any


@record(kw_only=True)
class InvocationStarted(InvocationEvent):
    """The run begins; it has no worker yet. The program is given by its UTF-8 length and SHA-256, never its text.

    ``source`` "invoke": the model calls one tool itself, and there is no SHA-256. ``resumed``: it continues after a
    pause, which stores the program without its types. ``tool_kind`` and ``tool_input_kind`` distinguish the outer tool
    from others of its name, where a surface has such; the second is the language of the program.
    """

    source_bytes: int
    source_sha256: str | None
    source: Literal["script", "invoke"] = "script"
    resumed: bool = False
    tool_kind: str | None = None
    tool_input_kind: str | None = None


@record(kw_only=True)
class WorkerAcquiredEvent(InvocationEvent):
    """The invocation got its worker, after ``wait_ms``. Only for the library's own listeners."""

    wait_ms: float


def _to_camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _to_plain_value(value: Any, *, causes: bool) -> Any:
    if isinstance(value, BaseException):
        return _to_plain_error(value, list(iterate_causes(value)) if causes else [])
    if isinstance(value, tuple):
        return [_to_plain_value(item, causes=causes) for item in cast("tuple[Any, ...]", value)]
    if isinstance(value, InvocationEvent):
        return value.to_dict(causes=causes)
    return value.to_dict() if hasattr(value, "to_dict") else value


def _to_plain_error(error: BaseException, causes: list[BaseException]) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": type(error).__name__, "message": get_exception_text(error)}
    code = getattr(error, "code", None)
    if isinstance(code, str):
        plain["code"] = code
    return {**plain, "cause": _to_plain_error(causes[0], causes[1:])} if causes else plain
