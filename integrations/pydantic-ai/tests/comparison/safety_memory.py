"""A program that allocates without limit is stopped; the agent's process does not grow

Both with their default limits; as it was: within 64 MiB.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import ends, yes
from seen_processes import peak_during


async def answer(side: Side) -> str:
    conversation = side.agent(
        side.program(
            "const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))",
            "all = []\nwhile True:\n    all.append('x' * 1000000 + str(len(all)))",
        )
    )
    grown = await peak_during(ends(conversation.say()), enough=1024)
    return yes(grown < 64 and bool(conversation.told))


if __name__ == "__main__":
    main(answer)
