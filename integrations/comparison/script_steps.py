"""What scripts of the comparison say, and how those with several processes run: themselves, one step each."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STEP_SECONDS = 120


async def take_step(script: str, side: str, folder: str, name: str) -> int:
    """Run a step of a script in a process of its own and return its exit code."""
    command = [sys.executable, script, side, folder, name]
    done = await asyncio.to_thread(
        subprocess.run, command, timeout=STEP_SECONDS, check=False, stdout=subprocess.DEVNULL
    )
    return done.returncode


async def first_line_seconds(script: str, side: str, name: str) -> float:
    """Return how long a step took in a fresh process to the first line that it said."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, side, "-", name, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), STEP_SECONDS)
    taken = time.perf_counter() - began
    await process.wait()
    assert line.strip(), "the step said nothing"
    return taken


def note(folder: str, what: str) -> int:
    """Write down that something was done, and return how often it was."""
    with (Path(folder) / "done").open("a", encoding="utf-8") as done:
        done.write(f"{what}\n")
    return times(folder, what)


def times(folder: str, what: str) -> int:
    """Return how often something was done."""
    path = Path(folder) / "done"
    return path.read_text(encoding="utf-8").splitlines().count(what) if path.exists() else 0


def yes(is_so: bool) -> str:
    """The answer to a question that has two."""
    return "yes" if is_so else "no"


@contextmanager
def in_environment(name: str) -> Generator[str]:
    """Put a new secret into the environment of this process, and so of those that it starts meanwhile."""
    os.environ[name] = secret = secrets.token_hex()
    try:
        yield secret
    finally:
        del os.environ[name]


async def comes_true(is_so: Callable[[], bool], within_seconds: float) -> bool:
    """Tell whether something comes true, on an event loop that has turns meanwhile as that of a server has."""
    last = time.monotonic() + within_seconds
    while not is_so() and time.monotonic() < last:  # noqa: ASYNC110 - whatever it is, it sets no event
        await asyncio.sleep(0.01)
    return is_so()


async def ends(work: Awaitable[Any]) -> None:
    """Let something end, whatever it comes to."""
    with suppress(Exception, asyncio.CancelledError):
        await asyncio.wait_for(work, STEP_SECONDS)
