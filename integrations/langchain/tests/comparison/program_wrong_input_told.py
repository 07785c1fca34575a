"""The error of a call with an invalid input names the field"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes


@tool
def ship(order: str) -> str:
    """Ship."""
    return f"shipped {order}"


async def answer(side: Side) -> str:
    # Nothing that could be known before the program runs.
    given = "const input = JSON.parse('{\"order\": [1]}');"
    js = f"{given} try {{ return await tools.ship(input) }} catch (error) {{ return error.message }}"
    conversation = await side.run(js, [ship])
    return yes("order" in conversation.result and "shipped" not in conversation.result)


if __name__ == "__main__":
    main(answer)
