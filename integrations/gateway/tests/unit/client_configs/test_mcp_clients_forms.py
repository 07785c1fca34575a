"""What is special in the files of clients: inputs, tables of Codex, files that change under the hands."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import ConfigError, load_config
from codemode_gateway.client_configs.importing import ClientEnvironment, list_client_files
from codemode_gateway.client_configs.installing import install_gateway, uninstall_gateway
from codemode_gateway.client_configs.text_files import (
    add_used_vscode_inputs,
    create_gateway_config_text,
    create_text_with_server,
    parse_config_servers,
)
from codemode_gateway.config.config_file import parse_jsonc
from suite import each_row
from test_mcp_clients import COMMAND, others, reads, written


def test_a_server_of_the_same_name_gets_that_of_its_client_too(machine: ClientEnvironment, config: Path):
    for client in ("cursor", "claude-code"):
        written(client, machine, json.dumps({"mcpServers": {"git": {"command": client}, "same": {"command": "x"}}}))
    install_gateway("cursor", config, machine=machine, command=COMMAND)
    change = install_gateway("claude-code", config, machine=machine, command=COMMAND)
    assert [*parse_config_servers(config.read_text())] == ["git", "same", "git-claude-code"]
    assert change.notes == ("git is called git-claude-code in the configuration",)


def test_vs_code_goes_on_to_ask_for_its_inputs(machine: ClientEnvironment, config: Path):
    path = written("vscode", machine)
    change = install_gateway("vscode", config, machine=machine, command=COMMAND)
    assert reads(path)["servers"]["codemode"]["env"] == {"CODEMODE_INPUT_API_KEY": "${input:api-key}"}
    assert change.notes[0].startswith("ws stays in vscode: mcpServers.ws.type: websockets are not supported")


def test_codex_hands_on_what_its_servers_had_from_it(machine: ClientEnvironment, config: Path):
    path = written("codex", machine)
    install_gateway("codex", config, machine=machine, command=COMMAND)
    entry = tomllib.loads(path.read_text())["mcp_servers"]["codemode"]
    assert entry["env_vars"] == ["PROJECT", "HOST_TOKEN"]
    text = path.read_text()
    assert text.index("# files of the project") < text.index("[mcp_servers.codemode]") < text.index("[tui]")
    assert text.count("\n\n\n") == 0


CODEX_FORMS = [
    'mcp_servers.a.command = "x"\nmcp_servers.a.args = ["y"]\n',
    '[mcp_servers]\na.command = "x"\nb = { command = "y", args = ["]", "#"] }\n',
    '[mcp_servers]\na = { url = "http://h" }\n[mcp_servers.b]\ncommand = "z"\n[other]\nx = 1\n',
    "[mcp_servers.a]\ncommand = 'c:\\x'\n  [mcp_servers.a.env]\n  A = '''\n[x]\n'''\n[x]\ny = [\n [1],\n]\n",
    '["mcp_servers"."a b"]\ncommand = "x"\n[ mcp_servers . c ]\r\ncommand = "\\"["\r\n',
    'mcp_servers = { a = { command = "x" } }\n[z]\n',
    'x = 1\n[[many]]\na = 1\n[mcp_servers.a]\ncommand = "x"\n[[many]]\na = 2\n',
]


@pytest.mark.parametrize("text", CODEX_FORMS)
def test_every_form_of_codex_tables(text: str, machine: ClientEnvironment, config: Path):
    path = written("codex", machine, text)
    said = tomllib.loads(text)
    install_gateway("codex", config, machine=machine, command=COMMAND)
    now = tomllib.loads(path.read_text())
    assert [*now["mcp_servers"]] == ["codemode"]
    assert {**now, "mcp_servers": 0} == {**said, "mcp_servers": 0}
    assert [*parse_config_servers(config.read_text())] == [*said["mcp_servers"]]
    uninstall_gateway("codex", machine=machine)
    assert path.read_bytes() == text.encode()


def test_what_a_user_has_added_to_the_entry_stays(machine: ClientEnvironment, config: Path):
    path = written("cursor", machine, '{"mcpServers": {"a": {"command": "x"}}}')
    install_gateway("cursor", config, machine=machine, command=COMMAND)
    entry = json.loads(path.read_text())["mcpServers"]["codemode"]
    path.write_text(json.dumps({"mcpServers": {"codemode": {**entry, "env": {"A": "b"}, "disabled": False}}}))
    other = config.with_name("other.json")
    install_gateway("cursor", other, machine=machine, command=COMMAND)
    now = json.loads(path.read_text())["mcpServers"]["codemode"]
    assert (now["env"], now["disabled"], now["args"][-1]) == ({"A": "b"}, False, str(other))


def test_a_server_of_somebody_else_called_codemode_moves_as_any(machine: ClientEnvironment, config: Path):
    path = written("cursor", machine, before := '{"mcpServers": {"codemode": {"command": "other"}}}')
    install_gateway("cursor", config, machine=machine, command=COMMAND)
    assert json.loads(path.read_text())["mcpServers"]["codemode"]["command"] == "/bin/codemode"
    assert parse_config_servers(config.read_text()) == {"codemode": {"command": "other"}}
    uninstall_gateway("cursor", machine=machine)
    assert path.read_text() == before


def test_without_its_backup_nothing_is_guessed(machine: ClientEnvironment, config: Path):
    path = written("cursor", machine)
    change = install_gateway("cursor", config, machine=machine, command=COMMAND)
    assert change.backup is not None
    change.backup.unlink()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="the backup next to this file is missing"):
        uninstall_gateway("cursor", machine=machine)
    assert path.read_bytes() == before


def test_a_configuration_to_begin_with_and_servers_added_to_it():
    text = create_text_with_server(
        create_text_with_server(create_gateway_config_text(), "a", {"command": "x"}),
        "b",
        {"url": "http://h", "codemode": {"approval": "always"}},
    )
    config = load_config({"mcpServers": parse_config_servers(text)}, environ={})
    assert [(one.name, one.transport, one.approval) for one in config.servers] == [
        ("a", "stdio", "declared"), ("b", "http", "always"),
    ]  # fmt: skip
    assert all(line in text for line in create_gateway_config_text().splitlines() if "//" in line)
    assert create_gateway_config_text({"a": {"command": "x"}}) == create_text_with_server(
        create_gateway_config_text(), "a", {"command": "x"}
    )


@each_row(
    "text, expected",
    [
        ("", '{\n  "mcpServers": {\n    "n": {\n      "command": "x"\n    }\n  }\n}\n'),
        ('{"servers": {"a": {}}}', '{"servers": {"a": {}, "n": {"command": "x"}}}'),
        ('{\n\t"mcpServers": {}\n}', '{\n\t"mcpServers": {\n\t\t"n": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}'),
        ('{\n "a": 1, // one\n}', '{\n "a": 1, // one\n "mcpServers": {\n  "n": {\n   "command": "x"\n  }\n },\n}'),
        ('{\n "a": 1 // one\n}', '{\n "a": 1, // one\n "mcpServers": {\n  "n": {\n   "command": "x"\n  }\n }\n}'),
    ],
)
def test_how_a_server_is_added(text: str, expected: str):
    assert create_text_with_server(text, "n", {"command": "x"}) == expected


@each_row(
    "text, entry, says",
    [
        ('{"mcpServers": {"n": {}}}', {"command": "x"}, 'the server "n" already exists'),
        ('{"servers": {"n": {}}}', {"command": "x"}, 'the server "n" already exists'),
        ("{", {"command": "x"}, "line 1, column 1"),
        ("[]", {"command": "x"}, "must be an object"),
        ('{"mcpServers": 1}', {"command": "x"}, "must be an object"),
        ("{}", {"command": "x", "codemode": {"aproval": 1}}, "mcpServers.n.codemode.aproval: there is no such key"),
        ("{}", {}, "mcpServers.n: this needs a command"),
    ],
)
def test_what_cannot_be_added(text: str, entry: dict[str, Any], says: str):
    with pytest.raises(ConfigError) as caught:
        create_text_with_server(text, "n", entry)
    assert says in str(caught.value)


def test_what_only_our_keys_tell_apart_is_one_server(machine: ClientEnvironment, config: Path):
    written("cursor", machine)
    install_gateway("cursor", config, machine=machine, command=COMMAND)
    config.write_text(config.read_text().replace('"url":', '"codemode": {"approval": "always"}, "url":'))
    uninstall_gateway("cursor", machine=machine)
    ours = config.read_text()
    install_gateway("cursor", config, machine=machine, command=COMMAND)
    assert config.read_text() == ours


def test_a_client_is_not_its_own_gateway(machine: ClientEnvironment, tmp_path: Path):
    path = written("cursor", machine)
    before = path.read_bytes()
    (tmp_path / "link.json").symlink_to(path)
    for config in (path, tmp_path / "link.json"):
        with pytest.raises(ConfigError, match="must be another file"):
            install_gateway("cursor", config, machine=machine)
    assert path.read_bytes() == before


def test_servers_in_another_file_of_the_user_are_told(machine: ClientEnvironment, config: Path):
    written("vscode", machine)
    settings = list_client_files("vscode", machine)[1].path
    settings.write_text('{"mcp": {"servers": {"old": {"command": "x"}}}}')
    notes = install_gateway("vscode", config, machine=machine, command=COMMAND).notes
    assert notes[-1] == f"{settings} also has servers, which stay there: old"


def test_what_a_client_has_cut_off_within_a_character_hinders_nothing(machine: ClientEnvironment, config: Path):
    text = '{"history": ["\\ud83d"], "mcpServers": {"a": {"command": "x"}, "b": {"command": "\\udc00"}}}'
    path = written("claude-code", machine, text)
    change = install_gateway("claude-code", config, machine=machine, command=COMMAND)
    assert change.moved == ("a",)
    assert "half a surrogate pair" in change.notes[0]
    assert '"\\ud83d"' in path.read_text()
    uninstall_gateway("claude-code", machine=machine)
    assert path.read_text() == text


def test_a_file_that_changes_under_the_hands_is_left_alone(
    machine: ClientEnvironment, config: Path, monkeypatch: pytest.MonkeyPatch
):
    from codemode_gateway.client_configs import installing as backups

    path = written("cursor", machine)
    keep = backups.create_backup_or_created_mark

    def kept(file: Any) -> Path:
        path.write_text('{"mcpServers": {"other": {"command": "y"}}}')
        return keep(file)

    monkeypatch.setattr(backups, "create_backup_or_created_mark", kept)
    with pytest.raises(ConfigError, match="another program changed this file just now; try again"):
        install_gateway("cursor", config, machine=machine, command=COMMAND)
    assert path.read_text() == '{"mcpServers": {"other": {"command": "y"}}}'


def test_a_write_that_fails_leaves_the_file_and_nothing_beside_it(
    machine: ClientEnvironment, config: Path, monkeypatch: pytest.MonkeyPatch
):
    path = written("cursor", machine)
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="cannot be written: No space left"):
        install_gateway("cursor", config, machine=machine, command=COMMAND)
    assert path.read_bytes() == before
    assert others(path.parent) == [path.name]
    assert others(config.parent) == []


INPUTS = [
    {"type": "promptString", "id": "key", "description": "The key", "password": True},
    {"type": "promptString", "id": "unused"},
    7,
    {"type": "pickString", "id": "where", "options": ["a", "b"], "default": "a"},
]


NAMING = {"a": {"command": "x", "env": {"KEY": "${input:key}"}, "args": ["${input:where}", "${input:nowhere}"]}}


@each_row(
    "before, kept",
    [
        ("{}", ["key", "where"]),
        ('{"inputs": []}', ["key", "where"]),
        ('{"inputs": [ // none\n], "mcpServers": {}}', ["key", "where"]),
        ('{"inputs": [{"id": "key", "description": "mine"}, /* mine */ ], "a": 1}', ["key", "where"]),
        ('{"inputs": [{"id": "x"} // mine\n]}', ["x", "key", "where"]),
    ],
)
def test_what_vs_code_asks_for_is_asked_for_in_its_words(before: str, kept: list[str]):
    text = add_used_vscode_inputs(before, INPUTS, NAMING)
    declared = parse_jsonc(text).root.to_python()["inputs"]
    assert [one["id"] for one in declared] == kept
    assert add_used_vscode_inputs(text, INPUTS, NAMING) == text
    assert before.count("mine") == text.count("mine")
    if "mine" not in before:
        assert declared == [INPUTS[0], INPUTS[3]]


def test_an_input_without_a_value_is_named_in_the_words_of_its_file():
    entry = {"command": "x", "env": {"KEY": "${input:key}"}}
    problem, _ = load_config({"inputs": INPUTS, "mcpServers": {"a": entry}}, environ={}).problems
    assert 'the input "key" (The key) has no value; set the environment variable' in str(problem)
