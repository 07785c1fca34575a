"""Programs and model calls until a tool that had to be searched is called

As above, with 200 tools; the model's steps are those that each package's description asks for.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import Tool
from pydantic_ai.messages import ToolCallPart
from pydantic_ai_sides import Side, main


async def answer(side: Side) -> str:
    called: list[str] = []

    def made(name: str, text: str) -> Tool[None]:
        def act(account: str) -> str:
            called.append(name)
            return f"{name} {account}"

        return Tool(act, name=name, description=text, defer_loading=not side.is_ours)

    tools = [made(f"act_{number}", f"Does number {number}.") for number in range(200)]
    tools.append(made("close_ledger", "Closes the ledger of an account."))
    js = "const [found] = await tools.$search('close the ledger'); return await tools[found.name]({ account: 'a' })"
    program = side.program(js, "await close_ledger(account='a')")
    steps: list[Any] = [program] if side.is_ours else [ToolCallPart("search_tools", {"queries": ["ledger"]}), program]
    capability = side.capability(listing="search") if side.is_ours else side.capability()
    conversation = await side.agent(*steps, tools=tools, capability=capability).say()
    assert called == ["close_ledger"], conversation.told
    return str(len(steps))


if __name__ == "__main__":
    main(answer)
