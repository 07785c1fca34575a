"""What a script or direct call of CodeCall comes to after a pause, it comes to again: here and in another process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from pausing import OK, through_json
from suite import full_only

from codemode import CodeModeToolError, Interrupt, Tool, create_code_call_tools
from codemode.types import CodeCallResult

KEY = "a key of this test"
KEYED = {"approval": {"mode": "interrupt"}, "continuation": {"keys": KEY}}
SEALED = {**KEYED, "continuation": {"keys": KEY, "seal": True}}


def told(_value: Any) -> None:
    raise CodeModeToolError("no", code="CLOSED", details={"left": 0})


def fails(_value: Any) -> None:
    raise RuntimeError("cannot open /srv/books/ledger.db")


class Set:
    """A set of tools that counts how often each has run."""

    def __init__(self, settings: Any = KEYED, **options: Any) -> None:
        self.ran: list[str] = []
        made = {
            "asks": lambda value: value,
            "echo": lambda value: value,
            "told": told,
            "fails": fails,
            "deep": lambda _value: [[[[[1]]]]],
        }
        tools = [Tool(name, execute=self._counted(name, made[name]), needs_approval=name == "asks") for name in made]
        options = {"settings": settings, "direct_calls": {"enabled": True}, **options}
        self.tools = create_code_call_tools(tools, options)

    def _counted(self, name: str, run: Any) -> Any:
        def execute(value: Any) -> Any:
            self.ran.append(name)
            return run(value)

        return execute


ENDINGS = {
    "ok": "return { a: 1 }",
    "undefined": "",
    "logs": "console.log('one', 2); console.error('three'); return 1",
    "cut": "return await callTool('deep')",
    "logs and cut": "console.log('one'); return await callTool('deep')",
    "tool_error": "return await callTool('told', { a: 1 })",
    "hidden": "return await callTool('fails', { a: 1 })",
    "unknown": "return await callTool('no' + 'pe', { a: 1 })",
    "denied": "return await callTool('de' + 'ep', { a: 1 })",
    "large input": "return await callTool('told', 'x'.repeat(9000))",
    "throw": "throw new RangeError('cannot read /srv/x')",
    "throw text": "throw 'text'",
    "throw undefined": "throw undefined",
    "throw fields": "throw { name: 'Own', message: 'm', code: 5, details: { a: 1 } }",
    "wrapped": "try { await callTool('told') } catch (error) { throw new Error(error.message, { cause: error }) }",
    "detached": "callTool('echo', 1); return 1",
    "deadlock": "await new Promise(() => {})",
    "function": "return () => 1",
    "large": "return 'x'.repeat(2 ** 21)",
    "stack": "const f = () => f() + 1; return f()",
    "memory": "return [...Array(2 ** 25)].map(() => 'x'.repeat(1000))",
    "in flight": "await Promise.all([...Array(40)].map(() => callTool('echo', 1)))",
    "calls": "const f = (n) => callTool('echo', n).then(() => f(n + 1)); await f(0)",
    "timeout": "const f = () => Promise.resolve().then(f); await f()",
    "pause": "console.log('one'); return await callTool('asks', 2)",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_repeated_resume_answers_the_same(ending: str, passing_time: Any):
    allowed = None if ending != "denied" else ["asks"]
    late = {
        "execution_policy": {"timeout_includes_tools": True},
        "lifecycle": {
            "on_nested_tool_result": lambda event: passing_time.skip(61 if event.status == "fulfilled" else 0)
        },
    }
    settings = {**KEYED, **late} if ending == "timeout" else KEYED
    one = Set(settings, vm={"maxSanitizeDepth": 3, "maxSteps": 50, "timeoutMs": 60_000})
    paused = one.tools.execute_sync({"script": f"await callTool('asks'); {ENDINGS[ending]}", "allowedTools": allowed})
    first = one.tools.resume_sync(through_json(paused), OK)
    ran = list(one.ran)
    again = one.tools.resume_sync(through_json(paused), OK)
    assert one.ran == ran
    assert isinstance(first, Interrupt) or (first["status"] == "timeout") is (ending == "timeout")
    if isinstance(first, Interrupt):
        assert again.to_dict() == first.to_dict()
        return
    assert isinstance(again, CodeCallResult)
    assert (again, json.dumps(again)) == (first, json.dumps(first))
    assert type(again.exception) is type(first.exception)
    assert (again.recovery and again.recovery.to_dict()) == (first.recovery and first.recovery.to_dict())


def test_a_name_that_is_no_tools_is_warned_of_after_a_pause_too():
    one = Set(vm={"maxSanitizeDepth": 3})
    asked = {
        "script": "await callTool('asks'); return await callTool('deep')",
        "allowedTools": ["asks", "deep", "nope"],
    }
    paused = one.tools.execute_sync(asked)
    answers = [Set().tools.resume_sync(through_json(paused), OK) for _ in range(2)]
    assert answers[0] == answers[1]
    cut, unknown = answers[0]["warnings"]
    assert "cut" in cut
    assert "nope" in unknown
    failed = one.tools.execute_sync({"script": "await callTool('asks'); throw 1", "allowedTools": ["asks", "nope"]})
    assert one.tools.resume_sync(failed, OK)["warnings"][0] == unknown


def test_errors_stay_hidden_where_the_script_began_with_that():
    script = (
        "const quiet = { throwOnError: false }; const a = await callTool('fails', 1, quiet); await callTool('asks');"
        "const b = await callTool('fails', 1, quiet); return [a.error.message, b.error.message]"
    )
    hidden, shown = "the tool failed", "cannot open [path]"
    for began, then, message in (("hidden", "message", hidden), ("message", "hidden", shown)):
        paused = Set(tool_errors=began).tools.execute_sync({"script": script})
        answer = Set(tool_errors=then).tools.resume_sync(through_json(paused), OK)
        assert answer == {"status": "ok", "result": [message] * 2}


@pytest.mark.parametrize("how", ["script", "invoke"])
def test_a_sealed_pause_says_nothing_and_goes_on_once(how: str):
    one = Set(SEALED)
    if how == "script":
        asked = {"script": "await callTool('asks', 'C'); return codecallContext", "context": {"word": "CANARY"}}
        paused, expected = one.tools.execute_sync(asked), {"word": "CANARY"}
    else:
        paused, expected = one.tools.invoke_sync({"tool": "asks", "input": "C"}), "C"
    assert "CANARY" not in json.dumps(paused.to_dict()["continuation"])
    assert '\\"C\\"' not in json.dumps(paused.to_dict()["continuation"])
    answers = [Set(SEALED).tools.resume_sync(through_json(paused), OK) for _ in range(2)]
    assert answers == [{"status": "ok", "result": expected}] * 2


@pytest.mark.parametrize("depth", [510, 511])
def test_a_context_as_deep_as_it_may_be_goes_on(depth: int):
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    script = "await callTool('asks'); return JSON.stringify(codecallContext).length"
    paused = Set().tools.execute_sync({"script": script, "context": {"a": deep}})
    assert Set().tools.resume_sync(through_json(paused), OK) == {"status": "ok", "result": 2 * depth + 7}


KNOWN: list[tuple[Any, dict[str, Any], int]] = [
    ({"value": 7}, {"status": "ok", "result": 7}, 0),
    ({"value": None}, {"status": "ok", "result": None}, 0),
    ({"runAgain": True}, {"status": "ok", "result": {"a": 1}}, 1),
    (
        {"error": {"message": "it failed at /srv/x"}},
        {
            "status": "tool_error",
            "error": {
                "source": "tool",
                "toolName": "calls",
                "toolInput": {"a": 1},
                "message": "it failed at /srv/x",
                "code": "EXECUTION",
            },
        },
        0,
    ),
]


@pytest.mark.parametrize("how", ["script", "invoke"])
@pytest.mark.parametrize(("answer", "expected", "runs"), KNOWN)
def test_a_call_of_unknown_outcome_is_decided_once(how: str, answer: Any, expected: Any, runs: int, passing_time: Any):
    async def hangs(_value: Any) -> None:
        passing_time.skip(61)
        await asyncio.Event().wait()

    clock = {
        "settings": {**KEYED, "execution_policy": {"timeout_includes_tools": True}},
        "direct_calls": {"enabled": True},
    }
    slow = create_code_call_tools([Tool("calls", execute=hangs)], {**clock, "vm": {"timeoutMs": 60_000}})
    if how == "script":
        late = slow.execute_sync({"script": "return await callTool('calls', { a: 1 })"})
    else:
        late = slow.invoke_sync({"tool": "calls", "input": {"a": 1}})
    assert (late["status"], [one.tool_name for one in late.recovery.requests]) == ("timeout", ["calls"])
    seen: list[Any] = []
    quick = create_code_call_tools([Tool("calls", execute=lambda value: seen.append(value) or value)], clock)
    for _ in range(2):
        result = quick.resume_sync(through_json(late.recovery), answer)
        assert {key: value for key, value in result.items() if key != "warnings"} == expected
    assert len(seen) == runs


HOST = f"""
import json, sys
from codemode import Interrupt, Tool, create_code_call_tools
tools = [Tool("asks", execute=lambda value: [value, "elsewhere"], needs_approval=True)]
tools = create_code_call_tools(tools, {{"vm": {{"preset": "experimental"}}, "settings": {KEYED!r}}})
answer = tools.resume_sync(Interrupt.from_dict(json.load(sys.stdin)), {{"approved": True, "input": {{"n": 2}}}})
json.dump(answer, sys.stdout)
"""


@pytest.mark.parametrize("how", ["script", *full_only("invoke")])
def test_another_process_goes_on(how: str):
    one = Set()
    if how == "script":
        script = "const a = await callTool('asks', { n: 1 }); return [a, getTool('echo').name]"
        paused, expected = one.tools.execute_sync({"script": script}), [[{"n": 2}, "elsewhere"], "echo"]
    else:
        paused, expected = one.tools.invoke_sync({"tool": "asks", "input": {"n": 1}}), [{"n": 2}, "elsewhere"]
    command = [sys.executable, "-c", HOST]
    text = json.dumps(paused.to_dict())
    ended = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    answer = json.loads(ended.stdout or "null")
    assert answer, ended.stderr
    assert (answer["status"], answer["result"]) == ("ok", expected)
    assert one.ran == []
