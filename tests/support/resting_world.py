"""A world for programs that rest: nothing in it happens by itself, so that two runs can be given the very same one.

Calls and timers end when the world says so, and the clock that programs are told of is the count of what has ended. One
play chooses what happens and notes it; others follow the note and do more: they give workers up, hand what is kept to
another run, and let calls end while a program is replayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

from programs import TOOLS, answer_of
from resting_surface import Surface
from waiting import until

from codemode import Tool
from codemode.host.clock import now_ms
from codemode.protocol.events import CallSettled
from codemode.protocol.ledger import Fulfilled, LedgerEntry

KEYED = {"continuation": {"keys": "a key of this test"}}
_MINUTE_MS = 60_000


class World:
    """What is in flight, and what has ended, in its order."""

    def __init__(self) -> None:
        self.ended: list[Any] = []
        self.began: list[str] = []
        self.open: dict[str, Callable[[], None]] = {}
        self.start_ms = now_ms()
        self.runs: list[Any] = []  # that have begun

    def now_ms(self) -> int:
        return self.start_ms + 1000 * len(self.ended)

    def end(self, key: str) -> None:
        end = self.open.pop(key)
        self.ended.append(key)
        end()

    def tools(self) -> list[Tool]:
        return [Tool(name, execute=self._call) for name in TOOLS]

    async def _call(self, value: Any, context: Any) -> Any:
        self.began.append(context.tool_call_id)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.open[context.tool_call_id] = lambda: future.set_result(None)
        await future
        return answer_of(value)

    def timers(self, _now_ms: Any, fired: Callable[[CallSettled], None]) -> Timers:
        return Timers(self, fired)


class Timers:
    """Stands in for the timers of a run."""

    def __init__(self, world: World, fired: Callable[[CallSettled], None]) -> None:
        self._world = world
        self._fired = fired
        self._set: set[int] = set()

    def start_timers(self, entries: Iterable[LedgerEntry]) -> None:
        for entry in entries:
            self._set.add(entry.id)
            self._world.open[f"timer-{entry.id}"] = lambda number=entry.id: self._fire(number)

    def stop(self, number: int) -> None:
        self._world.open.pop(f"timer-{number}", None)

    def close(self) -> None:
        for number in self._set:
            self.stop(number)

    def _fire(self, number: int) -> None:
        self._fired(CallSettled(number, Fulfilled(None), self._world.now_ms()))


class Play:
    """One run of a program in a world. ``actions`` are what happened in it."""

    def __init__(self, world: World, pool: Any, js: str) -> None:
        self.world = world
        self.actions: list[str] = []
        self.output: list[Any] = []
        self.rests = self.dropped = self.moved = 0
        self._js = js
        self._surface = Surface(world.tools(), KEYED, pool)
        outer = {"clock_ms": world.now_ms, "started_at_ms": world.start_ms - 5000, "conversation_id": "c"}
        self._outer: dict[str, Any] = {**outer, "wait_ms": _MINUTE_MS, "is_traced": True}

    @property
    def run(self) -> Any:
        """The run as it goes on now."""
        return self.world.runs[-1]

    async def freely(self, choices: Random) -> Any:
        """Let anything happen; return the last outcome."""

        def choose(*, is_resting: bool) -> str:
            keys = sorted(self.world.open)
            if is_resting and (not keys or choices.random() < 0.5):
                return "go on"
            if not is_resting and choices.random() < 0.3:
                return "wait over"
            return choices.choice(keys)

        return await self._play(choose, Random(0), drops=0.0, early=False)

    async def following(self, actions: list[str], disturbances: Random, *, early: bool) -> Any:
        """Let the same happen to a run whose worker is given up at some of its rests; return the last outcome."""
        left = iter(actions)
        self._ahead = list(actions)
        return await self._play(lambda **_: next(left), disturbances, drops=0.7, early=early)

    async def _play(self, choose: Any, disturbances: Random, *, drops: float, early: bool) -> Any:
        run = await self._surface.run(**self._outer)
        going = asyncio.ensure_future(run.start(self._js))
        early_ends: list[str] = []
        while True:
            await until(partial(self._is_idle, going))
            if going.done():
                outcome = going.result()
                self.output += [(one.kind, one.value) for one in outcome.output]
                if outcome.status != "resting":
                    return outcome
                self.rests += 1
            action = choose(is_resting=going.done())
            while action not in ("go on", "wait over") and going.done():
                self._end(action, early_ends)
                await until(self._has_settled)
                self._maybe_drop(disturbances, drops)
                action = choose(is_resting=True)
            if action == "go on":
                self._maybe_drop(disturbances, drops)
                self.actions.append(action)
                going = await self._goes_on(disturbances, drops)
                if early and disturbances.random() < 0.7:
                    await self._end_early(disturbances, early_ends)
            elif action == "wait over":
                self.actions.append(action)
                self.run._runner.end_wait()
            else:
                self._end(action, early_ends)

    def _end(self, key: str, early_ends: list[str]) -> None:
        self.actions.append(key)
        if key in early_ends:
            early_ends.remove(key)
        else:
            self.world.end(key)

    async def _end_early(self, disturbances: Random, early_ends: list[str]) -> None:
        """Let what ends next do so already, be it in the middle of a replay."""
        for key in self._ahead[len(self.actions) :]:
            if key not in self.world.open or disturbances.random() < 0.3:
                return
            for _ in range(disturbances.randrange(8)):
                await asyncio.sleep(0)
            early_ends.append(key)
            self.world.end(key)

    def _maybe_drop(self, disturbances: Random, drops: float) -> None:
        if self.run.is_warm and disturbances.random() < drops:
            self.dropped += 1
            self.run.release_worker()

    async def _goes_on(self, disturbances: Random, drops: float) -> asyncio.Future[Any]:
        if self.run.pending_calls or self.run.is_warm or disturbances.random() >= drops / 2:
            return asyncio.ensure_future(self.run.continue_run())
        interrupt, before = await self.run.store_content_and_sign_interrupt(), self.run
        await before.abort()
        self.moved += 1
        going = asyncio.ensure_future(self._surface.restore(interrupt, **self._outer))
        await until(lambda: self.run is not before)
        return going

    def _has_settled(self) -> bool:
        """Whether what has ended has come into the ledger."""
        return self._runs() == set(self.world.open)

    def _runs(self) -> set[str]:
        machine = self.run._runner.machine
        entries = [machine.get_entry(number) for number in machine._requests.running]
        return {entry.tool_call_id or f"timer-{entry.id}" for entry in entries}

    def _is_idle(self, going: asyncio.Future[Any]) -> bool:
        if going.done():
            return True
        runner = self.run._runner if self.world.runs else None
        if runner is None or runner.ended.done() or runner.stop_reason.done():
            return False
        machine = runner.machine
        is_waiting = (
            machine.suspension_reason is not None
            and not machine.has_pending_deliveries
            and machine.has_running_requests
        )
        is_idle = machine.js is not None and machine.suspension_reason is None and not machine._turns.owed_count
        return (is_waiting or is_idle) and self._has_settled()
