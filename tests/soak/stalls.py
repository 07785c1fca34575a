"""Looks for a stall: programs of hundreds of refused calls in one turn, several at once, on processors that are busy.

``python -m tests.soak.stalls [invocations] [seed] [fork|exec]`` prints the figures. An invocation in which nothing
happens for ``QUIET_SECONDS`` is described from both sides while it stands still: its tasks and counts in the host, its
worker and zygote in /proc.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import io
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, ClassVar, Self
from unittest.mock import patch

from tests.support.leftovers import no_orphan_left, nothing_left

from codemode import CodeModeError, Tool, WorkerPool, run_code_mode
from codemode.execution import execution as execution_module
from codemode.execution.runner import Runner

AT_ONCE, WORKERS, CALLS = 6, 4, 300
# Far beyond what a starved processor makes of a turn, and below every time limit.
QUIET_SECONDS, TIMEOUT_MS = 6.0, 30_000
_LOOK_SECONDS = 0.5
_HOG = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"

# Each makes CALLS calls in one turn and says how many were refused; N makes the text new, so that it is analysed.
PROGRAMS = {
    "unknown": "tools['nope' + i]({ i })",
    "beyond limits": "tools.quick({ i })",
    "wrong input": "tools.strict({ i: 'x' + i })",
    "raising": "i % 2 ? tools.raises({ i }) : tools.raises_in_a_thread({ i })",
    "catalog": "tools.$search('tool ' + i)",
    "fetch": "fetch('https://refused.example/' + i)",
    "mixed": "[tools.quick, tools.strict, tools.raises, tools.slow, tools.missing, tools.$describe][i % 6]({ i })",
}
GATHERED = {
    "settled": "return (await Promise.allSettled(calls)).filter((one) => one.status === 'rejected').length",
    "caught": "let n = 0; await Promise.all(calls.map((one) => one.catch(() => n++))); return n",
    "one by one": "let n = 0; for (const one of calls) { try { await one } catch { n++ } } return n",
}


def program(kind: str, gathered: str, number: int) -> str:
    """Return a program that no other run has had."""
    call = PROGRAMS[kind]
    return f"""
    const number = {number};
    const calls = Array.from({{ length: {CALLS} }}, async (_, i) => {call});
    {GATHERED[gathered]};
    """


class Watched(Runner):
    """A runner that notes when something last happened. ``living`` are those that have not ended."""

    living: ClassVar[set[Watched]] = set()

    def __init__(self, machine: Any, lease: Any, *more: Any) -> None:
        super().__init__(machine, lease, *more)
        self.lease = lease
        self.machine = machine
        self.last = time.monotonic()
        Watched.living.add(self)

    def feed_event(self, event: Any) -> None:
        self.last = time.monotonic()
        super().feed_event(event)

    async def close(self) -> None:
        Watched.living.discard(self)
        await super().close()


class Watchdog:
    """A thread that looks at all living runs, and describes each that stands still, once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stop = threading.Event()
        self._seen: set[int] = set()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self.stalls: list[str] = []
        self.longest_quiet = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            for run in list(Watched.living):
                quiet = time.monotonic() - run.last
                self.longest_quiet = max(self.longest_quiet, quiet)
                if quiet > QUIET_SECONDS and id(run) not in self._seen:
                    self._seen.add(id(run))
                    self.stalls.append(f"nothing happened for {quiet:.1f} s\n{self._describe(run)}")

    def _describe(self, run: Watched) -> str:
        machine, channel = run.machine, run._channel
        counts = {name: getattr(machine, name) for name in ("_is_clock_paused", "ending")}
        counts |= {name: getattr(machine._requests, name) for name in ("running", "awaiting_person", "running_timers")}
        counts["turns"] = {name: getattr(machine._turns, name) for name in ("owed_count", "ended_count")}
        entries = machine.ledger.entries
        unsettled = [entry.id for entry in entries if entry.outcome is None]
        unsent = not channel._send_queue.is_empty
        return "\n".join(
            [
                f"machine: {counts}, {len(entries)} requests, unsettled {unsettled[:40]}",
                f"channel: open {channel._is_open}, unsent {unsent}, {self._socket(run.lease.process)}",
                f"loop: {self._in_loop()}",
                f"threads:\n{_threads()}",
                f"processes:\n{_processes(run.lease)}",
            ]
        )

    @staticmethod
    def _socket(worker: Any) -> str:
        try:
            descriptor = worker.channel.fileno()
            sizes = [struct.unpack("i", fcntl.ioctl(descriptor, request, b"\0" * 4))[0] for request in _QUEUES]
        except OSError as error:
            return f"gone: {error}"
        return f"descriptor {descriptor}, unread and unsent in the kernel {sizes}"

    def _in_loop(self) -> str:
        """What the loop itself says, if it answers."""
        answered, said = threading.Event(), io.StringIO()

        def look() -> None:
            readers = {key.fd: key.events for key in self._loop._selector.get_map().values()}  # type: ignore[attr-defined]
            print("readers and writers", readers, file=said)
            for task in asyncio.all_tasks(self._loop):
                task.print_stack(limit=4, file=said)
            answered.set()

        self._loop.call_soon_threadsafe(look)
        return said.getvalue() if answered.wait(2) else "it does not answer"


_QUEUES = (termios.FIONREAD, termios.TIOCOUTQ)


def _threads() -> str:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def _processes(lease: Any) -> str:
    found: list[str] = []
    with suppress(Exception):
        pidfd = lease.process._handle.pidfd
        info = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        found.append(f"the worker's pidfd {pidfd}: {info.split()}")
    for task in Path("/proc/self/task").glob("*/children"):
        for child in task.read_text().split():
            found += [_process(child), *map(_process, Path(f"/proc/{child}/task/{child}/children").read_text().split())]
    return "\n".join(found)


def _process(pid: str) -> str:
    parts = []
    for name in ("wchan", "syscall", "stack", "status"):
        try:
            text = Path(f"/proc/{pid}/{name}").read_text()
        except OSError as error:
            text = f"({error.strerror})"
        lines = [
            line for line in text.splitlines() if name != "status" or line.startswith(("State", "SigPnd", "VmRSS"))
        ]
        parts.append(f"{name}: {'; '.join(lines)}")
    return f"  {pid}: " + " | ".join(parts)


# --- the runs ---


async def _quick(value: Any) -> Any:
    return value


async def _slow(value: Any) -> Any:
    await asyncio.sleep(0.005)
    return value


async def _raises(_value: Any) -> None:
    raise KeyError("host text")


def _raises_in_a_thread(_value: Any) -> None:
    raise KeyError("host text")


STRICT = {"type": "object", "properties": {"i": {"type": "integer"}}, "required": ["i"]}
TOOLS = [
    Tool("quick", execute=_quick),
    Tool("slow", execute=_slow),
    Tool("strict", execute=_quick, input_schema=STRICT),
    Tool("raises", execute=_raises),
    Tool("raises_in_a_thread", execute=_raises_in_a_thread),
]
# Under the usual limits most calls are refused in the worker; under the others each of them by the host.
LIMITS = [{}, {"max_bridge_requests": 1000, "max_in_flight_bridge_requests": 1000, "max_catalog_requests": 1000}]
OPTIONS = {
    "execution_policy": {"timeout_ms": TIMEOUT_MS, "on_saturation": "wait", "check_program": False},
    "fetch_policy": {"allowed_origins": ["https://allowed.example"]},
    "lifecycle": {"on_nested_tool_result": lambda event: None},
}
# Of these kinds some calls, or all of them, may succeed.
FEWEST_REFUSED = {"beyond limits": 0, "catalog": 0, "mixed": 100}


class Stalls:
    """Runs so many programs and keeps what came of them."""

    def __init__(self, invocations: int, seed: int, pool: WorkerPool) -> None:
        self._numbers = iter(range(invocations))
        self._random = random.Random(seed)
        self._pool = pool
        self.invocations = invocations
        self.seconds: list[float] = []
        self.kinds: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.watchdog: Watchdog | None = None

    async def run(self) -> None:
        with Watchdog(asyncio.get_running_loop()) as self.watchdog:
            await asyncio.gather(*(self._task() for _ in range(AT_ONCE)))

    def _options(self) -> dict[str, Any]:
        return {**OPTIONS, "execution_policy": {**OPTIONS["execution_policy"], **self._random.choice(LIMITS)}}

    async def _task(self) -> None:
        for number in self._numbers:
            kind, gathered = self._random.choice(list(PROGRAMS)), self._random.choice(list(GATHERED))
            text = program(kind, gathered, number if self._random.random() < 0.8 else -1)
            began = time.monotonic()
            try:
                refused = await run_code_mode(text, TOOLS, options=self._options(), pool=self._pool)
            except CodeModeError as error:
                self.wrong.append(f"run {number}, {kind}, {gathered}: {error!r} after {time.monotonic() - began:.1f} s")
                continue
            self.seconds.append(time.monotonic() - began)
            self.kinds[f"{kind}, {gathered}"] += 1
            if not FEWEST_REFUSED.get(kind, CALLS) <= refused <= CALLS:
                self.wrong.append(f"run {number}, {kind}, {gathered}: {refused} calls were refused")


def hog_command() -> list[str]:
    """Return what keeps a processor busy for as long as this process lives."""
    return [sys.executable, "-S", "-c", _HOG, str(os.getpid())]


def run_stalls(
    invocations: int, *, seed: int = 1, hogs: int = 3, start_method: str = "fork", seconds: float = 3600
) -> Stalls:
    """Run them, and look that nothing is left. Problems are in ``wrong`` and ``watchdog.stalls``."""
    with nothing_left(), no_orphan_left(), ExitStack() as until_the_end:
        until_the_end.enter_context(patch.object(execution_module, "Runner", Watched))
        pool = until_the_end.enter_context(WorkerPool({"max_workers": WORKERS, "start_method": start_method}))
        for _ in range(hogs):
            hog = subprocess.Popen(hog_command())
            until_the_end.callback(hog.wait, 30)
            until_the_end.callback(hog.kill)
        stalls = Stalls(invocations, seed, pool)
        asyncio.run(asyncio.wait_for(stalls.run(), seconds))
    return stalls


def main() -> None:
    """Run it long, and print the figures."""
    invocations, seed, start_method, *_ = [*sys.argv[1:], *("5000", "1", "fork")[len(sys.argv) - 1 :]]
    started = time.monotonic()
    stalls = run_stalls(int(invocations), seed=int(seed), start_method=start_method)
    assert stalls.watchdog is not None
    taken = sorted(stalls.seconds)
    print(f"stalls: {len(taken)} programs of {CALLS} calls in one turn, {AT_ONCE} at once, {start_method}")
    print(f"  time               {time.monotonic() - started:.0f} s")
    print(f"  each               median {statistics.median(taken):.2f} s, longest {taken[-1]:.2f} s, waiting included")
    print(f"  longest quiet      {stalls.watchdog.longest_quiet:.1f} s within a run")
    print(f"  stood still        {len(stalls.watchdog.stalls)} (more than {QUIET_SECONDS:.0f} s)")
    print(f"  wrong              {len(stalls.wrong)}")
    for problem in [*stalls.wrong, *stalls.watchdog.stalls]:
        print(problem, file=sys.stderr)
    sys.exit(1 if stalls.wrong or stalls.watchdog.stalls else 0)


if __name__ == "__main__":
    main()
