"""Calls behind CodeCall are calls like any other: hooks, state, limits, retries, failures, turns."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from typing import Annotated, Any

import pytest
from codemode_pydantic_ai import CodeCall
from pydantic import AfterValidator
from pydantic_ai import Agent, ModelRetry, RunContext, Tool, UsageLimits
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import ToolFailed, UnexpectedModelBehavior, UsageLimitExceeded, UserError
from pydantic_ai.messages import ModelMessagesTypeAdapter
from scripted import Script, meta, script
from suite import each_row

from codemode.types import CodeCallResult

WAIT_SECONDS = 60.0
SECRET = "/srv/secret/path"


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def ran(steps: Script, tools: Any = (), *, more: Any = (), limits: Any = None, deps: Any = None, **options: Any) -> Any:
    capability = CodeCall(direct_calls={"enabled": True}, **options)
    agent = Agent(steps.model, tools=tools, capabilities=[capability, *more])
    return within(agent.run("go", deps=deps, usage_limits=limits))


def invoked(name: str, given: Any, call_id: str = "outer") -> Any:
    return meta("invoke", call_id, tool=name, input=given)


def double(n: int) -> int:
    """Twice a number."""
    return n * 2


def both(name: str, given: str) -> Any:
    """The same call from a script, then directly."""
    return [*script(f"return await callTool('{name}', {given})"), *invoked(name, json.loads(given), "direct")]


def test_hooks_deps_and_ids_are_those_of_a_call() -> None:
    heard: list[Any] = []
    hooks: Any = Hooks()

    @hooks.on.before_tool_execute
    async def before(ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any) -> Any:
        heard.append((tool_def.name, call.tool_call_id))
        return args

    def who(ctx: RunContext[str], n: int) -> list[Any]:
        """Tell who calls."""
        return [ctx.deps, ctx.tool_name, ctx.tool_call_id, n, len(ctx.messages)]

    steps = Script(both("who", '{"n": 1}'), "done")
    ran(steps, [who], more=[hooks], deps="ann")
    for outer in ("outer", "direct"):
        deps, name, call_id, n, messages = steps.returned(outer)["result"]
        assert (deps, name, n) == ("ann", "who", 1)
        assert call_id.startswith(f"{outer}:tool-")
        assert messages == 2
    names = [name for name, _ in heard]
    assert sorted(names) == ["codecall_execute", "codecall_invoke", "who", "who"]


def test_inner_calls_count_beside_the_outer_one() -> None:
    steps = Script(both("double", '{"n": 1}'), "done")
    assert ran(steps, [double]).usage.tool_calls == 4
    steps = Script(script("return Promise.all([1, 2, 3].map((n) => callTool('double', { n })))"), "done")
    assert ran(steps, [double], limits=UsageLimits(tool_calls_limit=4)).usage.tool_calls == 4
    four = script("return Promise.all([1, 2, 3, 4].map((n) => callTool('double', { n })))")
    for over, limit in ((four, 4), (both("double", '{"n": 1}'), 3)):
        with pytest.raises(UsageLimitExceeded):
            ran(Script(over, "done"), [double], limits=UsageLimits(tool_calls_limit=limit))


@each_row("call", ["script", "caught", "unthrown", "invoke"])
@each_row("error", [UsageLimitExceeded("no more"), UserError("wrong"), UnexpectedModelBehavior("odd")])
def test_what_ends_the_run_ends_it_whatever_the_script_does(call: str, error: Exception) -> None:
    def fails(n: int) -> int:
        """Fail."""
        raise error

    made = {
        "script": script("return await callTool('fails', { n: 1 })"),
        "caught": script("try { await callTool('fails', { n: 1 }) } catch { return 'caught' }"),
        "unthrown": script("return await callTool('fails', { n: 1 }, { throwOnError: false })"),
        "invoke": invoked("fails", {"n": 1}),
    }[call]
    steps = Script(made, "done")
    with pytest.raises(type(error), match=str(error)):
        ran(steps, [fails])


def test_failed_scripts_cost_no_retry_and_wrong_inputs_do() -> None:
    failing = [script(text, f"call {at}") for at, text in enumerate(["return (", "for (;;) {}", "throw 1"] * 3)]
    steps = Script(*failing, "done")
    assert ran(steps, [double], max_retries=0).output == "done"
    for wrong in (meta("execute"), meta("search", query=3), meta("describe", tool="x"), meta("invoke", tool=3)):
        steps = Script(wrong, wrong, "done")
        ran(steps, [double], max_retries=2)
        assert steps.returned().startswith("CodeModeToolError: Invalid input"), steps.returned()
        with pytest.raises(UnexpectedModelBehavior, match="exceeded max retries"):
            ran(Script(wrong, wrong, "done"), [double], max_retries=1)


def even(n: int) -> int:
    if n % 2:
        raise ValueError("not even")
    return n


def refuses(ctx: RunContext[Any], n: int) -> None:
    raise ModelRetry("this n is taken")


def fails_with(error: Exception) -> Any:
    def fails(n: int) -> int:
        """Fail."""
        raise error

    return Tool(fails, name="fails")


def picky(n: Annotated[int, AfterValidator(even)]) -> int:
    """Take what is even."""
    return n


async def hangs(n: int) -> int:
    """Take for ever."""
    await asyncio.Event().wait()
    return n


FAILURES = {
    "retry": (fails_with(ModelRetry("try 3")), "EXECUTION", "try 3"),
    "failed": (fails_with(ToolFailed("gone")), "EXECUTION", "gone"),
    "validator": (Tool(picky, name="fails"), "VALIDATION", "not even"),
    "args_validator": (Tool(double, name="fails", args_validator=refuses), "VALIDATION", "this n is taken"),
    "timeout": (Tool(hangs, name="fails", timeout=0.001), "EXECUTION", "Timed out"),
    "schema": (Tool(picky, name="fails", strict=True), "VALIDATION", "n"),
    "accident": (fails_with(KeyError(SECRET)), "EXECUTION", "failed"),
}


@each_row("kind", FAILURES)
def test_a_failure_is_told_as_a_status_with_a_code(kind: str) -> None:
    tool, code, words = FAILURES[kind]
    given = '{"n": 1}' if kind != "schema" else '{"n": "one"}'
    steps = Script(both("fails", given), "done")
    ran(steps, [tool], max_retries=0)
    for outer in ("outer", "direct"):
        answer = steps.returned(outer)
        assert (answer["status"], answer["error"]["code"]) == ("tool_error", code), answer
        assert words in answer["error"]["message"]
        assert "details" not in answer["error"] or kind == "schema"
        assert SECRET not in str(answer)


def test_sequential_tools_run_alone_across_scripts_and_direct_calls() -> None:
    running: list[str] = []

    async def alone(name: str) -> str:
        """Run alone."""
        assert running == []
        running.append(name)
        await asyncio.sleep(0)
        running.remove(name)
        return name

    calls = [
        *script("return Promise.all(['a', 'b'].map((name) => callTool('alone', { name })))", "one"),
        *script("return Promise.all(['c', 'd'].map((name) => callTool('alone', { name })))", "two"),
        *invoked("alone", {"name": "e"}, "three"),
        *invoked("alone", {"name": "f"}, "four"),
    ]
    steps = Script(calls, "done")
    ran(steps, [Tool(alone, sequential=True)])
    assert [steps.returned(one)["result"] for one in ("one", "two", "three", "four")] == [
        ["a", "b"],
        ["c", "d"],
        "e",
        "f",
    ]


def test_what_the_host_gives_a_script_wins_over_the_model() -> None:
    async def context(ctx: RunContext[str]) -> dict[str, Any]:
        return {"tenant": ctx.deps}

    steps = Script(script("return codecallContext", context={"tenant": "mine", "a": 1}), "done")
    ran(steps, [double], deps="ann", script_context=context)
    assert steps.returned() == {"status": "ok", "result": {"tenant": "ann", "a": 1}}


def test_logs_and_notifications_reach_model_and_host() -> None:
    heard: list[Any] = []
    steps = Script(
        script("console.log('hi'); mcpNotify('done', { n: 1 }); return callTool('double', { n: 2 })"), "done"
    )
    ran(steps, [double], notify=heard.append)
    assert steps.returned() == {"status": "ok", "result": 4, "logs": [{"level": "log", "message": "hi"}]}
    assert [one["type"] for one in heard] == ["notify", "tool_call_start", "tool_call_end"]


def test_the_host_finds_the_error_beside_the_status() -> None:
    steps = Script(script("throw new RangeError('mine')"), "done")
    result = ran(steps, [double])
    (part,) = [one for message in result.all_messages() for one in message.parts if one.part_kind == "tool-return"]
    assert isinstance(part.content, CodeCallResult)
    assert part.content.exception is not None
    history = ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode="json")
    assert history[-2]["parts"][0]["content"]["status"] == "runtime_error"
    for copied in (copy.deepcopy(part), pickle.loads(pickle.dumps(part))):
        assert copied.content == part.content


def test_integers_are_exact_on_every_way() -> None:
    order = 1180591620717411303
    steps = Script(
        [
            *script("return await callTool('double', { n: codecallContext.n })", context={"n": order}),
            *invoked("double", {"n": order}, "direct"),
        ],
        "done",
    )
    ran(steps, [double])
    assert [steps.returned(one)["result"] for one in ("outer", "direct")] == [order * 2] * 2


def test_a_cancelled_run_takes_its_script_along() -> None:
    async def main() -> list[str]:
        began, ended = asyncio.Event(), list[str]()

        async def waits(n: int) -> int:
            """Wait for ever."""
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return n

        for call in (script("return callTool('waits', { n: 1 })"), invoked("waits", {"n": 1})):
            agent = Agent(
                Script(call, "done").model, tools=[waits], capabilities=[CodeCall(direct_calls={"enabled": True})]
            )
            run = asyncio.create_task(agent.run("go"))
            await asyncio.wait_for(began.wait(), WAIT_SECONDS)
            began.clear()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        return ended

    assert within(main()) == ["cancelled", "cancelled"]
