"""A host with a shared guard. Arguments: action, the file of the interrupt, then its own.

pause FILE                          write the interrupt to FILE
resume FILE LOG (quick|hang|fast) [deny]
                                    print what came of it; ``hang`` never ends; ``fast`` waits a thousand times as fast
recover FILE LOG KIND               answer the recovery that a ``resume`` has written beside FILE
"""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import codemode.stores
from codemode.continuations.guard import GuardClock

logging.getLogger("codemode.continuations").addHandler(logging.NullHandler())


class Fast(GuardClock):
    """A clock for which a minute goes by in a moment."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead * 1000)

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.ahead += seconds
        await asyncio.sleep(0)


def main(action: str, file: str, *rest: str) -> None:
    path = Path(file)
    log, kind = (Path(rest[0]), rest[1]) if rest else (path, "quick")
    guard = codemode.stores.SqliteInterruptStore(
        path.with_suffix(".claims"), clock=Fast() if kind == "fast" else None
    ).guard
    options: Any = {"approval": {"mode": "interrupt"}, "continuation": {"keys": "k" * 32, "guard": guard}}

    async def refund() -> str:
        with log.open("a") as lines:
            lines.write("refund\n")
        if kind == "hang":
            print("begun", flush=True)
            await asyncio.Event().wait()
        return "refunded"

    tools = [codemode.Tool("refund", execute=refund, needs_approval=True)]
    if action == "pause":
        paused = codemode.run_code_mode_sync("return await tools.refund()", tools, options=options)
        path.write_text(json.dumps(paused.to_dict()))
        print("null")
        return
    answer: Any = {"approved": "deny" not in rest}
    if action == "recover":
        path, answer = path.with_suffix(".recovery"), {"value": "it was refunded"}
    interrupt = json.loads(path.read_text())
    if kind != "hang":
        sys.stdin.readline()
    print(json.dumps(resumed(interrupt, answer, tools, options, path)))


def resumed(interrupt: Any, answer: Any, tools: Any, options: Any, path: Path) -> Any:
    try:
        return {"value": codemode.continue_interrupt_sync(interrupt, answer, tools=tools, options=options)}
    except codemode.CodeModeError as error:
        if error.recovery is None:
            return {"error": type(error).__name__, **{key: True for key in ("superseded",) if key in error.details}}
        path.with_suffix(".recovery").write_text(json.dumps(error.recovery.to_dict()))
        return {"kinds": [request.payload["kind"] for request in error.recovery.requests]}


if __name__ == "__main__":
    main(*sys.argv[1:])
