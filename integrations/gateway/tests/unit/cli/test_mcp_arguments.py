"""What ``codemode mcp`` takes: the configuration before and after every subcommand, and commands behind ``--``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import pytest
from codemode_gateway.cli import commands
from codemode_gateway.cli.command_context import get_config_path
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row, full_only

from codemode.cli import main

PARTS: list[list[str]] = [
    [],
    ["init"],
    ["import", "--from", "cursor"],
    ["install", "--client", "codex", "--dry-run"],
    ["undo", "--client", "vscode"],
    ["add", "git", "http://localhost"],
    ["remove", "git"],
    ["list"],
    ["check"],
    ["check", "git"],
    ["types"],
    ["types", "git"],
    ["run", "program.ts"],
    ["login", "git"],
    ["logout", "git"],
    ["approvals"],
    ["approvals", "approve", "a1"],
    ["approvals", "deny", "a1"],
    ["approvals", "show", "a1"],
    ["approvals", "remembered"],
    ["approvals", "forget", "git"],
    ["approvals", "forget", "git", "push"],
    ["pins"],
    ["pins", "approve", "git"],
    ["programs"],
    ["programs", "show", "report"],
]


ACTIONS = ("approve", "deny", "show", "remembered", "forget")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """What the commands were called with, in place of doing it."""
    calls: list[argparse.Namespace] = []

    def note(options: argparse.Namespace) -> int:
        calls.append(options)
        return 0

    monkeypatch.setattr(commands, "run_parsed_command", note)
    return calls


@pytest.mark.parametrize("part", PARTS, ids=" ".join)
@pytest.mark.parametrize("at", ["before", "after", *full_only("both")])
def test_the_configuration_is_taken_before_and_after_every_subcommand(seen: Any, part: list[str], at: str):
    before = ["--config", "first.json" if at == "both" else "f.json"] if at != "after" else []
    after = ["--config", "f.json"] if at != "before" else []
    assert main(["mcp", *before, *part, *after]) == 0
    assert seen[0].config == "f.json", "the last one counts"


@pytest.mark.parametrize("part", [["approvals", "approve", "a1"], ["pins", "approve", "git"]], ids=" ".join)
def test_the_configuration_is_taken_in_the_middle(seen: Any, part: list[str]):
    assert main(["mcp", part[0], "--config", "f.json", *part[1:]]) == 0
    assert seen[0].config == "f.json"


@pytest.mark.parametrize("part", PARTS, ids=" ".join)
def test_every_subcommand_has_help(capsys: Any, part: list[str]):
    with pytest.raises(SystemExit) as ended:
        main(["mcp", *part, "--help"])
    assert ended.value.code == 0
    _, exit_codes, example = (
        capsys.readouterr().out.partition("\nexit codes:\n")[2].rpartition("example: codemode mcp ")
    )
    assert exit_codes
    commands.parse_arguments(shlex.split(example.split(" > ")[0]))
    assert example.startswith(" ".join(part[:2] if part[1:2] and part[1] in ACTIONS else part[:1])), "its own example"


def test_every_listing_prints_json_and_whatever_reads_the_store_takes_another(seen: Any):
    listings = [["list"], ["check"], ["approvals"], ["approvals", "remembered"], ["pins"], ["programs"]]
    for part in [*listings, ["approvals", "show", "a1"], ["programs", "list"], ["programs", "show", "report"]]:
        assert main(["mcp", *part, "--json"]) == 0
        assert seen.pop().json, part
    for part in PARTS:
        if part[:1] in (["approvals"], ["programs"]):
            assert main(["mcp", *part, "--store", "sqlite:///f", "--create"]) == 0
            assert (seen[-1].store, seen[-1].create) == ("sqlite:///f", True), part


def test_every_subcommand_has_a_module():
    names = {part[0] for part in PARTS if part}
    assert commands._SUBCOMMAND_FUNCTIONS.keys() == names | {None}


@given(st.lists(st.text(max_size=20), max_size=5))
def test_a_command_behind_dashes_is_taken_as_it_is(command: list[str]):
    calls: list[argparse.Namespace] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands, "run_parsed_command", lambda options: calls.append(options) or 0)
        assert main(["mcp", "add", "git", "--approval", "always", "--", *command]) == 0
    assert (calls[0].command_line, calls[0].approval, calls[0].url) == (command, "always", None)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--transport", "sse", "--header", "A: b", "docs", "http://h"],
        ["docs", "--transport", "sse", "--header", "A: b", "http://h"],
        ["docs", "--transport", "sse", "http://h", "--header", "A: b"],
        ["docs", "http://h", "--transport", "sse", "--header", "A: b"],
        ["--transport", "sse", "docs", "--header", "A: b", "http://h"],
    ],
    ids=" ".join,
)
def test_add_accepts_options_anywhere_around_name_and_url(seen: Any, arguments: list[str]):
    assert main(["mcp", "add", *arguments]) == 0
    (options,) = seen
    assert (options.name, options.url, options.command_line) == ("docs", "http://h", None)
    assert (options.transport, options.header) == ("sse", ["A: b"])


def test_forget_accepts_options_between_server_and_tool(seen: Any):
    assert main(["mcp", "approvals", "forget", "git", "--user", "ana", "push"]) == 0
    assert (seen[0].server, seen[0].user, seen[0].tool) == ("git", "ana", "push")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["list", "--", "x"], "after --"),
        (["--", "x"], "after --"),
        (["--http", "8765", "list"], "--http is for serving"),
        (["--no-pass-through", "check"], "--pass-through is for serving"),
        (["add", "git", "uvx", "mcp-server-git"], "as in `codemode mcp add NAME -- COMMAND`"),
        (["add", "git", "npx", "-y", "git"], "as in `codemode mcp add NAME -- COMMAND`"),
        (["add", "git", "uvx"], "uvx is not a URL"),
        (["add", "git", "--env", "A=1", "uvx"], "uvx is not a URL"),
        (["add", "git", "--env", "A=1", "uvx", "mcp-server-git"], "as in `codemode mcp add NAME -- COMMAND`"),
        (["add", "git", "--env", "A=1", "http://h", "--", "uvx"], "needs either a URL or a command after --"),
    ],
)
def test_what_goes_together_with_nothing_is_refused(capsys: Any, arguments: list[str], said: str):
    assert main(["mcp", *arguments]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["--conf", "x"], ["approvals", "x"], ["install", "--client", "cursor", "--undo"]]
)
def test_what_there_is_not_is_wrong_usage(arguments: list[str]):
    with pytest.raises(SystemExit) as ended:
        main(["mcp", *arguments])
    assert ended.value.code == 2


def test_without_the_gateway_the_command_says_what_to_install(monkeypatch: Any, capsys: Any):
    monkeypatch.setattr("codemode.cli.metadata.entry_points", lambda **_: ())
    for part in PARTS:
        assert main(["mcp", *part]) == 2, part
        shown = capsys.readouterr()
        assert "codemode-gateway, which is not installed: in a clone" in shown.err
        assert shown.out == ""


@each_row(
    "given, environ, expected",
    [
        ("here.json", {"CODEMODE_MCP_CONFIG": "/c/there.json"}, "here.json"),
        (None, {"CODEMODE_MCP_CONFIG": "/c/there.json", "XDG_CONFIG_HOME": "/x"}, "/c/there.json"),
        (None, {"XDG_CONFIG_HOME": "/x"}, "/x/codemode/mcp.json"),
        (None, {"XDG_CONFIG_HOME": "relative"}, "~/.config/codemode/mcp.json"),
        (None, {}, "~/.config/codemode/mcp.json"),
        ("~/mine.json", {}, "~/mine.json"),
    ],
)
def test_where_the_configuration_is(given: str | None, environ: dict[str, str], expected: str):
    assert get_config_path(argparse.Namespace(config=given), environ) == Path(expected).expanduser()


def test_a_file_of_the_folder_is_named_and_not_taken(tmp_path: Path, monkeypatch: Any, capsys: Any):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("CODEMODE_MCP_CONFIG", raising=False)
    (tmp_path / ".mcp.json").write_text('{"mcpServers": {"evil": {"command": "touch", "args": ["owned"]}}}')
    assert main(["mcp", "list"]) == 2
    shown = capsys.readouterr()
    assert ("--config .mcp.json" in shown.err, shown.out) == (True, "")
    assert not (tmp_path / "owned").exists()


def test_an_argument_too_many_is_answered_with_the_usage_of_its_subcommand(capsys: pytest.CaptureFixture[str]):
    for arguments, command in (
        (["mcp", "list", "files"], "codemode mcp list"),
        (["mcp", "approvals", "show", "a", "b"], "codemode mcp approvals show"),
        (["mcp", "--none"], "codemode mcp"),
        (["mcp", "add", "docs", "--none", "http://h"], "codemode mcp add"),
        (["doctor", "x"], "codemode doctor"),
        (["run", "a.ts", "b.ts"], "codemode run"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = capsys.readouterr().err
        assert ended.value.code == 2, arguments
        assert said.startswith(f"usage: {command} ["), said
        assert f"{command}: error: unrecognized arguments: " in said, said


def test_serving_over_http_without_the_console_says_what_to_install(monkeypatch: Any, capsys: Any):
    monkeypatch.setattr("codemode_gateway.cli.serve.find_spec", lambda _name: None)
    assert main(["mcp", "--http", "8765"]) == 2
    assert "--http needs codemode-gateway[http]" in capsys.readouterr().err
