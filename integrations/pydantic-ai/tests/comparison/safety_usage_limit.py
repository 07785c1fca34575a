"""Calls of programs count against the run's `tool_calls_limit`"""

from __future__ import annotations

from pydantic_ai import UsageLimitExceeded, UsageLimits
from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    made: list[int] = []

    async def note(number: int) -> int:
        made.append(number)
        return number

    js = "for (let number = 0; number < 10; number += 1) try { await tools.note({ number }) } catch {}"
    python = (
        "for number in range(10):\n    try:\n        await note(number=number)\n    except Exception:\n        pass"
    )
    conversation = side.agent(side.program(js, python), tools=[note])
    try:
        await conversation.say(usage_limits=UsageLimits(tool_calls_limit=4))
    except UsageLimitExceeded:
        return yes(len(made) <= 4)
    return "no"


if __name__ == "__main__":
    main(answer)
