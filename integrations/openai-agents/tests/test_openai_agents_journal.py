"""Calls that had begun when a process died."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from agents import Agent, Runner, RunState, function_tool
from codemode_openai_agents import code_mode
from scripted_model import QUIET, Script, agent, outputs, program
from suite import full_only

from codemode.continuations.journal import MemoryJournal, OpenedJournal
from codemode.stores import MemoryResumeGuard

BOTH = "return [await tools.pay({ n: 1 }), await tools.pay({ n: 2 })];"


class Dying(MemoryJournal):
    """The journal of processes, of which one may be dead: nothing that it still does is kept."""

    is_dead = False

    async def end(self, opened: OpenedJournal, outcome: str, *, is_final: bool) -> bool:
        return self.is_dead or await super().end(opened, outcome, is_final=is_final)

    async def release(self, opened: OpenedJournal) -> bool:
        return self.is_dead or await super().release(opened)

    def write_nowait(self, opened: OpenedJournal, lines: Any) -> bool:
        return self.is_dead or super().write_nowait(opened, lines)


class Desk:
    def __init__(self) -> None:
        self.did: list[int] = []
        self.has_begun = asyncio.Event()
        self.journal = Dying(lease_ms=200)

        @function_tool(needs_approval=True)
        async def pay(n: int) -> str:
            """Pay a bill."""
            self.did.append(n)
            if n == 2 and not self.has_begun.is_set():
                self.has_begun.set()
                await asyncio.Event().wait()
            return f"paid {n}"

        self.pay = pay

    def agent(self, *turns: Any) -> Agent[Any]:
        """An agent in a process of its own: it shares the journal with others, and nothing else."""
        continuation = {"journal": self.journal, "guard": MemoryResumeGuard(), "conversation_id": "thread"}
        settings = {"continuation": {**continuation, "keys": [b"k" * 32]}}
        return agent(Script(*turns), code_mode([self.pay], settings))

    async def go_on(self, kept: Any, is_approved: bool, **settings: Any) -> Any:
        made = self.agent("done")
        state = await RunState.from_json(made, kept)
        for one in state.get_interruptions():
            if is_approved:
                state.approve(one, **settings)
            else:
                state.reject(one, **settings)
        return await Runner.run(made, state, run_config=QUIET)


@pytest.mark.parametrize("is_repeated", [True, *full_only(False)])
def test_a_call_of_unknown_outcome_is_asked_about_whatever_was_approved_for_always(is_repeated: bool) -> None:
    async def main() -> None:
        desk = Desk()
        paused = await Runner.run(desk.agent(program(BOTH)), "go", run_config=QUIET)
        dying = asyncio.ensure_future(desk.go_on(paused.to_state().to_json(), True, always_approve=True))
        await asyncio.wait_for(desk.has_begun.wait(), 60)
        desk.journal.is_dead = True
        dying.cancel()
        with suppress(asyncio.CancelledError):
            await dying
        desk.journal.is_dead = False
        again = await desk.go_on(paused.to_state().to_json(), True, always_approve=True)
        (asked,) = again.interruptions
        assert (asked.name, asked.tool_namespace, asked.arguments) == ("pay", "unknown.outcome", '{"n": 2}')
        assert desk.did == [1, 2]
        settings: Any = {} if is_repeated else {"rejection_message": "it was paid"}
        result = await desk.go_on(again.to_state().to_json(), is_repeated, **settings)
        assert desk.did == [1, 2, 2][: 2 + is_repeated]
        assert ("paid 2" if is_repeated else "it was paid") in outputs(result)[-1].output

    asyncio.run(main())
