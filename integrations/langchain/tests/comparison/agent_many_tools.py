"""Characters of tools and instructions that the model reads with 1,000 tools

Ours with ``listing="search"``; langchain-quickjs declares all that ``ptc`` names, and has no search.
"""

from __future__ import annotations

from langchain_core.tools import BaseTool, StructuredTool
from langchain_sides import Side, main


def made(number: int) -> BaseTool:
    def act(account: str, cents: int) -> str:
        return f"{number} {account} {cents}"

    return StructuredTool.from_function(act, name=f"act{number}", description=f"Does number {number}.")


async def answer(side: Side) -> str:
    tools = [made(number) for number in range(1000)]
    options = {"listing": "search"} if side.is_ours else {}
    conversation = await side.agent(tools=tools, options=options).say()
    return f"{len(conversation.model.shown[0]):,}"


if __name__ == "__main__":
    main(answer)
