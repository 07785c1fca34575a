"""Tools of a desk: one that gives money back, one that asks a person by itself, and one that is counted."""

from __future__ import annotations

from langchain_core.tools import BaseTool, tool
from langchain_sides import Side
from langgraph.types import interrupt


class Desk:
    """Notes what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []

        @tool
        def refund(order: str, cents: int = 500) -> str:
            """Give the money for an order back."""
            self.done.append(f"refunded {cents} for {order}")
            return self.done[-1]

        @tool
        def charge(order: str) -> str:
            """Charge for an order."""
            self.done.append(f"charged {order}")
            return self.done[-1]

        @tool
        def ask(question: str) -> str:
            """Ask a person."""
            return str(interrupt(question))

        self.refund: BaseTool = refund
        self.charge: BaseTool = charge
        self.ask: BaseTool = ask


def keeping_programs(side: Side) -> list[object]:
    """A program that leaves a value for the next, and that one."""
    if side.is_ours:
        first, second = "await state.set('cart', { nuts: 3 }); return 1", "return (await state.get('cart')).nuts"
    else:
        first, second = "const cart = { nuts: 3 }; 1", "cart.nuts"
    return [side.program(first, "one", is_script=True), side.program(second, "two", is_script=True)]
