"""What a run of a load is, from its arrival to its end: with a worker that is killed, or a pause that is decided."""

from __future__ import annotations

import asyncio
import random
import time
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from codemode import Interrupt, Tool, WorkerPool, create_code_mode_tool
from codemode.errors import CodeModeWorkerError

from .figures import MOST_ATTEMPTS

_JS = "let n = 0; for (let i = 0; i < COUNT; i++) n += await tools.wait({}); return n"
_ASKS = _JS.replace("return n", "return n + await tools.ask({})")
_TENANT = "load"


@dataclass(frozen=True, slots=True)
class Load:
    """What one host process is given. Tools take an exponential time of ``latency_ms`` on average.

    Closed: ``in_flight`` runs, the next as soon as one ends. Open: with ``rate`` above 0, so many a second arrive at
    random (Poisson). ``failing``, ``pausing`` and ``answer_s`` are those of `Traffic`; pauses are kept in the Postgres
    of ``dsn``, or without one in memory.
    """

    calls: int
    latency_ms: float
    in_flight: int = 0
    rate: float = 0.0
    max_workers: int = 32
    seconds: float = 4.0
    seed: int = 1
    failing: float = 0.0
    pausing: float = 0.0
    answer_s: float = 0.0
    dsn: str = ""


@dataclass(slots=True)
class _Attempt:
    """One attempt at a run: its worker, and before the answer of which call that is killed."""

    dies_at: int
    calls: int = 0
    worker: Any = None


_attempt: ContextVar[_Attempt] = ContextVar("attempt")


class Pool(WorkerPool):
    """A pool that says which worker an attempt has."""

    async def acquire(self, *given: Any, **settings: Any) -> Any:
        """See `WorkerPool`."""
        lease = await super().acquire(*given, **settings)
        if attempt := _attempt.get(None):
            attempt.worker = lease.process
        return lease


class Runs:
    """The runs of one load, on one pool. ``ended`` and ``took_ms``: when each ended, or was paused, and after what.

    ``attempts`` at runs whose workers may die, and how many ``died``; so many ``paused``.
    """

    def __init__(self, load: Load, pool: Pool, store: Any) -> None:
        self.load, self._store, self._rng = load, store, random.Random(load.seed)
        self.ended, self.took_ms = list[float](), list[float]()
        self.attempts = self.died = self.paused = 0
        self._pauses = set[asyncio.Future[None]]()
        tools, options = [Tool("wait", execute=self._wait)], dict[str, Any]()
        if load.pausing:
            tools.append(Tool("ask", execute=self._wait, needs_approval=True))
            options["approval"] = {"mode": "interrupt"}
        if store:
            options["continuation"] = {"guard": store.guard, "keys": "0" * 64, "max_age_ms": 86_400_000}
        self._tool = create_code_mode_tool(tools, options or None, pool=pool)

    async def _wait(self, _: object) -> int:
        if self.load.latency_ms:
            await asyncio.sleep(self._rng.expovariate(1000 / self.load.latency_ms))
        if attempt := _attempt.get(None):
            if attempt.calls == attempt.dies_at:
                attempt.worker.kill()
            attempt.calls += 1
        return 1

    async def one(self) -> None:
        """Run one program to its end or its pause, which is decided and gone on with later."""
        begun, load = time.perf_counter(), self.load
        asks = self._rng.random() < load.pausing
        js = (_ASKS if asks else _JS).replace("COUNT", str(load.calls))
        result = await self._tried(js)
        self.paused += asks
        if asks:
            assert isinstance(result, Interrupt)
            if self._store:
                await self._store.put(result, tool=self._tool, tenant=_TENANT)
            self._pauses.add(asyncio.ensure_future(self._decided(result)))
        else:
            assert result in (load.calls, None)
        self.ended.append(time.perf_counter())
        self.took_ms.append((self.ended[-1] - begun) * 1000)

    async def _tried(self, js: str) -> Any:
        """Begin again where the worker is killed; None where it was each time."""
        if not self.load.failing:
            return await self._tool.execute({"js": js})
        for _ in range(MOST_ATTEMPTS):
            dies = self._rng.random() < self.load.failing
            self.attempts += 1
            self.died += dies
            _attempt.set(_Attempt(self._rng.randrange(self.load.calls) if dies else -1))
            try:
                return await self._tool.execute({"js": js})
            except CodeModeWorkerError:
                assert dies, "a worker ended that nobody had killed"
        return None

    async def _decided(self, pause: Interrupt) -> None:
        await asyncio.sleep(self._rng.expovariate(1 / self.load.answer_s))
        if not self._store:
            assert await self._tool.resume(pause, {"approved": True}) == self.load.calls + 1
            return
        answer = {pause.interrupt_id: {"approved": True}}
        await self._store.decide(answer, actor="ana", tenant=_TENANT)
        lease = await self._store.claim(owner="load", tenant=_TENANT)
        result = await self._tool.resume(lease.interrupt, resolutions=lease.resolutions)
        assert result == self.load.calls + 1
        assert await self._store.settle(lease, result, tool=self._tool)

    async def warmed_up(self, count: int) -> None:
        """Run so many, at once as many as there will be, and forget them; all pause where some will."""
        load, at_once = self.load, min(self.load.max_workers, max(self.load.in_flight, 1))
        self.load = replace(load, pausing=float(load.pausing > 0), answer_s=0.01)
        for _ in range(max(1, count // at_once)):
            await asyncio.gather(*(self.one() for _ in range(at_once)))
        await self.all_decided()
        self.load = load
        self.ended.clear()
        self.took_ms.clear()
        self.attempts = self.died = self.paused = 0

    async def all_decided(self) -> None:
        """Wait for what pauses, and say what went wrong there."""
        while self._pauses:
            pauses = [*self._pauses]
            self._pauses.clear()
            await asyncio.gather(*pauses)
