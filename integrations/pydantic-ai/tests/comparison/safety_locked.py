"""The kernel restricts that process: system call filter, no new privileges

Linux: what ``/proc`` says of the processes below the agent's while a program runs; one of them is enough.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes
from seen_processes import all_locked


async def answer(side: Side) -> str:
    locked: list[bool] = []

    def look() -> int:
        locked.extend(all_locked())
        return len(locked)

    await side.run("return await tools.look({})", "await look()", [look])
    return yes(any(locked))


if __name__ == "__main__":
    main(answer)
