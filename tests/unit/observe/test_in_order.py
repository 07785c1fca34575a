"""One order of calls for each event loop, for no longer than there is something to call."""

from __future__ import annotations

import asyncio
import gc
import weakref

from codemode.observe.reporter import SerialListener


def test_an_async_function_is_called_with_one_after_the_other():
    told: list[str] = []

    async def tell(value: int) -> None:
        told.append(f"begins {value}")
        await asyncio.sleep(0)
        told.append(f"ends {value}")

    async def main() -> None:
        in_order = SerialListener(tell)
        pending = [in_order(number) for number in range(3)]
        await asyncio.gather(*(one for one in pending if one is not None))

    asyncio.run(main())
    assert told == [f"{what} {number}" for number in range(3) for what in ("begins", "ends")]


def test_no_event_loop_is_kept_once_all_is_told():
    async def tell(_value: int) -> None:
        await asyncio.sleep(0)

    in_order, loops = SerialListener(tell), weakref.WeakSet[asyncio.AbstractEventLoop]()

    async def main() -> None:
        loops.add(asyncio.get_running_loop())
        for number in range(2):
            pending = in_order(number)
            assert pending is not None
            await pending

    for _ in range(3):
        asyncio.run(main())
    gc.collect()
    assert not loops
