"""A continuation as plain JSON: it comes back equal, and nothing else is ever taken for one."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invocation_settings import SETTINGS, limited
from pausing import done_entry, waiting_entry
from suite import each_row

from codemode import CodeModeProtocolError
from codemode.data.json_values import encode_canonical_json
from codemode.options.checked_fields import positive_limit_field
from codemode.options.part import option_group
from codemode.options.parts import ExecutionPolicy
from codemode.protocol import continuation
from codemode.protocol.continuation import REPLAY_VERSION, Continuation, continuation_from_texts, continuation_to_texts
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Rejected

LEDGER = Ledger(
    [
        done_entry(1),
        LedgerEntry(2, "fetch", "fetch", '{"url":"x"}', location=(3, 7), outcome=Fulfilled(None), now_ms=5),
        LedgerEntry(3, "catalog", "$search", '"x"', outcome=Fulfilled("[]"), now_ms=6),
        done_entry(4, Rejected("Error", "failed", "CODE"), tool_call_id="outer:tool-2"),
        waiting_entry(5, tool_call_id="outer:tool-3", is_approved=True, executed_input_json='{"amount":7}'),
        done_entry(6, tool_call_id="outer:tool-4", outcome=None, waits=2, now_ms=None),
        LedgerEntry(7, "tool", "big", None, 2_000_000, tool_call_id="outer:tool-5"),
    ],
    [4, 1, 3, 2],
)
LEDGER.entries[5] = LedgerEntry(6, "tool", "t", None, tool_call_id="outer:tool-4", waits=2)
CONTINUATION = Continuation.from_ledger("return 1", "engine 1", SETTINGS, LEDGER)


def plain():
    return json.loads(json.dumps(CONTINUATION.to_dict()))


def refused(body, match=None):
    with pytest.raises(CodeModeProtocolError, match=match):
        Continuation.from_dict(body)


def test_it_comes_back_equal():
    assert Continuation.from_dict(plain()) == CONTINUATION


def test_it_keeps_what_a_replay_depends_on_and_nothing_else():
    fresh = limited(
        replace(SETTINGS, seed="other", salt="other"), timeout_ms=5, max_bridge_requests=1, max_result_bytes=7
    )
    settings = CONTINUATION.restore_settings(fresh)
    assert (settings.seed, settings.salt, settings.limits.max_bridge_requests) == ("5eed", "5a17", 10)
    assert (settings.limits.timeout_ms, settings.limits.max_result_bytes) == (5, 7)


def test_what_was_given_and_how_the_profile_stood_come_back():
    profile = replace(SETTINGS.profile, parameters={"preset": "secure", "loops": [1, None]})
    settings = replace(SETTINGS, profile=profile, invocation_data_json='{"context":{"a":"\\ud83d\\ude00"}}')
    made = Continuation.from_ledger("return 1", "engine 1", settings, LEDGER)
    again = Continuation.from_dict(
        continuation_from_texts(json.loads(json.dumps([*continuation_to_texts(made.to_dict())])))
    )
    assert again == made
    assert again.replay_settings["parameters"] == {"preset": "secure", "loops": [1, None]}
    assert again.invocation_data == {"context": {"a": "\U0001f600"}}
    assert again.restore_settings(SETTINGS).invocation_data_json == settings.invocation_data_json


@given(st.text(), st.text(), st.none() | st.dictionaries(st.text(), st.text()))
def test_the_fields_of_an_error_come_back(message, code, details):
    fields = {"code": code, "message": message, "toolName": "t", **({} if details is None else {"details": details})}
    failed = Rejected("CodeModeToolError", message, "CODE", json.dumps(fields))
    made = Continuation.from_ledger("js", "engine", SETTINGS, Ledger([done_entry(1, failed)], [1]))
    again = Continuation.from_dict(
        continuation_from_texts(json.loads(json.dumps([*continuation_to_texts(made.to_dict())])))
    )
    assert again.ledger[1].make_delivery_message().to_frame() == made.ledger[1].make_delivery_message().to_frame()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)
json_objects = st.dictionaries(st.text(), json_values)


@given(st.none() | json_objects, json_objects)
def test_whatever_is_given_comes_back(what, parameters):
    profile = replace(SETTINGS.profile, parameters=parameters)
    invocation_data_json = None if what is None else encode_canonical_json(what)
    made = Continuation.from_ledger(
        "js", "engine", replace(SETTINGS, profile=profile, invocation_data_json=invocation_data_json), LEDGER
    )
    again = Continuation.from_dict(continuation_from_texts(continuation_to_texts(made.to_dict())))
    assert again == made
    assert again.invocation_data == (None if invocation_data_json is None else json.loads(invocation_data_json))


@each_row("wrong", ["", "[]", "1", "null", "{", "{}x", 5, [], {}, True])
def test_what_was_given_is_the_text_of_an_object(wrong):
    refused({**plain(), "given": wrong})


@pytest.mark.parametrize("wrong", [None, [], "x", 5])
def test_parameters_are_an_object(wrong):
    body = plain()
    body["settings"]["parameters"] = wrong
    refused(body)


def test_a_limit_says_itself_whether_it_is_told_and_kept(monkeypatch):
    @option_group
    class Wider(ExecutionPolicy):
        max_files: int = positive_limit_field(3, 10, is_sent_to_worker=True, is_signed=True)
        max_rows: int = positive_limit_field(3)
        max_words: int = positive_limit_field(3, is_signed=True)

    monkeypatch.setattr(continuation, "LargeHeapPolicy", Wider)
    settings = replace(SETTINGS, limits=Wider(max_files=5, max_rows=5, max_words=5))
    told = settings.to_worker_fields()
    assert (told["max_files"], "max_rows" in told, "max_words" in told) == (5, False, False)
    body = Continuation.from_ledger("js", "engine", settings, Ledger()).to_dict()
    assert body["settings"].keys() & {"max_files", "max_rows", "max_words"} == {"max_files", "max_words"}
    resumed = Continuation.from_dict(body).restore_settings(replace(settings, limits=Wider())).limits
    assert (resumed.max_files, resumed.max_rows, resumed.max_words) == (5, 3, 5)
    body["settings"]["max_files"] = 11
    refused(body, "max_files")


def test_what_is_told_and_kept_is_what_it_was():
    told = {"max_result_bytes", "max_tool_input_bytes", "max_bridge_requests", "max_in_flight_bridge_requests"}
    told |= {"max_catalog_requests", "max_console_bytes", "memory_limit_bytes", "max_stack_size_bytes"}
    told |= {"max_content_parts", "in_flight_limit"}
    assert SETTINGS.to_worker_fields().keys() == told | {"seed", "now_ms", "wrapper", "globals", "content"}
    kept = {
        "outer_tool_call_id",
        "salt",
        "seed",
        "started_ms",
        "profile",
        "fetch",
        "state",
        "language_names",
        "timeout_includes_tools",
    }
    kept |= {"parameters", "values"}
    assert plain()["settings"].keys() == kept | {"max_ledger_bytes"} | (told - {"max_result_bytes"})


@each_row("version", [REPLAY_VERSION + 1, REPLAY_VERSION - 1, None, "1", [1]])
def test_another_replay_version_is_refused(version):
    refused({**plain(), "replayVersion": version}, "replay version")


@pytest.mark.parametrize("version", [REPLAY_VERSION - 1, REPLAY_VERSION + 1, None, str(REPLAY_VERSION)])
def test_the_texts_of_another_replay_version_are_not_even_read(version):
    head, js, _, *rest = continuation_to_texts(CONTINUATION.to_dict())
    other = json.dumps({**json.loads(head), "replayVersion": version})
    with pytest.raises(CodeModeProtocolError, match="replay version"):
        continuation_from_texts([other, js, *rest])


@each_row("deliveries", [[], [1, 2, 3], [1, 2, 3, 4, 4], [1, 2, 3, 5], [1, 2, 3, 4, 5], [9]])
def test_deliveries_are_those_of_what_has_ended(deliveries):
    refused({**plain(), "deliveries": deliveries}, "deliveries")


def with_entry(position, **changes):
    body = plain()
    body["ledger"][position - 1].update(changes)
    return body


@each_row(
    "position, changes",
    [
        (1, {"toolCallId": "outer:tool-2"}),
        (1, {"toolCallId": "other:tool-1"}),
        (1, {"toolCallId": None}),
        (1, {"kind": "shell"}),
        (1, {"kind": ["tool"]}),
        (1, {"status": "interrupted"}),
        (1, {"status": "done"}),
        (1, {"status": ["fulfilled"]}),
        (1, {"more": 1}),
        (1, {"line": 1}),
        (1, {"line": -1, "column": 1}),
        (1, {"line": "1", "column": 1}),
        (1, {"valueJson": 5}),
        (4, {"error": {"name": "n", "message": "m"}}),
        (4, {"error": "n"}),
        (4, {"error": {"name": "n", "message": "m", "code": "c", "fields": None}}),
        (4, {"error": {"name": "n", "message": "m", "code": "c", "fields": "{}"}}),
        (4, {"error": {"name": "n", "message": "m", "code": "c", "fields": {}}}),
        (4, {"error": {"name": "n", "message": "m", "code": "c", "more": "{}"}}),
        (5, {"attempt": 0}),
        (5, {"attempt": True}),
        (5, {"interruptId": None}),
        (5, {"status": "fulfilled"}),
        (6, {"waits": -1}),
        (7, {"inputBytes": 1.5}),
        (3, {"status": "interrupted", "interruptId": "i", "interruptPayloadJson": "{}", "attempt": 1}),
    ],
)
def test_entries_are_checked(position, changes):
    refused(with_entry(position, **changes))


def test_request_ids_are_unique():
    body = with_entry(5)
    body["ledger"][5].update(
        {key: body["ledger"][4][key] for key in ("interruptId", "interruptPayloadJson", "attempt")}
    )
    body["ledger"][5]["status"] = "interrupted"
    refused(body, "unique")


def places(value, path=()):
    """All paths in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


junk = st.sampled_from(
    [None, True, 0, -1, 1, 1.0, 2**70, "", "x", "tool", "\ud800", [], [[]], [1], {}, {"kind": "tool"}, [{}] * 7]
)


@given(st.sampled_from(list(places(plain()))), junk)
def test_whatever_is_in_it_nothing_but_a_protocol_error_comes_out(path, new):
    body = replaced(copy.deepcopy(plain()), path, new)
    try:
        again = Continuation.from_dict(body)
    except CodeModeProtocolError:
        return
    json.dumps(again.to_dict())


@each_row("body", [None, [], "x", 5, {}, {"js": ""}])
def test_other_values_are_refused(body):
    refused(body)
