"""What a configuration comes to: every client's spelling, our keys, and what is said of mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import ConfigError, GatewayConfig, ServerConfig, load_config
from suite import each_row

from codemode.trace.unseen import has_only_visible_characters

Reading = Callable[..., GatewayConfig]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    def read(said: Any, name: str = "mcp.json", **how: Any) -> GatewayConfig:
        file = tmp_path / name
        text = said if isinstance(said, str | bytes) else json.dumps(said)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_config(file, environ=how.get("environ", {}), state_folder=tmp_path)

    return read


def one(entry: Mapping[str, Any], **how: Any) -> ServerConfig:
    found = load_config({"mcpServers": {"one": entry}}, environ=how.get("environ", {}))
    assert found.problems == ()
    return found.servers[0]


def problems(said: Mapping[str, Any], **how: Any) -> list[str]:
    return [str(problem) for problem in load_config(said, environ=how.get("environ", {})).problems]


def problem_of(entry: Any, **how: Any) -> str:
    told, left = problems({"mcpServers": {"bad": entry}}, **how)
    assert left.startswith("mcpServers: no server is left")
    return told


KEY = "a key of the tests, of 32 bytes."
STDIO = ["stdio", "STDIO", "local", "command"]
HTTP = ["http", "https", "streamable-http", "streamableHttp", "streamable_http", "StreamableHTTP", "http-stream"]
HTTP.append("remote")
SSE = ["sse", "SSE", "http+sse"]


@each_row("key", ["type", "transport", "transportType"])
@each_row(
    "spelling, transport",
    [(spelling, kind) for kind, all_of in (("stdio", STDIO), ("http", HTTP), ("sse", SSE)) for spelling in all_of],
)
def test_every_spelling_of_a_transport(key: str, spelling: str, transport: str):
    entry = {"command": "x"} if transport == "stdio" else {"url": "https://host/any"}
    assert one({**entry, key: spelling}).transport == transport


@each_row("key", ["url", "serverUrl", "httpUrl", "server_url", "http_url"])
def test_every_spelling_of_a_url(key: str):
    found = one({key: "https://host/mcp"})
    assert (found.transport, found.url) == ("http", "https://host/mcp")


@pytest.mark.parametrize("url", ["http://h/sse", "http://h/a/sse/", "http://h/sse?key=1"])
def test_a_path_of_sse_means_sse_unless_the_type_says_else(url: str):
    assert one({"url": url}).transport == "sse"
    assert one({"url": url, "type": "http"}).transport == "http"
    assert one({"httpUrl": url}).transport == "http"
    assert one({"url": "http://h/sse/more"}).transport == "http"
    assert one({"url": "${WHERE}"}, environ={"WHERE": url}).transport == "sse"


@each_row(
    "said",
    [
        {"mcpServers": {"a": {"command": "x"}}},
        {"servers": {"a": {"type": "stdio", "command": "x"}}},
        {"mcp": {"servers": {"a": {"command": "x"}}}},
        {"mcp.servers": {"a": {"command": "x"}}},
        {"mcp_servers": {"a": {"command": "x"}}},
    ],
)
def test_every_place_of_servers(said: dict[str, Any]):
    found = load_config(said, environ={})
    assert [server.name for server in found.servers] == ["a"]
    assert found.problems == ()


def test_a_server_of_each_key_of_clients(tmp_path: Path, reading: Reading):
    (tmp_path / "more.env").write_text("# more\nexport A=file\nB='b c'\nC=\"x\\ny\" # why\nD=d # why\n\nE=\n")
    entry = {
        "command": ["uvx", "--quiet"],
        "args": ["server", 7, True],
        "env": {"A": "own", "N": 1, "F": False, "gone": None},
        "envFile": "more.env",
        "cwd": "sub",
        "timeout": 30,
        "alwaysAllow": ["read"],
        "autoApprove": ["list_*", "read"],
        "disabledTools": ["drop"],
        "enabled_tools": ["read", "list_*"],
        "gallery": True,
        "description": {"any": "thing"},
    }
    server = reading({"mcpServers": {"one": entry}}).servers[0]
    assert (server.command, server.args) == ("uvx", ("--quiet", "server", "7", "true"))
    assert server.env == {"A": "own", "B": "b c", "C": "x\ny", "D": "d", "E": "", "N": "1", "F": "false"}
    assert server.cwd == str(tmp_path / "sub")
    assert server.timeout_ms == 30_000
    assert server.auto_approve == ("list_*", "read")
    assert (server.allow, server.deny) == (("read", "list_*"), ("drop",))


def test_codex_in_toml(reading: Reading):
    text = """
        model = "any"
        [mcp_servers.files]
        command = "npx"
        args = ["-y", "files"]
        env_vars = ["LANG", "NOT_SET"]
        startup_timeout_sec = 20
        tool_timeout_sec = 2.5
        enabled_tools = ["read"]
        [mcp_servers.files.env]
        DEBUG = "1"
        [mcp_servers.web]
        url = "https://host/mcp"
        bearer_token_env_var = "WEB_TOKEN"
        http_headers = { "X-Team" = "blue" }
        env_http_headers = { "X-Key" = "KEY" }
        [mcp_servers.off]
        command = "x"
        enabled = false
    """
    environ = {"LANG": "C", "WEB_TOKEN": "abcdefgh-token", "KEY": "the-key-of-it"}
    found = reading(text, "config.toml", environ=environ)
    files, web = found.servers
    assert (files.env, files.connect_timeout_ms, files.timeout_ms) == ({"LANG": "C", "DEBUG": "1"}, 20_000, 2_500)
    assert web.headers == {"X-Team": "blue", "X-Key": "the-key-of-it", "Authorization": "Bearer abcdefgh-token"}
    assert found.disabled == ("off",)
    assert found.problems == ()


@each_row(
    "said, milliseconds", [(1, 1_000), (60, 60_000), (3_600, 3_600_000), (3_601, 3_601), (30_000, 30_000), (0.5, 500)]
)
def test_a_timeout_is_in_seconds_up_to_an_hour(said: float, milliseconds: int):
    assert one({"command": "x", "timeout": said}).timeout_ms == milliseconds


def test_our_keys_of_a_server_and_their_defaults_at_the_top():
    top = {
        "timeoutMs": 5_000,
        "approval": "writes",
        "tools": {"deny": ["secret_*"]},
        "pin": "block",
        "secrets": ["NAME"],
    }
    own = {
        "approval": {"read_*": "never", "*": "always", "drop": "always"},
        "tools": {"allow": ["read_*"], "deny": ["drop"]},
        "connectTimeoutMs": 1_000,
        "maxConcurrency": 3,
        "maxConcurrencyPerProgram": 2,
        "idleMs": 1_000,
        "sharing": "session",
        "outputValidation": "strict",
        "approvalWaitMs": 0,
        "auth": {"clientId": "${ID}", "scopes": ["a"]},
    }
    said = {
        "codemode": top,
        "mcpServers": {
            "a": {"command": "x", "codemode": own},
            "b": {"command": "x", "timeout": 7, "env": {"NAME": "ab"}},
            "c": {"command": "x"},
        },
    }
    a, b, c = load_config(said, environ={"ID": "me"}).servers
    assert (a.approval, a.tool_approvals) == ("always", {"read_*": "never", "drop": "always"})
    assert (a.allow, a.deny) == (("read_*",), ("secret_*", "drop"))
    assert (a.timeout_ms, a.connect_timeout_ms, a.max_concurrency, a.idle_ms) == (5_000, 1_000, 3, 1_000)
    assert (a.max_concurrency_per_program, a.program_concurrency_limit) == (2, 2)
    assert (a.sharing, a.pin, a.approval_wait_ms) == ("session", "block", 0)
    assert (a.output_validation, c.output_validation) == ("strict", "warn")
    assert a.auth == {"clientId": "me", "scopes": ("a",)}
    assert (b.approval, b.timeout_ms, b.secrets) == ("writes", 7_000, ("ab",))
    assert c.timeout_ms == 5_000


def test_our_settings_at_the_top(tmp_path: Path):
    said = {
        "store": "postgresql://me:pass%20word@host/db",
        "keys": ["${KEY}"],
        "journal": True,
        "auth": {"tokens": {"sha256:" + "0" * 64: {"name": "ann"}}, "console": "token-of-console"},
        "learn": False,
        "toolName": "run",
        "output": "text",
        "passThrough": False,
        "limits": {"timeoutMs": 1_000, "maxToolCalls": 5},
        "clients": {"some-client": {"toolName": "x"}},
        "approvalWaitMs": 5,
    }
    found = load_config({"codemode": said}, environ={"KEY": KEY}, state_folder=tmp_path).settings
    assert (found.store, found.keys, found.journal, found.learn) == (said["store"], (KEY,), True, False)
    assert (found.tool_name, found.output, found.pass_through) == ("run", "text", False)
    assert (found.limits, found.clients, found.approval_wait_ms) == (said["limits"], said["clients"], 5)
    assert found.state_folder == tmp_path
    expected = {KEY, "token-of-console", "pass%20word", "pass word"}
    assert {*found.secrets} == expected


MISTAKES: list[tuple[Any, str]] = [
    ({"codemode": {"aproval": "never"}}, "bad.codemode.aproval: there is no such key; did you mean approval?"),
    ({"codemode": {"store": "x"}}, "bad.codemode.store: there is no such key"),
    ({"codemode": {"tools": {"alow": []}}}, "bad.codemode.tools.alow: there is no such key; did you mean allow?"),
    ({"codemode": {"approval": "allways"}}, "bad.codemode.approval: this must be"),
    ({"codemode": {"approval": "allways"}}, "did you mean always?"),
    ({"codemode": {"approval": {"x*": "perhaps"}}}, 'bad.codemode.approval["x*"]: this must be'),
    ({"codemode": {"timeoutMs": "60"}}, "bad.codemode.timeoutMs: this must be a whole number"),
    ({"codemode": {"timeoutMs": True}}, "bad.codemode.timeoutMs"),
    ({"codemode": {"maxConcurrency": 0}}, "bad.codemode.maxConcurrency"),
    ({"codemode": []}, "bad.codemode: this must be an object, not an array"),
    ({"codemode": None}, "bad.codemode: this must be an object, not null"),
    ({"args": "x"}, "bad.args: this must be an array, not a string"),
    ({"args": [{}]}, "bad.args[0]: this must be a string, not an object"),
    ({"env": ["A=1"]}, "bad.env: this must be an object, not an array"),
    ({"env": {"A": {}}}, "bad.env.A: this must be a string"),
    ({"env": {"A=B": "x"}}, 'bad.env["A=B"]'),
    ({"disabled": "yes"}, "bad.disabled: this must be true or false, not a string"),
    ({"timeout": "60s"}, "bad.timeout: this must be a number"),
    ({"timeout": -1}, "bad.timeout: this must be a number above 0"),
    ({"autoApprove": True}, "bad.autoApprove: this must be an array"),
    ({"type": "websocket"}, "bad.type: websockets are not supported"),
    ({"type": "carrier-pigeon"}, "bad.type: this is not a transport; use stdio, http or sse"),
    ({"type": 7}, "bad.type: this must be a string"),
    ({"type": "http"}, "bad: a server of this type needs a url"),
    ({"url": "http://h"}, "bad: this has a command and a url"),
    ({"command": ""}, "bad.command: the command is empty"),
    ({"command": []}, "bad.command: the command is empty"),
    ({"command": None}, "bad: this needs a command"),
    ({"command": None, "url": "ftp://h"}, "bad.url: this must be a URL"),
    ({"command": None, "url": "http://"}, "bad.url: this must be a URL"),
    ({"command": None, "url": "http://h:99999"}, "bad.url: this must be a URL"),
    ({"command": None, "url": "http://h", "headers": {"A b": "x"}}, 'bad.headers["A b"]: this is not a header name'),
    (
        {"command": None, "url": "http://h", "headers": {"A": "x\r\nB: y"}},
        "bad.headers.A: a header cannot have this value",
    ),
    (
        {"command": None, "url": "http://h", "headers": {"A": "Bearer ${NOT_SET:-}"}},
        "bad.headers.A: a header value cannot",
    ),
    ({"command": "x\0"}, "bad.command: this text has a NUL"),
    ({"envFile": "/nowhere/at/all.env"}, "bad.envFile: /nowhere/at/all.env: there is no such file"),
    ({"command": "${NOT_SET}"}, "bad.command: the variable NOT_SET is not set; set it"),
    (
        {"args": ["${input:api-key}"]},
        'bad.args[0]: the input "api-key" has no value; set the environment variable ',
    ),
    ({"args": ["${input:api-key}"]}, "CODEMODE_INPUT_API_KEY"),
    ({"env": {"A": "${command:x}"}}, "unknown variable"),
]


@each_row("entry, says", MISTAKES)
def test_a_mistake_disables_its_server_and_says_what_to_change(entry: dict[str, Any], says: str):
    bad = {"command": "x", **entry}
    told, _ = problems({"mcpServers": {"bad": bad}})
    assert says in told
    found = load_config({"mcpServers": {"bad": bad, "good": {"command": "y"}}}, environ={})
    assert [server.name for server in found.servers] == ["good"]
    assert [(problem.server, str(problem)) for problem in found.problems] == [("bad", told)]


@each_row("entry", [None, [], "x", 7, True])
def test_a_server_that_is_no_object(entry: Any):
    assert problem_of(entry).startswith("mcpServers.bad: this must be an object, not ")


@each_row("name", ["", " ", "a\nb", "x" * 500, "\x1b[31m", "a\u202eb", "a\u3164"])
def test_a_name_that_cannot_be_shown(name: str):
    told = problems({"mcpServers": {name: {"command": "x"}}})[0]
    assert "a server name has 1 to 128 visible characters" in told
    assert has_only_visible_characters(told)
    assert len(told) < 400


MISTAKES_AT_THE_TOP: list[tuple[Any, str]] = [
    ({"timeoutMS": 1}, "codemode.timeoutMS: there is no such key; did you mean timeoutMs?"),
    ({"auth": {"token": "x"}}, "codemode.auth.token: there is no such key; did you mean tokens?"),
    ({"store": "mysql://x"}, "codemode.store: this must be a URL"),
    ({"keys": []}, "codemode.keys: this needs a key"),
    (
        {"keys": [KEY, "short-and-secret"]},
        "codemode.keys[1]: a key has at least 32 characters; make one with python",
    ),
    ({"keys": "${SHORT:-short-and-secret}"}, "codemode.keys: a key has at least 32 characters"),
    (
        {"keys": [KEY, "change-me-" * 4]},
        "codemode.keys[1]: this is a placeholder that can be guessed; make a key with",
    ),
    ({"keys": "32 random bytes, the same on every host"}, "codemode.keys: this is a placeholder"),
    ({"keys": 32 * "0"}, "codemode.keys: this is a placeholder"),
    ({"keys": ["${MISSING}"]}, "codemode.keys[0]: the variable MISSING is not set"),
    ({"limits": {"timeout": 1}}, "codemode.limits.timeout: there is no such key"),
    ({"limits": {"maxMemoryBytes": 9}}, "codemode.limits: "),
    ({"toolName": "a b"}, "codemode.toolName"),
    ({"clients": {"x": 1}}, "codemode.clients.x: this must be an object"),
    ({"clients": {"x": {"tool": 1}}}, "codemode.clients.x.tool: there is no such key; did you mean toolName?"),
    ([], "codemode: this must be an object"),
    (None, "codemode: this must be an object, not null"),
]


@each_row("top, says", MISTAKES_AT_THE_TOP)
def test_a_mistake_at_the_top_is_an_error(top: Any, says: str):
    with pytest.raises(ConfigError) as caught:
        load_config({"codemode": top, "mcpServers": {"a": {"command": "x"}}}, environ={})
    assert says in str(caught.value)
    assert "short-and-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "line 1, column 1: the file is empty"),
        (b"\n\n", "line 3, column 1: the file is empty"),
        (b"[]", "must be an object"),
        (b'"text"', "must be an object"),
        (b'{"mcpServers": {"a": {"command": "x"} "b"', "line 1, column 39: expected a comma"),
        (b'{"mcpServers": {"a": {},\n "a": {}}}', 'line 2, column 2: the key "a" is a duplicate (first on line 1)'),
        (b'{"mcpServers":\n\xff\xff}', "line 2: this file is not UTF-8"),
        ('{"mcpServers": {}}'.encode("utf-16"), "this file is UTF-16; save it as UTF-8"),
        (b"[" * 5_000_000, "is larger than 4,194,304 bytes"),
        (b'{"a":' * 100_000, "nested more than 64 deep"),
        (b'{"mcpServers": []}', "mcpServers: this must be an object, not an array"),
    ],
)
def test_a_file_that_cannot_be_used(content: bytes, says: str, reading: Reading, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        reading(content)
    assert str(caught.value).startswith(str(tmp_path / "mcp.json"))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a = b", "a = 1\na = 2", "[x", "a = " + "[" * 50_000, "a = 1e", "x = '" + "s3cr3t" * 3]
)
def test_toml_that_is_none(text: str, reading: Reading):
    with pytest.raises(ConfigError) as caught:
        reading(text, "config.toml")
    assert "TOML" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_no_file_and_a_folder(tmp_path: Path):
    with pytest.raises(ConfigError, match="there is no such file; make one with `codemode mcp init`"):
        load_config(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="this is a folder; name a file in it"):
        load_config(tmp_path)
    with pytest.raises(ConfigError):
        load_config("a\0b")


def test_a_byte_order_mark_is_no_mistake(reading: Reading):
    assert reading(b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "x"}}}').servers


NONE_LEFT: list[tuple[Any, str]] = [
    ({}, "mcpServers: this key, which has the servers, is missing; add one with"),
    ({"mcpServers": None}, "mcpServers: there is no server; add one with"),
    ({"mcpServer": {}}, 'the file has "mcpServer"; did you mean mcpServers?'),
    ({"mcpservers": {}}, 'the file has "mcpservers"; did you mean mcpServers?'),
    ({"git": {"command": "x"}}, 'move "git" and all other servers into it, as in {"mcpServers": {"git": ...}}'),
    ({"mcpServers": {}}, "mcpServers: there is no server; add one"),
    ({"servers": {}}, "servers: there is no server; add one"),
    ({"mcpServers": {"a": {"command": "x", "disabled": True}}}, "the file disables all of them"),
    ({"mcpServers": {"a": {}}}, "mcpServers: no server is left"),
]


@each_row("said, says", NONE_LEFT)
def test_that_no_server_is_left_is_told(said: dict[str, Any], says: str):
    found = load_config(said, environ={})
    assert found.servers == ()
    assert found.problems[-1].server is None
    assert says in str(found.problems[-1])


def test_what_is_turned_off_is_not_looked_at():
    found = load_config(
        {"mcpServers": {"a": {"disabled": True, "command": "${X}"}, "b": {"enabled": False}}}, environ={}
    )
    assert found.disabled == ("a", "b")
    assert [problem.server for problem in found.problems] == [None]


def test_one_name_in_two_places_is_used_once_and_told():
    found = load_config({"mcpServers": {"a": {"command": "x"}}, "servers": {"a": {"command": "y"}}}, environ={})
    assert [server.command for server in found.servers] == ["x"]
    assert [str(one) for one in found.problems] == ["servers.a: mcpServers.a has the same name and is used; rename one"]


def test_the_source_is_left_as_it_was():
    said = {
        "mcpServers": {"a": {"command": "${X}", "codemode": {"approval": {"*": "never"}}}},
        "codemode": {"keys": ["${X}"]},
    }
    before = json.dumps(said)
    load_config(said, environ={"X": KEY})
    assert json.dumps(said) == before


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("codemode", ["mcp", "--config", "mcp.json"]),
        ("codemode", ["mcp"]),
        ("/opt/bin/codemode", ["--config=./mcp.json", "mcp"]),
        ("C:\\bin\\codemode.exe", ["mcp"]),
        ("python3", ["-m", "codemode", "mcp", "--config", "../here/mcp.json"]),
        ("uvx", ["--from", "codemode-toolkit[mcp]", "codemode", "mcp"]),
        ("env", ["A=b", "codemode", "mcp"]),
    ],
)
def test_a_gateway_does_not_start_itself(command: str, args: list[str], tmp_path: Path):
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "other.json").write_text("{}")
    entry = {"command": command, "args": args, "cwd": str(folder)}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"a": entry, "b": {"command": "x"}}}))
    found = load_config(folder / "mcp.json", environ={})
    assert [server.name for server in found.servers] == ["b"]
    assert "this starts the gateway itself" in str(found.problems[0])


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("codemode", ["mcp", "--config", "other.json"]),
        ("codemode", ["doctor"]),
        ("uvx", ["mcp-server-git"]),
        ("mcp", []),
    ],
)
def test_what_starts_another_thing_is_a_server(command: str, args: list[str], tmp_path: Path):
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": command, "args": args}}}))
    assert load_config(tmp_path / "mcp.json", environ={}).problems == ()


def test_a_mapping_that_is_nested_without_end_is_an_error():
    deep: dict[str, Any] = {}
    deep["approval"] = deep
    with pytest.raises(ConfigError, match="nested too deep"):
        load_config({"codemode": deep}, environ={})


@each_row(
    "said, note",
    [
        ({"mcpServers": {"a": {"command": "x", "approval": "always"}}}, "mcpServers.a.approval: this only counts in"),
        ({"mcpServers": {"a": {"command": "x"}}, "toolName": "run"}, "toolName: this only counts in"),
        ({"mcpServers": {"a": {"command": "x"}}, "codemod": {"approval": "always"}}, "codemod: there is no such key;"),
        ({"mcpServers": {"a": {"command": "x", "Codemode": {}}}}, "mcpServers.a.Codemode: there is no such key;"),
        ({"mcpServers": {"a": {"command": "x", "tools": ["*"], "codemode": {"pin": "block"}}}, "inputs": []}, None),
    ],
)
def test_what_is_ours_and_stands_in_another_place_is_told(said: dict[str, Any], note: str | None):
    found = load_config(said, environ={})
    assert ([one.name for one in found.servers], found.problems) == (["a"], ())
    assert [one.startswith(note or "-") for one in found.notes] == ([True] if note else [])


@pytest.mark.parametrize(
    ("store", "file"),
    [
        ("sqlite:///in/it.db", "{}/in/it.db"),
        ("sqlite:////there.db", "/there.db"),
        ("sqlite:///~/it.db", "/home/ana/it.db"),
        ("sqlite:///~nobody/it.db", "{}/~nobody/it.db"),
        ("", ""),
    ],
)
def test_the_file_of_a_store_is_the_same_wherever_the_gateway_is_started(tmp_path: Path, store: str, file: str):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"codemode": {"store": store} if store else {}}))
    expected = f"sqlite:///{file.format(tmp_path)}" if store else None
    assert load_config(path, environ={"HOME": "/home/ana"}).settings.store == expected
