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

from codemode_pydantic_ai import CodeCall, CodeMode, CodeModeToolset, answer
from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset

import codemode.stores
from codemode.continuations.guard import GuardClock
from codemode.host.clock import now_ms

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
    "in one step": """
const stock = await tools.stock({ product: "nut" });
const paid = await tools.charge({ customer: "ada" });
const refund = await tools.refund({ order: "a" });
return { stock, paid, refund, after: await tools.stock({ product: "bolt" }) };
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
# There each tool is a function, and the program is the step.
step: Any = (lambda function: function) if name == "in one step" else DBOS.step()


def note(what: str) -> None:
    with (folder / "did").open("a", encoding="utf-8") as did:
        did.write(what + "\n")


async def hang_in(what: str) -> None:
    if (folder / f"hang in {what}").exists():
        print("hangs", flush=True)
        await asyncio.Event().wait()


@step
async def stock(product: str) -> int:
    """How many of a product are in stock."""
    if product == "bolt":
        await hang_in("stock")
    note(f"stock {product}")
    return len(product)


@step
async def charge(customer: str) -> str:
    """Charge a card."""
    note(f"charge {customer}")
    await hang_in("charge")
    return f"charged {customer}"


@step
async def refund(order: str, cents: int = 500) -> str:
    """Give money back."""
    note(f"refund {order} {cents}")
    return f"refunded {cents} for {order}"


@step
async def echo(key: str) -> str:
    """Say the same again, later."""
    await asyncio.sleep(random.random() / 50)
    note(f"echo {key}")
    return key


class LaterClock(GuardClock):
    """For each process it is ten minutes later: what a killed one held has lapsed."""

    def now_ms(self) -> int:
        return now_ms() + started * 600_000


class InOneStep(WrapperToolset[Any]):
    """Makes each call of a toolset a step of the workflow."""

    async def call_tool(self, *given: Any) -> Any:
        return await _call_in_step(self.wrapped, *given)


@DBOS.step()
async def _call_in_step(toolset: Any, *given: Any) -> Any:
    return await toolset.call_tool(*given)


def respond(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
    """Answer as a model would: by what the conversation holds, however often the process was started."""
    if messages[-1].parts[-1].part_kind == "tool-return":
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart(*CALLS[name], tool_call_id="call_1")])


with (folder / "started").open("a") as starts:
    started = starts.tell()
    starts.write(".")
options: dict[str, Any] = {}
if (folder / "journaled").exists():
    store = codemode.stores.SqliteInterruptStore(folder / "store.sqlite", clock=LaterClock())
    options["continuation"] = {"guard": store.guard, "journal": store.journal(tenant="acme", app="desk")}
looked_up = Tool(stock, metadata={"readOnlyHint": True})
tools: list[Any] = [looked_up, charge, echo, Tool(refund, requires_approval=True)]
given: dict[str, Any] = {"tools": tools}
if name == "in one step":
    given = {"toolsets": [InOneStep(CodeModeToolset(FunctionToolset(tools), options))]}
elif name in PROGRAMS:
    given["capabilities"] = [CodeMode(options)]
else:
    given["capabilities"] = [CodeCall(direct_calls={"enabled": True})]
given["capabilities"] = [*given.get("capabilities", []), DBOSDurability()]
agent: Agent[Any, Any] = Agent(FunctionModel(respond), name="desk", output_type=[str, DeferredToolRequests], **given)


def returned(result: Any) -> Any:
    """What the model was told of its call."""
    (part,) = [
        part
        for message in result.all_messages()
        for part in message.parts
        if part.part_kind == "tool-return" and part.tool_call_id == "call_1"
    ]
    return part.content


def waiting_of(requests: DeferredToolRequests) -> list[Any]:
    """The inner calls that wait, wherever they are told."""
    if name != "in one step":
        return [[call.tool_call_id, call.tool_name, call.args_as_dict()] for call in requests.approvals]
    (deferred,) = requests.metadata.values()
    return [[one["toolCallId"], one["toolName"], one["args"], one["kind"]] for one in deferred["codemode"]["requests"]]


@DBOS.workflow()
async def desk() -> Any:
    """Run the agent to its pauses, wait for the decisions, and go on."""
    result = await agent.run("go")
    while isinstance(requests := result.output, DeferredToolRequests):
        print("waiting", json.dumps(waiting_of(requests)), flush=True)
        decisions = await DBOS.recv_async("decisions", timeout_seconds=60)
        is_inner = name == "in one step"
        results = answer(requests, decisions) if is_inner else DeferredToolResults(approvals=decisions)
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=results)
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
        DBOS.send(WORKFLOW, decision, "decisions", idempotency_key=json.dumps(decision))
    if DBOS.get_workflow_status(WORKFLOW) is None:
        with SetWorkflowID(WORKFLOW):
            DBOS.start_workflow(desk)
    handle: Any = DBOS.retrieve_workflow(WORKFLOW)
    print("ended", json.dumps(handle.get_result()), flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main()
