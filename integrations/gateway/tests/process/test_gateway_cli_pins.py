"""Tools that are not those of a server's first use: shown on the command line, and taken by a person at a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import mcp_types as types
import pytest
from codemode_gateway import ServerConfig
from codemode_gateway.cli import command_context as mcp_terminal
from codemode_gateway.tool_history.tool_pins import ToolPins
from controlling_terminal import Person, PersonHere
from warm_commands import GATEWAYS

from codemode.cli import main

pytestmark = pytest.mark.usefixtures("warm_gateways")
HIDES = "now it deletes \u202e\x1b[2Jall"


class Changed:
    """A gateway's folder in which a tool of the server "shop" was changed, and another one came."""

    def __init__(self, folder: Path) -> None:
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"shop": {"command": "none"}}}))
        self.arguments = ["mcp", "--config", str(config), "pins"]
        self.command = [sys.executable, "-W", "error", "-m", "codemode", *self.arguments]
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
        self.pins = ToolPins(folder / "codemode")
        self.list("it looks", "look")
        self.list(HIDES, "look", "come")

    def list(self, description: str, *names: str) -> None:
        """Let the server list these tools."""
        tools = [types.Tool(name=one, description=description, input_schema={"type": "object"}) for one in names]
        asyncio.run(self.pins.filter_tools(ServerConfig("shop", "stdio", command="none"), tools))

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run it without a terminal."""
        done = subprocess.run(
            [*GATEWAYS.python, *self.command[1:], *arguments],
            env=self.environment, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL, start_new_session=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    @property
    def waiting(self) -> int:
        """How many tools wait for a person."""
        (one,) = self.pins.list_server_pins()
        return len(one.differences)


@pytest.fixture
def changed(tmp_path: Path) -> Changed:
    return Changed(tmp_path)


@pytest.fixture
def person_here(
    tmp_path: Path, changed: Changed, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], PersonHere]]:
    """A person before a call of this process that is to take the tools as they are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    opened: list[PersonHere] = []

    def at() -> PersonHere:
        def open_there(path: str) -> None:
            monkeypatch.setattr(mcp_terminal, "TERMINAL", path)

        opened.append(PersonHere(lambda: main([*changed.arguments, "approve", "shop"]), open_there))
        return opened[-1]

    yield at
    for one in opened:
        one.close()


def test_the_difference_is_shown_with_nothing_that_hides(changed: Changed):
    code, out, _ = changed.run()
    assert code == 0
    assert "-description: it looks" in out
    assert "+description: now it deletes \\u202e\\u001b[2Jall" in out
    assert "new come" in out
    assert "1 server of 1 changed since first use" in out
    assert all(char.isprintable() or char == "\n" for char in out)


def test_the_difference_is_one_json_object(
    changed: Changed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main([*changed.arguments, "--json"]) == 0
    (server,) = json.loads(capsys.readouterr().out)["servers"]
    assert (server["server"], server["tools"]) == ("shop", 1)
    assert [(one["tool"], one["kind"]) for one in server["differences"]] == [("come", "new"), ("look", "changed")]
    assert "-description: it looks" in server["differences"][1]["lines"]


def test_without_a_terminal_nothing_is_approved(changed: Changed):
    code, out, err = changed.run("approve", "shop")
    assert (code, out, "asks a person at the terminal" in err) == (2, "", True)
    assert changed.waiting == 2


def test_a_person_sees_the_difference_and_takes_it(changed: Changed):
    person = Person([*changed.command, "approve", "shop"], changed.environment)
    try:
        person.read_until("Accept the current tools of shop? [y/N] ")
        assert "+description: now it deletes \\u202e\\u001b[2Jall" in person.shown
        person.type("y\n")
        assert person.end()[0] == 0
    finally:
        person.close()
    assert changed.waiting == 0


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_anything_but_yes_takes_nothing(changed: Changed, person_here: Callable[[], PersonHere], answer: str):
    person = person_here()
    person.read_until("Accept the current tools of shop? [y/N] ")
    person.type(answer)
    assert person.end()[0] == 1
    assert changed.waiting == 2


def test_what_has_changed_since_it_was_shown_is_not_approved(changed: Changed, person_here: Callable[[], PersonHere]):
    person = person_here()
    person.read_until("Accept the current tools of shop? [y/N] ")
    changed.list("and now something else", "look")
    person.type("y\n")
    ended, _, err = person.end()
    assert (ended, "review them again" in err) == (1, True)
    assert changed.waiting == 1
