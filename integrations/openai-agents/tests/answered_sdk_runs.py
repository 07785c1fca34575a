"""Runs of the SDK that are cut off after a person's first decision, and made again from the state with that decision.

A row is one run: how the call was approved, what is kept (``journal``, ``guard`` or ``key``) and the tool in which it
is cut off.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any, TypeAlias

from agents import Runner, RunState, function_tool
from codemode_openai_agents import approve, code_mode
from cut_off import PROGRAM, StoredCase, be_killed, come_back_to_all, usual
from scripted_model import QUIET, Script, agent, outputs, program

Row: TypeAlias = tuple[str, str, str]
FORMS = ["of the state", "of the plugin", "edited"]
ROWS: list[Row] = usual(itertools.product(FORMS, ["journal", "guard", "key"], ["refund", "look"]))


class Run(StoredCase):
    """The run of a row in one host."""

    def _agent(self, *turns: Any) -> Any:
        @function_tool(needs_approval=True)
        async def refund(order: str, cents: int = 5) -> str:
            """Refund an order."""
            await self.shop.did("refund", f"refund {order}")
            return f"refunded {order}"

        @function_tool
        async def look() -> str:
            """Look."""
            await self.shop.did("look", "look")
            return "seen"

        return agent(Script(*turns), code_mode([refund, look], {"continuation": self.continuation}))

    async def begin(self) -> asyncio.Task[Any]:
        """Approve the first refund, and run until it is cut off."""
        paused = await Runner.run(self._agent(program(PROGRAM)), "go", run_config=QUIET)
        (self.folder / "state").write_text(paused.to_state().to_string())
        return await self.shop.cut_off(self._first())

    async def _first(self) -> Any:
        made = self._agent("done")
        state = await RunState.from_string(made, (self.folder / "state").read_text())
        (waiting,) = state.get_interruptions()
        if self.form == "of the state":
            state.approve(waiting)
        else:
            approve(state, waiting, **({"input": {"order": "a", "cents": 3}} if self.form == "edited" else {}))
        return await Runner.run(made, state, run_config=QUIET)

    async def come_back(self) -> dict[str, Any]:
        """Make the run again, twice, and answer to its end: what nobody knows of a refund is that it was made."""
        await self._first()
        run, asked = await self._first(), list[str]()
        happened = self.shop.effects()
        while run.interruptions:
            made = self._agent("done")
            state = await RunState.from_json(made, run.to_state().to_json())
            (waiting,) = state.get_interruptions()
            asked.append(_question(waiting))
            if asked[-1] == "unknown: refund a":
                state.reject(waiting, rejection_message="it was made")
            else:
                state.approve(waiting)
            run = await Runner.run(made, state, run_config=QUIET)
        told = outputs(run)[-1].output
        return {"asked": asked, "happened": happened, "done": self.shop.effects(), "told": told}


def _question(waiting: Any) -> str:
    is_unknown = waiting.tool_namespace == "unknown.outcome"
    order = "b" if '"b"' in waiting.arguments else "a"
    return f"{'unknown: ' if is_unknown else ''}{waiting.name}{f' {order}' if waiting.name == 'refund' else ''}"


def runs(folder: Path, number: int) -> list[Run]:
    return [Run(folder, row, number) for row in ROWS]


def main(given: dict[str, Any]) -> Any:
    """Be the host of all runs: the first is killed, the second comes back to them."""
    own = runs(Path(given["folder"]), given["number"])
    return asyncio.run(come_back_to_all(own) if given["number"] else be_killed(own))
