"""Importing the package stays cheap: what only some users need is imported when they need it."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pydantic", "pydantic_core", "jsonschema", "opentelemetry", "httpx", "tree_sitter")

_SCRIPT = """
import sys
before = set(sys.modules)
import codemode
for name in {steps}: getattr(codemode, name)
print(" ".join(sorted(set(sys.modules) - before)))
"""


@pytest.fixture(scope="module")
def imported() -> set[str]:
    script = _SCRIPT.format(steps="codemode.__all__")
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("name", HEAVY)
def test_importing_the_package_loads_nothing_heavy(imported: set[str], name: str):
    assert "codemode" in imported
    assert name not in imported


_MAKING = """
import sys
from codemode import Tool, create_code_mode_tool
from codemode.tools.adapters import register_adapter
before = set(sys.modules)
made = create_code_mode_tool({"f": lambda x: x, "t": Tool("t", execute=None, input_schema={})})
print("hashlib" in sys.modules, "codemode.protocol.messages" in sys.modules)
made.description
print(" ".join(sorted(set(sys.modules) - before)))
print("codemode.execution.execution" in sys.modules, "codemode.tools.search.index" in sys.modules)
"""


def test_making_a_tool_loads_nothing_that_runs_programs():
    done = subprocess.run([sys.executable, "-c", _MAKING], capture_output=True, text=True, timeout=60, check=True)
    digests, messages, *loaded, runs, searches = done.stdout.split()
    assert (digests, messages) == ("False", "False")  # what is loaded by now keeps the first worker waiting
    assert "codemode.surfaces.code_mode.description" in loaded
    assert (runs, searches) == ("False", "False")
    running = ("codemode.execution", "codemode.workers", "codemode.protocol")
    assert not [name for name in loaded if name.startswith(running)]


def test_the_package_itself_imports_none_of_its_rooms():
    script = "import sys, codemode; print(*(one for one in sys.modules if one.startswith('codemode.')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert set(done.stdout.split()) == {"codemode.host", "codemode.host.imports"}
