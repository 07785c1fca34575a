"""A wrong input field is reported before any tool runs"""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    ran: list[str] = []

    @tool
    def charge() -> str:
        """Charge."""
        ran.append("charge")
        return "charged"

    @tool
    def ship(order: str) -> str:
        """Ship."""
        ran.append("ship")
        return f"shipped {order}"

    js = "await tools.charge({}); return await tools.ship({ ordr: 'a' })"
    conversation = await side.run(js, [charge, ship])
    return yes(not ran and "ordr" in conversation.said)


if __name__ == "__main__":
    main(answer)
