"""A host of a DBOS workflow whose one step is a program, for tests that kill it at any moment.

It is given ``folder``, ``system`` (the database of DBOS), ``store`` (a file or a connection string), ``is_journaled``,
``number`` (how many hosts there were before) and ``kill_after_ms``: so long after its first step has begun, or after so
many effects as ``after`` says, it is killed. With ``dies_in`` it dies right after that effect. ``effects`` in the
folder has what tools did, ``shown`` what a person was asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID
from forked_hosts import LaterClock, kill_later, note_down

from codemode import CallContext, Interrupt, Tool, create_code_mode_tool, run_code_mode_sync, tool
from codemode.stores import PostgresInterruptStore, SqliteInterruptStore

WORKFLOW = "the-workflow"
PROGRAM = """
const done = [];
for (let n = 0; n < 5; n += 1) done.push(await tools.note({ key: `a${n}` }));
done.push(...await Promise.all([0, 1, 2, 3].map((n) => tools.note({ key: `b${n}` }))));
const refund = await tools.refund({ order: "a" });
for (let n = 0; n < 4; n += 1) done.push(await tools.post({ key: `c${n}` }));
return { done, refund, looked: await tools.look({}) };
"""


class Host:
    """The tools of one process, and its person."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.folder = Path(given["folder"])
        self.chance = random.Random(f"{self.folder.name} {given['number']}")
        self.began = threading.Event()
        self.dies_in, self.after = given["dies_in"], given["after"]
        of_kind: Any = SqliteInterruptStore if given["store"].endswith(".sqlite") else PostgresInterruptStore
        store = of_kind(given["store"], clock=LaterClock(given["number"]))
        continuation: dict[str, Any] = {"keys": "a key that outlives every process", "guard": store.guard}
        if given["is_journaled"]:
            continuation["journal"] = store.journal(tenant="acme", app="desk")
        options: Any = {"approval": {"mode": "interrupt"}, "continuation": continuation}
        self.code_mode = create_code_mode_tool(self.tools(), options)

    def begin(self) -> None:
        if not self.after:
            self.began.set()

    def did(self, key: str) -> None:
        note_down(self.folder / "effects", key)
        if len((self.folder / "effects").read_text().splitlines()) >= self.after > 0:
            self.began.set()
        if key == self.dies_in:
            os.kill(os.getpid(), signal.SIGKILL)

    def tools(self) -> list[Any]:
        @tool
        async def note(key: str) -> str:
            await asyncio.sleep(self.chance.random() / 100)
            self.did(key)
            await asyncio.sleep(self.chance.random() / 100)
            return key

        @tool
        def post(key: str) -> str:
            self.did(key)
            time.sleep(self.chance.random() / 100)
            return key

        @tool(needs_approval=True)
        def refund(order: str) -> str:
            self.did(f"refund {order}")
            return f"refunded {order}"

        async def look(_input: Any, _context: Any) -> str:
            return "seen"

        return [note, post, refund, Tool("look", execute=look, annotations={"readOnlyHint": True})]

    def answers_to(self, interrupt: Interrupt) -> dict[str, Any]:
        """What a person says who knows what has happened: the file of effects tells."""
        effects = (self.folder / "effects").read_text().split("\n")
        answers: dict[str, Any] = {}
        for request in interrupt.requests:
            kind = "approval" if request.is_approval else request.payload["kind"]
            shown = [request.interrupt_id, request.tool_name, kind, request.input]
            note_down(self.folder / "shown", json.dumps(shown))
            if request.is_approval:
                answers[request.interrupt_id] = {"approved": True}
                continue
            key = request.input.get("key")
            effect, value = (key, key) if key is not None else ("refund a", "refunded a")
            answers[request.interrupt_id] = {"value": value} if effect in effects else {"runAgain": True}
        return answers


host: Host


def plain(result: Any) -> dict[str, Any]:
    return {"interrupt": result.to_dict()} if isinstance(result, Interrupt) else {"value": result}


@DBOS.step()
async def run(js: str) -> dict[str, Any]:
    host.begin()
    return plain(
        await host.code_mode.execute(
            {"js": js}, call=CallContext(tool_call_id="program", conversation_id=DBOS.workflow_id)
        )
    )


@DBOS.step()
async def go_on(paused: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
    host.begin()
    return plain(
        await host.code_mode.resume(paused, resolutions=answers, call=CallContext(conversation_id=DBOS.workflow_id))
    )


@DBOS.workflow()
async def desk(js: str) -> None:
    result = await run(js)
    turn = 0
    while "interrupt" in result:
        await DBOS.set_event_async(f"turn {turn}", result)
        answers = await DBOS.recv_async(f"answers {turn}", timeout_seconds=60)
        result = await go_on(result["interrupt"], answers)
        turn += 1
    await DBOS.set_event_async(f"turn {turn}", result)


def main(given: dict[str, Any]) -> Any:
    """Bring the workflow to its end, and return what it came to."""
    global host
    host = Host(given)
    config: Any = {
        "name": "desk",
        "system_database_url": given["system"],
        "application_version": "1",
        "executor_id": "local",
        "notification_listener_polling_interval_sec": 0.02,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    run_code_mode_sync("return 1", [])  # the first worker is there: what follows takes as long in every host
    kill_later(host.began, given["kill_after_ms"])
    DBOS.launch()
    if DBOS.get_workflow_status(WORKFLOW) is None:
        with SetWorkflowID(WORKFLOW):
            DBOS.start_workflow(desk, PROGRAM)
    for turn in count():
        event: Any = DBOS.get_event(WORKFLOW, f"turn {turn}", timeout_seconds=50)
        if "value" in event:
            return event["value"]
        answers = host.answers_to(Interrupt.from_dict(event["interrupt"]))
        DBOS.send(WORKFLOW, answers, f"answers {turn}", idempotency_key=f"answers {turn}")
    return None
