"""Threads with one queue: one is called at a time, and yet each job that blocks gets one."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from codemode.host.job_threads import JobThreads

SECONDS = 60
JOBS = 8


class Errand:
    def __init__(self, work: Callable[[], object]) -> None:
        self.perform = work


def all_at_once(threads: JobThreads, seen: set[int]) -> None:
    """Put jobs that end only when all of them run."""
    together = threading.Barrier(JOBS + 1, timeout=SECONDS)

    def work() -> None:
        seen.add(threading.get_ident())
        together.wait()

    for _ in range(JOBS):
        threads.put(Errand(work))
    together.wait()


def until_idle(threads: JobThreads) -> None:
    """Wait until all of them wait to be called, but for those that have ended."""
    came = threading.Event()
    for _ in range(SECONDS * 100):
        if len(threads._idle_gates) == threads._count and not threads._is_waking:
            return
        came.wait(0.01)
    pytest.fail("the threads have not become idle")


def test_a_burst_calls_every_thread_that_it_needs():
    threads = JobThreads("burst", JOBS)
    for _ in range(5):
        all_at_once(threads, set())
        until_idle(threads)


def test_one_job_after_the_other_leaves_most_threads_idle():
    threads, seen = JobThreads("turns", JOBS), set[int]()
    all_at_once(threads, seen)
    seen.clear()
    for _ in range(20):
        until_idle(threads)
        done = threading.Event()

        def work(done: threading.Event = done) -> None:
            seen.add(threading.get_ident())
            done.set()

        threads.put(Errand(work))
        assert done.wait(SECONDS)
    assert len(seen) < JOBS  # one, unless the machine stood still for so long that they ended


@pytest.mark.parametrize("seconds", [0, 0.001])
def test_threads_end_when_nobody_calls_and_come_again(seconds: float):
    threads = JobThreads("short", JOBS, idle_seconds=seconds)
    for _ in range(10):
        all_at_once(threads, set())
        until_idle(threads)
    started = [one for one in threading.enumerate() if one.name == "short"]
    for one in started:
        one.join(SECONDS)
    assert threads._count == 0
