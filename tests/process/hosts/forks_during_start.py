"""A host that forks while another thread starts a worker by exec: the child has none of that worker's handles."""

import os
import threading
from pathlib import Path

import codemode
from codemode.workers import process

LONGEST_SECONDS = 0.3
inside, has_forked = threading.Event(), threading.Event()
start_worker = process._start_pidfd_or_popen_process  # type: ignore[attr-defined]


def started_slowly(*arguments: object) -> object:
    child = start_worker(*arguments)  # type: ignore[arg-type]
    inside.set()
    has_forked.wait(LONGEST_SECONDS)  # where the fork waits for the start, this ends by its time
    return child


def handles() -> list[str]:
    return [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.exists()]


process._start_pidfd_or_popen_process = started_slowly  # type: ignore[attr-defined]
pool = codemode.WorkerPool({"start_method": "exec", "spare_workers": 1})
results: list[object] = []
thread = threading.Thread(target=lambda: results.append(codemode.run_code_mode_sync("return 4", {}, pool=pool)))
thread.start()
assert inside.wait(60)
pid = os.fork()
if pid == 0:
    left = [name for name in handles() if "pidfd" in name]
    os._exit(len(left))
has_forked.set()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the child has the handle of a worker"
thread.join(60)
assert results == [4], results
print("ok")
