"""The time of a call: it passes, stands still, and goes on where it stood."""

import asyncio

import pytest
from codemode_gateway.upstreams.call_retries import Clock


def test_time_that_stands_still_does_not_pass_and_goes_on_where_it_stood():
    async def work():
        clock = Clock(1000)
        async with clock.started() as deadline:
            clock.stop()
            clock.stop()
            assert clock.is_stopped
            clock.go_on()
            assert clock.is_stopped
            clock.go_on()
            when = deadline.when()
            assert when is not None
            assert 0 < when - asyncio.get_running_loop().time() <= 1000
        clock.stop()  # its call has ended meanwhile
        clock.go_on()

    asyncio.run(work())


def test_time_that_is_over_ends_the_call():
    async def work():
        clock = Clock(0)
        with pytest.raises(TimeoutError):
            async with clock.started():
                await asyncio.Event().wait()
        assert clock.has_passed

    asyncio.run(work())
