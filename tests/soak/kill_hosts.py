"""The hosts of `tests.soak.kills`: each does one thing, and dies at one point of it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.soak.pause_hosts import Lines, store_of

from codemode import CallContext, Tool, WorkerPool, create_code_mode_tool
from codemode.continuations import guard as guards
from codemode.stores import ALL_TENANTS, MemoryResumeGuard, Resumer

OK = {"approved": True}
LEASE_MS, JOURNAL_LEASE_MS = 60, 1_500
"""Of hosts that are to die as they renew one; a journal that does not answer for as long ends a run."""
FORMS = {
    "at once": "return await Promise.all(CALLS.map((one) => tools.TOOL(one)))",
    "one by one": "const ended = []; for (const one of CALLS) ended.push(await tools.TOOL(one)); return ended",
}
METHODS = {
    "store": ("put", "decide", "claim", "renew", "settle", "release"),
    "guard": ("claim", "renew", "record", "release"),
    "journal": ("open", "write", "renew", "end", "release"),
}


@dataclass(frozen=True)
class Case:
    """One death. ``point`` is ``before`` or ``after`` a method, or the effect of a tool, for the ``turn``-th time.

    ``flow`` is what the host does; its program makes ``calls`` at once or one by one, in a thread where ``tool`` says
    ``book``. ``name`` is that of its records and of what its tools do.
    """

    name: str
    flow: str
    point: str
    turn: int
    tool: str
    calls: int
    form: str
    has_journal: bool
    has_guard: bool = True

    @property
    def is_renewal(self) -> bool:
        """True when the host is to live in a call until it has renewed something."""
        return ".renew" in self.point or self.flow == "late"

    @property
    def js(self) -> str:
        """The program."""
        calls = ", ".join(f"{{ of: '{self.name}', number: {number} }}" for number in range(1, self.calls + 1))
        return FORMS[self.form].replace("CALLS", f"[{calls}]").replace("TOOL", self.tool)

    def is_gated(self, value: Any, context: Any = None) -> bool:
        """Tell whether a person has to allow a call: of calls one by one the first."""
        return self.flow not in ("first", "late") and (self.form == "at once" or value["number"] == 1)


class Death:
    """Ends this process at a point; where there is no case, never."""

    def __init__(self, case: Case | None) -> None:
        self._case = case
        self._passed: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._is_near = case is None or not case.is_renewal

    def come_near(self) -> None:
        """Let the points count from here on."""
        self._is_near = True

    def at(self, point: str) -> None:
        """Pass a point, or do not."""
        with self._lock:
            self._passed[point] += self._is_near
            if self._case is not None and (point, self._passed[point]) == (self._case.point, self._case.turn):
                os.kill(os.getpid(), signal.SIGKILL)

    def pass_again(self, point: str) -> None:
        """Let the last time that a point was passed not count."""
        with self._lock:
            self._passed[point] -= self._is_near

    def around(self, target: Any, kind: str) -> Any:
        """Die before or after a method of a store, a guard or a journal. Returns it."""
        for name in METHODS[kind]:
            setattr(target, name, self._deadly(getattr(target, name), f"{kind}.{name}"))
        if kind == "journal":
            target.write_nowait = self._deadly_at_once(target.write_nowait, "journal.write")
        return target

    def _deadly(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        async def called(*arguments: Any, **named: Any) -> Any:
            self.at(f"before {name}")
            result = await method(*arguments, **named)
            self.at(f"after {name}")
            return result

        return called

    def _deadly_at_once(self, write: Callable[..., bool | None], name: str) -> Callable[..., bool | None]:
        def called(*arguments: Any) -> bool | None:
            self.at(f"before {name}")
            done = write(*arguments)
            if done is None:
                self.pass_again(f"before {name}")  # nothing was done: it is written in the other way
            else:
                self.at(f"after {name}")
            return done

        return called


class Effects:
    """Tools whose effects are lines of a file."""

    def __init__(self, lines: Lines, death: Death, case: Case, *, lasts: bool = False) -> None:
        self._lines = lines
        self._death = death
        self._case = case
        self._lasts = lasts
        self.hanging = asyncio.Event()

    def tools(self) -> list[Tool]:
        """One that is asynchronous, one that runs in a thread, and one that only takes a worker."""
        return [
            Tool("pay", execute=self._pay, needs_approval=self._case.is_gated),
            Tool("book", execute=self._book, needs_approval=self._case.is_gated),
            Tool("hang", execute=self._hang),
        ]

    async def _pay(self, value: Any, context: Any) -> Any:
        self._happen(value)
        if self._lasts:
            await asyncio.sleep(30)
        return value["number"]

    def _book(self, value: Any, context: Any) -> Any:
        self._happen(value)
        if self._lasts:
            time.sleep(30)
        return value["number"]

    async def _hang(self, value: Any, context: Any) -> Any:
        self.hanging.set()
        await asyncio.sleep(30)

    def _happen(self, value: Any) -> None:
        self._death.at("before effect")
        self._lines.write(value)
        self._death.come_near()
        self._death.at("after effect")


def resume_of(code_mode: Any) -> Any:
    """Its `resume`, in a way that a resumer does not see the guard of."""

    async def resume(interrupt: Any, resolutions: Any) -> Any:
        return await code_mode.resume(interrupt, resolutions=resolutions)

    return resume


def code_mode_of(case: Case, tools: list[Tool], store: Any, death: Death, pool: WorkerPool, *, is_dying: bool) -> Any:
    """The tool of a case over a store."""
    guard = store.guard if case.has_guard else MemoryResumeGuard()
    continuation: dict[str, Any] = {"keys": "kills", "max_age_ms": 7_200_000, "guard": guard}
    if case.has_journal:
        lease_ms = JOURNAL_LEASE_MS if is_dying and case.is_renewal else 30_000
        journal = store.journal(tenant="acme", app=case.name, lease_ms=lease_ms)
        continuation |= {"journal": death.around(journal, "journal"), "conversation_id": "talk"}
    options = {
        "approval": {"mode": "interrupt"},
        "continuation": continuation,
        "execution_policy": {"timeout_ms": 200 if case.flow == "late" and is_dying else 60_000},
    }
    return create_code_mode_tool(tools, options, pool=pool)


def live(kind: str, where: str, effects: str, told: dict[str, Any], given: list[str]) -> None:
    """Do what a case says, and die of it."""
    case = Case(**told)
    death = Death(case)
    guards.RENEW_SECONDS = LEASE_MS / 3000
    asyncio.run(_live(case, death, kind, where, Lines(effects), given))


async def _live(case: Case, death: Death, kind: str, where: str, lines: Lines, given: list[str]) -> None:
    store = death.around(store_of(kind, where), "store")
    death.around(store.guard, "guard")
    pool = WorkerPool({"max_workers": 1 if case.flow == "full" else 2})
    effects = Effects(lines, death, case, lasts=case.is_renewal)
    code_mode = code_mode_of(case, effects.tools(), store, death, pool, is_dying=True)
    match case.flow:
        case "first" | "late":
            await code_mode.execute({"js": case.js}, call=CallContext(tool_call_id=case.name))
        case "put":
            paused = await code_mode.execute({"js": case.js}, call=CallContext(tool_call_id=case.name))
            await store.put(paused, tenant="acme", app=case.name)
        case "decide":
            await store.decide(dict.fromkeys(given, OK), actor="ana", tenant="acme")
        case "answer":
            for one in given:
                await store.answer(one, OK, code_mode.resume, actor="ana", tenant="acme")
        case _:
            if case.flow == "full":
                hanging = asyncio.create_task(
                    code_mode.execute({"js": "await tools.hang()"}, call=CallContext(tool_call_id="hanging"))
                )
                # Only then it keeps its worker: whoever waits for a journal that is slow to open gives it back.
                called = asyncio.create_task(effects.hanging.wait())
                await asyncio.wait([hanging, called], return_when=asyncio.FIRST_COMPLETED)
                assert not hanging.done()
            lease_ms = LEASE_MS if case.is_renewal else 30_000
            async with Resumer(
                store, tenant=ALL_TENANTS, app=case.name, resume=resume_of(code_mode), lease_ms=lease_ms
            ):
                await asyncio.sleep(30)
