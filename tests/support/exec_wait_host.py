"""A process with a pair over a store: does what it is told, one line of JSON each, until it is ended or killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from calls import with_call
from exec_wait_world import SCOPE, Shop, opened, pair_of, store_of
from stored_pauses import Clock

from codemode import Interrupt, WorkerPool


def say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


async def die(*_: Any, **__: Any) -> None:
    os._exit(1)


async def main(given: dict[str, Any]) -> None:
    shop = Shop(Path(given["notes"]), tuple(given["held"]), lambda call: say(began=call))
    pool, clock = WorkerPool({"max_workers": 2}), Clock()
    clock.moved_ms = given["moved_ms"]
    store = store_of(given["kind"], given["where"], clock)
    if given["dies_at_rest"]:
        store.put_suspended = die
    pair = pair_of(shop, store, pool, **given["options"])
    loop, running = asyncio.get_running_loop(), set[asyncio.Future[None]]()

    async def do(number: int, tool: str, value: Any, more: dict[str, Any]) -> None:
        asked = {"exec": pair.exec, "wait": pair.wait}[tool]
        result = await asked.execute(value, **with_call(more, conversation_id=SCOPE))
        say(number=number, result={"interrupt": result.to_dict()} if isinstance(result, Interrupt) else result)

    def begin(line: str) -> None:
        task = asyncio.ensure_future(do(*json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(begin, line)
        loop.call_soon_threadsafe(ended.set)

    ended = asyncio.Event()
    threading.Thread(target=read, daemon=True).start()
    await opened(pair)
    say(ready=True)
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
