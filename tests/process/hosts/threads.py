"""A host whose threads come and go, each with loops of its own, some cancelled, some in the middle of a run."""

import asyncio
import threading

import codemode

failures: list[BaseException] = []


async def double(number: int) -> int:
    return number * 2


async def visit(number: int) -> None:
    endless = asyncio.create_task(codemode.run_code_mode("for (;;);", {}, pool=pool))
    program = f"return await tools.double({{number: {number}}})"
    for _ in range(3):
        assert await codemode.run_code_mode(program, [double], pool=pool) == number * 2
    endless.cancel()
    # The last one is left to asyncio.run, which cancels it.
    asyncio.get_running_loop().create_task(codemode.run_code_mode("for (;;);", {}, pool=pool))
    await asyncio.sleep(0)


def work(number: int) -> None:
    try:
        asyncio.run(visit(number))
    except BaseException as error:
        failures.append(error)


pool = codemode.WorkerPool({"max_workers": 8, "on_saturation": "wait"})
for _ in range(2):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
assert not failures, failures
assert pool.active == 0, pool
assert codemode.run_code_mode_sync("return 1", {}, pool=pool) == 1
print("ok")
