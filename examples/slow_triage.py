"""Tickets are triaged by a program that waits: for a slow tool, and for a refund that another process decides.

The model sees two tools. Its program asks about three tickets at once, which takes longer than a call of the model may;
exec says that it waits, and wait goes on. It hands over what it has found, and goes on to refund. That asks a person:
the question goes into a store (SQLite here), and until it is answered the program has no process and the model has its
hands free. A second process, which has neither the tools nor the key, shows the question and approves a smaller sum.

Needs this package alone: ``pip install .`` in the root of the repository. No network, no key.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    from codemode import CallContext, ExecWaitTools, create_exec_wait_tools, tool
    from codemode.stores import SqliteInterruptStore
except ImportError as error:
    sys.exit(f"{error}. This example needs what `pip install .` in the root of the repository brings.")

PROGRAM = """\
const tickets = await tools.list_tickets({});
const found = await Promise.all(tickets.map(({ id }) => tools.investigate({ ticket: id })));
json(found);
await yield_control("what was found");

const refunds = [];
for (const { ticket, overcharged } of found.filter((one) => one.overcharged > 0))
  refunds.push(await tools.refund({ ticket, cents: overcharged }));
text(`${refunds.length} of ${tickets.length} tickets had a refund`);
return refunds;
"""
OVERCHARGED = {"T-1": 0, "T-2": 4200, "T-3": 0}
CONVERSATION = "the conversation with ada"
TENANT, APP = "acme", "desk"
os.environ.setdefault("CODEMODE_SIGNING_KEY", secrets.token_urlsafe(32))  # child processes inherit it
SETTINGS = {
    "continuation": {
        "keys": os.environ["CODEMODE_SIGNING_KEY"],
        "max_age_ms": 7 * 86_400_000,  # how long a question may take
    }
}


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@tool(annotations={"readOnlyHint": True})
def list_tickets() -> list[dict[str, str]]:
    """List the open tickets."""
    return [{"id": one} for one in OVERCHARGED]


@tool(annotations={"readOnlyHint": True})
async def investigate(ticket: str) -> dict[str, Any]:
    """Look into a ticket: how many cents too much were charged. Takes long."""
    await asyncio.sleep(0.5)
    return {"ticket": ticket, "overcharged": OVERCHARGED[ticket]}


@tool(needs_approval=True)
def refund(ticket: str, cents: int) -> str:
    """Give a customer money back."""
    return f"refunded {cents} cents for {ticket}"


async def decide(path: Path) -> None:
    """Be the page of a colleague, in a process of its own: show what waits, and approve at most 3,000 cents."""
    async with SqliteInterruptStore(path) as store:
        for record in (await store.list(tenant=TENANT, app=APP, state="pending")).records:
            for request in record.requests:
                say(f"  [another process] {request.tool_name} asks for {json.dumps(request.input)}")
                edited = {**request.input, "cents": min(request.input["cents"], 3000)}
                answer = {request.interrupt_id: {"approved": True, "input": edited}}
                seen = {request.interrupt_id: store.compute_display_digest(request)}
                await store.decide(answer, actor="ana@acme", tenant=TENANT, seen=seen)
                say(f"  [another process] ana approves {json.dumps(edited)}")


async def asked_and_decided(store: SqliteInterruptStore, path: Path, run_id: str) -> None:
    """Wait until a person has decided; the model is not called meanwhile, and no program runs."""
    page = await asyncio.create_subprocess_exec(sys.executable, __file__, str(path))
    async for change in store.changes(tenant=TENANT):
        if change.kind == "decided" and run_id == f"run_{change.record_id}":
            break
    await page.wait()


async def as_a_model(pair: ExecWaitTools, store: SqliteInterruptStore, path: Path) -> Mapping[str, Any]:
    """Call exec once, and wait as often as it takes, as a model would."""
    call = CallContext(conversation_id=CONVERSATION, tool_call_id="call_1")
    result: Any = await pair.exec.execute({"code": PROGRAM}, call)
    turn = 1
    while True:
        told = {key: value for key, value in result.items() if key not in ("telemetry", "runId")}
        say(f"\n{'exec' if turn == 1 else 'wait'} gives:\n{json.dumps(told, indent=1)}")
        if result["status"] != "waiting":
            return result
        if any(one["status"] == "approval" for one in result.get("pendingToolCalls", ())):
            kept = sum(one.warm for one in pair.runs(CONVERSATION))
            say(f"\nuntil somebody decides there is nothing to do; workers that are kept: {kept}\n")
            await asked_and_decided(store, path, result["runId"])
        turn += 1
        call = CallContext(conversation_id=CONVERSATION, tool_call_id=f"call_{turn}")
        result = await pair.wait.execute({"runId": result["runId"]}, call)


async def main(path: Path) -> None:
    """Run the program to its end."""
    say(f"=== The program of the model ===\n\n{PROGRAM}")
    async with SqliteInterruptStore(path) as store:
        pair = create_exec_wait_tools(
            [list_tickets, investigate, refund],
            {"approvals": "park", "waitTimeoutMs": 200},
            settings=SETTINGS,
            store=store,
            tenant=TENANT,
            app=APP,
        )
        try:
            result = await as_a_model(pair, store, path)
        finally:
            await pair.aclose()
    say(f"\nit came to {result['value']}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(decide(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory(prefix="codemode-example-") as folder:
            asyncio.run(main(Path(folder) / "runs.sqlite"))
