"""Events and traces keep the texts that the ledger keeps, and decode them for whoever looks, when they look."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pausing import PAUSING, Spy, start
from suite import rounds
from waiting import within

from codemode import CodeModeError, Tool, create_code_mode_tool
from codemode.data.json_values import count_stringified_bytes, count_utf8_bytes, encode_json
from codemode.fetch.urls import MAX_URL_CHARACTERS
from codemode.observe import call_events
from codemode.observe.call_events import CallRecord, create_result_event, create_start_event
from codemode.protocol.ledger import Fulfilled, LedgerEntry
from codemode.trace.events import NestedToolResultEvent

IDS = {"invocation_id": "i", "outer_tool_call_id": "o"}
ROWS = [{"id": number} for number in range(1000)]


@pytest.fixture
def decoded(monkeypatch):
    """The lengths of the texts that events decode."""
    lengths: list[int] = []
    real = call_events.decode_json
    monkeypatch.setattr(call_events, "decode_json", lambda text: lengths.append(len(text)) or real(text))
    return lengths


def rows_tool():
    async def rows(_value):
        return ROWS

    return Tool("rows", execute=rows)


def test_loop_events_decode_nothing_unless_somebody_looks(decoded):
    events, traces = [], []
    hooks = {"on_nested_tool_call": events.append, "on_nested_tool_result": events.append, "on_trace": traces.append}
    start("await tools.rows({ a: [1, 2] })", [rows_tool()], {"lifecycle": hooks})
    assert len(events) == 2
    assert decoded == []
    assert (events[0].input, events[1].output) == ({"a": [1, 2]}, ROWS)
    assert traces[0].bridge_requests[0].output == ROWS
    assert len(decoded) == 3


def test_loop_the_trace_of_a_failed_run_decodes_nothing(decoded):
    with pytest.raises(CodeModeError) as caught:
        start("await tools.rows({}); throw new Error('no')", [rows_tool()])
    (call,) = caught.value.trace.bridge_requests
    assert decoded == []
    assert "completed" not in caught.value.trace.to_text()
    assert caught.value.trace._repr_html_()
    assert decoded == []
    assert call.output == ROWS


def test_loop_a_pause_is_told_of_without_its_input(decoded):
    seen = []
    options = {**PAUSING, "lifecycle": {"on_nested_tool_result": seen.append}}
    start("await tools.refund({ rows: Array(500).fill(1) })", [Spy().guarded()], options)
    assert decoded == []
    assert seen[0].shown_input == {"rows": [1] * 500}
    assert seen[0].interrupt["kind"] == "ai-sdk-code-mode/tool-approval"


def test_loop_telemetry_decodes_nothing(decoded):
    start("await tools.rows({ a: 1 })", [rows_tool()], {"telemetry": {"is_enabled": True}})
    assert decoded == []


class Response:
    """What a custom fetch gives."""

    status_code, reason_phrase, url, headers = 201, "Created", "https://example.com/x", {"a": "b"}

    async def aiter_bytes(self):
        yield b"body"


def test_loop_a_fetch_is_named_without_its_body(decoded):
    async def fetch(_url, **_request):
        return Response()

    seen = []
    policy = {"allowed_origins": ["https://example.com"], "fetch": fetch, "refuse_private_addresses": False}
    options = {"fetch_policy": policy, "lifecycle": {"on_fetch_result": seen.append}}
    assert start("return (await fetch('https://example.com/x')).status", [], options) == 201
    assert decoded == []
    assert (seen[0].url, seen[0].method, seen[0].http_status) == ("https://example.com/x", "GET", 201)


@settings(deadline=None)
@given(st.text(), st.text(), st.none() | st.text())
def test_loop_method_and_url_come_out_of_any_request(url, method, body):
    asked = {"url": url, "method": method, "headers": [], **({} if body is None else {"body": body})}
    text = json.dumps(asked, separators=(",", ":"), ensure_ascii=False)
    event = create_start_event(CallRecord(LedgerEntry(1, "fetch", "fetch", text), 1.0, replayed=False), IDS)
    assert (event.url, event.method) == (url, method.upper())


@pytest.mark.parametrize("part", ["a", "\u00e9", '"', "\\", '","method":"'])
def test_loop_a_long_url_is_shown_in_part_and_read_once(part, monkeypatch):
    read: list[int] = []
    real = json.loads
    monkeypatch.setattr(call_events.json, "loads", lambda text: read.append(len(text)) or real(text))
    text = json.dumps({"url": f"https://a/{part * 1_000_000}x", "method": "put", "headers": []}, separators=(",", ":"))
    record = CallRecord(LedgerEntry(1, "fetch", "fetch", text), 1.0, replayed=False)
    events = [create_start_event(record, IDS), *(create_result_event(record, IDS) for _ in range(3))]
    assert {(len(event.url), event.method) for event in events} == {(MAX_URL_CHARACTERS, "PUT")}
    assert (len(read), max(read) < 7 * MAX_URL_CHARACTERS) == (2, True)


@settings(deadline=None)
@given(st.text(st.sampled_from('{}":,\\urlmethod')))
def test_loop_a_request_of_a_wrong_worker_is_nameless(text):
    event = create_start_event(CallRecord(LedgerEntry(1, "fetch", "fetch", text), 1.0, replayed=False), IDS)
    assert isinstance(event.url, str)
    assert isinstance(event.method, str)


def made(text):
    record = CallRecord(LedgerEntry(1, "tool", "t", '{"a":1}', None, "o:tool-1"), 1.0, replayed=False)
    record.outcome, record.completed_at_ms = Fulfilled(text), 2.0
    return create_result_event(record, IDS)


def test_loop_a_late_field_is_a_field_like_others():
    event = made('{"b":[1]}')
    assert event == made('{"b":[1]}')
    assert event != made('{"b":[2]}')
    assert "{'b': [1]}" in repr(event)
    assert event.to_dict()["output"] == {"b": [1]}
    assert dataclasses.asdict(event)["input"] == {"a": 1}
    assert pickle.loads(pickle.dumps(event)) == event
    changed = dataclasses.replace(event, output=None)
    assert (changed.output, changed.output_bytes, changed.input) == (None, 9, {"a": 1})
    assert isinstance(changed, NestedToolResultEvent)
    assert event.output is not event.output


escapes = st.text(st.sampled_from('\\"/u01e9dDU8 \x01\x1f\x7f\x80\u07ff\u0800\ud800\udbff\udc00\udfff\U0001f600\n'))


@settings(deadline=None, max_examples=rounds(50, 500))
@given(st.lists(escapes | st.text(st.characters(exclude_categories=[]))))
def test_loop_lengths_are_counted_without_decoding(texts):
    text = encode_json(texts, what="it")
    written = json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    assert count_stringified_bytes(text) == count_utf8_bytes(written)


def test_loop_a_model_output_keeps_texts_and_decodes_what_is_shown(decoded):
    code_mode = create_code_mode_tool([rows_tool()], {"model_output": {"include_nested_tool_outputs": True}})
    result = within(code_mode.execute({"js": "await tools.rows({ a: 1 }); return [1]"}))
    assert decoded == []
    shown = code_mode.to_model_output(result)
    assert shown["value"]["nestedTools"][0]["output"] == {"type": "json", "value": ROWS}
    assert len(decoded) == 1


def test_loop_outputs_that_are_too_much_to_keep_are_not_counted_to_the_end(monkeypatch):
    counted: list[int] = []
    real = call_events.count_stringified_bytes
    monkeypatch.setattr(call_events, "count_stringified_bytes", lambda text: counted.append(1) or real(text))

    async def large(_value):
        return "x" * 3_000_000

    code_mode = create_code_mode_tool(
        [Tool("large", execute=large)], {"model_output": {"include_nested_tool_outputs": True}}
    )
    within(code_mode.execute({"js": "for (let i = 0; i < 20; i++) await tools.large(i); return [1]"}))
    assert len(counted) == 2
