"""The event loop that the sync callers of one pair share, in a thread of its own: their runs live on between calls."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from ...host.forks import begin_anew_in_forks, forkable_lock, leave_to_the_parent
from ...host.workflows import refuse_in_workflow

if TYPE_CHECKING:
    import asyncio

ResultT = TypeVar("ResultT")


class OwnLoop:
    """A loop that is started when somebody needs it, and ends with the pair or the process."""

    def __init__(self) -> None:
        self._lock = forkable_lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: the thread that runs it is not in it."""
        leave_to_the_parent(self._loop)
        self._loop, self._thread = None, None

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine on the loop, and wait for it in this thread. Raises `RuntimeError` on the loop itself."""
        import asyncio

        try:
            refuse_in_workflow()
            if self._thread is threading.current_thread():
                raise RuntimeError(
                    "a tool of the pair that is called on its own loop cannot wait for it: await execute"
                )
            loop = self._started()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def aclose(self) -> None:
        """End the loop and its thread."""
        import asyncio

        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None or thread is threading.current_thread():
            return
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _started(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_live, args=(self._loop,), name="codemode-exec-wait", daemon=True
                )
                self._thread.start()
                # A pair that nobody has any more leaves no thread behind.
                weakref.finalize(self, _stop, self._loop).atexit = False
            return self._loop


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)


def _live(loop: asyncio.AbstractEventLoop) -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
