"""Answers that always hold, seen and taken back on the command line, while a gateway runs too."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from approval_world import accept, answer_of
from codemode_gateway.approvals.remembered_answers import FILE_NAME, RememberedAnswers, ToolIdentity
from gateway_clients import client_over_stdio
from in_loop import in_loop
from mcp_servers.configured import quick
from suite import full_only
from warm_commands import GATEWAYS

from codemode.cli import main
from codemode.stores import ALL_TENANTS, AuditLine, SqliteInterruptStore

pytestmark = pytest.mark.usefixtures("warm_gateways")
HIDES = "look\u202e\x1b[2J"
CODE = 'import { note } from "@codemode/servers/quick";\nglobalThis.__codemode_result__ = await note({ text: "a" });'


class Kept:
    """A gateway's folder in which four answers of two users are remembered."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.state, self._capsys = folder / "codemode", capsys
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"shop": {"command": "none"}}}))
        self._arguments = ["mcp", "--config", str(config), "approvals"]
        self.remembered = RememberedAnswers(self.state)
        for user, server, tool in (
            ("local", "shop", "refund"),
            ("local", "shop", HIDES),
            ("local", "mail", "send"),
            ("ana", "desk", "close"),
        ):
            self.remembered.save_external_answer(user, "", ToolIdentity(server, tool, "as it was"), "always")

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a subcommand of ``approvals``: its code, and what it has said."""
        code = main([*self._arguments, *arguments])
        said = self._capsys.readouterr()
        assert all(char.isprintable() or char == "\n" for char in said.out + said.err)
        return code, said.out, said.err

    @property
    def left(self) -> list[tuple[str, str, str]]:
        """What always holds, as gateways of the folder read it."""
        return [(one.principal, one.server, one.tool) for one in self.remembered.list_permanent_answers()]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Kept:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Kept(tmp_path, capsys)


def test_what_is_remembered_is_listed_with_nothing_that_hides(kept: Kept):
    code, out, err = kept.run("remembered")
    first, *rows, last = out.splitlines()
    assert (code, err, first.split()) == (0, "", ["principal", "server", "tool", "since"])
    assert [row.split()[:3] for row in rows] == [
        ["ana", "desk", "close"],
        ["local", "mail", "send"],
        ["local", "shop", "look\\u202e\\u001b[2J"],
        ["local", "shop", "refund"],
    ]
    assert all(re.search(r" \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$", row) for row in rows)
    assert last == "4 answers hold until their tools change"
    assert kept.run("remembered", "--user", "ana")[1].count("\n") == 3


def test_as_json_it_has_the_very_names(kept: Kept):
    code, out, _ = kept.run("remembered", "--json", "--user", "local")
    listed = json.loads(out)["remembered"]
    assert (code, [(one["server"], one["tool"]) for one in listed]) == (
        0,
        [("mail", "send"), ("shop", HIDES), ("shop", "refund")],
    )
    assert listed[0].keys() == {"principal", "server", "tool", "since"}


@pytest.mark.parametrize("has_file", [True, False])
def test_where_nothing_is_remembered_it_is_told(kept: Kept, has_file: bool):
    if has_file:
        for user, server in (("local", "shop"), ("local", "mail"), ("ana", "desk")):
            assert kept.run("forget", server, "--user", user)[0] == 0
    else:
        (kept.state / FILE_NAME).unlink()
    assert kept.run("remembered") == (0, "no answer is remembered\n", "")
    assert json.loads(kept.run("remembered", "--json")[1]) == {"remembered": []}
    assert kept.run("forget", "shop")[0] == 2
    assert (kept.state / FILE_NAME).exists() == has_file


@pytest.mark.parametrize(
    ("arguments", "gone"),
    [
        (["shop"], {("local", "shop", "refund"), ("local", "shop", HIDES)}),
        (["shop", "refund"], {("local", "shop", "refund")}),
        (["shop", HIDES], {("local", "shop", HIDES)}),
        (["shop", "look\\u202e\\u001b[2J"], {("local", "shop", HIDES)}),
        (["desk", "--user", "ana"], {("ana", "desk", "close")}),
    ],
)
def test_what_is_named_is_taken_back_and_nothing_else(kept: Kept, arguments: list[str], gone: set[Any]):
    before = set(kept.left)
    code, out, _ = kept.run("forget", *arguments)
    answers = "1 answer" if len(gone) == 1 else "2 answers"
    assert (code, out.startswith(f"revoked {answers} about {arguments[0]}")) == (0, True)
    assert set(kept.left) == before - gone


def test_the_audit_tells_who_has_taken_back_what(kept: Kept, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOGNAME", "rosa")
    assert kept.run("forget", "nothing like it")[0] == 2
    assert kept.run("forget", "shop")[::2] == (0, "")
    assert kept.run("forget", "desk", "close", "--user", "ana")[::2] == (0, "")
    lines = asyncio.run(audited(kept.state / "gateway.sqlite"))
    assert {(one.kind, one.actor) for one in lines} == {("later_calls_forgotten", "rosa@terminal")}
    assert [(one.tenant, one.details) for one in lines] == [
        ("local", {"server": "shop", "tool": "look\\u202e\\u001b[2J"}),
        ("local", {"server": "shop", "tool": "refund"}),
        ("ana", {"server": "desk", "tool": "close"}),
    ]


async def audited(path: Path) -> list[AuditLine]:
    store = SqliteInterruptStore(path)
    try:
        return [line async for line in store.audit(tenant=ALL_TENANTS)]
    finally:
        await store.aclose()


def test_the_audit_is_in_the_named_store_which_must_exist(kept: Kept, tmp_path: Path):
    store = f"sqlite:///{tmp_path}/other.sqlite"
    before = kept.left
    for action in (["remembered"], ["forget", "shop"]):
        code, out, err = kept.run(*action, "--store", store)
        assert (code, out, "there is no database" in err, kept.left == before) == (2, "", True, True), action
    assert kept.run("forget", "shop", "--store", store, "--create")[::2] == (0, "")
    assert len(asyncio.run(audited(tmp_path / "other.sqlite"))) == 2
    assert len(json.loads(kept.run("remembered", "--json", "--store", store)[1])["remembered"]) == 2


def test_without_the_store_it_is_taken_back_all_the_same_and_told(kept: Kept):
    (kept.state / "gateway.sqlite").mkdir()
    code, out, err = kept.run("forget", "mail")
    assert (code, out) == (0, "revoked 1 answer about mail: running gateways ask again\n")
    assert err.startswith("codemode: the answers are revoked, but the audit has no entry: ")
    assert ("local", "mail", "send") not in kept.left


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shop", "refnd"], "did you mean refund?"),
        (["shop", "look\\u202e"], r"did you mean look\u202e\u001b[2J?"),
        (["Shop"], "did you mean shop?"),
        (["shpo", "refund"], "did you mean shop?"),
        (["desk"], "did you mean --user ana?"),
        (["shop", "--user", "ana"], "did you mean --user local?"),
        (["nothing like it"], " approvals remembered` lists them"),
        (["\u202e", "x"], r"no answer of local about \u202e.x is remembered: "),
    ],
)
def test_what_is_not_remembered_is_told_with_what_was_meant(kept: Kept, arguments: list[str], said: str):
    before = kept.left
    code, out, err = kept.run("forget", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert kept.left == before


@pytest.mark.parametrize("action", [["forget", "shop"], *full_only(["remembered"])], ids=" ".join)
def test_a_file_that_others_may_have_written_is_named(kept: Kept, action: list[str]):
    (kept.state / FILE_NAME).chmod(0o666)
    code, out, err = kept.run(*action)
    assert (code, out, f"{FILE_NAME} is not used" in err) == (2, "", True)


@in_loop
async def test_a_gateway_that_runs_asks_again_once_an_answer_was_taken_back(tmp_path: Path):
    server, config = quick(), tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"quick": {"command": server.command, "args": [*server.args]}}}))
    command = ["-W", "error", "-m", "codemode", "mcp", "--config", str(config)]
    state = {"XDG_STATE_HOME": str(tmp_path)}
    asked: list[str] = []

    async def person(_ctx: Any, params: Any) -> Any:
        asked.append(params.message)
        return accept("always")

    def run(*arguments: str) -> str:
        """Run a subcommand beside the gateway, and return what it has printed."""
        return subprocess.run(
            [*GATEWAYS.python, *command, "approvals", *arguments], env={**os.environ, **state},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip

    async with client_over_stdio(
        command, python=GATEWAYS.python, environment=state, elicitation_callback=person
    ) as client:

        async def asked_in_all() -> int:
            answer = answer_of(await client.call_tool("codemode_run", {"code": CODE}))
            assert answer["diagnostics"] == []
            return len(asked)

        assert [await asked_in_all(), await asked_in_all()] == [1, 1]
        assert "local      quick   note" in await asyncio.to_thread(run, "remembered")
        assert "revoked 1 answer about quick.note" in await asyncio.to_thread(run, "forget", "quick", "note")
        assert [await asked_in_all(), await asked_in_all()] == [2, 2]
