"""Messages: the exact shapes are read, everything else is a protocol error and nothing but that."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invocation_settings import SETTINGS
from suite import each_row

from codemode.errors import CodeModeProtocolError
from codemode.protocol import messages
from codemode.protocol.framing import FrameDecoder
from codemode.protocol.message_decoder import decode_message

PROBLEM = {"message": "no", "line": 1, "column": 2}
THREW = {"name": "Error", "message": "m", "code": "", "stack": "at program.js:1:2"}

# kind, body, the message; every key of the body is required unless it is in OPTIONAL.
GOOD: list[tuple[bytes, dict[str, Any], messages.WorkerMessage]] = [
    (
        b"a",
        {"js": "x", "facts": {"calls": []}, "problems": []},
        messages.ProgramAnalysed("x", {"calls": []}, (), size=51),
    ),
    (b"a", {"js": "x", "facts": None}, messages.ProgramAnalysed("x", None, (), size=26)),
    (b"a", {"js": None, "problems": [PROBLEM]}, messages.ProgramAnalysed(None, None, (PROBLEM,), size=69)),
    (b"C", {"id": 1, "kind": "tool", "name": "t", "input": "{}"}, messages.CallRequested(1, "tool", "t", "{}", None)),
    (b"C", {"id": 2, "kind": "catalog", "name": "t"}, messages.CallRequested(2, "catalog", "t", None, None)),
    (
        b"C",
        {"id": 3, "kind": "tool", "name": "t", "input": "{}", "line": 2, "column": 5},
        messages.CallRequested(3, "tool", "t", "{}", None, (2, 5)),
    ),
    (b"C", {"id": 3, "kind": "tool", "name": "t", "bytes": 9}, messages.CallRequested(3, "tool", "t", None, 9)),
    (
        b"C",
        {"id": 4, "kind": "timer", "name": "setTimeout", "input": "5"},
        messages.CallRequested(4, "timer", "setTimeout", "5", None),
    ),
    (b"W", {"id": 4}, messages.RequestWithdrawn(4)),
    (
        b"X",
        {**THREW, "class": "ToolCallError", "fields": '{"code":"c"}'},
        messages.ProgramThrew(
            "Error",
            "m",
            "",
            "at program.js:1:2",
            "program",
            None,
            None,
            error_class="ToolCallError",
            fields_json='{"code":"c"}',
        ),
    ),
    (b"L", {"level": "warn", "text": "t"}, messages.ConsoleWritten("warn", "t")),
    (b"T", {"in_flight": 0}, messages.TurnEnded(0)),
    (b"V", {"value": "1", "unobserved": [2, 3]}, messages.ProgramReturned("1", False, None, (2, 3))),
    (
        b"V",
        {"value": None, "undefined": True, "unobserved": []},
        messages.ProgramReturned(None, is_undefined=True, value_bytes=None, unobserved_ids=()),
    ),
    (b"V", {"bytes": 7, "unobserved": []}, messages.ProgramReturned(None, False, 7, ())),
    (
        b"V",
        {"value": "1", "unobserved": [], "warnings": ["cut"]},
        messages.ProgramReturned("1", False, None, (), ("cut",)),
    ),
    (
        b"N",
        {"kind": "log", "level": "info", "message": "m"},
        messages.GuestNotification("log", '{"level":"info","message":"m"}'),
    ),
    (
        b"N",
        {"kind": "log", "level": "info", "message": "\u00fc\u2028", "metadata": '{"a":[1]}'},
        messages.GuestNotification("log", '{"level":"info","message":"\u00fc\u2028","metadata":{"a":[1]}}'),
    ),
    (b"N", {"kind": "notify", "event": "e"}, messages.GuestNotification("notify", '{"event":"e"}')),
    (
        b"N",
        {"kind": "notify", "event": "e", "payload": "5"},
        messages.GuestNotification("notify", '{"event":"e","payload":5}'),
    ),
    (b"X", THREW, messages.ProgramThrew("Error", "m", "", "at program.js:1:2", "program", None, None)),
    (
        b"X",
        {**THREW, "origin": "syntax"},
        messages.ProgramThrew("Error", "m", "", THREW["stack"], "syntax", None, None),
    ),
    (b"X", {**THREW, "request": 1}, messages.ProgramThrew("Error", "m", "", THREW["stack"], "program", 1, None)),
    (b"X", {**THREW, "limit": "l"}, messages.ProgramThrew("Error", "m", "", THREW["stack"], "program", None, "l")),
    (b"F", {"message": "MemoryError"}, messages.EngineFailed("MemoryError")),
    (b"F", {"message": "m", "origin": "request"}, messages.EngineFailed("m", "request")),
]
OPTIONAL = {
    (b"a", "facts"), (b"a", "problems"), (b"C", "input"), (b"C", "bytes"), (b"C", "line"),
    (b"X", "origin"), (b"X", "request"),
    (b"X", "limit"), (b"X", "class"), (b"X", "fields"), (b"F", "origin"),
    (b"V", "warnings"), (b"N", "metadata"), (b"N", "payload"),
}  # fmt: skip
NULLABLE = OPTIONAL - {(b"V", "warnings")} | {(b"a", "js"), (b"V", "value"), (b"V", "bytes"), (b"V", "undefined")}
KINDS = b"aCWLNTVXF"


def read(kind: bytes, body: object) -> messages.WorkerMessage:
    return decode_message(kind + json.dumps(body).encode())


def refused(kind: bytes, payload: bytes) -> None:
    with pytest.raises(CodeModeProtocolError):
        decode_message(kind + payload)


@each_row("kind, body, message", GOOD)
def test_every_shape_is_read(kind: bytes, body: dict[str, Any], message: messages.WorkerMessage):
    assert read(kind, body) == message


@each_row("kind, body, message", GOOD)
def test_a_missing_key_is_refused(kind: bytes, body: dict[str, Any], message: messages.WorkerMessage):
    for key in body:
        if (kind, key) in OPTIONAL and not (kind == b"a" and body["js"] is None):
            continue
        if (key == "value" and body.get("undefined")) or (key == "js" and body.get("problems")):
            continue  # null and nothing are the same here
        refused(kind, json.dumps({name: value for name, value in body.items() if name != key}).encode())


WRONG = [[], {}, [[]], 1.5, -1, 2**53, True, False, "\x00", None, "9", [None], {"a": 1}]


@each_row("kind, body, message", GOOD)
def test_a_value_of_another_type_is_refused(kind: bytes, body: dict[str, Any], message: messages.WorkerMessage):
    for key, right in body.items():
        for wrong in WRONG:
            if type(wrong) is type(right) and (not isinstance(right, int) or wrong >= 0 or isinstance(right, bool)):
                continue  # judged below, or not a matter of type
            if wrong is None and (kind, key) in NULLABLE:
                continue
            if key == "facts" and isinstance(wrong, dict):
                continue
            if kind == b"a" and key == "js" and isinstance(wrong, str):
                continue
            if kind == b"V" and key == "value" and isinstance(right, str) is isinstance(wrong, str):
                continue
            refused(kind, json.dumps({**body, key: wrong}).encode())


@each_row(
    "kind, body",
    [
        (b"C", {"id": 1, "kind": "other", "name": "t"}),
        (b"C", {"id": 1, "kind": "tool", "name": "t" * 513}),
        (b"C", {"id": 1, "kind": "tool", "name": "t", "line": 1}),
        (b"C", {"id": 1, "kind": "tool", "name": "t", "line": 0, "column": 1}),
        (b"C", {"id": 1, "kind": "tool", "name": "t", "line": 1, "column": 1.5}),
        (b"C", {"id": 1, "kind": "timer", "name": "setTimeout", "input": "5", "line": 1, "column": 1}),
        (b"C", {"id": 2**53, "kind": "tool", "name": "t"}),
        (b"C", {"id": 1, "kind": "tool", "name": "t", "input": "{}", "bytes": 2}),
        (b"L", {"level": "shout", "text": ""}),
        (b"L", {"level": "log", "text": "x" * 65_538}),
        (b"T", {"in_flight": True}),
        (b"T", {"in_flight": 1.0}),
        (b"V", {"unobserved": []}),
        (b"V", {"value": "1", "bytes": 1, "unobserved": []}),
        (b"V", {"value": "1", "undefined": True, "unobserved": []}),
        (b"V", {"value": "1", "unobserved": [True]}),
        (b"V", {"value": "1", "unobserved": [-1]}),
        (b"X", {**THREW, "name": "x" * 20_001}),
        (b"X", {**THREW, "message": "x" * 20_001}),
        (b"X", {**THREW, "stack": "x" * 20_001}),
        (b"F", {"message": "x" * 20_001}),
        (b"a", {"js": None, "problems": []}),
        (b"a", {"js": None, "problems": [PROBLEM] * 1001}),
        (b"a", {"js": None, "problems": [{**PROBLEM, "line": "1"}]}),
        (b"a", {"js": None, "problems": [{**PROBLEM, "message": "x" * 20_001}]}),
        (b"a", {"js": None, "problems": ["no"]}),
        (b"a", {"js": "x", "facts": []}),
    ],
)
def test_a_value_out_of_bounds_is_refused(kind: bytes, body: dict[str, Any]):
    refused(kind, json.dumps(body).encode())


@each_row("kind", [bytes([code]) for code in KINDS])
@each_row(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b"{}{}",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":-1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":"\n"}',
        b"[" * 100_000,
        b'{"a":' * 65 + b"1" + b"}" * 65,
        b'{"a":' * 100_000,
        b"\xef\xbb\xbf{}",
    ],
)
def test_what_is_not_plain_bounded_json_is_refused(kind: bytes, payload: bytes):
    refused(kind, payload)


def test_facts_that_nest_too_deeply_are_refused():
    refused(b"a", b'{"js":"x","facts":{"a":' + b"[" * 70 + b"]" * 70 + b"}}")


@each_row("kind", [bytes([code]) for code in range(256) if code not in KINDS])
def test_an_unknown_kind_is_refused(kind: bytes):
    refused(kind, b"{}")


def test_lone_surrogates_become_replacement_characters():
    assert decode_message(b"L" + b'{"level":"log","text":"a\\ud800b\\udfff"}') == messages.ConsoleWritten(
        "log", "a\ufffdb\ufffd"
    )


def test_of_duplicate_keys_the_last_wins_and_is_checked():
    assert decode_message(b"T" + b'{"in_flight":"x","in_flight":1}') == messages.TurnEnded(1)
    refused(b"T", b'{"in_flight":1,"in_flight":"x"}')


def test_what_a_text_says_is_not_read():
    message = read(b"C", {"id": 1, "kind": "tool", "name": "t", "input": "[" * 100_000})
    assert isinstance(message, messages.CallRequested)


json_like = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda children: st.one_of(
        st.lists(children, max_size=4), st.dictionaries(st.text(max_size=5), children, max_size=4)
    ),
    max_leaves=10,
)
keys = st.sampled_from(sorted({key for _, body, _ in GOOD for key in body}))


def read_or_refuse(kind: bytes, payload: bytes) -> None:
    with suppress(CodeModeProtocolError):
        decode_message(kind + payload)


@given(st.binary(min_size=1, max_size=1), st.binary(max_size=60))
def test_junk_never_raises_anything_else(kind: bytes, payload: bytes):
    read_or_refuse(kind, payload)


@given(st.sampled_from([bytes([code]) for code in KINDS]), st.dictionaries(keys, json_like, max_size=6))
def test_any_json_under_the_right_keys_never_raises_anything_else(kind: bytes, body: dict[str, Any]):
    read_or_refuse(kind, json.dumps(body).encode())


@given(st.sampled_from(GOOD), st.data())
def test_a_damaged_message_never_raises_anything_else(good: tuple[bytes, dict[str, Any], Any], data: st.DataObject):
    payload = bytearray(json.dumps(good[1]).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    read_or_refuse(good[0], bytes(payload))


# --- to the worker ---


def wire(message: messages.HostMessage) -> tuple[bytes, Any]:
    (frame,) = FrameDecoder(1 << 20).feed(message.to_frame())
    return messages.decode_host_message(frame)


def test_messages_to_the_worker():
    asked = {"source": "é\U0001f600", "deadline_ms": 50, "face": 0}
    assert wire(messages.AnalyseProgram("é\U0001f600", 50)) == (b"A", asked)
    assert wire(messages.AnalyseProgram("é\U0001f600", 50, 1)) == (b"A", {**asked, "face": 1})
    limits = {"memory_limit_bytes": 1 << 20, "max_stack_size_bytes": 2 << 20}
    run = messages.RunProgram("ü\ud800", {"seed": "00", **limits})
    assert wire(run) == (b"R", {"js": "ü\ud800", "seed": "00", **limits})
    assert run.to_frame()[5:13] == b"\0\x10\0\0\0\x20\0\0"
    assert wire(messages.DeliverValue(1, 2, '{"a":1}')) == (b"D", {"id": 1, "now": 2, "value": {"a": 1}})
    assert wire(messages.DeliverValue(1, 2, None)) == (b"D", {"id": 1, "now": 2})
    error = {"name": "N", "message": "ß", "code": "C"}
    assert wire(messages.DeliverError(1, 2, "N", "ß", "C")) == (b"D", {"id": 1, "now": 2, "error": error})


@pytest.mark.parametrize("invocation_data_json", ["{}", '{"context":{"a":"\\ud83d"},"source":"script"}'])
def test_what_was_given_goes_as_the_text_that_it_is(invocation_data_json):
    told = SETTINGS.to_worker_fields()
    frame = messages.RunProgram("return 1", told, invocation_data_json=invocation_data_json).to_frame()[4:]
    kind, body = messages.decode_host_message(frame)
    assert (kind, body) == (b"R", {"js": "return 1", **told, "given": json.loads(invocation_data_json)})
    assert invocation_data_json.encode() in frame


@pytest.mark.parametrize(("milliseconds", "read"), [(0, 0), (1100, 1100), (2**40, 2**32 - 1)])
def test_time_that_stood_still_is_told_as_far_as_it_can_be(milliseconds, read):
    assert wire(messages.AddPausedTime(milliseconds)) == (b"T", {"milliseconds": read})


def test_compiling_alone_is_asked_for():
    frame = messages.RunProgram("return 1", SETTINGS.to_worker_fields(), compile_only=True).to_frame()[4:]
    assert messages.decode_host_message(frame)[1]["compile_only"] is True
    plain = messages.RunProgram("return 1", SETTINGS.to_worker_fields()).to_frame()[4:]
    assert messages.decode_host_message(plain)[1].keys() & {"compile_only", "given", "shadowed", "result"} == set()


def test_a_module_starts_as_another_program_does():
    told = SETTINGS.to_worker_fields()
    module = messages.RunModule("1", told, '{"module":{}}').to_frame()[4:]
    assert messages.decode_host_message(module) == (b"M", {"js": "1", **told, "given": {"module": {}}})
    program = messages.RunProgram("1", told, invocation_data_json='{"module":{}}').to_frame()[4:]
    assert (module[:1], module[1:]) == (b"M", program[1:])


def test_a_face_tells_how_its_console_writes_and_what_its_limits_are_called():
    face = replace(SETTINGS.profile.guest, console="stable", limit_names={"max_bridge_requests": "maxToolCalls"})
    told = replace(SETTINGS, profile=replace(SETTINGS.profile, guest=face)).to_worker_fields()
    assert (told["console"], told["limit_names"]) == ("stable", {"max_bridge_requests": "maxToolCalls"})
    assert not {"console", "limit_names"} & SETTINGS.to_worker_fields().keys()


def test_a_face_tells_what_it_shadows_and_how_it_cuts_results():
    face = replace(SETTINGS.profile.guest, shadowed=("eval",), result="sanitised", max_result_depth=3)
    told = replace(SETTINGS, profile=replace(SETTINGS.profile, guest=face)).to_worker_fields()
    assert (told["shadowed"], told["result"]) == (["eval"], {"depth": 3, "properties": 0})
