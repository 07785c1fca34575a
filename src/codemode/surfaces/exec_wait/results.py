"""Parse the inputs of exec and wait; build and record their results."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ...data.json_shape import UNLIMITED, run_off_loop_if_large
from ...data.json_values import encode_json
from ...data.narrowing import is_mapping, is_object
from ...execution.call_context import CallContext
from ...execution.large_results import describe_too_large_result, estimate_result_characters
from ...execution.outcome_texts import INVALID_INPUT, RUNTIME_UNAVAILABLE
from ...host.clock import monotonic_seconds
from ...host.forks import create_fork_safe_lock, never_finalize_in_child, register_fork_reset
from ...options.parts import MAX_SOURCE_BYTES, MIN_MODEL_CHARACTERS
from ...source.program_input import rename_program_field
from .options import LANGUAGES, ExecWaitOptions, choose_default_language
from .program_run import RUN_PREFIX

if TYPE_CHECKING:
    from ...execution.outcome import OutputItem, PendingCall


UNSUPPORTED_LANGUAGE = "unsupported_language"
RUN_ID = re.compile(rf"{RUN_PREFIX}[0-9a-f]{{32}}", re.ASCII)
_FOREIGN_ID = re.compile(
    r"(?:(?:job|proc|process|task|pid|session|sess)[-_ :#]?)?\d{1,10}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.IGNORECASE,
)
_MAX_QUOTED_CHARACTERS = 60


class InvalidInputError(Exception):
    """Invalid input from the model, with an error code."""

    def __init__(self, message: str, code: str = INVALID_INPUT) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True)
class ExecRequest:
    """A program and the language that the model names; types are stripped for both languages."""

    code: str
    language: str


def parse_exec_input(
    tool_input: Any, options: ExecWaitOptions, max_source_bytes: int = MAX_SOURCE_BYTES
) -> ExecRequest:
    """Return the program to run. Raises `InvalidInputError`.

    Rejects programs beyond the maximum length first, because later checks take time in proportion.
    """
    if not (is_mapping(tool_input) and "command" in tool_input):
        tool_input = rename_program_field(tool_input, "code")
    checked_fields = _require_expected_fields(
        tool_input, ("code", "command", "language"), "exec takes {code, language?}"
    )
    code, command = checked_fields.get("code"), checked_fields.get("command")
    for name, value in (("code", code), ("command", command)):
        if value is not None and not isinstance(value, str):
            raise InvalidInputError(f"exec: {name} must be a string of JavaScript")
    if code is not None and command is not None and code != command:
        raise InvalidInputError("exec: code and command are two names of one field; send one")
    text = command if code is None else code
    if text is not None and len(text) > max_source_bytes:
        raise InvalidInputError(
            f"exec: the program has {len(text)} characters; max_source_bytes is {max_source_bytes}. Send a shorter"
            " program; fetch data with tools instead of writing it in"
        )
    if text is None or not text.strip():
        raise InvalidInputError("exec: code must not be empty")
    language = checked_fields.get("language")
    if language is None:
        language = choose_default_language(options.languages)
    elif not isinstance(language, str):
        raise InvalidInputError("exec: language must be a string", UNSUPPORTED_LANGUAGE)
    elif language not in LANGUAGES:
        raise InvalidInputError(f"exec: unknown language {language[:_MAX_QUOTED_CHARACTERS]!r}", UNSUPPORTED_LANGUAGE)
    elif language not in options.languages:
        raise InvalidInputError(f"exec: {language} is not enabled here", UNSUPPORTED_LANGUAGE)
    return ExecRequest(text, language)


def parse_wait_input(value: Any) -> str:
    """Return the id of the run to continue. Raises `InvalidInputError`."""
    checked_fields = _require_expected_fields(value, ("runId", "run_id"), "wait takes {runId}")
    run_id, other = checked_fields.get("runId"), checked_fields.get("run_id")
    if not all(run_id_value is None or isinstance(run_id_value, str) for run_id_value in (run_id, other)) or not (
        run_id or other
    ):
        raise InvalidInputError("wait: runId must be the runId of a result whose status is waiting")
    if run_id is not None and other is not None and run_id != other:
        raise InvalidInputError("wait: runId and run_id are two names of one field; send one")
    return str(run_id or other)


def create_run_not_found_error(run_id: str) -> InvalidInputError:
    """Return the error for an id without a run."""
    shown = run_id[:_MAX_QUOTED_CHARACTERS]
    if RUN_ID.fullmatch(run_id) is None and _FOREIGN_ID.fullmatch(run_id.strip()):
        return InvalidInputError(
            f"wait: {shown!r} looks like the id of another tool's job or process. wait takes the runId of a result of"
            " exec or wait whose status is waiting, and nothing else"
        )
    return InvalidInputError(f"wait: there is no waiting run {shown!r}. Start one with exec")


def _require_expected_fields(value: Any, allowed_fields: tuple[str, ...], usage: str) -> Mapping[str, Any]:
    if not is_mapping(value):
        raise InvalidInputError(f"{usage}, an object")
    unknown: list[Any] = [
        key for key in value if key not in allowed_fields
    ]  # keys of a host's mapping can have any type
    if unknown:
        shown = (
            repr(key[:_MAX_QUOTED_CHARACTERS]) if isinstance(key, str) else "a key that is not text"
            for key in unknown[:8]
        )
        raise InvalidInputError(f"{usage}, and not {', '.join(shown)}")
    return value


def format_output(items: Sequence[OutputItem], max_characters: int | None = None) -> list[dict[str, Any]]:
    """Return the output items of a program in order, without console output.

    Items beyond ``max_characters`` characters in total are replaced by a description.
    """
    items_written = [item for item in items if item.kind != "console"]
    output: list[dict[str, Any]] = []
    remaining = UNLIMITED if max_characters is None else max_characters
    for index, item in enumerate(items_written):
        size = 0 if max_characters is None else estimate_result_characters(item.value, remaining)
        if size <= remaining:
            output.append({"type": item.kind, "text" if item.kind == "text" else "value": item.value})
            remaining -= size
            continue
        left_out = len(items_written) - index
        if remaining >= MIN_MODEL_CHARACTERS:
            output.append({"type": "text", "text": describe_too_large_result(item.value, remaining)})
            left_out -= 1
        if left_out:
            output.append({"type": "text", "text": f"{left_out} more items were left out: write less."})
        break
    return output


def format_pending_calls(calls: Sequence[PendingCall], *, for_person: bool = False) -> list[dict[str, str]]:
    """Return the calls in flight for the model; ``for_person`` marks calls that wait for a decision."""
    return [
        {
            "id": call.id,
            "tool": call.name,
            "status": "approval" if for_person and call.status == "waiting" else call.status,
        }
        for call in calls
    ]


def _add_output_and_telemetry(
    result: dict[str, Any], output: list[dict[str, Any]], telemetry: dict[str, Any]
) -> dict[str, Any]:
    return {**result, **({"output": output} if output else {}), "telemetry": telemetry}


def build_completed_result(value: Any, output: list[dict[str, Any]], telemetry: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a completed program."""
    return _add_output_and_telemetry({"status": "completed", "value": value}, output, telemetry)


def build_waiting_result(
    run_id: str, reason: str, pending: list[dict[str, str]], output: list[dict[str, Any]], telemetry: dict[str, Any]
) -> dict[str, Any]:
    """Return the result of a suspended program."""
    pending_field = {"pendingToolCalls": pending} if pending else {}
    return _add_output_and_telemetry(
        {"status": "waiting", "runId": run_id, "reason": reason, **pending_field}, output, telemetry
    )


def build_failed_result(
    message: str, code: str, telemetry: dict[str, Any], output: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the result of a failure."""
    return _add_output_and_telemetry({"status": "failed", "error": message, "code": code}, output or [], telemetry)


MAX_RECORDED_RESULTS = 256
_MAX_INPUT_BYTES = 4 << 20
_CallKey: TypeAlias = tuple[str, str, str]
_RecordedCall: TypeAlias = tuple[str, Future[Any], float]  # digest of the input, result, time
_NOT_RECORDED = object()


class RecordedResults:
    """Recorded results by conversation, tool and call id. Calls without both ids are not recorded: models repeat ids.

    Keeps at most 256 results, each for ``seconds``. Results that say that nothing ran are not recorded.
    """

    def __init__(self, seconds: int) -> None:
        self._retention_seconds = seconds
        self._calls: OrderedDict[_CallKey, _RecordedCall] = OrderedDict()
        self._lock = create_fork_safe_lock()
        register_fork_reset(self)

    def after_fork(self) -> None:
        """Drop all records in a forked child: calls in progress belong to the parent."""
        never_finalize_in_child(self._calls)
        self._calls = OrderedDict()

    async def run_once(
        self,
        tool: str,
        call: CallContext,
        value: Any,
        work: Callable[[], Awaitable[Any]],
        on_undelivered: Callable[[Any], None] | None = None,
    ) -> Any:
        """Return the recorded result of this call, or run it.

        ``on_undelivered`` receives the result when the caller was cancelled.
        """
        if not call.conversation_id or not call.tool_call_id or (digest := _compute_input_digest(value)) is None:
            return await work()
        return await self._run_or_wait((call.conversation_id, tool, call.tool_call_id), digest, work, on_undelivered)

    async def run_once_for_value(
        self, scope: str, get_value: Callable[[], Any], work: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return the recorded result of this JSON value in this scope, or run the work."""
        try:
            digest = _compute_input_digest(get_value())
        except Exception:  # noqa: BLE001 - parsing reports what is not JSON
            digest = None
        if digest is None:
            return await work()
        return await self._run_or_wait((scope, digest, ""), "", work)

    async def _run_or_wait(
        self,
        key: _CallKey,
        digest: str,
        work: Callable[[], Awaitable[Any]],
        on_undelivered: Callable[[Any], None] | None = None,
    ) -> Any:
        while True:
            record, is_new = self._find_or_create(key, digest)
            if is_new:
                return await self._run_and_record(key, record, work, on_undelivered)
            result = await asyncio.shield(asyncio.wrap_future(record[1]))
            if result is not _NOT_RECORDED:
                return await _copy_result(result)

    def _find_or_create(self, key: _CallKey, digest: str) -> tuple[_RecordedCall, bool]:
        """Return the record of a call, and whether it is new."""
        with self._lock:
            self._remove_expired_and_surplus_results()
            found = self._calls.get(key)
            if found is not None and found[0] == digest:
                return found, False
            record = self._calls[key] = (digest, Future(), monotonic_seconds())
            self._calls.move_to_end(key)
            return record, True

    async def _run_and_record(
        self,
        key: _CallKey,
        record: _RecordedCall,
        work: Callable[[], Awaitable[Any]],
        on_undelivered: Callable[[Any], None] | None,
    ) -> Any:
        try:
            result = await work()
        except BaseException:
            self._remove(key, record)
            record[1].set_result(_NOT_RECORDED)
            raise
        if is_object(result) and result.get("code") == RUNTIME_UNAVAILABLE:
            self._remove(key, record)
        recorded_result = result
        try:
            recorded_result = await _copy_result(result)
        except asyncio.CancelledError:
            if on_undelivered is not None:
                self._remove(key, record)
                on_undelivered(result)
                recorded_result = _NOT_RECORDED
            raise
        finally:
            record[1].set_result(recorded_result)  # not recorded if its caller was cancelled
        return result

    def _remove(self, key: _CallKey, record: _RecordedCall) -> None:
        with self._lock:
            if self._calls.get(key) is record:
                del self._calls[key]

    def _remove_expired_and_surplus_results(self) -> None:
        oldest_kept = monotonic_seconds() - self._retention_seconds
        for key, (_, future, recorded_at) in [*self._calls.items()]:
            if recorded_at >= oldest_kept and len(self._calls) < MAX_RECORDED_RESULTS:
                break
            if future.done():  # keep calls in progress
                del self._calls[key]


async def _copy_result(result: Any) -> Any:
    """Return a copy for the caller, made in a thread if it is large."""
    if not is_object(result):
        return result
    return await run_off_loop_if_large(result, partial(copy.deepcopy, result))


def _compute_input_digest(value: Any) -> str | None:
    """Return a digest of an input, or None if it is not JSON."""
    try:
        text = encode_json(value, max_bytes=_MAX_INPUT_BYTES, what="the input")
    except Exception:  # noqa: BLE001 - parsing reports what is not JSON
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
