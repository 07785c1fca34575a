"""A durable workflow whose process is killed: it finds the approval it waits for, and nothing runs twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode
from codemode_pydantic_ai.nested import is_durable_run
from pydantic_ai import Agent, DeferredToolRequests, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse
from required import require_dbos_on_sqlite
from scripted import Script, program
from suite import full_only
from warm_python import WarmPython

HERE = Path(__file__).parent
WAIT_SECONDS = 90


class Desk:
    """The process of `durable_desk.py`, started again and again over one folder."""

    def __init__(self, python: WarmPython, folder: Path, name: str) -> None:
        self.python, self.folder, self.name = python, folder, name

    @property
    def did(self) -> list[str]:
        return (self.folder / "did").read_text(encoding="utf-8").splitlines()

    @contextlib.contextmanager
    def started(self, decision: Any = None) -> Generator[Iterable[str], None, None]:
        """Have the process while the block runs, and read what it says."""
        reading, writing = os.pipe()
        with tempfile.TemporaryFile("w+") as given, Path(os.devnull).open("w") as nowhere, os.fdopen(reading) as said:
            given.write(json.dumps(decision) + "\n")
            given.seek(0)
            command = (str(HERE / "durable_desk.py"), str(self.folder), self.name)
            process = self.python.begin(*command, streams=(given.fileno(), writing, nowhere.fileno()))
            os.close(writing)
            late = threading.Timer(WAIT_SECONDS, process.kill)
            late.start()
            try:
                yield said
            finally:
                late.cancel()
                late.join()
                process.kill()

    def killed_at(self, said: str, decision: Any = None) -> Any:
        """Start it, kill it as soon as it says this, and return what it said."""
        with self.started(decision) as process:
            return told(process, said)

    def killed_at_next(self, said: str, decision: Any) -> Any:
        """Kill it when it says this for the second time: the first time it repeats what was decided."""
        with self.started(decision) as process:
            told(process, said)
            return told(process, said)

    def ended(self, decision: Any = None) -> Any:
        with self.started(decision) as process:
            return told(process, "ended")


def told(process: Iterable[str], said: str) -> Any:
    for line in process:
        word, _, text = line.partition(" ")
        if word.strip() == said:
            return json.loads(text) if text else None
    raise AssertionError(f"the process ended without saying {said!r}")


Begin = Callable[[str], Desk]


@pytest.fixture
def begin(pydantic_ai_python: WarmPython, tmp_path: Path) -> Begin:
    require_dbos_on_sqlite()
    return partial(Desk, pydantic_ai_python, tmp_path)


def approved(waiting: list[Any]) -> dict[str, bool]:
    return {tool_call_id: True for tool_call_id, _, _ in waiting}


def test_a_workflow_killed_while_it_waits_and_after_the_approval_repeats_nothing(begin: Begin, tmp_path: Path) -> None:
    desk = begin("one approval")
    waiting = desk.killed_at("waiting")
    assert [(name, shown) for _, name, shown in waiting] == [("refund", {"order": "a", "cents": 500})]
    assert desk.killed_at("waiting") == waiting
    assert desk.did == ["stock nut"]
    (tmp_path / "hang").touch()
    desk.killed_at("resumed", approved(waiting))
    (tmp_path / "hang").unlink()
    did = desk.did
    assert desk.ended() == {"stock": 3, "refund": "refunded 500 for a", "after": 4}
    assert desk.did == did == ["stock nut", "refund a 500", "stock bolt"]


@pytest.mark.full
def test_a_program_that_is_one_step_makes_each_call_once_and_asks_how_the_one_ended_that_was_killed(
    begin: Begin, tmp_path: Path
) -> None:
    (tmp_path / "journaled").touch()
    desk = begin("in one step")
    (tmp_path / "hang in charge").touch()
    desk.killed_at("hangs")
    (tmp_path / "hang in charge").unlink()
    ((unknown, *asked),) = desk.killed_at("waiting")
    assert asked == ["charge", {"customer": "ada"}, "code-mode/unknown-outcome"]
    assert desk.did == ["stock nut", "charge ada"]
    ((gated, *asked),) = desk.killed_at_next("waiting", {unknown: "the bank says: paid"})
    assert asked == ["refund", {"order": "a", "cents": 500}, "pydantic-ai/approval"]
    assert desk.did == ["stock nut", "charge ada"]
    (tmp_path / "hang in stock").touch()
    desk.killed_at("hangs", {gated: True})
    (tmp_path / "hang in stock").unlink()
    assert desk.ended() == {"stock": 3, "paid": "the bank says: paid", "refund": "refunded 500 for a", "after": 4}
    assert desk.did == ["stock nut", "charge ada", "refund a 500", "stock bolt"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "result", "did"),
    [
        (
            "script",
            {"stock": 3, "refund": "refunded 500 for a", "after": 4},
            ["stock nut", "refund a 500", "stock bolt"],
        ),
        *full_only(("direct call", "refunded 500 for a", ["refund a 500"])),
    ],
)
def test_a_workflow_behind_code_call_repeats_nothing_after_it_was_killed(
    begin: Begin, tmp_path: Path, name: str, result: Any, did: list[str]
) -> None:
    (tmp_path / "did").touch()
    desk = begin(name)
    waiting = desk.killed_at("waiting")
    assert desk.killed_at("waiting") == waiting
    assert desk.did == [one for one in did[:1] if one.startswith("stock")]
    (tmp_path / "hang").touch()
    desk.killed_at("resumed", approved(waiting))
    (tmp_path / "hang").unlink()
    assert desk.ended() == {"status": "ok", "result": result}
    assert desk.did == did


@pytest.mark.full
def test_recorded_answers_are_given_to_the_same_arguments_alone(begin: Begin, tmp_path: Path) -> None:
    desk = begin("chains")
    waiting = desk.killed_at("waiting")
    assert len(desk.did) == 12
    (tmp_path / "hang").touch()
    desk.killed_at("resumed", approved(waiting))
    (tmp_path / "hang").unlink()
    did = desk.did
    assert desk.ended() == {"wrong": [], "refund": "refunded 500 for a"}
    assert desk.did == did
    assert len(set(did)) == len(did) == 12 + 1 + 8


def test_the_records_of_the_engine_are_the_journal_of_its_runs(begin: Begin, tmp_path: Path) -> None:
    """What it has recorded it gives to the next call in order: a call that came from a journal would shift them."""
    (tmp_path / "journaled").touch()
    (tmp_path / "hang in stock").touch()
    desk = begin("nobody asked")
    desk.killed_at("hangs")
    assert desk.did == ["stock nut"]
    (tmp_path / "hang in stock").unlink()
    assert desk.ended() == [3, 4]
    assert desk.did == ["stock nut", "stock bolt"]


# --- without an engine: two processes, one conversation ---

IDS = """
import asyncio, json, sys
from datetime import datetime, timezone
from codemode_pydantic_ai import CodeMode
from pydantic_ai import Agent, DeferredToolRequests, Tool
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel

def refund(order: str) -> str:
    return order

async def waiting(key, js, conversation):
    def respond(messages, info):
        call = ToolCallPart("codeMode", {"js": js}, tool_call_id="call_1")
        return ModelResponse(parts=[call], timestamp=datetime(2030, 1, 2, tzinfo=timezone.utc))
    agent = Agent(FunctionModel(respond), tools=[Tool(refund, requires_approval=True)],
                  output_type=[str, DeferredToolRequests], capabilities=[CodeMode({"continuation": {"keys": key}})])
    result = await agent.run("go", conversation_id=conversation)
    return [[call.tool_call_id, call.args] for call in result.output.approvals]

async def main():
    return [await waiting(*given) for given in json.load(sys.stdin)]

print(json.dumps(asyncio.run(main())))
"""
RANDOM = "return await tools.refund({ order: [Math.random(), new Date().toISOString()].join() })"
KEY = "a key of all processes"


def waiting_in_a_process(*given: tuple[str | None, str, str]) -> list[Any]:
    command = [sys.executable, "-W", "error", "-c", IDS]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.full
def test_two_processes_come_to_one_pause_in_one_conversation(pydantic_ai_python: WarmPython) -> None:
    done = pydantic_ai_python.run("-c", IDS, said=json.dumps([(KEY, RANDOM, "c1")]))
    assert done.returncode == 0, done.stderr
    (first,) = json.loads(done.stdout)
    again, *others = waiting_in_a_process(
        (KEY, RANDOM, "c1"),
        (KEY, RANDOM, "c2"),
        (KEY, RANDOM + ";", "c1"),
        ("another key", RANDOM, "c1"),
        (None, RANDOM, "c1"),
    )
    assert first == again
    ((_, shown),) = first
    assert "2030-01-02T00:00:00.000Z" in shown["order"]
    ids = [tool_call_id for ((tool_call_id, _),) in (first, *others)]
    assert len(set(ids)) == len(ids)


def test_a_run_that_an_engine_repeats_is_recognised() -> None:
    class Engine(AbstractCapability[Any]):
        in_durable_context = True

    class Idle(AbstractCapability[Any]):
        in_durable_context = False

    assert is_durable_run(Engine())
    assert not is_durable_run(Idle())
    assert not is_durable_run(None)


def test_calls_of_a_repeated_run_go_one_by_one_and_time_stands_still() -> None:
    class Engine(AbstractCapability[Any]):
        in_durable_context = True

    running: list[int] = []
    overlaps: list[int] = []

    async def look(n: int) -> int:
        running.append(n)
        await asyncio.sleep(0)
        overlaps.append(len(running))
        running.remove(n)
        return n

    js = """
    const first = Date.now();
    await Promise.all([1, 2, 3].map((n) => tools.look({ n })));
    return [first, Date.now()];
    """
    made: list[ModelResponse] = []

    def respond(messages: Any, info: Any) -> ModelResponse:
        made.append(ModelResponse(parts=program(js)))
        return made[-1]

    script = Script(respond, "done")
    agent: Agent[Any, Any] = Agent(
        script.model, tools=[Tool(look)], output_type=[str, DeferredToolRequests], capabilities=[CodeMode(), Engine()]
    )
    asyncio.run(asyncio.wait_for(agent.run("go"), 60))
    first, last = script.returned()
    assert overlaps == [1, 1, 1]
    assert first == int(made[0].timestamp.timestamp() * 1000)
    assert last == first + 1  # each look at a clock that stands still
