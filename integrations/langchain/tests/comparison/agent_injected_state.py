"""An argument injected from the state is hidden from the model and reaches the tool"""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.tools import tool
from langchain_sides import Side, main
from langgraph.prebuilt import InjectedState
from script_steps import yes


@tool
def lookup(key: str, hidden_state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Look something up."""
    return f"{key} {len(hidden_state['messages'])}"


async def answer(side: Side) -> str:
    conversation = await side.run("return await tools.lookup({ key: 'k' })", [lookup])
    return yes(conversation.result == "k 2" and "hidden_state" not in conversation.model.shown[0])


if __name__ == "__main__":
    main(answer)
