"""A program as one step of a durable workflow (DBOS), whose process is killed in a call. No network, no key.

The first process is killed right after a card was charged, before anybody could know that. DBOS recovers the workflow
in another process and runs the step again. What had finished is answered from the journal; the charge of which nobody
knows is asked about, and a person who looks at the bank's list says that it happened. Then the refund is approved. Each
call was made once.

Needs this package and DBOS: ``pip install . dbos`` in the root of the repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    from dbos import DBOS, SetWorkflowID

    from codemode import CallContext, Interrupt, create_code_mode_tool, tool
    from codemode.stores import SqliteInterruptStore
except ImportError as error:
    sys.exit(f"{error}. This example needs what `pip install . dbos` in the root of the repository brings.")

PROGRAM = """\
const charged = [];
for (const customer of ["ada", "bob", "eve"]) charged.push(await tools.charge({ customer, cents: 500 }));
const refund = await tools.refund({ customer: "eve" });
return { charged, refund };
"""
WORKFLOW = "orders-of-today"
HERE = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="codemode-example-"))
IS_FIRST = len(sys.argv) > 1  # the process that is killed
BANK = HERE / "bank"


def say(text: str) -> None:
    """Print, until nobody reads any more."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def bank() -> list[str]:
    """Return what the bank has done so far."""
    return BANK.read_text().splitlines() if BANK.exists() else []


def book(line: str) -> str:
    """Let the bank do something."""
    with BANK.open("a") as file:
        file.write(line + "\n")
    say(f"  [{'first' if IS_FIRST else 'second'} process] the bank: {line}")
    return line


@tool
def charge(customer: str, cents: int) -> str:
    """Charge a customer's card."""
    line = book(f"charged {customer} {cents}")
    if IS_FIRST and customer == "bob":
        os.kill(os.getpid(), signal.SIGKILL)
    return line


@tool(needs_approval=True)
def refund(customer: str) -> str:
    """Give a customer the money back."""
    return book(f"refunded {customer}")


os.environ.setdefault("CODEMODE_SIGNING_KEY", secrets.token_urlsafe(32))  # child processes inherit it
store = SqliteInterruptStore(HERE / "programs.sqlite")
code_mode = create_code_mode_tool(
    [charge, refund],
    {
        "approval": {"mode": "interrupt"},
        "continuation": {
            "keys": os.environ["CODEMODE_SIGNING_KEY"],
            "guard": store.guard,
            # How soon after its death another process takes over; 30 s where none is named.
            "journal": store.journal(tenant="acme", app="orders", lease_ms=500),
        },
    },
)


def plain(result: Any) -> dict[str, Any]:
    """Return what a step keeps of a result."""
    return {"paused": result.to_dict()} if isinstance(result, Interrupt) else {"value": result}


@DBOS.step()
async def run(js: str) -> dict[str, Any]:
    """Run a program: one step, however many calls it makes."""
    call = CallContext(tool_call_id="run", conversation_id=DBOS.workflow_id)
    return plain(await code_mode.execute(js, call))


@DBOS.step()
async def go_on(paused: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
    """Go on with a program that paused."""
    call = CallContext(conversation_id=DBOS.workflow_id)
    return plain(await code_mode.resume(paused, call=call, resolutions=answers))


@DBOS.workflow()
async def orders(js: str) -> Any:
    """Run a program, and ask people as often as it takes."""
    result = await run(js)
    turn = 0
    while "paused" in result:
        await DBOS.set_event_async(f"question {turn}", result["paused"])
        result = await go_on(result["paused"], await DBOS.recv_async(f"answers {turn}", timeout_seconds=60))
        turn += 1
    return result["value"]


def answer(interrupt: Interrupt) -> dict[str, Any]:
    """Stand in for the person: look at the bank's list where nobody knows, and approve the refund."""
    answers: dict[str, Any] = {}
    for request in interrupt.requests:
        if request.is_approval:
            say(f"  the person is asked to approve: {request.tool_name} {json.dumps(request.input)}")
            answers[request.interrupt_id] = {"approved": True}
            continue
        say(f"  the person is asked what became of: {request.tool_name} {json.dumps(request.input)}")
        line = f"charged {request.input['customer']} {request.input['cents']}"
        answers[request.interrupt_id] = {"value": line} if line in bank() else {"runAgain": True}
    return answers


async def work() -> None:
    """Start the workflow, or recover it, and answer what it asks."""
    if await DBOS.get_workflow_status_async(WORKFLOW) is None:
        with SetWorkflowID(WORKFLOW):
            await DBOS.start_workflow_async(orders, PROGRAM)
    handle: Any = await DBOS.retrieve_workflow_async(WORKFLOW)
    for turn in range(2):
        question: Any = await DBOS.get_event_async(WORKFLOW, f"question {turn}", timeout_seconds=60)
        await DBOS.send_async(WORKFLOW, answer(Interrupt.from_dict(question)), f"answers {turn}")
    say(f"\n=== The workflow came to ===\n\n{json.dumps(await handle.get_result(), indent=2)}")


def main() -> None:
    """Run one process of the workflow; the second starts the first, and waits until it is killed."""
    if not IS_FIRST:
        say(f"=== The program, one step of the workflow ===\n\n{PROGRAM}")
        say("=== The first process ===\n")
        first = subprocess.run([sys.executable, __file__, str(HERE)], check=False)
        assert first.returncode == -signal.SIGKILL, first.returncode
        say("\n=== It was killed. The second process recovers the workflow ===\n")
    DBOS(
        config={
            "name": "orders",
            "system_database_url": f"sqlite:///{HERE / 'dbos.sqlite'}",
            "application_version": "1",
            "notification_listener_polling_interval_sec": 0.05,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    try:
        asyncio.run(work())
    finally:
        DBOS.destroy()
    say(f"\n=== The bank has done each thing once ===\n\n{json.dumps(bank(), indent=2)}")
    shutil.rmtree(HERE)


if __name__ == "__main__":
    main()
