"""Read the inputs of exec and wait; write, record and repeat their results as plain JSON."""

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

from ...data.json_shape import UNLIMITED, run_bounded
from ...data.json_values import encode_json
from ...data.narrowing import is_mapping, is_object
from ...execution.call_context import CallContext
from ...execution.large_results import characters_of, too_large_text
from ...execution.outcome_texts import INVALID_INPUT, RUNTIME_UNAVAILABLE
from ...host.clock import passed_seconds
from ...host.forks import begin_anew_in_forks, forkable_lock, leave_to_the_parent
from ...options.parts import MAX_SOURCE_BYTES, MIN_MODEL_CHARACTERS
from ...source.program_input import fill_program_field
from .options import LANGUAGES, ExecWaitOptions, default_language
from .waiting_run import RUN_PREFIX

if TYPE_CHECKING:
    from ...execution.outcome import OutputItem, PendingCall


UNSUPPORTED_LANGUAGE = "unsupported_language"
RUN_ID = re.compile(rf"{RUN_PREFIX}[0-9a-f]{{32}}", re.ASCII)
_OTHER_ID = re.compile(
    r"(?:(?:job|proc|process|task|pid|session|sess)[-_ :#]?)?\d{1,10}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.IGNORECASE,
)
_MAX_SHOWN = 60


class RefusedInputError(Exception):
    """An input of a model that means nothing, with the code of why."""

    def __init__(self, message: str, code: str = INVALID_INPUT) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True)
class ExecRequest:
    """A program to run, and the language that its model says it is in: types are stripped in both."""

    code: str
    language: str


def read_exec(given: Any, options: ExecWaitOptions, max_source_bytes: int = MAX_SOURCE_BYTES) -> ExecRequest:
    """Return what exec is asked to run. Raises `RefusedInputError`.

    What is longer than any program may be is refused here, for whatever looks at a text takes as long as it is.
    """
    if not (is_mapping(given) and "command" in given):
        given = fill_program_field(given, "code")
    fields = _fields(given, ("code", "command", "language"), "exec takes {code, language?}")
    code, command = fields.get("code"), fields.get("command")
    for name, value in (("code", code), ("command", command)):
        if value is not None and not isinstance(value, str):
            raise RefusedInputError(f"exec: {name} must be a string of JavaScript")
    if code is not None and command is not None and code != command:
        raise RefusedInputError("exec: code and command are two names of one field; give one of them")
    text = command if code is None else code
    if text is not None and len(text) > max_source_bytes:
        raise RefusedInputError(
            f"exec: the program has {len(text)} characters; max_source_bytes is {max_source_bytes}. Send a shorter"
            " program; fetch data with tools instead of writing it in"
        )
    if text is None or not text.strip():
        raise RefusedInputError("exec: code must be a program, and it is empty")
    language = fields.get("language")
    if language is None:
        language = default_language(options.languages)
    elif not isinstance(language, str):
        raise RefusedInputError("exec: language must be the name of one, as text", UNSUPPORTED_LANGUAGE)
    elif language not in LANGUAGES:
        raise RefusedInputError(f"exec: there is no language {language[:_MAX_SHOWN]!r}", UNSUPPORTED_LANGUAGE)
    elif language not in options.languages:
        raise RefusedInputError(f"exec: {language} is not enabled here", UNSUPPORTED_LANGUAGE)
    return ExecRequest(text, language)


def read_wait(given: Any) -> str:
    """Return the id of the run that wait is asked to go on with. Raises `RefusedInputError`."""
    fields = _fields(given, ("runId", "run_id"), "wait takes {runId}")
    run_id, other = fields.get("runId"), fields.get("run_id")
    if not all(one is None or isinstance(one, str) for one in (run_id, other)) or not (run_id or other):
        raise RefusedInputError("wait: runId must be the runId of a result whose status is waiting")
    if run_id is not None and other is not None and run_id != other:
        raise RefusedInputError("wait: runId and run_id are two names of one field; give one of them")
    return str(run_id or other)


def unknown_run(run_id: str) -> RefusedInputError:
    """Return the refusal of an id that names no run here."""
    shown = run_id[:_MAX_SHOWN]
    if RUN_ID.fullmatch(run_id) is None and _OTHER_ID.fullmatch(run_id.strip()):
        return RefusedInputError(
            f"wait: {shown!r} looks like the id of another tool's job or process. wait takes the runId of a result of"
            " exec or wait whose status is waiting, and nothing else"
        )
    return RefusedInputError(f"wait: there is no waiting run {shown!r}. Start one with exec")


def _fields(given: Any, known: tuple[str, ...], usage: str) -> Mapping[str, Any]:
    if not is_mapping(given):
        raise RefusedInputError(f"{usage}, an object")
    unknown: list[Any] = [key for key in given if key not in known]  # of a host's own mapping anything
    if unknown:
        shown = (repr(key[:_MAX_SHOWN]) if isinstance(key, str) else "a key that is no text" for key in unknown[:8])
        raise RefusedInputError(f"{usage}, and not {', '.join(shown)}")
    return given


def output_of(items: Sequence[OutputItem], most: int | None = None) -> list[dict[str, Any]]:
    """Return the items that a program has written, in order; what it has logged is not among them.

    Of what has more than ``most`` characters, in all, a model is told instead.
    """
    written = [one for one in items if one.kind != "console"]
    shown: list[dict[str, Any]] = []
    left = UNLIMITED if most is None else most
    for at, one in enumerate(written):
        size = 0 if most is None else characters_of(one.value, left)
        if size <= left:
            shown.append({"type": one.kind, "text" if one.kind == "text" else "value": one.value})
            left -= size
            continue
        more = len(written) - at
        if left >= MIN_MODEL_CHARACTERS:
            shown.append({"type": "text", "text": too_large_text(one.value, left)})
            more -= 1
        if more:
            shown.append({"type": "text", "text": f"{more} more items were left out: write less."})
        break
    return shown


def pending_of(calls: Sequence[PendingCall], *, for_person: bool = False) -> list[dict[str, str]]:
    """Return the calls that are in flight, as a model reads them; ``for_person`` marks those that wait for one."""
    return [
        {"id": one.id, "tool": one.name, "status": "approval" if for_person and one.status == "waiting" else one.status}
        for one in calls
    ]


def _with(result: dict[str, Any], output: list[dict[str, Any]], telemetry: dict[str, Any]) -> dict[str, Any]:
    return {**result, **({"output": output} if output else {}), "telemetry": telemetry}


def completed(value: Any, output: list[dict[str, Any]], telemetry: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a program that has ended."""
    return _with({"status": "completed", "value": value}, output, telemetry)


def waiting(
    run_id: str, reason: str, pending: list[dict[str, str]], output: list[dict[str, Any]], telemetry: dict[str, Any]
) -> dict[str, Any]:
    """Return the result of a program at rest."""
    more = {"pendingToolCalls": pending} if pending else {}
    return _with({"status": "waiting", "runId": run_id, "reason": reason, **more}, output, telemetry)


def failed(
    message: str, code: str, telemetry: dict[str, Any], output: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the result of what went wrong."""
    return _with({"status": "failed", "error": message, "code": code}, output or [], telemetry)


MAX_RECORDED = 256
_MAX_INPUT_BYTES = 4 << 20
_Key: TypeAlias = tuple[str, str, str]
_Call: TypeAlias = tuple[str, Future[Any], float]  # digest of the input, result, when it was made
_GONE = object()


class Recorded:
    """Results by conversation, tool and id of the call; without both ids nothing is recorded, for models repeat ids.

    A result is kept for ``seconds``, and at most 256 of them. One that says that nothing ran is not.
    """

    def __init__(self, seconds: int) -> None:
        self._kept_seconds = seconds
        self._calls: OrderedDict[_Key, _Call] = OrderedDict()
        self._lock = forkable_lock()
        begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: what is under way is its parent's alone."""
        leave_to_the_parent(self._calls)
        self._calls = OrderedDict()

    async def once(
        self,
        tool: str,
        call: CallContext,
        given: Any,
        work: Callable[[], Awaitable[Any]],
        owe: Callable[[Any], None] | None = None,
    ) -> Any:
        """Return what this call has come to, or do it. ``owe`` takes what comes when its caller has been cancelled."""
        if not call.conversation_id or not call.tool_call_id or (digest := _digest(given)) is None:
            return await work()
        return await self._shared((call.conversation_id, tool, call.tool_call_id), digest, work, owe)

    async def once_for(self, scope: str, told: Callable[[], Any], work: Callable[[], Awaitable[Any]]) -> Any:
        """Return what work on exactly this, a JSON value, has come to in this scope, or do it."""
        try:
            digest = _digest(told())
        except Exception:  # noqa: BLE001 - what is none is refused by whoever reads it
            digest = None
        if digest is None:
            return await work()
        return await self._shared((scope, digest, ""), "", work)

    async def _shared(
        self, key: _Key, digest: str, work: Callable[[], Awaitable[Any]], owe: Callable[[Any], None] | None = None
    ) -> Any:
        while True:
            known, is_mine = self._begun(key, digest)
            if is_mine:
                return await self._done(key, known, work, owe)
            result = await asyncio.shield(asyncio.wrap_future(known[1]))
            if result is not _GONE:
                return await _copied(result)

    def _begun(self, key: _Key, digest: str) -> tuple[_Call, bool]:
        """Return the same call, and whether it is this one: somebody else may have made it before."""
        with self._lock:
            self._forget()
            found = self._calls.get(key)
            if found is not None and found[0] == digest:
                return found, False
            mine = self._calls[key] = (digest, Future(), passed_seconds())
            self._calls.move_to_end(key)
            return mine, True

    async def _done(
        self, key: _Key, mine: _Call, work: Callable[[], Awaitable[Any]], owe: Callable[[Any], None] | None
    ) -> Any:
        try:
            result = await work()
        except BaseException:
            self._drop(key, mine)
            mine[1].set_result(_GONE)
            raise
        if is_object(result) and result.get("code") == RUNTIME_UNAVAILABLE:
            self._drop(key, mine)
        kept = result
        try:
            kept = await _copied(result)
        except asyncio.CancelledError:
            if owe is not None:
                self._drop(key, mine)
                owe(result)
                kept = _GONE
            raise
        finally:
            mine[1].set_result(kept)  # nobody else has what its caller was cancelled for
        return result

    def _drop(self, key: _Key, mine: _Call) -> None:
        with self._lock:
            if self._calls.get(key) is mine:
                del self._calls[key]

    def _forget(self) -> None:
        before = passed_seconds() - self._kept_seconds
        for key, (_, future, at) in [*self._calls.items()]:
            if at >= before and len(self._calls) < MAX_RECORDED:
                break
            if future.done():  # one that takes long keeps nobody's result but its own
                del self._calls[key]


async def _copied(result: Any) -> Any:
    """Return a result that its caller may change: copied in a thread where that takes long."""
    if not is_object(result):
        return result
    return await run_bounded(result, partial(copy.deepcopy, result))


def _digest(given: Any) -> str | None:
    """Return what an input is known by, however large it is; None for what is no JSON."""
    try:
        text = encode_json(given, max_bytes=_MAX_INPUT_BYTES, what="the input")
    except Exception:  # noqa: BLE001 - what is no JSON is refused by whoever reads it
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
