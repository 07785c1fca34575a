"""Databases that commands are given: one that does not exist is refused, unless it is to be created."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codemode.cli import main


@pytest.fixture(autouse=True)
def _nobodys_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CODEMODE_MCP_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_store_that_does_not_exist_is_refused_and_not_made(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "approvals.db").touch()
    for arguments in (["--store", "sqlite:///aprovals.db"], ["show", "abcd", "--store", "sqlite:///aprovals.db"]):
        assert main(["mcp", "approvals", *arguments]) == 2, arguments
        said = capsys.readouterr().err
        assert f"there is no database {tmp_path / 'aprovals.db'} (did you mean {tmp_path / 'approvals.db'}?)" in said
        assert "--create" in said
    assert not (tmp_path / "aprovals.db").exists()


def test_a_store_is_created_where_that_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    for arguments in (["--store", "sqlite:///new.db", "--create"], ["--store", "new.db"]):
        assert main(["mcp", "approvals", *arguments]) == 0, arguments
        assert "0 calls of 0 runs wait" in capsys.readouterr().out
    assert (tmp_path / "new.db").stat().st_size > 0


def test_what_is_no_url_of_a_database_is_refused_with_the_forms_there_are(capsys: pytest.CaptureFixture[str]):
    for given in ("", "sqlite:///", "mysql://root:hunter2@host/x"):
        assert main(["mcp", "approvals", "--store", given]) == 2, given
        said = capsys.readouterr().err
        assert "--store takes the URL of a database: sqlite:///FILE" in said
        assert "hunter2" not in said


def test_a_store_that_the_configuration_names_is_refused_too(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    config = tmp_path / "mcp.json"
    said = {"mcpServers": {"a": {"command": "none"}}, "codemode": {"store": "sqlite:///own.db"}}
    config.write_text(json.dumps(said), encoding="utf-8")
    assert main(["mcp", "--config", str(config), "approvals"]) == 2
    assert f"there is no database {tmp_path / 'own.db'}" in capsys.readouterr().err
    assert main(["mcp", "--config", str(config), "approvals", "--create"]) == 0


def test_the_store_of_the_state_folder_is_the_gateways_own_and_is_made(tmp_path: Path):
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"a": {"command": "none"}}}), encoding="utf-8")
    assert main(["mcp", "--config", str(config), "approvals"]) == 0
