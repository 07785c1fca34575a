"""Characters of tools and instructions that the model reads with 1,000 searchable tools

Ours with ``listing="search"``; the harness with ``defer_loading=True``, the tool search of pydantic-ai.
"""

from __future__ import annotations

from pydantic_ai import Tool
from pydantic_ai_sides import Side, main


def made(number: int, *, is_deferred: bool) -> Tool[None]:
    def act(account: str, cents: int) -> str:
        return f"{number} {account} {cents}"

    return Tool(act, name=f"act_{number}", description=f"Does number {number}.", defer_loading=is_deferred)


async def answer(side: Side) -> str:
    tools = [made(number, is_deferred=not side.is_ours) for number in range(1000)]
    capability = side.capability(listing="search") if side.is_ours else side.capability()
    conversation = await side.agent(tools=tools, capability=capability).say()
    return f"{len(conversation.shown[0]):,}"


if __name__ == "__main__":
    main(answer)
