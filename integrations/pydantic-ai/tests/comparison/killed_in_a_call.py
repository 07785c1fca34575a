"""A process is killed in the second of two calls: times that the first runs; handling of the second on resume

Ours with the journal of a store, the harness with DBOS (``DBOSDurability``, its tools DBOS steps), as its README says.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_sides import Side, main
from script_steps import note, take_step, times

JS = "await tools.charge({ who: 'ada' }); return await tools.charge({ who: 'bob' })"
PYTHON = "await charge(who='ada')\nawait charge(who='bob')"
KILLED = 9


async def answer(side: Side) -> str:
    with TemporaryDirectory() as folder:
        assert await take_step(__file__, side.name, folder, "begin") == KILLED
        assert await take_step(__file__, side.name, folder, "go on") == 0
        again = "made again" if times(folder, "bob") == 2 else "not made again"
        asked = "a person is asked" if times(folder, "asked") else "nobody is asked"
        with_what = "a journal" if side.is_ours else "DBOS"
        return f"{times(folder, 'ada')}; {again}, {asked} (with {with_what})"


async def step(side: Side) -> str:
    folder, name = sys.argv[2:]

    async def charge(who: str) -> str:
        """Charge a card."""
        if note(folder, who) == 1 and who == "bob":
            os._exit(KILLED)
        return f"charged {who}"

    if side.is_ours:
        await _journaled(side, folder, name, charge)
    else:
        await asyncio.to_thread(_with_dbos, side, folder, charge)
    return name


async def _journaled(side: Side, folder: str, name: str, charge: Any) -> None:
    from codemode.stores import SqliteInterruptStore

    async with SqliteInterruptStore(Path(folder) / "store.sqlite") as store:
        journal = store.journal(tenant="acme", app="billing")
        kept = {"keys": "32 random bytes that both processes know", "guard": store.guard, "journal": journal}
        capability = side.capability(options={"continuation": kept})
        conversation = side.agent(tools=[charge], capability=capability)
        # The prompt and the model's answer, as whoever keeps them has them.
        history = Path(folder) / "messages.json"
        if name == "begin":
            call = ModelResponse(parts=[side.program(JS, PYTHON)])
            history.write_bytes(ModelMessagesTypeAdapter.dump_json([ModelRequest(parts=[UserPromptPart("go")]), call]))
        messages = ModelMessagesTypeAdapter.validate_json(history.read_bytes())
        result = await conversation.agent.run(message_history=messages, conversation_id="chat")
        if isinstance(result.output, DeferredToolRequests):
            note(folder, "asked")


def _with_dbos(side: Side, folder: str, charge: Any) -> None:
    from dbos import DBOS, SetWorkflowID
    from pydantic_ai.durable_exec.dbos import DBOSDurability

    def respond(messages: Any, _info: Any) -> ModelResponse:
        first = len(messages) == 1
        return ModelResponse(parts=[side.program(JS, PYTHON) if first else TextPart("done")])

    agent: Agent[Any, Any] = Agent(
        FunctionModel(respond),
        name="desk",
        tools=[DBOS.step()(charge)],
        capabilities=[side.capability(), DBOSDurability()],
    )

    @DBOS.workflow()
    async def desk() -> Any:
        return (await agent.run("go")).output

    DBOS(
        config={
            "name": "desk",
            "system_database_url": f"sqlite:///{Path(folder) / 'dbos.sqlite'}",
            "application_version": "1",
            "executor_id": "local",
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    if DBOS.get_workflow_status("w") is None:
        with SetWorkflowID("w"):
            DBOS.start_workflow(desk)
    DBOS.retrieve_workflow("w").get_result()
    DBOS.destroy()


if __name__ == "__main__":
    main(answer if len(sys.argv) == 2 else step)
