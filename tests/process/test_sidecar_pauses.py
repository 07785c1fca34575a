"""Scripts with large texts that pause, go on, are cut off and are answered again: the texts are what they were."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from large_texts import GIVEN, OTHER, TEXT, LargeTexts
from pausing import through_json
from waiting import within

from codemode import CodeCallToolset, CodeModeProtocolError, Interrupt, Tool, create_code_call_tools, request_interrupt
from codemode.surfaces.code_call.result import create_surface_settings

HOST = Path(__file__).parent / "hosts" / "large_texts_resumed.py"
SECONDS = 60
READ = "const given = await callTool('read'), { text } = given;"
STORE = f"{READ} const stored = await callTool('docs.store', {{ text, note: given.other }}); return [stored, text]"
GUARDED: dict[str, Any] = {"store": {"needs_approval": True}, "settings": {"approval": {"mode": "interrupt"}}}
OK = {"approved": True}


def paused(texts: LargeTexts, js: str = STORE, **options: Any) -> tuple[CodeCallToolset, Interrupt]:
    code_call = texts.code_call(**{**GUARDED, **options})
    interrupt = code_call.execute_sync({"script": js})
    assert isinstance(interrupt, Interrupt), interrupt
    return code_call, through_json(interrupt)


def test_a_person_is_shown_the_text_and_exactly_that_runs():
    texts = LargeTexts()
    code_call, interrupt = paused(texts)
    assert interrupt.input == {"text": TEXT, "note": OTHER}
    answered = code_call.resume_sync(interrupt, OK)
    assert answered == {"status": "ok", "result": [{"taken": 1}, TEXT]}
    assert texts.taken == [{"text": TEXT, "note": OTHER}]


def test_an_edit_is_what_runs_and_the_script_keeps_its_own():
    texts = LargeTexts()
    code_call, interrupt = paused(texts)
    edited = {"text": OTHER, "note": "0E0"}
    assert code_call.resume_sync(interrupt, {**OK, "input": edited})["result"] == [{"taken": 1}, TEXT]
    assert texts.taken == [edited]


def test_a_denial_runs_nothing():
    texts = LargeTexts()
    code_call, interrupt = paused(texts)
    answered = code_call.resume_sync(interrupt, {"approved": False})
    assert (answered["status"], answered["error"]["code"]) == ("tool_error", "APPROVAL_DENIED")
    assert answered["error"]["toolInput"].keys() == {"bytes"}
    assert texts.taken == []


def test_a_callback_is_asked_about_the_text():
    asked: list[Any] = []

    def ask(request: Any) -> str:
        asked.append(request.input)
        return "approved"

    texts = LargeTexts()
    settings = {"approval": {"mode": "callback", "on_approval_required": ask}}
    code_call = texts.code_call(store={"needs_approval": True}, settings=settings)
    assert code_call.execute_sync({"script": STORE})["result"] == [{"taken": 1}, TEXT]
    assert asked == texts.taken == [{"text": TEXT, "note": OTHER}]


def test_a_bundle_goes_on_request_by_request():
    js = f"""{READ}
    const both = await Promise.all([given.other, text].map((one) => callTool('docs.store', {{ text: one }})));
    return [both, text === given.text, await callTool('take', [text, given.deep])]"""
    texts = LargeTexts()
    code_call, interrupt = paused(texts, js)
    assert [request.input for request in interrupt.requests] == [{"text": OTHER}, {"text": TEXT}]
    second = through_json(code_call.resume_sync(interrupt, resolutions={interrupt.requests[1].interrupt_id: OK}))
    assert [request.input for request in second.requests] == [{"text": OTHER}]
    answered = code_call.resume_sync(second, OK)
    assert answered["result"] == [[{"taken": 2}, {"taken": 1}], True, {"taken": 3}]
    assert texts.taken == [{"text": TEXT}, {"text": OTHER}, [TEXT, GIVEN["deep"]]]


def test_races_between_large_answers_replay_as_they_went():
    order: list[str] = []

    async def racer(value: Any) -> str:
        gate, name = gates[value["name"]], value["name"]
        await gate.wait()
        order.append(name)
        gates[name + "!"].set()
        return name * 2000

    gates: dict[str, asyncio.Event] = {}
    taken: list[Any] = []
    tools = [
        Tool("racer", execute=racer),
        Tool("take", execute=taken.append, needs_approval=True),
        Tool("order", execute=lambda _value: None),
    ]
    js = """const named = ['a', 'b', 'c'].map((name) => callTool('racer', { name }).then((text) => ({ name, text })));
    const first = await Promise.race(named), all = await Promise.all(named);
    await callTool('take', [first.text, ...all.map((one) => one.text)]);
    return [first.name, first.text, all.map((one) => one.text)]"""
    code_call = create_code_call_tools(tools, {"sidecar": {"enabled": True}, "settings": GUARDED["settings"]})

    async def whole() -> Any:
        gates.update({name: asyncio.Event() for name in ("a", "b", "c", "a!", "b!", "c!")})
        running = asyncio.ensure_future(code_call.execute({"script": js}))
        for name in ("c", "a", "b"):
            gates[name].set()
            await gates[name + "!"].wait()
        interrupt = await running
        return await code_call.resume(through_json(interrupt), OK)

    answered = within(whole())
    texts = [name * 2000 for name in "abc"]
    assert answered["result"] == ["c", texts[2], texts]
    assert taken == [[texts[2], *texts]]
    assert order == ["c", "a", "b"]


def test_another_process_goes_on_with_it(tmp_path: Path):
    file = tmp_path / "interrupt.json"
    for action in ("pause", "resume"):
        command = [sys.executable, "-W", "error", str(HOST), action, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
    answered, taken = json.loads(done.stdout)
    stored, text, other, length, _, kind = answered["result"]
    assert (stored, text, other, length, kind) == (
        {"taken": 1},
        TEXT,
        OTHER,
        len(TEXT.encode("utf-16-le")) // 2,
        "object",
    )
    random = taken[1]["random"]
    assert taken == [{"text": TEXT, "more": [OTHER, random]}, {"text": TEXT, "random": random}]


def test_a_repeat_of_a_resume_gets_the_texts_again():
    texts = LargeTexts()
    code_call, interrupt = paused(texts)
    first, again = code_call.resume_sync(interrupt, OK), code_call.resume_sync(interrupt, OK)
    assert first == again == {"status": "ok", "result": [{"taken": 1}, TEXT]}
    assert len(texts.taken) == 1


def test_it_goes_on_under_the_sizes_with_which_it_began():
    js = f"{READ} await callTool('docs.store', {{ text }}); await callTool('read'); return text"
    size = len(TEXT.encode())
    small = {"max_total_size": 4 * size, "extraction_threshold": 5000}
    texts = LargeTexts()
    code_call, interrupt = paused(texts, js, sidecar=small)
    wide = texts.code_call(**GUARDED)
    answered = wide.resume_sync(interrupt, OK)
    assert (answered["status"], answered["error"]["code"]) == ("tool_error", "SIDECAR_LIMIT")
    assert code_call.resume_sync(interrupt, OK) == answered
    off = texts.code_call(sidecar={"enabled": False}, **GUARDED)
    _, again = paused(texts, f"{READ} await callTool('docs.store', {{ text }}); return [typeof text, text]")
    assert off.resume_sync(again, OK)["result"] == ["object", TEXT]


def test_sizes_in_a_continuation_are_checked():
    texts = LargeTexts()
    code_call, _ = paused(texts)
    profile = create_surface_settings(code_call.options)
    assert profile.restored is not None
    kept = profile.parameters["sidecar"]
    assert profile.restored({"sidecar": kept}).sidecar == profile.sidecar
    for wrong in ({**kept, "extraction_threshold": 0}, {**kept, "more": 1}, [1], 1):
        with pytest.raises(ValueError, match="sidecar"):
            profile.restored({"sidecar": wrong})


def test_a_tool_that_asks_shows_and_gets_the_text():
    taken: list[Any] = []

    def asks(value: Any, context: Any) -> Any:
        taken.append(value)
        if context.interrupt is None:
            request_interrupt({"kind": "question"})
        return {"said": context.interrupt.resolution, "text": value["text"]}

    tools = [*LargeTexts().tools(), Tool("asks", execute=asks)]
    code_call = create_code_call_tools(tools, {"sidecar": {"enabled": True}})
    interrupt = code_call.execute_sync({"script": f"{READ} return await callTool('asks', {{ text }})"})
    assert interrupt.input == {"text": TEXT}
    answered = code_call.resume_sync(through_json(interrupt), {"answer": TEXT})
    assert answered["result"] == {"said": {"answer": TEXT}, "text": TEXT}
    assert taken == [{"text": TEXT}] * 2


@pytest.mark.parametrize("value", [{"taken": 9}, {"text": OTHER}, OTHER])
def test_a_call_cut_off_waits_with_the_text_and_its_outcome_may_be_large(passing_time: Any, value: Any):
    begun: list[Any] = []

    async def hang(given: Any) -> None:
        begun.append(given)
        passing_time.skip(61)
        await asyncio.Event().wait()

    tools = [*LargeTexts().tools(), Tool("hang", execute=hang)]
    settings = {"execution_policy": {"timeout_includes_tools": True}}
    options = {"sidecar": {"enabled": True}, "vm": {"timeout_ms": 60_000}, "settings": settings}
    code_call = create_code_call_tools(tools, options)
    js = f"{READ} const got = await callTool('hang', {{ text }}); return [got, text, typeof (got.text ?? got)]"
    answered = code_call.execute_sync({"script": js})
    assert answered["status"] == "timeout"
    assert begun == [{"text": TEXT}]
    recovery = through_json(answered.recovery)
    assert recovery.input == {"text": TEXT}
    kind = "object"
    assert code_call.resume_sync(recovery, {"value": value})["result"] == [value, TEXT, kind]


def test_a_call_that_runs_again_gets_the_text_again(passing_time: Any):
    begun: list[Any] = []

    async def slow(given: Any) -> str:
        begun.append(given)
        if len(begun) == 1:
            passing_time.skip(61)
            await asyncio.Event().wait()
        return "done"

    tools = [*LargeTexts().tools(), Tool("slow", execute=slow, annotations={"idempotentHint": True})]
    options = {
        "sidecar": {"enabled": True},
        "vm": {"timeout_ms": 60_000},
        "settings": {"execution_policy": {"timeout_includes_tools": True}},
    }
    code_call = create_code_call_tools(tools, options)
    answered = code_call.execute_sync({"script": f"{READ} return [await callTool('slow', {{ text }}), text]"})
    assert answered["status"] == "timeout"
    assert code_call.resume_sync(through_json(answered.recovery))["result"] == ["done", TEXT]
    assert begun == [{"text": TEXT}] * 2


def test_a_direct_call_that_paused_goes_on_as_its_script():
    texts = LargeTexts()
    code_call = texts.code_call(direct_calls={"enabled": True}, **GUARDED)
    interrupt = code_call.invoke_sync({"tool": "docs.store", "input": {"text": OTHER}})
    assert interrupt.input == {"text": OTHER}
    assert code_call.resume_sync(through_json(interrupt), OK) == {"status": "ok", "result": {"taken": 1}}
    assert texts.taken == [{"text": OTHER}]


def test_a_changed_text_in_a_continuation_is_refused():
    texts = LargeTexts()
    code_call, interrupt = paused(texts)
    plain = json.dumps(interrupt.to_dict())
    assert '{"text":0E0,"note":0E1}' in json.dumps(interrupt.to_dict()["continuation"]).replace('\\"', '"')
    for was, now in (("0E0", "0E1"), ("end", "END")):
        with pytest.raises(CodeModeProtocolError):
            code_call.resume_sync(json.loads(plain.replace(was, now)), OK)
    assert texts.taken == []
