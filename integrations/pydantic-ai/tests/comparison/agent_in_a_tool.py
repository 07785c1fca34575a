"""A tool can be an agent that runs its own programs"""

from __future__ import annotations

from pydantic_ai import RunContext
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    inner = side.agent(side.program("return 6 * 7", "6 * 7"), output_type=str)

    async def research(ctx: RunContext[None], topic: str) -> str:
        result = await inner.agent.run(topic, usage=ctx.usage)
        inner.remember(result)
        return f"{topic}: {result.output}"

    js, python = "return await tools.research({ topic: 'nuts' })", "await research(topic='nuts')"
    conversation = await side.run(js, python, [research])
    parts = [part for message in inner.messages for part in message.parts if part.part_kind == "tool-return"]
    return yes([part.content for part in parts] == [42] and conversation.told[-1] == "nuts: done")


if __name__ == "__main__":
    main(answer)
