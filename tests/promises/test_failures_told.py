"""What went wrong is told to the host in full, in the log; the program reads that it failed."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, field_serializer, field_validator

from codemode import (
    CallContext,
    CodeModeError,
    CodeModeTimeoutError,
    CodeModeToolError,
    Tool,
    create_code_mode_tool,
    run_code_mode,
    run_code_mode_sync,
)

SECRET = "no route to db-7.internal"


CATCH = "try { await %s; return 'ran' } catch (error) { return [error.name, error.message, JSON.stringify(error)] }"


def broken(*_):
    raise KeyError(SECRET)


async def broken_async(*_):
    raise KeyError(SECRET)


async def broken_stream(*_):
    yield 1
    raise KeyError(SECRET)


async def broken_end(*_):
    raise GeneratorExit(SECRET)


def broken_generator(*_):
    yield 1
    raise KeyError(SECRET)


class OwnFields(CodeModeToolError):
    def __init__(self):
        self.details = "text"


class PickyAboutFields(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def check(cls, _value):
        raise OwnFields from KeyError(SECRET)


class Picky(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def check(cls, _value):
        raise KeyError(SECRET)


class Unwritable(BaseModel):
    n: int = 1

    def model_dump(self, **_):
        raise KeyError(SECRET)


class Strange:
    """What pydantic serialises by calling a function that fails."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _source, _handler):
        from pydantic_core import core_schema

        return core_schema.any_schema(serialization=core_schema.plain_serializer_function_ser_schema(broken))


def no_decision(_request):
    raise KeyError(SECRET)


HIDDEN = {
    "sync tool": (Tool("t", execute=broken), {}),
    "async tool": (Tool("t", execute=broken_async), {}),
    "async iterator": (Tool("t", execute=broken_stream), {}),
    "wrapped": (Tool("t", execute=lambda: _raise_from(CodeModeToolError("told"))), {}),
    "hidden by its code": (
        Tool("t", execute=lambda: _raise_from(CodeModeError("x", code="CODE_MODE_HOST_TOOL_ERROR"))),
        {},
    ),
    "validator": (Tool("t", execute=lambda _: 1, input_schema=Picky), {}),
    "output validator": (
        Tool("t", execute=lambda _: {"n": 1}, output_schema=Picky, output_validation="strict"),
        {},
    ),
    "serialiser": (Tool("t", execute=lambda _: Strange(), output_schema=Strange), {}),
    "needs_approval": (Tool("t", execute=lambda _: 1, needs_approval=broken), {}),
    "callback": (
        Tool("t", execute=lambda _: 1, needs_approval=True),
        {"approval": {"on_approval_required": no_decision}},
    ),
    "group": (Tool("t", execute=lambda: _raise(ExceptionGroup("several", [KeyError(SECRET)]))), {}),
    "exit": (Tool("t", execute=lambda: _raise(SystemExit(SECRET))), {}),
    "exit in a group": (Tool("t", execute=lambda: _raise(BaseExceptionGroup("g", [SystemExit(SECRET)]))), {}),
    "generator's end": (Tool("t", execute=lambda: _raise(GeneratorExit(SECRET))), {}),
    "generator's end, async": (Tool("t", execute=broken_end), {}),
    "generator": (Tool("t", execute=broken_generator), {}),
    "message that is no text": (Tool("t", execute=lambda: _raise_from(CodeModeToolError(KeyError(SECRET)))), {}),
    "code that is no text": (Tool("t", execute=lambda: _raise_from(CodeModeToolError("x", code=5))), {}),
    "fields of its own": (Tool("t", execute=lambda: _raise_from(OwnFields())), {}),
    "fields of its own, in a validator": (Tool("t", execute=lambda _: 1, input_schema=PickyAboutFields), {}),
}


def refusing(raised):
    """A type whose validator raises this."""

    def check(_value):
        raise raised(SECRET)

    return Annotated[int, AfterValidator(check)]


ENDS = [SystemExit, GeneratorExit, asyncio.CancelledError]


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize("raised", ENDS)
def test_a_validator_that_raises_what_ends_tasks_or_programs_has_failed(raised, size, caplog):
    class Rows(BaseModel):
        rows: list[refusing(raised)]
        rest: str

    taking = Tool("t", execute=lambda _: 1, input_schema=Rows)
    given = {"execute": lambda _: {"rows": [1], "rest": "x" * size}, "output_schema": Rows}
    strict, giving = Tool("t", **given, output_validation="strict"), Tool("t", **given)
    call = f"tools.t({{ rows: [1], rest: 'x'.repeat({size}) }})"
    for one in (taking, strict):
        assert run_code_mode_sync(CATCH % call, [one])[:2] == ["Error", "the tool failed"]
    assert run_code_mode_sync(f"return (await {call}).rows", [giving]) == [1]
    assert [record.exc_info[0] for record in logged(caplog) if record.exc_info] == [raised] * 3


def test_an_output_whose_writing_raises_is_a_failed_call(caplog):
    class Row(BaseModel):
        n: int = 1

        @field_serializer("n")
        def write(self, _value):
            raise SystemExit(SECRET)

    for one in (Tool("t", execute=lambda: Row()), Tool("t", execute=lambda: Row(), output_schema=Row)):
        told = run_code_mode_sync(CATCH % "tools.t()", [one])
        assert SECRET not in json.dumps(told)
        assert told[0] in ("Error", "CodeModeSerializationError")
    assert len(logged(caplog)) == 2


def _raise(error):
    raise error


def _raise_from(error):
    raise error from KeyError(SECRET)


def logged(caplog, name="codemode.tools"):
    return [record for record in caplog.records if record.name == name]


@pytest.mark.parametrize("case", HIDDEN)
def test_whatever_is_raised_behind_a_call_is_logged_with_its_traceback(case, caplog):
    one, options = HIDDEN[case]
    told = run_code_mode_sync(CATCH % "tools.t({ n: 1 })", [one], options=options)
    assert SECRET not in json.dumps(told)
    (record,) = logged(caplog)
    assert record.levelno == logging.ERROR
    assert "'t'" in record.getMessage()
    assert record.exc_info is not None
    assert SECRET in caplog.text


@pytest.mark.parametrize("case", HIDDEN)
def test_a_hook_that_hears_of_a_failure_replaces_the_log(case, caplog):
    one, options = HIDDEN[case]
    heard = []
    options = {**options, "lifecycle": {"on_nested_tool_result": heard.append}}
    run_code_mode_sync(CATCH % "tools.t({ n: 1 })", [one], options=options)
    assert logged(caplog) == []
    assert SECRET in json.dumps(heard[0].to_dict(causes=True))


def test_a_listener_of_traces_does_not_replace_the_log(caplog):
    traces = []
    run_code_mode_sync(
        CATCH % "tools.t()", [HIDDEN["sync tool"][0]], options={"lifecycle": {"on_trace": traces.append}}
    )
    assert len(logged(caplog)) == len(traces) == 1


def test_what_the_program_was_told_in_full_is_not_logged(caplog):
    def refuse():
        raise CodeModeToolError("shipped already")

    js = "return Promise.allSettled([tools.refuse(), tools['no' + 'ne'](), tools.n(JSON.parse('1'))])"
    run_code_mode_sync(js, [refuse, Tool("n", execute=lambda _: 1, input_schema={"type": "object"})])
    assert caplog.records == []


def test_a_failed_fetch_is_logged_and_a_refused_one_is_not(caplog):
    async def fetch(*_, **__):
        raise KeyError(SECRET)

    policy = {"fetch": fetch, "allowed_origins": ["http://mine.localhost"]}
    js = "return Promise.allSettled([fetch('http://mine.localhost/a?key=1'), fetch('http://other.localhost/')])"
    told = run_code_mode_sync(js, [], options={"fetch_policy": policy})
    assert [one["status"] for one in told] == ["rejected", "rejected"]
    (record,) = logged(caplog, "codemode.fetch")
    assert "key=1" not in record.getMessage()
    assert SECRET in caplog.text


@pytest.mark.parametrize("how", ["function", "generator"])
def test_a_tool_that_fails_after_its_invocation_ended_is_logged(how, caplog):
    begun, go_on, ended = (threading.Event() for _ in range(3))

    class Told(logging.Handler):
        def emit(self, record):
            if record.name == "codemode.tools":
                ended.set()

    def fail_late():
        begun.set()
        assert go_on.wait(60)
        raise KeyError(SECRET)

    def stream_late():
        yield 1
        fail_late()

    late = Tool("late", execute=fail_late if how == "function" else stream_late)

    async def cut_off():
        task = asyncio.ensure_future(run_code_mode("return await tools.late()", [late]))
        assert await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    logger, handler = logging.getLogger(), Told()  # behind the one that keeps the text
    logger.addHandler(handler)
    try:
        asyncio.run(asyncio.wait_for(_while(go_on, cut_off()), 60))
        assert ended.wait(60)
    finally:
        logger.removeHandler(handler)
    assert SECRET in caplog.text


async def _while(go_on, work):
    try:
        await work
    finally:
        go_on.set()


def test_an_async_tool_that_fails_as_it_is_cancelled_is_logged(caplog, passing_time):
    async def stubborn():
        passing_time.skip(61)
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError(SECRET)

    with pytest.raises(CodeModeTimeoutError):
        run_code_mode_sync(
            "return await tools.stubborn()", [stubborn], options={"execution_policy": {"timeout_ms": 60_000}}
        )
    assert SECRET in caplog.text


def test_what_makes_a_summary_for_the_model_is_logged_when_it_fails(caplog):
    options = {"model_output": {"include_nested_tool_outputs": True}}
    code_mode = create_code_mode_tool([Tool("t", execute=lambda: [1], to_model_output=broken)], options)
    result = code_mode.execute_sync({"js": "return await tools.t()"}, call=CallContext(tool_call_id="c"))
    assert SECRET not in json.dumps(code_mode.to_model_output(result, tool_call_id="c"))
    assert SECRET in caplog.text


def test_a_pause_after_an_error_with_fields_of_its_own_goes_on():
    tools = [HIDDEN["code that is no text"][0], Tool("gated", execute=lambda _: 1, needs_approval=True)]
    code_mode = create_code_mode_tool(tools, {"approval": {"mode": "interrupt"}})
    paused = code_mode.execute_sync({"js": "await tools.t().catch(() => 0); return await tools.gated()"})
    assert code_mode.resume_sync(paused, {"approved": True}) == 1


def test_a_handler_that_raises_changes_nothing():
    class Broken(logging.Handler):
        def emit(self, _record):
            raise KeyError("handler")

    logger, handler = logging.getLogger("codemode.tools"), Broken()
    logger.addHandler(handler)
    try:
        assert run_code_mode_sync(CATCH % "tools.t()", [Tool("t", execute=broken)])[1] == "the tool failed"
    finally:
        logger.removeHandler(handler)
