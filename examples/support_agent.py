"""A person approves the refunds inside a program, not "some code". Orders are real rows in SQLite; no network, no key.

The program that a model would write looks up what went wrong with a customer's orders and wants two refunds. It pauses
once, with both. The interrupt goes through JSON, as it would through a queue or a browser. The person lowers one
refund and denies the other; the program goes on from where it was and finishes. Nothing that was done is done again.

Needs this package alone: ``pip install .`` in the root of the repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys

try:
    from pydantic import BaseModel, Field

    from codemode import CallContext, Interrupt, Tool, create_code_mode_tool, tool
    from codemode.types import Trace
except ImportError as error:
    sys.exit(f"{error}. This example needs what `pip install .` in the root of the repository brings.")

ORDERS = [
    ("A-1001", "ada@example.com", "headphones", 129.00, "delivered"),
    ("A-1002", "ada@example.com", "keyboard", 89.90, "lost"),
    ("A-1003", "ada@example.com", "monitor", 349.00, "damaged"),
    ("B-2001", "bob@example.com", "cable", 9.90, "delivered"),
]

PROGRAM = """\
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


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Refund(BaseModel):
    """A payment back to the customer."""

    order_id: str = Field(alias="orderId")
    amount: float = Field(gt=0)
    reason: str
    currency: str = "EUR"


class Shop:
    """A small shop in memory, with the three tools that the program gets."""

    def __init__(self) -> None:
        # Tools that are plain functions run in threads.
        self.database = sqlite3.connect(":memory:", check_same_thread=False)
        self.database.row_factory = sqlite3.Row
        self.database.execute("CREATE TABLE orders (id TEXT, customer TEXT, item TEXT, price REAL, state TEXT)")
        self.database.execute("CREATE TABLE refunds (order_id TEXT, amount REAL, currency TEXT)")
        self.database.execute("CREATE TABLE replies (customer TEXT, text TEXT)")
        self.database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", ORDERS)

    def rows(self, sql: str, *values: object) -> list[dict[str, object]]:
        """Return what a query finds."""
        return [dict(row) for row in self.database.execute(sql, values)]

    def tools(self) -> list[object]:
        """Return the tools: one reads, one needs a person, one writes."""

        @tool(name="findOrders", annotations={"readOnlyHint": True})
        def find_orders(customer: str) -> list[dict[str, object]]:
            """The orders of a customer, as `{ id, customer, item, price, state }`."""
            say(f"  findOrders({customer})")
            return self.rows("SELECT * FROM orders WHERE customer = ? ORDER BY id", customer)

        def refund(value: Refund) -> dict[str, object]:
            say(f"  refund({value.order_id}, {value.amount:.2f} {value.currency})")
            self.database.execute(
                "INSERT INTO refunds VALUES (?, ?, ?)", (value.order_id, value.amount, value.currency)
            )
            return {"amount": value.amount, "currency": value.currency}

        @tool
        def reply(customer: str, text: str) -> None:
            """Send the customer an answer."""
            say(f"  reply({customer})")
            self.database.execute("INSERT INTO replies VALUES (?, ?)", (customer, text))

        description = "Pay money back. A person approves every refund."
        pay_back = Tool("refund", execute=refund, description=description, input_schema=Refund, needs_approval=True)
        return [find_orders, pay_back, reply]


def decide(interrupt: Interrupt) -> dict[str, object]:
    """Stand in for the person: pay half for what was damaged, nothing for what may still turn up."""
    answers: dict[str, object] = {}
    for request in interrupt.requests:
        say(f"  {request.tool_name}: {json.dumps(request.input)}")
        if "damaged" in request.input["reason"]:
            half = {**request.input, "amount": request.input["amount"] / 2}
            answers[request.interrupt_id] = {"approved": True, "input": half}
            say(f"    -> approved, but {half['amount']:.2f}")
        else:
            answers[request.interrupt_id] = {"approved": False, "reason": "the parcel may still arrive"}
            say("    -> denied")
    return answers


async def main() -> None:
    """Run the program, pause it, let the person decide, go on."""
    shop, traces = Shop(), list[Trace]()
    options = {"approval": {"mode": "interrupt"}, "lifecycle": {"on_trace": traces.append}}
    code_mode = create_code_mode_tool(shop.tools(), options)
    say("=== The program that the model writes ===\n")
    say(PROGRAM)
    say("=== It runs ===\n")
    result = await code_mode.execute({"js": PROGRAM}, call=CallContext(tool_call_id="call-1"))
    assert isinstance(result, Interrupt)
    stored = json.dumps(result.to_dict())
    say(f"\n=== It pauses once, with {len(result.requests)} requests: {len(stored)} bytes of JSON ===\n")
    interrupt = Interrupt.from_dict(json.loads(stored))
    answers = decide(interrupt)
    say("\n=== It goes on ===\n")
    result = await code_mode.resume(interrupt, resolutions=answers)
    say(json.dumps(result, indent=2))
    say("\n=== What happened, the replayed part included ===\n")
    say(traces[-1].to_text())
    say("\n=== The same answers again run nothing ===\n")
    assert await code_mode.resume(interrupt, resolutions=answers) == result
    say(f"refunds: {json.dumps(shop.rows('SELECT * FROM refunds'))}")
    say(f"replies: {json.dumps(shop.rows('SELECT * FROM replies'))}")
    shop.database.close()


if __name__ == "__main__":
    asyncio.run(main())
