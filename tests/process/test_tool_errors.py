"""Calls that fail: wrong input, wrong output, tools that raise, and what of it the guest may see."""

from __future__ import annotations

import asyncio
import re

import pydantic
import pytest
from suite import each_row

from codemode import CodeModeError, CodeModeProtocolError, CodeModeToolError, Tool, ToolCallContext, failure_text, tool
from codemode.errors import CodeModeFetchError, CodeModeSerializationError


async def echo(value):
    return value


ECHO = Tool("echo", execute=echo)
OBJECT_SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"default": 5}}, "required": ["a"]}


# --- validation ---


def test_wrong_input_names_the_tool_and_the_path_and_does_not_run(run, fails):
    ran = []
    tools = [Tool("strict", execute=ran.append, input_schema=OBJECT_SCHEMA)]
    js = "const input = {a: 'x'}; return await tools.strict(input)"
    error = fails(CodeModeToolError, js, tools)
    assert error.code == "CODE_MODE_TOOL_ERROR"
    assert error.details["tool_name"] == "strict"
    assert error.details["problems"][0]["path"] == "a"
    look = "[e.name, e.code, /strict.*a/.test(e.message), e.details]"
    caught = run(f"try {{ {js} }} catch (e) {{ return {look} }}", tools)
    assert caught == ["CodeModeToolError", "CODE_MODE_TOOL_ERROR", True, None]
    assert ran == []


def test_execute_gets_the_validated_value(run):
    class Model(pydantic.BaseModel):
        a: int
        b: str = "default"

    seen = []

    async def note(value):
        seen.append(value)
        return value

    tools = [
        Tool("typed", execute=note, input_schema=Model),
        Tool("plain", execute=note, input_schema=OBJECT_SCHEMA),
    ]
    js = "return [await tools.typed({a: '7', extra: 1}), await tools.plain({a: 1})]"
    assert run(js, tools, check_program=False) == [{"a": 7, "b": "default"}, {"a": 1, "b": 5}]
    assert seen == [Model(a=7), {"a": 1, "b": 5}]


def test_a_decorated_function_is_a_tool(run):
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    def greet(name: str, context: ToolCallContext) -> str:
        return f"{name} {context.tool_call_id}"

    assert run("return [await tools.add({a: 1}), await tools.greet({name: 'x'})]", [add, greet], tool_call_id="o") == [
        3,
        "x o:tool-2",
    ]


def test_a_tool_without_execute_is_refused(fails):
    error = fails(CodeModeToolError, "await tools.declared({})", [Tool("declared", execute=None)])
    assert "declared" in str(error)


def test_an_unknown_tool_is_refused_with_the_known_ones_for_the_host_alone(run, fails):
    js = "const name = 'ecko'; await tools[name](1)"
    error = fails(CodeModeToolError, js, [ECHO])
    assert error.details["available_tools"] == ["echo"]
    assert "echo" in str(error)
    caught = run(f"try {{ {js} }} catch (e) {{ return [e.name, e.code, e.details] }}", [ECHO])
    assert caught == ["CodeModeToolError", "CODE_MODE_TOOL_ERROR", None]


def test_a_tool_that_breaks_its_output_schema_is_an_error_on_both_sides(run, fails):
    given = {"execute": lambda: {"secret": "/etc/passwd"}, "output_schema": {"type": "string"}}
    tools = [Tool("bad", **given, output_validation="strict")]
    error = fails(CodeModeToolError, "return await tools.bad()", tools)
    assert "bad" in str(error)
    assert error.details["problems"]
    name, message = run("try { await tools.bad() } catch (e) { return [e.name, e.message] }", tools)
    assert name in ("CodeModeToolError", "Error")
    assert "secret" not in message
    assert "passwd" not in message


def test_a_validator_that_raises_is_a_hidden_tool_error(run, fails):
    class Odd(pydantic.BaseModel):
        a: int

        @pydantic.field_validator("a")
        @classmethod
        def check(cls, value):
            raise KeyError("/home/secret")

    tools = [Tool("odd", execute=echo, input_schema=Odd)]
    js = "return await tools.odd({a: 1})"
    error = fails(CodeModeToolError, js, tools)
    assert error.code == "CODE_MODE_HOST_TOOL_ERROR"
    assert run(f"try {{ {js} }} catch (e) {{ return e.message }}", tools) == "the tool failed"


# --- failures of tools ---


class HostSecretError(Exception):
    code = "E_SECRET"


@pytest.mark.parametrize("kind", ["async", "sync", "iterator"])
def test_what_a_tool_raises_stays_on_the_host(run, fails, kind):
    def fail_now():
        raise HostSecretError("password in /home/host/key.pem")

    async def fail_later():
        fail_now()

    async def fail_in_between():
        yield 1
        fail_now()

    execute = {"async": fail_later, "sync": fail_now, "iterator": fail_in_between}[kind]
    tools = [Tool("fail", execute=execute)]
    error = fails(CodeModeToolError, "await tools.fail()", tools)
    assert isinstance(error.__cause__, HostSecretError)
    assert error.code == "CODE_MODE_HOST_TOOL_ERROR"
    assert error.details["tool_name"] == "fail"
    js = """
      try { await tools.fail() } catch (e) {
        return [e.name, e.message, e.code, Object.getOwnPropertyNames(e).sort(), e instanceof Error, String(e), e.stack,
          e.cause, JSON.stringify(e)];
      }
    """
    seen = run(js, tools)
    assert seen[:5] == [
        "Error", "the tool failed", "CODE_MODE_HOST_TOOL_ERROR", ["code", "message", "name", "stack"], True,
    ]  # fmt: skip
    assert re.fullmatch(r"\s+at .*program\.js:2:\d+\)", seen[6])
    for word in ("secret", "Secret", "password", "key.pem", "host/", ".py", "Traceback", "<input>", "kernel"):
        assert word not in str(seen)


@pytest.mark.parametrize("error_class", [CodeModeError, CodeModeToolError, CodeModeFetchError, CodeModeProtocolError])
def test_a_code_mode_error_of_a_tool_keeps_name_message_and_code(run, fails, error_class):
    async def fail():
        raise error_class("chosen text", code="CHOSEN", details={"secret": 1})

    tools = [Tool("fail", execute=fail)]
    js = "try { await tools.fail() } catch (e) { return [e.name, e.message, e.code, e.details, 'secret' in e] }"
    assert run(js, tools) == [error_class.__name__, "chosen text", "CHOSEN", None, False]
    assert fails(error_class, "await tools.fail()", tools).details["secret"] == 1


@each_row("error", [StopIteration("x"), StopAsyncIteration(), SystemExit(3), TimeoutError()], ids=repr)
@each_row("kind", ["async", "sync"])
def test_no_exception_of_a_tool_hangs_or_ends_the_host(fails, error, kind):
    async def fail_later():
        raise error

    def fail_now():
        raise error

    execute = fail_later if kind == "async" else fail_now
    failure = fails(CodeModeToolError, "await tools.fail()", [Tool("fail", execute=execute)], timeout_ms=60_000)
    assert failure.code == "CODE_MODE_HOST_TOOL_ERROR"


def test_a_tool_whose_own_task_was_cancelled_is_a_failed_tool(fails):
    async def fail():
        raise asyncio.CancelledError

    failure = fails(CodeModeToolError, "await tools.fail()", [Tool("fail", execute=fail)], timeout_ms=60_000)
    assert failure.code == "CODE_MODE_HOST_TOOL_ERROR"


def test_a_tool_may_cancel_what_it_started(run):
    async def impatient():
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "survived"

    assert run("return await tools.impatient()", [Tool("impatient", execute=impatient)]) == "survived"


def test_an_uncaught_tool_error_names_the_place_in_the_program(fails):
    async def fail():
        raise RuntimeError

    error = fails(CodeModeToolError, "const x = 1;\n  await tools.fail()", [Tool("fail", execute=fail)])
    assert error.details["line"] == 2
    assert error.details["column"] in (14, 15)  # the dot or the name behind it


def test_a_rethrown_tool_error_is_still_the_hosts(fails):
    async def fail():
        raise RuntimeError("inner")

    js = "try { await tools.fail() } catch (e) { e.message = 'changed'; throw e }"
    error = fails(CodeModeToolError, js, [Tool("fail", execute=fail)])
    assert str(error.__cause__) == "inner"


def test_a_wrapped_tool_error_is_the_programs_own(fails):
    async def fail():
        raise RuntimeError("inner")

    js = "try { await tools.fail() } catch (e) { throw new Error('mine', {cause: e}) }"
    error = fails(CodeModeError, js, [Tool("fail", execute=fail)])
    assert str(error) == "mine (cause: Error: the tool failed)"


# --- what the model is told of it ---


@pytest.mark.parametrize(
    ("kind", "js", "hint"),
    [
        (CodeModeSerializationError, "return 'x'.repeat(400)", "Return less"),
        (CodeModeSerializationError, "await tools.echo('x'.repeat(400))", "Send less in one call"),
        (CodeModeSerializationError, "await tools.much()", "This is not the program's fault. Do without"),
        (CodeModeToolError, "await tools.wrong()", "This is not the program's fault: the tool broke its own output"),
        (CodeModeToolError, "await tools.strict({a: 'x'})", "Check the tool's name and the types of its input"),
    ],
)
def test_the_hint_for_a_failed_run_names_what_was_too_large_or_wrong(fails, kind, js, hint):
    tools = [
        ECHO,
        Tool("much", execute=lambda: "x" * 400),
        Tool("wrong", execute=lambda: 1, output_schema={"type": "string"}, output_validation="strict"),
        Tool("strict", execute=lambda _: 1, input_schema=OBJECT_SCHEMA),
    ]
    policy = {"max_result_bytes": 100, "max_tool_input_bytes": 100, "max_tool_output_bytes": 100}
    error = fails(kind, js, tools, options={"execution_policy": {**policy, "check_program": False}})
    assert failure_text(error, js).split("\n")[-1].startswith(f"Hint: {hint}")
