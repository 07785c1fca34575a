"""What a process leaves behind: children, children of children, descriptors. Reads /proc; Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PATIENCE_SECONDS = 60.0
_PR_SET_CHILD_SUBREAPER = 36


def children(pid: int | None = None) -> set[int]:
    """Pids of the children of a process (this one when None), zombies included."""
    parent = os.getpid() if pid is None else pid
    return {child for child, its_parent in _parents() if its_parent == parent}


def living_children(pid: int) -> set[int]:
    """Children of a process that are not zombies, read fast: one that comes or goes just now may be missed."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.update(map(int, task.read_text().split()))
    return {child for child in found if _stat(child)[:1] not in ([], ["Z"])}


def find_zygotes() -> set[int]:
    """Pids of this process's zygotes.

    Its other children are left alone by tests that kill: there may be a browser among them, or a process from which
    scripts of tests are forked.
    """
    return {child for child in living_children(os.getpid()) if "zygote_main.py" in command_line(child)}


def kill_workers() -> None:
    """Kill the workers of this process's zygotes, and wait until they are dead: one of them may be a pool's spare.

    One that was closed just now may be gone already.
    """
    workers = {worker for zygote in find_zygotes() for worker in children(zygote)}
    assert workers
    kill_all(workers)
    deadline = time.monotonic() + PATIENCE_SECONDS
    assert all(_await_death(worker, deadline) for worker in workers)


def kill_all(pids: set[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to processes that may be gone already."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def read_line(stream: IO[str], seconds: float = PATIENCE_SECONDS) -> str:
    """Read the first line that a process writes to a pipe, for a bounded time."""
    assert select.select([stream], [], [], seconds)[0], "nothing was written"
    return stream.readline()


def descriptors(pid: int | None = None) -> dict[str, str]:
    """Open descriptors of a process (this one when None) and what they name."""
    folder = Path(f"/proc/{os.getpid() if pid is None else pid}/fd")
    found: dict[str, str] = {}
    for link in folder.iterdir():
        with contextlib.suppress(OSError):
            found[link.name] = str(link.readlink())
    # The folder that was just listed is one of this process's own.
    return {name: target for name, target in found.items() if target != str(folder)}


def command_line(pid: int) -> str:
    """How a process was started, shortened."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:400]
    return "ended"


def await_state(pid: int, state: str) -> None:
    """Wait until a process is in a state as `ps` names it, or gone. Raises AssertionError when that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (fields := _stat(pid)) and fields[0] != state:
        assert time.monotonic() < deadline, f"{pid} is in state {fields[0]}"
        time.sleep(0.001)


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Fail when the block leaves a child (a zombie too) or a descriptor of this process behind."""
    processes, opened = children(), descriptors()
    yield
    assert children() == processes, [command_line(pid) for pid in children() - processes]
    assert not (new := descriptors().items() - opened.items()), new


@contextlib.contextmanager
def no_orphan_left() -> Iterator[None]:
    """Fail when a descendant outlives the block, also one whose parent has ended.

    For the time of the block this process adopts orphaned descendants, which makes them its visible children.
    """
    processes = children()
    _adopt_orphans(adopt=True)
    try:
        yield
        _await_only(processes)
    finally:
        _adopt_orphans(adopt=False)
        _kill_all(children() - processes)


def _await_only(expected: set[int]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := children() - expected:
        for pid in left:
            assert _await_death(pid, deadline), f"left behind: {command_line(pid)}"
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _await_death(pid: int, deadline: float) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))[0])
    finally:
        os.close(pidfd)


def _kill_all(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _adopt_orphans(*, adopt: bool) -> None:
    assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) == 0


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            yield int(entry.name), int(fields[1])


def _stat(pid: int) -> list[str]:
    """State, parent and the rest of /proc/<pid>/stat; empty when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    # The name in parentheses may hold anything.
    return text.rpartition(")")[2].split()
