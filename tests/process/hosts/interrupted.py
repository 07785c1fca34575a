"""A host that gets Ctrl-C in the middle of a run. Argument: how it runs programs."""

import asyncio
import os
import signal
import sys
import threading

import codemode

PROGRAM = "await tools.ready(); for (;;);"


def interrupt_soon() -> None:
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()


async def ready() -> None:
    interrupt_soon()


def in_asyncio_run() -> None:
    asyncio.run(codemode.run_code_mode(PROGRAM, [ready]))


def without_loop() -> None:
    codemode.run_code_mode_sync(PROGRAM, [ready])


def inside_a_loop() -> None:
    async def cell() -> None:
        codemode.run_code_mode_sync(PROGRAM, [ready])

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(cell())
    finally:
        loop.close()


try:
    {"run": in_asyncio_run, "sync": without_loop, "notebook": inside_a_loop}[sys.argv[1]]()
except KeyboardInterrupt:
    assert codemode.run_code_mode_sync("return 1", {}) == 1
    print("ok")
