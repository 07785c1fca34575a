"""Large strings of tools that are only looked at: console, errors, listeners, hooks; and who has no references."""

from __future__ import annotations

import json
from typing import Any

import pytest
from large_texts import GIVEN, OTHER, READ, TEXT, LargeTexts, answer, error, result

from codemode import create_code_mode_tool

# --- what is only to be looked at ---


def test_the_console_shows_the_beginning_of_a_text():
    answered = answer(
        f"{READ} console.log('a', text, {{ text, n: 1 }}); console.error({{ a: [given.other] }}); return 1"
    )
    first, second = (line["message"] for line in answered["logs"])
    assert first.startswith('a 0E0 "a\\b"')
    assert second.startswith('{"a":["other other')
    assert all(len(one) <= 8001 for one in (first, second))
    assert '"n":1' in answer(f"{READ} console.log({{ text, n: 1 }}); return 1")["logs"][0]["message"]


@pytest.mark.parametrize(
    ("thrown", "message"),
    [
        ("given.numbers", '{"numbers": [0, 1,'),
        ("Object.assign(new Error(''), { message: given.other })", "other other"),
        ("Object.assign(new Error('plain'), { details: { text } })", "plain"),
    ],
)
def test_thrown_texts_are_told_of_by_their_beginning(thrown: str, message: str):
    said = error("runtime_error", f"{READ} throw {thrown}")
    assert said["message"].startswith(message)
    assert len(said["message"]) < 5000


def test_what_a_script_tells_listeners_holds_no_place():
    told: list[Any] = []
    on = {"notify": told.append}
    js = f"""{READ} mcpNotify('a', {{ part: text.slice(0, 5), all: given.short }}); mcpLog('info', text, [1]);
    try {{ mcpNotify('b', [given.other, given.other, given.other]); }} catch (e) {{ return e.message; }}"""
    assert "longer than" in result(js, **on)
    said = [one for one in told if one["type"] in ("notify", "log")]
    assert said[0]["payload"] == {"part": TEXT[:5], "all": GIVEN["short"]}
    assert said[1]["message"].startswith(TEXT[:100])


def test_events_hooks_and_notifications_see_the_text():
    seen: list[Any] = []
    told: list[Any] = []

    def before(call: Any) -> None:
        seen.append(call.input)

    events: list[Any] = []
    listens = {"on_nested_tool_call": lambda event: events.append((event.input, event.input_bytes))}
    settings = {"pipeline": {"before": before}, "lifecycle": listens}
    js = f"{READ} await callTool('docs.store', {{ text }}); return await callTool('take', text)"
    assert result(js, settings=settings, notify=told.append) == {"taken": 2}
    assert seen[1:] == [{"text": TEXT}, TEXT]
    assert [one for one, _ in events][1:] == [{"text": TEXT}, TEXT]
    assert [one["input"] for one in told if one["type"] == "tool_call_start"][1:] == [{"text": TEXT}, TEXT]
    events.clear()
    assert result(js, settings={"lifecycle": listens}) == {"taken": 2}
    assert [one for one, _ in events][1:] == [{"text": TEXT}, TEXT]
    assert all(size >= len(TEXT.encode()) for _, size in events[1:])


def test_a_hook_may_replace_what_became_large():
    def after(call: Any, output: Any) -> Any:
        return {"text": OTHER} if call.tool_name == "read" else None

    js = f"{READ} await callTool('docs.store', {{ text }}); return [typeof text, text]"
    assert result(js, settings={"pipeline": {"after": after}}) == ["object", OTHER]


def test_a_hook_may_put_something_beside_a_text_that_is_as_large_as_one_may_be():
    def before(call: Any) -> Any:
        return {**call.input, "by": "host"} if call.tool_name == "docs.store" else None

    texts, mib = LargeTexts(), 1 << 20
    code_call = texts.code_call(settings={"pipeline": {"before": before}})
    js = f"const text = await callTool('of_size', {{ n: {mib} }}); return await callTool('docs.store', {{ text }})"
    assert code_call.execute_sync({"script": js}) == {"status": "ok", "result": {"taken": 1}}
    assert texts.taken == [{"text": "x" * mib, "by": "host"}]


# --- who has none of it ---


def test_code_mode_has_strings():
    tool = create_code_mode_tool(LargeTexts().tools())
    js = "const { text } = await tools.read({}); return [typeof text, (text + '!').length - text.length]"
    assert tool.execute_sync({"js": js}) == ["string", 1]
    assert result(f"{READ} return [typeof text, text + '']", {"enabled": False}) == ["string", TEXT]


def test_the_description_says_what_a_reference_is():
    (execute,) = [one for one in LargeTexts().code_call().tools if one.name.endswith("execute")]
    assert "1024 bytes or more is a reference" in execute.description
    assert "toString()" in execute.description
    assert "identity" in execute.description
    (joining,) = [
        one for one in LargeTexts().code_call({"allow_composites": True}).tools if one.name.endswith("execute")
    ]
    assert "toString()" not in joining.description
    (off,) = [one for one in LargeTexts().code_call({"enabled": False}).tools if one.name.endswith("execute")]
    assert "reference" not in off.description
    for code_call in (LargeTexts().code_call(), LargeTexts().code_call({"allow_composites": True})):
        texts = [
            {"name": one.name, "description": one.description, "inputSchema": one.input_schema}
            for one in code_call.tools
        ]
        assert len(json.dumps(texts, separators=(",", ":"))) <= 4000


def test_a_direct_call_comes_to_what_its_script_comes_to():
    code_call = LargeTexts().code_call(direct_calls={"enabled": True})
    assert code_call.invoke_sync({"tool": "read", "input": {}}) == {"status": "ok", "result": GIVEN}
    assert code_call.invoke_sync({"tool": "whole"}) == {"status": "ok", "result": TEXT}
    mib = 1 << 20
    assert len(code_call.invoke_sync({"tool": "of_size", "input": {"n": mib}})["result"]) == mib
    said = code_call.invoke_sync({"tool": "of_size", "input": {"n": mib + 1}})
    assert (said["status"], said["error"]["code"]) == ("tool_error", "SIDECAR_LIMIT")
