"""What is to be called once the threads of an invocation are free is called once."""

from __future__ import annotations

import asyncio
import threading

import pytest

from codemode.host.threads import HostThreads, InvocationThreads


@pytest.mark.parametrize("later_jobs", [0, 1, 3])
def test_a_run_that_has_work_again_is_free_once(later_jobs: int):
    threads = InvocationThreads(HostThreads())
    calls: list[int] = []
    begun, let_end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert let_end.wait(60)

    async def main() -> None:
        task = asyncio.create_task(threads.run_tool(work))
        await asyncio.to_thread(begun.wait, 60)
        threads.call_when_idle(lambda: calls.append(1))
        assert calls == []
        let_end.set()
        await task
        for _ in range(later_jobs):
            await threads.run_cpu_bound(lambda: None)

    asyncio.run(main())
    assert calls == [1]
