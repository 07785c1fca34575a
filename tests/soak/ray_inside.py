"""What is so inside the processes of Ray: the same protections, a pool that starts late, and nothing of it afterwards.

Needs Ray, which `make ray` installs into an environment of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import io
import itertools
import os
import resource
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from tests.support.leftovers import children, command_line

from codemode import CodeModeError, Tool, WorkerPool, create_code_mode_tool, run_code_mode_sync
from codemode.cli import main
from codemode.workers.supply import IsolationReport

PATIENCE_SECONDS = 60.0
GREEDY = "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))"


def limits() -> dict[str, tuple[int, int]]:
    """Return the limits of this process."""
    return {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")}


def protections() -> str:
    """Return what the doctor says of the isolation of a worker here. Raises AssertionError when it finds it lacking."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = main(["doctor", "--required"])
    assert code == 0, said.getvalue()
    return said.getvalue().split("reports it itself\n")[1].split("\n\nSelf-test")[0]


class Plain:
    """A synchronous actor: its programs run in the thread in which Ray calls it, the main one."""

    at_once = 1

    def __init__(self) -> None:
        self._pool = WorkerPool({"max_workers": 2})
        self._code_mode = create_code_mode_tool([Tool("hold", execute=_hold)], pool=self._pool)

    def state(self) -> tuple[int, set[int], dict[str, tuple[int, int]]]:
        """Return this process, its children and its limits."""
        return os.getpid(), children(), limits()

    def isolation(self) -> IsolationReport | None:
        """Return what confines this actor's own workers."""
        return self._pool.isolation

    def run(self, js: str) -> Any:
        """Run a program, or return how it failed."""
        try:
            return self._code_mode.execute_sync({"js": js})
        except CodeModeError as error:
            return f"{error.code} {error.message}"

    def leave(self) -> None:
        """End as an actor does that has done its work."""
        ray.actor.exit_actor()


class Threaded(Plain):
    """A synchronous actor that is called in several threads."""

    at_once = 2

    def run(self, js: str) -> Any:
        """Do the same."""
        assert threading.current_thread() is not threading.main_thread()
        return super().run(js)


class Looped(Plain):
    """An asynchronous actor: its programs run on Ray's event loop."""

    at_once = 2

    async def run(self, js: str) -> Any:
        """Do the same."""
        try:
            return await self._code_mode.execute({"js": js})
        except CodeModeError as error:
            return f"{error.code} {error.message}"


async def _hold(given: dict[str, str], context: Any) -> None:
    """Tell that it has begun, and never return."""
    await asyncio.to_thread(Path(given["path"]).touch)
    await context.aborted.wait()


def in_a_task(js: str) -> tuple[Any, int, str]:
    """Run a program in the pool that each process has by itself."""
    return run_code_mode_sync(js, []), os.getpid(), protections()


def check_tasks() -> str:
    """Run programs in plain tasks, which have the protections that there are outside."""
    outside = protections()
    found = ray.get([ray.remote(in_a_task).remote(f"return {number}") for number in range(2)])
    assert [value for value, _, _ in found] == [0, 1]
    assert {inside for _, _, inside in found} == {outside}
    assert os.getpid() not in {pid for _, pid, _ in found}
    return outside


def check_actors(*, is_short: bool) -> str:
    """Look into actors of both kinds, end them in every way, or in some, and tell what ended with them."""
    lives = [*itertools.product((Plain, Threaded, Looped), (killed, killed_by_ray, left, dropped))]
    if is_short:
        lives = [(Threaded, killed), (Looped, killed), (Plain, left)]
    with WorkerPool() as pool:
        create_code_mode_tool([], pool=pool).execute_sync({"js": "return 1"})
        outside = pool.isolation
    ended = sum(_handle(kind, end, outside if end is killed else None) for kind, end in lives)
    return f"{len(lives)}, and with them {ended - len(lives)} processes of their pools"


def killed(_actor: Any, pid: int) -> None:
    """As by the kernel, where memory is short, or by Ray's own monitor of it."""
    os.kill(pid, signal.SIGKILL)


def killed_by_ray(actor: Any, _pid: int) -> None:
    """As somebody who wants it gone does."""
    ray.kill(actor)


def left(actor: Any, _pid: int) -> None:
    """As an actor that has done its work does."""
    with contextlib.suppress(ray.exceptions.RayActorError):
        ray.get(actor.leave.remote(), timeout=PATIENCE_SECONDS)


def dropped(_actor: Any, _pid: int) -> None:
    """As an actor of which nobody holds a handle any more; the caller lets go of its own."""


def _handle(kind: type[Plain], end: Callable[[Any, int], None], outside: IsolationReport | None) -> int:
    actor = ray.remote(kind).options(num_cpus=1, max_concurrency=kind.at_once).remote()
    pid, before, given = ray.get(actor.state.remote(), timeout=PATIENCE_SECONDS)
    assert before == set(), "a process was started before there was a program"
    if outside is not None:
        assert ray.get(actor.run.remote(GREEDY), timeout=PATIENCE_SECONDS) == "CODE_MODE_ERROR out of memory"
    assert ray.get(actor.run.remote("return 6 * 7"), timeout=PATIENCE_SECONDS) == 42
    if outside is not None:
        assert ray.get(actor.isolation.remote(), timeout=PATIENCE_SECONDS) == outside
    assert ray.get(actor.state.remote(), timeout=PATIENCE_SECONDS)[2] == given, "limits of the process have changed"
    is_violent = end in (killed, killed_by_ray)
    if is_violent:  # with a program in the middle
        _hold_one(actor)
    zygotes = children(pid)
    workers = set().union(*map(children, zygotes))
    assert zygotes, "no process was started"
    assert workers or not is_violent, [command_line(zygote) for zygote in zygotes]
    watched = watch({pid, *zygotes, *workers})
    end(actor, pid)
    del actor
    gc.collect()
    await_ends(watched)
    return len(watched)


def _hold_one(actor: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        begun = Path(folder) / "begun"
        actor.run.remote(f"return await tools.hold({{ path: {str(begun)!r} }})")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not begun.exists():
            assert time.monotonic() < deadline, "the tool was never called"
            time.sleep(0.005)


def watch(pids: set[int]) -> list[int]:
    """Return pidfds of processes, but for those that have ended just now."""
    watched: list[int] = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            watched.append(os.pidfd_open(pid))
    return watched


def await_ends(watched: list[int]) -> None:
    """Wait for the ends of processes, and close their pidfds. Raises AssertionError."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for pidfd in watched:
        ended, _, _ = select.select([pidfd], [], [], max(0.0, deadline - time.monotonic()))
        assert ended, Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        os.close(pidfd)
