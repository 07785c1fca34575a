"""Threads that are cut off after a person's first answer, and invoked again: in one process, or in two that are forked.

A row is one thread: what its programs are in (``agent``, ``toolkit`` or ``code call``), the form of the answers
(``plain``, ``batched`` or ``by id``), what is kept (``journal``, ``guard`` or ``key``) and the tool in which it is cut
off. The threads of a host run side by side.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any, Self, TypeAlias

from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, create_code_mode_tool, durable_continuation
from cut_off import KEYS, PROGRAM, Shop, StoredCase, be_killed, come_back_to_all, usual
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from scripted_agent import APPROVE, CONFIG, START, ScriptedModel, calls, executes, results

from codemode.testing.plugin_under_test import CODE_CALL

Row: TypeAlias = tuple[str, str, str, str]


def rows(kind: str) -> list[Row]:
    return usual(
        itertools.product([kind], ["plain", "batched", "by id"], ["journal", "guard", "key"], ["refund", "look"])
    )


class Toolkit:
    """A toolkit of LangChain over a shop."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def get_tools(self) -> list[Any]:
        @tool
        async def refund(order: str) -> str:
            """Refund an order."""
            await self._shop.did("refund", f"refund {order}")
            return f"refunded {order}"

        @tool
        async def look() -> str:
            """Look."""
            await self._shop.did("look", "look")
            return "seen"

        look.metadata = {"readOnlyHint": True}
        return [refund, look]


class Thread(StoredCase):
    """The thread of a row in one host."""

    def __init__(self, folder: Path, row: Row, number: int) -> None:
        super().__init__(folder, row, number)
        self.kind, self.form, self.kept, _ = row

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._saving = AsyncSqliteSaver.from_conn_string(str(self.folder / "checkpoints.sqlite"))
        self._saver = await self._saving.__aenter__()
        if self.kept == "journal":
            self.continuation = durable_continuation(self.store, keys=KEYS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._saving.__aexit__(None, None, None)
        await super().__aexit__()

    async def send(self, given: Any) -> Any:
        """Invoke the graph, built anew as in a new process."""
        return await self._graph(is_begun=given is not START).ainvoke(given, CONFIG)

    def _graph(self, *, is_begun: bool) -> Any:
        options: Any = {"continuation": self.continuation}
        mode: Any = "batched" if self.form == "batched" else "per_call"
        asked = executes(CODE_CALL.request(PROGRAM)[1]["script"]) if self.kind == "code call" else calls(PROGRAM)
        said = ScriptedModel(messages=iter([asked, AIMessage("done")][is_begun:]), shown=[])
        if self.kind == "code call":
            own = CodeCallMiddleware(approve={"refund": True}, interrupt_mode=mode, options={"settings": options})
            return create_agent(said, Toolkit(self.shop).get_tools(), middleware=[own], checkpointer=self._saver)
        if self.kind == "agent":
            middleware = CodeModeMiddleware(approve={"refund": True}, interrupt_mode=mode, options=options)
            return create_agent(said, Toolkit(self.shop).get_tools(), middleware=[middleware], checkpointer=self._saver)
        code_mode = create_code_mode_tool(Toolkit(self.shop), options, approve={"refund": True}, interrupt_mode=mode)
        graph: Any = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [said.invoke(state["messages"])]})
        graph.add_node("tools", ToolNode([code_mode]))
        graph.set_entry_point("model").add_edge("model", "tools")
        return graph.compile(checkpointer=self._saver)

    async def answer(self, asked: Any, decision: dict[str, Any]) -> Any:
        form: Any = {"plain": decision, "batched": {"decisions": [decision]}, "by id": {asked.id: decision}}[self.form]
        return await self.send(Command(resume=form))

    async def begin(self) -> asyncio.Task[Any]:
        """Approve the first refund, and run until the thread is cut off."""
        (asked,) = (await self.send(START))["__interrupt__"]
        return await self.shop.cut_off(self.answer(asked, APPROVE))

    async def come_back(self) -> dict[str, Any]:
        """Invoke it again, twice, and answer to its end. Returns what was asked, and what had been done by then."""
        await self.send(None)
        output, asked = await self.send(None), list[str]()
        happened = self.shop.effects()
        while waiting := output.get("__interrupt__"):
            (one,) = waiting
            asked.append(question_of(one.value))
            # One of the three lets the program be run again of which nobody knows how far it came.
            is_again = asked[-1] == "unknown: program" and self.form == "batched"
            output = await self.answer(one, APPROVE if is_again else ANSWERS[asked[-1]])
        (message,) = results(output)
        is_well, told = message.status == "success", message.content
        if self.kind == "code call":
            is_well, told = CODE_CALL.answer(json.loads(told))
        return {"asked": asked, "happened": happened, "done": self.shop.effects(), "is_well": is_well, "told": told}


ANSWERS: dict[str, dict[str, Any]] = {
    "unknown: refund a": {"type": "respond", "message": "refunded a"},
    "unknown: program": {"type": "reject"},
    "refund b": APPROVE,
}


def question_of(shown: Any) -> str:
    """What is asked, in a word; nothing else may be asked."""
    (action,) = shown["action_requests"]
    call = (
        "program"
        if action["name"] in ("codeMode", "codecall_execute")
        else f"{action['name']} {action['args']['order']}"
    )
    is_unknown = action["description"].startswith("Unknown outcome")
    assert shown.get("type") in (None, "unknown_outcome" if is_unknown else "tool_approval")
    return f"unknown: {call}" if is_unknown else call


def cases(folder: Path, kind: str, number: int) -> list[Thread]:
    return [Thread(folder, row, number) for row in rows(kind)]


def main(given: dict[str, Any]) -> Any:
    """Be the host of all threads of a kind: the first is killed, the second comes back to them."""
    own = cases(Path(given["folder"]), given["kind"], given["number"])
    return asyncio.run(come_back_to_all(own) if given["number"] else be_killed(own))
