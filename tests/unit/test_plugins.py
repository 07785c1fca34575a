"""What plugins may import: the public names and `codemode.plugins`, whose every name some plugin uses."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from suite import each_row

import codemode
from codemode import plugins

TREE = Path(__file__).parents[2]
# The gateway and the console's command are no plugins: they are parts of the toolkit in distributions of their own.
FILES = sorted(
    path
    for path in (TREE / "integrations").glob("*/src/**/*.py")
    if "codemode_gateway" not in path.parts and path.parts[-2:] != ("codemode_console", "command.py")
)
# Whoever registers an adapter is given this one, at the entry point "codemode.adapters".
GIVEN = {"register_adapter"}
# What says of a tool that is made how its programs will be started. All else of the room waits for the first one.
BEFORE_RUNS = {  # and what is told of results, which is light
    "codemode.execution.optional_parts",
    "codemode.execution.starting",
    "codemode.execution.sync_forms",
    "codemode.execution.call_context",
    "codemode.execution.large_results",
}
HEAVY = {"pydantic", "pydantic_core", "jsonschema", "opentelemetry", "httpx", "tree_sitter"}
LOADED = """
import sys
from codemode import plugins
{}
print(" ".join(sys.modules))
"""


@cache
def imports(path: Path) -> list[tuple[str, str]]:
    """Return what a file imports of the package, late and for types too: pairs of a module and a name, or ""."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    plain = [(alias.name, "") for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    named = [
        (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level
        for alias in node.names
    ]
    return [(module, name) for module, name in plain + named if module.split(".")[0] == "codemode"]


def used(module: str) -> set[str]:
    return {name for path in FILES for imported, name in imports(path) if imported == module}


def test_the_plugins_are_found():
    assert {path.relative_to(TREE / "integrations").parts[0] for path in FILES} == {
        "console",
        "langchain",
        "openai-agents",
        "pydantic-ai",
    }
    assert len(used("codemode")) > 5


@each_row("path", FILES)
def test_a_plugin_imports_nothing_else_of_the_package(path: Path):
    assert {module for module, _ in imports(path)} <= {"codemode", "codemode.plugins"}
    assert {name for module, name in imports(path) if module == "codemode"} <= {*codemode.__all__, "plugins", ""}
    # As `codemode.name`, or late by its text.
    tree = ast.parse(path.read_text(encoding="utf-8"))
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    of_the_package = {
        node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "codemode"
    }
    assert of_the_package <= {*codemode.__all__, "plugins"}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    late = [node for node in calls if "import" in ast.unparse(node.func) and "'codemode" in ast.unparse(node)]
    assert [ast.unparse(node) for node in late] == []


def test_every_name_is_used_and_no_other():
    assert used("codemode.plugins") | GIVEN == set(plugins.__all__)
    assert not used("codemode.plugins") & GIVEN


def test_every_name_is_found_where_type_checkers_are_told():
    source = Path(str(plugins.__file__)).read_text(encoding="utf-8")
    told = {
        alias.name: node.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(told) == sorted(plugins.__all__)
    assert told == {name: module for module, names in plugins._LATE.items() for name in names.split()}
    for name, module in told.items():
        assert getattr(plugins, name) is getattr(import_module(f"codemode.{module}"), name)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'codemode.plugins' has no attribute 'nonsense'"):
        _ = plugins.nonsense


def loaded(then: str) -> set[str]:
    command = [sys.executable, "-W", "error", "-c", LOADED.format(then)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "then",
    [
        "",
        "plugins.check_name, plugins.CompiledSchema, plugins.run_check, plugins.check_pool",
        "import codemode; codemode.create_code_mode_tool([codemode.Tool('a', execute=len)])",
    ],
)
def test_what_runs_programs_is_not_loaded_before_one_runs(then: str):
    assert {name for name in loaded(then) if name.startswith("codemode.execution.")} <= BEFORE_RUNS


def test_nothing_heavy_is_loaded_with_the_names_of_plugins():
    assert not loaded("") & HEAVY


def test_a_continuation_is_opened_by_what_runs_programs():
    assert "codemode.execution.resume" in loaded("plugins.open_continuation")
