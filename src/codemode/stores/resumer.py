"""Resume decided records where the tools are, under a renewed lease."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self

from ..errors import CUT_OFF_ERRORS, CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from ..host.cancellation import alongside, to_its_end
from ..options.checked_fields import WrongTypeError
from ..options.parts import CodeModeOptions, ContinuationOptions
from .errors import StoreUnavailable
from .interrupt_store import InterruptStore
from .leases import new_owner
from .record_writes import require_lease
from .records import LEASE_MS, Lease, Tenant
from .rows import require_tenant

_log = logging.getLogger("codemode.stores")


class AwayLog:
    """What cannot be done meanwhile, said when a store goes away, for another reason, or comes back.

    A loop that asks twice a second would fill the log with one and the same reason.
    """

    def __init__(self, consequence: str) -> None:
        self._consequence = consequence
        self._reason: type[Exception] | None = None

    def failed(self, error: Exception) -> None:
        """Take that a try has failed."""
        if type(error) is self._reason:
            return
        self._reason = type(error)
        # An error of ours says all there is; where anything else came from only the traceback tells.
        told = None if isinstance(error, CodeModeError) else error
        _log.warning("%s until the store can be used: %s", self._consequence, _line(error), exc_info=told)

    def worked(self) -> None:
        """Take that a try has not failed."""
        if self._reason is not None:
            self._reason = None
            _log.warning("the store can be used again")


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


_REFUSED, _JOURNAL = ("continuation", "decision"), "journal"


class Renewing(Protocol):
    """What renews a lease."""

    async def renew(self, lease: Lease) -> bool:
        """See `InterruptStore.renew`."""
        ...


@asynccontextmanager
async def renewed(store: Renewing, lease: Lease) -> AsyncGenerator[None]:
    """Keep a lease while the block runs.

    A lease that was lost does not end the block: the guard has its claim, and whoever has the lease waits for that.
    """
    async with alongside(_keep(store, lease)):
        yield


async def _keep(store: Renewing, lease: Lease) -> None:
    away = AwayLog("the lease of a record is not renewed")
    while True:
        await asyncio.sleep(lease.lease_ms / 3000)
        try:
            if not await store.renew(lease):
                return
        except Exception as error:  # noqa: BLE001 - the database may be back before the lease is over
            away.failed(error)
        else:
            away.worked()


async def written(work: Coroutine[Any, Any, Any]) -> None:
    """Write what a record came to, however often the caller is cancelled."""
    try:
        await to_its_end(work)
    except StoreUnavailable:
        # The program has run: once the lease is over the same answers give what the guard has of it.
        _log.exception("what a record came to could not be written")


def end_of(error: BaseException) -> CodeModeError | None:
    """Return what a record has come to with an error: its way on, or its end. None: nothing of it was run."""
    failure = error if isinstance(error, CodeModeError) else error.__cause__
    if isinstance(failure, CodeModeError) and (failure.recovery is not None or _is_programs_end(failure)):
        return failure
    return None


def refusal_of(error: BaseException) -> str | None:
    """Return why answers were refused; None when something else has failed."""
    return error.message if isinstance(error, CodeModeProtocolError) and _origin(error) != _JOURNAL else None


def may_have_begun(error: BaseException) -> bool:
    """Tell whether a journal alone knows what was begun with the answers, for this host could not write it any more.

    Then nothing is said of the record: whoever has it when its lease is over gets the very same answers, and goes on.
    """
    failure = error if isinstance(error, CodeModeError) else error.__cause__
    return isinstance(failure, CodeModeAbortedError) and _origin(failure) == _JOURNAL


def cannot_say(error: BaseException) -> bool:
    """Tell whether nobody will know, after this error, what became of the resume that was taken over.

    A journal that this host cannot read, or that is away, knows.
    """
    return isinstance(error, CodeModeProtocolError | CodeModeAbortedError) and _origin(error) in _REFUSED


def not_resumable(error: BaseException) -> str | None:
    """Return why this host cannot resume a record, whatever is answered; None when something else has failed."""
    if not isinstance(error, CodeModeProtocolError):
        return None
    is_unfit = error.details.get("not_resumable") is True or _origin(error) == _JOURNAL
    return error.message if is_unfit else None


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


def app_of(resume: Callable[..., Any]) -> str | None:
    """Return the app of what goes on from its own records alone; None where that says nothing."""
    app = getattr(tool_of(resume), "app", None)
    return app if takes_record(resume) and isinstance(app, str) else None


def tool_of(resume: Callable[..., Any]) -> Any:
    """Return the tool that ``resume`` is a method of, which knows the forms of what comes to be asked."""
    return getattr(resume, "__self__", None)


def _is_programs_end(error: CodeModeError) -> bool:
    if isinstance(error, CodeModeProtocolError):
        # Of the rest the continuation is refused or its answers are: they may be given again, unless others were.
        return _origin(error) not in (*_REFUSED, _JOURNAL) or bool(error.details.get("superseded"))
    if isinstance(error, StoreUnavailable):
        return bool(error.calls)  # else it is the guard's, which was asked before anything ran
    return not isinstance(error, CUT_OFF_ERRORS)


def _origin(error: CodeModeError) -> Any:
    return error.details.get("origin")


def resumed(resume: Callable[..., Awaitable[Any]], paused: Any, answers: Mapping[str, Any]) -> Awaitable[Any]:
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
    return any(one.kind is one.VAR_KEYWORD for one in parameters.values())


# Knows the tools of all surfaces by where they have their options, and none by name.


def continuation_of(tool: Any) -> ContinuationOptions | None:
    """Return how a tool of whatever surface resumes programs; None for what is no such tool."""
    own = getattr(tool, "options", None)
    for found in (own, getattr(own, "settings", None), getattr(tool, "settings", None)):
        if isinstance(found, CodeModeOptions):
            return found.continuation
    return None


def require_guard(store: InterruptStore, tool: Any, whose: str = "the tool's options") -> None:
    """Raise `ValueError` where a tool has its claims elsewhere: who stood still there makes a call a second time.

    ``whose`` says which options are to name the guard.
    """
    continuation = continuation_of(tool)
    if continuation is not None and continuation.guard is not store.guard:
        raise ValueError(
            f"{whose} use another guard than the store's, and calls could run twice: write"
            " continuation={'guard': store.guard} in them"
        )


_LOOK_SECONDS = 0.5
_SWEEP_SECONDS = 10.0
_DENY_BEFORE_EXPIRY_MS = 60_000
_RETRY_MS = 5_000


class Resumer:
    """Applies the decisions in a store, while its ``async with`` block runs, at most ``concurrency`` records at once.

    ``resume`` takes an interrupt and its answers as `CodeModeTool.resume` does, or with ``with_record`` the `Record`,
    as a ``resume`` whose attribute ``takes_record`` is True always does. All of ``tenant``, of ``app`` where one is
    named, or where such a ``resume`` belongs to what has one. Leaving the block claims nothing more and waits for what
    runs.
    Raises `ValueError` for a tool whose options use another guard than the store's, and for what is no function.
    """

    def __init__(
        self,
        store: InterruptStore,
        *,
        tenant: Tenant,
        resume: Callable[..., Awaitable[Any]],
        app: str | None = None,
        concurrency: int = 4,
        with_record: bool = False,
        lease_ms: int = LEASE_MS,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        require_resume(resume)
        require_guard(store, tool_of(resume))
        self._store = store
        self._tenant: Tenant = require_tenant(tenant)
        self._app = app if app is not None else app_of(resume)
        self._resume = resume
        self._with_record = with_record or takes_record(resume)
        self._lease_ms = require_lease(lease_ms)
        self._slots = asyncio.Semaphore(concurrency)
        self._claims, self._sweeps = AwayLog("nothing is resumed"), AwayLog("what has expired is not marked")
        self._owner = new_owner()
        self._running: set[asyncio.Task[None]] = set()
        self._loops: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._loops = [loop.create_task(self._claim_all()), loop.create_task(self._sweep_all())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._loops:
            task.cancel()
        try:
            await to_its_end(asyncio.wait(self._loops))
            if self._running:
                await asyncio.wait(self._running)
        except asyncio.CancelledError:
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(self._running)
            raise

    async def _claim_all(self) -> None:
        with self._store.watch() as watch:
            while True:
                await self._slots.acquire()
                lease = None
                try:
                    lease = await self._claim()
                finally:
                    if lease is None:
                        self._slots.release()
                if lease is None:
                    await watch.wait(_LOOK_SECONDS)
                    continue
                task = asyncio.get_running_loop().create_task(self._apply(lease))
                self._running.add(task)
                task.add_done_callback(self._ended)

    async def _claim(self) -> Lease | None:
        try:
            lease = await self._store.claim(
                owner=self._owner, tenant=self._tenant, app=self._app, lease_ms=self._lease_ms
            )
        except Exception as error:  # noqa: BLE001 - a store may be host code, and may work again the next time
            self._claims.failed(error)
            return None
        self._claims.worked()
        return lease

    async def _sweep_all(self) -> None:
        while True:
            try:
                await self._store.sweep(deny_before_expiry_ms=_DENY_BEFORE_EXPIRY_MS)
            except Exception as error:  # noqa: BLE001 - as above
                self._sweeps.failed(error)
            else:
                self._sweeps.worked()
            await asyncio.sleep(_SWEEP_SECONDS)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a record could not be resumed", exc_info=error)

    async def _apply(self, lease: Lease) -> None:
        record_or_pause = lease.record if self._with_record else lease.interrupt
        paused = lease if takes_lease(self._resume) else record_or_pause
        try:
            async with renewed(self._store, lease):
                result = await resumed(self._resume, paused, lease.resolutions)
        except asyncio.CancelledError as error:
            await self._failed(lease, error)
            raise
        except Exception as error:  # noqa: BLE001 - it is written, or told in the log
            await self._failed(lease, error)
        else:
            await written(self._store.settle(lease, result, tool=tool_of(self._resume)))

    async def _failed(self, lease: Lease, error: BaseException) -> None:
        end, refusal, unfit = end_of(error), refusal_of(error), not_resumable(error)
        if unfit is not None:
            _log.warning("record %s cannot be resumed here: %s", lease.record.id, unfit)
            await written(self._store.release(lease, not_resumable=unfit))
            return
        if end is None and may_have_begun(error):
            _log.warning("a record goes on from its journal once its lease is over", exc_info=error)
            return
        if end is None and isinstance(error, CodeModeProtocolError) and not lease.resolutions:
            end = error  # nobody could answer otherwise
        if end is not None:
            await written(self._store.settle(lease, end, tool=tool_of(self._resume)))
        elif lease.is_takeover and cannot_say(error):
            await written(self._store.lose(lease))
        elif refusal is not None:
            await written(self._store.release(lease, refusals=dict.fromkeys(lease.resolutions, refusal)))
        else:
            _log.warning("a record could not be resumed, and is tried again", exc_info=error)
            await written(self._store.release(lease, delay_ms=_RETRY_MS))
