"""What a resume comes to, and how it is called and its lease kept meanwhile."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..errors import CUT_OFF_ERRORS, CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from ..host.cancellation import run_alongside, shield_to_end
from ..options.checked_fields import WrongTypeError
from .errors import StoreUnavailableError
from .records import Lease

_log = logging.getLogger("codemode.stores")


class OutageLog:
    """What cannot be done meanwhile, said when a store goes away, for another reason, or comes back.

    A loop that asks twice a second would fill the log with one and the same reason.
    """

    def __init__(self, consequence: str) -> None:
        self._consequence = consequence
        self._reason: type[Exception] | None = None

    def log_failure(self, error: Exception) -> None:
        """Take that a try has failed."""
        if type(error) is self._reason:
            return
        self._reason = type(error)
        # An error of ours says all there is; where anything else came from only the traceback tells.
        traceback_of = None if isinstance(error, CodeModeError) else error
        _log.warning(
            "%s until the store can be used: %s", self._consequence, _single_line(error), exc_info=traceback_of
        )

    def log_success(self) -> None:
        """Take that a try has not failed."""
        if self._reason is not None:
            self._reason = None
            _log.warning("the store can be used again")


def _single_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


_REFUSAL_ORIGINS, _JOURNAL_ORIGIN = ("continuation", "decision"), "journal"


@asynccontextmanager
async def renewing_lease(renew: Callable[[Lease], Awaitable[bool]], lease: Lease) -> AsyncGenerator[None]:
    """Keep a lease while the block runs; ``renew`` is that of its store.

    A lease that was lost does not end the block: the guard has its claim, and whoever has the lease waits for that.
    """
    async with run_alongside(_renew_until_lost(renew, lease)):
        yield


async def _renew_until_lost(renew: Callable[[Lease], Awaitable[bool]], lease: Lease) -> None:
    outage_log = OutageLog("the lease of a record is not renewed")
    while True:
        await asyncio.sleep(lease.lease_ms / 3000)
        try:
            if not await renew(lease):
                return
        except Exception as error:  # noqa: BLE001 - the database may be back before the lease is over
            outage_log.log_failure(error)
        else:
            outage_log.log_success()


async def finish_writing(work: Coroutine[Any, Any, Any]) -> None:
    """Write what a record came to, however often the caller is cancelled."""
    try:
        await shield_to_end(work)
    except StoreUnavailableError:
        # The program has run: once the lease is over the same answers give what the guard has of it.
        _log.exception("what a record came to could not be written")


def outcome_error(error: BaseException) -> CodeModeError | None:
    """Return what a record has come to with an error: its way on, or its end. None: nothing of it was run."""
    failure = error if isinstance(error, CodeModeError) else error.__cause__
    if isinstance(failure, CodeModeError) and (failure.recovery is not None or _is_program_failure(failure)):
        return failure
    return None


def refusal_reason(error: BaseException) -> str | None:
    """Return why answers were refused; None when something else has failed."""
    return error.message if isinstance(error, CodeModeProtocolError) and _get_origin(error) != _JOURNAL_ORIGIN else None


def may_have_started(error: BaseException) -> bool:
    """Tell whether a journal alone knows what was begun with the answers, for this host could not write it any more.

    Then nothing is said of the record: whoever has it when its lease is over gets the very same answers, and goes on.
    """
    failure = error if isinstance(error, CodeModeError) else error.__cause__
    return isinstance(failure, CodeModeAbortedError) and _get_origin(failure) == _JOURNAL_ORIGIN


def is_outcome_unknown(error: BaseException) -> bool:
    """Tell whether nobody will know, after this error, what became of the resume that was taken over.

    A journal that this host cannot read, or that is away, knows.
    """
    return isinstance(error, CodeModeProtocolError | CodeModeAbortedError) and _get_origin(error) in _REFUSAL_ORIGINS


def not_resumable_reason(error: BaseException) -> str | None:
    """Return why this host cannot resume a record, whatever is answered; None when something else has failed."""
    if not isinstance(error, CodeModeProtocolError):
        return None
    is_not_resumable = error.details.get("not_resumable") is True or _get_origin(error) == _JOURNAL_ORIGIN
    return error.message if is_not_resumable else None


def require_resume(resume: Callable[..., Any]) -> Callable[..., Any]:
    """Return what resumes. Raises `ValueError` for what cannot be called."""
    if not callable(resume):
        raise WrongTypeError(f"resume must be a function, such as code_mode.resume, got {resume!r}")
    return resume


def takes_record(resume: Callable[..., Any]) -> bool:
    """Tell whether ``resume`` says of itself that it goes on from a `Record`."""
    return getattr(resume, "takes_record", False) is True


def takes_lease(resume: Callable[..., Any]) -> bool:
    """Tell whether ``resume`` says of itself that it goes on from a `Lease`: record and interrupt together."""
    return getattr(resume, "takes_lease", False) is True


def get_app(resume: Callable[..., Any]) -> str | None:
    """Return the app of what goes on from its own records alone; None where that says nothing."""
    app = getattr(get_tool(resume), "app", None)
    return app if takes_record(resume) and isinstance(app, str) else None


def get_tool(resume: Callable[..., Any]) -> Any:
    """Return the tool that ``resume`` is a method of, which knows the forms of what comes to be asked."""
    return getattr(resume, "__self__", None)


def _is_program_failure(error: CodeModeError) -> bool:
    if isinstance(error, CodeModeProtocolError):
        # Of the rest the continuation is refused or its answers are: they may be given again, unless others were.
        return _get_origin(error) not in (*_REFUSAL_ORIGINS, _JOURNAL_ORIGIN) or bool(error.details.get("superseded"))
    if isinstance(error, StoreUnavailableError):
        return bool(error.calls)  # else it is the guard's, which was asked before anything ran
    return not isinstance(error, CUT_OFF_ERRORS)


def _get_origin(error: CodeModeError) -> Any:
    return error.details.get("origin")


def call_resume(resume: Callable[..., Awaitable[Any]], paused: Any, answers: Mapping[str, Any]) -> Awaitable[Any]:
    """Call ``resume`` with its answers by name wherever it can be.

    The second argument of `CodeModeTool.resume` is one resolution.
    """
    return resume(paused, resolutions=answers) if _takes_resolutions(resume) else resume(paused, answers)


def _takes_resolutions(resume: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(resume).parameters
    except (TypeError, ValueError):
        return True
    by_name = parameters.get("resolutions")
    if by_name is not None and by_name.kind is not by_name.POSITIONAL_ONLY:
        return True
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
