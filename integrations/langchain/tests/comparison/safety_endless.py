"""An endless program ends at its time limit, and the event loop is free until then

Ours with a limit of one second, theirs with ten, which count from before its tools are installed.
"""

from __future__ import annotations

from langchain_sides import Side, main
from script_steps import yes
from seen_processes import turns_during


async def answer(side: Side) -> str:
    options = {"options": {"execution_policy": {"timeout_ms": 1000}}} if side.is_ours else {"timeout": 10.0}
    turns, conversation = await turns_during(side.run("for (;;) {}", options=options))
    return yes(turns >= 10 and bool(conversation.told))


if __name__ == "__main__":
    main(answer)
