"""A machine that stands still now and then: callbacks of event loops, and work of threads, are late at random.

Continuous integration runs many processes on two cores. A test that is right only where the next step comes at once
falls there one time in hundreds, and here at once: `CODEMODE_HALTS=0.01,0.25,2 python -m pytest FILE`.
"""

from __future__ import annotations

import concurrent.futures.thread
import random
import time
from asyncio import events
from collections.abc import Callable
from typing import Any

from codemode.host.job_threads import JobThreads

_OF_THREADS = 8  # how much likelier it is for threads, which begin seldom


class Halts:
    """Stands still before so large a part of all callbacks, each time for up to ``seconds``, for ``in_all`` of a test.

    A test that measures how long its event loop is held measures this too. ``sleep`` holds the thread that calls it.
    """

    def __init__(
        self, part: float, seconds: float, in_all: float, *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self._part, self._seconds, self._in_all = part, seconds, in_all
        self._sleep = sleep
        self._left = in_all

    @classmethod
    def of(cls, text: str) -> Halts:
        """Read what the environment says: part, seconds and seconds in all, with commas. Raises `ValueError`."""
        part, seconds, in_all = map(float, text.split(","))
        return cls(part, seconds, in_all)

    def begin_test(self) -> None:
        """Let the next test stand still for as long as the one before could."""
        self._left = self._in_all

    def patch(self, patch: Callable[[Any, str, Any], object]) -> None:
        """Put it into all event loops, executors and host threads of this process. ``patch`` sets attributes."""
        run_callback: Any = events.Handle._run
        run_work: Any = concurrent.futures.thread._WorkItem.run
        next_job: Any = JobThreads._wait_and_take_job

        def late_callback(handle: Any) -> None:
            self._halt(self._part)
            run_callback(handle)

        def late_work(item: Any, *given: Any) -> None:
            self._halt(self._part * _OF_THREADS)
            run_work(item, *given)
            self._halt(self._part * _OF_THREADS)

        def late_job(threads: Any, *given: Any) -> Any:
            job = next_job(threads, *given)
            if job is not None:
                self._halt(self._part * _OF_THREADS)
            return job

        patch(events.Handle, "_run", late_callback)
        patch(JobThreads, "_wait_and_take_job", late_job)
        patch(concurrent.futures.thread._WorkItem, "run", late_work)

    def _halt(self, part: float) -> None:
        if self._left > 0 and random.random() < part:
            seconds = random.uniform(0, self._seconds)
            self._left -= seconds
            self._sleep(seconds)
