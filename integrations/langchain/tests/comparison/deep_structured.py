"""A program can set the output schema of a sub-agent

langchain-quickjs by ``responseSchema``; ours calls the ``task`` tool of Deep Agents as it is.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langchain_deep import deep_agent, subagent
from langchain_sides import Side, main
from script_steps import yes

SCHEMA = '{ type: "object", title: "Found", properties: { risky: { type: "boolean" } }, required: ["risky"] }'


async def answer(side: Side) -> str:
    found: Any = {"name": "Found", "args": {"risky": True}, "id": "found", "type": "tool_call"}
    reader = subagent(side, "reader", AIMessage("", tool_calls=[found]))
    given = f"description: 'Read a.', responseSchema: {SCHEMA}"
    if side.is_ours:
        call = f"await tools.task({{ {given}, subagent_type: 'reader' }})"
    else:
        call = f"await task({{ {given}, subagentType: 'reader' }})"
    conversation = await deep_agent(side, f"return ({call}).risky === true", subagents=[reader]).say()
    return yes(conversation.result == "true")


if __name__ == "__main__":
    main(answer)
