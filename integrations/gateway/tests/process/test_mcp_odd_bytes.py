"""Servers whose bytes are not quite those of the protocol: read where they are plain, named where they are not."""

import json
from typing import Any

import pytest
from codemode_gateway import ServerConfig, connect
from mcp_servers.configured import odd, of
from mcp_servers.odd_server import odd_http
from waiting import within

from codemode.errors import CodeModeToolError

BOM = "\ufeff"
WORKS = 'note got {"text": "x"}'


def called(server: ServerConfig) -> str:
    async def work():
        async with connect(of(server)) as connected:
            result = await connected.upstream("odd").call("note", {"text": "x"})
            return result.content[0]["text"]

    return within(work())


def refused(server: ServerConfig) -> str:
    with pytest.raises(CodeModeToolError) as error:
        called(server)
    return error.value.message


def over_http(settings: dict[str, Any], *, events: bool = False, hook: Any = None) -> str:
    with odd_http(settings, hook, events=events) as server:
        return called(ServerConfig("odd", "http", url=server.url))


def test_a_byte_order_mark_costs_nothing():
    for settings in ({"before": BOM}, {"before": BOM + "\n"}, {"each": BOM + "$\n"}, {"each": BOM + "$\r\n"}):
        assert called(odd(settings)) == WORKS, settings

    def marked(request: Any, message: Any) -> bool:
        text = request.server.odd.answer(message)
        kind = "text/event-stream" if request.server.events else "application/json"
        body = f"{BOM}data: {BOM}{text}\n\n" if request.server.events else BOM + (text or "")
        return text is not None and request.reply(200, body, Content_Type=kind)

    for events in (False, True):
        assert over_http({}, events=events, hook=marked) == WORKS, events


RESULT = '"result": {"content": [{"type": "text", "text": "one"}]}'
ANSWERS = [
    ("an array of one", f'[{{"jsonrpc": "2.0", "id": $ID, {RESULT}}}]'),
    ("no version", f'{{"id": $ID, {RESULT}}}'),
    ("an error that is null", f'{{"jsonrpc": "2.0", "id": $ID, "error": null, {RESULT}}}'),
    ("an id with a fraction", f'{{"jsonrpc": "2.0", "id": $ID.0, {RESULT}}}'),
]
ERRORS: list[tuple[str, Any, str]] = [
    ("a code in words", {"error": {"code": "RATE_LIMITED", "message": "slow down"}}, "slow down (RATE_LIMITED)"),
    ("a code that is in the message", {"error": {"code": "E7", "message": "E7: no"}}, "E7: no"),
    ("a number as a text", {"error": {"code": "-32011", "message": "no"}}, "no"),
    ("a fraction", {"error": {"code": 1.5, "message": "no"}}, "no (1.5)"),
    ("no code", {"error": {"message": "no"}}, "no"),
    ("no message", {"error": {"code": -32011, "reason": "full"}}, '{"reason": "full"}'),
    ("a message that is an object", {"error": {"code": -32011, "message": {"en": "full"}}}, '{"en": "full"}'),
    ("a text", {"error": "it is full"}, "it is full"),
]


def test_an_answer_whose_meaning_is_plain_is_taken(caplog: pytest.LogCaptureFixture):
    for name, answer in ANSWERS:
        caplog.clear()
        settings = {"answers": {"tools/call": answer}}
        assert called(odd(settings)) == "one", name
        assert over_http(settings) == "one", name
        assert over_http(settings, events=True) == "one", name
        assert name == "an error that is null" or "malformed JSON-RPC" in caplog.text, name


def test_an_odd_error_keeps_its_message():
    for name, answer, text in ERRORS:
        settings = {"answers": {"tools/call": answer}}
        assert refused(odd(settings)) == text, name
        for events in (False, True):
            with odd_http(settings, events=events) as server:
                assert refused(ServerConfig("odd", "http", url=server.url)) == text, (name, events)


def test_an_answer_over_http_needs_no_id_and_no_content_type():
    def hook(request: Any, message: Any) -> bool:
        text = request.server.odd.answer(message)
        if text is None:
            return False
        return request.reply(200, json.dumps({**json.loads(text), "id": None}), Content_Type="text/plain")

    assert over_http({}, hook=hook) == WORKS


def test_events_that_are_no_messages_are_passed_over():
    def hook(request: Any, message: Any) -> bool:
        text = request.server.odd.answer(message)
        events = f": hello\n\ndata: ping\n\ndata: [1, 2]\n\nevent: message\r\ndata: {text}"  # and no empty line
        return text is not None and request.reply(200, events, Content_Type="text/event-stream")

    assert over_http({}, hook=hook) == WORKS


def test_content_length_framing_is_named():
    body = json.dumps({"jsonrpc": "2.0", "id": 0, "result": {}})
    for before in (f"Content-Length: {len(body)}\r\n\r\n{body}", "content-length:7\n"):
        assert "it sends Content-Length headers" in refused(odd({"before": before})), before


def test_the_first_line_that_is_no_protocol_is_in_the_log(caplog: pytest.LogCaptureFixture):
    secret = "tok-4242424242424242"
    before = f"Listening with {secret} on port 7\nsecond\n" + "x" * 500 + "\n"
    assert called(odd({"before": before}, env={"API_TOKEN": secret}, secrets=(secret,))) == WORKS
    said = [one.getMessage() for one in caplog.records if "writes invalid messages" in one.getMessage()]
    assert len(said) == 1
    assert "Listening with" in said[0]
    assert secret not in said[0]
    assert "second" not in said[0]


def test_a_server_that_only_writes_noise_is_quoted_in_the_reason():
    server = ServerConfig("odd", "stdio", command="echo", args=("Usage: serve FILE",))
    assert refused(server).endswith("it ended with exit code 0: on stdout it wrote Usage: serve FILE")


def test_a_body_that_is_no_message_is_quoted():
    for body, kind, reason in (
        ("<!DOCTYPE html><p>Sign in", "text/html; charset=utf-8", "text/html that starts with '<!DOCTYPE html>"),
        ("pong", "application/json", "application/json that starts with 'pong'"),
        ('{"status": "ok"}', "application/json", 'starts with \'{"status": "ok"}\''),
        ("", "application/json", "its answer is empty (status 200)"),
    ):

        def hook(request: Any, _message: Any, body: str = body, kind: str = kind) -> bool:
            return request.reply(200, body, Content_Type=kind)

        with odd_http(hook=hook) as server:
            said = refused(ServerConfig("odd", "http", url=server.url))
        assert reason in said, (body, said)


def test_an_error_that_names_no_request_is_in_the_log(caplog: pytest.LogCaptureFixture):
    error = '{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "cannot parse that"}}\n'
    assert called(odd({"before": error})) == WORKS
    assert "errors without a request id on stdout; such lines are skipped. First line:" in caplog.text
    assert "cannot parse that" in caplog.text
