"""Identify invocations and journals, and tell which run the current code is part of."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeGuard

from ..continuations.keys import get_configured_keys
from ..continuations.signing import KeyRing
from ..data.json_values import encode_canonical_json
from ..errors import CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from ..options.parts import ContinuationOptions
from ..protocol.continuation import get_replay_settings
from ..protocol.settings import InvocationSettings
from .call_context import CallContext
from .outcome import RunOutcome

# An outer tool call id alone identifies nothing, because models repeat ``call_1``: a conversation must name it, and a
# key must keep the derived numbers secret.

Identify = Callable[[InvocationSettings, str], InvocationSettings]
_SALT_CHARACTERS = 16
_SEED_CHARACTERS = 32
_REMARK_KEYS = ("warnings", "notes")  # remarks of the host in the invocation data


def make_salt_and_seed_deriver(
    options: ContinuationOptions,
    call: CallContext,
    invocation_data: Mapping[str, Any] | None = None,
) -> Identify | None:
    """Return a function that derives salt and seed of a program's settings; None if they stay random.

    They are derived from profile, bindings, outer id, stripped program, invocation data, the settings that a replay
    depends on and the time that an engine has recorded: a model may repeat a call under the same id, and an answer
    to the first is no answer to the second. The first key is used, which stays while keys are rotated: see
    docs/approvals-hosts.md.
    """
    if not call.tool_call_id or (options.conversation_id is None and call.conversation_id is None):
        return None
    keys = options.keys if options.keys is not None else get_configured_keys()
    if not keys:
        return None
    key = _derive_identity_key(keys[0])
    binding = [options.conversation_id, call.conversation_id]

    def derive_salt_and_seed(settings: InvocationSettings, js: str) -> InvocationSettings:
        invocation_data_json = settings.invocation_data_json
        if options.journal is None:
            replayed = get_replay_settings(replace(settings, salt="", seed="", started_ms=0))
        else:
            replayed = {"outer_tool_call_id": settings.outer_tool_call_id, "profile": settings.profile.name}
            invocation_data_json = _encode_identifying_data(invocation_data)
        identity = {
            "settings": replayed,
            "binding": binding,
            "started_at_ms": call.started_at_ms,
            "program": _hash_text(js),
        }
        if invocation_data_json is not None:
            identity["given"] = _hash_text(invocation_data_json)
        digest = hmac.new(key, encode_canonical_json(identity).encode(), hashlib.sha256).hexdigest()
        salt, rest = digest[:_SALT_CHARACTERS], digest[_SALT_CHARACTERS:]
        return replace(settings, salt=salt, seed=rest[:_SEED_CHARACTERS])

    return derive_salt_and_seed


@lru_cache(8)
def _derive_identity_key(key: bytes) -> bytes:
    return KeyRing((key,), purpose="identity").get_secret()


def _encode_identifying_data(invocation_data: Mapping[str, Any] | None) -> str | None:
    identifying = (
        {}
        if invocation_data is None
        else {name: value for name, value in invocation_data.items() if name not in _REMARK_KEYS}
    )
    return encode_canonical_json(identifying) if identifying else None


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


JOURNAL_ORIGIN = "journal"
_MIN_OPENING_SECONDS = 1.0


class ProgramAlreadyRan(Exception):  # noqa: N818 - carries the outcome; not an error of the program
    """The program has ended or paused on an earlier host: there is nothing to run."""

    def __init__(self, outcome: RunOutcome) -> None:
        super().__init__("the program has run before")
        self.outcome = outcome


def require_journal_identity(options: ContinuationOptions, call: CallContext) -> None:
    """Raise `ValueError` for a journal without a conversation or a shared key."""
    if options.journal is None:
        return
    if options.conversation_id is None and call.conversation_id is None:
        raise ValueError(
            "continuation.journal needs a conversation_id, in continuation or in the CallContext: it names the"
            " conversation, user or workflow of this call, for models give different calls the same id"
        )
    if options.keys is None and not get_configured_keys():
        raise ValueError(
            "continuation.journal needs continuation.keys, or set_continuation_signing_key: with the random key of this"
            " process no other host could read what is written"
        )


def make_journal_error(message: str, *, is_lost: bool = False) -> CodeModeAbortedError:
    """Return the error of a run whose journal cannot be written or belongs to another host."""
    return CodeModeAbortedError(message, details={"origin": JOURNAL_ORIGIN, "is_lost": is_lost})


def get_journal_wait_seconds(wait_ms: int | None) -> float | None:
    """Return how long a run waits for its journal, by its wait limit for tools; None: no limit.

    At least a second: a store takes time, and a shorter wait would end programs that no other host has.
    """
    return None if wait_ms is None else max(wait_ms / 1000, _MIN_OPENING_SECONDS)


def make_journal_busy_error() -> CodeModeAbortedError:
    """Return the error of a run that waited too long for its journal. Nothing was run."""
    return make_journal_error(
        "the journal of this program was not available in time: another run owns it, or its store is slow to answer"
    )


def make_journal_unavailable_error(action: str, failure: BaseException) -> CodeModeAbortedError:
    """Return the error of a run whose journal raised an exception."""
    error = make_journal_error(f"the journal of this program cannot be {action}: {failure}")
    error.__cause__ = failure
    return error


def is_journal_error(error: BaseException) -> TypeGuard[CodeModeAbortedError]:
    """True for the error of a run whose journal could not be written or belongs to another host."""
    return isinstance(error, CodeModeAbortedError) and error.details.get("origin") == JOURNAL_ORIGIN


def is_continued_elsewhere(error: CodeModeError, *, is_resumed: bool) -> bool:
    """True if the program continues on another host or by the same resume: this run offers no recovery."""
    return is_journal_error(error) and (is_resumed or bool(error.details["is_lost"]))


@dataclass(slots=True)
class ActiveRun:
    """A run until it ends. ``key`` names its claim or journal and may be set later."""

    key: str
    outer: ActiveRun | None
    has_ended: bool = False


_innermost_run: ContextVar[ActiveRun | None] = ContextVar("codemode_underway", default=None)


@contextmanager
def tracking_run(key: str = "") -> Generator[ActiveRun]:
    """Mark what the block starts as part of a run."""
    run = ActiveRun(key, _innermost_run.get())
    token = _innermost_run.set(run)
    try:
        yield run
    finally:
        run.has_ended = True
        with suppress(ValueError):  # an abandoned coroutine is closed in another context
            _innermost_run.reset(token)


def require_no_self_wait(key: str, prefix: str = "this continuation is being resumed by") -> None:
    """Raise `CodeModeProtocolError` if the caller is part of the run that owns this key: it would wait for itself."""
    run = _innermost_run.get()
    while run is not None:
        if run.key == key and not run.has_ended:
            raise CodeModeProtocolError(f"{prefix} the program whose call asks for it: it would wait for itself")
        run = run.outer
