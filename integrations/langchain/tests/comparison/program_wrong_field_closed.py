"""A wrong field of a closed output schema is reported before any tool runs"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from pydantic import BaseModel, ConfigDict
from script_steps import yes


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    price: int


async def answer(side: Side) -> str:
    ran: list[str] = []

    @tool
    def find(number: int) -> Item:
        """Find an item."""
        ran.append("find")
        return Item(name="nut", price=3)

    conversation = await side.run("const item = await tools.find({ number: 1 }); return item.prise", [find])
    return yes(not ran and "prise" in conversation.said)


if __name__ == "__main__":
    main(answer)
