"""An endless program ends at its time limit and does not block the event loop

Both with a limit of one second.
"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from seen_processes import keeps_free, share_of_turns


async def answer(side: Side) -> str:
    if side.is_ours:
        capability = side.capability(options={"execution_policy": {"timeout_ms": 1000}})
    else:
        capability = side.capability(resource_limits={"max_duration_secs": 1})
    conversation = side.agent(side.program("for (;;) {}", "while True:\n    pass"), capability=capability)
    share = await share_of_turns(conversation.say())
    return keeps_free(share) if conversation.told else "no, it did not end"


if __name__ == "__main__":
    main(answer)
