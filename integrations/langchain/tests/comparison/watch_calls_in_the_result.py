"""The result of a program lists its calls, with their inputs

In the artifact of the ``ToolMessage``, which the model does not read.
"""

from __future__ import annotations

import json

from langchain_desk import Desk
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    conversation = await side.run("return await tools.charge({ order: 'a47' }) !== ''", [Desk().charge])
    listed = json.dumps(conversation.told[-1].artifact, default=str)
    return yes("charge" in listed and "a47" in listed)


if __name__ == "__main__":
    main(answer)
