"""The arrows between modules point down the layers of ARCHITECTURE.md, and the pure packages stay pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from suite import each_row

TREE = Path(__file__).parents[2]
ROOT = TREE / "src" / "codemode"

_ROW = re.compile(r"^\| (\d) \| ((?:`[^`]+`(?:, )?)+)( PURE)? \|", re.MULTILINE)
ROWS = _ROW.findall((TREE / "ARCHITECTURE.md").read_text(encoding="utf-8"))
LAYERS = {name.strip("`/").removesuffix(".py"): int(number) for number, names, _ in ROWS for name in names.split(", ")}
PURE = {names.strip("`/") for _, names, pure in ROWS if pure}
IMPURE_MODULES = {"asyncio", "subprocess", "time", "random", "os", "secrets", "socket", "uuid", "datetime", "tempfile"}
FILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))


@cache
def imports(file: str) -> frozenset[str]:
    """Return what a file imports, late and for types too: "codemode.x.y" for the package's own modules."""
    return frozenset(_imports_of(ast.parse((ROOT / file).read_text(encoding="utf-8")), file))


def _imports_of(tree: ast.AST, file: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imported_from(node, file)


def _imported_from(statement: ast.ImportFrom, file: str) -> Iterator[str]:
    parts = ("codemode", *Path(file).parts)
    package = parts[: len(parts) - statement.level] if statement.level else ()
    module = ".".join([*package, *([statement.module] if statement.module else [])])
    for alias in statement.names:
        is_module = module.startswith("codemode") and _file_of(f"{module}.{alias.name}") is not None
        yield f"{module}.{alias.name}" if is_module else module


def _file_of(module: str) -> str | None:
    """Return the file of one of the package's own modules."""
    path = Path(*module.split(".")[1:])
    for candidate in (path.with_suffix(".py") if path.name else None, path / "__init__.py"):
        if candidate is not None and (ROOT / candidate).is_file():
            return str(candidate)
    return None


def own_imports(file: str) -> set[str]:
    modules = [module for module in imports(file) if module.split(".")[0] == "codemode"]
    files = {module: _file_of(module) for module in modules}
    assert None not in files.values(), f"{file} imports a module that does not exist: {files}"
    return {path for path in files.values() if path is not None}


def package(file: str) -> str:
    """Return the folder or the module at the top level."""
    return Path(file).parts[0].removesuffix(".py")


def test_the_walk_sees_relative_late_and_plain_imports_and_those_for_types():
    source = (
        "import os.path\nfrom .. import errors\nfrom ..data.content import x\nfrom . import ledger, nothing\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..execution.runner import Runner\n"
        "def f():\n    from ..workers.pool import WorkerPool\n    import random\n"
    )
    assert set(_imports_of(ast.parse(source), "protocol/invocation.py")) == {
        "os.path", "codemode.errors", "codemode.data.content", "codemode.protocol.ledger", "codemode.protocol",
        "typing", "codemode.execution.runner", "codemode.workers.pool", "random",
    }  # fmt: skip
    assert "protocol/ledger.py" in own_imports("protocol/invocation.py")


def test_the_unit_tests_lie_in_the_same_rooms():
    folders = {path.name for path in Path(__file__).parent.iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    assert folders <= {file.split("/")[0] for file in FILES if "/" in file}


def test_the_page_names_every_room_and_no_other():
    assert {package(file) for file in FILES} == set(LAYERS)
    assert sorted(file for file in FILES if "/" not in file) == [
        "__init__.py", "__main__.py", "cached_property.py", "errors.py", "plugins.py", "profile.py", "records.py",
        "types.py",
    ]  # fmt: skip


def test_every_arrow_between_packages_points_down():
    arrows = [(file, target) for file in FILES for target in own_imports(file) if package(target) != package(file)]
    assert len(arrows) > len(FILES)
    # The command line's entry is a package of its own layer with the public names.
    upward = [one for one in arrows if one[0] != "__main__.py" and LAYERS[package(one[1])] >= LAYERS[package(one[0])]]
    assert not upward, f"these import what is not on a lower layer: {upward}"


_MUST_NOT = re.compile(r"^\| \d \| `(\w+)/`(?: PURE)? \|[^|]*\| ([^|]+) \|", re.MULTILINE)
KNOWN_BY = {"keys": "continuations", "the parser": "guest", "tools": "tools", "workers": "workers"}
STRANGERS = [
    (one, KNOWN_BY[what])
    for one, unknown in _MUST_NOT.findall((TREE / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    for what in unknown.split(", ")
    if what in KNOWN_BY
]


@each_row("knowing, unknown", STRANGERS)
def test_a_package_imports_nothing_of_what_it_must_not_know(knowing: str, unknown: str):
    assert [
        file for file in FILES if package(file) == knowing for one in own_imports(file) if package(one) == unknown
    ] == []


def test_the_page_says_who_must_not_know_whom():
    assert {("interrupts", "continuations"), ("interrupts", "tools"), ("source", "guest")} <= set(STRANGERS)


def test_a_surface_knows_no_other():
    def surface(file: str) -> str:
        return Path(file).parts[1]

    files = [file for file in FILES if package(file) == "surfaces" and len(Path(file).parts) > 2]
    between = [(file, one) for file in files for one in own_imports(file) if package(one) == "surfaces"]
    assert [(file, one) for file, one in between if surface(file) != surface(one)] == []


def test_no_arrows_form_a_circle():
    graph = {file: own_imports(file) for file in FILES if file != "__init__.py"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"modules import each other in a circle: {' <- '.join(circle.args[1])}")


def test_pure_modules_import_no_clock_no_chance_and_no_world():
    pure = [file for file in FILES if package(file) in PURE]
    assert {package(file) for file in pure} == PURE
    assert [(file, one) for file in pure for one in imports(file) if one.split(".")[0] in IMPURE_MODULES] == []


@each_row("file", [file for file in FILES if package(file) == "guest"])
def test_what_runs_in_a_worker_imports_nothing_of_the_package(file: str):
    # For types a file may name another one of the guest; at run time each is loaded by path, alone; only
    # the analysis shares its lazy patterns.
    assert {package(target) for target in own_imports(file)} <= {"guest"}
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for_types = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    allowed = {id(node) for block in for_types for node in ast.walk(block)}
    is_analysis = file.startswith("guest/analysis/")
    relative = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level and not (is_analysis and node.module == "lazy_patterns")
    ]
    assert all(id(node) in allowed for node in relative)


def test_only_telemetry_knows_opentelemetry():
    knowing = [file for file in FILES if any(module.startswith("opentelemetry") for module in imports(file))]
    assert knowing == ["observe/telemetry.py"]


def test_only_the_gateway_knows_the_sdk_of_mcp():
    sdk = {"mcp", "mcp_types"}
    knowing = [file for file in FILES if {module.split(".")[0] for module in imports(file)} & sdk]
    assert knowing == []


def test_the_inits_of_rooms_are_empty():
    # Each package costs a start of its own.
    inits = [file for file in FILES if file.endswith("__init__.py")]
    with_names = {"__init__.py", "cli/__init__.py", "openapi/__init__.py", "stores/__init__.py"}
    assert {file for file in inits if (ROOT / file).read_text(encoding="utf-8").strip()} <= with_names
