"""The files of five clients: servers imported, the gateway put in their place, and all of it undone."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import ConfigError, load_config
from codemode_gateway.client_configs.importing import (
    CLIENTS,
    ClientEnvironment,
    collect_importable_servers,
    list_client_files,
)
from codemode_gateway.client_configs.installing import install_gateway, uninstall_gateway
from codemode_gateway.client_configs.text_files import parse_config_servers
from suite import each_row

COMMAND = ("/bin/codemode",)
SECRET = "s3cr3t-that-nobody-reads"

CLAUDE_DESKTOP = """{
    "globalShortcut": "Ctrl+Space",
    "mcpServers": {
        "files": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp/${literal}$${${"]
        },
        "notes": {"command": "uvx", "args": ["notes"], "env": {"NOTES_TOKEN": "s3cr3t-that-nobody-reads"}}
    },
    "preferences": {"menuBarEnabled": false}
}
"""
CLAUDE_CODE = """{
  "numStartups": 7,
  "mcpServers": {
    "git": {"type": "stdio", "command": "uvx", "args": ["mcp-server-git"], "env": {}},
    "docs": {
      "type": "http",
      "url": "https://docs.example/mcp",
      "headers": {"Authorization": "Bearer ${DOCS_TOKEN:-none}"}
    }
  },
  "projects": {"/home/me/one": {"mcpServers": {"own": {"command": "own"}}, "history": [1, 2.50, "ü"]}}
}"""
CURSOR = """{\r
\t// what I use\r
\t"mcpServers": {\r
\t\t/* the first */ "web": { "url": "https://web.example/sse" }, // of the team\r
\t\t"local": { "command": "node", "args": ["x.js",], "env": {"KEY": "${env:LOCAL_KEY}"}, },\r
\t},\r
}\r
"""
VSCODE = """{
\t"inputs": [{"type": "promptString", "id": "api-key", "description": "Key", "password": true}],
\t"servers": {
\t\t"github": {
\t\t\t"type": "http",
\t\t\t"url": "https://github.example/mcp",
\t\t\t"headers": {"Authorization": "Bearer ${input:api-key}"}
\t\t},
\t\t"ws": {"type": "websocket", "url": "ws://only.here"}, // stays
\t\t"play": {"type": "stdio", "command": "npx", "args": ["play"], "envFile": "${workspaceFolder}/.env"}
\t}
}
"""
CODEX = '''# mine
model = "o9"
notify = [
  "[mcp_servers.not_this]",
  ["x"],
]

[profiles.fast]
text = """
[mcp_servers.nor_this]
"""

# files of the project
[mcp_servers.files]
command = "npx"
args = [
  "-y", # yes
  "files",
]
env_vars = ["PROJECT"]

[mcp_servers.files.env]
DEBUG = "${1}"

[mcp_servers."with.dot"]
url = "https://host.example/mcp"
bearer_token_env_var = "HOST_TOKEN" # from the shell

[tui]
theme = "dark" # last
'''

TEXTS = dict(zip(CLIENTS, (CLAUDE_DESKTOP, CLAUDE_CODE, CURSOR, VSCODE, CODEX), strict=True))
MOVED = {
    "claude-desktop": ["files", "notes"],
    "claude-code": ["git", "docs"],
    "cursor": ["web", "local"],
    "vscode": ["github", "play"],
    "codex": ["files", "with.dot"],
}


def written(client: str, machine: ClientEnvironment, text: str | bytes | None = None) -> Path:
    path = list_client_files(client, machine)[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    said = TEXTS[client] if text is None else text
    path.write_bytes(said if isinstance(said, bytes) else said.encode())
    return path


def reads(path: Path) -> dict[str, Any]:
    """Return what a client's file says, by a reader of its own."""
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text())
    kept = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/[*].*?[*]/', re.DOTALL)
    text = kept.sub(lambda one: one[1] or "", path.read_text(encoding="utf-8-sig"))
    return json.loads(re.sub(r",(\s*[]}])", r"\1", text))


def others(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


@each_row(
    "client, platform, environ, expected",
    [
        ("claude-desktop", "darwin", {}, "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", {}, "/h/.config/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", {"APPDATA": "/a"}, "/a/Claude/claude_desktop_config.json"),
        ("claude-code", "linux", {}, "/h/.claude.json"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/c"}, "/c/.claude.json"),
        ("cursor", "darwin", {}, "/h/.cursor/mcp.json"),
        ("vscode", "darwin", {}, "/h/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "linux", {}, "/h/.config/Code/User/mcp.json"),
        ("vscode", "win32", {"APPDATA": "/a"}, "/a/Code/User/mcp.json"),
        ("vscode", "linux", {"VSCODE_PORTABLE": "/p"}, "/p/user-data/User/mcp.json"),
        ("codex", "linux", {}, "/h/.codex/config.toml"),
        ("codex", "linux", {"CODEX_HOME": "/c"}, "/c/config.toml"),
    ],
)
def test_where_a_client_keeps_its_servers(client: str, platform: str, environ: dict[str, str], expected: str):
    assert list_client_files(client, ClientEnvironment({"HOME": "/h", **environ}, platform))[0].path == Path(expected)


def test_a_client_that_is_not_known_is_told_with_those_that_are(machine: ClientEnvironment):
    with pytest.raises(ConfigError, match="use one of claude-desktop, claude-code, cursor, vscode, codex"):
        list_client_files("other", machine)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_servers_of_a_client_are_imported(client: str, machine: ClientEnvironment):
    path = written(client, machine)
    before = path.read_bytes()
    servers = collect_importable_servers(client, machine)
    assert list(servers.servers) == MOVED[client]
    assert servers.files == (path,)
    assert list(servers.skipped) == (["ws"] if client == "vscode" else [])
    assert path.read_bytes() == before
    assert SECRET not in repr(servers)
    environ = {"LOCAL_KEY": "k", "PROJECT": "p", "HOST_TOKEN": "t", "CODEMODE_INPUT_API_KEY": "a"}
    config = load_config({"mcpServers": servers.servers}, environ=environ)
    assert [str(one) for one in config.problems if "envFile" not in one.path] == []


def test_what_a_client_does_not_fill_in_is_no_variable_for_us(machine: ClientEnvironment):
    written("claude-desktop", machine)
    written("codex", machine)
    desktop = load_config({"mcpServers": collect_importable_servers("claude-desktop", machine).servers}, environ={})
    codex = load_config(
        {"mcpServers": collect_importable_servers("codex", machine).servers}, environ={"HOST_TOKEN": "abcdefgh"}
    )
    assert desktop.servers[0].args[-1] == "/tmp/${literal}$${${"
    assert codex.servers[0].env == {"DEBUG": "${1}"}
    assert codex.servers[1].headers == {"Authorization": "Bearer abcdefgh"}


def test_servers_of_a_project_are_imported_with_their_paths(tmp_path: Path, machine: ClientEnvironment):
    project = tmp_path / "one"
    machine = replace(machine, project=project)
    entry = {"command": "x", "cwd": "in", "envFile": "${workspaceFolder}/.env"}
    for file in (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json"):
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(json.dumps({"servers" if "vs" in file else "mcpServers": {"a": entry}}))
    for client in ("claude-code", "cursor", "vscode"):
        servers = collect_importable_servers(client, machine).servers
        assert servers == {"a": {**entry, "cwd": str(project / "in"), "envFile": str(project / ".env")}}
    written("claude-code", machine, json.dumps({"projects": {str(project): {"mcpServers": {"b": {"command": "y"}}}}}))
    assert [*collect_importable_servers("claude-code", machine).servers] == ["b", "a"]


def test_servers_of_vs_codes_settings_are_imported(machine: ClientEnvironment):
    settings = list_client_files("vscode", machine)[1].path
    settings.parent.mkdir(parents=True)
    settings.write_text(
        '{"editor.fontSize": 12, // big\n "mcp": {"servers": {"old": {"command": "x"}}, "inputs": [{"id": "i"}]}}'
    )
    servers = collect_importable_servers("vscode", machine)
    assert (servers.servers, servers.inputs) == ({"old": {"command": "x"}}, ({"id": "i"},))


def test_a_client_without_a_file_has_no_servers(machine: ClientEnvironment):
    for client in CLIENTS:
        assert collect_importable_servers(client, machine).servers == {}


@pytest.mark.parametrize("client", CLIENTS)
def test_the_gateway_takes_the_place_of_the_servers_and_gives_it_back(
    client: str, machine: ClientEnvironment, config: Path
):
    path = written(client, machine)
    path.chmod(0o640)
    before, said = path.read_bytes(), reads(path)

    change = install_gateway(client, config, machine=machine, command=COMMAND)
    assert change.is_changed
    assert list(change.moved) == MOVED[client]
    key = list_client_files(client, machine)[0].keys[0]
    after = reads(path)
    entry = after[key]["codemode"]
    assert (entry["command"], entry["args"]) == ("/bin/codemode", ["mcp", "--config", str(config)])
    assert [*after[key]] == (["codemode", "ws"] if client == "vscode" else ["codemode"])
    assert {**after, key: 0} == {**said, key: 0}
    assert [*after] == [*said]
    assert [*parse_config_servers(config.read_text())] == MOVED[client]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert change.backup is not None
    assert change.backup.read_bytes() == before
    assert stat.S_IMODE(change.backup.stat().st_mode) == 0o640

    once, ours = path.read_bytes(), config.read_bytes()
    again = install_gateway(client, config, machine=machine, command=COMMAND)
    assert (again.is_changed, again.diff, again.backup) == (False, "", None)
    assert (path.read_bytes(), config.read_bytes()) == (once, ours)

    back = uninstall_gateway(client, machine=machine)
    assert list(back.moved) == MOVED[client]
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert others(path.parent) == [path.name]
    with pytest.raises(ConfigError, match="nothing to undo"):
        uninstall_gateway(client, machine=machine)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dry_run_shows_the_difference_and_changes_nothing(client: str, machine: ClientEnvironment, config: Path):
    path = written(client, machine)
    before = path.read_bytes()
    change = install_gateway(client, config, machine=machine, command=COMMAND, dry_run=True)
    assert path.read_bytes() == before
    assert others(path.parent) == [path.name]
    assert not config.exists()
    assert change.is_changed
    assert change.backup is None
    assert f"--- {path}" in change.diff
    assert "+++ " + str(config) in change.diff
    assert any(line.startswith("+") and "/bin/codemode" in line for line in change.diff.splitlines())
    assert any(line.startswith("-") and "command" in line + "url" for line in change.diff.splitlines())
    assert SECRET not in change.diff

    install_gateway(client, config, machine=machine, command=COMMAND)
    now = path.read_bytes()
    assert f"+++ {path}" in uninstall_gateway(client, machine=machine, dry_run=True).diff
    assert path.read_bytes() == now


def changed(client: str, text: str) -> tuple[str, str]:
    """Return a client's text after it has written something else, and what of it has to be there at the end."""
    if client == "codex":
        return text.replace(
            '"dark"', '"light"'
        ) + '\n[mcp_servers.new] # new\nurl = "http://new"\n', 'theme = "light" # last'
    name = '"servers": {' if client == "vscode" else '"mcpServers": {'
    # The first place: of a project's servers below, nothing is touched.
    text = text.replace(name, name + ' "new": {"url": "http://new"}, // new\n', 1)
    return text.replace("{", '{ "seen": [1, 2], // seen\n', 1), '"seen": [1, 2], // seen'


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_has_changed_meanwhile_stays_when_it_is_undone(
    client: str, machine: ClientEnvironment, config: Path
):
    path = written(client, machine)
    key = list_client_files(client, machine)[0].keys[0]
    was = collect_importable_servers(client, machine).servers
    said = reads(path)
    install_gateway(client, config, machine=machine, command=COMMAND)
    text, mark = changed(client, path.read_text())
    path.write_text(text, newline="")
    uninstall_gateway(client, machine=machine)
    now = path.read_text()
    assert mark in now
    assert [*collect_importable_servers(client, machine).servers.items()] != []
    assert collect_importable_servers(client, machine).servers == {**was, "new": {"url": "http://new"}}
    assert "/bin/codemode" not in now
    if client == "codex":
        assert {**reads(path), key: 0, "tui": 0} == {**said, key: 0, "tui": 0}
        assert "# from the shell" in now


@pytest.mark.parametrize("client", CLIENTS)
def test_servers_that_came_later_move_too_and_all_come_back(client: str, machine: ClientEnvironment, config: Path):
    path = written(client, machine)
    was = collect_importable_servers(client, machine).servers
    install_gateway(client, config, machine=machine, command=COMMAND)
    text, _ = changed(client, path.read_text())
    path.write_text(text, newline="")
    change = install_gateway(client, config, machine=machine, command=COMMAND)
    assert change.moved == ("new",)
    assert [*parse_config_servers(config.read_text())] == [*MOVED[client], "new"]
    assert not install_gateway(client, config, machine=machine, command=COMMAND).is_changed
    uninstall_gateway(client, machine=machine)
    assert collect_importable_servers(client, machine).servers == {**was, "new": {"url": "http://new"}}
    assert others(path.parent) == [path.name]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_was_written_anew_meanwhile_is_not_lost(client: str, machine: ClientEnvironment, config: Path):
    path = written(client, machine)
    install_gateway(client, config, machine=machine, command=COMMAND)
    name = MOVED[client][0]
    if client == "codex":
        text = path.read_text() + f'\n[mcp_servers.{name}]\ncommand = "other"\n'
    else:
        key = '"servers": {' if client == "vscode" else '"mcpServers": {'
        text = path.read_text().replace(key, f'{key} "{name}": {{"command": "other"}},', 1)
    path.write_text(text, newline="")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=f"the server {name} has changed since"):
        uninstall_gateway(client, machine=machine)
    assert path.read_bytes() == before


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_file_gets_one_and_loses_it_again(client: str, machine: ClientEnvironment, config: Path):
    path = list_client_files(client, machine)[0].path
    install_gateway(client, config, machine=machine, command=COMMAND)
    assert [*reads(path)[list_client_files(client, machine)[0].keys[0]]] == ["codemode"]
    uninstall_gateway(client, machine=machine)
    assert others(path.parent) == []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("text", ["", "\n", "{}", "{\n}\n", '{"a": 1}', '{"a": {"b": [1]}} // x\n', "﻿{}"])
def test_a_file_without_servers(client: str, text: str, machine: ClientEnvironment, config: Path):
    text = {"{}": "", "{\n}\n": "# x\n"}.get(text, "a = 1 # x" if "{" in text else text) if client == "codex" else text
    path = written(client, machine, text)
    install_gateway(client, config, machine=machine, command=COMMAND)
    said = path.read_text(encoding="utf-8-sig")
    assert "/bin/codemode" in said
    assert all(part in said for part in ("// x", '"b": [1]', "a = 1", "# x") if part in text)
    uninstall_gateway(client, machine=machine)
    assert path.read_bytes() == text.encode()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_link_is_followed_and_stays_one(client: str, machine: ClientEnvironment, config: Path, tmp_path: Path):
    path = written(client, machine)
    target = tmp_path / "dotfiles"
    path.rename(target)
    path.symlink_to(target)
    before = target.read_bytes()
    install_gateway(client, config, machine=machine, command=COMMAND)
    assert path.is_symlink()
    assert target.read_bytes() != before
    uninstall_gateway(client, machine=machine)
    assert path.is_symlink()
    assert target.read_bytes() == before


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "content", [b"{", b"[1", b"\xff\xfe{\0}\0", b"\xff", b"= 1", b'{"mcpServers": 7, "servers": 7}', b"mcp_servers = 7"]
)
def test_a_file_that_cannot_be_read_is_told_and_stays(
    client: str, content: bytes, machine: ClientEnvironment, config: Path
):
    if (client == "codex") == (content[:12] == b'{"mcpServers'):
        content = b"["
    path = written(client, machine, content)
    for act in (
        lambda: install_gateway(client, config, machine=machine),
        lambda: collect_importable_servers(client, machine),
    ):
        with pytest.raises(ConfigError) as caught:
            act()
        assert str(path) in str(caught.value)
    assert path.read_bytes() == content
    assert not config.exists()


def test_a_link_that_leads_to_itself_is_told(machine: ClientEnvironment, config: Path):
    path = list_client_files("cursor", machine)[0].path
    path.parent.mkdir(parents=True)
    path.symlink_to(path)
    assert collect_importable_servers("cursor", machine).servers == {}
    with pytest.raises(ConfigError, match="cannot be written"):
        install_gateway("cursor", config, machine=machine)


def test_more_servers_than_anybody_has_are_refused(machine: ClientEnvironment, config: Path):
    written("cursor", machine, json.dumps({"mcpServers": {f"s{number}": {"command": "x"} for number in range(1_001)}}))
    for take in (
        lambda: collect_importable_servers("cursor", machine),
        lambda: install_gateway("cursor", config, machine=machine),
    ):
        with pytest.raises(ConfigError, match="more than 1,000 servers"):
            take()
