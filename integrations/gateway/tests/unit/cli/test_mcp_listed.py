"""What the command line shows of servers and of calls that wait: all that matters, nothing secret, nothing hidden."""

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest
from codemode_gateway import GatewayConfig, ServerConfig
from codemode_gateway.cli.approvals import format_call, format_pending_calls, format_record
from codemode_gateway.cli.configuration_commands import describe_location
from codemode_gateway.cli.serve import apply_command_line_overrides, parse_http_address
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.cli import main
from codemode.cli.exits import UsageError
from codemode.stores.records import Record, StoredRequest

SECRET = "sk-live-4242424242424242"


def record(**changes: Any) -> Record:
    request = StoredRequest(
        interrupt_id="call-1",
        kind="tool-approval",
        tool_name="shop.refund",
        input=changes.pop("input", {"order": "a", "cents": 900}),
        payload={},
        line=changes.pop("line", 2),
        annotations={"destructiveHint": True},
    )
    fields: dict[str, Any] = {
        "id": "run-1",
        "version": 1,
        "versions": (),
        "state": "pending",
        "outer_tool": "codemode.run",
        "tenant": "local",
        "app": "codemode-mcp",
        "labels": {},
        "source": "const a = 1;\nawait refund({ order: 'a', cents: 900 });\n",
        "payload": None,
        "created_at_ms": 0,
        "expires_at_ms": 86_400_000,
        "requests": (request,),
        "outcome": None,
    }
    return Record(**{**fields, **changes})


def test_a_card_has_server_tool_line_and_the_whole_input():
    text = "x" * 100_000
    shown = format_call(record(input={"text": text}), record(input={"text": text}).requests[0])
    assert "shop" in shown
    assert "refund" in shown
    assert "> " in shown
    assert "await refund({ order: 'a', cents: 900 });" in shown
    assert text in shown


@given(st.text(max_size=30), st.text(max_size=30))
def test_nothing_that_is_shown_moves_the_cursor_or_hides(key: str, value: str):
    one = record(input={key: value}, source=f"{key}\n{value}\n", not_resumable=value, tenant=key)
    for shown in (format_pending_calls([one]), format_call(one, one.requests[0]), format_record(one)):
        assert all(char.isprintable() or char == "\n" for char in shown)


@pytest.mark.parametrize("line", [None, 0, 3, 10**9])
def test_a_line_that_the_program_has_not_costs_nothing(line: int | None):
    assert "refund" in format_call(record(line=line), record(line=line).requests[0])
    assert "refund" in format_call(record(line=line, source=None), record(line=line).requests[0])


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (ServerConfig("a", "stdio", command="npx", args=("x", f"--token={SECRET}")), "npx (2 arguments)"),
        (
            ServerConfig("a", "http", url=f"https://user:{SECRET}@h.example:8443/{SECRET}/mcp?k={SECRET}"),
            "https://h.example:8443/…",
        ),
        (ServerConfig("a", "http", url="http://[::1]:80/"), "http://[::1]:80"),
    ],
)
def test_where_a_server_is_holds_no_secret(server: ServerConfig, expected: str):
    assert describe_location(server) == expected


@pytest.mark.parametrize("as_json", [False, True])
def test_list_shows_the_policy_and_no_secret(tmp_path: Any, capsys: Any, as_json: bool):
    servers = {
        "shop": {
            "command": "shop",
            "args": [f"--key={SECRET}"],
            "env": {"SHOP_TOKEN": SECRET},
            "codemode": {
                "approval": {"*": "writes", "refund": "always"},
                "tools": {"deny": ["drop_*"]},
                "timeoutMs": 1500,
            },
        },
        "desk": {"url": f"https://desk.example/{SECRET}", "headers": {"Authorization": f"Bearer {SECRET}"}},
        "off": {"command": "x", "disabled": True},
        "wrong": {"command": {}},
    }
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    assert main(["mcp", "list", "--config", str(path), *(["--json"] if as_json else [])]) == 0
    shown = capsys.readouterr()
    assert SECRET not in shown.out + shown.err
    for said in ("shop", "writes", "drop_*", "https://desk.example", "off", "wrong"):
        assert said in shown.out, said
    assert "mcpServers.wrong" in shown.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8765", ("127.0.0.1", 8765)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:99", ("::1", 99)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]):
    assert parse_http_address(text) == expected


@each_row("text", ["", "host", "host:", ":80", "::1:80", "h:80:90", "h:-1", "h:65536", "h:٣", "http://h:1"])
def test_another_address_is_refused_with_one_that_would_do(text: str):
    with pytest.raises(UsageError, match="--http"):
        parse_http_address(text)


def test_the_command_line_goes_over_the_file():
    given = argparse.Namespace(tool_name="run_code", output=None, pass_through=False)
    settings = apply_command_line_overrides(GatewayConfig(), given).settings
    assert (settings.tool_name, settings.output, settings.pass_through) == ("run_code", "both", False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1"),
        ("{", "line 1"),
        ("[]", "must be an object"),
        ("{}", "mcpServers"),
        ('{"mcpServers": {}}', "there is no server"),
        ('{"mcpServers": {"a": {"command": "x", "disabled": true}}}', "disables all of them"),
        ('{"mcpServers": {"a": {"command": {}}}}', "mcpServers.a.command"),
        ('{"mcpServers": {"a": {"command": "x"}}, "codemode": {"aproval": "never"}}', "codemode.aproval"),
        ('{"mcpServers": {"a": {"command": "x"}}, "codemode": {"toolName": 7}}', "codemode.toolName"),
    ],
)
@pytest.mark.parametrize("part", [[], ["check"], ["types"], ["run", "-"], ["--http", "127.0.0.1:0"]], ids=" ".join)
def test_with_a_bad_configuration_nothing_starts(tmp_path: Any, capfd: Any, text: str, said: str, part: list[str]):
    path = tmp_path / "mcp.json"
    path.write_text(text)
    (tmp_path / "program.ts").write_text("1")
    given = [str(tmp_path / "program.ts") if one == "-" else one for one in part]
    assert main(["mcp", "--config", str(path), *given]) == 2
    shown = capfd.readouterr()
    assert said in shown.err
    assert str(path) in shown.err or "codemode." in shown.err or "mcpServers" in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({}, "XDG_STATE_HOME"),
        ({"keys": ["a key of the tests, of 32 bytes."]}, "codemode.store"),
        ({"store": "sqlite:///mcp.json/it"}, "mcp.json"),
    ],
)
@pytest.mark.parametrize("part", [[], ["check"], ["--http", "127.0.0.1:0"]], ids=" ".join)
def test_without_a_folder_for_key_and_store_nothing_starts(
    tmp_path: Any, capfd: Any, monkeypatch: Any, part: list[str], own: Any, said: str
):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "x"}}, "codemode": own}))
    monkeypatch.setenv("XDG_STATE_HOME", str(path))  # which is no folder
    assert main(["mcp", "--config", str(path), *part]) == 2
    shown = capfd.readouterr()
    assert shown.err.count("\n") == 1
    assert said in shown.err
    assert shown.out == ""


def test_a_name_of_a_tool_that_clients_refuse_is_refused_first():
    given = argparse.Namespace(tool_name="a b", output=None, pass_through=None)
    with pytest.raises(ValueError, match="--tool-name: this must be 1 to 64 letters"):
        apply_command_line_overrides(GatewayConfig(), given)


def test_json_has_no_character_that_controls_a_terminal(tmp_path: Any, capsys: Any):
    path, name = tmp_path / "mcp.json", "a\x9b2Jb\u202ec"
    path.write_text(json.dumps({"mcpServers": {"ok": {"command": name}}}))
    assert main(["mcp", "list", "--json", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert (out.isascii(), json.loads(out)["servers"][0]["where"]) == (True, name)


def test_a_list_without_servers_says_why(tmp_path: Any, capsys: Any):
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServer": {"a": {"command": "x"}}, "approval": "never"}')
    assert main(["mcp", "list", "--config", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "did you mean mcpServers?" in shown.err
    assert 'approval: this only counts in "codemode"' in shown.err
