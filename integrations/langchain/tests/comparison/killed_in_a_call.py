"""A run is cancelled in the second of two calls: times that the first runs; handling of the second on resume

Ours with the journal of ``durable_continuation``; both over checkpoints in SQLite, gone on with by a new graph.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.tools import tool
from langchain_sides import CONFIG, PATIENCE_SECONDS, Side, main
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

JS = "await tools.charge({ who: 'ada' }); return await tools.charge({ who: 'bob' })"


async def answer(side: Side) -> str:
    charged, stuck = list[str](), asyncio.Event()

    @tool
    async def charge(who: str) -> str:
        """Charge a card."""
        charged.append(who)
        if charged == ["ada", "bob"]:
            stuck.set()
            await asyncio.Event().wait()
        return f"charged {who}"

    def agent(saver: Any, *said: Any) -> Any:
        return side.agent(*said, tools=[charge], checkpointer=saver, options=options(side, saver))

    with TemporaryDirectory() as folder:
        async with AsyncSqliteSaver.from_conn_string(str(Path(folder) / "checkpoints.sqlite")) as saver:
            running = asyncio.create_task(agent(saver, side.program(JS)).say())
            await asyncio.wait_for(stuck.wait(), PATIENCE_SECONDS)
            running.cancel()
            await asyncio.wait([running], timeout=PATIENCE_SECONDS)
            output = await agent(saver).graph.ainvoke(None, CONFIG)
    went_on = "the program goes on" if "charged bob" in str(output["messages"]) else "the program fails"
    asked = "a person is asked" if "__interrupt__" in output else went_on
    again = "made again" if charged.count("bob") == 2 else "not made again"
    return f"{charged.count('ada')}; {again}, {asked}" + (" (with a journal)" if side.is_ours else "")


def options(side: Side, saver: Any) -> dict[str, Any]:
    if not side.is_ours:
        return {}
    from codemode_langchain import durable_continuation

    return {"options": {"continuation": durable_continuation(saver, keys="32 random bytes that both know")}}


if __name__ == "__main__":
    main(answer)
