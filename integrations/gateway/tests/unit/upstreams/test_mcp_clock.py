"""The time of a call: it passes, stands still, and goes on where it stood."""

import asyncio

import pytest
from codemode_gateway.upstreams.call_retries import PausableTimeout


def test_time_that_stands_still_does_not_pass_and_goes_on_where_it_stood():
    async def work():
        clock = PausableTimeout(1000)
        async with clock.start() as deadline:
            clock.pause()
            clock.pause()
            assert clock.is_paused
            clock.resume()
            assert clock.is_paused
            clock.resume()
            when = deadline.when()
            assert when is not None
            assert 0 < when - asyncio.get_running_loop().time() <= 1000
        clock.pause()  # its call has ended meanwhile
        clock.resume()

    asyncio.run(work())


def test_time_that_is_over_ends_the_call():
    async def work():
        clock = PausableTimeout(0)
        with pytest.raises(TimeoutError):
            async with clock.start():
                await asyncio.Event().wait()
        assert clock.has_passed

    asyncio.run(work())
