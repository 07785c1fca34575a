"""`codemode console` as a person uses it: a real process, a real port, a real database."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from console_command import KEY, command
from console_visitors import ANA, OWN
from suite import full_only

from codemode import create_code_mode_tool, tool
from codemode.cli import main
from codemode.stores import SqliteInterruptStore

SHOP = """
from codemode import tool

@tool(needs_approval=True)
def refund(order: str) -> str:
    return f"refunded {order}"
"""


async def pause(database: Path) -> str:
    @tool(needs_approval=True)
    def refund(order: str) -> str:
        raise AssertionError

    async with SqliteInterruptStore(database) as store:
        continuation = {"keys": KEY, "guard": store.guard, "max_age_ms": 86_400_000}
        options = {"approval": {"mode": "interrupt"}, "continuation": continuation}
        code_mode = create_code_mode_tool([refund], options)
        interrupt = await code_mode.execute({"js": "return await tools.refund({ order: 'A-17' })"})
        return await store.put(interrupt, tool=code_mode, tenant="acme", app="shop")


async def outcome(database: Path, record_id: str) -> Any:
    async with SqliteInterruptStore(database) as store:
        return await store.outcome(record_id, tenant="acme", timeout_ms=60_000)


def test_the_printed_url_signs_in_and_an_approved_program_goes_on(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    database = tmp_path / "approvals.db"
    record_id = asyncio.run(pause(database))
    with command(tmp_path, "--database", "sqlite:///approvals.db", "--tools", "shop.py", "--app", "shop") as (
        process,
        line,
    ):
        found = re.search(r"(http://127\.0\.0\.1:\d+)/sign-in#token=([\w-]{40,})$", line.strip())
        assert found is not None, line
        with httpx.Client(base_url=found[1], headers=OWN, timeout=60) as browser:
            assert browser.get("/").headers["location"] == "/sign-in?next=%2F"
            assert browser.post("/sign-in", data={"token": found[2]}).status_code == 303
            (card,) = browser.get(f"/records/{record_id}", headers={"accept": "application/json"}).json()["requests"]
            form = {"form_token": card["formToken"], "version": card["version"], "shown": card["shown"]}
            action = f"/records/{record_id}/requests/{card['id']}"
            assert browser.post(action, data={**form, "decision": "approve"}).status_code == 303
            assert asyncio.run(outcome(database, record_id)) == "refunded A-17"
            assert browser.get("/", headers={"host": "evil.test"}).status_code == 421
            assert browser.get("/", headers={"host": found[1].replace("http://127.0.0.1", "localhost")}).is_success
            # Whoever still listens keeps it from nothing.
            with browser.stream("GET", "/events") as events:
                lines = events.iter_lines()
                assert next(lines) == ": open"
                process.send_signal(signal.SIGTERM)
                assert not any(line.startswith("event: ended") for line in lines)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("key", [json.dumps([KEY, "b7e23ec29af22b0b4e41da31e868d572", KEY]), *full_only(KEY)])
def test_without_tools_the_key_shows_what_a_program_has_done(tmp_path: Path, key: str) -> None:
    record_id = asyncio.run(pause(tmp_path / "approvals.db"))
    with command(tmp_path, "--database", "sqlite:///approvals.db", key=key) as (_, line):
        url, _, token = line.split()[-1].partition("/sign-in#token=")
        with httpx.Client(base_url=url, headers=OWN, timeout=60) as browser:
            assert browser.post("/sign-in", data={"token": token}).status_code == 303
            record = browser.get(f"/records/{record_id}", headers={"accept": "application/json"}).json()
            assert [one["name"] for one in record["calls"]] == ["refund"]
            assert "tools.refund" in browser.get(f"/records/{record_id}/value", params={"of": "program"}).text


def test_with_a_file_of_tokens_no_token_is_made(tmp_path: Path) -> None:
    from codemode_console import token_hash

    users = {token_hash(ANA): {"name": "ana", "tenants": "*"}}
    (tmp_path / "tokens.json").write_text(json.dumps(users), encoding="utf-8")
    arguments = ("--database", f"sqlite:///{tmp_path}/a.db", "--create", "--tokens", "tokens.json")
    with command(tmp_path, *arguments) as (process, line):
        assert re.fullmatch(r"Sign in at http://127\.0\.0\.1:\d+/\n", line)
        with httpx.Client(base_url=line.split()[-1], headers=OWN, timeout=60) as browser:
            assert browser.post("/sign-in", data={"token": ANA}).status_code == 303
            assert browser.get("/").status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.parametrize(("arguments", "words"), [
    (["--host", "0.0.0.0"], "for this machine only"),
    (["--host", "::"], "for this machine only"),
    (["--host", "approvals.acme.com"], "for this machine only"),
    (["--host", "192.0.2.1"], "for this machine only"),
    (["--port", "70000"], "port must be"),
    (["--tokens", "none.json"], "cannot be read"),
    (["--tokens", "bad.json"], "not a tokens file"),
    (["--tools", "none.py"], "tools file none.py does not exist"),
    (["--database", "mysql://root:secret@host/x"], "mysql://...' is not a database"),
    (["--database", "sqlite://"], "is not a database"),
    (["--database", "sqlite:///"], "is not a database"),
    (["--database", "sqlite:///none/x.db"], "missing folder"),
    (["--database", "sqlite:///bad.json"], "database"),
    (["--database", "sqlite:///b.db"], "there is no database b.db (did you mean a.db?); correct"),
])  # fmt: skip
def test_what_cannot_be_used_is_said_before_anything_is_served(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEMODE_SIGNING_KEY", KEY)
    Path("bad.json").write_text(f'{{"{ANA}": {{"name": "ana", "tenants": "*"}}}}' * 50, encoding="utf-8")
    Path("a.db").touch()
    assert main(["console", "--database", "sqlite:///a.db", "--port", "0", *arguments]) == 2
    assert not Path("b.db").exists()
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""
    assert "secret" not in said.err
    assert ANA not in said.err


def test_tools_without_the_key_of_their_pauses_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CODEMODE_SIGNING_KEY", raising=False)
    Path("a.db").touch()
    assert main(["console", "--database", "sqlite:///a.db", "--port", "0", "--tools", "shop.py"]) == 2
    assert "set CODEMODE_SIGNING_KEY" in capsys.readouterr().err


def test_it_says_how_to_install_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["console", "--database", f"sqlite:///{tmp_path}/a.db", "--create"]
    with monkeypatch.context() as patched:
        for name in [name for name in sys.modules if name.startswith("codemode_console")]:
            patched.delitem(sys.modules, name)
        patched.setitem(sys.modules, "starlette.requests", None)
        assert main(arguments) == 2
    assert "cannot start: import of starlette.requests" in (said := capsys.readouterr().err)
    assert "install codemode-console again" in said
    monkeypatch.setattr("codemode.cli.metadata.entry_points", lambda **_: ())
    assert main(arguments) == 2
    assert "in a clone of the repository pip install ./integrations/console" in capsys.readouterr().err
    assert not (tmp_path / "a.db").exists()
