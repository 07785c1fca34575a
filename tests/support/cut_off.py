"""Runs of an agent that are cut off after a person's first answer, and come back to: in one process, or in two.

A plugin's module has a `Case` for each way to keep a run and to answer. All cases of a host run side by side, so that
one process that is killed serves a whole matrix.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, Self

from forked_hosts import LaterClock, note_down
from suite import IS_FULL

from codemode.stores import SqliteInterruptStore

PROGRAM = """
const first = await tools.refund({ order: "a" });
const seen = await tools.look({});
return [first, seen, await tools.refund({ order: "b" })];
"""
KEYS = "every process of the test knows it"
PATIENCE = 60.0


def usual(rows: Iterable[Any]) -> list[Any]:
    """Return all rows, each of which ends with a form of the answer, what is kept, and where it is cut off.

    In the default suite they are those with a journal, and those of the first form.
    """
    own = [*rows]
    return [row for row in own if IS_FULL or row[-2] == "journal" or row[-3] == own[0][-3]]


class Shop:
    """Notes what its tools do. The one that ``cut`` names never comes back from its first call."""

    def __init__(self, folder: Path, cut: str | None) -> None:
        self._file, self._cut = folder / "effects", cut
        self.reached = asyncio.Event()

    def effects(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    async def did(self, name: str, what: str) -> None:
        note_down(self._file, what)
        if self._cut == name:
            self._cut = None
            self.reached.set()
            await asyncio.Event().wait()

    async def cut_off(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run until the tool is called that never comes back."""
        running = asyncio.ensure_future(work)
        reached = asyncio.ensure_future(self.reached.wait())
        await asyncio.wait([running, reached], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert self.reached.is_set(), running
        return running


class Case(Protocol):
    """One run in one host."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def begin(self) -> asyncio.Task[Any]:
        """Run until it is cut off."""
        ...

    async def come_back(self) -> dict[str, Any]:
        """Make the run again, and answer to its end."""
        ...


class StoredCase:
    """One of a row that ends with what is kept (``journal``, ``guard`` or ``key``) and the tool that cuts it off.

    ``number`` is how many hosts it had before: the first is cut off.
    """

    def __init__(self, folder: Path, row: tuple[str, ...], number: int) -> None:
        *_, kept, cut = row
        self.form = row[0]
        self.folder = folder / " ".join(row)
        self.folder.mkdir(exist_ok=True)
        self.shop = Shop(self.folder, None if number else cut)
        self.store = SqliteInterruptStore(self.folder / "store.sqlite", clock=LaterClock(number))
        self.continuation: Any = {"keys": KEYS, "conversation_id": "thread"}
        if kept != "key":
            self.continuation["guard"] = self.store.guard
        if kept == "journal":
            self.continuation["journal"] = self.store.journal(tenant="acme", app="shop")

    async def __aenter__(self) -> Self:
        await self.store.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store.__aexit__(None, None, None)


def check_without_journal(row: tuple[str, ...], seen: dict[str, Any]) -> None:
    """Check what came of a host that was killed, where the application repeats the answer to another one."""
    told, (*_, kept, cut) = f"{row}: {seen}", row
    if kept == "guard":  # it knows that a host has begun, and not how far that one came
        assert (seen["asked"], seen["happened"]) == ([], ["refund a", "look"][: 1 + (cut == "look")]), told
        assert "its outcome is unknown" in seen["told"], told
    else:  # nothing tells of the host that has ended
        assert (seen["asked"], seen["done"].count("refund b")) == (["refund b"], 1), told


async def cancel_all(cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Cancel the runs, and come back to them in the same process."""
    return await asyncio.gather(*map(_cancel, cases))


async def be_killed(cases: Iterable[Case]) -> None:
    """Be killed in the middle of all runs."""
    async with AsyncExitStack() as stack:
        entered = [await stack.enter_async_context(one) for one in cases]
        await asyncio.gather(*(one.begin() for one in entered))
        os.kill(os.getpid(), signal.SIGKILL)


async def come_back_to_all(cases: Iterable[Case]) -> list[dict[str, Any]]:
    """Come back to the runs in another process."""
    return await asyncio.gather(*map(_come_back, cases))


async def _cancel(case: Case) -> dict[str, Any]:
    async with case:
        running = await case.begin()
        running.cancel()
        await asyncio.wait([running])
        return await case.come_back()


async def _come_back(case: Case) -> dict[str, Any]:
    async with case:
        return await case.come_back()
