"""Modules of the gateway import each other without a circle, and the core imports nothing of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import codemode_gateway
import pytest

import codemode

GATEWAY = Path(str(codemode_gateway.__file__)).parent
CORE = Path(str(codemode.__file__)).parent


def imports(path: Path, home: Path) -> Iterator[str]:
    """Give what a file imports, late and for types too, as dotted names."""
    package = [home.name, *path.relative_to(home).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def files_of(home: Path) -> dict[str, Path]:
    def named(path: Path) -> str:
        parts = path.relative_to(home).with_suffix("").parts
        return ".".join([home.name, *(part for part in parts if part != "__init__")])

    return {named(path): path for path in sorted(home.rglob("*.py"))}


def test_no_imports_form_a_circle():
    files = files_of(GATEWAY)
    graph = {
        name: {one for one in imports(path, GATEWAY) if one in files and not name.startswith(one)}
        for name, path in files.items()
        if name != GATEWAY.name
    }
    assert sum(map(len, graph.values())) > len(files)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"modules import each other in a circle: {' <- '.join(circle.args[1])}")


def test_the_core_imports_nothing_of_the_gateway():
    knowing = [
        name for name, path in files_of(CORE).items() if any("codemode_gateway" in one for one in imports(path, CORE))
    ]
    assert knowing == []
