"""`execution_policy.in_flight_limit`: calls beyond those that may run at once fail, or wait for their turn."""

from __future__ import annotations

import asyncio

import pytest

from codemode import (
    CodeModeTimeoutError,
    Interrupt,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
)
from codemode.errors import CodeModeBridgeLimitError

ALL = "return await Promise.all(Array.from({length: COUNT}, (_, x) => tools.get({x})))"
QUEUE = {"in_flight_limit": "queue"}


class Counting:
    """A tool that counts how many of its calls run at once, and notes their order."""

    def __init__(self, **more):
        self.running = self.peak = 0
        self.started: list[int] = []
        self.tool = Tool("get", execute=self.get, input_schema={"type": "object"}, **more)

    async def get(self, value):
        self.started.append(value["x"])
        self.running += 1
        self.peak = max(self.peak, self.running)
        for _ in range(3 + value["x"] % 3):
            await asyncio.sleep(0)
        self.running -= 1
        return value["x"]


def test_calls_wait_for_their_turn_in_the_order_in_which_they_are_made(run):
    get = Counting()
    assert run(ALL.replace("COUNT", "40"), [get.tool], **QUEUE, max_in_flight_bridge_requests=4) == [*range(40)]
    assert get.started == [*range(40)]
    assert get.peak == 4


def test_a_call_that_waits_counts_when_it_is_made(run, fails):
    get = Counting()
    limits = {**QUEUE, "max_in_flight_bridge_requests": 2, "max_bridge_requests": 10}
    assert run(ALL.replace("COUNT", "10"), [get.tool], **limits) == [*range(10)]
    error = fails(CodeModeBridgeLimitError, ALL.replace("COUNT", "11"), [get.tool], **limits)
    assert error.details["limit"] == "max_bridge_requests"


def test_the_time_of_a_call_begins_when_it_starts(run):
    held = asyncio.Event()

    async def first(value):
        await held.wait()

    async def second(value):
        return "done"

    program = """
      const all = await Promise.allSettled([tools.first(1), tools.second(2)]);
      return all.map(one => one.value ?? one.reason.message);
    """
    tools = [Tool("first", execute=first), Tool("second", execute=second)]
    result = run(program, tools, **QUEUE, max_in_flight_bridge_requests=1, tool_timeout_ms=50)
    assert result == ["tool 'first' did not answer within 50 ms; it may have happened all the same", "done"]


def test_every_call_that_needs_approval_is_in_one_interrupt(run):
    get = Counting(needs_approval=True)
    policy = {**QUEUE, "max_in_flight_bridge_requests": 3}
    tool = create_code_mode_tool([get.tool], {"execution_policy": policy, "approval": {"mode": "interrupt"}})
    paused = tool.execute_sync({"js": ALL.replace("COUNT", "10")})
    assert isinstance(paused, Interrupt)
    assert [one.input["x"] for one in paused.requests] == [*range(10)]
    answers = {one.interrupt_id: {"approved": True} for one in paused.requests}
    assert tool.resume_sync(paused, resolutions=answers) == [*range(10)]
    assert get.peak == 3


def test_a_call_that_had_not_started_is_made_when_the_program_is_resumed():
    calls: list[int] = []

    async def get(value):
        calls.append(value["x"])
        if calls == [0, 1, 2]:
            await asyncio.Event().wait()
        return value["x"]

    tool = create_code_mode_tool(
        [Tool("get", execute=get, annotations={"readOnlyHint": True})],
        {"execution_policy": {**QUEUE, "max_in_flight_bridge_requests": 1, "timeout_ms": 1000}},
    )
    with pytest.raises(CodeModeTimeoutError) as raised:
        tool.execute_sync({"js": ALL.replace("COUNT", "5")})
    assert calls == [0, 1, 2]
    assert [(call["status"], call["is_started"]) for call in raised.value.calls][2:] == [
        ("unknown", True),
        ("unknown", False),
        ("unknown", False),
    ]
    assert tool.resume_sync(raised.value.recovery) == [*range(5)]
    assert calls == [0, 1, 2, 2, 3, 4]


def test_code_call_queues_and_says_how_many_run_at_once():
    get = Counting()
    tools = create_code_call_tools([get.tool])
    script = "return (await Promise.all(Array.from({length: 40}, (_, x) => callTool('get', {x})))).length"
    assert tools.execute_sync({"script": script})["result"] == 40
    assert get.peak <= 32


def test_exec_fails_unless_it_is_told_to_queue():
    program = {"code": ALL.replace("COUNT", "17").replace("return", "return (").replace(")))", "))))") + ".length"}
    get = Counting()
    pair = create_exec_wait_tools([get.tool])
    assert "at most 16; one more throws" in pair.exec.description
    answer = pair.exec.execute_sync(program)
    assert (answer["status"], answer["code"]) == ("failed", "too_many_pending_tool_calls")
    queueing = create_exec_wait_tools([get.tool], settings={"execution_policy": QUEUE})
    assert "throws" not in queueing.exec.description.split("`Promise.all`")[1].split(".")[0]
    assert queueing.exec.execute_sync(program)["value"] == 17


def test_calls_in_the_queue_of_exec_start_while_the_program_rests():
    """The call of the model ends before the tools do: the queue goes on without a worker."""
    gate = asyncio.Event()
    calls: list[int] = []

    async def get(value):
        calls.append(value["x"])
        if value["x"] == 0:
            await gate.wait()
        return value["x"]

    async def play():
        options = {"maxPendingToolCalls": 1, "waitTimeoutMs": 100, "maxWarmRuns": 0}
        pair = create_exec_wait_tools([Tool("get", execute=get)], options, settings={"execution_policy": QUEUE})
        answer = await pair.exec.execute({"code": ALL.replace("COUNT", "4")})
        assert answer["status"] == "waiting"
        assert calls == [0]
        gate.set()
        while answer["status"] == "waiting":
            answer = await pair.wait.execute({"runId": answer["runId"]})
        return answer

    answer = asyncio.run(asyncio.wait_for(play(), 30))
    assert answer["value"] == [0, 1, 2, 3]
    assert calls == [0, 1, 2, 3]


def test_the_description_of_code_mode_names_the_number_where_a_call_can_fail():
    get = Counting().tool
    assert (
        ", at most 5; one more throws"
        in create_code_mode_tool([get], {"execution_policy": {"max_in_flight_bridge_requests": 5}}).description
    )
    assert "one more throws" not in create_code_mode_tool([get], {"execution_policy": QUEUE}).description
