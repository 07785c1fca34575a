"""A host with a running loop, as notebooks have it, that calls the sync functions from inside it."""

import asyncio
import contextlib
import contextvars

import codemode

who = contextvars.ContextVar("who", default="nobody")


async def name() -> str:
    return who.get()


def blocking_name() -> str:
    return who.get()


async def cell() -> None:
    who.set("the cell")
    code_mode = codemode.create_code_mode_tool([name, blocking_name])
    program = {"js": "return [await tools.name(), await tools.blocking_name()]"}
    assert code_mode.execute_sync(program) == ["the cell", "the cell"]
    assert await code_mode.execute(program) == ["the cell", "the cell"]
    with contextlib.suppress(codemode.CodeModeError):
        code_mode.execute_sync({"js": "throw new TypeError('no')"})
        raise AssertionError("the error of the program was lost")


loop = asyncio.new_event_loop()
for _ in range(3):
    loop.run_until_complete(cell())
loop.close()
print("ok")
