"""Middleware listed after it sees the calls of programs (`wrap_tool_call`)"""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


class Watching(AgentMiddleware[Any, Any, Any]):
    """Notes every call that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.saw: list[str] = []

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.saw.append(request.tool_call["name"])
        return await handler(request)


async def answer(side: Side) -> str:
    watching = Watching()
    await side.run("return await tools.charge({ order: 'a' })", [Desk().charge], after=[watching])
    return yes("charge" in watching.saw)


if __name__ == "__main__":
    main(answer)
