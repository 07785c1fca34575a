"""The result of a program lists its calls, with input and output

In the metadata of the tool return, which the model does not read.
"""

from __future__ import annotations

import json

from pydantic_ai_sides import Side, main
from script_steps import yes


def stock(product: str) -> int:
    return 4711


async def answer(side: Side) -> str:
    js, python = "return await tools.stock({ product: 'nut' }) > 0", "await stock(product='nut') > 0"
    conversation = await side.run(js, python, [stock])
    parts = [part for message in conversation.messages for part in message.parts if part.part_kind == "tool-return"]
    listed = json.dumps([part.metadata for part in parts], default=str)
    return yes("stock" in listed and "nut" in listed and "4711" in listed)


if __name__ == "__main__":
    main(answer)
