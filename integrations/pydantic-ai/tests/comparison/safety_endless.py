"""An endless program ends at its time limit, and the event loop is free until then

Both with a limit of one second.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes
from seen_processes import turns_during


async def answer(side: Side) -> str:
    if side.is_ours:
        capability = side.capability(options={"execution_policy": {"timeout_ms": 1000}})
    else:
        capability = side.capability(resource_limits={"max_duration_secs": 1})
    turns, conversation = await turns_during(side.run("for (;;) {}", "while True:\n    pass", capability=capability))
    return yes(turns >= 10 and bool(conversation.told))


if __name__ == "__main__":
    main(answer)
