"""Each call of a program is an event of the graph's stream, before the program ends

By ``astream_events``, version 2.
"""

from __future__ import annotations

from langchain_desk import Desk
from langchain_sides import CONFIG, Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    js = "return await tools.charge({ order: 'a' })"
    conversation = side.agent(side.program(js), tools=[Desk().charge])
    events = conversation.graph.astream_events({"messages": ["go"]}, CONFIG, version="v2")
    seen = [(event["event"], event["name"]) async for event in events]
    outer = "codeMode" if side.is_ours else "eval"
    nested, ended = ("on_tool_start", "charge"), ("on_tool_end", outer)
    return yes(nested in seen and ended in seen and seen.index(nested) < seen.index(ended))


if __name__ == "__main__":
    main(answer)
