"""A `Command` that a tool returns to a program updates the graph's state"""

from __future__ import annotations

from typing import Annotated, Any

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langchain_sides import Side, main
from langgraph.types import Command
from script_steps import yes


class Basket(AgentState[Any]):
    basket: str


class WithBasket(AgentMiddleware[Any, Any, Any]):
    state_schema = Basket


@tool
def put(what: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Put something into the basket."""
    return Command(update={"basket": what, "messages": [ToolMessage("put", tool_call_id=tool_call_id)]})


async def answer(side: Side) -> str:
    conversation = await side.run("await tools.put({ what: 'nut' }); return 'ok'", [put], after=[WithBasket()])
    return yes(conversation.output.get("basket") == "nut")


if __name__ == "__main__":
    main(answer)
