"""A support agent in one process, whoever decides in another, and the one that goes on in a third.

    pip install . './integrations/langchain[agents]' ./integrations/console   # in the root of the repository
    pip install langgraph-checkpoint-sqlite
    cd integrations/langchain/examples
    python approval_desk.py ask sqlite:///approvals.db      # the agent wants to refund an order, and waits
    python approval_desk.py decide sqlite:///approvals.db   # asks you about each call; or decide on a page:
    codemode console --database sqlite:///approvals.db
    python approval_desk.py resume sqlite:///approvals.db   # goes on with what was decided, until nothing is left

The database may be postgresql://... too; checkpoints are in checkpoints.db, or what ``--checkpoints`` names. A
scripted model plays its part; ``--model openai:gpt-5-mini`` takes a real one, and needs what LangChain needs for it.
In production the key comes from a secret store, by CODEMODE_SIGNING_KEY.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

NEEDS = (
    "This example needs `pip install . './integrations/langchain[agents]'` in the root of the repository, and"
    " langgraph-checkpoint-sqlite"
)
try:
    from codemode_langchain import CodeModeMiddleware, StoredPauses, durable_continuation, stored_pauses
    from langchain import agents
    from langchain.chat_models import init_chat_model
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

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


@tool
def lookup_order(order: str) -> dict[str, Any]:
    """Find an order, amounts in cents."""
    say(f"  (looking up {order})")
    return {"id": order, "customer": "ann@example.org", "cents": 90_000, "status": "late"}


@tool
def refund(order: str, cents: int) -> str:
    """Give a part or all of the money for an order back."""
    say(f"  (refunding {order}: {cents / 100:.2f})")
    return f"refunded {cents / 100:.2f} for {order}"


@tool
def send_mail(to: str, text: str) -> None:
    """Send a mail to a customer."""
    say(f"  (mail to {to}: {text})")


class ScriptedModel(BaseChatModel):
    """Plays a model that writes a program and then tells what came of it, in whatever process."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - it knows what to say
        """Take the tools."""
        return self

    def _generate(self, messages: list[BaseMessage], *_args: Any, **_kwargs: Any) -> ChatResult:
        last, call = messages[-1], {"name": "codeMode", "args": {"js": PROGRAM}, "id": "call_1", "type": "tool_call"}
        if last.type == "human":
            said = AIMessage("", tool_calls=[call])
        elif getattr(last, "status", None) == "error":
            said = AIMessage("The desk did not want that, so nothing was refunded.")
        else:
            said = AIMessage(f"Done: {last.text}.")
        return ChatResult(generations=[ChatGeneration(message=said)])


def open_store(database: str) -> Any:
    """Return the store that a URL names."""
    if database.startswith("sqlite:///"):
        return SqliteInterruptStore(database.removeprefix("sqlite:///"))
    return PostgresInterruptStore(database)


def answered(values: dict[str, Any]) -> str:
    """Return what the model has said at last."""
    return values["messages"][-1].text


@asynccontextmanager
async def desk(given: argparse.Namespace) -> AsyncGenerator[tuple[Any, StoredPauses], None]:
    """Open the store, and the agent with its pauses in it, as each process makes it."""
    key = os.environ.get("CODEMODE_SIGNING_KEY", "only for this example, and no secret")
    model: Any = cast("Any", init_chat_model)(given.model) if given.model else ScriptedModel()
    async with open_store(given.database) as store, AsyncSqliteSaver.from_conn_string(given.checkpoints) as saver:
        # Guard and journal of the programs are in the same database: whoever dies, each call is made once.
        options = {"continuation": durable_continuation(store, keys=key, tenant=TENANT, app=APP)}
        middleware = [CodeModeMiddleware(approve={"refund": True}, options=options)]
        tools = [lookup_order, refund, send_mail]
        graph: Any = cast("Any", agents).create_agent(model, tools, middleware=middleware, checkpointer=saver)
        labels = {"desk": "support"}
        yield store, stored_pauses(graph, store, tenant=TENANT, app=APP, labels=labels, outcome_of=answered)


async def ask(given: argparse.Namespace) -> None:
    """Run the agent until it has answered, or waits."""
    async with desk(given) as (_, pauses):
        say(TASK)
        run = await pauses.ainvoke({"messages": [TASK]})
        answer = run.output["messages"][-1].text
        say(answer if run.record_id is None else f"It waits for a decision: record {run.record_id}")


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


async def resume(given: argparse.Namespace) -> None:
    """Go on with what was decided, until each run has ended or waits for a decision again."""
    async with desk(given) as (store, pauses):
        decided = [one.id for one in (await store.list(tenant=TENANT, app=APP, state="pending")).records]
        async with Resumer(store, tenant=TENANT, resume=pauses.resume):
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
    parser.add_argument("--checkpoints", default="checkpoints.db", help="the file of the graph's checkpoints")
    parser.add_argument("--model", help="a model of LangChain in place of the scripted one")
    given = parser.parse_args()
    if given.what == "decide":
        asyncio.run(decide(given.database))
    else:
        asyncio.run({"ask": ask, "resume": resume}[given.what](given))


if __name__ == "__main__":
    main()
