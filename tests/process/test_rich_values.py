"""With ``values="rich"`` dates, bytes and sets cross as such, both ways, on every surface and through every pause."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import aclosing
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from four_surfaces import SURFACES, answer_on
from pausing import OK, Spy, go_on, start, through_json
from pydantic import BaseModel
from waiting import within

from codemode import (
    CallContext,
    CodeModeError,
    Interrupt,
    MediaContent,
    Tool,
    create_code_mode_tool,
    create_exec_wait_tools,
)
from codemode.continuations.journal import MemoryJournal

RICH: dict[str, Any] = {"execution_policy": {"values": "rich"}}
PAUSING: dict[str, Any] = {**RICH, "approval": {"mode": "interrupt"}}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = datetime(2026, 1, 2, 12, 30, 0, 5000, UTC)
BYTES = b"\x00\xff"


class Event(BaseModel):
    at: datetime
    day: date
    tags: set[str] = set()
    data: bytes = b""


def run(js: str, tools: Any = (), options: Any = RICH) -> Any:
    return within(create_code_mode_tool(tools, options).execute(js))


def error_of(js: str, tools: Any = ()) -> CodeModeError:
    with pytest.raises(CodeModeError) as raised:
        run(js, tools)
    return raised.value


def anything(name: str = "echo", **settings: Any) -> Tool:
    return Tool(name, execute=lambda given: given, **settings)


def test_values_arrive_in_the_program_as_such():
    def load() -> dict[str, Any]:
        return {"at": NOON, "day": date(2026, 1, 2), "data": BYTES, "tags": {"a"}, "ids": frozenset({1})}

    js = """
    const { at, day, data, tags, ids } = await tools.load();
    return [at instanceof Date, at.toISOString(), day.getTime(), data instanceof Uint8Array, [...data],
      tags instanceof Set, tags.has("a"), ids.size];
    """
    midnight = int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000)
    assert run(js, [load]) == [True, "2026-01-02T12:30:00.005Z", midnight, True, [0, 255], True, True, 1]


def test_values_come_back_as_such():
    seen: list[Any] = []
    echo = Tool("echo", execute=seen.append)
    js = """
    const at = new Date(0), more = new Map([["at", at]]);
    await tools.echo({ at, data: new Uint8Array([0, 255]), tags: new Set(["a", at]), more, ids: [new Set([{}])] });
    return [at, new Uint8Array([0, 255]), new Set(["a"])];
    """
    assert run(js, [echo]) == [EPOCH, BYTES, {"a"}]
    assert seen == [{"at": EPOCH, "data": BYTES, "tags": {"a", EPOCH}, "more": {"at": EPOCH}, "ids": [[{}]]}]


def test_types_of_a_tool_are_what_it_gets():
    seen: list[Event] = []

    def save(event: Event, count: int = 2) -> list[Event]:
        seen.append(event)
        return [event] * count

    js = """
    const [one] = await tools.save({ event: { at: new Date(0), day: new Date(0), tags: new Set(["a"]),
      data: new Uint8Array([0, 255]) } });
    return [one.at instanceof Date, one.tags instanceof Set, one.data instanceof Uint8Array, one];
    """
    *kinds, event = run(js, [save])
    assert kinds == [True, True, True]
    assert event == {"at": EPOCH, "day": EPOCH, "tags": {"a"}, "data": BYTES}
    assert seen == [Event(at=EPOCH, day=EPOCH.date(), tags={"a"}, data=BYTES)]
    # Text that a type reads is read as ever.
    run('await tools.save({ event: { at: "1970-01-01T00:00:00Z", day: "1970-01-01", tags: ["a"] } })', [save])
    assert seen[1] == Event(at=EPOCH, day=EPOCH.date(), tags={"a"})


def test_a_tool_with_a_json_schema_gets_json():
    seen: list[Any] = []
    schema = {"type": "object", "properties": {"at": {"type": "string"}, "tags": {"type": "array"}}}
    save = Tool("save", execute=seen.append, input_schema=schema)
    run("await tools.save({ at: new Date(0), tags: new Set([1]), data: new Uint8Array([1]), $rich: 1 })", [save])
    assert seen == [{"at": "1970-01-01T00:00:00.000Z", "tags": [1], "data": "AQ==", "$rich": 1}]


def test_data_that_looks_like_a_tag_stays_data():
    looks = [
        {"$rich": ["Date", "1970-01-01T00:00:00.000Z"]},
        {"$$rich": 1},
        {"$rich": {"$rich": ["Set", []]}},
        {"$rich": 1},
    ]
    seen: list[Any] = []
    for tool in (
        Tool("echo", execute=lambda given: (seen.append(given), given)[1]),
        Tool("echo", execute=lambda given: (seen.append(given), given)[1], input_schema={"type": "array"}),
    ):
        text = json.dumps(looks)
        js = f"const same = await tools.echo(JSON.parse({text!r})); return [JSON.stringify(same) === {text!r}, same]"
        assert run(js.replace(", ", ",").replace(": ", ":"), [tool])[1] == looks
        assert seen.pop() == looks
    assert run("return new Map([['$rich', ['Set', []]]])") == {"$rich": ["Set", []]}
    assert run("return { toJSON() { return { $rich: ['Date', 'x'] } } }") == {"$rich": ["Date", "x"]}


def test_what_no_host_value_is_names_itself():
    rows = [
        ("return new Date(NaN)", "an invalid Date is no value"),
        ("await tools.echo({ a: [new Date('never')] })", "an invalid Date is no value"),
        ("return new Date(8.64e15)", "a Date outside of the years 1 to 9999 is no value"),
        ("return new Map([[1, 2]])", "a Map is no value unless all its keys are strings"),
        ("return new Proxy(new Date(0), {})", "not a Date object"),
        ("const all = new Set(); all.add(all); return all", "Maximum call stack size exceeded"),
        ("let all = 1; for (let i = 0; i < 200; i++) all = new Set([all]); return all", "nests deeper than 512 levels"),
        ("return new Uint8Array(1e6)", "max_result_bytes"),
        ("await tools.echo(new Uint8Array(1e6))", "the limit is 1048576 bytes"),
    ]
    for js, message in rows:
        assert message in str(error_of(js, [anything()])), js


def test_a_literal_of_another_type_is_compared_with_what_the_declaration_says():
    def store(data: bytes, at: datetime | None = None, tags: set[str] = set()) -> None:  # noqa: B006 - as a user writes
        """Store."""

    rows = [
        ("{ data: [1, 2] }", "Uint8Array"),
        ("{ data: '', at: [1] }", "Date or null"),
        ("{ data: '', tags: 'x' }", "Set"),
    ]
    for given, expected in rows:
        assert f"expected {expected}" in str(error_of(f"return tools.store({given})", [store])), given
    schema = {"type": "object", "properties": {"data": {"type": "string", "format": "binary"}}}
    assert "expected string" in str(error_of("return tools.echo({ data: [1] })", [anything(input_schema=schema)]))


def test_a_date_that_no_program_can_have_is_text():
    def load() -> dict[str, Any]:
        return {"at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))}

    assert run("return await tools.load()", [load]) == {"at": "0001-01-01T00:00:00+05:00"}


def test_programs_cannot_change_what_crosses():
    js = """
    const at = new Date(0);
    at.toJSON = () => "forged";
    class Day extends Date { toISOString() { return "forged" } }
    return [at, new Day(0), { toJSON() { return at } }];
    """
    assert run(js) == [EPOCH] * 3


@pytest.mark.parametrize("surface", SURFACES)
def test_every_surface_has_them(surface: str):
    def load() -> dict[str, Any]:
        return {"at": NOON, "tags": {"a"}, "data": BYTES}

    seen: list[Any] = []
    tools = [load, Tool("save", execute=seen.append)]
    js = """
    const { at, tags, data } = await @load();
    await @save({ at, tags, data, like: { $rich: 1 } });
    return [at instanceof Date && tags instanceof Set && data instanceof Uint8Array, at, tags, data, { $rich: 1 }];
    """
    if surface == "modules":
        js = js.replace("return", "globalThis.__codemode_result__ =")
    answer = answer_on(surface, tools, js, settings=RICH)
    assert seen == [{"at": NOON, "tags": {"a"}, "data": BYTES, "like": {"$rich": 1}}], answer
    as_json = [True, "2026-01-02T12:30:00.005Z", ["a"], "AP8=", {"$rich": 1}]
    assert answer.value == ([True, NOON, {"a"}, BYTES, {"$rich": 1}] if surface == "codeMode" else as_json), answer
    if surface == "codeMode":
        assert answer.whole == {"type": "json", "value": as_json}


def test_without_the_option_they_cross_as_json():
    def load() -> dict[str, Any]:
        return {"at": NOON, "tags": {"a"}, "like": {"$rich": ["Date", "x"]}}

    js = "const all = await tools.load(); return [typeof all.at, all, new Date(0), new Set([1])]"
    all_of_it = {"at": "2026-01-02T12:30:00.005000Z", "tags": ["a"], "like": {"$rich": ["Date", "x"]}}
    assert run(js, [load], {}) == ["string", all_of_it, "1970-01-01T00:00:00.000Z", {}]


def test_a_pause_keeps_them_and_runs_what_was_shown():
    spy = Spy()
    tools = [spy.guarded(action=lambda value, _: value), Tool("load", execute=lambda: {"at": NOON, "tags": {"a"}})]
    js = """
    const all = await tools.load();
    const back = await tools.refund({ at: all.at, data: new Uint8Array([0, 255]), like: { $rich: 1 } });
    return [all.at instanceof Date, all, back];
    """
    pause = start(js, tools, PAUSING)
    shown = {
        "at": {"$rich": ["Date", "2026-01-02T12:30:00.005Z"]},
        "data": {"$rich": ["Uint8Array", "AP8="]},
        "like": {"$$rich": 1},
    }
    assert pause.requests[0].input == shown
    # Another process may have other options: the pause has its own.
    for options in ({**PAUSING, "execution_policy": {"values": "json"}}, PAUSING):
        spy.ran.clear()
        pause = start(js, tools, PAUSING)
        ran = {"at": NOON, "data": BYTES, "like": {"$rich": 1}}
        assert go_on(pause, tools, OK, options=options) == [True, {"at": NOON, "tags": {"a"}}, ran]
        assert spy.ran == [("refund", ran)]


def test_an_edited_input_may_have_tags():
    spy = Spy()
    tools = [spy.guarded(action=lambda value, _: value)]
    pause = start("return await tools.refund({ at: new Date(0), sum: 1 })", tools, PAUSING)
    edited = {**through_json(pause).requests[0].input, "sum": 2}
    assert go_on(pause, tools, {"approved": True, "input": edited}, options=PAUSING) == {"at": EPOCH, "sum": 2}


def test_an_outcome_that_is_asked_for_again_is_the_same():
    tools = [Tool("pay", execute=lambda given: given, needs_approval=True)]
    tool = create_code_mode_tool(tools, PAUSING)
    pause = within(tool.execute("return [await tools.pay(new Date(0)), new Set([1])]"))
    assert isinstance(pause, Interrupt)
    for _ in range(2):
        assert within(tool.resume(through_json(pause), OK)) == [EPOCH, {1}]


def test_a_journal_replays_them():
    ran: list[Any] = []
    kept: dict[str, Any] = {"journal": MemoryJournal(), "keys": ("k" * 32,), "conversation_id": "c"}
    options = {**RICH, "continuation": kept}

    def load(again: bool = False) -> dict[str, Any]:
        ran.append(again)
        if len(ran) == 1:
            raise ValueError("once")
        return {"at": NOON}

    js = """
    try { await tools.load() } catch {}
    const { at } = await tools.load({ again: true });
    return [at instanceof Date, at];
    """
    call = CallContext(tool_call_id="one")
    for _ in range(2):
        assert within(create_code_mode_tool([load], options).execute(js, call)) == [True, NOON]
    assert ran == [False, True]


HOST = """
import asyncio, json, sys
from datetime import UTC, datetime
from codemode import Interrupt, Tool, create_code_mode_tool, set_continuation_signing_key

set_continuation_signing_key("k" * 32)
tools = [
    Tool("load", execute=lambda: {"at": datetime(2026, 1, 2, tzinfo=UTC), "tags": {"a"}, "data": bytes([0, 255])}),
    Tool("pay", execute=lambda given: (print(repr(given), flush=True), given)[1], needs_approval=True),
]
options = {"execution_policy": {"values": sys.argv[1]}, "approval": {"mode": "interrupt"}}
tool = create_code_mode_tool(tools, options)
js = "const all = await tools.load(); const back = await tools.pay(all); return [all.at instanceof Date, back];"
if sys.stdin.isatty() or not (given := sys.stdin.read()):
    print(json.dumps(tool.execute_sync(js).to_dict()))
else:
    print(repr(tool.resume_sync(json.loads(given), {"approved": True})))
"""


@pytest.mark.full
def test_another_process_goes_on_with_them():
    def host(values: str, given: str) -> list[str]:
        command = [sys.executable, "-c", HOST, values]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.splitlines()

    (paused,) = host("rich", "")
    at = "datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)"
    given = f"{{'at': {at}, 'tags': {{'a'}}, 'data': b'\\x00\\xff'}}"
    for values in ("rich", "json"):  # the pause has its own
        assert host(values, paused) == [given, f"[True, {given}]"]


def test_a_program_that_waits_goes_on_with_them():
    slow = Tool("slow", execute=lambda: {"at": NOON, "tags": {"a"}})
    js = """
    const first = await tools.slow();
    await yield_control();
    const again = await tools.slow();
    return [first.at instanceof Date && again.tags instanceof Set, again];
    """

    async def ended() -> Any:
        async with aclosing(create_exec_wait_tools([slow], settings=RICH)) as pair:
            waiting = await pair.exec.execute({"code": js})
            return await pair.wait.execute({"runId": waiting["runId"]})

    assert within(ended())["value"] == [True, {"at": "2026-01-02T12:30:00.005Z", "tags": ["a"]}]


def test_state_keeps_them_for_the_next_program():
    kept: dict[str, Any] = {}
    options = {**RICH, "state": kept}
    run("await state.set('a', { at: new Date(0), tags: new Set([1]), like: { $rich: 1 } })", (), options)
    assert run("return await state.get('a')", (), options) == {"at": EPOCH, "tags": {1}, "like": {"$rich": 1}}


def test_hooks_and_the_console_see_json():
    seen: list[Any] = []
    lifecycle = {"on_nested_tool_result": lambda event: seen.append(event.to_dict()), "on_console": seen.append}
    options = {**RICH, "lifecycle": lifecycle}
    run("console.log(await tools.echo(new Set([new Date(0)])), new Map([[1, 2]]))", [anything()], options)
    result, line = seen
    assert result["output"] == {"$rich": ["Set", [{"$rich": ["Date", "1970-01-01T00:00:00.000Z"]}]]}
    assert line.text == '["1970-01-01T00:00:00.000Z"] [[1,2]]'
    json.dumps(result)


def test_a_pipeline_replaces_them():
    pipeline = {
        "before": lambda call: {**call.input, "at": NOON},
        "after": lambda call, output: {**output, "data": BYTES},
    }
    js = "return await tools.echo({ at: new Date(0), tags: new Set([1]), like: { $rich: 1 } })"
    expected = {"at": NOON, "tags": {1}, "like": {"$rich": 1}, "data": BYTES}
    assert run(js, [anything()], {**RICH, "pipeline": pipeline}) == expected


def test_images_stay_what_they_are():
    def photo() -> MediaContent:
        return MediaContent(b"\x89PNG", "image/png")

    js = "const front = await tools.photo(); content(front); return { front, at: new Date(0), tags: new Set(['a']) };"
    tool = create_code_mode_tool([photo], RICH)
    result = within(tool.execute(js))
    assert result.value["at"] == EPOCH
    shown = tool.to_model_output(result)
    assert [one["type"] for one in shown["value"]] == ["text", "media"]
    assert '"at":"1970-01-01T00:00:00.000Z"' in shown["value"][0]["text"]
    assert '"tags":["a"]' in shown["value"][0]["text"]


def test_the_description_says_so():
    def save(event: Event) -> set[date]:
        return set()

    described = create_code_mode_tool([save], RICH).description
    for text in (
        "at: Date;",
        "tags?: Set<string>;",
        "data?: Uint8Array;",
        "Promise<Set<Date>>",
        "besides Date",
    ):
        assert text in described, described
    assert "besides Date" not in create_code_mode_tool([save]).description
    assert "at: string;" in create_code_mode_tool([save]).description
    assert "at: Date;" in run("return await tools.$describe('save')", [save])
    by_json = Tool("at", execute=print, input_schema={"type": "string", "format": "date-time"})
    assert "input: string" in create_code_mode_tool([by_json], RICH).description


def test_another_value_of_the_option_is_refused():
    with pytest.raises(ValueError, match=r"execution_policy\.values must be one of 'json', 'rich', got 'all'"):
        create_code_mode_tool([], {"execution_policy": {"values": "all"}})
