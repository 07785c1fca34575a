"""Servers that a client keeps in another place than usual: taken, or named with the way to take them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import ConfigError, load_config
from codemode_gateway.client_configs.importing import (
    ClientEnvironment,
    ImportableServers,
    collect_importable_servers,
    list_client_files,
)
from codemode_gateway.client_configs.installing import install_gateway
from codemode_gateway.client_configs.text_files import create_text_with_server, parse_config_servers
from suite import each_row

from codemode.cli import main

ONE = {"command": "one"}


def taken(
    tmp_path: Path, client: str, said: Any, folder: Path | None = None, project: Path | None = None
) -> ImportableServers:
    machine = ClientEnvironment({"HOME": str(tmp_path)}, "linux", project)
    path = list_client_files(client, machine)[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(said if isinstance(said, str) else json.dumps(said))
    return collect_importable_servers(client, machine, folder=folder)


def kept_for(*folders: Path, **own: Any) -> dict[str, Any]:
    projects = {str(one): {"mcpServers": {one.name: {"command": f"./{one.name}"}}, "history": []} for one in folders}
    return {"mcpServers": own, "projects": {**projects, "/nothing": {"mcpServers": {}}, "/none": {}, "/odd": 7}}


def test_servers_that_claude_code_keeps_for_the_folder_are_taken_and_start_there(tmp_path: Path):
    work = tmp_path / "work"
    (work / "deep").mkdir(parents=True)
    for folder in (work, work / "deep"):
        servers = taken(tmp_path, "claude-code", kept_for(work, docs=ONE), folder).servers
        assert servers == {"work": {"command": "./work", "cwd": str(work)}, "docs": ONE}, folder


def test_servers_that_claude_code_keeps_for_other_folders_are_named(tmp_path: Path):
    found_here = taken(tmp_path, "claude-code", kept_for(tmp_path / "a", tmp_path / "b", docs=ONE), tmp_path / "c")
    assert list(found_here.servers) == ["docs"]
    (note,) = found_here.notes
    assert f"{tmp_path / 'a'} (a), {tmp_path / 'b'} (b); --project FOLDER imports" in note


def test_the_project_of_the_machine_counts_for_the_folder(tmp_path: Path):
    said = kept_for(tmp_path / "a", tmp_path / "b")
    assert list(taken(tmp_path, "claude-code", said, tmp_path / "a", tmp_path / "b").servers) == ["b"]


def test_of_one_name_the_server_of_the_folder_counts_as_it_does_in_the_client(tmp_path: Path):
    said = kept_for(tmp_path / "a", a={"command": "other"})
    assert taken(tmp_path, "claude-code", said, tmp_path / "a").servers["a"]["command"] == "./a"


@each_row(
    "client, file, key",
    [
        ("claude-code", ".mcp.json", "mcpServers"),
        ("cursor", ".cursor/mcp.json", "mcpServers"),
        ("vscode", ".vscode/mcp.json", "servers"),
    ],
)
@pytest.mark.parametrize(
    "entry",
    [
        {"command": "python3", "args": ["tools/srv.py"]},
        {"command": "./run", "cwd": None},
        {"type": "stdio", "cmd": "./run", "workingDirectory": "tools", "env_file": "a.env"},
        {"command": ["${workspaceRoot}/run", "${workspaceFolderBasename}", "$${workspaceFolder}", "${userHome}"]},
        {"command": {"path": "./run", "args": ["${workspaceFolder}"]}, "envFile": "${workspaceFolder}/a.env"},
        {"url": "https://host.example/mcp", "headers": {"X-Folder": "${workspaceFolder}"}},
    ],
)
def test_project_server_means_the_same_after_the_import(
    client: str, file: str, key: str, entry: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
):
    project = tmp_path_factory.mktemp("project") / "my ${odd} project"
    (project / file).parent.mkdir(parents=True)
    (project / file).write_text(json.dumps({key: {"pj": entry}}))
    (project / "a.env").write_text("A=1\n")
    machine = ClientEnvironment({"HOME": str(project / "home")}, "linux", project)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "mcp.json"
    elsewhere.write_text(json.dumps({"mcpServers": dict(collect_importable_servers(client, machine).servers)}))
    server = load_config(project / file).servers[0]
    imported_server = load_config(elsewhere).servers[0]
    assert (imported_server.command, imported_server.args) == (server.command, server.args)
    assert (imported_server.env, imported_server.headers) == (server.env, server.headers)
    assert imported_server.cwd == (server.cwd or server.folder)


@each_row(
    "client, text",
    [
        ("claude-code", '{"mcpServers": {"dup": {"url": "https://%s.example"}}}'),
        ("cursor", '{"mcpServers": {"dup": {"url": "https://%s.example"}}}'),
        ("vscode", '{"servers": {"dup": {"url": "https://%s.example"}}}'),
        ("codex", '[mcp_servers.dup]\nurl = "https://%s.example"\n'),
    ],
)
def test_project_server_takes_precedence_over_the_user_server_of_the_same_name(
    client: str, text: str, tmp_path_factory: pytest.TempPathFactory
):
    home = tmp_path_factory.mktemp("home")
    machine = ClientEnvironment({"HOME": str(home)}, "linux", home / "project")
    files = list_client_files(client, machine)
    user_file, project_file = files[0].path, files[-1].path
    project_file.parent.mkdir(parents=True)
    project_file.write_text(text % "project")
    result = taken(home, client, text % "user", project=machine.project)
    assert result.servers == {"dup": {"url": "https://project.example"}}
    (note,) = result.notes
    assert note == (
        f"dup of {user_file} is not imported, because dup of {project_file} takes precedence in {client};"
        " rename one to import both"
    )
    assert result.files == (user_file, project_file)
    assert taken(home, client, text % "project", project=machine.project).notes == (), "the same server"


def test_claude_code_prefers_the_local_server_then_that_of_the_project(tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"project": {"command": "shared"}, "other": ONE}}))
    result = taken(tmp_path, "claude-code", kept_for(project, project=ONE, other={"command": "mine"}), project=project)
    assert {name: entry["command"] for name, entry in result.servers.items()} == {
        "project": "./project",
        "other": "one",
    }
    left_out = [note.partition(" is not imported, because ") for note in result.notes if "not imported" in note]
    assert [(name, reason.partition(" takes")[0]) for name, _, reason in left_out] == [
        (f"project of {project / '.mcp.json'}", f"project of {tmp_path / '.claude.json'} for the folder {project}"),
        (f"project of {tmp_path / '.claude.json'}", f"project of {tmp_path / '.claude.json'} for the folder {project}"),
        (f"other of {tmp_path / '.claude.json'}", f"other of {project / '.mcp.json'}"),
    ]


def test_relative_folders_in_the_file_of_a_user_become_absolute(tmp_path: Path):
    entry = {"command": "x", "args": ["."], "cwd": "work", "envFile": "work/.env"}
    expected = {**entry, "cwd": str(tmp_path / "work"), "envFile": str(tmp_path / "work/.env")}
    in_home = {"command": "x", "cwd": "~/work", "envFile": "${WORK}/.env"}
    assert taken(tmp_path, "cursor", {"mcpServers": {"a": entry, "b": in_home, "c": ONE}}).servers == {
        "a": expected,
        "b": in_home,
        "c": ONE,
    }
    config = tmp_path / "codemode" / "mcp.json"
    install_gateway("cursor", config, machine=ClientEnvironment({"HOME": str(tmp_path)}, "linux"), command=["codemode"])
    assert parse_config_servers(config.read_text())["a"] == expected


@each_row(
    "client, said, place",
    [
        ("cursor", {"servers": {"x": ONE}}, "servers"),
        ("vscode", {"mcpServers": {"x": ONE}}, "mcpServers"),
        ("claude-desktop", {"mcp": {"x": ONE}}, "mcp"),
        ("claude-code", {"context_servers": {"x": ONE}}, "context_servers"),
        ("codex", '[mcpServers.x]\ncommand = "one"\n', "mcpServers"),
    ],
)
def test_servers_under_the_key_of_another_client_are_taken_with_a_note(
    tmp_path_factory: pytest.TempPathFactory, client: str, said: Any, place: str
):
    result = taken(tmp_path_factory.mktemp("home"), client, said)
    assert result.servers == {"x": ONE}
    assert f"has its servers under {place}; {client} itself only reads" in result.notes[0]


@each_row(
    "said, names",
    [
        ({"context_servers": {"x": {"command": {"path": "one", "args": ["a"], "env": {"K": "v"}}}}}, ["x"]),
        ({"mcp": {"x": {"type": "local", "command": ["one", "a"], "environment": {"K": "v"}}, "theme": 1}}, ["x"]),
        ({"amp.mcpServers": {"x": {"command": "one", "args": ["a"], "env": {"K": "v"}}}}, ["x"]),
        ({"settings": {"mcpServers": {"x": {"command": "one", "args": ["a"], "env": {"K": "v"}}}}}, ["x"]),
        ({"mcpServers": [{"name": "x", "command": "one", "args": ["a"], "env": {"K": "v"}}]}, ["x"]),
    ],
)
def test_the_keys_of_other_clients_are_understood(said: dict[str, Any], names: list[str]):
    config = load_config(said)
    assert [one.name for one in config.servers] == names, config.problems
    (server,) = config.servers
    assert (server.command, server.args, dict(server.env)) == ("one", ("a",), {"K": "v"})


def test_settings_called_mcp_are_no_servers():
    said = {"mcp": {"allowed": ["x"], "serverCommand": "y"}, "mcpServers": {"a": ONE}}
    assert [one.name for one in load_config(said).servers] == ["a"]


def test_a_key_that_nobody_knows_is_named_where_it_holds_servers():
    (problem,) = load_config({"extensions": {"x": {"cmd": "one"}}}).problems
    assert 'the file has servers under "extensions"; call that key mcpServers' in str(problem)


@pytest.mark.parametrize("entry", [{"command": "two"}, {"name": 5, "command": "two"}, None])
def test_an_entry_without_a_name_in_a_list_of_servers_is_left_out_alone(entry: Any):
    config = load_config({"mcpServers": [{"name": "x", "command": "one"}, entry]})
    assert [server.name for server in config.servers] == ["x"]
    (problem,) = config.problems
    assert str(problem).startswith("mcpServers[1]: this needs a name")


def test_a_server_of_any_known_key_is_not_added_again():
    text = json.dumps({"mcp": {"x": ONE}, "mcpServers": {}})
    assert list(parse_config_servers(text)) == ["x"]
    with pytest.raises(ConfigError, match="already exists"):
        create_text_with_server(text, "x", ONE)


def test_the_command_takes_what_is_kept_for_the_folder_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "CODEMODE_MCP_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / ".claude.json").write_text(json.dumps(kept_for(tmp_path / "here", tmp_path / "there")))
    monkeypatch.chdir(tmp_path / "here")
    assert main(["mcp", "import", "--from", "claude-code"]) == 0
    out, err = capsys.readouterr()
    assert "  here\n1 server in " in out
    assert f"here: imported from the servers of claude-code for the folder {tmp_path / 'here'}" in err
    assert f"{tmp_path / 'there'} (there)" in err
    assert main(["mcp", "import", "--from", "claude-code", "--project", str(tmp_path / "there")]) == 0
    assert "  there\n" in capsys.readouterr().out
    assert main(["mcp", "import", "--from", "claude-code", "--project", str(tmp_path / "none")]) == 2
    assert "--project needs a folder" in capsys.readouterr().err
