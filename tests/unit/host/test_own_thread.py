"""Threads for work that nobody else may keep waiting."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref

import pytest
from waiting import until, within

from codemode.host.job_threads import run_in_dedicated_thread


def test_work_waits_for_no_other_work():
    async def scenario():
        barrier = threading.Barrier(40)
        await asyncio.gather(*(run_in_dedicated_thread(lambda: barrier.wait(60), "codemode-test") for _ in range(40)))

    within(scenario())


def test_one_after_the_other_takes_one_thread_that_keeps_nothing():
    class Thing:
        pass

    async def scenario():
        things, seen = [Thing() for _ in range(20)], []
        for one in things:
            seen.append(
                await run_in_dedicated_thread(lambda one=one: (weakref.ref(one), threading.current_thread()), "a")
            )
            await run_in_dedicated_thread(lambda: None, "codemode-b")
        things.clear()
        del one
        gc.collect()
        assert len({thread for _, thread in seen}) < 20
        # What a thread has done is told before it lets go of it.
        await until(lambda: not any(thing() for thing, _ in seen))

    within(scenario())


def test_what_it_raises_is_raised_to_whoever_waits():
    def fails():
        raise SystemExit(3)

    for _ in range(3):
        with pytest.raises(SystemExit):
            within(run_in_dedicated_thread(fails, "codemode-test"))


def test_a_forked_child_has_threads_of_its_own():
    assert within(run_in_dedicated_thread(lambda: 1, "codemode-test")) == 1  # one waits for more
    child = os.fork()
    if not child:
        code = 1
        try:
            code = within(run_in_dedicated_thread(lambda: 0, "codemode-test"), 30)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
