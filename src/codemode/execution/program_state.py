"""State that programs share: checked, bounded, read and written one access at a time."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from json import JSONDecoder
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from ..data.content import current
from ..data.json_values import check_size, check_values, decode_json, encode_json, utf8_length
from ..data.narrowing import is_array
from ..errors import CodeModeProtocolError, CodeModeSerializationError, CodeModeToolError
from ..host.forks import forkable_lock
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.parts import ExecutionPolicy
from ..protocol.call_status import MAX_RESULT_CHARACTERS, call_id
from ..protocol.ledger import Fulfilled, LedgerEntry
from ..trace.failures import log_failure
from .call_context import LatePlace, MappingPlace, StatePlace
from .large_results import too_large_text
from .outcome import in_words

if TYPE_CHECKING:
    from .outcome import RunOutcome


PREFIX = "result:"
MAX_RESULTS = 8
MAX_RESULT_BYTES = 16 << 20
MAX_CALL_RESULTS = 4
_log = logging.getLogger("codemode.tools")


async def told_of_large(outcome: RunOutcome, most: int, place: StatePlace | None) -> str:
    """Return what a model reads of a result that is too large, which the next program finds where there is a place."""
    value, json_bytes = await in_words(outcome), outcome.result_bytes
    return too_large_text(value, most, json_bytes, None if place is None else await keep_result(place, value))


async def keep_call_results(outcome: RunOutcome, place: StatePlace) -> None:
    """Keep the newest results of calls that a failed program leaves and a model is not shown whole.

    Their summaries name the key. Images, audio and files are not kept.
    """
    ledger = outcome.ledger
    if ledger is None or (ledger.contents is not None and len(ledger.contents)):
        return
    calls = {call["id"]: call for call in outcome.calls if "result" in call}
    large = [
        (call, entry.outcome.value_json)
        for entry in ledger.entries
        if isinstance(entry.outcome, Fulfilled)
        and len(entry.outcome.value_json or "") > MAX_RESULT_CHARACTERS
        and (call := calls.get(call_id(entry))) is not None
    ]
    for call, text in large[-MAX_CALL_RESULTS:]:
        value = await run_check(len(text or ""), partial(decode_json, text or "null"))
        if (key := await keep_result(place, value)) is not None:
            call["kept"] = key


async def keep_result(place: StatePlace, value: Any) -> str | None:
    """Keep a result that a model is not shown; return its key, or None where it could not be kept.

    The newest 8 stay, of 16 MiB together. A result that is the newest already keeps its key.
    """
    try:
        what = "the result"
        text = await run_check(LARGE_CHARACTERS, lambda: encode_json(value, max_bytes=MAX_RESULT_BYTES, what=what))
        if len(text) > MAX_RESULT_BYTES:  # what is no ASCII is longer as it is kept
            return None
        numbers = sorted(number for key in await place.keys() if (number := _number(key)) is not None)
        if numbers and await place.get(f"{PREFIX}{numbers[-1]}") == text:
            return f"{PREFIX}{numbers[-1]}"
        ahead = place.ahead if isinstance(place, LatePlace) else 0
        key = f"{PREFIX}{(numbers[-1] if numbers else 0) + 1 + ahead}"
        await place.set(key, text)
        await _forget_old(place, numbers, utf8_length(text))
    except CodeModeSerializationError:
        return None
    except Exception as error:  # noqa: BLE001 - a place is host code, and the program has come to its result
        log_failure(_log, "a large result could not be kept in state", (), error)
        return None
    return key


async def _forget_old(place: StatePlace, numbers: list[int], size: int) -> None:
    kept = 1
    for number in reversed(numbers):
        key = f"{PREFIX}{number}"
        size += utf8_length(await place.get(key) or "")
        kept += 1
        if kept > MAX_RESULTS or size > MAX_RESULT_BYTES:
            size = MAX_RESULT_BYTES + 1  # whatever is older goes too
            await place.delete(key)


def _number(key: str) -> int | None:
    digits = key.removeprefix(PREFIX)
    is_one = digits != key and digits.isascii() and digits.isdigit() and len(digits) < 16
    return int(digits) if is_one else None


# Knows no ledger: a replay is answered without it.

_DECODER = JSONDecoder()
_SPACE = (" ", "\t", "\r", "\n")
MAX_STATE_BYTES = 1 << 20
MAX_STATE_KEYS = 1000
MAX_KEY_CHARACTERS = 256
_ARGUMENTS = {"state.get": 1, "state.set": 2, "state.delete": 1, "state.keys": 0}


class ProgramState:
    """The state of one invocation. Its requests are performed in the order in which the program has made them.

    All values of programs together have at most 1 MiB of JSON and keys, and 1,000 keys, also of programs that write to
    one place at once; results that a model was not shown (`keep_result`) stand beside them, and no program changes
    them. Content is refused: its bytes go with the run.
    """

    def __init__(self, place: StatePlace) -> None:
        self._place = place
        self._room = _room_of(place)
        self._turn = asyncio.Lock()

    async def perform(self, entry: LedgerEntry, policy: ExecutionPolicy) -> str | None:
        """Return the JSON text that answers a request; None is undefined.

        Raises `CodeModeToolError` for what may not be written, `CodeModeSerializationError` for what is too large,
        `CodeModeProtocolError` for what no kernel sends.
        """
        async with self._turn:
            key, value = await _arguments(entry, policy)
            if entry.name == "state.keys":
                keys = sorted(await self._place.keys())
                return await run_check(LARGE_CHARACTERS, lambda: encode_json(keys, what="the keys of state"))
            if entry.name == "state.get":
                return await self._place.get(key)
            _require_writable(key, entry.name)
            if value is not None:
                _require_no_content(value)
            await self._write(key, value)
            return None

    def recall(self, entry: LedgerEntry) -> None:
        """Take notice of a request that a replay has answered: a place that keeps nothing yet is told of writes."""
        if isinstance(self._place, LatePlace) and isinstance(entry.outcome, Fulfilled):
            text = entry.input_json or ""
            if entry.name in ("state.set", "state.delete"):
                key, value = _recalled(text)
                self._place.recall(key, value if entry.name == "state.set" else None)
                self._room.forget()

    async def _write(self, key: str, value: str | None) -> None:
        size = 0 if value is None else utf8_length(key) + utf8_length(value)
        while not self._room.begin(key, size):
            looked_at = self._room.changes
            self._room.know(await self._found(), looked_at)
        is_sure = False
        try:
            await (self._place.delete(key) if value is None else self._place.set(key, value))
            is_sure = True
        finally:
            self._room.end(key, size, is_sure=is_sure)

    async def _found(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for key in await self._place.keys():
            if not key.startswith(PREFIX):
                found[key] = utf8_length(key) + utf8_length(await self._place.get(key) or "")
        return found


class _Room:
    """The sizes of what programs have written to a place, for all who write there. Room is taken before it is used.

    Of writes of one key at once nobody knows which is the last: the largest counts, and then it is looked again.
    """

    def __init__(self, place: object) -> None:
        self.place = place  # as long as this is there nothing else has its identity
        self.changes = 0  # how often what somebody has read meanwhile may be wrong
        self._sizes: dict[str, int] | None = None
        self._writing: dict[str, list[int]] = {}  # the sizes that are being written
        self._at_once: set[str] = set()
        self._lock = forkable_lock()

    def know(self, sizes: dict[str, int], looked_at: int) -> None:
        """Take what somebody has found who ``looked_at`` the place then, unless something has happened since."""
        with self._lock:
            if self._sizes is None and self.changes == looked_at:
                writing = {key: max(sizes.get(key, 0), *written) for key, written in self._writing.items()}
                self._sizes = sizes | writing

    def forget(self) -> None:
        """Look again before the next write."""
        with self._lock:
            self.changes += 1
            self._sizes = None

    def begin(self, key: str, size: int) -> bool:
        """Take room for what is about to be written, 0 for a deletion. False: it is not known what is there.

        Raises `CodeModeToolError` where there is no room.
        """
        with self._lock:
            sizes = self._sizes
            if sizes is None:
                return False
            written = self._writing.get(key, [])
            if written:
                self._at_once.add(key)
            own, size = size, max(size, *written, 0)
            if size and key not in sizes and len(sizes) >= MAX_STATE_KEYS:
                raise _refused("state.set", f"state has {MAX_STATE_KEYS} keys already; delete some")
            whole = sum(sizes.values()) - sizes.get(key, 0) + size
            if size and whole > MAX_STATE_BYTES:
                message = f"state would have {whole} bytes in all, of at most {MAX_STATE_BYTES}; delete some keys"
                raise _refused("state.set", message)
            sizes[key] = size
            self._writing[key] = [*written, own]
            return True

    def end(self, key: str, size: int, *, is_sure: bool) -> None:
        """Tell that a write has ended."""
        with self._lock:
            self.changes += 1
            left = self._writing.pop(key)
            left.remove(size)
            if left:
                self._writing[key] = left
            elif key in self._at_once:
                self._at_once.discard(key)
                self._sizes = None
            if not is_sure:
                self._sizes = None
            elif self._sizes is not None and not left and not self._sizes.get(key):
                self._sizes.pop(key, None)


_rooms: WeakValueDictionary[int, _Room] = WeakValueDictionary()


def _room_of(place: StatePlace) -> _Room:
    """Return the room in a place, the same for all whose programs run now."""
    shared = place.shared if isinstance(place, MappingPlace) else place
    found = _rooms.get(id(shared))
    if found is None or found.place is not shared:
        found = _rooms[id(shared)] = _Room(shared)
    return found


def _require_no_content(value: str) -> None:
    parts = current.get()
    if parts is not None and f'"{parts.tag}":' in value:  # as the host writes it
        raise _refused(
            "state.set",
            "an image, audio or a file cannot be kept in state, for its bytes go with this program; keep what a tool"
            " finds it by again, or what you have read of it",
        )


async def answer_of(state: ProgramState | None, entry: LedgerEntry, policy: ExecutionPolicy) -> str | None:
    """Return what answers a request of a program, which may go on where there is no state. Raises as `perform`."""
    if state is None:
        raise _refused(entry.name, "there is no state where this program runs")
    return await state.perform(entry, policy)


async def _arguments(entry: LedgerEntry, policy: ExecutionPolicy) -> tuple[str, str | None]:
    """Return key and JSON text of the value of a request."""
    text, count = entry.input_json, _ARGUMENTS.get(entry.name)
    if entry.input_bytes is not None:
        check_size(entry.input_bytes, policy.max_tool_input_bytes, f"the value of {entry.name}")
    if text is None or count is None:
        raise CodeModeProtocolError("the worker made a request about state that no program makes")
    return await run_check(len(text), lambda: _read(entry.name, text, count, policy))


def _read(name: str, text: str, count: int, policy: ExecutionPolicy) -> tuple[str, str | None]:
    what = f"the value of {name}"
    check_size(utf8_length(text), policy.max_tool_input_bytes, what)
    check_values(text, policy.max_values, what)
    try:
        given = decode_json(text)
    except ValueError as error:
        raise CodeModeSerializationError(f"{what} cannot be read: {error}") from None
    if not is_array(given) or len(given) != count or (count and not isinstance(given[0], str)):
        raise CodeModeProtocolError("the worker made a request about state that no program makes")
    if not count:
        return "", None
    key = cast("str", given[0])
    _require_key(key, name)
    return key, encode_json(given[1], what=what) if count > 1 else None


def _recalled(text: str) -> tuple[str, str | None]:
    """Return key and value of what the kernel has written. What another has, with spaces, is read as when it came."""
    if text[:2] == '["':
        found, end = _DECODER.raw_decode(text, 1)  # the key alone: values may be large
        if text[end] in ",]" and text[end + 1 : end + 2] not in _SPACE and text[-2] not in _SPACE:
            key = str(found).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return key, text[end + 1 : -1]
    given = decode_json(text)
    return given[0], encode_json(given[1], what="the value of state.set") if len(given) > 1 else None


def _require_key(key: str, name: str) -> None:
    if not key or len(key) > MAX_KEY_CHARACTERS:
        raise _refused(name, f"a key has 1 to {MAX_KEY_CHARACTERS} characters, this one {len(key)}")
    if any(ord(char) < 32 or 0xD7FF < ord(char) < 0xE000 or ord(char) == 127 for char in key):
        raise _refused(name, "a key has no control characters, and no halves of surrogate pairs")


def _require_writable(key: str, name: str) -> None:
    if key.startswith(PREFIX):
        raise _refused(name, f"keys that begin with {PREFIX!r} are results, which programs only read")


def _refused(name: str, message: str) -> CodeModeToolError:
    return CodeModeToolError(f"{name}: {message}", details={"tool_name": name})
