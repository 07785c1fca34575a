"""A host that forks while a program of exec waits: its child begins anew, and the parent goes on with its program."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from codemode import CallContext, create_exec_wait_tools, tool


@tool
def add(a: int, b: int) -> int:
    return a + b


def main(way: str) -> None:
    pair = create_exec_wait_tools([add], {"maxWarmRuns": 0 if way == "cold" else 4})
    code = "await yield_control(); return await tools.add({ a: 3, b: 4 })"
    waiting = pair.exec.execute_sync({"code": code}, call=CallContext(conversation_id="s", tool_call_id="call_1"))
    run = {"runId": waiting["runId"]}
    child = os.fork()
    if child == 0:
        _child(pair, run, code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert pair.wait.execute_sync(run, call=CallContext(conversation_id="s"))["value"] == 7
    asyncio.run(pair.aclose())
    print("ok")


def _child(pair: Any, run: dict[str, str], code: str) -> None:
    try:
        assert pair.runs("s") == ()
        assert pair.wait.execute_sync(run, call=CallContext(conversation_id="s"))["code"] == "invalid_input"
        again = pair.exec.execute_sync({"code": code}, call=CallContext(conversation_id="s", tool_call_id="call_2"))
        assert pair.wait.execute_sync({"runId": again["runId"]}, call=CallContext(conversation_id="s"))["value"] == 7
        asyncio.run(pair.aclose())
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)
    os._exit(0)


main(sys.argv[1])
