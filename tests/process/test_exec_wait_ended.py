"""What a model is told of a run that was ended while it was away: why, and what of it has happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from exec_wait_world import SCOPE, run, wait
from model_waits import ModelWaits
from resting_surface import Slow
from suite import full_only
from waiting import until

from codemode import CallContext, Interrupt, Tool, create_exec_wait_tools
from codemode.errors import CodeModeToolError

PROGRAMS = {
    "in flight": "await tools.charge({who: 'ann'}); await tools.slow(1)",
    "yielding": "await tools.charge({who: 'ann'}); tools.slow(1); await yield_control(); return 1",
    "failed before": "await tools.charge({who: 'ann'}); await tools.broken({}).catch(() => 0); await tools.slow(1)",
    "before any call": "await yield_control(); return 1",
}
DONE = "\nAlready done, do not repeat: host:core:charge("
OPEN = "\nMay or may not have happened, find out before repeating: host:core:slow("


class World:
    """A pair with a tool that is quick, one that is slow, and one that fails; what has been charged."""

    def __init__(self, pool: Any, model_waits: ModelWaits, **options: Any) -> None:
        self._model_waits = model_waits
        self.charged: list[Any] = []
        self.slow = Slow()
        charge = Tool("charge", execute=lambda value, _: self.charged.append(value))
        given = {"waitTimeoutMs": 20_000, **options}
        self.pair = create_exec_wait_tools([charge, self.slow.tool, Tool("broken", execute=_broken)], given, pool=pool)

    async def left(self, program: str) -> Any:
        """What exec gives of a program that is left waiting: where it yields, or in its slow call."""
        call = run(self.pair, PROGRAMS[program])
        return await (call if "yield_control" in PROGRAMS[program] else self._model_waits.left(call, self._is_slow))

    def _is_slow(self) -> bool:
        return bool(self.slow.calls)


def _broken(_value: Any, _context: Any) -> Any:
    raise CodeModeToolError("it is broken")


@pytest.fixture(params=[4, *full_only(0)])
def warm(request) -> int:
    return request.param


def is_named(error: str, program: str) -> bool:
    """Whether a text names what has happened of a program, and nothing else."""
    if program == "before any call":
        return error.endswith("\nNo call was made.")
    return DONE in error and OPEN in error and ("Failed: host:core:broken(" in error) is (program == "failed before")


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("how", ["by its scope", "by its id", "the pair was closed"])
def test_an_aborted_run_says_why_and_what_has_happened(within, pool, model_waits, warm, how, program):
    world = World(pool, model_waits, maxWarmRuns=warm)

    async def main():
        first = await world.left(program)
        if how == "the pair was closed":
            await world.pair.aclose()
        else:
            more = {"run_id": first["runId"]} if how == "by its id" else {}
            assert await world.pair.abort(conversation_id=SCOPE, reason="the chat has ended", **more) == 1
        told = [await wait(world.pair, first) for _ in range(2)]
        await world.pair.aclose()
        return told

    for told in within(main()):
        why = "the pair was closed" if "closed" in how else "the chat has ended"
        assert (told["status"], told["code"]) == ("failed", "aborted")
        assert told["error"].startswith(f"wait: this run was aborted: {why}\n")
        assert is_named(told["error"], program), told["error"]
    assert len(world.charged) == (program != "before any call")


@pytest.mark.parametrize("program", ["in flight", *full_only("before any call")])
def test_an_expired_run_says_what_has_happened(within, pool, model_waits, warm, program, monkeypatch):
    monkeypatch.setattr(
        "codemode.surfaces.exec_wait.run_registry.monotonic_seconds", float
    )  # what has ended is not forgotten
    world = World(pool, model_waits, maxWarmRuns=warm, snapshotTtlSeconds=1)

    async def main():
        first = await world.left(program)
        async with asyncio.timeout(60):
            await until(lambda: world.pair.runs(SCOPE)[0].state == "expired")
            told = await wait(world.pair, first)
            while "\n" not in told["error"]:  # its calls are ended a moment later
                await asyncio.sleep(0)
                told = await wait(world.pair, first)
        await world.pair.aclose()
        return told

    told = within(main())
    assert told["code"] == "snapshot_expired"
    assert told["error"].startswith("wait: this run has expired: it waited for more than 1 s\n")
    assert is_named(told["error"], program), told["error"]


def test_a_call_of_the_model_that_is_cut_off_says_the_same(within, pool, model_waits, warm):
    world = World(pool, model_waits, maxWarmRuns=warm)

    async def main():
        under_way = asyncio.ensure_future(run(world.pair, PROGRAMS["in flight"]))
        await until(lambda: world.slow.calls)
        await world.pair.abort(conversation_id=SCOPE, reason="enough")
        told = await under_way
        await world.pair.aclose()
        return told

    told = within(main())
    assert told["error"].startswith("this run was aborted: enough\n")
    assert is_named(told["error"], "in flight"), told["error"]


def test_strangers_are_told_nothing_of_it(within, pool, model_waits):
    world = World(pool, model_waits)

    async def main():
        first = await world.left("in flight")
        await world.pair.abort(conversation_id=SCOPE, reason="the chat has ended")
        told = await wait(world.pair, first, conversation_id="another")
        await world.pair.aclose()
        return told

    told = within(main())
    assert "no waiting run" in told["error"]
    assert "ended" not in told["error"]
    assert "charge" not in told["error"]


def test_a_denial_after_a_pause_names_its_place(within, pool):
    pay = Tool("pay", execute=lambda value, _: value, needs_approval=True)
    pair = create_exec_wait_tools([pay], settings={"approval": {"mode": "interrupt"}}, pool=pool)

    async def main():
        paused = await run(pair, "const n = 1;\nreturn await tools.pay({n})")
        assert isinstance(paused, Interrupt)
        told = await pair.resume(paused, {"approved": False, "reason": "no"}, call=CallContext(conversation_id=SCOPE))
        await pair.aclose()
        return told

    lines = within(main())["error"].split("\n")
    assert lines[1].startswith("  at line 2, column ")
    assert all(line.strip() for line in lines)
