"""The two seams, with a surface that only this file knows: its `Profile` goes in, its `RunOutcome` comes out as a dict.

It is strict where `codeMode` is sloppy, has no console and no fetch, one kind of request, and limits of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from calls import with_call
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pausing import PAUSING, Spy
from suite import each_row

from codemode import (
    CallContext,
    CodeModeAbortedError,
    CodeModeError,
    CodeModeOptions,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    ExecutionPolicy,
    Interrupt,
    Tool,
    WorkerPool,
    continue_interrupt,
    create_code_mode_tool,
    run_code_mode,
)
from codemode.execution.starting import get_pool_and_import_execution, import_execution_module, import_resume_module
from codemode.profile import GuestSettings, SurfaceSettings
from codemode.tools.catalog import Catalog
from codemode.tools.collecting import collect_tools

STRICT = SurfaceSettings(
    name="strictPrograms",
    outer_tool="runStrict",
    guest=GuestSettings(wrapper="strict", globals=("tools",)),
    request_kinds=frozenset({"tool"}),
    limits=ExecutionPolicy(max_bridge_requests=2, max_result_bytes=50, max_source_bytes=400, timeout_ms=8_000),
)
KEYED = {**PAUSING, "continuation": {"keys": "a key of this test"}}
OK = {"approved": True}


async def strict(js: str, tools: Any = (), options: Any = None, pool: Any = None, **outer: Any) -> dict[str, Any]:
    """Run a program of this surface. Returns its outcome as plain data; nothing of the program is raised."""
    settings = CodeModeOptions.of(options)
    workers = await get_pool_and_import_execution(pool, settings)
    run = import_execution_module()
    catalog = Catalog(collect_tools(tools))
    return as_dict(
        await run.Execution(STRICT, catalog, settings, run.OuterCallSettings(**with_call(outer)), workers).start(js)
    )


async def strict_again(interrupt: Any, answer: Any, tools: Any, options: Any = None, **outer: Any) -> dict[str, Any]:
    """Go on with a paused program of this surface."""
    go_on, run = import_resume_module(), import_execution_module()

    def answers(paused: Interrupt) -> dict[str, Any]:
        return go_on.normalize_answers_by_id(paused, answer, None)

    catalog, given = Catalog(collect_tools(tools)), run.OuterCallSettings(**with_call(outer))
    return as_dict(await go_on.resume_program(STRICT, interrupt, answers, catalog, options, given, None))


def as_dict(outcome: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"status": outcome.status, "calls": [(one["name"], one["status"]) for one in outcome.calls]}
    if outcome.status == "completed":
        said["value"] = outcome.value
    elif outcome.status == "interrupted":
        said["interrupt"] = outcome.interrupt
    else:
        details = outcome.error.details
        said |= {"error": outcome.error, "at": (details.get("line"), details.get("column"))}
    said["console"] = [line.text for line in outcome.console]
    return {**said, "trace": outcome.trace, "is_replayed": outcome.is_replayed, "outer": outcome.outer_tool_call_id}


async def echo(value: Any) -> Any:
    return value


ECHO = Tool("echo", execute=echo)


def failed(within: Any, js: str, *given: Any, **settings: Any) -> dict[str, Any]:
    said = within(strict(js, *given, **settings))
    assert said["status"] == "failed", said
    return said


# --- the profile that goes in: the guest ---


@pytest.mark.parametrize(
    ("js", "in_strict", "in_sloppy"),
    [
        ("return (function () { return this === undefined })()", True, False),
        ("return this === undefined", True, False),
        ("undeclared = 1; return 'made'", "ReferenceError", "made"),
        ("try { undeclared = 1 } catch (error) { return error.name } return 'made'", "ReferenceError", "made"),
        ("const a = Object.freeze([1]); a[0] = 2; return a[0]", "TypeError", 1),
        ("return (function (a) { arguments[0] = 2; return a })(1)", 1, 2),
        ("return typeof (function () { return this }).call(1)", "number", "object"),
    ],
)
def test_the_wrapper_is_the_profiles(within, js, in_strict, in_sloppy):
    caught = f"try {{ return await (async function () {{ {js} }})() }} catch (error) {{ return error.name }}"
    sloppy, said = within(run_code_mode(caught, ())), within(strict(js))
    value = said["value"] if said["status"] == "completed" else said["error"].details["name"]
    assert (value, sloppy) == (in_strict, in_sloppy)


def marked(js: str) -> tuple[str, tuple[int, int]]:
    """Return a program without its mark, and where that stood: line and column, in UTF-16 units."""
    before, after = js.split("\u00a7")
    start = before.rpartition("\n")[2]
    return before + after, (before.count("\n") + 1, len(start.encode("utf-16-le")) // 2 + 1)


@each_row(
    "js",
    [
        "throw new \u00a7Error('a')",
        "/* \U0001f600\u00fc */ throw new \u00a7Error('a')",
        "\u00a7nothing()",
        "const a = 1\n  \u00a7nothing()",
        "const a = 1\r\n\n/* \U0001f600 */ \u00a7nothing()",
        "await tools.echo(1)\nawait null; \u00a7nothing()",
        "const o = {}; \u00a7o.a.b",
        "const a = 1; \u00a7a = 2",
    ],
)
def test_errors_have_the_models_own_positions_in_both_wrappers(within, js):
    js, place = marked(js)
    with pytest.raises(CodeModeError) as caught:
        within(run_code_mode(js, [ECHO]))
    sloppy = caught.value.details["line"], caught.value.details["column"]
    assert (failed(within, js, [ECHO])["at"], sloppy) == (place, place)


@pytest.mark.parametrize("js", ["return (", "return 1 1", "const a = 1\nconst a = 2", "let x = 08n", "a\nb c d"])
def test_syntax_errors_too(within, js):
    with pytest.raises(CodeModeError) as caught:
        within(run_code_mode(js, ()))
    assert failed(within, js)["at"] == (caught.value.details["line"], caught.value.details["column"])


@pytest.mark.parametrize(
    ("js", "place"),
    [
        ("with ({}) { }", (1, 1)),
        ("var a = 010", (1, 9)),
        ("/* \u00fc */ var a = 010", (1, 17)),
        ("return 1;\n  var a = 010", (2, 11)),
    ],
)
def test_what_only_strict_programs_may_not_say_is_placed_right(within, js, place):
    said = failed(within, js)
    assert said["error"].code == "CODE_MODE_SYNTAX_ERROR"
    assert said["at"] == place


def test_globals_that_the_profile_has_not_are_not_there(within, make_pool):
    names = "[typeof console, typeof fetch, typeof tools, typeof globalThis.console]"
    open_to_fetch = {"fetch_policy": {"allowed_origins": ["https://example.com"]}}
    pool = make_pool(max_workers=1)
    assert within(strict(f"return {names}", pool=pool))["value"] == ["undefined", "undefined", "function", "undefined"]
    value = within(run_code_mode(f"return {names}", (), options=open_to_fetch, pool=pool))
    assert value == ["object", "function", "function", "object"]
    assert within(strict("console.log(1)", pool=pool))["error"].details["name"] == "ReferenceError"
    assert within(strict(f"return {names}", (), open_to_fetch, pool))["value"][1] == "undefined"


@pytest.mark.parametrize("js", ["return tools.$search('echo')", "return tools.$describe('echo')"])
def test_a_kind_of_request_that_the_profile_has_not_breaks_the_protocol(within, js):
    said = failed(within, js, [ECHO])
    assert type(said["error"]) is CodeModeProtocolError
    assert "catalog" in said["error"].message


# --- limits ---


def test_the_limits_of_the_profile_hold_where_the_host_says_nothing(within):
    three = "for (let i = 0; i < 3; i++) await tools.echo(i); return 'done'"
    said = failed(within, three, [ECHO])
    assert said["error"].details == {**said["error"].details, "limit": "max_bridge_requests", "max": 2}
    assert said["calls"] == [("echo", "fulfilled")] * 2
    assert within(strict(three, [ECHO], {"execution_policy": {"max_bridge_requests": 3}}))["value"] == "done"
    assert within(run_code_mode(three, [ECHO])) == "done"


def test_each_limit_that_the_host_sets_leaves_the_others_to_the_profile(within):
    policy = {"execution_policy": {"max_bridge_requests": 3}}
    assert failed(within, "return 'x'.repeat(49)", (), policy)["error"].code == "CODE_MODE_SERIALIZATION_ERROR"
    assert within(strict("return 'x'.repeat(48)", (), policy))["value"] == "x" * 48


# --- one pool, one cache, two profiles ---


def test_spares_and_analysed_programs_serve_both_in_turn(within, make_pool):
    pool = make_pool(max_workers=1, spare_workers=1)
    js = "const made: boolean = (function () { return this === undefined })(); return [made, typeof console]"

    async def in_turn() -> list[Any]:
        values: list[Any] = []
        for _ in range(4):
            values.append(await run_code_mode(js, (), pool=pool))
            values.append((await strict(js, pool=pool))["value"])
        return values

    assert within(in_turn()) == [[False, "object"], [True, "undefined"]] * 4


def test_both_run_at_once(within, make_pool):
    pool = make_pool(max_workers=4)
    js = "await tools.echo(1); return (function () { return this === undefined })()"

    async def at_once() -> list[Any]:
        ours = [strict(js, [ECHO], pool=pool) for _ in range(2)]
        return await asyncio.gather(*ours, *(run_code_mode(js, [ECHO], pool=pool) for _ in range(2)))

    first, second, *sloppy = within(at_once())
    assert (first["value"], second["value"], sloppy) == (True, True, [False, False])


# --- pauses ---


def test_a_pause_goes_on_under_its_own_profile_alone(within):
    spy = Spy()
    js = "const one = await tools.refund(1); return [one.done, (function () { return this === undefined })()]"

    async def both() -> Any:
        ours = (await strict(js, [spy.guarded()], KEYED))["interrupt"]
        theirs = await run_code_mode(js, [spy.guarded()], options=KEYED)
        refused: list[Any] = []
        for attempt in (
            continue_interrupt(ours, OK, tools=[spy.guarded()], options=KEYED),
            strict_again(theirs, OK, [spy.guarded()], KEYED),
            strict_again(theirs.to_dict(), OK, [spy.guarded()], KEYED),
        ):
            with pytest.raises(CodeModeProtocolError) as caught:
                await attempt
            refused.append((caught.value.details["origin"], "strictPrograms" in str(caught.value)))
        assert spy.ran == []
        value = await continue_interrupt(theirs, OK, tools=[spy.guarded()], options=KEYED)
        return refused, await strict_again(ours.to_dict(), OK, [spy.guarded()], KEYED), value

    refused, said, value = within(both())
    assert refused == [("continuation", True)] * 3
    assert (said["value"], value) == (["refund", True], ["refund", False])
    assert [name for name, _ in spy.ran] == ["refund"] * 2


def test_the_limits_of_the_pause_hold_when_it_goes_on(within):
    js = "await tools.refund(1); await tools.echo(1); await tools.echo(2); return 'done'"
    tools = [Spy().guarded(), ECHO]

    async def paused() -> Any:
        interrupt = (await strict(js, tools, KEYED))["interrupt"]
        return await strict_again(interrupt, OK, tools, {**KEYED, "execution_policy": {"max_bridge_requests": 9}})

    said = within(paused())
    assert said["error"].details["limit"] == "max_bridge_requests"
    assert said["error"].details["is_resumed"] is True


def test_derived_ids_differ_by_profile(within):
    outer = {"tool_call_id": "call_1", "conversation_id": "thread", "started_at_ms": 1_700_000_000_000}
    limits = {"execution_policy": {name: getattr(STRICT.limits, name) for name in ("max_bridge_requests",)}}
    js, options = "await tools.refund(1)", {**KEYED, **limits}

    async def ids() -> list[str]:
        ours = [await strict(js, [Spy().guarded()], options, **outer) for _ in range(2)]
        theirs = await run_code_mode(js, [Spy().guarded()], options=options, call=CallContext(**outer))
        return [*(one["interrupt"].interrupt_id for one in ours), theirs.interrupt_id]

    first, again, theirs = within(ids())
    assert first == again != theirs


# --- the outcome that comes out ---


@each_row(
    "js, code",
    [
        ("throw new Error('mine')", "CODE_MODE_ERROR"),
        ("return (", "CODE_MODE_SYNTAX_ERROR"),
        ("```js\nreturn (\n```", "CODE_MODE_SYNTAX_ERROR"),
        ("return 1 //" + "x" * 400, "CODE_MODE_SOURCE_TOO_LARGE"),
        ("return 'x'.repeat(60)", "CODE_MODE_SERIALIZATION_ERROR"),
        ("return 10n ** 30n", None),
        ("tools.echo(1)", "CODE_MODE_DETACHED_BRIDGE_REQUEST"),
        ("await new Promise(() => {})", "CODE_MODE_DEADLOCK"),
        ("await tools.fail(1)", "CODE_MODE_HOST_TOOL_ERROR"),
        ("const x = 1; await tools.nothing(x)", "CODE_MODE_SYNTAX_ERROR"),
        ("await tools[['no', 'thing'].join('')](1)", "CODE_MODE_TOOL_ERROR"),
    ],
)
def test_nothing_that_belongs_to_the_program_is_raised(within, js, code):
    def fail(_value: Any) -> None:
        raise LookupError("the host's own words")

    said = within(strict(js, [ECHO, Tool("fail", execute=fail)], tool_call_id="outer"))
    assert said["outer"] == "outer"
    if code is None:
        assert (said["status"], said["value"]) == ("completed", 10**30)
    else:
        assert (said["status"], said["error"].code) == ("failed", code)
        assert said["trace"] is said["error"].trace


def test_a_timeout_is_an_outcome_with_its_calls_and_a_way_on(within, passing_time):
    async def hang(_value: Any) -> None:
        passing_time.skip(61)
        await asyncio.Event().wait()

    tools = [ECHO, Tool("hang", execute=hang)]
    minute = {"execution_policy": {"timeout_ms": 60_000}}
    said = failed(within, "await tools.echo(1); await tools.hang(1)", tools, minute)
    assert type(said["error"]) is CodeModeTimeoutError
    assert said["calls"] == [("echo", "fulfilled"), ("hang", "unknown")]
    recovered = within(strict_again(said["error"].recovery, {"value": 7}, tools))
    assert (recovered["status"], recovered["calls"]) == ("completed", [("echo", "fulfilled"), ("hang", "fulfilled")])


def test_a_pool_without_room_is_an_outcome_too(within, make_pool):
    pool = make_pool(max_workers=1)

    async def crowded() -> Any:
        reached, release = asyncio.Event(), asyncio.Event()

        async def wait(_value: Any) -> None:
            reached.set()
            await release.wait()

        first = asyncio.ensure_future(strict("await tools.wait(1)", [Tool("wait", execute=wait)], pool=pool))
        await reached.wait()
        said = await strict("return 1", pool=pool)
        release.set()
        return said, await first

    refused, first = within(crowded())
    assert (refused["status"], refused["error"].code) == ("failed", "CODE_MODE_CONCURRENCY_LIMIT")
    assert first["status"] == "completed"


def test_only_a_cancelled_caller_gets_an_exception(within):
    async def cancelled() -> BaseException:
        reached = asyncio.Event()

        async def hang(_value: Any) -> None:
            reached.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(strict("await tools.hang(1)", [Tool("hang", execute=hang)]))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value

    cause = within(cancelled()).__cause__
    assert type(cause) is CodeModeAbortedError
    assert (len(cause.calls), cause.recovery is not None, cause.trace is not None) == (1, True, True)


@pytest.mark.parametrize("js", [1, None, b"return 1", ["return 1"]])
def test_what_is_no_text_is_refused(within, js):
    with pytest.raises(ValueError, match="must be a string"):
        within(strict(js))


def test_wrong_options_are_refused(within):
    with pytest.raises(ValueError, match=r"execution_policy\.timeout_ms"):
        within(strict("return 1", (), {"execution_policy": {"timeout_ms": -1}}))


def test_a_trace_comes_when_it_is_asked_for(within):
    js = "await tools.echo(1); return 2"
    plain, traced = within(strict(js, [ECHO])), within(strict(js, [ECHO], is_traced=True))
    assert (plain["trace"], plain["calls"]) == (None, [("echo", "fulfilled")])
    assert [one.tool_name for one in traced["trace"].bridge_requests] == ["echo"]
    watched = within(strict(js, [ECHO], {"lifecycle": {"on_trace": lambda trace: None}}))
    assert watched["trace"].status == "completed"


def test_an_outcome_that_was_recorded_is_a_run_of_which_nothing_more_is_known(within):
    spy = Spy()
    tools = [spy.guarded()]

    async def twice(js: str) -> Any:
        interrupt = (await strict(js, tools, KEYED))["interrupt"]
        return [await strict_again(interrupt, OK, tools, KEYED, is_traced=True) for _ in range(2)]

    first, again = within(twice("const a = await tools.refund(1); return a.done"))
    assert (first["value"], first["is_replayed"], first["trace"].status) == ("refund", False, "completed")
    assert (again["value"], again["is_replayed"], again["trace"]) == ("refund", True, None)
    first, again = within(twice("await tools.refund(1); throw new Error('mine')"))
    assert (first["status"], again["status"]) == ("failed", "failed")
    assert (str(first["error"]), first["calls"]) == (str(again["error"]), again["calls"])
    assert (first["is_replayed"], again["is_replayed"]) == (False, True)
    first, again = within(twice("await tools.refund(1); await tools.refund(2)"))
    assert first["interrupt"].to_dict() == again["interrupt"].to_dict()
    assert len(spy.ran) == 3


def test_spans_name_what_the_model_calls(within):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    options = {"telemetry": {"is_enabled": True, "tracer": provider.get_tracer("test")}}
    within(strict("await tools.echo(1)", [ECHO], options))
    outer = [span.name for span in exporter.get_finished_spans() if span.parent is None]
    assert outer == ["execute_tool runStrict"]


def test_code_mode_words_the_same_outcomes_as_values_and_exceptions(within):
    code_mode = create_code_mode_tool([ECHO], {"execution_policy": {"max_result_bytes": 50}})
    assert within(code_mode.execute({"js": "return 1"})) == within(strict("return 1"))["value"]
    with pytest.raises(CodeModeError) as caught:
        within(code_mode.execute({"js": "return 'x'.repeat(60)"}))
    said = failed(within, "return 'x'.repeat(60)")
    assert (type(caught.value), str(caught.value)) == (type(said["error"]), str(said["error"]))


def test_the_pool_is_whole_afterwards(within, make_pool):
    pool: WorkerPool = make_pool(max_workers=1)
    for js in ("return 1", "throw 1", "return (", "await new Promise(() => {})"):
        within(strict(js, pool=pool))
    assert within(strict("return 1", pool=pool))["value"] == 1
