"""The model sees the declared output fields of a tool"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes
from typing_extensions import TypedDict


class Item(TypedDict):
    name: str
    cents_each: int


def find(number: int) -> Item:
    """Find an item."""
    return {"name": "nut", "cents_each": 3}


async def answer(side: Side) -> str:
    conversation = await side.run("return 1", "1", [find])
    return yes("cents_each" in conversation.shown[0])


if __name__ == "__main__":
    main(answer)
