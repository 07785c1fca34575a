"""Large strings of tools that a script passes on: tools and whoever reads the result get the text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from large_texts import GIVEN, OTHER, READ, TEXT, LargeTexts, answer, result
from suite import each_row

from codemode import Tool, create_code_call_tools
from codemode.protocol import framing, message_decoder, messages
from codemode.workers import channel


def test_tools_get_the_text_at_any_depth_and_by_any_call():
    texts = LargeTexts()
    js = f"""{READ}
    await callTool('docs.store', {{ text }});
    await docs.store({{ text, more: [{{ deep: [given.other, text, 'plain'] }}] }});
    await callTool('take', text);
    await callTool('take', [[[text]]], {{ throwOnError: false }});
    await callTool('take', given);
    return (await callTool('take', {{ toJSON() {{ return {{ made: text }}; }} }})).taken"""
    assert texts.code_call().execute_sync({"script": js})["result"] == 6
    assert texts.taken == [
        {"text": TEXT},
        {"text": TEXT, "more": [{"deep": [OTHER, TEXT, "plain"]}]},
        TEXT,
        [[[TEXT]]],
        GIVEN,
        {"made": TEXT},
    ]


WITH_SAME = {"text": TEXT, "same": True}


@each_row(
    "js, returned",
    [
        ("text", TEXT),
        ("[text, text, given.other]", [TEXT, TEXT, OTHER]),
        ("given", GIVEN),
        ("({ toJSON() { return text; } })", TEXT),
        ("new Map([[1, text]]).get(1)", TEXT),
        ("Promise.resolve(text)", TEXT),
        ("[text, 9007199254740993n, Object(5n), 1.5, -0, 1e21, 0]", [TEXT, 2**53 + 1, 5, 1.5, 0, 1e21, 0]),
        ("({ text, get same() { return JSON.stringify(text) === JSON.stringify(text.slice(0)); } })", WITH_SAME),
        ("({ [text.slice(0, 3)]: text })", {"0E0": TEXT}),
        ("JSON.parse(JSON.stringify({ text })).text", TEXT),
        ("given.text.slice(0)", TEXT),
    ],
)
def test_what_is_returned_has_the_text_in_it(js: str, returned: Any):
    assert result(f"{READ} return {js}") == returned


def test_a_result_that_is_cut_keeps_its_texts():
    js = f"{READ} const cyclic = {{ text, error: new Error('x') }}; cyclic.self = cyclic; return [cyclic, given.other]"
    answered = answer(js)
    assert answered["result"] == [
        {"text": TEXT, "error": {"name": "Error", "message": "x"}, "self": "[Circular]"},
        OTHER,
    ]
    assert len(answered["warnings"]) == 1


def test_a_reference_is_one_member_and_no_level_of_a_result():
    on = {"vm": {"preset": "balanced", "max_sanitize_depth": 1, "max_sanitize_properties": 3}}
    answered = answer(f"{READ} return [text, text, text]", **on)
    assert answered == {"status": "ok", "result": [TEXT] * 3}
    assert "warnings" in answer(f"{READ} return [text, text, text, text]", **on)


def test_the_text_crosses_once_and_never_back(monkeypatch: pytest.MonkeyPatch):
    came: list[int] = []

    def counted(message: bytes) -> Any:
        came.append(len(message))
        return message_decoder.decode_message(message)

    monkeypatch.setattr(channel, "decode_message", counted)
    js = f"{READ} await callTool('docs.store', given); await callTool('take', [text, text]); return [text, given]"
    texts = LargeTexts()
    assert texts.code_call().execute_sync({"script": js})["result"] == [TEXT, GIVEN]
    assert texts.taken == [GIVEN, [TEXT, TEXT]]
    assert sum(came) < 6000


def test_a_text_that_comes_back_from_a_tool_is_another_reference_to_the_same_text(monkeypatch: pytest.MonkeyPatch):
    sent: list[int] = []
    real = framing.iter_frame_chunks

    def counted(*given: Any) -> Any:
        for piece in real(*given):
            sent.append(len(piece))
            yield piece

    for module in (messages, framing):
        monkeypatch.setattr(module, "iter_frame_chunks", counted)
    text = TEXT * 50
    tools = [Tool("read", execute=lambda _value: text), Tool("echo", execute=lambda value: {"back": [value, value]})]
    code_call = create_code_call_tools(tools, {"sidecar": {"enabled": True}})
    js = """const text = await callTool('read'), { back } = await callTool('echo', text);
    const again = await callTool('echo', { text: back[1] });
    return [text, back, again, text === back[0], back[0] === back[1], text.slice(3, 9) === back[1].slice(3, 9),
      text.length === again.back[0].text.length]"""
    back = {"text": text}
    said = code_call.execute_sync({"script": js})["result"]
    assert said == [text, [text, text], {"back": [back, back]}, False, False, True, True]
    assert len(json.dumps(text)) < sum(sent) < len(json.dumps(text)) + 5000


@each_row(
    "forged",
    [
        "'0E0'",
        "'\"0E0\"'",
        "({ a: '0E0', '0E1': 1 })",
        "['0E', 0, -0, 0e0]",
        "'__ref_0'",
        "({ toJSON() { return '0E0'; } })",
        "({ toJSON() { return 0; } })",
        "({ rawJSON: '0E0' })",
        "Object.freeze({ __proto__: null, rawJSON: '0E0' })",
        "[0E0, 0E1]",
        "Object(0)",
        "new String('0E0')",
        "new Proxy(text, {})",
        "Object.create(text)",
        "Object.setPrototypeOf({}, text)",
    ],
)
def test_what_looks_like_a_place_stays_data(forged: str):
    texts = LargeTexts()
    js = f"{READ} const forged = {forged}; await callTool('take', [forged]); return [forged]"
    returned = texts.code_call().execute_sync({"script": js})
    assert returned["status"] in ("ok", "runtime_error")
    assert TEXT not in json.dumps([returned, texts.taken], ensure_ascii=False)
    assert not any(one in str([returned.get("result"), texts.taken]) for one in (TEXT[:50], OTHER[:50]))


def test_the_engine_has_no_way_to_write_one():
    assert result("return [typeof JSON.rawJSON, typeof JSON.isRawJSON]") == ["undefined", "undefined"]
