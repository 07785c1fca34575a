"""One process of a durable workflow: an agent whose program needs an approval. Run by the tests, and killed by them.

``python durable_desk.py <folder> <name of a call>``. Says ``waiting <json>`` when the workflow waits for a person, and
``ended <json>`` with what it came to. With a decision on its standard input it sends that to the workflow first.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

from codemode_pydantic_ai import CodeCall, CodeMode
from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import codemode

WORKFLOW = "the-workflow"
PROGRAMS = {
    "one approval": """
const stock = await tools.stock({ product: "nut" });
const refund = await tools.refund({ order: "a" });
return { stock, refund, after: await tools.stock({ product: "bolt" }) };
""",
    "nobody asked": """
return [await tools.stock({ product: "nut" }), await tools.stock({ product: "bolt" })];
""",
    "chains": """
// Order, random numbers and time decide about the arguments: a recorded answer must be the one for them.
const wrong = [];
const chain = async (name) => {
  for (let n = 0; n < 4; n += 1) {
    const key = `${name}${n} ${Math.random()} ${Date.now()}`;
    const told = await tools.echo({ key });
    if (told !== key) wrong.push([key, told]);
  }
};
await Promise.all(["a", "b", "c"].map(chain));
const refund = await tools.refund({ order: "a" });
await Promise.all(["d", "e"].map(chain));
return { wrong, refund };
""",
}
CALLS = {
    "script": (
        "codecall_execute",
        {
            "script": """
const stock = await callTool("stock", { product: "nut" });
const refund = await callTool("refund", { order: "a" });
return { stock, refund, after: await callTool("stock", { product: "bolt" }) };
"""
        },
    ),
    "direct call": ("codecall_invoke", {"tool": "refund", "input": {"order": "a"}}),
    **{name: ("codeMode", {"js": js}) for name, js in PROGRAMS.items()},
}

folder, name = Path(sys.argv[1]), sys.argv[2]
decision = json.loads(sys.stdin.readline() or "null")
codemode.set_continuation_signing_key("a key that outlives every process")


def note(what: str) -> None:
    with (folder / "did").open("a", encoding="utf-8") as did:
        did.write(what + "\n")


@DBOS.step()
async def stock(product: str) -> int:
    """How many of a product are in stock."""
    if product == "bolt" and (folder / "hang in stock").exists():
        print("hangs", flush=True)
        await asyncio.Event().wait()
    note(f"stock {product}")
    return len(product)


@DBOS.step()
async def refund(order: str, cents: int = 500) -> str:
    """Give money back."""
    note(f"refund {order} {cents}")
    return f"refunded {cents} for {order}"


@DBOS.step()
async def echo(key: str) -> str:
    """Say the same again, later."""
    await asyncio.sleep(random.random() / 50)
    note(f"echo {key}")
    return key


def respond(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Answer as a model would: by what the conversation holds, however often the process was started."""
    if messages[-1].parts[-1].part_kind == "tool-return":
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart(*CALLS[name], tool_call_id="call_1")])


options: dict[str, Any] = {}
if (folder / "journaled").exists():
    store = codemode.SqliteInterruptStore(folder / "store.sqlite")
    options["continuation"] = {"guard": store.guard, "journal": store.journal(tenant="acme", app="desk")}
face: Any = CodeMode(options) if name in PROGRAMS else CodeCall(direct_calls={"enabled": True})
agent: Agent[Any, Any] = Agent(
    FunctionModel(respond),
    name="desk",
    tools=[stock, echo, Tool(refund, requires_approval=True)],
    output_type=[str, DeferredToolRequests],
    capabilities=[face, DBOSDurability()],
)


def returned(result: Any) -> Any:
    """What the model was told of its call."""
    (part,) = [
        part
        for message in result.all_messages()
        for part in message.parts
        if part.part_kind == "tool-return" and part.tool_call_id == "call_1"
    ]
    return part.content


@DBOS.workflow()
async def desk() -> Any:
    """Run the agent to its pause, wait for the decision, and go on."""
    paused = await agent.run("go")
    requests = paused.output
    if isinstance(requests, str):
        return returned(paused)
    waiting = [[call.tool_call_id, call.tool_name, call.args_as_dict()] for call in requests.approvals]
    print("waiting", json.dumps(waiting), flush=True)
    decisions = await DBOS.recv_async("decisions", timeout_seconds=60)
    print("decided", flush=True)
    result = await agent.run(
        message_history=paused.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals=decisions),
    )
    if (folder / "hang").exists():
        print("resumed", flush=True)
        await DBOS.recv_async("never", timeout_seconds=60)
    return returned(result)


def main() -> None:
    database = f"sqlite:///{folder / 'dbos.sqlite'}"
    DBOS(
        config={
            "name": "desk",
            "system_database_url": database,
            "application_version": "1",
            "executor_id": "local",
            "notification_listener_polling_interval_sec": 0.02,
            "run_admin_server": False,
        }
    )
    DBOS.launch()
    if decision is not None:
        DBOS.send(WORKFLOW, decision, "decisions", idempotency_key="decided")
    if DBOS.get_workflow_status(WORKFLOW) is None:
        with SetWorkflowID(WORKFLOW):
            DBOS.start_workflow(desk)
    handle: Any = DBOS.retrieve_workflow(WORKFLOW)
    print("ended", json.dumps(handle.get_result()), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main()
