"""Batched approvals over a running `langgraph dev`, asked and answered as agent-chat-ui and the agent inbox do.

Both read a thread's interrupts over HTTP and resume it with a command. agent-chat-ui sends one decision for each action
(its `HITLRequest` and `Decision`); the agent inbox knows the first action of a request alone, and sends its own
`HumanResponse` with the type renamed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_ports
from required import missing

LANGGRAPH = Path(sys.prefix) / "clients-langgraph" / "bin" / "langgraph"
BOUND = 120.0
THREE = """
const given = [tools.pay({ to: "a", cents: 5 }), tools.pay({ to: "b", cents: 6 }), tools.drop({ name: "c" })];
return (await Promise.allSettled(given)).map((one) => one.value ?? one.reason.message);
"""
ONE = "try { return await tools.pay({ to: 'a', cents: 5 }); } catch (error) { return error.message; }"


class Server:
    """A running server, as a front end in a browser sees it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def answers(self) -> bool:
        try:
            return self._sent("/ok")["ok"]
        except urllib.error.URLError:
            return False

    def thread(self) -> str:
        return self._sent("/threads", {})["thread_id"]

    def interrupt(self, thread: str) -> Any:
        """What the inbox reads: interrupts by the task that they are of, of each the first."""
        found = self._sent(f"/threads/{thread}")["interrupts"]
        ((first,),) = found.values()
        return first["value"]

    def start(self, thread: str, program: str) -> None:
        given = {"messages": [{"role": "user", "content": program}]}
        self._sent(f"/threads/{thread}/runs/wait", {"assistant_id": "desk", "input": given})

    def resume(self, thread: str, answer: Any, stream_mode: str) -> None:
        """Stream a run that goes on, to its end."""
        given = {"assistant_id": "desk", "command": {"resume": answer}, "stream_mode": [stream_mode]}
        streamed = self._read_file(f"/threads/{thread}/runs/stream", given).decode()
        assert "event: error" not in streamed, streamed[-2000:]

    def result(self, thread: str) -> str:
        messages = self._sent(f"/threads/{thread}/state")["values"]["messages"]
        assert messages[-1]["content"] == "done"
        return messages[-2]["content"]

    def _sent(self, path: str, given: Any = None) -> Any:
        return json.loads(self._read_file(path, given))

    def _read_file(self, path: str, given: Any = None) -> bytes:
        body = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(self.url + path, body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=BOUND) as answer:
            return answer.read()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if not LANGGRAPH.exists():
        missing("clients", "`make clients` has not installed langgraph-cli")
    folder, (port,) = tmp_path_factory.mktemp("dev"), free_ports(1)
    desk = Path(__file__).with_name("langgraph_desk.py")
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": {"desk": f"{desk}:graph"}}))
    command = [str(LANGGRAPH), "dev", "--no-browser", "--no-reload", "--port", str(port)]
    environment = {**os.environ, "LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
    log = folder / "log"
    with log.open("wb") as file:
        running = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    served = Server(f"http://127.0.0.1:{port}")
    try:
        while not served.answers():
            try:
                ended = running.wait(0.2)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"langgraph dev ended with {ended}: {log.read_text()}")
        yield served
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(BOUND)


def test_agent_chat_ui_decides_about_each_action(server: Server):
    thread = server.thread()
    server.start(thread, THREE)
    asked = server.interrupt(thread)
    assert [one["name"] for one in asked["action_requests"]] == ["pay", "pay", "drop"]
    assert [one["action_name"] for one in asked["review_configs"]] == ["pay", "pay", "drop"]
    edited = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "b", "cents": 1}}}
    decisions = [{"type": "approve"}, edited, {"type": "reject", "message": "no"}]
    server.resume(thread, {"decisions": decisions}, "values")
    assert json.loads(server.result(thread)) == [
        "paid 5 to a",
        "paid 1 to b",
        "approval of tool 'drop' was denied: no",
    ]


@pytest.mark.parametrize(
    ("response", "result"),
    [
        ({"type": "approve", "args": {"action": "pay", "args": {"to": "a", "cents": 5}}}, "paid 5 to a"),
        ({"type": "approve", "args": None}, "paid 5 to a"),
        ({"type": "edit", "args": {"action": "pay", "args": {"to": "a", "cents": 2}}}, "paid 2 to a"),
        ({"type": "reject", "args": "too much"}, "approval of tool 'pay' was denied: too much"),
    ],
    ids=["approve", "approve as it is", "edit", "reject"],
)
def test_the_agent_inbox_decides_about_one_action(server: Server, response: Any, result: str):
    thread = server.thread()
    server.start(thread, ONE)
    assert server.interrupt(thread)["action_requests"][0]["args"] == {"to": "a", "cents": 5}
    server.resume(thread, {"decisions": [response]}, "events")
    assert server.result(thread) == result
