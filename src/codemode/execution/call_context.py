"""Hold the context of one tool call of the model, and the state of its programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

from ..data.json_shape import run_off_loop_if_large
from ..data.json_values import decode_json, encode_json
from ..host.threads import run_in_thread_if_large_or_slow
from ..options.checked_fields import (
    WrongTypeError,
    require_callable_or_none,
    require_nonempty_string_or_none,
    require_positive,
    require_sequence,
    require_string_or_none,
)
from ..options.parts import CodeModeOptions
from ..records import record

MAX_DATE_MS = 8_640_000_000_000_000
"""The latest time of a JavaScript date."""


@record(kw_only=True)
class CallContext:
    """The context of one tool call of a model: caller, conversation and time.

    ``tool_call_id`` identifies the call; a random id if None. ``messages`` and ``context`` reach every tool.
    ``conversation_id`` identifies the conversation, thread or workflow: a pause resumes only under the same one,
    and runs of exec and wait belong to it. With a configured signing key, a ``tool_call_id`` and a
    ``conversation_id``, request ids and random numbers of a program are the same in each run with the same
    ``started_at_ms``: an engine that repeats a step finds its pause again.

    ``started_at_ms`` is the start of the program's clock, Unix time in milliseconds. ``clock_ms`` returns the time
    after each answer, the host's if None; an engine that repeats steps returns recorded times. ``state`` replaces
    ``CodeModeOptions.state`` for this call. Raises `ValueError` for a field of a wrong type.
    """

    tool_call_id: str | None = None
    messages: Sequence[Any] = ()
    context: Any = None
    conversation_id: str | None = None
    started_at_ms: int | None = None
    clock_ms: Callable[[], int] | None = None
    state: Any = None

    def __post_init__(self) -> None:
        """Check the fields that reach tools, signatures and the guest's clock."""
        require_sequence(self.messages, "messages")
        if self.tool_call_id is not None:
            require_string_or_none(self.tool_call_id, "tool_call_id")
        if self.conversation_id is not None:
            require_nonempty_string_or_none(self.conversation_id, "conversation_id")
        if self.clock_ms is not None:
            require_callable_or_none(self.clock_ms, "clock_ms")
        if self.started_at_ms is not None:
            require_positive(self.started_at_ms, "started_at_ms", MAX_DATE_MS)


_EMPTY_CONTEXT = CallContext()


def call_context_or_empty(call: CallContext | None) -> CallContext:
    """Return the context of a call, an empty one for None. Raises `ValueError` for any other type."""
    if call is None:
        return _EMPTY_CONTEXT
    if isinstance(cast("Any", call), CallContext):
        return call
    raise WrongTypeError(f"call must be a CallContext or None, got {call!r:.100}; write CallContext(tool_call_id=...)")


@record(kw_only=True)
class OuterCallSettings:
    """The call of a model and how its surface runs programs.

    ``is_traced``: a completed run has a trace even without listeners. ``listeners`` get each event of the run
    before the hooks of the options; their exceptions are ignored. ``wait_ms`` limits the wait for a suspendable
    program, None: the compute limit; with ``takes_output`` its output counts as delivered at an interrupt, with
    ``keeps_output`` only at the end. ``tool_kind`` and ``tool_input_kind`` are for listeners of surfaces whose tool
    name is not unique.
    """

    call: CallContext = _EMPTY_CONTEXT
    is_traced: bool = False
    listeners: tuple[Callable[[Any], Any], ...] = ()
    wait_ms: int | None = None
    takes_output: bool = False
    keeps_output: bool = False
    tool_kind: str | None = None
    tool_input_kind: str | None = None


STATE_RULE = """\
- `state` stays for later programs of this conversation: `await state.get(key)` (undefined where there is nothing),
  `await state.set(key, value)`, `await state.delete(key)`, `await state.keys()`. Values are JSON, 1 MiB in all."""


RICH_VALUES_RULE = """\
- Inputs and results are JSON, and besides Date, Uint8Array, Set and Map (with string keys). Text where a tool says
  `string` stays text; other objects lose their class, and cycles are errors."""


@runtime_checkable
class StateBackend(Protocol):
    """Stores the state of one conversation, thread or run. Keys are any text, values are JSON texts.

    Each method is called on the loop of the run; an exception fails the program's call without details. A backend
    must not reach the values of other owners.
    """

    async def get(self, key: str) -> str | None:
        """Return the value, or None."""
        ...

    async def set(self, key: str, value: str) -> None:
        """Store a value at once; it stays if the program fails."""
        ...

    async def delete(self, key: str) -> None:
        """Delete a value, if it exists."""
        ...

    async def keys(self) -> list[str]:
        """Return all keys."""
        ...


class MappingStateBackend:
    """Stores values in a mapping of the host, as plain JSON."""

    def __init__(self, mapping: MutableMapping[str, Any]) -> None:
        self._mapping = mapping

    @property
    def shared_mapping(self) -> object:
        """The object by which backends of the same mapping are recognised."""
        return self._mapping

    async def get(self, key: str) -> str | None:
        """Return a value of the mapping as JSON. Raises `CodeModeSerializationError` if it is not JSON."""
        if key not in self._mapping:
            return None
        value = self._mapping[key]
        return await run_off_loop_if_large(value, partial(encode_json, value, what="a value of state"))

    async def set(self, key: str, value: str) -> None:
        """Set a value of the mapping."""
        self._mapping[key] = await run_in_thread_if_large_or_slow(len(value), partial(decode_json, value))

    async def delete(self, key: str) -> None:
        """Remove a value from the mapping."""
        self._mapping.pop(key, None)

    async def keys(self) -> list[str]:
        """Return the keys that are text."""
        return [key for key in self._mapping if isinstance(cast("Any", key), str)]


class InMemoryStateBackend:
    """Stores JSON texts in its own dictionary."""

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts = dict(texts or {})
        self.size = sum(len(key) + len(value) for key, value in self._texts.items())  # characters, all ASCII

    async def get(self, key: str) -> str | None:
        """Return the text."""
        return self._texts.get(key)

    async def set(self, key: str, value: str) -> None:
        """Store the text."""
        await self.delete(key)
        self._texts[key] = value
        self.size += len(key) + len(value)

    async def delete(self, key: str) -> None:
        """Delete the text."""
        if (value := self._texts.pop(key, None)) is not None:
            self.size -= len(key) + len(value)

    async def keys(self) -> list[str]:
        """Return all keys."""
        return [*self._texts]


class BufferedStateBackend(InMemoryStateBackend):
    """Reads stored texts and collects updates, for hosts that accept updates only at the end.

    ``number_offset`` counts others that start with the same texts and number their results first. The program reads
    its own writes; `updates` has them for the host: a JSON text, or None for a deletion. A replay writes again what
    the ledger recorded (`record_write`).
    """

    def __init__(self, texts: Mapping[str, str] | None = None, number_offset: int = 0) -> None:
        super().__init__(texts)
        self.number_offset = number_offset
        self.updates: dict[str, str | None] = {}

    async def set(self, key: str, value: str) -> None:
        """Record the text."""
        self.record_write(key, value)

    async def delete(self, key: str) -> None:
        """Record the deletion."""
        self.record_write(key, None)

    def record_write(self, key: str, value: str | None) -> None:
        """Record a write, None for a deletion."""
        self.updates[key] = value
        if value is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = value


def make_state_backend(options: CodeModeOptions, call: CallContext) -> StateBackend | None:
    """Return the state backend of a call: its own, else that of the options."""
    state = options.state if call.state is None else call.state
    if state is None or state is False:
        return None
    configured_id = options.continuation.conversation_id
    return resolve_state_option(state, configured_id if call.conversation_id is None else call.conversation_id)


def resolve_state_option(state: Any, conversation: str | None) -> StateBackend | None:
    """Return the backend of a state option. Raises `TypeError` if a function returns another type."""
    backend = state(conversation) if callable(state) else state
    if backend is None:
        return None
    if isinstance(backend, MutableMapping):
        return MappingStateBackend(cast("MutableMapping[str, Any]", backend))
    if is_state_backend(backend):
        return backend
    raise TypeError(
        f"state must give a mapping or an object with get, set, delete and keys, got {type(backend).__name__}"
    )


def is_state_backend(value: Any) -> TypeGuard[StateBackend]:
    """Return True if the value has the methods of a backend."""
    return all(callable(getattr(value, name, None)) for name in ("get", "set", "delete", "keys"))
