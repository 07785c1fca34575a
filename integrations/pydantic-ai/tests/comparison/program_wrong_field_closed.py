"""A wrong field of a closed output schema is reported before any tool runs"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic_ai_sides import Side, main
from script_steps import yes


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    price: int


async def answer(side: Side) -> str:
    ran: list[str] = []

    def find(number: int) -> Item:
        ran.append("find")
        return Item(name="nut", price=3)

    js = "const item = await tools.find({ number: 1 }); return item.prise"
    conversation = await side.run(js, "item = await find(number=1)\nitem['prise']", [find])
    return yes(not ran and "prise" in conversation.said)


if __name__ == "__main__":
    main(answer)
