"""The approval console with something to decide: programs of a support agent that wait for a person. No model, no key.

The programs are those that a model would write. They have looked at orders and want to pay back, to give a voucher and
to know what a colleague thinks; of one payment nobody knows whether it went through. What you decide in the browser
goes on here, in this process, which prints each call as it happens. Ctrl-C ends it, and nothing is kept.

``make demo-console`` in the root of the repository, or, with codemode-console installed, this file by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Literal

try:
    from codemode_console import serve
    from pydantic import BaseModel, Field

    from codemode import (
        CodeModeAbortedError,
        CodeModeTool,
        Tool,
        ToolCallContext,
        create_code_mode_tool,
        request_interrupt,
        tool,
    )
    from codemode.stores import InterruptStore, SqliteInterruptStore
except ImportError as error:
    sys.exit(
        f"{error}. This example needs what `pip install . ./integrations/console` in the repository's root brings."
    )

ORDERS: list[dict[str, Any]] = [
    {"id": "A-1001", "customer": "ada@example.com", "item": "headphones", "price": 129.00, "state": "delivered"},
    {"id": "A-1002", "customer": "ada@example.com", "item": "keyboard", "price": 89.90, "state": "lost"},
    {"id": "A-1003", "customer": "ada@example.com", "item": "monitor", "price": 349.00, "state": "damaged"},
    {"id": "B-2001", "customer": "bob@example.com", "item": "camera", "price": 900.00, "state": "damaged"},
]
REFUNDS = """\
const orders = await tools.findOrders({ customer: "ada@example.com" });
const wrong = orders.filter((order) => order.state !== "delivered");

const refunds = await Promise.allSettled(wrong.map((order) =>
  tools.refund({ orderId: order.id, amount: order.price, reason: `${order.item} was ${order.state}` })));

const lines = refunds.map((one, i) => one.status === "fulfilled"
  ? `${wrong[i].id}: ${one.value.amount} ${one.value.currency} refunded`
  : `${wrong[i].id}: no refund, a colleague will call`);
await tools.reply({ customer: "ada@example.com", text: lines.join("; ") });
return { refunded: refunds.filter((one) => one.status === "fulfilled").length, lines };
"""
VOUCHER = """\
const [order] = await tools.findOrders({ customer: "bob@example.com" });
const voucher = await tools.giveVoucher({
  customer: order.customer,
  percent: 20,
  until: "2027-01-31",
  channel: "mail",
  text: `Sorry that your ${order.item} arrived ${order.state}.\\nHere is something for next time.`,
  items: [order.id],
});
return voucher;
"""
QUESTION = """\
const [order] = await tools.findOrders({ customer: "bob@example.com" });
const answer = await tools.askColleague({ question: `Repair ${order.id}, or send another ${order.item}?` });
const text = answer.what === "repair" ? "We repair it." : "A new one is on its way.";
await tools.reply({ customer: order.customer, text });
return answer;
"""
PAYMENT = """\
return await tools.payOut({ supplier: "Camera World", amount: 4200 });
"""


class Refund(BaseModel):
    """A payment back to the customer."""

    order_id: str = Field(alias="orderId")
    amount: float = Field(gt=0)
    reason: str
    currency: Literal["EUR", "CHF"] = "EUR"


class Voucher(BaseModel):
    """Something off the next order."""

    customer: str
    percent: int = Field(ge=5, le=50)
    until: date
    channel: Literal["mail", "letter"]
    text: str = Field(max_length=2000)
    items: list[str] = Field(description="The orders that it is for.")
    note: str | None = None


class Desk:
    """The tools of a support agent; each call is told to ``say``."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.is_paying = asyncio.Event()

    def tools(self) -> Sequence[object]:
        """Return the tools: one reads, two ask first, one asks a person itself, two act."""

        @tool(name="findOrders", annotations={"readOnlyHint": True})
        def find_orders(customer: str) -> list[dict[str, Any]]:
            """The orders of a customer, as `{ id, customer, item, price, state }`."""
            return [order for order in ORDERS if order["customer"] == customer]

        def refund(value: Refund) -> dict[str, object]:
            self.say(f"refund({value.order_id}, {value.amount:.2f} {value.currency})")
            return {"amount": value.amount, "currency": value.currency}

        def give_voucher(value: Voucher) -> str:
            self.say(f"giveVoucher({value.customer}, {value.percent} %, until {value.until})")
            return f"{value.percent} % off until {value.until}"

        @tool
        def reply(customer: str, text: str) -> None:
            """Send the customer an answer."""
            self.say(f"reply({customer}): {text}")

        pay_back = "Pay money back. A person approves every refund."
        return [
            find_orders,
            Tool("refund", execute=refund, description=pay_back, input_schema=Refund, needs_approval=True,
                 annotations={"destructiveHint": True}, title="Refund", summary="{orderId} · {amount:.2f} {currency}"),
            Tool("giveVoucher", execute=give_voucher, description="Give a customer something off the next order.",
                 input_schema=Voucher, needs_approval=True, title="Voucher",
                 summary="{percent} % for {customer}, until {until}"),
            Tool("askColleague", execute=_ask, description="Ask a colleague.", input_schema=_QUESTION),
            Tool("payOut", execute=self._pay_out, description="Pay a supplier.", input_schema=_PAYMENT, title="Pay out",
                 summary="{amount:,.2f} EUR to {supplier}"),
            reply,
        ]  # fmt: skip

    async def _pay_out(self, value: Any) -> str:
        if not self.is_paying.is_set():
            self.is_paying.set()
            await asyncio.Event().wait()  # the host stops, and nobody knows whether the bank has paid
        self.say(f"payOut({value['supplier']}, {value['amount']})")
        return "paid"


_QUESTION = {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"]}
_PAYMENT = {
    "type": "object",
    "properties": {"supplier": {"type": "string"}, "amount": {"type": "number"}},
    "required": ["supplier", "amount"],
}
_ANSWER = {
    "type": "object",
    "properties": {"what": {"enum": ["repair", "replace"]}, "remark": {"type": "string"}},
    "required": ["what"],
}


def _ask(value: Any, context: ToolCallContext) -> Any:
    if context.interrupt is None:
        request_interrupt({"kind": "support/question", "message": value["question"], "schema": _ANSWER})
    return context.interrupt.resolution


def desk_tool(store: InterruptStore, desk: Desk) -> CodeModeTool:
    """Return the agent's tool; its pauses can be resumed in this process alone, which has made the key."""
    continuation = {"keys": secrets.token_urlsafe(32), "guard": store.guard, "max_age_ms": 86_400_000}
    approval = {"mode": "interrupt", "show_denial_reason": True}
    return create_code_mode_tool(desk.tools(), {"approval": approval, "continuation": continuation})


async def fill(store: InterruptStore, code_mode: CodeModeTool, desk: Desk) -> None:
    """Run the agent's programs until they wait for somebody."""
    kept: dict[str, Any] = {"tool": code_mode, "tenant": "acme", "app": "support"}
    for customer, js in (("ada", REFUNDS), ("bob", VOUCHER), ("bob", QUESTION)):
        waiting = await code_mode.execute({"js": js})
        labels = {"agent": "refunds", "customer": customer, "link": f"https://chat.example.com/{customer}"}
        await store.put(waiting, labels=labels, **kept)
    paying = asyncio.create_task(code_mode.execute({"js": PAYMENT}))
    await desk.is_paying.wait()
    paying.cancel()
    try:
        await paying
    except asyncio.CancelledError as stopped:
        aborted = stopped.__cause__
        if not isinstance(aborted, CodeModeAbortedError) or aborted.recovery is None:
            raise
        await store.put(aborted.recovery, labels={"agent": "invoices", "supplier": "Camera World"}, **kept)


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def has_window() -> bool:
    """Say whether a browser would open beside this terminal, and not in it."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def main() -> None:
    """Fill a database, and serve the console until Ctrl-C."""
    parser = argparse.ArgumentParser(description="The approval console over a support agent's waiting programs.")
    parser.add_argument("--port", type=int, default=8822, help="0 takes a free one")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open no browser")
    options = parser.parse_args()

    def greet(line: str) -> None:
        say(f"{line}\nWhat you decide there goes on here. Ctrl-C ends it.\n")
        if has_window() and not options.no_browser:
            webbrowser.open(line.rpartition(" ")[2])

    with tempfile.TemporaryDirectory() as folder:
        store = SqliteInterruptStore(f"{folder}/approvals.db")
        desk = Desk(lambda call: say(f"  {call}"))
        code_mode = desk_tool(store, desk)

        async def filled() -> None:
            async with store:
                await fill(store, code_mode, desk)

        asyncio.run(filled())
        try:
            serve(store, resume={"support": code_mode.resume}, port=options.port, echo=greet)
        except OSError as error:
            why = f"port {options.port} cannot be had: {error.strerror or error}"
            sys.exit(f"{why}. Take another: python {os.path.relpath(__file__)} --port 0")


if __name__ == "__main__":
    main()
