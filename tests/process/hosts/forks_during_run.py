"""A host whose thread is in the middle of a run while another thread forks; every exit of the child spares the run.

Arguments: how the child ends, "_exit" or "exit"; start method.
"""

import asyncio
import os
import sys
import threading
from pathlib import Path

import codemode

WAIT_SECONDS = 60
inside, release = threading.Event(), threading.Event()
results: list[object] = []


def hold() -> str:
    inside.set()
    assert release.wait(WAIT_SECONDS)
    return "held"


def work() -> None:
    program = "const a = await tools.hold(); return a + await tools.hold()"
    results.append(codemode.run_code_mode_sync(program, [hold], pool=pool))


def child(ending: str) -> None:
    async def many() -> list[object]:
        return await asyncio.gather(*(codemode.run_code_mode("return 4", {}, pool=pool) for _ in range(4)))

    handles = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
    assert "anon_inode:[pidfd]" not in handles, handles
    assert pool.active == 0
    release.set()
    assert asyncio.run(many()) == [4] * 4
    assert codemode.run_code_mode_sync("return await tools.hold()", [hold], pool=pool) == "held"
    if ending == "_exit":
        os._exit(0)
    sys.exit(0)


pool = codemode.WorkerPool({"start_method": sys.argv[2]})
thread = threading.Thread(target=work)
thread.start()
assert inside.wait(WAIT_SECONDS)
pid = os.fork()
if pid == 0:
    child(sys.argv[1])
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
release.set()
thread.join(WAIT_SECONDS)
assert results == ["heldheld"], results
assert codemode.run_code_mode_sync("return 5", {}, pool=pool) == 5
print("ok")
