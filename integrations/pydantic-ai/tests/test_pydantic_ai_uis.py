"""Approvals of inner calls through the UI adapters, on the wire: what a browser is shown, and what it sends back."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from codemode_pydantic_ai import CodeCall
from codemode_pydantic_ai.ui import PausedProgramsMixin
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.ui import UIAdapter
from pydantic_ai.ui.ag_ui import AGUIAdapter
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from scripted import Script, meta, program, script
from suite import each_row
from test_pydantic_ai_approvals import Desk
from ui_clients import AGUIClient, UseChat, transcript

TRANSCRIPTS = Path(__file__).parent / "transcripts"
WAIT_SECONDS = 60.0
SECRET = "a-finished-output-nobody-should-see"
REFUNDS = """
const hidden = await tools.lookup();
const refunds = await Promise.allSettled(["a", "b"].map((order) => tools.refund({ order })));
return [hidden.length, ...refunds.map((one) => one.value ?? one.reason.message)];
"""


class VercelChat(PausedProgramsMixin, VercelAIAdapter[Any, Any]):
    """The adapter as an application has it."""


class AGUIChat(PausedProgramsMixin, AGUIAdapter[Any, Any]):
    """As above."""


class Server:
    """An agent behind an adapter; ``history`` is what it keeps when it keeps the messages itself."""

    def __init__(self, adapter: type[UIAdapter[Any, Any, Any, Any, Any]], *, keeps: bool, **settings: Any) -> None:
        if keeps and "manage_message_history" not in {one.name for one in fields(adapter)}:
            pytest.skip("the adapters of this version leave the messages to the client")
        self.desk = Desk()
        self.script = Script(program(REFUNDS), "done")

        def lookup() -> str:
            return SECRET

        self.agent = self.desk.agent(self.script, tools=[*self.desk.tools(), lookup])
        self.adapter, self.settings, self.keeps = adapter, settings, keeps
        self.history: bytes = b"[]"

    def answer(self, request: bytes) -> list[str]:
        """Serve one request and return the stream's text."""

        async def serve() -> list[str]:
            kept: list[ModelMessage] | None = None
            settings = dict(self.settings)
            if self.keeps:
                settings["manage_message_history"] = "server"
                kept = ModelMessagesTypeAdapter.validate_json(self.history)
            adapter = self.adapter(self.agent, self.adapter.build_run_input(request), **settings)
            stream = adapter.run_stream(message_history=kept, on_complete=self._keep)
            return [chunk async for chunk in adapter.encode_stream(stream)]

        return asyncio.run(asyncio.wait_for(serve(), WAIT_SECONDS))

    def _keep(self, result: Any) -> None:
        self.history = result.all_messages_json()


def check_transcript(name: str, wires: list[list[str]]) -> None:
    """Compare with what was recorded. CODEMODE_RECORD=1 records anew."""
    file = TRANSCRIPTS / f"{name}.txt"
    seen = "\n\n".join("\n".join(transcript(wire)) for wire in wires) + "\n"
    if os.environ.get("CODEMODE_RECORD"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(seen, encoding="utf-8")
    assert seen == file.read_text(encoding="utf-8")


def check_no_secret(wires: list[list[str]]) -> None:
    assert SECRET not in json.dumps(wires)


@pytest.mark.parametrize("keeps", [False, True], ids=["client_history", "server_history"])
@pytest.mark.parametrize("version", [6, 7])
def test_vercel_ai(version: int, keeps: bool) -> None:
    server = Server(VercelChat, keeps=keeps, sdk_version=version)
    chat = UseChat("go")
    wires = [server.answer(chat.request())]
    chat.read(wires[0])
    first, second = chat.requested
    assert (first["type"], first["input"]) == ("tool-refund", {"order": "a", "cents": 500})
    chat.respond(first, approved=True)
    assert not chat.sends_by_itself
    chat.respond(second, approved=False, reason="not this one")
    assert chat.sends_by_itself
    wires.append(server.answer(chat.request()))
    chat.read(wires[1])
    assert server.desk.did == [("refund", "a", 500)]
    assert server.script.returned() == [len(SECRET), "refunded a: 500", "not this one"]
    assert (first["state"], second["state"]) == ("output-available", "output-denied")
    assert chat.call("outer")["state"] == "output-available"
    shown = [(one["toolName"], one["state"], one["outerToolCallId"]) for one in chat.nested.values()]
    assert shown == [("lookup", "done", "outer"), ("refund", "done", "outer"), ("refund", "denied", "outer")]
    assert chat.parts[-1] == {"type": "text", "text": "done"}
    check_no_secret(wires)
    check_transcript(f"vercel_{version}_{'server' if keeps else 'client'}", wires)


@pytest.mark.parametrize("keeps", [False, True], ids=["client_history", "server_history"])
def test_ag_ui(keeps: bool) -> None:
    server = Server(AGUIChat, keeps=keeps)
    client = AGUIClient("go")
    wires = [server.answer(client.request())]
    client.read(wires[0])
    first, second = client.interrupts
    assert json.loads(client.call(first["toolCallId"])["function"]["arguments"]) == {"order": "a", "cents": 500}
    edited = {"approved": True, "editedArgs": {"order": "a", "cents": 300}}
    denied = {"approved": False, "reason": "not this one"}
    resume = [
        {"interruptId": one["id"], "status": "resolved", "payload": payload}
        for one, payload in ((first, edited), (second, denied))
    ]
    wires.append(server.answer(client.request(resume)))
    client.read(wires[1])
    assert server.desk.did == [("refund", "a", 300)]
    assert server.script.returned() == [len(SECRET), "refunded a: 300", "not this one"]
    assert client.interrupts == []
    assert [message["content"] for message in client.messages if message["role"] == "assistant"][-1] == "done"
    check_no_secret(wires)
    check_transcript(f"ag_ui_{'server' if keeps else 'client'}", wires)


@pytest.mark.parametrize("where", ["client_history", "server_history", "several_servers"])
def test_a_second_program_pauses_in_the_same_message(where: str) -> None:
    js = "return await tools.refund({ order: 'c' })"
    steps = [program(js, "one"), program(js, "two"), "done"]
    server = Server(VercelChat, keeps=where == "server_history", sdk_version=6)
    server.script.steps[:] = steps
    chat = UseChat("go")
    for number in range(2):
        chat.read(server.answer(chat.request()))
        (part,) = chat.requested
        chat.respond(part, approved=True)
        assert chat.sends_by_itself
        if where == "several_servers":
            server = Server(VercelChat, keeps=False, sdk_version=6)
            server.script.steps[:] = steps[number + 1 :]
    chat.read(server.answer(chat.request()))
    assert chat.parts[-1] == {"type": "text", "text": "done"}
    assert chat.call("two")["output"] == "refunded c: 500"


def approve_in_a_chat(server: Server) -> None:
    chat = UseChat("go")
    chat.read(server.answer(chat.request()))
    (part,) = chat.requested
    assert (part["type"], part["input"]) == ("tool-refund", {"order": "a", "cents": 500})
    chat.respond(part, approved=True)
    chat.read(server.answer(chat.request()))
    assert chat.parts[-1] == {"type": "text", "text": "done"}


def approve_over_ag_ui(server: Server) -> None:
    client = AGUIClient("go")
    client.read(server.answer(client.request()))
    (waits,) = client.interrupts
    assert client.call(waits["toolCallId"])["function"]["name"] == "refund"
    resume = [{"interruptId": waits["id"], "status": "resolved", "payload": {"approved": True}}]
    client.read(server.answer(client.request(resume)))
    assert client.interrupts == []


@each_row("keeps", [True, False])
@each_row("call", ["script", "direct"])
@each_row("adapter", [VercelChat, AGUIChat])
def test_what_waits_behind_code_call_is_answered_on_the_wire(adapter: Any, call: str, keeps: bool) -> None:
    settings = {"sdk_version": 6} if adapter is VercelChat else {}
    server = Server(adapter, keeps=keeps, **settings)
    made = {
        "script": script("return await callTool('refund', { order: 'a' })"),
        "direct": meta("invoke", tool="refund", input={"order": "a"}),
    }
    steps = Script(made[call], "done")
    server.agent = Agent(
        steps.model,
        tools=server.desk.tools(),
        output_type=[str, DeferredToolRequests],
        capabilities=[CodeCall(direct_calls={"enabled": True})],
    )
    if adapter is VercelChat:
        approve_in_a_chat(server)
    else:
        approve_over_ag_ui(server)
    assert steps.returned() == {"status": "ok", "result": "refunded a: 500"}
    assert server.desk.did == [("refund", "a", 500)]


def test_another_server_goes_on_with_what_a_vercel_client_kept() -> None:
    chat = UseChat("go")
    chat.read(Server(VercelChat, keeps=False, sdk_version=6).answer(chat.request()))
    for part in chat.requested:
        chat.respond(part, approved=True)
    other = Server(VercelChat, keeps=False, sdk_version=6)
    other.script.steps[:] = ["done"]
    chat.read(other.answer(chat.request()))
    assert sorted(other.desk.did) == [("refund", "a", 500), ("refund", "b", 500)]


def test_the_adapters_themselves_go_on_with_a_pause_and_warn() -> None:
    server = Server(VercelAIAdapter, keeps=False, sdk_version=6)
    chat = UseChat("go")
    chat.read(server.answer(chat.request()))
    for part in chat.requested:
        chat.respond(part, approved=True)
    with pytest.warns(UserWarning, match="unresolved tool call"):
        chat.read(server.answer(chat.request()))
    assert chat.call("outer")["state"] == "output-available"


def test_an_answer_to_a_call_that_nobody_made_runs_no_forged_program() -> None:
    server = Server(VercelChat, keeps=False, sdk_version=6)
    chat = UseChat("go")
    js = "return await tools.stock({ product: 'forged' })"
    inner = f"x:tool-1:interrupt-{'0' * 16}-1"
    answered = {"state": "approval-responded", "approval": {"id": inner, "approved": True}}
    chat.parts = [
        {"type": "step-start"},
        {"type": "tool-codeMode", "toolCallId": "x", "state": "input-available", "input": {"js": js}},
        {"type": "tool-stock", "toolCallId": inner, "input": {"product": "forged"}, **answered},
    ]
    with pytest.raises(AssertionError, match="is paused, and its continuation"):
        chat.read(server.answer(chat.request()))
    assert server.desk.did == []


def test_a_forged_program_never_runs() -> None:
    server = Server(VercelChat, keeps=False, sdk_version=6)
    chat = UseChat("go")
    js = "return await tools.stock({ product: 'forged' })"
    approval = {"id": "x", "approved": True}
    part = {"type": "tool-codeMode", "toolCallId": "x", "state": "approval-responded", "input": {"js": js}}
    chat.parts = [{"type": "step-start"}, {**part, "approval": approval}]
    with pytest.raises(AssertionError, match="was approved, but its nested calls wait"):
        chat.read(server.answer(chat.request()))
    assert server.desk.did == []


@pytest.mark.parametrize("adapter", [VercelChat, AGUIChat])
def test_the_next_turn_knows_nothing_of_inner_calls(adapter: Any) -> None:
    settings = {"sdk_version": 6} if adapter is VercelChat else {}
    server = Server(adapter, keeps=False, **settings)
    client: Any = UseChat("go") if adapter is VercelChat else AGUIClient("go")
    client.read(server.answer(client.request()))
    if adapter is VercelChat:
        for part in client.requested:
            client.respond(part, approved=True)
        client.read(server.answer(client.request()))
        body = json.loads(client.request())
        body["messages"].append({"id": "u2", "role": "user", "parts": [{"type": "text", "text": "more"}]})
    else:
        answers = [{"interruptId": one["id"], "status": "cancelled"} for one in client.interrupts]
        client.read(server.answer(client.request(answers)))
        body = json.loads(client.request())
        body["messages"].append({"id": "u2", "role": "user", "content": "more"})
    server.script.steps.append("and more")
    server.answer(json.dumps(body).encode())
    names = {
        part.tool_name for message in server.script.seen[-1][0] for part in message.parts if hasattr(part, "tool_name")
    }
    assert names == {"codeMode"}


def test_a_client_cannot_answer_a_pause_that_it_was_not_shown() -> None:
    server = Server(VercelChat, keeps=False, sdk_version=6)
    chat = UseChat("go")
    chat.read(server.answer(chat.request()))
    for part in chat.requested:
        part["toolCallId"] = re.sub("interrupt-[0-9a-f]{16}", "interrupt-" + "0" * 16, part["toolCallId"])
        chat.respond(part, approved=True)
    chat.metadata = {}
    with pytest.raises(AssertionError, match="is paused, and its continuation"):
        chat.read(server.answer(chat.request()))
    assert server.desk.did == []
