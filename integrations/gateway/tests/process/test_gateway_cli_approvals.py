"""Deciding on the command line what waits in the gateway's store: shown whole, asked at the terminal, written once."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway.approvals.remembered_answers import RememberedAnswers
from codemode_gateway.cli import approvals as mcp_approvals
from codemode_gateway.cli import command_context as mcp_terminal
from controlling_terminal import Person, PersonHere
from suite import full_only
from warm_commands import GATEWAYS

from codemode import ModuleServer, Tool, create_modules_tool
from codemode.cli import main
from codemode.cli.exits import UsageError
from codemode.stores import SqliteInterruptStore

pytestmark = pytest.mark.usefixtures("warm_gateways")
COMMAND = [sys.executable, "-W", "error", "-m", "codemode"]
CODE = """\
import { refund } from "@codemode/servers/shop";
const orders = ["a", "b"];
globalThis.__codemode_result__ = await Promise.all(orders.map((order) => refund({ order, note: "\\u202e\\u001b[2J" })));
"""
RUN = "codemode-mcp"


def never(given: Any) -> Any:
    raise AssertionError(f"it runs with {given}, and nobody was to run it")


def _of_the_first(calls: list[str]) -> dict[str, Any]:
    """Return what a gateway keeps of how tools were, for the first of these calls alone."""
    return {"definitions": {calls[0]: "as it was"}, "servers": {calls[0]: "shop"}, "session": "theirs"}


class Waiting:
    """A gateway's folder in which a run of two calls waits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"shop": {"command": "none"}}}))
        self.arguments = ["mcp", "--config", str(config)]
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
        self.path = folder / "codemode" / "gateway.sqlite"
        self.path.parent.mkdir()
        self.record_id, self.calls = asyncio.run(self._put())

    async def _put(self) -> tuple[str, list[str]]:
        schema = {
            "type": "object",
            "properties": {"order": {"type": "string", "maxLength": 3}, "note": {"type": "string"}},
            "required": ["order"],
        }
        refund = Tool("refund", execute=never, needs_approval=True, input_schema=schema)
        run = create_modules_tool([ModuleServer("shop", [refund])], settings={"approval": {"mode": "interrupt"}})
        interrupt = await run.execute({"code": CODE})
        calls = [one.interrupt_id for one in interrupt.requests]
        async with SqliteInterruptStore(self.path) as store:
            record_id = await store.put(
                interrupt, tool=run, tenant="local", app=RUN, source=CODE, payload=_of_the_first(calls)
            )
        return record_id, calls

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a subcommand without a terminal."""
        done = subprocess.run(
            [*GATEWAYS.python, *COMMAND[1:], *self.arguments, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        return done.returncode, done.stdout, done.stderr

    def remembered(self) -> list[Any]:
        """Return what always holds, as the gateways of the folder read it."""
        found = RememberedAnswers(self.path.parent).list_permanent_answers()
        return [(one.principal, one.server, one.tool, one.definition_digest) for one in found]

    def decided(self) -> list[Any]:
        """Return the decisions that the store has, in the order of the calls."""

        async def read() -> list[Any]:
            async with SqliteInterruptStore(self.path) as store:
                record = await store.record(self.record_id, tenant="local")
            found = {one.interrupt_id: one.decision for one in record.requests}
            return [found[one] for one in self.calls]

        return asyncio.run(read())


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    return Waiting(tmp_path)


@pytest.fixture
def person(waiting: Waiting) -> Iterator[Callable[..., Person]]:
    opened: list[Person] = []

    def at(*arguments: str) -> Person:
        opened.append(Person([*COMMAND, *waiting.arguments, *arguments], waiting.environment))
        return opened[-1]

    yield at
    for one in opened:
        one.close()


@pytest.fixture
def person_here(waiting: Waiting, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., PersonHere]]:
    """A person before a call of this process; what a process does with its terminal, others show."""
    monkeypatch.setenv("XDG_STATE_HOME", str(waiting.folder))
    opened: list[PersonHere] = []

    def at(*arguments: str, typed: str = "") -> PersonHere:
        def open_there(path: str) -> None:
            monkeypatch.setattr(mcp_terminal, "TERMINAL", path)

        opened.append(PersonHere(lambda: main([*waiting.arguments, *arguments]), open_there, typed))
        return opened[-1]

    yield at
    for one in opened:
        one.close()


def test_what_waits_is_listed_and_shown_with_nothing_that_hides(waiting: Waiting):
    code, out, _ = waiting.run("approvals")
    assert code == 0
    assert all(one in out for one in ("shop", "refund", *waiting.calls, waiting.record_id))
    assert "2 calls of 1 run wait for a person" in out
    code, shown, _ = waiting.run("approvals", "show", waiting.record_id)
    assert (code, "\\u202e\\u001b[2J" in shown) == (0, True)
    assert 'import { refund } from "@codemode/servers/shop";' in shown
    assert "\x1b" not in out + shown


def test_pending_calls_and_a_run_are_printed_as_json(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_STATE_HOME", str(waiting.folder))
    for arguments in (["approvals", "--json"], ["approvals", "show", "--json", waiting.record_id]):
        assert main([*waiting.arguments, *arguments]) == 0
        out = capsys.readouterr().out
        found = json.loads(out)
        assert [one["call"] for one in found["calls"]] == waiting.calls, arguments
        assert {(one["run"], one["server"], one["tool"]) for one in found["calls"]} == {
            (waiting.record_id, "shop", "refund")
        }
        assert out.isascii()
    assert (found["program"], found["state"], found["outcome"]) == (CODE, "pending", None)


def test_a_run_is_found_by_its_name_the_beginning_of_it_and_a_call(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("XDG_STATE_HOME", str(waiting.folder))
    for given in (waiting.record_id, waiting.record_id[:8], waiting.calls[0]):
        assert main([*waiting.arguments, "approvals", "show", given]) == 0
        assert 'import { refund } from "@codemode/servers/shop";' in capsys.readouterr().out
    for given in ("nothing", ""):
        assert main([*waiting.arguments, "approvals", "show", given]) == 2
        assert "no pending call or run has the id" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["approve", "deny"])
def test_without_a_terminal_nobody_is_asked_and_nothing_decided(waiting: Waiting, action: str):
    code, out, err = waiting.run("approvals", action, waiting.record_id)
    assert (code, out) == (2, "")
    assert "asks a person at the terminal" in err
    assert waiting.decided() == [None, None]


def test_all_calls_of_a_run_are_shown_and_decided_together(waiting: Waiting, person: Callable[..., Person]):
    at = person("approvals", "approve", waiting.record_id)
    at.read_until("Allow these 2 calls? [y/N] ")
    assert at.shown.count('"note": "\\u202e\\u001b[2J"') == 2
    assert "\x1b" not in at.shown
    at.type("y\n")
    code, out, _ = at.end()
    assert (code, "decided 2 calls" in out) == (0, True)
    assert waiting.decided() == [{"approved": True}, {"approved": True}]


@pytest.mark.full
def test_one_call_is_edited_and_allowed_for_later_and_the_other_waits_on(
    waiting: Waiting, person: Callable[..., Person]
):
    edited = {"order": "c", "note": "less"}
    settled = ("--input", json.dumps(edited), "--reason", "a typo", "--always")
    at = person("approvals", "approve", waiting.calls[0], *settled)
    at.read_until("and later calls of shop.refund, always, until the tool changes? [y/N] ")
    assert '"order": "c"' in at.shown
    assert waiting.remembered() == []
    at.type("yes\n")
    assert at.end()[0] == 0
    assert waiting.decided() == [{"approved": True, "reason": "a typo", "input": edited}, None]
    assert waiting.remembered() == [("local", "shop", "refund", "as it was")]


def test_an_edit_that_does_not_fit_decides_nothing(waiting: Waiting, person_here: Callable[..., PersonHere]):
    at = person_here("approvals", "approve", waiting.calls[0], "--input", '{"order": "much too long"}')
    code, _, err = at.end()
    assert (code, "nothing was decided" in err) == (1, True)
    assert "order" in err.partition("does not fit")[2]
    assert "[y/N]" not in at.shown  # nobody is asked about it
    assert waiting.decided() == [None, None]


@pytest.mark.parametrize("answer", ["\n", "y es\n", *full_only("n\n", "maybe\n")])
def test_anything_but_yes_decides_nothing(waiting: Waiting, person_here: Callable[..., PersonHere], answer: str):
    at = person_here("approvals", "deny", waiting.calls[1])
    at.read_until("Deny this call? [y/N] ")
    at.type(answer)
    assert at.end()[0] == 1
    assert waiting.decided() == [None, None]


def test_what_was_typed_before_the_question_is_no_answer(waiting: Waiting, person_here: Callable[..., PersonHere]):
    at = person_here("approvals", "approve", waiting.record_id, typed="y\ny\n")
    at.read_until("Allow these 2 calls? [y/N] ")
    at.type("n\n")
    assert at.end()[0] == 1
    assert waiting.decided() == [None, None]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--input", "{"], "--input is not JSON"),
        (["--input", "{}"], "--input is for one call"),
        (["--run-again"], "has not started"),
        (["--happened", "1"], "has not started"),
        (["--always"], "can only be answered once"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_question(
    waiting: Waiting, person_here: Callable[..., PersonHere], arguments: list[str], said: str
):
    at = person_here("approvals", "approve", waiting.record_id, *arguments)
    code, _, err = at.end()
    assert (code, said in err) == (2, True)
    assert waiting.decided() == [None, None]


def _decided_by_another(waiting: Waiting, *calls: str) -> None:
    async def decide() -> None:
        async with SqliteInterruptStore(waiting.path) as store:
            await store.decide({one: {"approved": False} for one in calls}, actor="ana", tenant="local")

    asyncio.run(decide())


def test_what_another_has_decided_meanwhile_stands_and_is_told_with_the_way_out(
    waiting: Waiting, person_here: Callable[..., PersonHere]
):
    someone = person_here("approvals", "approve", waiting.record_id)
    someone.read_until("Allow these 2 calls?")
    _decided_by_another(waiting, waiting.calls[0])
    someone.type("yes\n")
    code, _, errors = someone.end()
    assert code == 1
    again = " ".join(["codemode", *waiting.arguments, "approvals"])
    assert f"ana has decided it; `{again}` lists pending calls" in errors
    assert waiting.decided() == [{"approved": False}, None]


def test_nobody_is_asked_about_what_was_decided_while_it_was_looked_up(
    waiting: Waiting, monkeypatch: pytest.MonkeyPatch
):
    listed = mcp_approvals._list_waiting_records

    async def decided_then(store: Any) -> Any:
        found = await listed(store)
        await store.decide({one: {"approved": False} for one in waiting.calls}, actor="ana", tenant="local")
        return found

    async def found() -> None:
        async with SqliteInterruptStore(waiting.path) as store:
            await mcp_approvals._find_run_and_calls_or_raise(
                store, argparse.Namespace(id=waiting.record_id, config=None)
            )

    monkeypatch.setattr(mcp_approvals, "_list_waiting_records", decided_then)
    with pytest.raises(UsageError, match=r"no pending call or run has the id .*lists pending calls"):
        asyncio.run(found())
