"""What plugins may import: the public names, `codemode.stores` and `codemode.plugins`, whose names plugins use."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from suite import each_row

import codemode
from codemode import plugins, stores, types

TREE = Path(__file__).parents[2]
# Gateway and console are no plugins: they are parts of the toolkit in distributions of their own.
PARTS = {"codemode_gateway", "codemode_console"}
FILES = [
    *sorted(path for path in (TREE / "integrations").glob("*/src/**/*.py") if PARTS.isdisjoint(path.parts)),
    TREE / "examples" / "smallest_plugin" / "codemode_tinyloop.py",
]
PUBLIC = {"codemode", "codemode.errors", "codemode.plugins", "codemode.stores", "codemode.types"}
MAX_NAMES = 25
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
    found = {path.relative_to(TREE).parts[1] for path in FILES}
    assert found == {"langchain", "openai-agents", "pydantic-ai", "smallest_plugin"}
    assert len(used("codemode")) > 5


@each_row("path", FILES)
def test_a_plugin_imports_nothing_else_of_the_package(path: Path):
    assert {module for module, _ in imports(path)} <= PUBLIC
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
    assert used("codemode.plugins") == set(plugins.__all__)
    assert used("codemode.stores") <= set(stores.__all__)
    assert used("codemode.types") <= set(types.__all__)


def test_the_names_are_few_and_documented():
    assert len(plugins.__all__) <= MAX_NAMES
    undocumented = [name for name in plugins.__all__ if name != "Listing" and not getattr(plugins, name).__doc__]
    assert undocumented == []


@pytest.mark.parametrize("module", [plugins, stores, types], ids=lambda module: module.__name__)
def test_every_name_is_found_where_type_checkers_are_told(module: Any):
    told = {
        alias.name: (node.level, node.module)
        for block in ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    table = {name: place for place, names in module._LAZY_NAMES.items() for name in names.split()}
    assert {name: "." * level + str(place) for name, (level, place) in told.items()} == {
        name: f".{place}" for name, place in table.items()
    }
    for name, place in table.items():
        assert getattr(module, name) is getattr(import_module(f".{place}", module.__spec__.parent), name)


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
        "plugins.select_tools_with_callable_names, plugins.CompiledSchema, plugins.run_off_loop_if_large",
        "import codemode; codemode.create_code_mode_tool([codemode.Tool('a', execute=len)])",
    ],
)
def test_what_runs_programs_is_not_loaded_before_one_runs(then: str):
    assert {name for name in loaded(then) if name.startswith("codemode.execution.")} <= BEFORE_RUNS


def test_nothing_heavy_is_loaded_with_the_names_of_plugins():
    assert not loaded("") & HEAVY


def test_a_continuation_is_opened_by_what_runs_programs():
    assert "codemode.execution.resume" in loaded("plugins.OpenedContinuation")
