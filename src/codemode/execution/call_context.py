"""The context of one tool call of the model, and where its programs keep state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

from ..data.json_shape import run_bounded
from ..data.json_values import decode_json, encode_json
from ..host.threads import run_check
from ..options.checked_fields import (
    WrongTypeError,
    require_callable_or_none,
    require_positive,
    require_sequence,
    require_string_or_none,
    require_text_or_none,
)
from ..options.parts import CodeModeOptions
from ..records import record

MAX_DATE_MS = 8_640_000_000_000_000
"""The last moment that a JavaScript date knows."""


@record(kw_only=True)
class CallContext:
    """What one tool call of a model carries into a program: who calls, in which conversation, and when.

    ``tool_call_id`` names the call; a random id when None. ``messages`` and ``context`` reach every tool.
    ``conversation_id`` names the conversation, thread or workflow: a pause resumes only under the same one, and runs of
    exec and wait belong to it. With a signing key that was set, a ``tool_call_id`` and a ``conversation_id``, request
    ids and random numbers of a program are the same whenever it runs with the same ``started_at_ms``: an engine that
    repeats a step finds the pause it knows.

    ``started_at_ms`` is Unix time in milliseconds, where the clock of the program starts. ``clock_ms`` returns the time
    with which that clock continues after each answer, the host's when None; an engine that repeats steps returns times
    that it has recorded. ``state`` is where the programs of this call keep values for later ones, in place of
    ``CodeModeOptions.state``. Raises `ValueError` for a field of a wrong kind.
    """

    tool_call_id: str | None = None
    messages: Sequence[Any] = ()
    context: Any = None
    conversation_id: str | None = None
    started_at_ms: int | None = None
    clock_ms: Callable[[], int] | None = None
    state: Any = None

    def __post_init__(self) -> None:
        """Check what reaches tools, a signature and the guest's clock."""
        require_sequence(self.messages, "messages")
        if self.tool_call_id is not None:
            require_string_or_none(self.tool_call_id, "tool_call_id")
        if self.conversation_id is not None:
            require_text_or_none(self.conversation_id, "conversation_id")
        if self.clock_ms is not None:
            require_callable_or_none(self.clock_ms, "clock_ms")
        if self.started_at_ms is not None:
            require_positive(self.started_at_ms, "started_at_ms", MAX_DATE_MS)


_EMPTY_CONTEXT = CallContext()


def require_call_context(call: CallContext | None) -> CallContext:
    """Return the context of a call, an empty one for None. Raises `ValueError` for anything else."""
    if call is None:
        return _EMPTY_CONTEXT
    if isinstance(cast("Any", call), CallContext):
        return call
    raise WrongTypeError(f"call must be a CallContext or None, got {call!r:.100}; write CallContext(tool_call_id=...)")


@record(kw_only=True)
class OuterCall:
    """The call of a model as a surface starts it: its context, and how the surface runs its programs.

    ``is_traced``: a completed run has a trace even without listeners. ``listeners`` hear each event of the run before
    the hooks of the options; what they raise changes nothing. ``wait_ms`` is how long to wait for a program that may
    rest, None for as long as it may compute; with ``takes_output`` its output counts as delivered when it is
    interrupted, with ``keeps_output`` only when it has ended. ``tool_kind`` and ``tool_input_kind`` are for listeners
    of a surface whose tool name is not unique.
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
    """Where one conversation, thread or run keeps what its programs write. Values are JSON texts, keys any text.

    Each method is called from the loop of the run; what it raises fails the program's call, which reads only that it
    failed. Nobody else's values may be reached through a place.
    """

    async def get(self, key: str) -> str | None:
        """Return the value; None where there is none."""
        ...

    async def set(self, key: str, value: str) -> None:
        """Keep a value; it holds from now on, whatever becomes of the program."""
        ...

    async def delete(self, key: str) -> None:
        """Forget a value; one that is not there is forgotten already."""
        ...

    async def keys(self) -> list[str]:
        """Return all keys."""
        ...


class MappingBackend:
    """Keeps values in a mapping of the host's, as plain JSON."""

    def __init__(self, mapping: MutableMapping[str, Any]) -> None:
        self._mapping = mapping

    @property
    def shared(self) -> object:
        """What the places of one mapping have in common."""
        return self._mapping

    async def get(self, key: str) -> str | None:
        """Return the value that stands in the mapping, as JSON. Raises `CodeModeSerializationError` for no JSON."""
        if key not in self._mapping:
            return None
        value = self._mapping[key]
        return await run_bounded(value, partial(encode_json, value, what="a value of state"))

    async def set(self, key: str, value: str) -> None:
        """Put it into the mapping."""
        self._mapping[key] = await run_check(len(value), partial(decode_json, value))

    async def delete(self, key: str) -> None:
        """Take it out of the mapping."""
        self._mapping.pop(key, None)

    async def keys(self) -> list[str]:
        """Return the keys that are text."""
        return [key for key in self._mapping if isinstance(cast("Any", key), str)]


class TextPlace:
    """Keeps JSON texts in a dictionary of its own."""

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        self._texts = dict(texts or {})
        self.size = sum(len(key) + len(value) for key, value in self._texts.items())  # characters, which are ASCII

    async def get(self, key: str) -> str | None:
        """Return the text."""
        return self._texts.get(key)

    async def set(self, key: str, value: str) -> None:
        """Keep the text."""
        await self.delete(key)
        self._texts[key] = value
        self.size += len(key) + len(value)

    async def delete(self, key: str) -> None:
        """Forget it."""
        if (value := self._texts.pop(key, None)) is not None:
            self.size -= len(key) + len(value)

    async def keys(self) -> list[str]:
        """Return all keys."""
        return [*self._texts]


class LatePlace(TextPlace):
    """Reads what somebody has kept and gathers what is written, for those who take updates only at the end.

    ``ahead`` is how many others begin with the same texts, and number their results first.
    The program reads its own writes; `updates` has them for whoever keeps them: a JSON text, or None for what was
    deleted. What a replay finds in the ledger was written here before, and is written again (`recall`).
    """

    def __init__(self, texts: Mapping[str, str] | None = None, number_offset: int = 0) -> None:
        super().__init__(texts)
        self.ahead = number_offset
        self.updates: dict[str, str | None] = {}

    async def set(self, key: str, value: str) -> None:
        """Note the text."""
        self.recall(key, value)

    async def delete(self, key: str) -> None:
        """Note that it is gone."""
        self.recall(key, None)

    def recall(self, key: str, value: str | None) -> None:
        """Note what was written, None for what was deleted."""
        self.updates[key] = value
        if value is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = value


def make_state_backend(options: CodeModeOptions, call: CallContext) -> StateBackend | None:
    """Return where the programs of a call keep values: the place of the call, else that of the options."""
    state = options.state if call.state is None else call.state
    if state is None or state is False:
        return None
    own_conversation_id = options.continuation.conversation_id
    return to_state_backend(state, own_conversation_id if call.conversation_id is None else call.conversation_id)


def to_state_backend(state: Any, conversation: str | None) -> StateBackend | None:
    """Return the place that an option stands for. Raises `TypeError` for a function that gives something else."""
    backend = state(conversation) if callable(state) else state
    if backend is None:
        return None
    if isinstance(backend, MutableMapping):
        return MappingBackend(cast("MutableMapping[str, Any]", backend))
    if is_state_backend(backend):
        return backend
    raise TypeError(
        f"state must give a mapping or an object with get, set, delete and keys, got {type(backend).__name__}"
    )


def is_state_backend(value: Any) -> TypeGuard[StateBackend]:
    """Tell whether it has the methods of a place."""
    return all(callable(getattr(value, name, None)) for name in ("get", "set", "delete", "keys"))
