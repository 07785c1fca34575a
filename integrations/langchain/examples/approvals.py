"""A support agent in the terminal: the model's program refunds three orders, and you decide about each.

    pip install . './integrations/langchain[agents]'       # in the root of the repository
    python integrations/langchain/examples/approvals.py    # in a terminal: it asks you

Runs without a network or a key: the model is scripted. With ``pip install langgraph-checkpoint-sqlite`` the checkpoint
is a file, the argument or approvals.db, so you may stop with Ctrl-C at a question and start again later: the same
question is asked, and what was done is not done again.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any, cast

NEEDS = "This example needs `pip install . './integrations/langchain[agents]'` in the root of the repository"
try:
    from codemode_langchain import ApprovalConfig, CodeModeMiddleware
    from langchain import agents
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

except ImportError as error:
    sys.exit(f"{error}. {NEEDS}.")

PROGRAM = """
const orders = await tools.late_orders();
const results = await Promise.allSettled(orders.map((order) => tools.refund({ order: order.id, cents: order.cents })));
return results.map((one, i) => `${orders[i].id}: ${one.status === "fulfilled" ? one.value : one.reason.message}`);
"""


class Terminal:
    """Where people read and answer. Silent once nobody reads, for a tool does not fail for that."""

    def __init__(self) -> None:
        self.is_read = True

    def say(self, text: str, end: str = "\n") -> None:
        """Print a text."""
        try:
            print(text, end=end, flush=True)
        except BrokenPipeError:
            self.is_read = False
            # Python would write the rest when it ends, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def ask(self, question: str) -> str:
        """Return what a person answers. Raises `EOFError` when there is none."""
        self.say(question, end=" ")
        if not self.is_read:
            raise EOFError
        return input().strip()


TERMINAL = Terminal()


class ScriptedModel(GenericFakeChatModel):
    """Stands for a real chat model."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - it knows what to say
        """Take the tools."""
        return self


@tool
def late_orders() -> list[dict[str, Any]]:
    """Find the orders that came late."""
    TERMINAL.say("  (looking for late orders)")
    return [{"id": "A-1", "cents": 1250}, {"id": "A-2", "cents": 90_000}, {"id": "A-3", "cents": 400}]


@tool
def refund(order: str, cents: int) -> str:
    """Give the money for an order back."""
    TERMINAL.say(f"  (refunding {order}: {cents / 100:.2f})")
    return f"refunded {cents / 100:.2f}"


def describe(_name: str, args: dict[str, Any]) -> str:
    """Word the question about one call."""
    return f"Refund {args['cents'] / 100:.2f} for {args['order']}?"


def decide(value: dict[str, Any]) -> dict[str, Any]:
    """Ask the person at the terminal about one call."""
    args = value["args"]
    answer = TERMINAL.ask(f"{value['description']} [y]es, [n]o, or another amount in cents:")
    if answer.isdigit():
        return {"type": "edit", "edited_action": {"name": value["name"], "args": {**args, "cents": int(answer)}}}
    if answer.lower().startswith("y"):
        return {"type": "approve"}
    return {"type": "reject", "message": "the person at the terminal said no"}


def checkpoints(path: str) -> AbstractContextManager[Any]:
    """Open the file that checkpoints are kept in, or keep them until the end."""
    if find_spec("langgraph.checkpoint.sqlite") is None:
        TERMINAL.say("(without langgraph-checkpoint-sqlite, what you leave undecided is forgotten)")
        return nullcontext(InMemorySaver())
    from langgraph.checkpoint.sqlite import SqliteSaver

    return SqliteSaver.from_conn_string(path)


def main() -> None:
    """Run the agent until it has answered."""
    path = sys.argv[1] if len(sys.argv) > 1 else "approvals.db"
    config: Any = {"configurable": {"thread_id": "terminal"}}
    call = {"name": "codeMode", "args": {"js": PROGRAM}, "id": "call_1", "type": "tool_call"}
    rule: ApprovalConfig = {"description": describe}
    # In production the key is in CODEMODE_SIGNING_KEY: every process that has it can resume, and the store lets one.
    options = {"continuation": {"keys": "only for this example"}}
    middleware = CodeModeMiddleware(approve={"refund": rule}, options=options, store=f"sqlite:///{path}.resumed")
    with checkpoints(path) as saver:
        is_under_way = saver.get_tuple(config) is not None
        script = [AIMessage("All late orders are dealt with.")]
        model = ScriptedModel(messages=iter(script if is_under_way else [AIMessage("", tool_calls=[call]), *script]))
        agent: Any = cast("Any", agents).create_agent(
            model, [late_orders, refund], middleware=[middleware], checkpointer=saver
        )
        output: Any = agent.invoke(None if is_under_way else {"messages": ["Refund what came late."]}, config)
        while waiting := output.get("__interrupt__"):
            output = agent.invoke(Command(resume={waiting[0].id: decide(waiting[0].value)}), config)
    for message in output["messages"][-2:]:
        TERMINAL.say(message.content)


if __name__ == "__main__":
    try:
        main()
    except (EOFError, KeyboardInterrupt):
        sys.exit("\nStopped at a question. What the checkpoint holds is not done again: start again to be asked again.")
