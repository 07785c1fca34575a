"""Where programs leave values for those that come after them. Knows no program, and bounds nothing."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import partial
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

from ..data.json_shape import weigh
from ..data.json_values import decode_json, encode_json
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.parts import CodeModeOptions
from .call_context import CallContext

STATE_RULE = """\
- `state` stays for later programs of this conversation: `await state.get(key)` (undefined where there is nothing),
  `await state.set(key, value)`, `await state.delete(key)`, `await state.keys()`. Values are JSON, 1 MiB in all."""


@runtime_checkable
class StatePlace(Protocol):
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


class MappingPlace:
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
        return await run_check(weigh(value, LARGE_CHARACTERS), partial(encode_json, value, what="a value of state"))

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

    def __init__(self, texts: Mapping[str, str] | None = None, ahead: int = 0) -> None:
        super().__init__(texts)
        self.ahead = ahead
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


def state_place(options: CodeModeOptions, call: CallContext) -> StatePlace | None:
    """Return where the programs of a call keep values: the place of the call, else that of the options."""
    given = options.state if call.state is None else call.state
    if given is None or given is False:
        return None
    own = options.continuation.conversation_id
    return place_of(given, own if call.conversation_id is None else call.conversation_id)


def place_of(state: Any, conversation: str | None) -> StatePlace | None:
    """Return the place that an option stands for. Raises `TypeError` for a function that gives something else."""
    made = state(conversation) if callable(state) else state
    if made is None:
        return None
    if isinstance(made, MutableMapping):
        return MappingPlace(cast("MutableMapping[str, Any]", made))
    if is_place(made):
        return made
    raise TypeError(f"state must give a mapping or an object with get, set, delete and keys, got {type(made).__name__}")


def is_place(value: Any) -> TypeGuard[StatePlace]:
    """Tell whether it has the methods of a place."""
    return all(callable(getattr(value, name, None)) for name in ("get", "set", "delete", "keys"))
