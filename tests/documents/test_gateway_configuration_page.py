"""The page of the gateway's configuration names every key and variable there is, and its messages are true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway import load_config
from codemode_gateway.client_configs.importing import CLIENTS, ClientEnvironment, list_client_files
from codemode_gateway.config import codemode_section
from codemode_gateway.config.loader import SERVER_CONTAINER_KEYS
from codemode_gateway.config.substitution import Variables

from codemode.surfaces.modules.options import WIRE_NAMES

PAGE = (Path(__file__).parents[2] / "docs" / "gateway-configuration.md").read_text(encoding="utf-8")


OTHER_WORDS = {
    "allow",
    "deny",
    "true",
    "false",
    "null",
    "codemode",
    "auto",
    "env",
    "outputSchema",
    "postgres",
    "TOO_MANY_WAITING",
}


def section(name: str) -> str:
    return PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]


def test_every_key_of_ours_is_there():
    known = {
        *codemode_section.SERVER_CHECKS,
        *codemode_section.SECTION_CHECKS,
        *codemode_section.SIGN_IN_CHECKS,
        *codemode_section.AUTH_CHECKS,
        *codemode_section.CLIENT_CHECKS,
        *WIRE_NAMES.values(),
    }
    said = {
        name
        for heading in ("Settings of a server", "Settings at the top")
        for name in re.findall(r"`(\w+)`", section(heading))
    }
    assert known - said == set()
    assert said - known - OTHER_WORDS == set()


def test_every_place_of_servers_is_there():
    assert all(f"`{key}`" in section("The file") for key in SERVER_CONTAINER_KEYS)


def test_every_variable_of_the_table_is_known(monkeypatch: pytest.MonkeyPatch):
    rows = [row.split("|")[1] for row in section("Variables").splitlines() if row.startswith("| `")]
    variables = [one for row in rows for one in re.findall(r"`([^`]+)`", row)]
    assert len(variables) >= 9
    environ = {"NAME": "value"}
    filled = Variables(environ, Path("/project"), {"id": "value"}, keyring=lambda _service, _name: "value")
    for one in variables:
        assert filled.expand(one, "here", set()) != one


MISTAKES: dict[str, dict[str, Any]] = {
    "aproval": {"git": {"command": "x", "codemode": {"aproval": 1}}},
    "GITHUB_TOKEN": {"git": {"command": "x", "env": {"TOKEN": "${GITHUB_TOKEN}"}}},
    "CODEMODE_INPUT_KEY": {"x": {"url": "http://h", "headers": {"Authorization": "${input:key}"}}},
    "needs a command": {"x": {}},
    "a command and a url": {"x": {"command": "x", "url": "http://h"}},
    "starts the gateway": {"x": {"command": "codemode", "args": ["mcp"]}},
    "websockets": {"x": {"type": "ws", "url": "ws://h"}},
}


@pytest.mark.parametrize("mark", MISTAKES)
def test_a_message_of_the_page_is_what_is_said(mark: str):
    rows = re.findall(r"^\| `(.+?)` \|", section("Mistakes"), re.MULTILINE)
    row = next(one for one in rows if mark in one)
    assert str(load_config({"mcpServers": MISTAKES[mark]}, environ={}).problems[0]) == row


def test_every_client_is_there_with_its_key():
    for client in CLIENTS:
        file = list_client_files(client, ClientEnvironment({"HOME": "/h"}, "linux"))[0]
        assert file.path.name in section("The files of clients")
        assert f"`{file.keys[0]}`" in section("The files of clients")


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]):
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/gateway-configuration.md", "exec"), {})
    assert capsys.readouterr().out == "['docs'] []\n"
