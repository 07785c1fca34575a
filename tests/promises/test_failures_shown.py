"""What traces, events and errors show of what went wrong."""

from __future__ import annotations

import json

import pytest

from codemode import (
    CodeModeError,
    Interrupt,
    request_interrupt,
    run_code_mode_sync,
)

SECRET = "no route to db-7.internal"


class Wordless(Exception):
    def __str__(self):
        raise KeyError(SECRET)


@pytest.mark.parametrize("raised", [KeyError(SECRET), Wordless()], ids=["worded", "wordless"])
def test_the_trace_shows_what_was_raised(raised):
    traces = []

    def fails():
        raise raised

    js = "await tools.fails().catch(() => 0); return 1"
    run_code_mode_sync(js, [fails], options={"lifecycle": {"on_trace": traces.append, "on_nested_tool_result": len}})
    (trace,) = traces
    name = type(raised).__name__
    assert f"rejected: {name}: " in trace.to_text()
    assert name in trace._repr_html_()
    (call,) = trace.to_dict()["bridgeRequests"]
    assert "cause" not in call["error"]
    (call,) = trace.to_dict(causes=True)["bridgeRequests"]
    assert call["error"]["cause"]["name"] == name
    json.dumps(trace.to_dict(causes=True))


def test_events_say_of_what_kind_they_are_and_which_pause_it_was():
    heard = []

    async def fetch(*_, **__):
        raise OSError

    def ask():
        request_interrupt({"kind": "connection-auth", "scope": "x"})

    names = ("nested_tool_call", "nested_tool_result", "fetch_request", "fetch_result", "trace", "interrupt")
    options = {
        "lifecycle": {f"on_{name}": heard.append for name in names},
        "fetch_policy": {"fetch": fetch, "allowed_origins": ["http://mine.localhost"]},
    }
    js = "await fetch('http://mine.localhost/').catch(() => 0); return await tools.ask({})"
    paused = run_code_mode_sync(js, [ask], options=options)
    assert isinstance(paused, Interrupt)
    plain = [event.to_dict() for event in heard]
    assert [one.get("kind") for one in plain] == ["fetch", "fetch", "tool", "tool", None, None]
    result, trace = plain[3], plain[5]
    assert result["interruptId"] == result["interrupt"]["interruptId"] == paused.interrupt_id
    shown = paused.to_dict()
    assert result["interrupt"] == {key: shown[key] for key in result["interrupt"]}
    assert result["interruptType"] == "code-mode-interrupt"
    assert trace["bridgeRequests"] == [plain[1], result]
    assert heard[3].interrupt == {"kind": "connection-auth", "scope": "x"}


@pytest.mark.parametrize(
    ("thrown", "kept"),
    [
        ("Object.assign(new Error('x'), { details: { a: [1, 'ü'], b: null } })", {"a": [1, "ü"], "b": None}),
        ("{ message: 'x', details: 'text' }", "text"),
        ("Object.assign(new TypeError('x'), { details: 7 })", 7),
        (
            "Object.assign(new Error('x'), { details: { name: 'CodeModeTimeoutError', line: 9 } })",
            {"name": "CodeModeTimeoutError", "line": 9},
        ),
    ],
)
def test_details_of_a_program_are_kept_under_a_key_of_their_own(thrown, kept):
    with pytest.raises(CodeModeError) as caught:
        run_code_mode_sync(f"throw {thrown}", [])
    assert type(caught.value) is CodeModeError
    assert caught.value.details["details"] == kept
    assert caught.value.details["name"] in ("Error", "TypeError")


@pytest.mark.parametrize(
    "details",
    ["(() => 1)", "undefined", "(() => { const a = []; a.push(a); return a })()", "{ toJSON() { throw 1 } }"],
)
def test_details_that_are_no_json_are_left_out(details):
    with pytest.raises(CodeModeError) as caught:
        run_code_mode_sync(f"throw Object.assign(new Error('x'), {{ details: {details} }})", [])
    assert caught.value.message == "x"
    assert "details" not in caught.value.details


def test_long_details_of_an_error_are_cut():
    with pytest.raises(CodeModeError) as caught:
        run_code_mode_sync("throw Object.assign(new Error('x'), { details: Array(1e6).fill('long') })", [])
    kept = caught.value.details["details"]
    assert kept.startswith('["long","long"')
    assert len(kept) < 20_000
