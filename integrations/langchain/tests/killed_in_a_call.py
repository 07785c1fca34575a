"""An agent whose process dies in a nested call: ``killed_in_a_call.py <directory> <where> <answer> sync|async``.

``where`` is ``start`` or ``resume``, the part of the program that dies; with ``answer`` the process that comes back
answers what it is asked, and prints what it was asked and what the program gave.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from codemode_langchain import CodeModeMiddleware
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.types import Command
from scripted_agent import APPROVE, START, ScriptedModel, SqliteSession, calls, results

PROGRAM = """
const all = [await tools.log({ text: "first" })];
all.push(...await Promise.all([tools.log({ text: "dies" }), tools.log({ text: "beside" })]));
return all;
"""
WAITING = """
const all = [await tools.log({ text: "before" }), await tools.gate({})];
all.push(await tools.log({ text: "dies" }));
return all;
"""

directory = Path(sys.argv[1])
where, answer, is_async = sys.argv[2], sys.argv[3], sys.argv[4] == "async"
dying = not (directory / "died").exists()


@tool
def log(text: str) -> str:
    """Write to the log."""
    with (directory / "log").open("a") as file:
        file.write(text + "\n")
    if text == "dies" and dying:
        (directory / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return text


@tool
def gate() -> str:
    """Wait for a person."""
    return "gone through"


said = [calls(PROGRAM if where == "start" else WAITING)] if dying else []
model = ScriptedModel(messages=iter([*said, AIMessage("done")]), shown=[])


def build(saver: Any) -> Any:
    options = {"continuation": {"keys": "k" * 32}}
    middleware = [CodeModeMiddleware(approve={"gate": True}, options=options)]
    return create_agent(model, [log, gate], middleware=middleware, checkpointer=saver)


session = SqliteSession(build, is_async, path=str(directory / "checkpoints.db"))
if dying:
    output = session.send(START)
    (asked,) = output["__interrupt__"]
    session.answer({asked.id: APPROVE})
    raise AssertionError("it should have died")

output = session.send(None)
(asked,) = output["__interrupt__"]
before = (directory / "log").read_text().split()
output = session.send(Command(resume={asked.id: {"type": answer}}))
(message,) = results(output)
print(json.dumps({"asked": asked.value["type"], "before": before, "status": message.status, "said": message.content}))
