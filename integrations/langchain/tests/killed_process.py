"""An agent in a process of its own: ``killed_process.py <directory> start|resume sync|async mode|call``.

``start`` runs to the interrupts, writes their ids and kills itself; ``resume`` answers them in a new process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.types import Command, interrupt
from scripted_agent import APPROVE, START, ScriptedModel, SqliteSession, calls, content, executes

from codemode.testing.plugin_under_test import CODE_CALL

PROGRAM = """
const parts = await Promise.all([
  tools.write({ text: "before" }),
  tools.refund({ order: "a" }),
  tools.ask({ question: "why" }),
]);
return [...parts, await tools.write({ text: "after" })];
"""

directory = Path(sys.argv[1])
is_start, is_async, is_code_call = sys.argv[2] == "start", sys.argv[3] == "async", sys.argv[4] == "call"


def log(text: str) -> str:
    with (directory / "log").open("a") as file:
        file.write(text + "\n")
    return text


@tool
def write(text: str) -> str:
    """Write."""
    return log(text)


@tool
def refund(order: str) -> str:
    """Refund."""
    return log(f"refund {order}")


@tool
def ask(question: str) -> str:
    """Ask a person."""
    return log(f"{question}: {interrupt(question)}")


# The model is asked for a program only once; after the resume it says the end.
asked = executes(CODE_CALL.request(PROGRAM)[1]["script"]) if is_code_call else calls(PROGRAM)
said = [asked] if is_start else []
model = ScriptedModel(messages=iter([*said, AIMessage("done")]), shown=[])


def build(saver: Any) -> Any:
    settings: Any = {"continuation": {"keys": "k" * 32}}
    if is_code_call:
        hiding: Any = CodeCallMiddleware(approve={"refund": True}, options={"settings": settings})
    else:
        hiding = CodeModeMiddleware(approve={"refund": True}, options=settings)
    return create_agent(model, [write, refund, ask], middleware=[hiding], checkpointer=saver)


session = SqliteSession(build, is_async, path=str(directory / "checkpoints.db"))
if is_start:
    waiting = session.send(START)["__interrupt__"]
    (directory / "waiting").write_text(json.dumps({one.id: one.value for one in waiting}))
    os.kill(os.getpid(), signal.SIGKILL)

waiting = json.loads((directory / "waiting").read_text())
refund_id, ask_id = sorted(waiting, key=lambda one: isinstance(waiting[one], str))
output = session.send(Command(resume={ask_id: "because"}))
assert "__interrupt__" in output
print(content(session.send(Command(resume={refund_id: APPROVE}))))
