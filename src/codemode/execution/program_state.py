"""Check, limit and serialise access of programs to shared state."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from json import JSONDecoder
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

from ..data.content import current_registry
from ..data.json_values import (
    count_utf8_bytes,
    decode_json,
    encode_json,
    require_max_bytes,
    require_max_values_in_json_text,
)
from ..data.narrowing import is_array
from ..errors import CodeModeProtocolError, CodeModeSerializationError, CodeModeToolError
from ..host.forks import create_fork_safe_lock
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..options.parts import ExecutionPolicy
from ..protocol.call_status import MAX_RESULT_CHARACTERS, get_displayed_call_id
from ..protocol.ledger import Fulfilled, LedgerEntry
from ..trace.failures import log_failure
from .call_context import BufferedStateBackend, MappingStateBackend, StateBackend
from .large_results import describe_too_large_result
from .outcome import to_value_with_descriptions

if TYPE_CHECKING:
    from .outcome import RunOutcome


RESULT_PREFIX = "result:"
MAX_RESULTS = 8
MAX_RESULT_BYTES = 16 << 20
MAX_CALL_RESULTS = 4
_log = logging.getLogger("codemode.tools")


async def save_and_describe_large_result(outcome: RunOutcome, max_characters: int, backend: StateBackend | None) -> str:
    """Return the model's text about a result that is too large, and save the result if there is a backend."""
    value, json_bytes = await to_value_with_descriptions(outcome), outcome.result_bytes
    return describe_too_large_result(
        value,
        max_characters,
        json_bytes,
        None if backend is None else await save_large_result_and_delete_old(backend, value),
    )


async def save_large_call_results_and_set_keys(outcome: RunOutcome, backend: StateBackend) -> None:
    """Save the newest large call results of a failed program that its error cuts.

    The summaries of the calls name the keys. Images, audio and files are not saved.
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
        and (call := calls.get(get_displayed_call_id(entry))) is not None
    ]
    for call, text in large[-MAX_CALL_RESULTS:]:
        value = await run_in_thread_if_large_or_slow(len(text or ""), partial(decode_json, text or "null"))
        if (key := await save_large_result_and_delete_old(backend, value)) is not None:
            call["kept"] = key


async def save_large_result_and_delete_old(backend: StateBackend, value: Any) -> str | None:
    """Save a result that the model does not get; return its key, None if it could not be saved.

    Keeps the newest 8 results of at most 16 MiB together. Saving the newest result again returns its key.
    """
    try:
        label = "the result"
        text = await run_in_thread_if_large_or_slow(
            LARGE_CHARACTERS, lambda: encode_json(value, max_bytes=MAX_RESULT_BYTES, what=label)
        )
        if len(text) > MAX_RESULT_BYTES:  # non-ASCII text is longer when stored
            return None
        numbers = sorted(number for key in await backend.keys() if (number := _parse_result_number(key)) is not None)
        if numbers and await backend.get(f"{RESULT_PREFIX}{numbers[-1]}") == text:
            return f"{RESULT_PREFIX}{numbers[-1]}"
        offset = backend.number_offset if isinstance(backend, BufferedStateBackend) else 0
        key = f"{RESULT_PREFIX}{(numbers[-1] if numbers else 0) + 1 + offset}"
        await backend.set(key, text)
        await _delete_old_results(backend, numbers, count_utf8_bytes(text))
    except CodeModeSerializationError:
        return None
    except Exception as error:  # noqa: BLE001 - a backend is host code, and the program has its result
        log_failure(_log, "a large result could not be kept in state", (), error)
        return None
    return key


async def _delete_old_results(backend: StateBackend, numbers: list[int], size: int) -> None:
    count = 1
    for number in reversed(numbers):
        key = f"{RESULT_PREFIX}{number}"
        size += count_utf8_bytes(await backend.get(key) or "")
        count += 1
        if count > MAX_RESULTS or size > MAX_RESULT_BYTES:
            size = MAX_RESULT_BYTES + 1  # delete all older results too
            await backend.delete(key)


def _parse_result_number(key: str) -> int | None:
    digits = key.removeprefix(RESULT_PREFIX)
    is_number = digits != key and digits.isascii() and digits.isdigit() and len(digits) < 16
    return int(digits) if is_number else None


_DECODER = JSONDecoder()
_SPACE = (" ", "\t", "\r", "\n")
MAX_STATE_BYTES = 1 << 20
MAX_STATE_KEYS = 1000
MAX_KEY_CHARACTERS = 256
_ARGUMENTS = {"state.get": 1, "state.set": 2, "state.delete": 1, "state.keys": 0}


class ProgramState:
    """The state of one invocation. Performs its requests in issue order.

    All values of programs together have at most 1 MiB of JSON and keys and 1,000 keys, also with concurrent
    writers; saved results (`save_large_result_and_delete_old`) are separate and read-only. Content is refused: its
    bytes end with the run.
    """

    def __init__(self, backend: StateBackend) -> None:
        self._backend = backend
        self._quota = _get_or_create_quota(backend)
        self._lock = asyncio.Lock()

    async def perform_request(self, entry: LedgerEntry, policy: ExecutionPolicy) -> str | None:
        """Return the JSON text of the answer; None is undefined.

        Raises `CodeModeToolError` for a forbidden write, `CodeModeSerializationError` for a value that is too
        large, `CodeModeProtocolError` for a request that no guest runtime sends.
        """
        async with self._lock:
            key, value = await _read_arguments(entry, policy)
            if entry.name == "state.keys":
                keys = sorted(await self._backend.keys())
                return await run_in_thread_if_large_or_slow(
                    LARGE_CHARACTERS, lambda: encode_json(keys, what="the keys of state")
                )
            if entry.name == "state.get":
                return await self._backend.get(key)
            _require_writable_key(key, entry.name)
            if value is not None:
                _require_no_media_handles(value)
            await self._write(key, value)
            return None

    def apply_replayed_request(self, entry: LedgerEntry) -> None:
        """Apply a replayed request: a backend that collects updates gets its writes again."""
        if isinstance(self._backend, BufferedStateBackend) and isinstance(entry.outcome, Fulfilled):
            text = entry.input_json or ""
            if entry.name in ("state.set", "state.delete"):
                key, value = _parse_replayed_arguments(text)
                self._backend.record_write(key, value if entry.name == "state.set" else None)
                self._quota.invalidate()

    async def _write(self, key: str, value: str | None) -> None:
        size = 0 if value is None else count_utf8_bytes(key) + count_utf8_bytes(value)
        while not self._quota.reserve_or_raise_if_full(key, size):
            changes_before = self._quota.changes
            self._quota.set_sizes_if_unchanged(await self._read_sizes(), changes_before)
        is_sure = False
        try:
            await (self._backend.delete(key) if value is None else self._backend.set(key, value))
            is_sure = True
        finally:
            self._quota.finish_write(key, size, is_sure=is_sure)

    async def _read_sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for key in await self._backend.keys():
            if not key.startswith(RESULT_PREFIX):
                sizes[key] = count_utf8_bytes(key) + count_utf8_bytes(await self._backend.get(key) or "")
        return sizes


class _StateQuota:
    """The sizes of stored values, shared by all writers of a backend. Space is reserved before a write.

    The order of concurrent writes to one key is unknown: the largest counts, then sizes are read again.
    """

    def __init__(self, backend: object) -> None:
        self.backend = backend  # keeps the object alive, so that its id stays unique
        self.changes = 0  # how often sizes read meanwhile may be wrong
        self._sizes: dict[str, int] | None = None
        self._sizes_in_flight: dict[str, list[int]] = {}  # the sizes of current writes
        self._concurrent_keys: set[str] = set()
        self._lock = create_fork_safe_lock()

    def set_sizes_if_unchanged(self, sizes: dict[str, int], changes_before: int) -> None:
        """Set the sizes that were read, unless there were changes since ``changes_before``."""
        with self._lock:
            if self._sizes is None and self.changes == changes_before:
                writing = {key: max(sizes.get(key, 0), *written) for key, written in self._sizes_in_flight.items()}
                self._sizes = sizes | writing

    def invalidate(self) -> None:
        """Read the sizes again before the next write."""
        with self._lock:
            self.changes += 1
            self._sizes = None

    def reserve_or_raise_if_full(self, key: str, size: int) -> bool:
        """Reserve space for a write, 0 for a deletion. Returns False if the sizes are unknown.

        Raises `CodeModeToolError` if there is no space.
        """
        with self._lock:
            sizes = self._sizes
            if sizes is None:
                return False
            sizes_in_flight = self._sizes_in_flight.get(key, [])
            if sizes_in_flight:
                self._concurrent_keys.add(key)
            reserved_size, size = size, max(size, *sizes_in_flight, 0)
            if size and key not in sizes and len(sizes) >= MAX_STATE_KEYS:
                raise _make_state_error("state.set", f"state has {MAX_STATE_KEYS} keys already; delete some")
            total = sum(sizes.values()) - sizes.get(key, 0) + size
            if size and total > MAX_STATE_BYTES:
                message = f"state would have {total} bytes in all, of at most {MAX_STATE_BYTES}; delete some keys"
                raise _make_state_error("state.set", message)
            sizes[key] = size
            self._sizes_in_flight[key] = [*sizes_in_flight, reserved_size]
            return True

    def finish_write(self, key: str, size: int, *, is_sure: bool) -> None:
        """Release the reservation of a write."""
        with self._lock:
            self.changes += 1
            remaining = self._sizes_in_flight.pop(key)
            remaining.remove(size)
            if remaining:
                self._sizes_in_flight[key] = remaining
            elif key in self._concurrent_keys:
                self._concurrent_keys.discard(key)
                self._sizes = None
            if not is_sure:
                self._sizes = None
            elif self._sizes is not None and not remaining and not self._sizes.get(key):
                self._sizes.pop(key, None)


_quotas: WeakValueDictionary[int, _StateQuota] = WeakValueDictionary()


def _get_or_create_quota(backend: StateBackend) -> _StateQuota:
    """Return the quota of a backend, shared by all running programs."""
    shared = backend.shared_mapping if isinstance(backend, MappingStateBackend) else backend
    quota = _quotas.get(id(shared))
    if quota is None or quota.backend is not shared:
        quota = _quotas[id(shared)] = _StateQuota(shared)
    return quota


def _require_no_media_handles(value: str) -> None:
    parts = current_registry.get()
    if parts is not None and f'"{parts.reference_key}":' in value:  # as the host encodes it
        raise _make_state_error(
            "state.set",
            "an image, audio or a file cannot be kept in state, for its bytes go with this program; keep what a tool"
            " finds it by again, or what you have read of it",
        )


async def perform_state_request(state: ProgramState | None, entry: LedgerEntry, policy: ExecutionPolicy) -> str | None:
    """Return the answer to a state request. Raises as `perform_request`; without state `CodeModeToolError`."""
    if state is None:
        raise _make_state_error(entry.name, "there is no state where this program runs")
    return await state.perform_request(entry, policy)


async def _read_arguments(entry: LedgerEntry, policy: ExecutionPolicy) -> tuple[str, str | None]:
    """Return the key and the JSON text of the value of a request."""
    text, count = entry.input_json, _ARGUMENTS.get(entry.name)
    if entry.input_bytes is not None:
        require_max_bytes(entry.input_bytes, policy.max_tool_input_bytes, f"the value of {entry.name}")
    if text is None or count is None:
        raise CodeModeProtocolError("the worker made a request about state that no program makes")
    return await run_in_thread_if_large_or_slow(len(text), lambda: _parse_arguments(entry.name, text, count, policy))


def _parse_arguments(name: str, text: str, count: int, policy: ExecutionPolicy) -> tuple[str, str | None]:
    label = f"the value of {name}"
    require_max_bytes(count_utf8_bytes(text), policy.max_tool_input_bytes, label)
    require_max_values_in_json_text(text, policy.max_values, label)
    try:
        arguments = decode_json(text)
    except ValueError as error:
        raise CodeModeSerializationError(f"{label} cannot be read: {error}") from None
    if not is_array(arguments) or len(arguments) != count or (count and not isinstance(arguments[0], str)):
        raise CodeModeProtocolError("the worker made a request about state that no program makes")
    if not count:
        return "", None
    key = cast("str", arguments[0])
    _require_valid_key(key, name)
    return key, encode_json(arguments[1], what=label) if count > 1 else None


def _parse_replayed_arguments(text: str) -> tuple[str, str | None]:
    """Return key and value as the guest runtime wrote them; parse text in another format."""
    if text[:2] == '["':
        key_text, end = _DECODER.raw_decode(text, 1)  # the key alone: values may be large
        if text[end] in ",]" and text[end + 1 : end + 2] not in _SPACE and text[-2] not in _SPACE:
            key = str(key_text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return key, text[end + 1 : -1]
    arguments = decode_json(text)
    return arguments[0], encode_json(arguments[1], what="the value of state.set") if len(arguments) > 1 else None


def _require_valid_key(key: str, name: str) -> None:
    if not key or len(key) > MAX_KEY_CHARACTERS:
        raise _make_state_error(name, f"a key has 1 to {MAX_KEY_CHARACTERS} characters, this one {len(key)}")
    if any(ord(char) < 32 or 0xD7FF < ord(char) < 0xE000 or ord(char) == 127 for char in key):
        raise _make_state_error(name, "a key has no control characters, and no halves of surrogate pairs")


def _require_writable_key(key: str, name: str) -> None:
    if key.startswith(RESULT_PREFIX):
        raise _make_state_error(name, f"keys that begin with {RESULT_PREFIX!r} are results, which programs only read")


def _make_state_error(name: str, message: str) -> CodeModeToolError:
    return CodeModeToolError(f"{name}: {message}", details={"tool_name": name})
