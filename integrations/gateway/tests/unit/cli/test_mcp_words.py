"""The words by which a terminal reaches a gateway: however codemode was started, and whatever its files are called."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from authorization_server import sign_in_server
from codemode_gateway.cli.command_context import (
    CONFIG_VARIABLE,
    get_config_path,
    get_portable_command_prefix,
    get_typed_command_prefix,
)
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.cli import main

HIDES = ["a\nb", "a\x1b[2J", "a\u202eb", "a`reboot`b", os.fsdecode(b"a\xff"), "a" * 400]
HIDES_IDS = ["newline", "escape", "direction", "backticks", "no-text", "long"]


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user who has nothing yet: no configuration is named, and no codemode is on the path."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    return tmp_path


def said(config: str | None = None) -> str:
    return get_portable_command_prefix(argparse.Namespace(config=config))


def script_in(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "codemode"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    return script


def test_the_script_of_the_path_is_called_by_its_name(user: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", [str(script_in(user / "bin")), "mcp"])
    assert said() == "codemode mcp"


def test_what_the_path_has_a_link_to_is_called_by_its_name(user: Path, monkeypatch: pytest.MonkeyPatch):
    script = script_in(user / "environment" / "bin")
    (user / "bin").mkdir()
    (user / "bin" / "codemode").symlink_to(script)
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert said() == "codemode mcp"


@pytest.mark.parametrize("is_another_there", [False, True])
def test_another_script_is_called_by_its_whole_path(
    user: Path, monkeypatch: pytest.MonkeyPatch, *, is_another_there: bool
):
    if is_another_there:
        script_in(user / "bin")
    script_in(user / "an environment")
    monkeypatch.chdir(user)
    monkeypatch.setattr(sys, "argv", ["an environment/codemode"])
    assert said() == f"'{user}/an environment/codemode' mcp"


def test_a_module_is_called_with_its_python(user: Path, monkeypatch: pytest.MonkeyPatch):
    script_in(user / "bin")  # which may be of another Python
    monkeypatch.setattr(sys, "argv", [str(user / "codemode" / "__main__.py"), "mcp"])
    monkeypatch.setattr(sys, "executable", "/the venv/bin/python")
    assert said() == "'/the venv/bin/python' -m codemode mcp"


@pytest.mark.parametrize("started", ["-c", "/usr/bin/pytest", "/other/__main__.py", "/gone/codemode", ""])
def test_what_was_started_otherwise_has_the_plain_words(monkeypatch: pytest.MonkeyPatch, started: str):
    monkeypatch.setattr(sys, "argv", [started])
    assert said() == "codemode mcp"


@pytest.mark.parametrize("name", HIDES[:-1], ids=HIDES_IDS[:-1])
def test_a_program_that_cannot_be_shown_as_it_is_has_the_plain_words(
    user: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(sys, "argv", [str(script_in(user / name))])
    assert said("f.json") == f"codemode mcp --config {get_config_path(argparse.Namespace(config='f.json')).absolute()}"


def test_the_configuration_that_a_terminal_takes_by_itself_is_not_named(user: Path, monkeypatch: pytest.MonkeyPatch):
    default = user / "config" / "codemode" / "mcp.json"
    assert [said(), said(str(default))] == ["codemode mcp"] * 2
    monkeypatch.setenv(CONFIG_VARIABLE, str(default))
    assert said() == "codemode mcp"


def test_another_is_named_by_its_whole_path_whoever_names_it(user: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(user)
    monkeypatch.setenv("HOME", str(user / "own"))
    assert said("mine.json") == f"codemode mcp --config {user}/mine.json"
    assert said("~/mine.json") == f"codemode mcp --config {user}/own/mine.json"
    monkeypatch.setenv(CONFIG_VARIABLE, "it's mine.json")
    assert shlex.split(said()) == ["codemode", "mcp", "--config", f"{user}/it's mine.json"]
    assert said("mine.json") == f"codemode mcp --config {user}/mine.json"


@each_row("name", HIDES)
def test_a_configuration_that_cannot_be_shown_as_it_is_is_left_out(name: str):
    assert said(f"/{name}/mcp.json") == "codemode mcp"


@given(st.text(min_size=1, max_size=60).filter(lambda text: "\0" not in text))
def test_whatever_a_file_is_called_a_shell_reads_its_name_and_nothing_else(name: str):
    words = said(f"/folder/{name}")
    assert "`" not in words
    assert words.isprintable()
    assert shlex.split(words) in (["codemode", "mcp"], ["codemode", "mcp", "--config", str(Path(f"/folder/{name}"))])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "codemode mcp"),
        ("f.json", "codemode mcp --config f.json"),
        ("my $f.json", "codemode mcp --config 'my $f.json'"),
        ("\u202e", "codemode mcp --config '\\u202e'"),
    ],
)
def test_at_the_terminal_what_was_typed_is_repeated(config: str | None, words: str):
    assert get_typed_command_prefix(argparse.Namespace(config=config)) == words


def test_what_a_command_has_a_person_type_next_is_about_the_same_configuration(user: Path, capsys: Any):
    path = user / "my servers.json"
    assert main(["mcp", "list", "--config", str(path)]) == 2
    assert f"`codemode mcp --config '{path}' init` writes one" in capsys.readouterr().err
    assert main(["mcp", "init", "--config", str(path)]) == 0
    shown = capsys.readouterr().out
    assert f"codemode mcp --config '{path}' add NAME -- COMMAND..." in shown
    assert f"codemode mcp --config '{path}' check" in shown


def test_a_check_says_how_to_sign_in_with_the_same_configuration(
    user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_STATE_HOME", str(user / "state"))
    path = user / "mcp.json"
    with sign_in_server() as server:
        path.write_text(json.dumps({"mcpServers": {"notes": {"type": "http", "url": server.url}}}))
        assert main(["mcp", "check", "--config", str(path)]) == 1
    assert f"codemode mcp --config {path} login notes" in capsys.readouterr().out
