"""Characters that the model reads of a result of 1,000,000 characters"""

from __future__ import annotations

from pydantic_ai_sides import Side, main


def export() -> str:
    return "line of text\n" * 76_923 + "."


async def answer(side: Side) -> str:
    conversation = await side.run("return await tools.export({})", "await export()", [export])
    return f"{len(conversation.said):,}"


if __name__ == "__main__":
    main(answer)
