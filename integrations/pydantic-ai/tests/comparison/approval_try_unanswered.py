"""A program's `try` does not catch a pause when no handler is set: its `except` or `catch` does not run"""

from __future__ import annotations

from pydantic_ai import Tool
from pydantic_ai_sides import Side, main
from script_steps import ends, yes


async def answer(side: Side) -> str:
    ran: list[str] = []

    def refund(order: str) -> str:
        return f"refunded {order}"

    def voucher(order: str) -> str:
        ran.append(order)
        return f"sent a voucher for {order}"

    js = "try { return await tools.refund({ order: 'a' }) } catch { return await tools.voucher({ order: 'a' }) }"
    python = "try:\n    await refund(order='a')\nexcept Exception:\n    await voucher(order='a')"
    await ends(side.run(js, python, [Tool(refund, requires_approval=True), voucher]))
    return yes(not ran)


if __name__ == "__main__":
    main(answer)
