"""The page of the gateway: its commands parse, its configurations load, and it names every key, client and code."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import codemode_gateway
import pytest
from codemode_gateway import load_config
from codemode_gateway.cli.commands import CLIENTS, parse_arguments
from codemode_gateway.config import codemode_section
from suite import each_row

import codemode.surfaces.modules

TREE = Path(__file__).parents[2]
PAGE = (TREE / "integrations" / "gateway" / "GUIDE.md").read_text(encoding="utf-8")
REFERENCE = (TREE / "docs" / "gateway-configuration.md").read_text(encoding="utf-8")
ERRORS = (TREE / "docs" / "errors.md").read_text(encoding="utf-8")
COMMAND_LINE = (TREE / "docs" / "command-line.md").read_text(encoding="utf-8")
README = (TREE / "README.md").read_text(encoding="utf-8")
PACKAGE = Path(codemode.surfaces.modules.__file__).parents[2]
GATEWAY = Path(str(codemode_gateway.__file__)).parent


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """Return the gateway's commands of a page's console blocks; what follows two spaces and # is a comment."""
    lines = [line for block in blocks("console", page) for line in block.splitlines()]
    shown = [re.split(r"\s\s+#", line)[0].removeprefix("$ ") for line in lines]
    return [shlex.split(line)[1:] for line in shown if line.startswith("codemode mcp")]


COMMANDS = commands(PAGE) + commands(README) + commands(COMMAND_LINE)


@each_row("command", COMMANDS, ids=" ".join)
def test_every_command_is_one(command: list[str]):
    assert command[0] == "mcp"
    parse_arguments(command[1:])


def test_every_subcommand_is_shown():
    shown = {
        " ".join(command[1:3]) if command[1:2] in (["approvals"], ["pins"]) else (command[1:2] or [""])[0]
        for command in commands(COMMAND_LINE)
    }
    for part in (
        "import",
        "init",
        "install",
        "undo",
        "add",
        "remove",
        "list",
        "check",
        "types",
        "run",
        "login",
        "logout",
    ):
        assert part in shown
    deciding = {f"approvals {action}" for action in ("show", "approve", "deny", "remembered", "forget")}
    assert {"approvals", *deciding, "pins", "pins approve"} <= shown


# What is pasted into a client is no configuration of the gateway, which would start itself.
PASTED = [block for block in blocks("json") if '"args": ["mcp"]' in block]
OURS = [block for page in (PAGE, REFERENCE) for block in blocks("json", page) if block not in PASTED]


def test_the_readme_pastes_what_the_page_does():
    assert [block for block in blocks("json", README) if "codemode" in block] == PASTED
    assert len(PASTED) == 1


@pytest.mark.parametrize("block", OURS, ids=range(len(OURS)))
def test_every_configuration_loads_without_a_problem(block: str):
    names = re.findall(r"\$\{(\w+)\}", block)
    config = load_config(
        json.loads(block), environ={"HOME": "/home/ana", **dict.fromkeys(names, "given elsewhere, with 32 characters")}
    )
    assert (config.problems, bool(config.servers)) == ((), True)


def rows() -> set[str]:
    return {
        name for cell in re.findall(r"^\| ([^|]+) \|", REFERENCE, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    }


def test_every_key_of_a_configuration_has_a_row():
    assert (
        set(codemode_section.SHARED_CHECKS) | set(codemode_section.SERVER_CHECKS) | set(codemode_section.SECTION_CHECKS)
        <= rows()
    )


def test_every_client_that_can_be_taken_over_has_a_row():
    assert {f"`{name}`" for name in CLIENTS} <= set(re.findall(r"`[\w-]+`", PAGE))


def test_every_code_of_the_table_is_one_of_the_package():
    table = ERRORS.split("## Gateway codes", 1)[1]
    codes = re.findall(r"^\| `([A-Z_]+)` \|", table, re.MULTILINE)
    source = "".join(path.read_text(encoding="utf-8") for home in (PACKAGE, GATEWAY) for path in home.rglob("*.py"))
    assert len(codes) >= 8
    assert [code for code in codes if f'"{code}"' not in source] == []


def test_every_code_of_the_gateway_has_a_row():
    source = "".join(path.read_text(encoding="utf-8") for path in GATEWAY.rglob("*.py"))
    codes = set(re.findall(r'diagnostic\(\s*"(?:error|warning|info)",\s*"([A-Z_]+)"', source))
    modules = (TREE / "docs" / "modules.md").read_text(encoding="utf-8")
    assert codes
    assert [code for code in sorted(codes) if f"`{code}`" not in ERRORS + modules] == []
