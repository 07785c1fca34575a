"""A host that reaches its end while a daemon thread is in the middle of a run, and that runs a program at exit."""

import asyncio
import atexit
import threading

inside = threading.Event()


def at_exit() -> None:
    try:
        codemode.run_code_mode_sync("return 1", {})
    except codemode.errors.CodeModeWorkerError as error:
        print(error.message)


# Registered before the pool's own, and so called after it.
atexit.register(at_exit)

import codemode.errors  # noqa: E402 - as above


async def loops() -> None:
    inside.set()


async def many() -> None:
    programs = ["await tools.loops(); for (;;);", "for (;;);", "await new Promise(() => {})"]
    await asyncio.gather(*(codemode.run_code_mode(js, [loops]) for js in programs), return_exceptions=True)


def work() -> None:
    while True:
        asyncio.run(many())


threading.Thread(target=work, daemon=True).start()
assert inside.wait(60)
print("ok", flush=True)
