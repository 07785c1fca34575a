"""A support agent over a small shop: the model writes one program, and you decide about each refund in it.

    pip install . ./integrations/pydantic-ai                  # in the root of the repository
    python integrations/pydantic-ai/examples/support_desk.py  # in a terminal: it asks you

Without a key a scripted model plays its part; with OPENAI_API_KEY or ANTHROPIC_API_KEY a real one does, and needs
``pip install 'pydantic-ai-slim[openai]'`` or ``'pydantic-ai-slim[anthropic]'`` too.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from typing import Any

NEEDS = "This example needs what `pip install . ./integrations/pydantic-ai` in the root of the repository brings"
try:
    from codemode_pydantic_ai import CodeMode
    from pydantic_ai import Agent, DeferredToolRequests, RunContext, Tool, ToolApproved, ToolDenied
    from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
except ImportError as error:
    sys.exit(f"{error}. {NEEDS}.")

Row = dict[str, Any]
SHOP = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, email TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, cents INTEGER, status TEXT, refunded INTEGER DEFAULT 0);
CREATE TABLE notes (customer INTEGER, text TEXT);
INSERT INTO customers VALUES (1, 'Ann', 'ann@example.org'), (2, 'Bob', 'bob@example.org');
INSERT INTO orders (id, customer, cents, status) VALUES
  (11, 1, 4200, 'late'), (12, 1, 900, 'delivered'), (13, 1, 12500, 'late'), (14, 2, 800, 'late');
"""
TASK = "Ann is angry: refund her late orders, and leave a note about what was done."
PROGRAM = """
const [ann] = await tools.find_customers({ name: "Ann" });
const late = (await tools.list_orders({ customer: ann.id })).filter((order) => order.status === "late");
const refunds = await Promise.allSettled(late.map(({ id, cents }) => tools.refund({ order: id, cents })));
const said = refunds.map((refund) => refund.value ?? refund.reason.message);
await tools.add_note({ customer: ann.id, text: said.join("; ") });
return { said, refunded: await tools.total_refunded({ customer: ann.id }) };
"""


async def find_customers(ctx: RunContext[sqlite3.Connection], name: str) -> list[Row]:
    """Customers of a name."""
    return rows(ctx.deps, "SELECT id, name, email FROM customers WHERE name = ?", name)


async def list_orders(ctx: RunContext[sqlite3.Connection], customer: int) -> list[Row]:
    """The orders of a customer, amounts in cents."""
    return rows(ctx.deps, "SELECT id, cents, status FROM orders WHERE customer = ?", customer)


async def total_refunded(ctx: RunContext[sqlite3.Connection], customer: int) -> int:
    """What a customer has got back, in cents."""
    return int(rows(ctx.deps, "SELECT sum(refunded) AS total FROM orders WHERE customer = ?", customer)[0]["total"])


async def add_note(ctx: RunContext[sqlite3.Connection], customer: int, text: str) -> None:
    """Leave a note about a customer."""
    rows(ctx.deps, "INSERT INTO notes VALUES (?, ?)", customer, text)


async def refund(ctx: RunContext[sqlite3.Connection], order: int, cents: int) -> str:
    """Pay back a part or all of an order."""
    rows(ctx.deps, "UPDATE orders SET refunded = refunded + ? WHERE id = ?", cents, order)
    return f"refunded {cents} cents of order {order}"


def rows(shop: sqlite3.Connection, query: str, *values: Any) -> list[Row]:
    """Run one statement and return its rows."""
    with shop:
        return [dict(row) for row in shop.execute(query, values)]


def scripted(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Play a model that writes a program and then tells its result."""
    last = messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return ModelResponse(parts=[TextPart(f"Done: {json.dumps(last.content)}")])
    return ModelResponse(parts=[ToolCallPart("codeMode", {"js": PROGRAM})])


def model() -> Any:
    """Return a real model when there is a key for one."""
    if os.environ.get("OPENAI_API_KEY"):
        return "openai:gpt-5-mini"
    if os.environ.get("ANTHROPIC_API_KEY"):
        return "anthropic:claude-sonnet-5-5"
    return FunctionModel(scripted)


def decide(call: ToolCallPart) -> ToolApproved | ToolDenied:
    """Ask the person at the terminal about one inner call."""
    shown = call.args_as_dict()
    say(f"\nThe program wants: {call.tool_name}({json.dumps(shown)})")
    answer = ask("[a]pprove, [e]dit the amount, anything else denies: ").lower()
    if answer == "a":
        return ToolApproved()
    if answer == "e":
        while not (cents := ask("cents: ")).isdecimal():
            say("A number, please.")
        return ToolApproved(override_args={**shown, "cents": int(cents)})
    return ToolDenied(f"the desk refused to refund order {shown.get('order')}")


def ask(question: str) -> str:
    """Return what the person says. Ends the example where there is nobody to ask."""
    try:
        return input(question).strip()
    except (EOFError, KeyboardInterrupt, OSError, RuntimeError):
        sys.exit("\nNobody answers, so nothing is refunded. Run this in a terminal.")


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Run the task, stopping at every pause for the decisions."""
    tools = [find_customers, list_orders, total_refunded, add_note, Tool(refund, requires_approval=True)]
    agent = Agent(
        model(),
        deps_type=sqlite3.Connection,
        output_type=[str, DeferredToolRequests],
        tools=tools,
        capabilities=[CodeMode()],
    )
    with closing(sqlite3.connect(":memory:")) as shop:
        shop.row_factory = sqlite3.Row
        shop.executescript(SHOP)
        say(TASK)
        result = agent.run_sync(TASK, deps=shop)
        while isinstance(result.output, DeferredToolRequests):
            stored = result.all_messages_json()  # a database, until somebody has decided
            decisions = {call.tool_call_id: decide(call) for call in result.output.approvals}
            result = agent.run_sync(
                message_history=ModelMessagesTypeAdapter.validate_json(stored),
                deferred_tool_results=result.output.build_results(approvals=decisions),
                deps=shop,
            )
        say(f"\n{result.output}")
        for note in rows(shop, "SELECT text FROM notes"):
            say(f"Note: {note['text']}")


if __name__ == "__main__":
    try:
        main()
    except ImportError as error:  # the extra of a real model
        sys.exit(f"{error}")
