"""A wrong field of a tool's output is reported before any tool runs"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes
from typing_extensions import TypedDict


class Item(TypedDict):
    name: str
    price: int


async def answer(side: Side) -> str:
    ran: list[str] = []

    def find(number: int) -> Item:
        ran.append("find")
        return {"name": "nut", "price": 3}

    js = "const item = await tools.find({ number: 1 }); return item.prise"
    conversation = await side.run(js, "item = await find(number=1)\nitem['prise']", [find])
    return yes(not ran and "prise" in conversation.said)


if __name__ == "__main__":
    main(answer)
