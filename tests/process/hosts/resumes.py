"""A host that pauses a program, or resumes one that another process paused. Arguments: action, then its own.

pause FILE KEY...                 write the interrupt to FILE
resume FILE LOG KEY... [--claims] print what came of it; each execution of the tool adds a line to LOG
crash FILE LOG KEY --claims       die in the middle of the tool

With --hasty it takes no more than a moment to find that nobody renews a claim.
"""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import codemode.stores
from codemode.continuations import guard

# Without --claims the warning about a key that is shared and a guard that is not would be right, and noise here.
logging.getLogger("codemode.continuations").addHandler(logging.NullHandler())
JS = "const order = await tools.look({order: 'A1'}); return await tools.refund({order, at: Math.random()})"


def options(arguments: list[str], claims: Path) -> dict[str, Any]:
    keys = [key for key in arguments if not key.startswith("--")]
    guard = codemode.stores.SqliteInterruptStore(claims).guard if "--claims" in arguments else None
    return {"approval": {"mode": "interrupt"}, "continuation": {"keys": keys, "guard": guard}}


def look(order: str) -> str:
    return f"order {order}"


def main(action: str, file: str, *rest: str) -> None:
    path = Path(file)
    claims = path.with_suffix(".claims")

    def refund(value: Any) -> Any:
        with Path(rest[0]).open("a") as log:
            log.write(f"{os.getpid()}\n")
        if action == "crash":
            os._exit(3)
        return {"refunded": value["order"], "by": os.getpid()}

    tools = [look, codemode.Tool("refund", execute=refund, needs_approval=True)]
    if action == "pause":
        interrupt = codemode.run_code_mode_sync(JS, tools, options=options([*rest], claims))
        path.write_text(json.dumps(interrupt.to_dict()))
        return
    if "--hasty" in rest:
        guard._MIN_WATCH_SECONDS = 0.2
    interrupt = json.loads(path.read_text())
    if sys.stdin.readline() != "go\n":
        return
    try:
        result = codemode.continue_interrupt_sync(
            interrupt, {"approved": True}, tools=tools, options=options([*rest[1:]], claims)
        )
    except codemode.CodeModeProtocolError as error:
        result = {"error": error.message}
    except codemode.CodeModeAbortedError as error:
        requests = error.recovery.requests if error.recovery is not None else ()
        unknown = [[request.interrupt_id, request.payload["kind"]] for request in requests]
        result = {"error": error.message, "recovery": unknown}
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
