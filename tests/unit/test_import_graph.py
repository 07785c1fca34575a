"""The arrows between modules point one way, and the pure folders stay pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "src" / "codemode"

# A module may import from its own floor and from those below. One that is not named lives with the workers.
FLOORS: tuple[tuple[str, ...], ...] = (
    (
        "errors",
        "values",
        "json_shape",
        "json_pieces",
        "steps",
        "records",
        "late_imports",
        "option_checks",
        "options",
        "similar_names",
        "failure_log",
        "visible_text",
    ),
    (
        "tools",
        "adapters",
        "schemas",
        "type_schemas",
        "type_traits",
        "dict_schemas",
        "dialects",
        "usual_schemas",
        "json_schema_check",
        "json_schema_dialects",
        "json_schema_failures",
        "json_schema_keywords",
        "json_schema_unevaluated",
        "json_schema_walk",
        "patterns",
        "tool_schemas",
        "type_guards",
        "type_pieces",
        "parameters",
        "docstrings",
    ),
    ("signatures", "source", "protocol"),
    ("workers", "nested_call", "approval", "catalog", "lifecycle", "fetch", "interrupts"),
    ("runner",),
    ("execution", "continuations", "interrupt_store", "claimed_resume"),
    ("single_run",),
    ("code_mode_tool",),
    ("__init__", "__main__", "cli", "testing"),
)
DEFAULT_FLOOR = 3
APART = ("signatures", "source", "protocol")  # one floor, but none of them knows another

PURE = ("signatures", "source", "protocol")
IMPURE_MODULES = {"asyncio", "subprocess", "time", "random", "os", "secrets", "socket", "uuid", "datetime", "tempfile"}
# Loaded by path in a locked worker, where no package and hardly a module can be found.
LOADED_BY_PATH = (
    "guest/worker.py", "guest/zygote_main.py", "source/analyse.py", "source/parse.py", "source/strip_types.py",
    "source/facts.py", "source/edits.py", "source/rereading.py",
    "workers/lockdown_linux.py", "workers/seccomp_filter.py",
)  # fmt: skip
FILES = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))


@cache
def imports(file: str) -> frozenset[str]:
    """Return what a file imports at run time, lazily too: "codemode.x.y" for the package's own modules."""
    return frozenset(_imports_of(ast.parse((ROOT / file).read_text(encoding="utf-8")), file))


def _imports_of(node: ast.AST, file: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            for part in child.orelse:
                yield from _imports_of(part, file)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from _imported_from(child, file)
        else:
            yield from _imports_of(child, file)


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


def room(file: str) -> str:
    """Return the folder or the module at the top level."""
    return Path(file).parts[0].removesuffix(".py")


def floor(file: str) -> int:
    named = [number for number, rooms in enumerate(FLOORS) if room(file) in rooms]
    return named[0] if named else DEFAULT_FLOOR


def test_the_walk_sees_relative_lazy_and_plain_imports():
    source = (
        "import os.path\nfrom .. import errors\nfrom ..values import x\nfrom . import ledger, nothing\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..runner import Runner\n"
        "def f():\n    from ..workers.pool import WorkerPool\n    import random\n"
    )
    assert set(_imports_of(ast.parse(source), "protocol/invocation.py")) == {
        "os.path", "codemode.errors", "codemode.values", "codemode.protocol.ledger", "codemode.protocol", "typing",
        "codemode.workers.pool", "random",
    }  # fmt: skip
    assert "protocol/invocation.py" in FILES
    assert "protocol/ledger.py" in own_imports("protocol/invocation.py")


@pytest.mark.parametrize("file", FILES)
def test_no_arrow_points_up(file: str):
    upward = sorted(target for target in own_imports(file) if floor(target) > floor(file))
    assert not upward, f"{file} imports from a floor above its own: {upward}"


@pytest.mark.parametrize("file", [file for file in FILES if room(file) in APART])
def test_the_pure_folders_do_not_know_each_other(file: str):
    others = sorted(target for target in own_imports(file) if room(target) in APART and room(target) != room(file))
    assert not others


def test_no_arrows_form_a_circle():
    graph = {file: own_imports(file) for file in FILES if file != "__init__.py"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"modules import each other in a circle: {' <- '.join(circle.args[1])}")


@pytest.mark.parametrize("file", [file for file in FILES if room(file) in PURE])
def test_pure_modules_import_no_clock_no_chance_and_no_world(file: str):
    impure = {module.split(".")[0] for module in imports(file)} & IMPURE_MODULES
    assert not impure


@pytest.mark.parametrize("file", LOADED_BY_PATH)
def test_what_is_loaded_by_path_imports_nothing_of_the_package(file: str):
    assert not own_imports(file)


def test_only_telemetry_knows_opentelemetry():
    knowing = [file for file in FILES if any(module.startswith("opentelemetry") for module in imports(file))]
    assert [file for file in knowing if not room(file).startswith("telemetry")] == []
