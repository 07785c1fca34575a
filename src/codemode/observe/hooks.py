"""Call the host's hooks and listeners with the events of one invocation, in order."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from ..host.cancellation import is_ended_from_outside
from ..options.parts import Lifecycle
from ..trace.events import (
    CatalogEvent,
    ConsoleEvent,
    Event,
    FetchRequestEvent,
    FetchResultEvent,
    GuestMessageEvent,
    InterruptEvent,
    InvocationStarted,
    NestedToolCallEvent,
    NestedToolResultEvent,
    RefusalEvent,
)
from ..trace.trace import Trace


class InOrder:
    """Calls a function with one value after another: an async one has ended with the last before it begins the next.

    Each event loop has an order of its own.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self._last: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[None]] = WeakKeyDictionary()

    def __call__(self, value: Any) -> Awaitable[None] | None:
        """Call it. What is returned is to be awaited in a task of its own."""
        pending = self._function(value)
        if not inspect.isawaitable(pending):
            return None
        loop = asyncio.get_running_loop()
        before, done = self._last.get(loop), loop.create_future()
        self._last[loop] = done
        return self._after(before, pending, done)

    async def _after(
        self, before: asyncio.Future[None] | None, pending: Awaitable[Any], done: asyncio.Future[None]
    ) -> None:
        try:
            if before is not None:
                await asyncio.shield(before)
            await pending
        finally:
            if inspect.iscoroutine(pending):
                pending.close()  # one that never began would warn of it
            done.set_result(None)
            loop = done.get_loop()
            if self._last.get(loop) is done:
                del self._last[loop]  # which it knows, so that neither would ever go


HEARING: ContextVar[Callable[[Any], Any] | None] = ContextVar("codemode_hearing", default=None)
"""Who hears of an invocation that begins here."""


@contextmanager
def heard_by(listener: Callable[[Any], Any]) -> Generator[None]:
    """Let this listener hear every event of the invocations that begin here, before the hooks of their options do.

    It is called on the loop of each; what it raises changes nothing. Whoever is called in turn, such as a tool that
    runs programs of its own, begins here too: the first event, an `InvocationStarted`, says whose the others are.
    """
    token = HEARING.set(listener)
    try:
        yield
    finally:
        HEARING.reset(token)


_GRACE_SECONDS = 5.0
_HOOKS: dict[type[Event], str] = {
    InvocationStarted: "on_invocation_start",
    CatalogEvent: "on_catalog",
    GuestMessageEvent: "on_guest_message",
    RefusalEvent: "on_refusal",
    NestedToolCallEvent: "on_nested_tool_call",
    NestedToolResultEvent: "on_nested_tool_result",
    FetchRequestEvent: "on_fetch_request",
    FetchResultEvent: "on_fetch_result",
    ConsoleEvent: "on_console",
    InterruptEvent: "on_interrupt",
    Trace: "on_trace",
}


class Hooks:
    """Calls sync hooks at once and async ones as tasks. What they raise is reported, no more.

    ``seconds`` is how long they have kept the event loop.
    """

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._tasks: set[asyncio.Task[None]] = set()
        self.seconds = 0.0

    def hears(self, event: type[Event]) -> bool:
        """Tell whether there is a hook for such events."""
        return getattr(self._lifecycle, _HOOKS[event]) is not None

    def tell(self, event: Event) -> None:
        """Call the hook for this event, if there is one."""
        name = _HOOKS.get(type(event))
        hook = None if name is None else getattr(self._lifecycle, name)
        if name is not None and hook is not None:
            self.call(hook, event, name)

    def call(self, hook: Callable[[Any], Any], event: Event, name: str) -> None:
        """Call a hook with an event."""
        started = time.perf_counter()
        try:
            pending = hook(event)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a hook must never change the invocation it watches
            self._report(error, event, name)
        else:
            if inspect.isawaitable(pending):
                self._start(self._awaited(pending, event, name))
        self.seconds += time.perf_counter() - started

    async def finish(self) -> None:
        """Wait for the async hooks, for five seconds at the most; what is still running then is cancelled."""
        if not self._tasks:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _GRACE_SECONDS
        try:
            while self._tasks and (seconds := deadline - loop.time()) > 0:
                await asyncio.wait(self._tasks, timeout=seconds)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _awaited(self, pending: Any, event: Event, name: str) -> None:
        try:
            await pending
        except BaseException as error:  # noqa: BLE001 - as above; out of a task, SystemExit would end the whole loop
            _raise_own_end(error)
            self._report(error, event, name)

    def _report(self, error: BaseException, event: Event, name: str) -> None:
        report = self._lifecycle.on_hook_error
        if report is None:
            return
        try:
            pending = report(error, {"hook": name, "event": event})
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - nobody is left to tell
            return
        if inspect.isawaitable(pending):
            self._start(_swallowed(pending))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _swallowed(pending: Any) -> None:
    try:
        await pending
    except BaseException as error:  # noqa: BLE001 - nobody is left to tell
        _raise_own_end(error)


def _raise_own_end(error: BaseException) -> None:
    """Raise what ends this very task. A cancellation of something inside the hook is the hook's own failure."""
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError) and is_ended_from_outside(asyncio.current_task()):
        raise error
