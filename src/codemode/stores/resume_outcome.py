"""Call a resume under a renewed lease, and classify its errors."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..errors import CUT_OFF_ERRORS, CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from ..host.cancellation import run_alongside_block, shield_until_done
from ..options.checked_fields import WrongTypeError
from .errors import StoreUnavailableError
from .records import Lease

_log = logging.getLogger("codemode.stores")


class OutageLog:
    """Logs once when a store becomes unavailable or fails differently, and once when it is back.

    A loop that polls twice a second would repeat the same message.
    """

    def __init__(self, consequence: str) -> None:
        self._consequence = consequence
        self._reason: type[Exception] | None = None

    def log_failure_if_new(self, error: Exception) -> None:
        """Log a failure unless the last one was of the same class."""
        if type(error) is self._reason:
            return
        self._reason = type(error)
        # Our own errors are complete; for others the traceback matters.
        traceback_of = None if isinstance(error, CodeModeError) else error
        _log.warning(
            "%s until the store can be used: %s", self._consequence, _format_single_line(error), exc_info=traceback_of
        )

    def log_recovery_if_failing(self) -> None:
        """Log that the store can be used again, after a failure."""
        if self._reason is not None:
            self._reason = None
            _log.warning("the store can be used again")


def _format_single_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


_REFUSAL_ORIGINS, _JOURNAL_ORIGIN = ("continuation", "decision"), "journal"


@asynccontextmanager
async def keep_lease_renewed(renew: Callable[[Lease], Awaitable[bool]], lease: Lease) -> AsyncGenerator[None]:
    """Renew a lease while the block runs; ``renew`` is that of its store.

    A lost lease does not end the block: the guard has its claim, and the new owner waits for that.
    """
    async with run_alongside_block(_renew_lease_until_lost(renew, lease)):
        yield


async def _renew_lease_until_lost(renew: Callable[[Lease], Awaitable[bool]], lease: Lease) -> None:
    outage_log = OutageLog("the lease of a record is not renewed")
    while True:
        await asyncio.sleep(lease.lease_ms / 3000)
        try:
            if not await renew(lease):
                return
        except Exception as error:  # noqa: BLE001 - the database may be back before the lease is over
            outage_log.log_failure_if_new(error)
        else:
            outage_log.log_recovery_if_failing()


async def write_or_log_despite_cancellation(work: Coroutine[Any, Any, Any]) -> None:
    """Write a record's outcome even if the caller is cancelled."""
    try:
        await shield_until_done(work)
    except StoreUnavailableError:
        # The program has run: after the lease expires, the same answers return what the guard recorded.
        _log.exception("the outcome of a record could not be written")


def get_record_ending_error(error: BaseException) -> CodeModeError | None:
    """Return the error that ends a record or has a recovery; None if nothing ran."""
    failure = error if isinstance(error, CodeModeError) else error.__cause__
    if isinstance(failure, CodeModeError) and (failure.recovery is not None or _is_program_failure(failure)):
        return failure
    return None


def get_refusal_reason(error: BaseException) -> str | None:
    """Return why answers were refused; None for other errors."""
    return (
        error.message
        if isinstance(error, CodeModeProtocolError) and _get_error_origin(error) != _JOURNAL_ORIGIN
        else None
    )


def is_call_start_unknown(error: BaseException) -> bool:
    """Return whether only a journal, which this host could not write, knows which calls started.

    The record is left alone: its next owner gets the same answers when the lease expires.
    """
    failure = error if isinstance(error, CodeModeError) else error.__cause__
    return isinstance(failure, CodeModeAbortedError) and _get_error_origin(failure) == _JOURNAL_ORIGIN


def is_outcome_permanently_unknown(error: BaseException) -> bool:
    """Return whether the outcome of a resume that was taken over stays unknown after this error.

    If a journal cannot be read or reached here, another host may still know.
    """
    return (
        isinstance(error, CodeModeProtocolError | CodeModeAbortedError) and _get_error_origin(error) in _REFUSAL_ORIGINS
    )


def get_not_resumable_reason(error: BaseException) -> str | None:
    """Return why this host cannot resume a record with any answers; None for other errors."""
    if not isinstance(error, CodeModeProtocolError):
        return None
    is_not_resumable = error.details.get("not_resumable") is True or _get_error_origin(error) == _JOURNAL_ORIGIN
    return error.message if is_not_resumable else None


def require_callable_resume(resume: Callable[..., Any]) -> Callable[..., Any]:
    """Return a resume function. Raises `ValueError` if it is not callable."""
    if not callable(resume):
        raise WrongTypeError(f"resume must be a function, such as code_mode.resume, got {resume!r}")
    return resume


def takes_record(resume: Callable[..., Any]) -> bool:
    """Return whether ``resume`` declares that it takes a `Record`."""
    return getattr(resume, "takes_record", False) is True


def takes_lease(resume: Callable[..., Any]) -> bool:
    """Return whether ``resume`` declares that it takes a `Lease`: record and interrupt together."""
    return getattr(resume, "takes_lease", False) is True


def get_declared_app(resume: Callable[..., Any]) -> str | None:
    """Return the app whose own records ``resume`` takes; None if it does not declare one."""
    app = getattr(get_bound_tool(resume), "app", None)
    return app if takes_record(resume) and isinstance(app, str) else None


def get_bound_tool(resume: Callable[..., Any]) -> Any:
    """Return the object that ``resume`` is a method of, which knows the forms of new requests."""
    return getattr(resume, "__self__", None)


def _is_program_failure(error: CodeModeError) -> bool:
    if isinstance(error, CodeModeProtocolError):
        # Otherwise the continuation or the answers are refused and may be given again, unless others were used.
        return _get_error_origin(error) not in (*_REFUSAL_ORIGINS, _JOURNAL_ORIGIN) or bool(
            error.details.get("superseded")
        )
    if isinstance(error, StoreUnavailableError):
        return bool(error.calls)  # else it comes from the guard, before anything ran
    return not isinstance(error, CUT_OFF_ERRORS)


def _get_error_origin(error: CodeModeError) -> Any:
    return error.details.get("origin")


def call_resume(resume: Callable[..., Awaitable[Any]], paused: Any, answers: Mapping[str, Any]) -> Awaitable[Any]:
    """Call ``resume`` with its answers as keyword argument, if it takes one."""
    return resume(paused, resolutions=answers) if _takes_resolutions_keyword(resume) else resume(paused, answers)


def _takes_resolutions_keyword(resume: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(resume).parameters
    except (TypeError, ValueError):
        return True
    by_name = parameters.get("resolutions")
    if by_name is not None and by_name.kind is not by_name.POSITIONAL_ONLY:
        return True
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
