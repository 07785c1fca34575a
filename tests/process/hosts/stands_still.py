"""A resumer that stands still of itself: ``stands_still.py DATABASE EFFECTS guard|journal [PATTERN ...]``.

With the pattern ``pause`` it keeps an approved pause instead, and says its record's id. Else it stops as SIGSTOP stops
it, once, in front of the database's statement that the last pattern fits, or of what the tool does, where that is
``after the call``; each pattern counts once the one before it has fitted. Leases, claims and what a database allows a
host that stands still are over in seconds, not in minutes. It ends when a line is written to it.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from codemode import CallContext
from codemode.continuations import guard

guard.LAPSE_SECONDS, guard.RENEW_SECONDS, guard._MIN_WATCH_SECONDS = 3.0, 0.3, 1.0

# What reads them as it is imported comes behind them.
from codemode import Tool, create_code_mode_tool  # noqa: E402
from codemode.continuations import guard  # noqa: E402
from codemode.stores import (  # noqa: E402
    ALL_TENANTS,
    PostgresInterruptStore,
    Resumer,
    postgres,
)

assert guard.LAPSE_SECONDS == guard.LAPSE_SECONDS
postgres._MAX_IDLE_TRANSACTION_MS = 1_000
LEASE_MS = 1_000


class Stop:
    """Where this process stands still."""

    def __init__(self, patterns: list[str]) -> None:
        self.left = patterns

    def at(self, what: str) -> None:
        """Stand still, if this is where."""
        if self.left and re.search(self.left[0], what):
            del self.left[0]
            if not self.left:
                # To this thread: sent to the process, it would stop this thread a statement later.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def follow_statements(stop: Stop) -> None:
    """Look at each statement before it is run."""
    import psycopg

    def looked_at(run: Callable[..., Any]) -> Callable[..., Any]:
        def execute(cursor: Any, query: Any, *more: Any, **named: Any) -> Any:
            stop.at(str(query))
            return run(cursor, query, *more, **named)

        return execute

    for name in ("execute", "executemany"):
        setattr(psycopg.Cursor, name, looked_at(getattr(psycopg.Cursor, name)))


# Without a journal nobody knows what came behind what was answered.
JS = {
    "guard": "return [await tools.refund()]",
    "journal": "return [await tools.refund(), await tools.note()]",
}


async def pause(store: Any, code_mode: Any, js: str) -> None:
    call = CallContext(tool_call_id="call_1", conversation_id="a thread")
    interrupt = await code_mode.execute({"js": js}, call)
    record_id = await store.put(interrupt)
    await store.decide({interrupt.interrupt_id: {"approved": True}}, actor="ana", tenant=ALL_TENANTS)
    print(record_id, flush=True)


async def main(database: str, effects: Path, mode: str, *patterns: str) -> None:
    stop = Stop([*patterns])

    def log(line: str) -> None:
        with effects.open("a") as file:
            file.write(f"{line}\n")

    async def refund() -> str:
        log("refund")
        stop.at("after the call")
        return "refunded"

    async def note() -> str:
        log("note")
        return "noted"

    store = PostgresInterruptStore(database)
    continuation: dict[str, Any] = {"guard": store.guard, "keys": "k" * 32}
    if mode == "journal":
        journal = store.journal(tenant="", app="", lease_ms=LEASE_MS)
        continuation |= {"journal": journal, "conversation_id": "a workflow"}
    tools = [Tool("refund", execute=refund, needs_approval=True), Tool("note", execute=note)]
    code_mode = create_code_mode_tool(tools, {"approval": {"mode": "interrupt"}, "continuation": continuation})
    if patterns == ("pause",):
        await pause(store, code_mode, JS[mode])
        return
    resume = partial(code_mode.resume, call=CallContext(conversation_id="a thread"))
    async with store, Resumer(store, tenant=ALL_TENANTS, resume=resume, lease_ms=LEASE_MS):
        follow_statements(stop)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
