"""The host's functions around every call: what they are told, and what they may change."""

from __future__ import annotations

import threading
from dataclasses import FrozenInstanceError

import pydantic
import pytest
from pausing import Spy
from pipeline_hooks import BOTH, CATCH, TOKEN, Token, echo, hooks, scrubbing
from suite import each_row

from codemode import Tool
from codemode.errors import CodeModeSerializationError, CodeModeSyntaxError
from codemode.types import PIPELINE_NULL, PipelineCall


@BOTH
def test_the_hooks_stand_around_validation_and_the_tool(run, kind):
    order = []

    class Checked(pydantic.BaseModel):
        token: str

        @pydantic.field_validator("token")
        @classmethod
        def note(cls, value):
            order.append(f"validate {value}")
            return value

    def execute(value):
        order.append(f"execute {value.token}")
        return {"got": value.token}

    tool = Tool("take", execute=execute, input_schema=Checked, needs_approval=lambda value: order.append("approve?"))
    options = hooks(
        lambda call: order.append(f"before {call.input}") or scrubbing(call),
        lambda call, output: order.append(f"after {call.input} {output}") or {"seen": True},
        kind,
    )
    assert run("return await tools.take({token: 'secret'})", [tool], options=options) == {"seen": True}
    assert [step for step in order if "validate" not in step] == [
        "before {'token': 'secret'}",
        "approve?",
        "execute ***",
        "after {'token': '***'} {'got': '***'}",
    ]
    assert order[0] == "validate secret"
    assert order[order.index("before {'token': 'secret'}") + 1] == "validate ***"


@BOTH
def test_a_call_is_a_frozen_value_with_everything_about_it(run, kind):
    told = []
    options = hooks(told.append, lambda call, _output: told.append(call), kind)
    context = {"user": 7}
    run("return await tools.echo({a: [1]})", [echo()], options=options, tool_call_id="outer", context=context)
    expected = PipelineCall(
        tool_name="echo",
        input={"a": [1]},
        tool_call_id="outer:tool-1",
        outer_tool_call_id="outer",
        context=context,
        tool_id="echo",
    )
    assert told == [expected, expected]
    assert told[0].source == "script"
    assert told[0].context is context
    with pytest.raises(FrozenInstanceError):
        told[0].input = {}


@BOTH
def test_copies_are_theirs_and_change_nothing(run, kind):
    def before(call):
        call.input["token"] = "changed"

    def after(call, output):
        call.input.clear()
        output["token"] = "changed"

    assert run("return await tools.echo({token: 'a'})", [echo()], options=hooks(before, after, kind)) == {"token": "a"}


@BOTH
@each_row("given", [None, False, 0, "", [], {}])
def test_none_changes_nothing_and_everything_else_is_a_value(run, kind, given):
    seen = []
    tool = Tool("echo", execute=lambda value: seen.append(value) or {"ran": True})
    options = hooks(lambda _call: given, lambda _call, _output: given, kind)
    result = run("return await tools.echo({a: 1})", [tool], options=options)
    assert (seen, result) == (([{"a": 1}], {"ran": True}) if given is None else ([given], given))


def test_a_program_reads_what_after_adds_to_a_closed_output_and_without_it_is_told(run, fails):
    closed = {"type": "object", "properties": {"got": {}}, "additionalProperties": False}
    tools = [Tool("take", execute=lambda _: {"got": 1}, output_schema=closed)]
    js = "return (await tools.take({})).stamp"
    adding = hooks(None, lambda _call, output: {**output, "stamp": 2}, "sync")
    assert [run(js, tools, options=adding) for _ in range(2)] == [2, 2]
    assert "result.stamp does not exist" in str(fails(CodeModeSyntaxError, js, tools))


@BOTH
def test_the_word_for_null_puts_null_in_place_of_input_and_output(run, kind):
    seen = []
    tool = Tool("echo", execute=lambda value: seen.append(value) or 5)
    options = hooks(lambda _call: PIPELINE_NULL, lambda _call, _output: PIPELINE_NULL, kind)
    assert run("return [await tools.echo({a: 1})]", [tool], options=options) == [None]
    assert seen == [None]
    assert repr(PIPELINE_NULL) == "PIPELINE_NULL"


@BOTH
def test_nothing_is_none_and_stays_undefined_unless_it_is_replaced(run, kind):
    seen = []
    tool = Tool("nothing", execute=lambda _value: None)
    js = "const got = await tools.nothing(); return [got === undefined, got === null]"
    assert run(js, [tool], options=hooks(None, lambda _call, output: seen.append(output), kind)) == [True, False]
    assert run(js, [tool], options=hooks(None, lambda _call, _output: PIPELINE_NULL, kind)) == [False, True]
    assert seen == [None]


def test_exact_integers_pass_through_both(run):
    big = 2**63 + 1
    options = hooks(lambda call: {**call.input, "x": 1}, lambda _call, output: {**output, "y": big})
    js = f"const got = await tools.echo({{n: {big}n}}); return [String(got.n), got.x, String(got.y)]"
    assert run(js, [echo()], options=options) == [str(big), 1, str(big)]


@BOTH
def test_a_replaced_input_is_validated_again(run, kind):
    spy = Spy()
    tool = spy.tool("take", input_schema=Token)
    assert run("return await tools.take({token: 'a', count: 2})", [tool], options=hooks(scrubbing, kind=kind))
    assert run("return await tools.take({token: 'a', count: 2})", [tool], options=hooks(lambda _call: {"token": "b"}))
    assert spy.ran == [("take", Token(token="***", count=2)), ("take", Token(token="b", count=1))]


@BOTH
@each_row("wrong", [{}, {"token": "far too long"}, [], PIPELINE_NULL])
def test_a_replaced_input_that_is_no_input_runs_nothing(run, kind, wrong):
    spy = Spy()
    tool = spy.tool("take", input_schema=TOKEN)
    name, code, message = run(CATCH % "take({token: 'a'})", [tool], options=hooks(lambda _call: wrong, kind=kind))
    assert (name, code) == ("CodeModeToolError", "CODE_MODE_TOOL_ERROR")
    assert "Invalid input" in message
    assert spy.ran == []


@BOTH
@each_row("wrong", [object(), {"a": object()}, 10**1001, "x" * 3000, list(range(600))])
def test_a_replaced_input_that_is_no_json_or_too_much_fails_closed(run, kind, wrong):
    spy = Spy()
    options = hooks(lambda _call: wrong, kind=kind)
    limits = {"max_tool_input_bytes": 2000, "max_values": 512}
    answer = run(CATCH % "take({token: 'a'})", [spy.tool("take")], options=options, **limits)
    assert answer == ["Error", "CODE_MODE_HOST_TOOL_ERROR", "the tool failed"]
    assert spy.ran == []


@BOTH
@each_row("wrong", [object(), {"a": object()}, 10**1001, "x" * 3000, list(range(600))])
def test_a_replaced_output_is_checked_and_counted_as_any(fails, kind, wrong):
    options = hooks(None, lambda _call, _output: wrong, kind)
    error = fails(
        CodeModeSerializationError, "return await tools.echo(1)", [echo()], options=options,
        max_tool_output_bytes=2000, max_values=512,
    )  # fmt: skip
    assert error.message.startswith("the output of tool 'echo'")


def test_after_hears_of_an_output_that_is_valid_and_of_others_where_they_are_passed_on(run):
    heard = []
    tool = echo(output_schema={"type": "integer"})
    options = hooks(None, lambda _call, output: heard.append(output) or "not validated again")
    assert run("return await tools.echo(5)", [tool], options=options) == "not validated again"
    assert run("return await tools.echo('x')", [tool], options=options) == "not validated again"
    strict = echo(output_schema={"type": "integer"}, output_validation="strict")
    assert "Invalid output" in run(CATCH % "echo('y')", [strict], options=options)[2]
    assert heard == [5, "x"]


def test_sync_hooks_leave_the_event_loop_alone(run):
    threads = []
    note = lambda *_: threads.append(threading.current_thread())  # noqa: E731
    run("return await tools.echo(1)", [echo()], options=hooks(note, note))
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_every_call_goes_through_them_and_other_requests_do_not(run):
    heard = []
    options = hooks(lambda call: heard.append((call.tool_name, call.input)))
    js = """
      await tools.$search("echo"); await tools.$describe("echo");
      const add = (n) => tools.echo(n);
      await Promise.all([add(1), add(2), tools["echo"](3)]);
      try { await tools[["no", "ne"].join("")](4) } catch {}
    """
    run(js, [echo()], options=options)
    assert sorted(heard) == [("echo", 1), ("echo", 2), ("echo", 3)]
