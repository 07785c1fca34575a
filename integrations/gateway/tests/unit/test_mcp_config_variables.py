"""Variables of a configuration: each form, where each gets its value, and that no value is looked through again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from codemode_gateway import load_config, state_folder
from codemode_gateway.config.config_file import ConfigFieldError
from codemode_gateway.config.substitution import Variables, get_input_variable_name
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

ENVIRON = {"A": "a", "EMPTY": "", "HOME": "/home/me", "SNEAKY": "${A}$${A}${input:x}", "GITHUB_TOKEN": "12345678"}


def filled(text: str, secrets: set[str] | None = None, **how: object) -> str:
    given: dict[str, object] = {"inputs": {"x": "of x"}, "defaults": {"x": "no", "y": "of y"}, **how}
    variables = Variables(ENVIRON, Path("/project/one"), **given)  # type: ignore[arg-type]
    return variables.expand(text, "here", set() if secrets is None else secrets)


@each_row(
    "text, expected",
    [
        ("${A}", "a"),
        ("x${A}y${env:A}z", "xayaz"),
        ("${NOT_SET:-x}", "x"),
        ("${env:NOT_SET:-x}", "x"),
        ("${NOT_SET:-}", ""),
        ("${NOT_SET:-a:-b}", "a:-b"),
        ("${NOT_SET:-http://h:1/}", "http://h:1/"),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY}", ""),
        ("${A:-x}", "a"),
        ("${input:x} ${input:y}", "of x of y"),
        ("${keyring:k} ${keyring:serve/k}", "codemode+k serve+k"),
        ("${workspaceFolder}${/}a ${workspaceFolderBasename}", f"/project/one{os.sep}a one"),
        ("${userHome}${pathSeparator}x", f"/home/me{os.sep}x"),
        ("$A $ {A} {A} $", "$A $ {A} {A} $"),
        ("$${A}", "${A}"),
        ("$$A", "$$A"),
        ("$${", "${"),
        ("$$${A}", "$${A}"),
        ("$${A}${A}", "${A}a"),
        ("${", "${"),
        ("${SNEAKY}", "${A}$${A}${input:x}"),
    ],
)
def test_each_form(text: str, expected: str):
    assert filled(text, keyring=lambda service, name: f"{service}+{name}") == expected


@each_row(
    "text, says",
    [
        ("${NOT_SET}", "the variable NOT_SET is not set; set it, or write ${NOT_SET:-default}"),
        ("${MY_TOKEN}", "the variable MY_TOKEN is not set; set it, or write ${keyring:MY_TOKEN}"),
        ("${env:CODEMODE_KEY}", "the variable CODEMODE_KEY is not set; set it, or write ${keyring:CODEMODE_KEY}"),
        ("${env:NOT_SET}", "the variable NOT_SET is not set"),
        ("${input:no-such}", 'the input "no-such" has no value; set the environment variable CODEMODE_INPUT_NO_SUCH'),
        ("${keyring:gone}", "add it with `keyring set codemode gone`"),
        ("${command:x}", "unknown variable"),
        ("${config:a.b}", "unknown variable"),
        ("${}", "unknown variable"),
        ("${A-x}", "unknown variable"),
        ("${NOT_SET:-${A}}", "a default that has no variable"),
        ("${workspaceFolder:two}", "unknown variable"),
    ],
)
def test_what_has_no_value_says_what_to_do(text: str, says: str):
    with pytest.raises(ConfigFieldError) as caught:
        filled(text, keyring=lambda _service, _name: None)
    assert says in caught.value.message
    assert caught.value.path == "here"


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,6}", fullmatch=True),
        st.text(alphabet="${}:-AinputBx ", max_size=20),
        min_size=1,
    )
)
def test_no_value_is_expanded_again(environ: dict[str, str]):
    variables = Variables(environ, Path())
    text = "|".join(f"${{{name}}}" for name in environ)
    assert variables.expand(text, "here", set()) == "|".join(environ.values())


@given(st.text(alphabet="${}:-env AinputBx/", max_size=40))
def test_no_text_breaks_it(text: str):
    try:
        found = Variables({"A": "a"}, Path(), inputs={"x": "y"}).expand(text, "here", set())
    except ConfigFieldError:
        return
    if "${" not in text:
        assert found == text


@pytest.mark.parametrize(("name", "variable"), [("api-key", "API_KEY"), ("a.b c", "A_B_C"), ("K1", "K1"), ("é", "_")])
def test_the_environment_variable_of_an_input(name: str, variable: str):
    assert get_input_variable_name(name) == f"CODEMODE_INPUT_{variable}"


def test_inputs_come_first_from_whoever_loads_then_from_the_environment_then_from_the_file():
    said = {
        "inputs": [{"type": "promptString", "id": "k", "password": True, "default": "of-the-file"}, 7, {"id": "other"}],
        "servers": {"a": {"command": "x", "args": ["${input:k}"]}},
    }

    def args(environ: dict[str, str], inputs: dict[str, str]) -> tuple[str, ...]:
        return load_config(said, environ=environ, inputs=inputs).servers[0].args

    assert args({}, {}) == ("of-the-file",)
    assert args({"CODEMODE_INPUT_K": "of-the-environment"}, {}) == ("of-the-environment",)
    assert args({"CODEMODE_INPUT_K": "of-the-environment"}, {"k": "given"}) == ("given",)


def test_inputs_of_vs_codes_settings():
    servers = {"a": {"command": "x", "args": ["${input:k}"]}}
    said = {"mcp": {"inputs": [{"id": "k", "default": "v"}], "servers": servers}}
    assert load_config(said, environ={}).servers[0].args == ("v",)


def a_keyring(ask: Callable[[str, str], str | None]) -> object:
    return SimpleNamespace(get_password=ask)


def test_the_keyring_is_asked_for_what_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "keyring", a_keyring(lambda service, name: f"{service} has {name}"))
    found = load_config({"servers": {"a": {"command": "x", "env": {"K": "${keyring:me}"}}}}, environ={})
    assert found.servers[0].env == {"K": "codemode has me"}
    assert found.servers[0].secrets == ("codemode has me",)


def test_a_keyring_that_is_not_there_or_fails_disables_the_server(monkeypatch: pytest.MonkeyPatch):
    said = {"servers": {"a": {"command": "x", "env": {"K": "${keyring:me}"}}}}
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "install codemode-gateway[keyring]" in str(load_config(said, environ={}).problems[0])

    def locked(_service: str, _name: str) -> str:
        raise RuntimeError("s3cr3t of the backend")

    monkeypatch.setitem(sys.modules, "keyring", a_keyring(locked))
    told = str(load_config(said, environ={}).problems[0])
    assert "is it unlocked?" in told
    assert "s3cr3t" not in told


@pytest.mark.parametrize("folder", [".vscode", ".cursor"])
def test_paths_of_an_editors_file_start_at_the_project(folder: str, tmp_path: Path):
    file = tmp_path / folder / "mcp.json"
    file.parent.mkdir()
    (tmp_path / "a.env").write_text("A=1\n")
    file.write_text('{"servers": {"a": {"command": "x", "cwd": "${workspaceFolder}/in", "envFile": "a.env"}}}')
    server = load_config(file, environ={}).servers[0]
    assert (server.cwd, server.env) == (str(tmp_path / "in"), {"A": "1"})


def test_the_workspace_is_the_project_of_mcp_json_and_else_where_the_process_was_started(tmp_path: Path):
    text = '{"mcpServers": {"a": {"command": "x", "args": ["${workspaceFolder}"]}}}'
    for name, expected in ((".mcp.json", tmp_path), ("mine.json", Path.cwd())):
        (tmp_path / name).write_text(text)
        assert load_config(tmp_path / name, environ={}).servers[0].args == (str(expected),)


def test_a_home_is_that_of_the_environment():
    entry = {"command": "~/bin/x", "cwd": "~", "args": ["~"]}
    server = load_config({"servers": {"a": entry}}, environ={"HOME": "/home/me"}).servers[0]
    assert (server.command, server.cwd, server.args) == ("/home/me/bin/x", "/home/me", ("~",))


def test_a_line_of_an_env_file_that_is_none_names_its_place_alone(tmp_path: Path):
    (tmp_path / "a.env").write_text("A=1\n\nexport s3cr3t\n")
    (tmp_path / "mcp.json").write_text('{"servers": {"a": {"command": "x", "envFile": "a.env"}}}')
    told = str(load_config(tmp_path / "mcp.json", environ={}).problems[0])
    assert told.startswith(f"servers.a.envFile: {tmp_path / 'a.env'}, line 3: ")
    assert "s3cr3t" not in told


def test_an_env_file_is_never_expanded(tmp_path: Path):
    (tmp_path / "a.env").write_text('A=${B}\nB="${C}"\n')
    (tmp_path / "mcp.json").write_text('{"servers": {"a": {"command": "x", "envFile": "a.env"}}}')
    assert load_config(tmp_path / "mcp.json", environ={}).servers[0].env == {"A": "${B}", "B": "${C}"}


@each_row(
    "platform, environ, expected",
    [
        ("linux", {"HOME": "/h"}, "/h/.local/state/codemode"),
        ("linux", {"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/codemode"),
        ("linux", {"HOME": "/h", "XDG_STATE_HOME": "relative"}, "/h/.local/state/codemode"),
        ("darwin", {"HOME": "/h"}, "/h/Library/Application Support/codemode"),
        ("win32", {"USERPROFILE": "/h", "LOCALAPPDATA": "/l"}, "/l/codemode"),
        ("win32", {"USERPROFILE": "/h"}, "/h/AppData/Local/codemode"),
    ],
)
def test_the_state_folder_of_each_platform(platform: str, environ: dict[str, str], expected: str):
    assert state_folder(environ, platform=platform) == Path(expected)
