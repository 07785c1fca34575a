"""A host that has its own way with SIGCHLD. Argument: "ignored", "reaps" or "blocked"."""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import codemode

reaped: list[int] = []


def reap_everything(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            reaped.append(pid)


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


if sys.argv[1] == "ignored":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
elif sys.argv[1] == "reaps":
    signal.signal(signal.SIGCHLD, reap_everything)
else:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

for start_method in ("fork", "exec"):
    pool = codemode.WorkerPool({"start_method": start_method})
    for number in range(10 if start_method == "fork" else 3):  # by exec each is a process from its beginning
        assert codemode.run_code_mode_sync(f"return {number}", {}, pool=pool) == number
    options = {"execution_policy": {"timeout_ms": 200}}
    try:
        codemode.run_code_mode_sync("for (;;);", {}, options=options, pool=pool)
    except codemode.CodeModeTimeoutError:
        pass
    else:
        raise AssertionError("an endless loop ended")
    if start_method == "fork":
        (zygote,) = children(os.getpid())
        # The zygote reaps its workers: its spares are there, and at most one that has just died.
        deadline = time.monotonic() + 60
        while len(workers := children(int(zygote))) > 3:
            assert time.monotonic() < deadline, workers
            time.sleep(0.01)
    pool.close()
print("ok")
