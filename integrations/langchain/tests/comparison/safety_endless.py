"""An endless program ends at its time limit and does not block the event loop

Ours with a limit of one second, theirs with ten, which count from before its tools are installed.
"""

from __future__ import annotations

from langchain_sides import Side, main
from seen_processes import keeps_free, share_of_turns


async def answer(side: Side) -> str:
    options = {"options": {"execution_policy": {"timeout_ms": 1000}}} if side.is_ours else {"timeout": 10.0}
    conversation = side.agent(side.program("for (;;) {}"), options=options)
    share = await share_of_turns(conversation.say())
    return keeps_free(share) if conversation.told else "no, it did not end"


if __name__ == "__main__":
    main(answer)
