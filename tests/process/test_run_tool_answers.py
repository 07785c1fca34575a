"""What `codemode.run` answers: logs, a result or none, diagnostics in their order, and what was called."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any

import pytest
from module_servers import HUB, RESULT, answer, check_response, only, result_of, run_tool, servers
from suite import each_row, full_only
from waiting import within

from codemode import CodeModeToolError, Interrupt, ModuleServer, PoolOptions, Tool, WorkerPool, create_modules_tool
from codemode.errors import CodeModeSyntaxError, CodeModeWorkerError


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("await 0; this === undefined && (globalThis.__codemode_result__ = 'strict')", "strict"),
        (f"export const a = 1; export default class {{}}; {RESULT}a", 1),
        (f"const {{ a }} = await Promise.resolve({{ a: 2 }}); {RESULT}a", 2),
        (f'import type {{ X }} from "nowhere"; const a: number = 3; {RESULT}a as unknown', 3),
    ],
)
def test_programs_are_es_modules(code: str, result: Any):
    assert result_of(code) == result


@each_row(
    "code, result",
    [
        (f"{RESULT}1; {RESULT}2;", 2),
        (f"{RESULT}null", None),
        (f"{RESULT}[1, 'a', {{ b: true }}]", [1, "a", {"b": True}]),
        (f"const o = {{ a: 1 }}; {RESULT}o; o.a = 2;", {"a": 2}),
        (f"{RESULT}{{ toJSON() {{ return 7; }} }}", 7),
        (f"{RESULT}10n ** 20n", 10**20),
    ],
)
def test_the_result_is_what_was_assigned_last(code: str, result: Any):
    assert result_of(code) == result


def test_limits_hold_and_unknown_ones_are_ignored():
    said = only("SANDBOX_LIMIT", "for (;;);", limits={"timeoutMs": 50, "maxSteps": 1, "timeout": 2})
    assert "timeoutMs is 50" in said["message"]


def test_an_adjusted_limit_is_said_beside_the_result():
    response = answer(f"{RESULT}1", limits={"timeoutMs": 10**9, "maxToolCalls": "many"})
    assert response["result"] == 1
    assert [(one["code"], one["path"]) for one in response["diagnostics"]] == [
        ("LIMIT_ADJUSTED", "/limits/timeoutMs"),
        ("LIMIT_ADJUSTED", "/limits/maxToolCalls"),
    ]


def test_what_the_host_gets_wrong_is_answered_too():
    response = within(run_tool().execute({"code": "1"}, call={"tool_call_id": "a"}))  # pyright: ignore[reportArgumentType]
    assert [one["code"] for one in response["diagnostics"]] == ["BAD_REQUEST"]
    assert isinstance(response.exception, ValueError)


def test_logs_have_a_level_a_text_and_a_time():
    code = """
        console.debug("a", 1, true, null, undefined, Symbol("s"), 12n);
        console.log({ b: 1, a: { d: [2], c: 1 } });
        console.info("info");
        console.warn();
        console.error([1, "x"]);
        const loop = {}; loop.loop = loop;
        console.log(loop, 1);
    """
    logs = answer(code)["logs"]
    assert [(line["level"], line["message"]) for line in logs[:5]] == [
        ("debug", "a 1 true null undefined Symbol(s) 12"),
        ("log", '{"a":{"c":1,"d":[2]},"b":1}'),
        ("log", "info"),
        ("warn", ""),
        ("error", '[1,"x"]'),
    ]
    assert logs[5]["message"].endswith(" 1")
    assert all(type(line["timeMs"]) is int and line["timeMs"] >= 0 for line in logs)


def test_times_count_from_the_beginning_of_the_program():
    code = "console.log(1); await new Promise((resolve) => setTimeout(resolve, 30)); console.log(2);"
    first, second = (line["timeMs"] for line in answer(code)["logs"])
    assert second - first >= 25


def test_the_trace_of_calls_holds_no_input_and_no_output():
    code = f"""{HUB}
        await hub.create_issue({{ title: "private words" }});
        await hub.fails("private words").catch(() => {{}});
        await hub.create_issue({{ title: 5 }}).catch(() => {{}});
    """
    response = answer(code)
    trace = response["toolTrace"]
    assert [(one["serverId"], one["toolName"], one["ok"]) for one in trace] == [
        ("git-hub", "create-issue", True),
        ("git-hub", "fails", False),
        ("git-hub", "create-issue", False),
    ]
    assert [one.get("error") for one in trace] == [
        None,
        "ToolCallError TOOL_FAILED",
        "SchemaValidationError VALIDATION",
    ]
    assert all(type(one["durationMs"]) is int for one in trace)
    assert "private" not in json.dumps(trace)
    assert response.trace is not None


def test_the_trace_is_of_the_run_whenever_somebody_looks_first():
    response = answer(HUB + "console.log('a'); await hub.echo(1);")
    copied = pickle.loads(pickle.dumps(response))
    assert response.trace is not None
    assert (response.trace is response.trace, copied.trace == response.trace) == (True, True)
    assert [one.tool_name for one in response.trace.bridge_requests] == ["git-hub.echo"]
    assert [line.text for line in response.trace.console] == ["a"]
    assert 0 <= response.trace.duration_ms == response.trace.completed_at_ms - response.trace.started_at_ms


def test_nothing_called_is_no_trace():
    assert "toolTrace" not in answer("1")


def test_logs_and_trace_outlive_an_error():
    response = answer(f"{HUB}console.log('before'); await hub.nothing(); {RESULT}1; throw new TypeError('no');")
    assert [line["message"] for line in response["logs"]] == ["before"]
    assert [one["toolName"] for one in response["toolTrace"]] == ["nothing"]
    [said] = response["diagnostics"]
    message, calls = said["message"].split("\n")
    assert (said["code"], message) == ("UNCAUGHT_EXCEPTION", "TypeError: no")
    assert calls == "Already done, do not repeat: git-hub.nothing"
    assert said["path"].startswith("2:")


@each_row(
    "code, program, path",
    [
        ("SYNTAX_ERROR", "const a = 1;\nconst a = 2;", "2:"),
        ("SYNTAX_ERROR", "return 5", "1:1"),
        ("SYNTAX_ERROR", "await (", None),
        ("IMPORT_FAILURE", 'import fs from "fs";', "1:1"),
        ("IMPORT_FAILURE", '\n import { creat_issue } from "@codemode/servers/git-hub";', "2:11"),
        ("IMPORT_FAILURE", 'import hub from "@codemode/servers/git-hub";', "1:8"),
        ("IMPORT_FAILURE", 'export * from "@codemode/servers/nothing";', "1:1"),
        ("IMPORT_FAILURE", 'await import("@codemode/servers/nothing");', None),
        ("IMPORT_FAILURE", 'await import("f" + "s");', None),
        ("TOOL_NOT_FOUND", f"{HUB}await hub.creat_issue({{}});", "2:"),
        ("UNCAUGHT_EXCEPTION", "null.x", "1:"),
        ("UNCAUGHT_EXCEPTION", "throw 5", None),
        ("UNCAUGHT_EXCEPTION", f"{HUB}await hub.refuses();", "2:"),
        ("SANDBOX_LIMIT", "for (;;);", None),
        ("SANDBOX_LIMIT", "const a = []; for (;;) a.push(String(a.length).repeat(10000));", None),
        ("SANDBOX_LIMIT", "const f = () => f() + 1; f();", None),
        ("SANDBOX_LIMIT", f"{HUB}for (let i = 0; i < 9; i++) await hub.nothing();", None),
        ("SANDBOX_LIMIT", "//" + "x" * 300_000, None),
        ("RESULT_NOT_JSON", f"{RESULT}() => 1", None),
        ("RESULT_NOT_JSON", f"const a = {{}}; a.a = a; {RESULT}a", None),
        ("RESULT_TOO_LARGE", f"{RESULT}'x'.repeat(2000)", None),
        ("DEADLOCK", "await new Promise(() => {});", None),
    ],
)
def test_each_trouble_has_its_code(code: str, program: str, path: str | None):
    limits = {
        "timeoutMs": 300 if program == "for (;;);" else 20_000,
        "maxMemoryBytes": 4 << 20,
        "maxToolCalls": 5,
        "maxConcurrentToolCalls": 2,
        "maxResultBytes": 1_000,
    }
    said = only(code, program, limits=limits)
    assert said["severity"] == "error"
    assert said["hint"]
    if path is not None:
        assert said["path"].startswith(path)
    assert (said.get("errorClass") == "SandboxLimitError") == (code == "SANDBOX_LIMIT")


def test_all_that_is_known_before_the_start_comes_at_once_and_nothing_ran():
    code = f"""import {{ a }} from "@codemode/servers/mail";
        {HUB}import "fs";
        console.log("ran");
        await hub.nothing(); await hub.nothin(); await hub.nothng();"""
    response = answer(code, limits={"maxToolCalls": -1})
    assert [(one["code"], one.get("errorClass")) for one in response["diagnostics"]] == [
        ("IMPORT_FAILURE", None),
        ("IMPORT_FAILURE", None),
        ("TOOL_NOT_FOUND", "ToolNotFoundError"),
        ("TOOL_NOT_FOUND", "ToolNotFoundError"),
        ("LIMIT_ADJUSTED", None),
    ]
    assert response["logs"] == []
    assert "toolTrace" not in response
    assert isinstance(response.exception, CodeModeSyntaxError)


@pytest.mark.parametrize(
    "program",
    [
        f"{HUB}try {{ await hub.creat_issue(); }} catch {{ }}",
        f"{HUB}if (hub.creat_issue) await hub.creat_issue();",
        f"{HUB}const name = 'creat_issue'; await hub[name]?.();",
        f"{HUB}Object.keys(hub); ((hub) => {{}})(hub);",
    ],
)
def test_a_name_that_may_well_be_missing_is_no_mistake(program: str):
    assert [one["code"] for one in answer(program)["diagnostics"]] == ["NO_RESULT"]


def test_errors_of_calls_are_told_with_their_class_hint_and_pointer():
    said = only("UNCAUGHT_EXCEPTION", f"{HUB}await hub.create_issue({{ title: 5 }});")
    assert (said["errorClass"], said["path"]) == ("SchemaValidationError", "/title")
    assert "/title" in said["hint"]


@pytest.mark.parametrize("before", [f"{HUB}await hub.nothing(); ", *full_only("")])
@pytest.mark.parametrize(
    "loop",
    [
        f"{RESULT}{{ toJSON() {{ for (;;); }} }};",
        "const hang = async () => { for (;;); }; await hang().catch(hang);",
        *full_only("for (;;);", "await import({ toString() { for (;;); } });"),
    ],
)
def test_a_limit_ends_the_program_and_keeps_what_was_logged(computing_pool: WorkerPool, before: str, loop: str):
    tool = create_modules_tool(servers(), pool=computing_pool)
    response = answer(f"{before}console.log('before'); {loop}", tool, limits={"timeoutMs": 200})
    assert [line["message"] for line in response["logs"]] == ["before"]
    [said] = response["diagnostics"]
    assert (said["code"], said["errorClass"]) == ("SANDBOX_LIMIT", "SandboxLimitError")


def test_a_call_beyond_a_limit_can_be_caught():
    code = f"""{HUB}import {{ SandboxLimitError }} from "@codemode/errors";
        await hub.nothing();
        try {{ await hub.nothing(); }} catch (error) {{ {RESULT}[error instanceof SandboxLimitError, error.code]; }}"""
    assert result_of(code, limits={"maxToolCalls": 1}) == [True, "SANDBOX_LIMIT"]


def test_a_call_that_was_cut_off_may_have_happened(passing_time: Any):
    async def hangs(_value: Any) -> None:
        passing_time.skip(61)
        await asyncio.Event().wait()

    tool = create_modules_tool([ModuleServer("Git Hub", [Tool("hangs", execute=hangs)])])
    response = answer(f"{HUB}await hub.hangs(1);", tool, limits={"timeoutMs": 60_000})
    assert [one["code"] for one in response["diagnostics"]] == ["SANDBOX_LIMIT", "OUTCOME_UNKNOWN"]
    assert "git-hub.hangs" in response["diagnostics"][1]["message"]
    assert [one["ok"] for one in response["toolTrace"]] == [False]
    assert isinstance(response.recovery, Interrupt)


def test_calls_that_nobody_awaited_end_and_the_result_stands():
    response = answer(f"{HUB}hub.hangs(); await hub.nothing(); hub.nothing(); {RESULT}1;")
    assert response["result"] == 1
    [said] = response["diagnostics"]
    assert (said["code"], said["severity"]) == ("CALL_NOT_AWAITED", "warning")
    assert "git-hub.hangs" in said["message"]


def test_a_cancelled_task_is_the_one_exception():
    async def main() -> None:
        running = asyncio.create_task(run_tool().execute({"code": f"{HUB}await hub.hangs();"}))
        done, _ = await asyncio.wait([running], timeout=0.05)
        assert not done
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    within(main())


def test_no_free_sandbox_is_busy_and_a_closed_pool_has_failed():
    pool = WorkerPool(PoolOptions(max_workers=1))
    tool = create_modules_tool(servers(), pool=pool)
    busy = asyncio.Event()

    def begun(_event: Any) -> None:
        busy.set()

    first = create_modules_tool(servers(), pool=pool, settings={"lifecycle": {"on_nested_tool_call": begun}})

    async def main() -> Any:
        running = asyncio.create_task(first.execute({"code": f"{HUB}await hub.hangs();"}))
        await busy.wait()
        response = await tool.execute({"code": "1"})
        running.cancel()
        await asyncio.wait([running])
        return response

    response = within(main())
    check_response(response)
    assert [one["code"] for one in response["diagnostics"]] == ["BUSY"]
    pool.close()
    response = within(tool.execute({"code": "1"}))
    assert [one["code"] for one in response["diagnostics"]] == ["WORKER_FAILED"]
    assert isinstance(response.exception, CodeModeWorkerError)


def test_the_sync_form_does_the_same_inside_a_loop_too():
    tool = run_tool()
    assert tool.execute_sync({"code": f"{RESULT}1"})["result"] == 1

    async def inside() -> Any:
        return tool.execute_sync({"code": f"{RESULT}2"})

    assert within(inside())["result"] == 2


def test_hooks_of_the_host_hear_of_calls_under_their_whole_names():
    heard: list[str] = []
    lifecycle = {"on_nested_tool_result": lambda event: heard.append(event.tool_name)}
    answer(f"{HUB}await hub.nothing();", run_tool(settings={"lifecycle": lifecycle}))
    assert heard == ["git-hub.nothing"]


def test_a_pipeline_of_the_host_is_heard():
    def before(call: Any) -> None:
        raise CodeModeToolError(f"{call.tool_name} is not for now")

    said = only("UNCAUGHT_EXCEPTION", f"{HUB}await hub.nothing();", run_tool(settings={"pipeline": {"before": before}}))
    assert "not for now" in said["message"]
