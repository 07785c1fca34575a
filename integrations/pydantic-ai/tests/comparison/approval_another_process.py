"""A pending call can be answered after the process that asked has ended

Ours with a key and a guard that both processes have; the harness has no pause to go on with.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai_sides import Side, main
from script_steps import note, take_step, times, yes

JS = "await tools.charge({ order: 'a' }); return await tools.refund({ order: 'a' })"
PYTHON = "await charge(order='a')\nawait refund(order='a')"


async def answer(side: Side) -> str:
    with TemporaryDirectory() as folder:
        for name in ("ask", "go on"):
            assert await take_step(__file__, side.name, folder, name) == 0
        return yes((times(folder, "charge"), times(folder, "refund")) == (1, 1))


def capability(side: Side, folder: str) -> Any:
    if not side.is_ours:
        return side.capability()
    from codemode.stores import SqliteInterruptStore

    guard = SqliteInterruptStore(Path(folder) / "guard.sqlite").guard
    return side.capability(
        options={"continuation": {"keys": "32 random bytes that both processes know", "guard": guard}}
    )


async def step(side: Side) -> str:
    folder, name = sys.argv[2:]
    kept = Path(folder) / "messages.json"

    def charge(order: str) -> str:
        note(folder, "charge")
        return f"charged {order}"

    def refund(order: str) -> str:
        note(folder, "refund")
        return f"refunded {order}"

    said = [side.program(JS, PYTHON)] if name == "ask" else []
    tools = [charge, Tool(refund, requires_approval=True)]
    conversation = side.agent(*said, tools=tools, capability=capability(side, folder))
    if name == "ask":
        await conversation.say()
        kept.write_bytes(ModelMessagesTypeAdapter.dump_json(conversation.messages))
        waits = isinstance(conversation.output, DeferredToolRequests)
        (Path(folder) / "asked").write_text(
            "\n".join(one.tool_call_id for one in conversation.output.approvals) if waits else ""
        )
        return name
    conversation.messages = ModelMessagesTypeAdapter.validate_json(kept.read_bytes())
    asked = (Path(folder) / "asked").read_text().split()
    if asked:
        await conversation.say(deferred_tool_results=DeferredToolResults(approvals=dict.fromkeys(asked, True)))
    return name


if __name__ == "__main__":
    main(answer if len(sys.argv) == 2 else step)
