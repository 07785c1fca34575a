"""Threads of errands and of jobs, whatever the host's code in them raises."""

from __future__ import annotations

import asyncio

import pytest

from codemode.host.threads import BackgroundThreads


class Outlandish(BaseException):
    """What no handler of errors takes."""


@pytest.mark.parametrize("raised", [ValueError("a"), StopIteration(3), GeneratorExit(), Outlandish("a")])
def test_whoever_waits_is_told_and_the_thread_goes_on(raised: BaseException, caplog: pytest.LogCaptureFixture):
    def fail() -> None:
        raise raised

    async def asked() -> tuple[BaseException | None, int]:
        errands = BackgroundThreads("codemode-test", 1)
        errands.submit(fail)
        received: BaseException | None = None
        try:
            await asyncio.wait_for(errands.run(fail), 60)
        except BaseException as error:
            received = error
        return received, await asyncio.wait_for(errands.run(lambda: 7), 60)

    received, answer = asyncio.run(asked())
    assert answer == 7
    if isinstance(raised, StopIteration):
        assert isinstance(received, RuntimeError)
        assert received.__cause__ is raised
    else:
        assert received is raised
    assert "an errand" in caplog.text
