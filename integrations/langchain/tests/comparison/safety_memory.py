"""A program that allocates without limit is stopped; the agent's process does not grow

Both with their default limits; as it was: within 64 MiB, which is what both allow a program.
"""

from __future__ import annotations

import os

from langchain_sides import Side, main
from script_steps import ends, yes
from seen_processes import peak_during


async def answer(side: Side) -> str:
    options = {} if side.is_ours else {"timeout": 5.0}
    program = side.program("const all = []; for (;;) all.push(new Uint8Array(1 << 20).fill(1))")
    conversation = side.agent(program, options=options)
    grown = await peak_during(ends(conversation.say()), enough=1024)
    if grown >= 1024:
        print("no, it grew by more than 1 GiB", flush=True)
        os._exit(0)  # it may take much more, and long to end
    return yes(grown < 80 and "messages" in conversation.output)


if __name__ == "__main__":
    main(answer)
