"""Threads of what is closed, or what nobody has any more: they end as soon as they have nothing to do."""

from __future__ import annotations

import gc
import threading
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until, within

from codemode import WorkerPool
from codemode.host.job_threads import JobThreads
from codemode.host.threads import BackgroundThreads, HostThreads, InvocationThreads

LONG = 3600.0  # no test waits until a thread is bored


def _of_host() -> tuple[Any, Callable[[], Awaitable[Any]]]:
    threads = HostThreads(LONG)

    async def work() -> None:
        ours = InvocationThreads(threads)
        seen.append(await ours.run_tool(threading.current_thread))
        seen.append(await ours.run_cpu_bound(threading.current_thread))

    seen: list[threading.Thread] = []
    return threads, lambda: _done(work, seen)


def _of_errands() -> tuple[Any, Callable[[], Awaitable[Any]]]:
    threads = BackgroundThreads("codemode-left", 1, idle_seconds=LONG)
    seen: list[threading.Thread] = []

    async def work() -> None:
        seen.append(await threads.run(threading.current_thread))

    return threads, lambda: _done(work, seen)


async def _done(work: Callable[[], Awaitable[None]], seen: list[threading.Thread]) -> list[threading.Thread]:
    await work()
    return seen


@pytest.mark.parametrize("made", [_of_host, _of_errands])
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "dropped"])
def test_threads_end_with_what_they_are_of(made: Callable[[], Any], *, is_closed: bool):
    async def scenario() -> None:
        threads, run = made()
        seen = await run()
        assert all(one.is_alive() for one in seen)
        if is_closed:
            threads.end_threads_when_idle()
            before = len(seen)
            assert len(await run()) == 2 * before  # what still comes is done
        del threads, run
        await until(lambda: not any(one.is_alive() for one in seen))

    within(scenario())


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "dropped"])
def test_threads_end_with_their_share_of_a_pool(*, is_closed: bool):
    async def scenario() -> None:
        with WorkerPool({"max_workers": 1}) as pool:
            share = pool.share("acme", max_workers=1)
            share.threads = HostThreads(LONG)
            thread = await InvocationThreads(share.threads).run_tool(threading.current_thread)
            if is_closed:
                share.close()
            else:
                del share
                gc.collect()
            await until(lambda: not thread.is_alive())

    within(scenario())


def test_a_forked_child_does_no_job_of_its_parent_and_has_threads_of_its_own():
    did: list[str] = []
    done = threading.Event()
    threads: Any = JobThreads("codemode-forked", 1, idle_seconds=0)
    threads._count = 1  # as if the one thread of the parent were busy
    threads.put(SimpleNamespace(perform=lambda: did.append("the parent's")))
    threads.after_fork()
    threads.put(SimpleNamespace(perform=lambda: did.append("the child's")))
    threads.put(SimpleNamespace(perform=done.set))
    assert done.wait(60)
    assert did == ["the child's"]
