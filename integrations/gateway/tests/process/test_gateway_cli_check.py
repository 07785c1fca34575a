"""``codemode mcp check`` takes the path of programs, and names what programs would miss: tools, patterns, servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_servers.configured import HERE
from warm_commands import GATEWAYS

from codemode.cli import main

pytestmark = pytest.mark.usefixtures("warm_gateways")
SCHEMA = {"type": "object"}
DOCS = [{"name": name, "inputSchema": SCHEMA} for name in ("query_docs", "delete_doc")]


def entry(folder: Path, name: str, tools: Any, **more: Any) -> dict[str, Any]:
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"pages": {"first": {"tools": tools}}}))
    return {"command": sys.executable, "args": ["-I", "-S", str(HERE / "scripted_server.py"), str(file)], **more}


def checked(folder: Path, servers: dict[str, Any], *arguments: str, **top: Any) -> tuple[int, str, str]:
    """Run the command; return its exit code, what it prints of the servers, and what is on stderr."""
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, "codemode": top}))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CODEMODE_", "XDG_"))}
    done = subprocess.run(
        [*GATEWAYS.python, "-W", "error", "-m", "codemode", "mcp", "check", *arguments, "--config", str(path)],
        env={**kept, "HOME": str(folder)}, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
        start_new_session=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout.rpartition("```\n")[2] or done.stdout, done.stderr


def test_what_a_list_lacks_is_named_once_and_all_is_not_well(tmp_path: Path):
    code, out, err = checked(tmp_path, {"docs": entry(tmp_path, "docs", [*DOCS, None, {"name": 7}, DOCS[0]])})
    assert (code, err) == (0, "")
    assert "ok       docs  2 tools" in out
    assert "WARNING  docs  in tools/list, entry 3: null, not an object" in out
    assert 'in tools/list, "query_docs": listed more than once' in out
    assert "3 warnings (see WARNING above)." in out
    assert "No problems found" not in out


def test_patterns_that_match_no_tool_are_named_with_the_nearest_names(tmp_path: Path):
    policy = {
        "approval": {"deleteDoc": "always", "query_*": "never", "*": "writes"},
        "tools": {"allow": ["get_docs", "*_doc*"], "deny": ["drop_*"]},
    }
    servers = {"docs": entry(tmp_path, "docs", DOCS, codemode=policy, alwaysAllow=["QUERY_DOCS"])}
    code, out, err = checked(tmp_path, servers)
    assert (code, err) == (0, "")
    assert 'approval: "deleteDoc" matches no tool; did you mean "delete_doc"?' in out
    assert 'autoApprove: "QUERY_DOCS" matches no tool; did you mean "query_docs"?' in out
    assert 'tools.allow: "get_docs" matches no tool' in out
    assert 'tools.deny: "drop_*" matches no tool' in out
    assert "4 warnings" in out


def test_a_pattern_for_all_servers_is_named_where_no_server_has_such_a_tool(tmp_path: Path):
    servers = {name: entry(tmp_path, name, [{"name": name, "inputSchema": SCHEMA}]) for name in ("one", "two")}
    code, out, _ = checked(tmp_path, servers, approval={"one": "always", "too": "always"}, tools={"deny": ["th*"]})
    assert code == 0
    assert 'codemode.approval: "too" matches no tool of any server; did you mean "two"?' in out
    assert 'codemode.tools.deny: "th*" matches no tool of any server' in out
    assert "2 warnings" in out
    code, out, _ = checked(tmp_path, servers, "two", approval={"one": "always"})
    assert (code, "No problems found." in out) == (0, True)


def test_a_server_of_which_programs_have_no_tool_is_a_problem(tmp_path: Path):
    servers = {"docs": entry(tmp_path, "docs", DOCS, codemode={"tools": {"allow": ["none_of_them"]}})}
    code, out, _ = checked(tmp_path, servers)
    assert code == 1
    assert "programs see none of its 2 tools: tools.allow and tools.deny exclude all" in out


def test_what_keeps_every_program_from_running_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    async def refused(*_: Any) -> dict[str, Any]:
        return {"result": None, "diagnostics": [{"severity": "error", "message": "no worker can start"}]}

    monkeypatch.setattr("codemode_gateway.cli.server_commands.run_program_as_client", refused)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"docs": entry(tmp_path, "docs", DOCS)}}))
    assert main(["mcp", "check", "--config", str(path)]) == 1
    out = capsys.readouterr().out
    assert "a program that imports the servers fails: no worker can start" in out
    assert "1 problem (see FAILED above)." in out


def test_a_server_that_programs_can_use_is_well(tmp_path: Path):
    code, out, err = checked(tmp_path, {"docs": entry(tmp_path, "docs", DOCS)}, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["servers"] == [{"name": "docs", "tools": 2, "listed": 2, "problem": None, "warnings": []}]
    assert (found["problems"], found["warnings"]) == ([], [])


def test_a_store_that_cannot_be_used_is_one_problem(tmp_path: Path):
    (tmp_path / "pauses.sqlite").write_text("this is no database, however long it is: " * 200)
    servers, store = {"docs": entry(tmp_path, "docs", DOCS)}, f"sqlite:///{tmp_path}/pauses.sqlite"
    code, out, _ = checked(tmp_path, servers, "--json", store=store)
    (problem,) = json.loads(out)["problems"]
    assert (code, problem.startswith("codemode.store: ")) == (1, True), problem
