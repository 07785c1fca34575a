"""What is sent with a call, and what becomes of what comes back."""

import json
from types import SimpleNamespace
from typing import Any, cast

import mcp_types as types
import pytest
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.upstreams.call_retries import (
    add_metadata_and_create_options,
    create_argument_headers,
    outcome_unknown_error,
    unanswered_call_error,
)
from codemode_gateway.upstreams.connection_errors import UnansweredRequestError
from codemode_gateway.upstreams.jsonrpc_lines import MAX_REQUEST_VALUES, parse_message_line, unreadable_answer_error
from codemode_gateway.upstreams.session_streams import sanitize_message
from mcp.shared.message import SessionMessage
from suite import each_row

SCHEMA = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
TOOL = types.Tool(name="t", input_schema=SCHEMA)


def connection(era: str, *, is_stdio: bool = False) -> Any:
    return cast(
        "Any", SimpleNamespace(era=era, tracks_sending=is_stdio, session=SimpleNamespace(protocol_version="2026-07-28"))
    )


def test_arguments_are_mirrored_into_headers_where_the_revision_asks_for_it():
    given = {"region": "north", "other": 1}
    assert create_argument_headers(connection("modern"), TOOL, given) == {"Mcp-Param-Region": "north"}
    assert create_argument_headers(connection("modern"), types.Tool(name="t", input_schema={}), given) == {}
    assert create_argument_headers(connection("modern"), None, given) == {}
    assert create_argument_headers(connection("handshake"), TOOL, given) == {}
    assert create_argument_headers(connection("modern", is_stdio=True), TOOL, given) == {}


def test_the_newer_revision_is_said_in_every_request():
    params: dict[str, Any] = {"name": "t", "_meta": {"traceparent": "p"}}
    headers = add_metadata_and_create_options(connection("modern"), "tools/call", params, {"roots": {}}).get(
        "headers", {}
    )
    assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "t")
    assert params["_meta"]["traceparent"] == "p"
    assert params["_meta"][types.CLIENT_CAPABILITIES_META_KEY] == {"roots": {}}
    assert add_metadata_and_create_options(connection("handshake"), "tools/call", {"name": "t"}, {}) == {
        "headers": {"mcp-protocol-version": "2026-07-28"}
    }


def test_an_error_says_whether_the_call_may_have_happened():
    server = ServerConfig("s", "stdio", timeout_ms=5)
    assert outcome_unknown_error(server, "t", UnansweredRequestError("it left")).code == "OUTCOME_UNKNOWN"
    assert "within 5 ms" in outcome_unknown_error(server, "t", UnansweredRequestError("", is_late=True)).message
    assert unanswered_call_error(server, "t", UnansweredRequestError("", is_late=True)).code == "TIMEOUT"
    assert (
        unanswered_call_error(server, "t", UnansweredRequestError("it left")).message
        == "'t' of server 's' failed: it left"
    )


@each_row(
    "line, one",
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{', 7),
        (b'{"id": "a-1", "jsonrpc": "2.0", "error"', "a-1"),
        (b'{"level":"info","id":7', None),
        (b'{"jsonrpc":"2.0","method":"x","id":7,', None),
        (b'[{"jsonrpc":"2.0","id":7}]', None),
        (b"hello", None),
    ],
)
def test_of_a_broken_answer_it_is_known_whose_it_was(line, one):
    assert parse_message_line(line).message is None
    answer = unreadable_answer_error(line)
    assert (answer and answer.id) == one


def test_half_a_pair_of_surrogates_costs_no_answer():
    message = parse_message_line(b'{"jsonrpc":"2.0","id":1,"result":{"a":"\\ud800"}}').message
    assert message.result == {"a": "\ufffd"}
    assert parse_message_line(b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}').message.result == {"a": "\ufffd"}


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("kind", [types.JSONRPCRequest, types.JSONRPCNotification])
def test_what_a_server_asks_or_tells_is_read_on_the_loop_only_in_bounds(kind: Any, over: bool) -> None:
    params = {"messages": [0] * (MAX_REQUEST_VALUES + 1 if over else 10)}
    more = {"id": "q"} if kind is types.JSONRPCRequest else {}
    item = SessionMessage(kind(jsonrpc="2.0", method="sampling/createMessage", params=params, **more))
    found = sanitize_message(item).message
    assert found.params == ({} if over else params)
    assert found.method == "sampling/createMessage"
    assert getattr(found, "id", None) == more.get("id")


def test_answers_and_ends_pass_as_they_are() -> None:
    answer = SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=1, result={"a": [0] * (MAX_REQUEST_VALUES + 1)}))
    error = ValueError("no message")
    assert sanitize_message(answer) is answer
    assert sanitize_message(error) is error


def test_a_long_line_is_read_where_it_is_an_answer_whatever_words_it_holds() -> None:
    many = [{"method": "GET", "status": 200}] * MAX_REQUEST_VALUES
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"content": [], "structuredContent": {"log": many}}}
    assert isinstance(parse_message_line(json.dumps(answer).encode()).message, types.JSONRPCResponse)
    asked = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"messages": many}}
    assert parse_message_line(json.dumps(asked).encode()).message is None
    last = {"params": {"messages": many}, "jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage"}
    found = parse_message_line(json.dumps(last).encode()).message
    assert found is None or sanitize_message(SessionMessage(found)).message.params == {}
