"""A support agent in one process, whoever decides in another, and the one that goes on in a third.

    pip install . ./integrations/pydantic-ai ./integrations/console   # in the root of the repository
    cd integrations/pydantic-ai/examples
    python approval_desk.py ask sqlite:///approvals.db      # the agent wants to refund an order, and waits
    python approval_desk.py decide sqlite:///approvals.db   # asks you about each call; or decide on a page:
    codemode console --database sqlite:///approvals.db
    python approval_desk.py resume sqlite:///approvals.db   # goes on with what was decided, until nothing is left

The database may be postgresql://... too. A scripted model plays its part; ``--model openai:gpt-5-mini`` takes a real
one, and needs what pydantic-ai needs for it. In production the key comes from a secret store, by CODEMODE_SIGNING_KEY.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from typing import Any

NEEDS = "This example needs what `pip install . ./integrations/pydantic-ai` in the root of the repository brings"
try:
    from codemode_pydantic_ai import CodeMode, StoredPauses, stored_pauses
    from pydantic_ai import Agent, DeferredToolRequests, Tool
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from codemode.stores import PostgresInterruptStore, Resumer, SqliteInterruptStore, StoredRequest
except ImportError as error:
    sys.exit(f"{error}. {NEEDS}.")

TENANT, APP = "acme", "support"
TASK = "Ann's order A-17 came late: give her the money back, and tell her."
PROGRAM = """
const order = await tools.lookup_order({ order: "A-17" });
const refunded = await tools.refund({ order: order.id, cents: order.cents });
await tools.send_mail({ to: order.customer, text: `We have ${refunded}.` });
return refunded;
"""


def lookup_order(order: str) -> dict[str, Any]:
    """Find an order, amounts in cents."""
    say(f"  (looking up {order})")
    return {"id": order, "customer": "ann@example.org", "cents": 90_000, "status": "late"}


def refund(order: str, cents: int) -> str:
    """Give a part or all of the money for an order back."""
    say(f"  (refunding {order}: {cents / 100:.2f})")
    return f"refunded {cents / 100:.2f} for {order}"


def send_mail(to: str, text: str) -> None:
    """Send a mail to a customer."""
    say(f"  (mail to {to}: {text})")


def scripted(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Play a model that writes a program and then tells what came of it, in whatever process."""
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt":
        return ModelResponse(parts=[ToolCallPart("codeMode", {"js": PROGRAM})])
    if getattr(last, "outcome", "failed") == "success":
        return ModelResponse(parts=[TextPart(f"Done: {getattr(last, 'content', None)}.")])
    return ModelResponse(parts=[TextPart("The desk did not want that, so nothing was refunded.")])


def open_store(database: str) -> Any:
    """Return the store that a URL names."""
    if database.startswith("sqlite:///"):
        return SqliteInterruptStore(database.removeprefix("sqlite:///"))
    return PostgresInterruptStore(database)


def pauses_of(store: Any, model: str | None) -> StoredPauses[Any, Any]:
    """Return the agent with its pauses in the store, as each process makes it."""
    key = os.environ.get("CODEMODE_SIGNING_KEY", "only for this example, and no secret")
    agent: Agent[Any, Any] = Agent(
        model or FunctionModel(scripted),
        tools=[lookup_order, send_mail, Tool(refund, requires_approval=True, metadata={"destructiveHint": True})],
        capabilities=[CodeMode({"continuation": {"keys": key, "guard": store.guard}})],
        output_type=[str, DeferredToolRequests],
    )
    return stored_pauses(agent, store, tenant=TENANT, app=APP, labels={"desk": "support"})


async def ask(database: str, model: str | None) -> None:
    """Run the agent until it has answered, or waits."""
    async with open_store(database) as store:
        say(TASK)
        run = await pauses_of(store, model).run(TASK)
        say(str(run.output) if run.record_id is None else f"It waits for a decision: record {run.record_id}")


async def decide(database: str) -> None:
    """Ask whoever sits at the terminal about all that waits. Needs neither the agent nor its key."""
    async with open_store(database) as store:
        page = await store.list(tenant=TENANT, app=APP, state="pending")
        for request in (one for record in page.records for one in record.requests if one.state == "waiting"):
            seen = {request.interrupt_id: store.compute_display_digest(request)}
            decision = {request.interrupt_id: decision_about(request)}
            await store.decide(decision, actor=os.environ.get("USER", "desk"), tenant=TENANT, seen=seen)


def decision_about(request: StoredRequest) -> dict[str, Any]:
    """Return what the person says about one call."""
    say(f"The agent wants: {request.tool_name}({json.dumps(request.input)})")
    answer = question("[a]pprove, another amount in cents, anything else denies: ")
    if answer.isdecimal():
        return {"approved": True, "input": {**request.input, "cents": int(answer)}}
    return {"approved": True} if answer.lower() == "a" else {"approved": False, "reason": "the desk said no"}


async def resume(database: str, model: str | None) -> None:
    """Go on with what was decided, until each run has ended or waits for a decision again."""
    async with open_store(database) as store:
        decided = [one.id for one in (await store.list(tenant=TENANT, app=APP, state="pending")).records]
        async with Resumer(store, tenant=TENANT, resume=pauses_of(store, model).resume):
            for record_id in decided:
                say(await told(store, record_id))


async def told(store: Any, record_id: str) -> str:
    """Wait until a record has ended, or waits for a person."""
    changes = store.changes(tenant=TENANT)
    while True:
        record = await store.record(record_id, tenant=TENANT)
        if record.outcome is not None:
            return f"Record {record_id}: {record.outcome.error or record.outcome.value}"
        if record.state == "pending" and all(one.state != "decided" for one in record.requests):
            return f"Record {record_id} waits for a decision"
        await anext(changes)


def question(text: str) -> str:
    """Return what the person says. Ends the example where there is nobody to ask."""
    try:
        return input(text).strip()
    except (EOFError, KeyboardInterrupt):
        sys.exit("\nNobody answers, so nothing was decided. Run this in a terminal.")


def say(text: str) -> None:
    """Print at once, for whoever reads along."""
    print(text, flush=True)


def main() -> None:
    """Do one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["ask", "decide", "resume"])
    parser.add_argument("database", help="sqlite:///FILE or postgresql://...")
    parser.add_argument("--model", help="a model of pydantic-ai in place of the scripted one")
    given = parser.parse_args()
    if given.what == "decide":
        asyncio.run(decide(given.database))
    else:
        asyncio.run({"ask": ask, "resume": resume}[given.what](given.database, given.model))


if __name__ == "__main__":
    main()
