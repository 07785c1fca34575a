"""A wrong input field is reported before any tool runs"""

from __future__ import annotations

from pydantic_ai_sides import Side, main
from script_steps import yes


async def answer(side: Side) -> str:
    ran: list[str] = []

    def charge() -> str:
        ran.append("charge")
        return "charged"

    def ship(order: str) -> str:
        ran.append("ship")
        return f"shipped {order}"

    js = "await tools.charge({}); return await tools.ship({ ordr: 'a' })"
    conversation = await side.run(js, "await charge()\nawait ship(ordr='a')", [charge, ship])
    return yes(not ran and "ordr" in conversation.said)


if __name__ == "__main__":
    main(answer)
